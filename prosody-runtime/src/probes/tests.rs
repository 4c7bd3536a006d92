//! Peers of the probe server: those who want an answer, and those who want to keep others from getting one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::Doors;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::answers::answer;
use super::server::{CONNECTION_TIME, MAX_CONNECTIONS, MAX_HEAD, MAX_HEADERS};
use super::*;
use crate::insight::reading::Reading;
use crate::insight::status::RunningHandler;
use crate::partition::event::Position;

fn view(assigned: usize) -> View {
    View {
        reading: Reading { client: 1, group: "g".to_owned(), samples: Vec::new() },
        topics: vec!["t".to_owned()],
        assigned,
        partitions: Vec::new(),
        missed: Vec::new(),
        details: false,
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn start(number: u64) -> (SocketAddr, Doors) {
    let (doors, place) =
        (Doors::simulated(1), Place { address: Some([127, 0, 0, 1].into()), port: free_port() });
    let at = join(&doors, place, number, Arc::new(|| Some(view(1)))).await.unwrap();
    (at, doors)
}

/// What comes back until the server closes the connection.
async fn say(at: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    // A server that refuses what comes may close while we still write.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn get(at: SocketAddr, path: &str) -> String {
    say(at, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await
}

#[test]
fn a_client_without_partitions_is_not_ready_and_a_silent_loop_is_not_alive() {
    assert_eq!(answer("/readyz", &[]).status, 503, "nobody is subscribed yet");
    assert_eq!(answer("/readyz", &[view(0)]).status, 503);
    assert_eq!(answer("/readyz", &[view(0), view(2)]).status, 200, "one of a group is enough");
    let mut other = view(0);
    other.reading.group = "h".to_owned();
    assert_eq!(answer("/readyz", &[view(2), other]).status, 503, "every group of the port");
    let ready = answer("/readyz", &[view(2)]);
    assert_eq!((ready.status, ready.body.as_str()), (200, "client 1 of group g: 2 partitions assigned\n"));
    assert_eq!(answer("/livez", &[view(0)]).status, 200);
    let stuck = View { missed: vec!["offset commits, for 70 s".to_owned()], ..view(1) };
    let dead = answer("/livez", &[view(1), stuck]);
    assert!(dead.status == 503 && dead.body.contains("offset commits, for 70 s"), "{dead:?}");
    assert_eq!(answer("/other", &[]).status, 404);
}

/// The fields of the page's script that it reads of `of`.
fn read_by_the_page(of: &str) -> BTreeSet<String> {
    let fields = include_str!("page.html").split(of).skip(1);
    fields.map(|rest| rest.chars().take_while(char::is_ascii_alphanumeric).collect()).collect()
}

/// That it shows them in a browser is the suite `page`'s to say.
#[test]
fn the_page_reads_what_the_status_says_and_asks_nobody_else() {
    let position = Position::Offset(1);
    let running = RunningHandler { key: "k".to_owned(), position, lasts: CONNECTION_TIME, abandoned: false };
    let partition = PartitionStatus {
        topic: Arc::from("t"),
        partition: 0,
        watermark: 1,
        end: Some(5),
        unfinished: 1,
        in_progress: 1,
        standing: Duration::ZERO,
        running: vec![running],
        timers_due: 0,
        timers_resident: 0,
        oldest_timer: None,
        timers_overdue: None,
        deferred_keys: 0,
        oldest_deferred: None,
        store_error: None,
        stalled: false,
    };
    let view = View { partitions: vec![partition], details: true, ..view(1) };
    let status: serde_json::Value = serde_json::from_str(&answer("/status.json", &[view]).body).unwrap();
    let client = &status["clients"][0];
    let handler = &client["partitions"][0]["handlers"][0];
    let of_partitions = &read_by_the_page("one.") | &read_by_the_page("partition.");
    for (read, object) in [
        (&read_by_the_page("client."), client),
        (&of_partitions, &client["partitions"][0]),
        (&read_by_the_page("handler."), handler),
    ] {
        let there: BTreeSet<String> = object.as_object().unwrap().keys().cloned().collect();
        assert!(!read.is_empty() && read.is_subset(&there), "{read:?} of {there:?}");
    }
    for shown in ["lag", "unfinished", "inProgress", "running", "handlers", "deferredKeys", "timersDue"] {
        assert!(of_partitions.contains(shown), "the page does not show {shown}");
    }
    let page = answer("/", &[]).body;
    assert!(page.contains("fetch(\"status.json\""));
    for elsewhere in ["src=", "http:", "https:", "@import", "url("] {
        assert!(!page.contains(elsewhere), "the page needs {elsewhere}");
    }
}

#[tokio::test]
async fn a_port_is_shared_by_clients_free_after_the_last_and_refused_when_it_is_somebody_elses() {
    let (at, doors) = start(1).await;
    let place = Place { address: Some(at.ip()), port: at.port() };
    let nothing = || {
        let mut view = view(0);
        view.reading.group = "h".to_owned();
        Some(view)
    };
    let two = join(&doors, place, 2, Arc::new(nothing)).await.unwrap();
    assert_eq!(at, two);
    assert!(get(at, "/readyz").await.starts_with("HTTP/1.1 503"), "the second client has nothing");
    leave(at, 2).await;
    assert!(get(at, "/readyz").await.starts_with("HTTP/1.1 200"));
    leave(at, 1).await;
    let other = std::net::TcpListener::bind(at).expect("free once the last one left");
    let why = join(&doors, place, 3, Arc::new(|| None)).await.expect_err("in use");
    let text = why.to_string();
    assert!(text.contains(&format!("port {}", at.port())) && text.contains("PROSODY_PROBE_PORT"), "{text}");
    drop(other);
    join(&doors, place, 3, Arc::new(|| Some(view(1)))).await.expect("free again");
    leave(at, 3).await;
}

/// Under a paused clock a wait for the peer is as long as the server lets it be.
#[tokio::test(start_paused = true)]
async fn a_peer_that_sends_its_request_drop_by_drop_is_cut_off() {
    let (at, doors) = start(1).await;
    for begin in
        [&b""[..], b"G", b"GET /livez HTTP/1.1\r\nHost:", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n"]
    {
        let begun = doors.clock.now();
        let said = say(at, begin).await;
        assert!(!said.starts_with("HTTP/1.1 200"), "{said}");
        let took = doors.clock.now() - begun;
        assert!(took <= CONNECTION_TIME + Duration::from_secs(1), "{took:?}");
    }
    leave(at, 1).await;
}

#[tokio::test]
async fn connections_that_say_nothing_do_not_keep_a_probe_from_its_answer() {
    let (at, _doors) = start(1).await;
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS * 2 {
        silent.push(TcpStream::connect(at).await.unwrap());
        assert!(get(at, "/livez").await.starts_with("HTTP/1.1 200"));
    }
    // The oldest gave way: its end is read at once, long before its time is over.
    let mut oldest = silent.remove(0);
    let end = tokio::time::timeout(CONNECTION_TIME / 2, oldest.read(&mut [0])).await.expect("closed");
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    leave(at, 1).await;
}

#[tokio::test]
async fn requests_that_are_too_large_or_none_are_refused_and_the_next_one_is_served() {
    let (at, _doors) = start(1).await;
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD * 4));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(MAX_HEADERS + 1));
    let path = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(MAX_HEAD * 4));
    let garbage: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let tls = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, b'\r', b'\n', b'\r', b'\n'];
    let bodies = b"POST /livez HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n";
    for hostile in [long.as_bytes(), many.as_bytes(), path.as_bytes(), &garbage, &tls, bodies] {
        let said = say(at, hostile).await;
        assert!(!said.starts_with("HTTP/1.1 200"), "{said}");
        assert!(get(at, "/livez").await.starts_with("HTTP/1.1 200"));
    }
    assert!(say(at, b"HEAD / HTTP/1.1\r\n\r\n").await.ends_with("\r\n\r\n"), "no body");
    let page = get(at, "/").await;
    assert!(
        page.contains("content-security-policy: default-src 'none'") && page.contains("</html>"),
        "{page}"
    );
    leave(at, 1).await;
}
