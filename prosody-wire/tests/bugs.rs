//! Stories of docs/bugs-of-others.md that no other file tells: of readers and of closing.
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

use common::{World, at, numbered, record, send_all};
use prosody_testkit::broker::{Action, ApiKey, Match};
use prosody_testkit::hostile::Batch;
use prosody_wire::TopicPartition;
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, PartitionReader};
use prosody_wire::produce::{Producer, ProducerConfig, SendOutcome};

async fn batch(reader: &mut PartitionReader, millis: u64) -> Option<prosody_wire::batch::Batch> {
    match tokio::time::timeout(Duration::from_millis(millis), reader.next()).await {
        Ok(FetchItem::Batch(batch)) => Some(batch),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    }
}

/// A partition that was paused when it was revoked came back paused: it was never read again, and nothing said so.
/// Here a pause is what a reader holds unread, and ends with that reader.
#[tokio::test(start_paused = true)]
async fn a_pause_does_not_survive_the_reader() {
    let world = World::new(1);
    world.cluster.create_topic("t", 4).unwrap();
    world.fill("t", 0, (0..100).map(|n| format!("{n}{}", "x".repeat(1_000))));
    let config = FetchConfig { buffer_bytes: 64_000, max_partition_bytes: 8_000, ..FetchConfig::default() };
    let fetcher = Fetcher::new(&world.client, config);
    let _others: Vec<_> = (1..4).map(|one| fetcher.open(TopicPartition::new("t", one), at(0))).collect();
    let mut first = fetcher.open(TopicPartition::new("t", 0), at(0));
    // Whoever reads keeps everything: this partition has most of the memory, and is left out of further requests.
    let mut kept = Vec::new();
    while let Some(batch) = batch(&mut first, 5_000).await {
        kept.push(batch);
    }
    let next = kept.last().unwrap().last_offset() + 1;
    assert!((24..60).contains(&next), "paused at {next}");
    // Revoked and given back, while the old life still holds what it read.
    let mut second = fetcher.open(TopicPartition::new("t", 0), at(next));
    let more = batch(&mut second, 5_000).await.expect("it is read again");
    assert_eq!(more.base_offset(), next);
    assert!(matches!(first.next().await, FetchItem::Failed(_)), "the old reader has ended");
    drop(kept);
}

/// Polls came back empty for ever: the position was put behind the last record, and a compacted tail has offsets behind it.
/// Here it is put behind the last offset of the batch, whatever is left of it.
#[tokio::test(start_paused = true)]
async fn a_compacted_tail_is_passed() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    let producer = world.producer();
    let keyed = |key: &'static str, value: &'static str| prosody_wire::produce::OutgoingRecord {
        key: Some(key.as_bytes()),
        ..record("t", 0, value)
    };
    // The first goes alone; the others share a batch, of which only the first record has a key of its own.
    let sends: Vec<_> = [keyed("a", "0"), keyed("b", "1"), keyed("c", "2"), keyed("c", "3")]
        .into_iter()
        .map(|record| producer.send(record, None))
        .collect();
    for send in sends {
        send.await.unwrap();
    }
    for _ in 0..2 {
        producer.send(keyed("c", "4"), None).await.unwrap();
    }
    assert!(world.cluster.compact("t", 0).unwrap() > 0);
    let left: Vec<_> = world.cluster.log("t", 0).into_iter().map(|record| record.offset).collect();
    assert_eq!(left, [0, 1, 5], "the tail of the second batch and all of the third are gone");
    // What is left of a batch whose records are all gone: its offsets.
    let empty =
        Batch { base_offset: 6, count: 0, last_offset_delta: 3, records: Vec::new(), ..Batch::good() };
    assert!(world.cluster.append_raw("t", 0, empty.bytes().into(), 9));
    // Whoever asks again and again spends time with it.
    let slow = Action::Delay(Duration::from_millis(1));
    world.cluster.control().on(Match::api(ApiKey::FETCH), slow);
    let mut reader =
        Fetcher::new(&world.client, FetchConfig::default()).open(TopicPartition::new("t", 0), at(0));
    let (mut seen, mut next) = (Vec::new(), 0);
    while next < 10 {
        let batch = batch(&mut reader, 1_000).await.expect("in time");
        assert!(batch.base_offset() >= next, "nothing comes twice: {} after {next}", batch.base_offset());
        seen.extend(batch.records().map(|record| record.unwrap().offset()));
        next = batch.last_offset() + 1;
    }
    assert_eq!(seen, left);
    assert!(batch(&mut reader, 5_000).await.is_none(), "the end is the end");
    let asked = world.cluster.requests(ApiKey::FETCH).len();
    assert!(asked < 60, "{asked} requests, one for each wait: it is not asked for over and over");
    world.fill("t", 0, ["after".to_owned()]);
    assert_eq!(batch(&mut reader, 1_000).await.expect("in time").base_offset(), 10);
}

