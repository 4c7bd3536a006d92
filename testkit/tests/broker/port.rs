//! The control port: what its requests do, and that no request can bring a cluster down.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::MetadataRequest;
use proptest::prelude::*;
use prosody_base::{Clock, Doors};
use prosody_testkit::broker::ApiKey;
use prosody_testkit::port::{ControlPort, answer};
use prosody_testkit::{Cluster, ClusterConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{Client, cluster, within};

async fn ask(cluster: &Cluster, line: &str, body: Value) -> (u16, Value) {
    let (method, target) = line.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let answer = answer(cluster, method, path, query, &body).await;
    (answer.status, serde_json::from_str(&answer.body).unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_http_does_is_what_rust_does() {
    let cluster = cluster(3);
    let (status, topic) = ask(&cluster, "POST /topics", json!({"name": "t", "partitions": 2})).await;
    assert_eq!((status, topic["partitions"].as_array().unwrap().len()), (200, 2));
    let records = json!([{"key": "a", "value": "1"}, {"key": "a", "value": "2"}, {"key": "b"}]);
    assert_eq!(ask(&cluster, "POST /topics/t/0/records", records).await.1, json!({"offset": 0, "count": 3}));
    ask(&cluster, "POST /topics/t/0/records", json!({"key": "a", "value": "3"})).await;
    assert_eq!(ask(&cluster, "POST /topics/t/0/compact", Value::Null).await.1, json!({"removed": 2}));
    let (_, read) = ask(&cluster, "GET /topics/t/0/records?from=1&limit=5", Value::Null).await;
    let read: Vec<_> = read.as_array().unwrap().iter().map(|one| one["offset"].as_i64().unwrap()).collect();
    assert_eq!(read, [2, 3]);
    ask(&cluster, "POST /topics/t/0/retention", json!({"before": 3})).await;
    assert_eq!(cluster.log_end("t", 0).unwrap().start, 3);
    let led = ask(&cluster, "POST /topics/t/1/leader", json!({"broker": 3})).await.1;
    assert_eq!((led["leader"].as_i64(), cluster.leader("t", 1)), (Some(3), Some(3)));
    let unclean = json!({"broker": 2, "from": 1});
    ask(&cluster, "POST /topics/t/1/records", json!([{"key": "kept"}])).await;
    ask(&cluster, "POST /topics/t/1/records", json!([{"key": "lost"}])).await;
    let led = ask(&cluster, "POST /topics/t/1/elect_unclean", unclean).await.1;
    assert_eq!((led["leader"].as_i64(), led["end"].as_i64()), (Some(2), Some(1)));
    assert_eq!((cluster.leader("t", 1), cluster.log("t", 1).len()), (Some(2), 1));
    ask(&cluster, "POST /groups/g/coordinator", json!({"broker": 2})).await;
    assert_eq!(cluster.coordinator("g"), Some(2));
    ask(&cluster, "POST /brokers/2/stop", Value::Null).await;
    assert!(!cluster.is_up(2) && cluster.coordinator("g") != Some(2));
    ask(&cluster, "POST /brokers/2/start", Value::Null).await;
    assert!(cluster.is_up(2));
    assert_eq!(ask(&cluster, "DELETE /topics/t", Value::Null).await.0, 200);
    assert_eq!(cluster.topics(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn metadata_says_what_it_is_told_to_and_the_truth_again() {
    let cluster = cluster(3);
    cluster.create_topic("t", 1).unwrap();
    let mut client = Client::new(&cluster, 1);
    let mut told = async || {
        let answer = client.call(9, &MetadataRequest::default().with_topics(None)).await;
        let one = &answer.topics[0].partitions[0];
        (one.leader_id.0, one.leader_epoch, one.error_code)
    };
    let truth = told().await;
    let lie = json!({"leader": 9, "epoch": 7, "error": "LEADER_NOT_AVAILABLE"});
    assert_eq!(ask(&cluster, "POST /topics/t/0/metadata", lie).await.0, 200);
    assert_eq!(told().await, (9, 7, 5));
    ask(&cluster, "POST /topics/t/0/metadata", json!({})).await;
    assert_eq!(told().await, truth);
}

#[tokio::test(start_paused = true)]
async fn a_rule_strikes_is_counted_and_can_be_waited_for() {
    let cluster = cluster(1);
    let rule = json!({"match": {"api": "Metadata", "nth": 2}, "action": {"throttle_ms": 70}});
    assert_eq!(ask(&cluster, "POST /rules", rule).await, (200, json!({"rule": 1})));
    let mut client = Client::new(&cluster, 1);
    let asking = async {
        let mut times = Vec::new();
        for _ in 0..3 {
            Clock::system().sleep(Duration::from_millis(100)).await;
            times.push(client.call(9, &MetadataRequest::default()).await.throttle_time_ms);
        }
        times
    };
    let waiting = ask(&cluster, "GET /rules/1?hits=1&wait_ms=1000", Value::Null);
    let (times, waited) = tokio::join!(asking, waiting);
    assert_eq!((times, waited), (vec![0, 70, 0], (200, json!({"rule": 1, "hits": 1}))));
    let late = ask(&cluster, "GET /rules/1?hits=2&wait_ms=1000", Value::Null).await;
    assert_eq!(late, (408, json!({"error": "the rule struck 1 times"})));
    let (_, journal) = ask(&cluster, "GET /journal?api=Metadata&limit=2", Value::Null).await;
    let struck: Vec<_> = journal.as_array().unwrap().iter().map(|one| one["rule"].as_u64()).collect();
    assert_eq!(struck, [Some(1), None]);
    assert_eq!(cluster.requests(ApiKey::METADATA).len(), 3);
}

/// A rule with a seed of its own strikes the same requests in every cluster.
#[tokio::test(start_paused = true)]
async fn a_seed_makes_chance_repeatable() {
    let run = async |seed: u64, of_cluster: u64| {
        let cluster = Cluster::start(ClusterConfig::default(), Doors::simulated(of_cluster));
        let rule = json!({"match": {"probability": 0.5, "seed": seed}, "action": {"throttle_ms": 1}});
        ask(&cluster, "POST /rules", rule).await;
        let mut client = Client::new(&cluster, 1);
        let mut struck = Vec::new();
        for _ in 0..64 {
            struck.push(client.call(9, &MetadataRequest::default()).await.throttle_time_ms);
        }
        struck
    };
    let first = run(1, 1).await;
    assert!(first.contains(&0) && first.contains(&1));
    assert_eq!(first, run(1, 2).await);
    assert_ne!(first, run(2, 1).await);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_says_why() {
    let cluster = cluster(1);
    cluster.create_topic("t", 1).unwrap();
    for (line, body, status, wanted) in [
        ("GET /nowhere", Value::Null, 404, "there is no GET /nowhere"),
        ("PATCH /topics", Value::Null, 404, "there is no PATCH /topics"),
        ("GET /topics/u", Value::Null, 404, "there is no topic u"),
        ("DELETE /topics/u", Value::Null, 404, "there is no topic u"),
        ("GET /topics/t/7", Value::Null, 404, "there is no partition t/7"),
        ("POST /topics", json!({"partitions": 1}), 400, "`name` is wanted"),
        ("POST /topics", json!({"name": "t"}), 409, "error 36"),
        ("POST /topics", json!({"name": "u", "partitions": 0}), 409, "error 37"),
        ("POST /topics", json!({"name": "u", "size": 1}), 400, "`size` is not known here"),
        ("POST /topics/t/0/leader", json!({"broker": 5}), 404, "there is no broker 5"),
        ("POST /topics/t/0/leader", json!([]), 400, "is no object"),
        ("POST /topics/t/0/elect_unclean", json!({"broker": 1}), 400, "`from` is an offset"),
        ("POST /topics/t/0/elect_unclean", json!({"from": 0}), 400, "`broker` is the number"),
        ("POST /topics/t/0/elect_unclean", json!({"broker": -1, "from": 0}), 404, "there is no broker -1"),
        (
            "POST /topics/t/0/elect_unclean",
            json!({"broker": 1, "from": 0, "to": 1}),
            400,
            "`to` is not known",
        ),
        ("POST /topics/t/0/retention", Value::Null, 400, "`before` is an offset"),
        ("POST /topics/t/0/records", json!([]), 400, "no record is given"),
        ("POST /brokers/9/stop", Value::Null, 404, "there is no broker 9"),
        ("POST /brokers/1/explode", Value::Null, 404, "there is no POST /brokers/1/explode"),
        ("POST /rules", json!({"match": {}}), 400, "`action` is wanted"),
        ("GET /rules/x", Value::Null, 404, "there is no rule x"),
        ("GET /rules/1?hits=1&wait_ms=9999999", Value::Null, 400, "at most 60000"),
        ("GET /journal?api=Fetsch", Value::Null, 400, "is no API"),
        ("GET /groups/g", Value::Null, 404, "there is no group g"),
    ] {
        let (got, said) = ask(&cluster, line, body).await;
        let said = said["error"].as_str().unwrap_or_default().to_owned();
        assert!(got == status && said.contains(wanted), "{line}: {got} {said}");
    }
    let broken = answer(&cluster, "POST", "/rules", "", b"{\"match\"").await;
    assert!(broken.status == 400 && broken.body.contains("the body is no JSON"), "{broken:?}");
    let deep = answer(&cluster, "POST", "/rules", "", "[".repeat(100_000).as_bytes()).await;
    assert!(deep.status == 400 && deep.body.contains("recursion limit"), "{deep:?}");
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z_/%.é-]{0,8}".prop_map(Value::from),
    ];
    let names = prop_oneof![
        Just("match"),
        Just("action"),
        Just("name"),
        Just("partitions"),
        Just("broker"),
        Just("before"),
        Just("from"),
        Just("error"),
        Just("delay_ms"),
        Just("key"),
        Just("topic"),
        Just("versions"),
        Just("absurd_length"),
        Just("producer"),
        Just("epoch"),
        Just("sequence"),
        Just("records"),
        Just("commit"),
        Just("base64"),
        Just("last_offset"),
    ];
    leaf.prop_recursive(3, 12, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_request_panics_and_every_answer_is_json(
        method in "GET|POST|DELETE|PUT",
        parts in proptest::collection::vec(
            "topics|t|0|records|batch|end_transaction|raw|leader|elect_unclean|metadata|compact|retention|recreate|groups|g|coordinator|evict|brokers|1|rules|journal|%|%41|-1|99999999999999999999|",
            0..6,
        ),
        query in "(from|limit|hits|api)?=?-?[0-9A-Za-z%]{0,6}&?",
        body in value(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let cluster = cluster(2);
            cluster.create_topic("t", 1).unwrap();
            let path = format!("/{}", parts.join("/"));
            let said = answer(&cluster, &method, &path, &query, body.to_string().as_bytes()).await;
            prop_assert!([200, 400, 404, 408, 409].contains(&said.status), "{said:?}");
            if path != "/" {
                prop_assert!(serde_json::from_str::<Value>(&said.body).is_ok(), "{said:?}");
            }
            Ok(())
        })?;
    }
}

/// What comes back of these bytes, until the port closes the connection.
async fn raw(port: &ControlPort, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(port.url().trim_start_matches("http://")).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut said = Vec::new();
    let _ = within(stream.read_to_end(&mut said)).await;
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn a_hostile_client_of_the_port_is_refused_and_others_are_served() {
    let cluster = Arc::new(Cluster::start(ClusterConfig::default(), Doors::process().unwrap()));
    let port = ControlPort::open(&cluster, 0).unwrap();
    let long = "x".repeat(100_000);
    for (bytes, wanted) in [
        (b"\x16\x03\x01\x00\x05hello".to_vec(), "400 Bad Request"),
        (b"GET / HTTP/9.9\r\n\r\n".to_vec(), ""),
        (format!("GET /{long} HTTP/1.1\r\n\r\n").into_bytes(), ""),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200)).into_bytes(), "431"),
        (b"POST /rules HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n{}".to_vec(), "a body is at most"),
        (b"POST /rules HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}".to_vec(), "400"),
        (
            b"POST /rules HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\n".to_vec(),
            "400",
        ),
        (
            [b"POST /rules HTTP/1.1\r\nContent-Length: 2000000\r\n\r\n".to_vec(), vec![b' '; 2_000_000]]
                .concat(),
            "a body is at most 1048576 bytes",
        ),
    ] {
        let said = raw(&port, &bytes).await;
        assert!(
            said.contains(wanted),
            "{:?}: {said}",
            String::from_utf8_lossy(&bytes[..30.min(bytes.len())])
        );
    }
    // More silent connections than it holds: the oldest go.
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(TcpStream::connect(port.url().trim_start_matches("http://")).await.unwrap());
    }
    let said = raw(&port, b"GET /cluster HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(said.starts_with("HTTP/1.1 200 OK") && said.contains("\"brokers\""), "{said}");
}

/// Aborted records, a producer's sequences and garbage could be put into a log from Rust alone.
#[tokio::test(start_paused = true)]
async fn batches_transactions_and_raw_bytes_come_over_http_too() {
    let cluster = cluster(1);
    cluster.create_topic("t", 1).unwrap();
    let batch = |sequence: i32, transactional: bool| {
        let records = json!([{"key": "a", "value": "1"}, {"value": "2"}]);
        json!({"producer": 7, "sequence": sequence, "transactional": transactional, "records": records})
    };
    let put = async |body| ask(&cluster, "POST /topics/t/0/batch", body).await;
    assert_eq!(put(batch(0, true)).await, (200, json!({"offset": 0, "count": 2})));
    assert_eq!(put(batch(0, true)).await.1["offset"], 0, "a duplicate");
    assert_eq!(put(batch(9, true)).await.0, 409, "a gap");
    assert_eq!(cluster.log_end("t", 0).unwrap().stable, 0, "the transaction is open");
    let end = async |body| ask(&cluster, "POST /topics/t/0/end_transaction", body).await;
    assert_eq!(end(json!({"producer": 7})).await.0, 400, "one way or the other");
    assert_eq!(end(json!({"producer": 7, "commit": false})).await, (200, json!({"committed": false})));
    let ends = cluster.log_end("t", 0).unwrap();
    assert_eq!((ends.stable, ends.end), (3, 3));
    assert_eq!(put(batch(2, false)).await, (200, json!({"offset": 3, "count": 2})));
    let raw = async |body| ask(&cluster, "POST /topics/t/0/raw", body).await;
    assert_eq!(raw(json!({"base64": "aGk=", "last_offset": 9})).await, (200, json!({"end": 10})));
    assert_eq!(cluster.batches("t", 0).last().unwrap(), "hi");
    for (wrong, status) in [
        (json!({"base64": "aGk=", "last_offset": 9}), 409),
        (json!({"base64": "aGk=", "last_offset": i64::MAX}), 409),
        (json!({"base64": "", "last_offset": 12}), 400),
        (json!({"base64": "?", "last_offset": 12}), 400),
        (json!({"base64": "aGk="}), 400),
    ] {
        assert_eq!(raw(wrong.clone()).await.0, status, "{wrong}");
    }
    assert_eq!(put(json!({"producer": 7, "records": []})).await.0, 400);
    assert_eq!(put(json!({"producer": 7, "transactional": 1, "records": [{}]})).await.0, 400);
}
