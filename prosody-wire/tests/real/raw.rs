//! Requests that our client has no call for, written with the message crate.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use prosody_wire::{Connector, TcpConnector};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Asks the broker at this address one thing, on a connection of its own.
pub(crate) async fn ask<R: Request>(address: &str, version: i16, request: &R) -> R::Response
where
    R::Response: Decodable + HeaderVersion,
{
    tokio::time::timeout(PATIENCE, exchange(address, version, request)).await.expect("an answer in time")
}

async fn exchange<R: Request>(address: &str, version: i16, request: &R) -> R::Response
where
    R::Response: Decodable + HeaderVersion,
{
    let (host, port) = address.rsplit_once(':').unwrap();
    let mut stream = TcpConnector.connect(host, port.parse().unwrap()).await.unwrap();
    let head = RequestHeader::default().with_request_api_key(R::KEY).with_request_api_version(version);
    let mut frame = BytesMut::new();
    head.with_client_id(Some(text("a test"))).encode(&mut frame, R::header_version(version)).unwrap();
    request.encode(&mut frame, version).unwrap();
    let mut bytes = BytesMut::new();
    bytes.put_i32(frame.len() as i32);
    bytes.put_slice(&frame);
    stream.write_all(&bytes).await.unwrap();
    let mut answer = vec![0; stream.read_i32().await.unwrap() as usize];
    stream.read_exact(&mut answer).await.unwrap();
    let mut answer = Bytes::from(answer);
    ResponseHeader::decode(&mut answer, R::Response::header_version(version)).unwrap();
    let decoded = R::Response::decode(&mut answer, version).unwrap();
    assert!(!answer.has_remaining());
    decoded
}
