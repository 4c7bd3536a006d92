//! What does a connection do with peers that are slow, gone, wrong or no Kafka brokers at all?

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prosody_base::{Clock, Doors, PipeStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Body, Connection};
use crate::error::{DecodeError, Error, ErrorKind};
use crate::limits::Limits;
use crate::proto::ApiKey;
use crate::testing::{Asked, greet, offers, request};

const LONG: Duration = Duration::from_secs(30);

async fn dial(near: PipeStream, limits: &Limits, doors: &Doors) -> Result<Connection, Error> {
    let deadline = doors.clock.now() + limits.connect_timeout;
    Connection::open(Box::new(near), "broker 1", "me", None, limits, doors, deadline).await
}

/// A connection and the other end of its pipe, after the greeting.
async fn open() -> (Connection, PipeStream) {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let greeted = async {
        greet(&mut far).await;
        far
    };
    let doors = Doors::simulated(1);
    let limits = Limits::default();
    let (connection, far) = tokio::join!(dial(near, &limits, &doors), greeted);
    (connection.expect("greeted"), far)
}

/// A connection to a peer that answers the first bytes with `answer`.
async fn greeted_with(answer: &'static [u8]) -> Error {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let doors = Doors::simulated(1);
    let limits = Limits::default();
    let peer = async {
        request(&mut far).await.expect("ApiVersions");
        far.write_all(answer).await.expect("open");
        far
    };
    let (connection, _far) = tokio::join!(dial(near, &limits, &doors), peer);
    connection.expect_err("not a broker")
}

fn body(text: &'static str) -> Body {
    Body::new(vec![Bytes::from_static(text.as_bytes())])
}

fn call(connection: &Connection, text: &'static str) -> super::ResponseFuture {
    connection.call_raw(ApiKey::Heartbeat, 2, body(text), LONG)
}

async fn next(far: &mut PipeStream) -> Asked {
    request(far).await.expect("a request")
}

#[tokio::test(start_paused = true)]
async fn requests_are_pipelined_in_call_order_and_each_caller_gets_its_own_answer() {
    let (connection, mut far) = open().await;
    let (a, b, c) = (call(&connection, "a"), call(&connection, "b"), call(&connection, "c"));
    let asked = [next(&mut far).await, next(&mut far).await, next(&mut far).await];
    assert_eq!(asked.each_ref().map(|asked| asked.body.as_ref()), [b"a", b"b", b"c"]);
    for asked in &asked {
        far.write_all(&asked.answer(&asked.body)).await.expect("open");
    }
    // Awaited in another order than asked.
    assert_eq!(c.await.expect("answered"), "c");
    assert_eq!(a.await.expect("answered"), "a");
    assert_eq!(b.await.expect("answered"), "b");
}

/// 20 ms of waiting for the processor of a near broker made it look distant: 100 MB were held instead of 16.
#[tokio::test(start_paused = true)]
async fn a_busy_broker_is_no_distant_one() {
    let (connection, mut far) = open().await;
    for took in [50, 20] {
        let answer = call(&connection, "a");
        let asked = next(&mut far).await;
        tokio::time::sleep(Duration::from_millis(took)).await;
        far.write_all(&asked.answer(b"")).await.expect("open");
        answer.await.expect("answered");
        assert_eq!(connection.distance(), Duration::ZERO, "its greeting took no time");
    }
}

#[tokio::test(start_paused = true)]
async fn segments_are_written_one_after_the_other_as_one_frame() {
    let (connection, mut far) = open().await;
    let segments: Vec<Bytes> = (0..200u8).map(|byte| Bytes::from(vec![byte; 1_000])).collect();
    let waiting = connection.call_raw(ApiKey::Produce, 7, Body::new(segments.clone()), LONG);
    let asked = next(&mut far).await;
    assert_eq!(asked.body, segments.concat());
    far.write_all(&asked.answer(b"ok")).await.expect("open");
    assert_eq!(waiting.await.expect("answered"), "ok");
}