/// Queues grew over their limit: it was one for each partition, in compressed bytes, and there were many partitions.
/// Here one budget holds for all of them, in the bytes that records take when they are read.
#[tokio::test(start_paused = true)]
async fn many_partitions_stay_within_one_budget() {
    const PARTITIONS: i32 = 100;
    let world = World::new(1);
    world.cluster.create_topic("t", PARTITIONS).unwrap();
    let producer =
        Producer::new(&world.client, ProducerConfig { batch_size: 2_000, ..ProducerConfig::default() });
    let rng = prosody_base::Rng::seeded(1);
    let mut sends = Vec::new();
    for n in 0..PARTITIONS * 10 {
        // Half of it is random: compressed it is half as large.
        let value: String = (0..12).map(|_| format!("{:016x}{}", rng.next_u64(), "=".repeat(16))).collect();
        sends.push(producer.send(record("t", n % PARTITIONS, &value), None));
    }
    for send in sends {
        send.await.unwrap();
    }
    let config = FetchConfig {
        buffer_bytes: 50_000,
        max_bytes: 20_000,
        max_partition_bytes: 4_000,
        ..FetchConfig::default()
    };
    let fetcher = Fetcher::new(&world.client, config);
    let mut readers: Vec<_> =
        (0..PARTITIONS).map(|one| fetcher.open(TopicPartition::new("t", one), at(0))).collect();
    // Nobody reads.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let held = fetcher.held_bytes();
    assert!(held > 20_000, "{held}: prefetching happens");
    assert!(held <= 50_000 + 20_000, "{held}: the budget and one response");
    // And everything comes when all of it is read.
    let mut next = vec![0; readers.len()];
    let start = world.now();
    while next.iter().any(|next| *next < 10) {
        assert!(world.now() - start < Duration::from_secs(60), "{next:?}");
        for (reader, next) in readers.iter_mut().zip(&mut next) {
            if let Some(FetchItem::Batch(batch)) = reader.try_next() {
                *next = batch.last_offset() + 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Closing hung for ever: a sender waited for memory that only an acknowledgement could free, and none came.
/// Here closing ends by its deadline and every send completes, those that wait in line among them.
#[tokio::test(start_paused = true)]
async fn a_producer_that_waits_for_memory_is_closed_in_time() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    let config = ProducerConfig { memory: 1_000, batch_size: 300, ..ProducerConfig::default() };
    let producer = Producer::new(&world.client, config);
    world.cluster.control().on(Match::api(ApiKey::PRODUCE), Action::Hang);
    let sends = send_all(&producer, "t", 0, numbered("", 0..500), None);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let start = world.now();
    let error = producer.close(start + Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(world.now() - start, Duration::from_secs(2));
    assert!(error.to_string().contains("500 records"), "{error}");
    let mut waited = 0;
    for send in sends {
        waited += u32::from(send.await.unwrap_err().outcome == SendOutcome::NotWritten);
    }
    assert!(waited > 400, "{waited} never left the line");
}
