//! The probes of a client in mock mode, asked over a real socket.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prosody_runtime::{Client, ClientBuilder, Context, Handler, HandlerError, Message, VirtualCluster};

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn client(cluster: &str, group: &str, port: u16) -> ClientBuilder {
    let client = Client::builder().bootstrap_servers([cluster]).group_id(group).source_system("tests");
    client.subscribed_topics(["t"]).configure(|o| {
        o.probe_port = Some(port);
        o.probe_address = Some("127.0.0.1".to_owned());
        o.stall_threshold = Some(Duration::from_millis(300));
    })
}

fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Holds its messages until it is let go.
struct Holds(Arc<AtomicBool>);

impl Handler for Holds {
    async fn on_message(&self, _: Context, _: Message) -> Result<(), HandlerError> {
        while self.0.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

#[tokio::test]
async fn probes_follow_the_life_of_a_subscription() {
    let (port, held) = (free_port(), Arc::new(AtomicBool::new(true)));
    let client = client("mock://probes", "g", port).build().unwrap();
    assert_eq!(get(port, "/livez"), None, "not before it is subscribed");
    client.subscribe(Holds(Arc::clone(&held))).await.unwrap();
    until("it is ready", || get(port, "/readyz").is_some_and(|(status, _)| status == 200)).await;
    let (_, body) = get(port, "/readyz").unwrap();
    assert!(body.contains("of group g: 4 partitions assigned"), "{body}");
    assert_eq!(get(port, "/livez").unwrap().0, 200, "idle is alive");

    client.send("t", "secret <key>", b"{}").await.unwrap();
    until("it is stalled", || get(port, "/livez").unwrap().0 == 503).await;
    assert!(client.is_stalled());
    let (_, body) = get(port, "/livez").unwrap();
    assert!(body.contains("stalled: t[") && body.contains("a handler runs offset 0"), "{body}");
    let (_, status) = get(port, "/status.json").unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let partitions = status["clients"][0]["partitions"].as_array().unwrap();
    let stalled = partitions.iter().find(|partition| partition["stalled"] == true).unwrap();
    assert_eq!((&stalled["running"], &stalled["lag"]), (&1.into(), &1.into()), "{stalled}");
    for path in ["/livez", "/status.json", "/metrics", "/"] {
        assert!(!get(port, path).unwrap().1.contains("secret"), "{path} shows a key without ProbeDetails");
    }
    let (_, metrics) = get(port, "/metrics").unwrap();
    assert!(
        metrics.lines().any(|line| line.starts_with("prosody_partition_stalled{") && line.ends_with(" 1"))
    );
    held.store(false, Ordering::Relaxed);
    until("it is alive", || get(port, "/livez").unwrap().0 == 200).await;
    client.unsubscribe().await.unwrap();
    assert_eq!(get(port, "/livez"), None, "not after it");
    client.subscribe(Holds(held)).await.expect("the port is free again");
    client.unsubscribe().await.unwrap();
}

/// Loops that have nothing to do for ten times as long as one may be silent say so all the time.
#[tokio::test]
async fn a_client_with_nothing_to_do_is_alive_and_ready() {
    let (time, port) = (VirtualCluster::open("idle-probes").unwrap(), free_port());
    let client = client("mock://idle-probes", "g", port).build().unwrap();
    client.subscribe(Holds(Arc::default())).await.unwrap();
    until("it is ready", || get(port, "/readyz").is_some_and(|(status, _)| status == 200)).await;
    time.advance(Duration::from_secs(600)).await;
    for path in ["/livez", "/readyz"] {
        let (status, body) = get(port, path).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
    }
    client.close().await.unwrap();
}

#[tokio::test]
async fn clients_of_one_process_share_a_port_and_keys_are_shown_only_on_request() {
    let (port, held) = (free_port(), Arc::new(AtomicBool::new(true)));
    let one = client("mock://shared-probes", "one", port).build().unwrap();
    let two = client("mock://shared-probes", "two", port).configure(|o| o.probe_details = Some(true));
    let two = two.build().unwrap();
    one.subscribe(Holds(Arc::default())).await.unwrap();
    two.subscribe(Holds(Arc::clone(&held))).await.unwrap();
    until("both are ready", || get(port, "/readyz").is_some_and(|(status, _)| status == 200)).await;
    one.send("t", "key-of-two", b"{}").await.unwrap();
    until("it is stalled", || get(port, "/livez").unwrap().0 == 503).await;
    assert!(get(port, "/livez").unwrap().1.contains("of group two: stalled: t["));
    assert!(get(port, "/livez").unwrap().1.contains("(key \"key-of-two\")"));
    one.unsubscribe().await.unwrap();
    let (_, metrics) = get(port, "/metrics").unwrap();
    assert!(!metrics.contains("group=\"one\"") && metrics.contains("group=\"two\""));
    held.store(false, Ordering::Relaxed);
    two.unsubscribe().await.unwrap();
    assert_eq!(get(port, "/livez"), None);
}

#[tokio::test]
async fn a_port_that_another_process_uses_fails_the_subscription_by_name() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let client = client("mock://taken-probes", "g", port).build().unwrap();
    let why = client.subscribe(Holds(Arc::default())).await.expect_err("in use").to_string();
    assert!(why.contains(&format!("port {port}")) && why.contains("another process uses it"), "{why}");
    drop(other);
    client.subscribe(Holds(Arc::default())).await.expect("it may try again");
    client.unsubscribe().await.unwrap();
}