#[tokio::test(start_paused = true)]
async fn frames_arrive_whole_whatever_their_size_and_however_they_are_cut() {
    let (connection, mut far) = open().await;
    for size in [0usize, 1, 100, 8_187, 8_188, 8_189, 8_200, 70_000, 3_000_000] {
        let (large, small) = (call(&connection, "large"), call(&connection, "small"));
        let (first, second) = (next(&mut far).await, next(&mut far).await);
        let expected: Vec<u8> = (0..size).map(|at| u8::try_from(at % 251).expect("a byte")).collect();
        let stream = [first.answer(&expected), second.answer(b"x")].concat();
        let writer = async {
            for piece in stream.chunks(if size > 100_000 { 40_000 } else { 777 }) {
                far.write_all(piece).await.expect("open");
                tokio::task::yield_now().await;
            }
        };
        let (answer, ()) = tokio::join!(large, writer);
        assert_eq!(answer.expect("answered"), expected, "{size} bytes");
        assert_eq!(small.await.expect("answered"), "x");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_takes_nobodys_answer_along() {
    let (connection, mut far) = open().await;
    let gone = call(&connection, "gone");
    let stays = call(&connection, "stays");
    drop(gone);
    for _ in 0..2 {
        let asked = next(&mut far).await;
        far.write_all(&asked.answer(&asked.body)).await.expect("open");
    }
    assert_eq!(stays.await.expect("answered"), "stays");
    assert!(connection.closed().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_answer_out_of_order_ends_the_connection_by_name() {
    let (connection, mut far) = open().await;
    let waiting = call(&connection, "a");
    let mut asked = next(&mut far).await;
    asked.correlation += 1;
    far.write_all(&asked.answer(b"")).await.expect("open");
    let error = waiting.await.expect_err("refused");
    assert!(matches!(
        error.kind(),
        ErrorKind::Decode(DecodeError::Correlation { expected: Some(1), got: 2 })
    ));
    let later = call(&connection, "b").await.expect_err("closed");
    assert!(!later.maybe_sent(), "it was never written");
    assert!(later.to_string().contains("answered request 2 while request 1"), "{later}");
}

/// A client stood still for 130 seconds: its peer swallowed everything, and only the operating system gave up at last.
/// Here the first request whose time is up closes the connection, and what was written on it is of unknown fate.
#[tokio::test(start_paused = true)]
async fn a_timeout_ends_the_connection_and_leaves_what_was_written_unknown() {
    let clock = Clock::simulated();
    let (connection, mut far) = open().await;
    let started = clock.now();
    let slow = connection.call_raw(ApiKey::Heartbeat, 2, body("slow"), Duration::from_secs(3));
    let behind = call(&connection, "behind");
    next(&mut far).await;
    next(&mut far).await;
    let error = slow.await.expect_err("too late");
    assert_eq!(clock.now() - started, Duration::from_secs(3));
    assert!(matches!(error.kind(), ErrorKind::Timeout) && error.maybe_sent());
    assert_eq!(
        error.to_string(),
        "Heartbeat v2 to broker 1: no answer in time (the request may have reached the broker)"
    );
    assert!(behind.await.expect_err("closed").maybe_sent());
    assert_eq!(far.read(&mut [0]).await.expect("closed in peace"), 0, "the socket is closed");
    assert!(connection.closed().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_written_times_out_alone() {
    let (connection, mut far) = open().await;
    connection.throttle(Duration::from_secs(10));
    let early = connection.call_raw(ApiKey::Heartbeat, 2, body("early"), Duration::from_secs(1));
    let late = call(&connection, "late");
    let error = early.await.expect_err("too late");
    assert!(matches!(error.kind(), ErrorKind::Timeout) && !error.maybe_sent());
    let asked = next(&mut far).await;
    assert_eq!(asked.body, "late", "the one that timed out is not written at all");
    far.write_all(&asked.answer(b"ok")).await.expect("open");
    assert_eq!(late.await.expect("answered"), "ok");
}

/// KIP-219: brokers answer at once and expect the client to keep quiet.
#[tokio::test(start_paused = true)]
async fn a_throttled_connection_writes_nothing_until_the_time_is_over() {
    let clock = Clock::simulated();
    let (connection, mut far) = open().await;
    let started = clock.now();
    connection.throttle(Duration::from_millis(700));
    let waiting = call(&connection, "a");
    let asked = next(&mut far).await;
    assert_eq!(clock.now() - started, Duration::from_millis(700));
    far.write_all(&asked.answer(b"ok")).await.expect("open");
    waiting.await.expect("answered");
    // A broker cannot silence us for longer than the bound.
    connection.throttle(Duration::from_secs(100_000));
    let _waiting = connection.call_raw(ApiKey::Heartbeat, 2, body("b"), Duration::from_secs(200_000));
    let started = clock.now();
    next(&mut far).await;
    assert_eq!(clock.now() - started, Limits::default().throttle);
}

#[tokio::test(start_paused = true)]
async fn a_stream_cut_inside_a_frame_fails_the_callers() {
    let (connection, mut far) = open().await;
    let waiting = call(&connection, "a");
    let asked = next(&mut far).await;
    let frame = asked.answer(b"longer than what arrives");
    far.write_all(&frame[..frame.len() - 3]).await.expect("open");
    drop(far);
    let error = waiting.await.expect_err("cut");
    assert!(matches!(error.kind(), ErrorKind::Closed(_)) && error.maybe_sent(), "{error}");
    assert!(error.is_retriable());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_nothing_ends_in_a_timeout_and_not_in_memory() {
    let (near, mut far) = tokio::io::duplex(1 << 10);
    let doors = Doors::simulated(1);
    let limits = Limits { queued: 4, in_flight: 2, ..Limits::default() };
    let (connection, ()) = tokio::join!(dial(near, &limits, &doors), greet(&mut far));
    let connection = connection.expect("greeted");
    let big = || {
        let body = Body::new(vec![Bytes::from_static(&[0; 4_000])]);
        connection.call_raw(ApiKey::Heartbeat, 2, body, Duration::from_secs(5))
    };
    let mut waiting: Vec<_> = (0..2).map(|_| big()).collect();
    tokio::task::yield_now().await;
    waiting.extend((0..4).map(|_| big()));
    let full = big().await.expect_err("one too many");
    assert!(matches!(full.kind(), ErrorKind::Full(_)) && !full.maybe_sent(), "{full}");
    for waiting in waiting {
        assert!(matches!(waiting.await.expect_err("too late").kind(), ErrorKind::Timeout));
    }
}

/// The process was aborted: a web server answered on the broker's port, and its first bytes were taken for a length.
/// Here a length is checked before anything is read or allocated, and what the peer speaks is named.
#[tokio::test(start_paused = true)]
async fn peers_that_are_no_brokers_are_called_by_their_name() {
    let http = greeted_with(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    assert!(http.to_string().contains("speaks HTTP"), "{http}");
    assert!(!http.is_retriable());
    let tls = greeted_with(&[0x15, 3, 1, 0, 2, 2, 70]).await;
    assert!(tls.to_string().contains("speaks TLS"), "{tls}");
    let handshake = greeted_with(&[0x16, 3, 3, 0, 50, 2, 0, 0, 46]).await;
    assert!(handshake.to_string().contains("speaks TLS"), "{handshake}");
    let ssh = greeted_with(b"SSH-2.0-OpenSSH_9.9\r\n").await;
    assert!(ssh.to_string().contains("a frame of 1397966893 bytes; the limit is 67108864"), "{ssh}");
    let negative = greeted_with(&[0xff; 8]).await;
    assert!(negative.to_string().contains("a frame of -1 bytes"), "{negative}");
    let silent = greeted_with(&[]).await;
    assert!(matches!(silent.kind(), ErrorKind::Timeout), "{silent}");
}

/// Answers the first ApiVersions with `odd`, the second like an old broker, and returns what was negotiated.
async fn falls_back(odd: &[u8]) -> Connection {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let doors = Doors::simulated(1);
    let limits = Limits::default();
    let peer = async {
        let first = next(&mut far).await;
        assert_eq!((first.api, first.version), (ApiKey::ApiVersions, 3));
        assert!(first.body.starts_with(b"\x08prosody"), "KIP-511: {:?}", first.body);
        far.write_all(&first.answer(odd)).await.expect("open");
        let second = next(&mut far).await;
        assert_eq!((second.api, second.version), (ApiKey::ApiVersions, 0));
        far.write_all(&offers(&second, &[(ApiKey::Metadata, 0, 8)])).await.expect("open");
        far
    };
    let (connection, _far) = tokio::join!(dial(near, &limits, &doors), peer);
    connection.expect("fell back")
}

/// A client could not bootstrap: a broker refused its ApiVersions request in a layout that it could not read.
/// Here whatever cannot be read is asked for again, in version 0.
#[tokio::test(start_paused = true)]
async fn whatever_cannot_be_read_falls_back_to_version_0() {
    let mut endless = BytesMut::new();
    endless.put_i16(0);
    endless.put_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f]); // the seven bytes that abort a trusting decoder
    let odd: [&[u8]; 7] = [
        &[0, 35, 0, 0, 0, 0],                    // UNSUPPORTED_VERSION in the layout of version 0
        &[0, 35, 1, 0, 0, 0, 0, 0],              // the same in a flexible layout
        &[0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 3], // with a hint
        &endless,
        &[0, 0, 0],                      // a null list
        &[0, 0, 3, 0, 3, 0, 0, 0, 9, 0], // two rows, one and a half there
        b"",
    ];
    for odd in odd {
        let connection = falls_back(odd).await;
        assert_eq!(connection.version(ApiKey::Metadata), Some(8), "{odd:?}");
        let error = connection.require(ApiKey::Produce).expect_err("not offered");
        assert_eq!(error.to_string(), "Produce to broker 1: the broker does not offer Produce");
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_clone_closes_the_socket() {
    let (connection, mut far) = open().await;
    let clone = connection.clone();
    drop(connection);
    let waiting = call(&clone, "a");
    next(&mut far).await;
    drop(clone);
    assert!(matches!(waiting.await.expect_err("closed").kind(), ErrorKind::Closed(_)));
    assert_eq!(far.read(&mut [0]).await.expect("closed in peace"), 0);
}
