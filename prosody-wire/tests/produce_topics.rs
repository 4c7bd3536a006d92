//! Topics that change under a producer.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

mod common;

use std::collections::BTreeSet;

use common::{World, numbered, record};
use prosody_testkit::broker::{Action, ApiKey, Match};
use prosody_wire::ErrorCode;
use prosody_wire::produce::{OutgoingRecord, SendOutcome};

/// A topic came back with fewer partitions, and keys still went to those it no longer had: refused again and again until
/// their deadline, as long as the producer lived.
#[tokio::test(start_paused = true)]
async fn a_topic_that_comes_back_smaller_is_written_to_where_it_has_partitions() {
    let world = World::new(2);
    world.cluster.create_topic("t", 8).unwrap();
    let producer = world.producer();
    let keys: Vec<String> = numbered("key", 0..32);
    let keyed = |key: &'static str| OutgoingRecord {
        partition: None,
        key: Some(key.as_bytes()),
        ..record("t", 0, "v")
    };
    let keys: Vec<&'static str> = keys.into_iter().map(|key| &*key.leak()).collect();
    for key in &keys {
        producer.send(keyed(key), None).await.unwrap();
    }
    assert!(world.cluster.delete_topic("t"));
    world.cluster.create_topic("t", 2).unwrap();
    // Refused where it went before, so the producer looks.
    let _ = producer.send(record("t", 7, "v"), world.after(1_000)).await;
    let mut used = BTreeSet::new();
    for key in &keys {
        let delivery = producer.send(keyed(key), world.after(5_000)).await.unwrap();
        used.insert(delivery.partition);
        let free = OutgoingRecord { partition: None, key: None, ..record("t", 0, "v") };
        assert!(producer.send(free, world.after(5_000)).await.unwrap().partition < 2);
    }
    assert_eq!(used, BTreeSet::from([0, 1]));
    let gone = producer.send(record("t", 7, "v"), None).await.unwrap_err();
    assert_eq!(gone.outcome, SendOutcome::NotWritten);
    assert!(producer.close(world.after(1_000).unwrap()).await.is_ok());
}

/// Brokers before Kafka 2.8 answer with LEADER_NOT_AVAILABLE and no partitions for a topic they are just creating. It counted
/// as known, with no partition to write to, and the first records failed.
#[tokio::test(start_paused = true)]
async fn a_topic_that_is_just_being_created_is_waited_for() {
    let world = World::new(1);
    world.cluster.create_topic("t", 2).unwrap();
    let creating = Match::api(ApiKey::METADATA).topic("t").times(2);
    world.cluster.control().on(creating, Action::Error(ErrorCode::LEADER_NOT_AVAILABLE.0));
    let producer = world.producer();
    producer.send(record("t", 1, "v"), world.after(5_000)).await.unwrap();
}
