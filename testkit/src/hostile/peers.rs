//! What can a whole connection do wrong: other protocols, lengths, order, silence?

use super::{Attack, Row};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What a hostile peer does when the next request has arrived.
#[derive(Clone, Debug)]
pub enum Move {
    /// Answers ApiVersions as a broker that knows Metadata v7 and v8 only.
    Hello,
    /// Answers with this body behind the right length and correlation id.
    Answer(Vec<u8>),
    /// Answers with this body behind another correlation id.
    AnswerOther(Vec<u8>),
    /// Answers the same request twice with this body.
    AnswerTwice(Vec<u8>),
    /// Sends these bytes, which are no frame.
    Raw(Vec<u8>),
    /// Sends these bytes and closes the connection.
    RawThenClose(Vec<u8>),
    /// Answers ApiVersions as a broker that wants to know its clients.
    HelloLogin,
    /// Answers a SCRAM client's first message with what this makes of its nonce.
    Challenge(fn(&str) -> String),
    /// Sends these bytes as soon as anything arrives, and closes the connection.
    Blurt(Vec<u8>),
    /// Does nothing, for ever.
    Silence,
}

/// Plays `moves` on one connection, one for each request; after the last it is silent until the client hangs up.
///
/// # Errors
/// When the connection ends, which is what the client is expected to do.
pub async fn play<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, moves: &[Move]) -> io::Result<()> {
    for next in moves {
        if let Move::Blurt(bytes) = next {
            let _ = stream.read(&mut [0; 16]).await?;
            stream.write_all(bytes).await?;
            return stream.shutdown().await;
        }
        let (correlation, asked) = request(&mut stream).await?;
        match next {
            Move::Hello => stream.write_all(&frame(correlation, &hello())).await?,
            Move::Answer(body) => stream.write_all(&frame(correlation, body)).await?,
            Move::AnswerOther(body) => stream.write_all(&frame(correlation.wrapping_add(7), body)).await?,
            Move::AnswerTwice(body) => stream.write_all(&frame(correlation, body).repeat(2)).await?,
            Move::Raw(bytes) => stream.write_all(bytes).await?,
            Move::RawThenClose(bytes) => {
                stream.write_all(bytes).await?;
                return stream.shutdown().await;
            }
            Move::HelloLogin => stream.write_all(&frame(correlation, &hello_login())).await?,
            Move::Challenge(make) => {
                let text = String::from_utf8_lossy(&asked);
                let nonce = text.split_once(",r=").map_or("", |(_, nonce)| nonce);
                stream.write_all(&frame(correlation, &token(make(nonce).as_bytes()))).await?;
            }
            Move::Blurt(_) | Move::Silence => break,
        }
    }
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(|_| ())
}

/// Reads a request and returns its correlation id and itself.
async fn request<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<(i32, Vec<u8>)> {
    let length = stream.read_i32().await?;
    let mut rest = vec![0; usize::try_from(length).unwrap_or(0).clamp(8, 1 << 20)];
    stream.read_exact(&mut rest).await?;
    let correlation = rest.get(4..8).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
    Ok((i32::from_be_bytes(correlation), rest))
}

