//! Records without a key against the in-process broker: where do they go?
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

use std::time::Duration;

use common::{World, far_client, record};
use prosody_testkit::broker::{Action, ApiKey, Match};
use prosody_wire::batch::Compression;
use prosody_wire::produce::{OutgoingRecord, Producer, ProducerConfig};

/// A record that may go anywhere.
fn keyless(value: &str) -> OutgoingRecord<'_> {
    OutgoingRecord { partition: None, key: None, ..record("t", 0, value) }
}

/// Batches of 1,000 bytes, whatever their records are.
fn small_batches() -> ProducerConfig {
    ProducerConfig { batch_size: 1_000, compression: Compression::None, ..ProducerConfig::default() }
}

/// Senders that await each record never fill a batch, and the partition was changed only when a batch was full: all their
/// records without a key went to one partition for ever. Here they stay for the bytes of a batch and go on (KIP-794).
#[tokio::test(start_paused = true)]
async fn records_without_a_key_fill_one_partition_after_the_other() {
    let world = World::new(1);
    world.cluster.create_topic("t", 4).unwrap();
    let producer = Producer::new(&world.client, small_batches());
    let value = "x".repeat(50);
    let mut stays: Vec<(i32, usize)> = Vec::new();
    for _ in 0..1_000 {
        let partition = producer.send(keyless(&value), None).await.unwrap().partition;
        match stays.last_mut() {
            Some((last, records)) if *last == partition => *records += 1,
            _ => stays.push((partition, 1)),
        }
    }
    // About 57 bytes a record and 61 for the batch. A partition may be drawn twice in a row.
    let _ = stays.pop();
    let one = stays.iter().map(|(_, records)| *records).min().unwrap();
    assert!((14..=17).contains(&one), "{one} records for 1,000 bytes");
    assert!(stays.iter().all(|(_, records)| records % one == 0), "{stays:?}");
    for partition in 0..4 {
        let share = world.values("t", partition).len();
        assert!((100..500).contains(&share), "{share} of 1,000 records in partition {partition}");
    }
    // Records that are there together fill their batches, and no batch has a straggler.
    let before: usize = (0..4).map(|partition| world.cluster.batches("t", partition).len()).sum();
    let sends: Vec<_> = (0..one * 40).map(|_| producer.send(keyless(&value), None)).collect();
    for send in sends {
        send.await.unwrap();
    }
    let after: usize = (0..4).map(|partition| world.cluster.batches("t", partition).len()).sum();
    assert!((40..=44).contains(&(after - before)), "{} batches for 40", after - before);
}

/// Partitions had equal shares whatever their brokers did, so the queue of a slow one grew until it had all of the memory,
/// and every sender waited for it. Here it gets what it can take (KIP-794).
#[tokio::test(start_paused = true)]
async fn a_slow_partition_gets_fewer_records_without_a_key() {
    let world = World::new(3);
    world.cluster.create_topic("t", 3).unwrap();
    let slow = Match::api(ApiKey::PRODUCE).partition("t", 0);
    world.cluster.control().on(slow, Action::Delay(Duration::from_millis(100)));
    let config = ProducerConfig { request_size: 1_000, ..small_batches() };
    let producer = Producer::new(&world.client, config);
    let value = "x".repeat(80);
    let mut sends = Vec::new();
    // About 100 batches a second, of which the slow partition takes 10.
    for _ in 0..10_000 {
        sends.push(producer.send(keyless(&value), None));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let written: Vec<usize> = (0..3).map(|partition| world.values("t", partition).len()).collect();
    let waiting = 10_000 - written.iter().sum::<usize>();
    assert!((500..1_400).contains(&written[0]), "{written:?}: what it can take");
    assert!(waiting < 200, "{waiting} records wait");
    assert!(written[1].abs_diff(written[2]) < 1_500, "{written:?}: the others are equals");
    for send in sends {
        send.await.unwrap();
    }
    assert_eq!(world.cluster.violations(), []);
}

/// A batch that records without a key have left grows no more. It must not wait until the broker has nothing else to do, or
/// one request would be on the way at a time, however far the broker is.
#[tokio::test(start_paused = true)]
async fn a_batch_that_was_left_is_sent_beside_others() {
    let world = World::new(1);
    world.cluster.create_topic("t", 64).unwrap();
    let config = ProducerConfig { request_size: 1_000, ..small_batches() };
    let client = far_client(&world.cluster, &world.doors, Duration::from_millis(100));
    let producer = Producer::new(&client, config);
    let value = "x".repeat(50);
    producer.send(keyless(&value), None).await.unwrap();
    let start = world.now();
    let sends: Vec<_> = (0..320).map(|_| producer.send(keyless(&value), None)).collect();
    for send in sends {
        send.await.unwrap();
    }
    // 20 requests, five on the way at a time, hardly two of them to one partition.
    let took = world.now() - start;
    assert!(took < Duration::from_millis(1_000), "{took:?}");
}

/// Records that waited until their topic was known were spread before the leaders were: some went to a partition that nobody
/// led, and waited there for an election, or for their deadline.
#[tokio::test(start_paused = true)]
async fn records_that_waited_for_their_topic_go_where_there_is_a_leader() {
    let world = World::new(2);
    world.cluster.create_topic("t", 2).unwrap();
    world.cluster.move_leader("t", 0, -1);
    let producer = Producer::new(&world.client, small_batches());
    let value = "x".repeat(50);
    let deadline = world.after(5_000);
    let sends: Vec<_> = (0..200).map(|_| producer.send(keyless(&value), deadline)).collect();
    for send in sends {
        assert_eq!(send.await.unwrap().partition, 1);
    }
}

/// The partition in use lost its leader, and records without a key still went there for the rest of its bytes.
#[tokio::test(start_paused = true)]
async fn a_partition_that_lost_its_leader_is_left_at_once() {
    let world = World::new(2);
    world.cluster.create_topic("t", 2).unwrap();
    let producer = world.producer();
    let first = producer.send(keyless("first"), None).await.unwrap().partition;
    world.cluster.move_leader("t", first, -1);
    // What is sent there is refused, so the producer looks.
    let waits = producer.send(OutgoingRecord { key: None, ..record("t", first, "waits") }, None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..20 {
        let there = producer.send(keyless("x"), world.after(1_000)).await.unwrap().partition;
        assert_eq!(there, 1 - first);
    }
    // With nobody anywhere they stay together, and all go once there is somebody.
    world.cluster.move_leader("t", 1 - first, -1);
    let also = producer.send(OutgoingRecord { key: None, ..record("t", 1 - first, "also") }, None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sends: Vec<_> = (0..20).map(|_| producer.send(keyless("y"), None)).collect();
    world.cluster.move_leader("t", 0, 1);
    world.cluster.move_leader("t", 1, 2);
    let mut places = std::collections::BTreeSet::new();
    for send in sends {
        places.insert(send.await.unwrap().partition);
    }
    assert_eq!(places.len(), 1, "{places:?}");
    waits.await.unwrap();
    also.await.unwrap();
}
