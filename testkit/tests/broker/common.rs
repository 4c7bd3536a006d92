//! What do the tests of the broker share? A client that says exactly what a test wants said.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey as Known, RequestHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use prosody_base::{Clock, Doors, PipeStream, guard};
use prosody_testkit::broker::batch::NewBatch;
use prosody_testkit::{Cluster, ClusterConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) fn cluster(brokers: i32) -> Cluster {
    Cluster::start(ClusterConfig { brokers, ..ClusterConfig::default() }, Doors::simulated(1))
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Ends a test that would hang; on the paused clock this costs nothing.
pub(crate) async fn within<F: Future>(what: F) -> F::Output {
    let clock = Clock::system();
    clock.until(clock.now() + Duration::from_secs(600), what).await.expect("ten minutes passed")
}

/// A connection to one broker.
pub(crate) struct Client {
    pub(crate) stream: PipeStream,
    correlation: i32,
}

impl Client {
    pub(crate) fn new(cluster: &Cluster, broker: i32) -> Client {
        let stream = cluster.network().connect(&format!("b{broker}:9092")).expect("the broker is up");
        Client { stream, correlation: 0 }
    }

    pub(crate) async fn send<R: Request>(&mut self, version: i16, request: &R) {
        self.correlation += 1;
        let mut frame = BytesMut::new();
        RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(text("tester")))
            .encode(&mut frame, R::header_version(version))
            .expect("a header");
        request.encode(&mut frame, version).unwrap_or_else(|error| panic!("{} v{version}: {error}", R::KEY));
        self.send_frame(&frame).await;
    }

    pub(crate) async fn send_frame(&mut self, frame: &[u8]) {
        let mut bytes = BytesMut::new();
        bytes.put_i32(frame.len() as i32);
        bytes.put_slice(frame);
        let _ = self.stream.write_all(&bytes).await;
    }

    /// The next frame, or `None` at the end of the stream.
    pub(crate) async fn frame(&mut self) -> Option<Bytes> {
        let length = within(self.stream.read_i32()).await.ok()?;
        let mut frame = vec![0; length as usize];
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(frame.into())
    }

    /// The next answer: its correlation is right, the guard lets it pass, and nothing is left over.
    pub(crate) async fn receive<R: Request>(&mut self, version: i16) -> R::Response
    where
        R::Response: Decodable + HeaderVersion,
    {
        let mut frame = self.frame().await.expect("an answer");
        assert_eq!(frame.get_i32(), self.correlation, "correlation");
        if R::Response::header_version(version) >= 1 {
            assert_eq!(frame.get_u8(), 0, "tags of the header");
        }
        if let Err(error) = guard::check_response(R::KEY, version, &frame) {
            panic!("{} v{version}: {error}", R::KEY);
        }
        let response = R::Response::decode(&mut frame, version).expect("an answer that decodes");
        assert!(frame.is_empty(), "{:?} v{version}: {} bytes too many", Known::try_from(R::KEY), frame.len());
        response
    }

    pub(crate) async fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response
    where
        R::Response: Decodable + HeaderVersion,
    {
        self.send(version, request).await;
        self.receive::<R>(version).await
    }
}

/// One batch of an idempotent producer with `count` records.
pub(crate) fn batch(producer: i64, epoch: i16, sequence: i32, count: usize) -> Bytes {
    let records = vec![(Some(&b"key"[..]), Some(&b"value"[..])); count];
    NewBatch {
        attributes: 0,
        producer_id: producer,
        producer_epoch: epoch,
        base_sequence: sequence,
        timestamp: 1_000,
        records: &records,
    }
    .encode()
}