fn frame(correlation: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as i32 + 4).to_be_bytes().to_vec();
    bytes.extend_from_slice(&correlation.to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// ApiVersions v3: no error, Metadata 7 to 8 and ApiVersions 0 to 3, no throttling.
#[must_use]
pub fn hello() -> Vec<u8> {
    vec![0, 0, 3, 0, 3, 0, 7, 0, 8, 0, 0, 18, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0]
}

/// The same, with SaslHandshake 1 and SaslAuthenticate 0.
fn hello_login() -> Vec<u8> {
    let rows: [[u8; 7]; 4] =
        [[0, 3, 0, 7, 0, 8, 0], [0, 17, 0, 1, 0, 1, 0], [0, 18, 0, 0, 0, 3, 0], [0, 36, 0, 0, 0, 0, 0]];
    [&[0, 0, 5][..], rows.as_flattened(), &[0, 0, 0, 0, 0]].concat()
}

/// SaslAuthenticate v0: no error, no text, this token.
pub(super) fn token(bytes: &[u8]) -> Vec<u8> {
    [&[0, 0, 0xff, 0xff][..], &(bytes.len() as i32).to_be_bytes(), bytes].concat()
}

fn row(name: &'static str, moves: Vec<Move>, text: &'static str) -> Row {
    Row { name, attack: Attack::Peer(moves), text }
}

/// A peer that says hello and answers the Metadata request with this move.
fn then(name: &'static str, next: Move, text: &'static str) -> Row {
    row(name, vec![Move::Hello, next], text)
}

/// Metadata v8 with these brokers and no topic.
fn brokers(brokers: &[(i32, &str, i32)]) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend_from_slice(&(brokers.len() as i32).to_be_bytes());
    for (id, host, port) in brokers {
        body.extend_from_slice(&id.to_be_bytes());
        body.extend_from_slice(&(host.len() as i16).to_be_bytes());
        body.extend_from_slice(host.as_bytes());
        body.extend_from_slice(&port.to_be_bytes());
        body.extend_from_slice(&(-1_i16).to_be_bytes());
    }
    // No cluster id, controller 0, no topics, no operations.
    body.extend_from_slice(&[0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0]);
    body
}

pub(super) fn rows() -> Vec<Row> {
    let frame_of = |length: i32| length.to_be_bytes().to_vec();
    let crowd: Vec<(i32, &str, i32)> = (0..1_100).map(|id| (id, "h", 1)).collect();
    let http = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec();
    let absurd_v3 = vec![0, 0, 0xff, 0xff, 0xff, 0xff, 0x07];
    let absurd_v0 = vec![0, 0, 0x7f, 0xff, 0xff, 0xff];
    let unsupported = vec![0, 35, 0, 0, 0, 0];
    vec![
        row("peer: HTTP", vec![Move::RawThenClose(http)], "HTTP"),
        row("peer: TLS alert", vec![Move::RawThenClose(vec![0x15, 3, 3, 0, 2, 2, 40])], "TLS"),
        row(
            "peer: SSH banner",
            vec![Move::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec())],
            "the peer claims a frame of 1397966893 bytes",
        ),
        row("frame: length negative", vec![Move::Raw(frame_of(-1))], "the peer claims a frame of -1 bytes"),
        row(
            "frame: length over the limit",
            vec![Move::Raw(frame_of(i32::MAX))],
            "the peer claims a frame of 2147483647 bytes",
        ),
        row(
            "frame: length below a header",
            vec![Move::Raw(frame_of(3))],
            "the peer claims a frame of 3 bytes",
        ),
        row(
            "frame: cut off",
            vec![Move::RawThenClose(vec![0, 0, 1, 0, 0, 0, 0, 1])],
            "closed the connection",
        ),
        row("frame: never completed", vec![Move::Raw(vec![0, 0, 1, 0])], "no answer in time"),
        row("peer: closes at once", vec![Move::RawThenClose(Vec::new())], "closed the connection"),
        row("peer: silent", vec![Move::Silence], "no answer in time"),
        row(
            "versions: count in both layouts",
            vec![Move::Answer(absurd_v3), Move::Answer(absurd_v0)],
            "claims more APIs than it holds",
        ),
        row("versions: cut off", vec![Move::Answer(vec![0]), Move::Answer(vec![0])], "ends too early"),
        row(
            "versions: error in every version",
            vec![Move::Answer(unsupported.clone()), Move::Answer(unsupported)],
            "UNSUPPORTED_VERSION",
        ),
        row(
            "versions: nothing in common",
            vec![Move::Answer(vec![0, 0, 2, 0, 3, 0, 90, 0, 99, 0, 0, 0, 0, 0, 0])],
            "Metadata",
        ),
        row(
            "correlation: other id",
            vec![Move::AnswerOther(hello())],
            "answered request 7 while request 0 was",
        ),
        row("correlation: answer twice", vec![Move::AnswerTwice(hello())], "the peer answered request 0"),
        then("answers: silent after hello", Move::Silence, "no answer in time"),
        then("answers: garbage", Move::Answer(vec![0xff; 64]), "field brokers"),
        then(
            "answers: more brokers than the limit",
            Move::Answer(brokers(&crowd)),
            "1100 brokers are over the limit of 1024",
        ),
    ]
}
