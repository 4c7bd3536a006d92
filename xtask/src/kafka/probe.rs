//! Is a broker ready? It answers ApiVersions, and its Metadata names every broker of the cluster.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);
const API_VERSIONS: i16 = 18;
const METADATA: i16 = 3;
/// An answer longer than this is no answer to our question.
const MAX_ANSWER: usize = 1 << 20;

/// How many brokers the one on `port` knows, itself included.
pub(super) fn brokers(port: u16) -> io::Result<usize> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let versions = ask(&mut stream, API_VERSIONS, 0, &[])?;
    match int16(&versions, 0) {
        Some(0) => {}
        code => return Err(io::Error::other(format!("ApiVersions answered {code:?}"))),
    }
    // A null array asks for every topic, an empty one (from version 1 on) for none: only the brokers matter here.
    let metadata = ask(&mut stream, METADATA, 1, &0_i32.to_be_bytes())?;
    int32(&metadata, 0)
        .and_then(|count| usize::try_from(count).ok())
        .ok_or_else(|| io::Error::other("Metadata without a list of brokers"))
}

/// The API keys that the broker at `address` offers.
pub(crate) fn offered(address: &str) -> io::Result<BTreeSet<i16>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let versions = ask(&mut stream, API_VERSIONS, 0, &[])?;
    let count = int32(&versions, 2).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    Ok((0..count).map_while(|row| int16(&versions, 6 + 6 * row)).collect())
}

/// One request with a version 1 header and its answer without the header.
fn ask(stream: &mut TcpStream, api: i16, version: i16, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    for part in
        [&api.to_be_bytes()[..], &version.to_be_bytes(), &1_i32.to_be_bytes(), &(-1_i16).to_be_bytes(), body]
    {
        request.extend_from_slice(part);
    }
    let size = u32::try_from(request.len()).unwrap_or(u32::MAX);
    stream.write_all(&size.to_be_bytes())?;
    stream.write_all(&request)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if !(4..=MAX_ANSWER).contains(&length) {
        return Err(io::Error::other(format!("an answer of {length} bytes")));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(answer.split_off(4))
}

fn int16(bytes: &[u8], at: usize) -> Option<i16> {
    Some(i16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn int32(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
