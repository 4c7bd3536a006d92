//! The fetcher against the in-process broker: order, positions, memory, and what brokers do in between.
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

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{World, at, far_client, letters, numbered, record};
use prosody_testkit::ClusterConfig;
use prosody_testkit::broker::batch::NewBatch;
use prosody_testkit::broker::{Action, ApiKey, Match};
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, PartitionReader, StartAt};
use prosody_wire::produce::{Producer, ProducerConfig};
use prosody_wire::{Client, ClientConfig, ErrorCode, IsolationLevel, PipeConnector, TopicPartition};

fn fetcher(world: &World) -> Fetcher {
    Fetcher::new(&world.client, FetchConfig::default())
}

/// Values of an item's records; panics for anything but a batch.
fn values(item: &FetchItem) -> Vec<String> {
    let FetchItem::Batch(batch) = item else { panic!("{item:?}") };
    let value = |record: prosody_wire::batch::RecordView<'_>| {
        String::from_utf8(record.value().unwrap_or_default().to_vec()).unwrap()
    };
    batch.records().map(|record| value(record.unwrap())).collect()
}

async fn read(reader: &mut PartitionReader, count: usize) -> Vec<String> {
    let mut read = Vec::new();
    while read.len() < count {
        read.extend(values(&reader.next().await));
    }
    read
}

async fn within<T>(millis: u64, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_millis(millis), what).await.expect("in time")
}

#[tokio::test(start_paused = true)]
async fn every_start_is_found_and_records_come_in_order() {
    let world = World::new(3);
    world.cluster.create_topic("t", 6).unwrap();
    for partition in 0..6 {
        world.fill("t", partition, numbered("", 0..50));
    }
    world.cluster.delete_records("t", 5, 20);
    let fetcher = fetcher(&world);
    let mut readers: Vec<PartitionReader> = (0..6)
        .map(|partition| fetcher.open(TopicPartition::new("t", partition), StartAt::Earliest))
        .collect();
    for (partition, reader) in readers.iter_mut().enumerate() {
        let first = if partition == 5 { 20 } else { 0 };
        assert_eq!(read(reader, 50 - first).await, numbered("", first..50));
        assert_eq!(reader.high_watermark(), Some(50));
    }
    let mut latest = fetcher.open(TopicPartition::new("t", 0), StartAt::Latest);
    let mut middle = fetcher.open(TopicPartition::new("t", 1), at(30));
    assert_eq!(read(&mut middle, 20).await, numbered("", 30..50));
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.fill("t", 0, ["new".to_owned()]);
    assert_eq!(read(&mut latest, 1).await, ["new"]);
    let FetchItem::Failed(error) = readers[0].next().await else { panic!("opened again") };
    assert!(error.to_string().contains("t-0"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_a_producer_wrote_is_read_in_every_version() {
    for release in ["2.1", "2.8", "3.9", "newest"] {
        let world = World::with(ClusterConfig::default().as_version(release), 1);
        world.cluster.create_topic("t", 1).unwrap();
        world.produce_batches(500).await;
        let mut reader = fetcher(&world).open(TopicPartition::new("t", 0), at(0));
        assert_eq!(read(&mut reader, 500).await, numbered("", 0..500), "{release}");
        // The first batch of this answer begins before the offset that was asked for.
        let mut reader = fetcher(&world).open(TopicPartition::new("t", 0), at(333));
        assert_eq!(read(&mut reader, 167).await, numbered("", 333..500), "{release}");
    }
}

/// Logs that were written before Kafka 0.11 hold other formats, which brokers hand out as they are.
#[tokio::test(start_paused = true)]
async fn formats_of_the_past_are_read_and_left_behind() {
    for (name, start) in
        ["v0-none", "v0-gzip", "v1-none", "v1-lz4"].iter().flat_map(|name| [(name, 0), (name, 1_002)])
    {
        let world = World::new(1);
        world.cluster.create_topic("t", 1).unwrap();
        let file = format!("{}/testdata/batches/{name}.bin", env!("CARGO_MANIFEST_DIR"));
        assert!(world.cluster.append_raw("t", 0, std::fs::read(file).unwrap().into(), 1_004));
        let mut reader = fetcher(&world).open(TopicPartition::new("t", 0), at(start));
        let all = ["value-0", "value-1", "", "", "value-4"];
        let old = if start == 0 { &all[..] } else { &all[2..] };
        assert_eq!(within(1_000, read(&mut reader, old.len())).await, old, "{name} from {start}");
        world.fill("t", 0, ["new".to_owned()]);
        assert_eq!(within(1_000, read(&mut reader, 1)).await, ["new"], "{name} from {start}");
    }
}

#[tokio::test(start_paused = true)]
async fn new_records_end_a_waiting_poll_and_a_new_partition_does_not_wait_for_it() {
    let world = World::new(1);
    world.cluster.create_topic("t", 2).unwrap();
    world.fill("t", 1, numbered("", 0..5));
    let config = FetchConfig { max_wait: Duration::from_secs(20), ..FetchConfig::default() };
    let fetcher = Fetcher::new(&world.client, config);
    let mut idle = fetcher.open(TopicPartition::new("t", 0), at(0));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.cluster.requests(ApiKey::FETCH).len(), 1, "one request waits at the broker");
    let mut new = fetcher.open(TopicPartition::new("t", 1), at(0));
    assert_eq!(within(10, read(&mut new, 5)).await, numbered("", 0..5));
    world.fill("t", 0, ["now".to_owned()]);
    assert_eq!(within(10, read(&mut idle, 1)).await, ["now"]);
    world.fill("t", 1, ["then".to_owned()]);
    assert_eq!(within(10, read(&mut new, 1)).await, ["then"], "it is part of the next poll");
    assert!(world.cluster.requests(ApiKey::FETCH).len() < 10);
}

/// Batches that expanded much once made the idle long poll to one broker reserve the whole budget. It was always asked
/// again first, and a partition led by another broker was never read.
#[tokio::test(start_paused = true)]
async fn what_one_broker_is_asked_for_leaves_memory_for_the_others() {
    let world = World::new(2);
    world.cluster.create_topic("t", 2).unwrap();
    world.cluster.move_leader("t", 0, 1);
    world.cluster.move_leader("t", 1, 2);
    let (producer, value) = (world.producer(), "a".repeat(8_000));
    for _ in 0..30 {
        producer.send(record("t", 0, &value), None).await.unwrap();
    }
    let fetcher = fetcher(&world);
    let mut idle = fetcher.open(TopicPartition::new("t", 0), at(0));
    read(&mut idle, 30).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.fill("t", 1, numbered("", 0..5));
    let mut other = fetcher.open(TopicPartition::new("t", 1), at(0));
    assert_eq!(within(1_000, read(&mut other, 5)).await, numbered("", 0..5));
}

#[tokio::test(start_paused = true)]
async fn an_idle_fetcher_asks_once_in_every_wait() {
    let world = World::new(1);
    world.cluster.create_topic("t", 4).unwrap();
    let fetcher = fetcher(&world);
    let readers: Vec<_> = (0..4).map(|n| fetcher.open(TopicPartition::new("t", n), at(0))).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = world.cluster.requests(ApiKey::FETCH).len();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let asked = world.cluster.requests(ApiKey::FETCH).len() - before;
    assert!((99..=101).contains(&asked), "{asked} requests in 10 s at 100 ms each");
    drop(readers);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = world.cluster.requests(ApiKey::FETCH).len();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.cluster.requests(ApiKey::FETCH).len(), before, "a dropped reader is not fetched for");
}

/// A consumer asked for offsets in a loop: a replica that lagged behind refused its position, and the reset led back to it.
/// Here the ends of the log decide: a position within them stays and is asked for again later, any other is reset once.
#[tokio::test(start_paused = true)]
async fn an_offset_out_of_range_is_reset_with_a_notice() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    world.fill("t", 0, numbered("", 0..50));
    world.cluster.delete_records("t", 0, 30);
    for start in [10, 5_000] {
        let mut reader = fetcher(&world).open(TopicPartition::new("t", 0), at(start));
        let FetchItem::Reset { from, to, .. } = reader.next().await else { panic!("a reset comes first") };
        assert_eq!((from, to), (start, 30));
        assert_eq!(read(&mut reader, 20).await, numbered("", 30..50));
    }
    // A replica that lags behind says so too, but nothing is reset then.
    let mut reader = fetcher(&world).open(TopicPartition::new("t", 0), at(40));
    let code = ErrorCode::OFFSET_OUT_OF_RANGE.0;
    world.cluster.control().on(Match::api(ApiKey::FETCH).partition("t", 0).times(2), Action::Error(code));
    assert_eq!(read(&mut reader, 10).await, numbered("", 40..50));
}

#[tokio::test(start_paused = true)]
async fn a_topic_made_again_is_read_from_its_start() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    world.fill("t", 0, numbered("old", 0..50));
    let fetcher = fetcher(&world);
    let mut reader = fetcher.open(TopicPartition::new("t", 0), at(0));
    assert_eq!(read(&mut reader, 50).await.len(), 50);
    world.cluster.recreate_topic("t").unwrap();
    world.fill("t", 0, numbered("new", 0..80));
    let FetchItem::Reset { from, to, why } = reader.next().await else { panic!("a reset comes first") };
    assert_eq!((from, to), (50, 0));
    assert!(why.contains("created again"));
    assert_eq!(read(&mut reader, 80).await, numbered("new", 0..80));
}

#[tokio::test(start_paused = true)]
async fn errors_that_pass_are_retried_without_a_gap() {
    let partition_errors = [
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::FENCED_LEADER_EPOCH,
        ErrorCode::UNKNOWN_LEADER_EPOCH,
        ErrorCode::KAFKA_STORAGE_ERROR,
        ErrorCode::OFFSET_NOT_AVAILABLE,
        ErrorCode::UNKNOWN_TOPIC_ID,
        ErrorCode::INCONSISTENT_TOPIC_ID,
    ];
    let actions = partition_errors.map(|code| Action::Error(code.0)).into_iter().chain([
        Action::Error(ErrorCode::FETCH_SESSION_ID_NOT_FOUND.0),
        Action::Error(ErrorCode::INVALID_FETCH_SESSION_EPOCH.0),
        Action::Error(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR.0),
        Action::CutBefore,
        Action::CutAfter,
        Action::PartialWrite(50),
        Action::HalfClose,
        Action::AbsurdLength(-5),
        Action::WrongCorrelation,
        Action::Garbage(Bytes::from_static(b"HTTP/1.1 404 Not Found\r\n\r\n")),
        Action::Body(Bytes::from_static(&[0; 7])),
        Action::Body(Bytes::from_static(&[0x7f; 60])),
    ]);
    for action in actions {
        let world = World::new(1);
        world.cluster.create_topic("t", 2).unwrap();
        world.fill("t", 0, numbered("", 0..10));
        let rule = world.cluster.control().on(Match::api(ApiKey::FETCH).after(1).times(2), action.clone());
        let mut reader = fetcher(&world).open(TopicPartition::new("t", 0), at(0));
        let mut seen = within(60_000, read(&mut reader, 10)).await;
        for n in 10..40 {
            world.fill("t", 0, [n.to_string()]);
            seen.extend(within(60_000, read(&mut reader, 1)).await);
        }
        assert_eq!(seen, numbered("", 0..40), "{action:?}");
        assert_eq!(world.cluster.control().hits(rule), 2, "{action:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_stays_reaches_the_reader_and_reading_goes_on_once_it_is_gone() {
    let world = World::new(1);
    world.cluster.create_topic("t", 2).unwrap();
    world.fill("t", 0, numbered("", 0..10));
    world.fill("t", 1, numbered("", 0..10));
    let denied = Action::Error(ErrorCode::TOPIC_AUTHORIZATION_FAILED.0);
    let rule = world.cluster.control().on(Match::api(ApiKey::FETCH).partition("t", 0), denied);
    let fetcher = fetcher(&world);
    let mut reader = fetcher.open(TopicPartition::new("t", 0), at(0));
    let mut other = fetcher.open(TopicPartition::new("t", 1), at(0));
    let FetchItem::Failed(error) = reader.next().await else { panic!("denied") };
    assert!(error.to_string().contains("TOPIC_AUTHORIZATION_FAILED"), "{error}");
    assert!(error.to_string().contains("t-0"), "{error}");
    assert_eq!(read(&mut other, 10).await, numbered("", 0..10));
    world.cluster.control().remove(rule);
    while matches!(reader.try_next(), Some(FetchItem::Failed(_))) {}
    assert_eq!(within(5_000, read(&mut reader, 10)).await, numbered("", 0..10));
}

#[tokio::test(start_paused = true)]
async fn leaders_that_move_and_brokers_that_restart_are_followed() {
    let world = World::new(3);
    world.cluster.create_topic("t", 3).unwrap();
    let fetcher = fetcher(&world);
    let mut readers: Vec<_> = (0..3).map(|n| fetcher.open(TopicPartition::new("t", n), at(0))).collect();
    for round in 0..12 {
        for (partition, reader) in (0..).zip(&mut readers) {
            let value = format!("{round}-{partition}");
            world.fill("t", partition, [value.clone()]);
            assert_eq!(within(20_000, read(reader, 1)).await, [value]);
            world.cluster.move_leader("t", partition, (round + partition) % 3 + 1);
        }
        if round % 4 == 3 {
            let broker = round % 3 + 1;
            world.cluster.stop_broker(broker);
            tokio::time::sleep(Duration::from_millis(700)).await;
            world.cluster.start_broker(broker);
        }
    }
}

/// After a leader had moved, reading waited for metadata, which a busy or silent broker brings late.
/// Here the answer that refuses a fetch names the new leader (KIP-951), and nobody else is asked.
#[tokio::test(start_paused = true)]
async fn whoever_refuses_a_fetch_names_the_new_leader() {
    let world = World::new(3);
    world.cluster.create_topic("t", 1).unwrap();
    let mut reader = fetcher(&world).open(TopicPartition::new("t", 0), at(0));
    world.fill("t", 0, ["0".to_owned()]);
    assert_eq!(read(&mut reader, 1).await, ["0"]);
    world.cluster.control().on(Match::api(ApiKey::METADATA), Action::Hang);
    for round in 1..6 {
        world.cluster.move_leader("t", 0, round % 3 + 1);
        world.fill("t", 0, [round.to_string()]);
        assert_eq!(within(1_000, read(&mut reader, 1)).await, [round.to_string()]);
    }
}

/// Quotas (KIP-219): a broker answers at once and expects the client to keep quiet.
#[tokio::test(start_paused = true)]
async fn a_fetcher_keeps_quiet_as_long_as_it_was_told_to() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    world.fill("t", 0, numbered("", 0..5));
    let mut reader = fetcher(&world).open(TopicPartition::new("t", 0), at(0));
    assert_eq!(read(&mut reader, 5).await, numbered("", 0..5));
    let quiet = Duration::from_millis(700);
    let rule = world.cluster.control().on(Match::api(ApiKey::FETCH).times(1), Action::Throttle(quiet));
    world.cluster.clear_journal();
    within(1_000, world.cluster.control().reached(rule, 1)).await;
    world.fill("t", 0, numbered("", 5..10));
    assert_eq!(within(2_000, read(&mut reader, 5)).await, numbered("", 5..10));
    tokio::time::sleep(2 * quiet).await;
    let asked = world.cluster.requests(ApiKey::FETCH);
    let told = asked.iter().position(|entry| entry.rule.is_some()).unwrap();
    assert!(asked[told + 1].at - asked[told].at >= quiet, "{asked:?}");
}

/// Elsewhere: endless empty polls at a compacted tail, an empty batch or a control batch.
#[tokio::test(start_paused = true)]
async fn transactions_and_empty_batches_move_the_position_and_only_committed_records_are_seen() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    let transactional = |producer_id, base_sequence, values: &[&'static str]| {
        let records: Vec<_> = values.iter().map(|value| (None, Some(value.as_bytes()))).collect();
        let new = NewBatch {
            attributes: 0x10,
            producer_id,
            producer_epoch: 0,
            base_sequence,
            timestamp: 5,
            records: &records,
        };
        world.cluster.append_batch("t", 0, &new).unwrap()
    };
    transactional(7, 0, &["a0", "a1"]);
    transactional(8, 0, &["b0"]);
    world.fill("t", 0, ["plain".to_owned()]);
    world.cluster.end_transaction("t", 0, (7, 0), false);
    world.cluster.end_transaction("t", 0, (8, 0), true);
    transactional(7, 2, &["c0"]);
    world.cluster.end_transaction("t", 0, (7, 0), true);
    for (isolation, expected) in [
        (IsolationLevel::ReadCommitted, vec!["b0", "plain", "c0"]),
        (IsolationLevel::ReadUncommitted, vec!["a0", "a1", "b0", "plain", "c0"]),
    ] {
        let config = FetchConfig { isolation, ..FetchConfig::default() };
        let mut reader = Fetcher::new(&world.client, config).open(TopicPartition::new("t", 0), at(0));
        let (mut seen, mut next) = (Vec::new(), 0);
        while next < 8 {
            let item = within(1_000, reader.next()).await;
            seen.extend(values(&item));
            let FetchItem::Batch(batch) = item else { panic!() };
            assert_eq!(batch.base_offset(), next, "no offset is left out");
            next = batch.last_offset() + 1;
        }
        assert_eq!(seen, expected);
    }
    // The tail is a marker: a reader behind the last record comes to the end.
    let mut reader = fetcher(&world).open(TopicPartition::new("t", 0), at(7));
    assert_eq!(values(&within(1_000, reader.next()).await), [""; 0]);
    world.fill("t", 0, ["after".to_owned()]);
    assert_eq!(read(&mut reader, 1).await, ["after"]);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_batch_is_named_and_everything_before_it_delivered() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    world.fill("t", 0, numbered("", 0..3));
    let new = NewBatch {
        attributes: 0,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        timestamp: 5,
        records: &[(None, Some(b"damaged"))],
    };
    let mut bytes = new.encode().to_vec();
    bytes[..8].copy_from_slice(&3_i64.to_be_bytes());
    *bytes.last_mut().unwrap() ^= 1;
    world.cluster.append_raw("t", 0, bytes.into(), 3);
    let mut reader = fetcher(&world).open(TopicPartition::new("t", 0), at(0));
    assert_eq!(read(&mut reader, 3).await, numbered("", 0..3));
    for _ in 0..3 {
        let start = world.now();
        let FetchItem::Failed(error) = within(5_000, reader.next()).await else { panic!("damaged") };
        let text = error.to_string();
        assert!(text.contains("t-0") && text.contains("offset 3") && text.contains("checksum"), "{text}");
        assert!(world.now() - start <= Duration::from_millis(1_200), "tried again every second");
    }
}

#[tokio::test(start_paused = true)]
async fn batches_larger_than_the_limits_come_all_the_same() {
    let world = World::new(1);
    world.cluster.create_topic("t", 3).unwrap();
    let large = "x".repeat(5_000);
    for partition in 0..3 {
        world.fill("t", partition, (0..20).map(|n| format!("{n}{large}")));
    }
    let config = FetchConfig {
        max_partition_bytes: 1_000,
        max_bytes: 2_000,
        buffer_bytes: 16_000,
        ..FetchConfig::default()
    };
    let fetcher = Fetcher::new(&world.client, config);
    let mut readers: Vec<_> = (0..3).map(|n| fetcher.open(TopicPartition::new("t", n), at(0))).collect();
    for reader in &mut readers {
        let seen = within(60_000, read(reader, 20)).await;
        assert_eq!(seen, (0..20).map(|n| format!("{n}{large}")).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_nobody_reads_stops_itself_and_no_other_and_the_budget_holds() {
    let world = World::new(1);
    world.cluster.create_topic("t", 4).unwrap();
    let config = ProducerConfig { batch_size: 8_000, ..ProducerConfig::default() };
    let producer = Producer::new(&world.client, config);
    let filler = "all the same ".repeat(30);
    let mut sends = Vec::new();
    for n in 0..2_000 {
        sends.push(producer.send(record("t", n % 4, &format!("{}{filler}", n / 4)), None));
        if n % 16 == 0 {
            tokio::task::yield_now().await;
        }
    }
    for send in sends {
        send.await.unwrap();
    }
    let config = FetchConfig {
        buffer_bytes: 200_000,
        max_bytes: 20_000,
        max_partition_bytes: 4_000,
        ..FetchConfig::default()
    };
    let fetcher = Fetcher::new(&world.client, config);
    let mut readers: Vec<_> = (0..4).map(|n| fetcher.open(TopicPartition::new("t", n), at(0))).collect();
    let mut kept = Vec::new();
    let mut most = 0;
    // Partition 0 is never read; partition 1 is read and its batches kept for a while.
    for (partition, reader) in readers.iter_mut().enumerate().skip(1) {
        let mut next = 0;
        while next < 500 {
            let FetchItem::Batch(batch) = within(60_000, reader.next()).await else { panic!() };
            next = batch.last_offset() + 1;
            most = most.max(fetcher.held_bytes());
            if partition == 1 && kept.len() < 3 {
                kept.push(batch.clone());
            }
        }
        kept.clear();
    }
    assert!(most > 20_000, "{most}: prefetching happens");
    assert!(most <= 200_000 + 20_000 * 20, "{most}");
    // Now the first one is read, and it has lost nothing.
    let seen = within(60_000, read(&mut readers[0], 500)).await;
    assert!(seen.iter().enumerate().all(|(n, value)| value.starts_with(&format!("{n}all"))));
    drop(readers);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fetcher.held_bytes(), 0, "everything is given back");
}

#[tokio::test(start_paused = true)]
async fn a_slice_of_a_batch_holds_its_memory() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    world.fill("t", 0, ["x".repeat(1_000)]);
    let fetcher = fetcher(&world);
    let mut reader = fetcher.open(TopicPartition::new("t", 0), at(0));
    let FetchItem::Batch(batch) = reader.next().await else { panic!() };
    let record = batch.records().next().unwrap().unwrap().to_record();
    drop((batch, reader));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(fetcher.held_bytes() >= 1_000);
    drop(record);
    assert_eq!(fetcher.held_bytes(), 0);
}

/// Random faults on Fetch and ListOffsets while leaders move: every record once, in order.
#[tokio::test(start_paused = true)]
async fn random_faults_lose_and_repeat_nothing() {
    for seed in 0..40 {
        let world = World::with(ClusterConfig { brokers: 3, ..ClusterConfig::default() }, seed);
        world.cluster.create_topic("t", 3).unwrap();
        let rng = world.doors.rng.fork();
        let actions = [
            Action::CutAfter,
            Action::CutBefore,
            Action::Error(ErrorCode::NOT_LEADER_OR_FOLLOWER.0),
            Action::Error(ErrorCode::FETCH_SESSION_ID_NOT_FOUND.0),
            Action::Error(ErrorCode::OFFSET_OUT_OF_RANGE.0),
            Action::Error(ErrorCode::UNKNOWN_LEADER_EPOCH.0),
            Action::Delay(Duration::from_millis(700)),
            Action::DelayAnswer(Duration::from_millis(900)),
            Action::Hang,
            Action::PartialWrite(30),
        ];
        for action in actions {
            world.cluster.control().on(Match::api(ApiKey::FETCH).probability(0.03), action.clone());
            if action != Action::Error(ErrorCode::OFFSET_OUT_OF_RANGE.0) {
                world.cluster.control().on(Match::api(ApiKey::LIST_OFFSETS).probability(0.05), action);
            }
        }
        let fetcher = fetcher(&world);
        let mut readers: Vec<_> = (0..3)
            .map(|partition| fetcher.open(TopicPartition::new("t", partition), StartAt::Earliest))
            .collect();
        let mut seen = vec![Vec::new(); 3];
        for n in 0..200 {
            world.fill("t", n % 3, [n.to_string()]);
            if n % 20 == 19 {
                world.cluster.move_leader("t", rng.below(3) as i32, rng.below(3) as i32 + 1);
            }
            tokio::time::sleep(Duration::from_millis(rng.below(200))).await;
            let partition = rng.below(3) as usize;
            while let Some(item) = readers[partition].try_next() {
                seen[partition].extend(values(&item));
            }
        }
        for (partition, reader) in readers.iter_mut().enumerate() {
            let expected: Vec<String> =
                (0..200).filter(|n| n % 3 == partition).map(|n| n.to_string()).collect();
            while seen[partition].len() < expected.len() {
                let item = within(200_000, reader.next()).await;
                seen[partition].extend(values(&item));
            }
            assert_eq!(seen[partition], expected, "seed {seed}");
        }
    }
}

/// More was asked for than a frame may have: every answer closed its connection, and nothing was ever read.
#[tokio::test(start_paused = true)]
async fn no_more_is_asked_for_than_a_frame_may_have() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    let large = "x".repeat(500_000);
    for n in 0..12 {
        world.fill("t", 0, [format!("{n} {large}")]);
    }
    let mut config = ClientConfig::new(world.cluster.bootstrap().split(','));
    config.limits.frame_bytes = 3 << 20;
    let client = Client::new(config, Arc::new(PipeConnector(world.cluster.network())), world.doors.clone());
    let config = FetchConfig { max_bytes: 16 << 20, max_partition_bytes: 16 << 20, ..FetchConfig::default() };
    let fetcher = Fetcher::new(&client.unwrap(), config);
    let mut reader = fetcher.open(TopicPartition::new("t", 0), at(0));
    let read = within(60_000, read(&mut reader, 12)).await;
    assert!(read.iter().enumerate().all(|(n, value)| value.starts_with(&format!("{n} "))));
}

/// Reading from another continent brought one buffer a round trip, whatever the memory allowed. Here more is held ahead
/// where the brokers are far and reading is fast, and several requests are on their way: 50 ms more a round trip cost less
/// than a tenth of the rate.
#[tokio::test(start_paused = true)]
async fn a_distant_broker_is_read_as_fast_as_a_near_one() {
    const PARTITIONS: i32 = 4;
    const BATCHES: usize = 1024;
    let world = World::new(1);
    world.cluster.create_topic("t", PARTITIONS).unwrap();
    // 128 KiB each that lz4 shrinks to a sixth: 128 MiB to read.
    let mut letter = letters(1);
    let mut value: String = (0..20_000).map(|_| letter()).collect();
    value.push_str(&" ".repeat((128 << 10) - value.len()));
    let producer = Producer::new(&world.client, ProducerConfig::default());
    for _ in 0..BATCHES {
        for partition in 0..PARTITIONS {
            producer.send(record("t", partition, &value), None).await.unwrap();
        }
    }
    // 260 MB a second altogether. What is timed is the second half, when the distance is known.
    let reading = Duration::from_millis(2);
    let timed = async |client: &Client| {
        let fetcher = Fetcher::new(client, FetchConfig::default());
        let mut readers = tokio::task::JoinSet::new();
        for partition in 0..PARTITIONS {
            let mut reader = fetcher.open(TopicPartition::new("t", partition), at(0));
            readers.spawn(async move {
                let mut half = None;
                for batch in 0..BATCHES {
                    if batch == BATCHES / 2 {
                        half = Some(tokio::time::Instant::now());
                    }
                    assert!(matches!(reader.next().await, FetchItem::Batch(_)));
                    tokio::time::sleep(reading).await;
                }
                half.unwrap().elapsed()
            });
        }
        readers.join_all().await.into_iter().max().unwrap()
    };
    let away = |round_trip| far_client(&world.cluster, &world.doors, Duration::from_millis(round_trip));
    let (near, far) = (timed(&away(0)).await, timed(&away(50)).await);
    assert!(far.mul_f64(0.9) <= near, "{far:?} for what takes {near:?} beside the broker");
}

/// Readers that one broker refused at the same time would come back at the same time, again and again (KIP-580).
#[tokio::test(start_paused = true)]
async fn readers_that_were_refused_together_do_not_come_back_together() {
    let mut waits = std::collections::BTreeSet::new();
    for seed in 1..=4 {
        let world = World::with(prosody_testkit::ClusterConfig::default(), seed);
        world.cluster.create_topic("t", 1).unwrap();
        world.fill("t", 0, numbered("", 0..1));
        let refusal = Action::Error(ErrorCode::REPLICA_NOT_AVAILABLE.0);
        world.cluster.control().on(Match::api(ApiKey::FETCH).partition("t", 0).times(3), refusal);
        let mut reader = fetcher(&world).open(TopicPartition::new("t", 0), at(0));
        read(&mut reader, 1).await;
        let asked = world.cluster.requests(ApiKey::FETCH);
        waits.insert(asked[3].at - asked[2].at);
    }
    assert!(waits.len() == 4 && waits.iter().all(|wait| *wait > Duration::from_millis(200)), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_held_of_a_partition_can_be_read_and_is_given_back() {
    let world = World::new(1);
    world.cluster.create_topic("t", 2).unwrap();
    world.fill("t", 0, numbered("", 0..50));
    let fetcher = fetcher(&world);
    let (mut full, empty) =
        (fetcher.open(TopicPartition::new("t", 0), at(0)), fetcher.open(TopicPartition::new("t", 1), at(0)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        full.held_bytes() > 50 && empty.held_bytes() == 0,
        "{} {}",
        full.held_bytes(),
        empty.held_bytes()
    );
    let mut batches = Vec::new();
    while batches.iter().map(|item| values(item).len()).sum::<usize>() < 50 {
        batches.push(full.next().await);
    }
    assert!(full.held_bytes() > 50, "in the hands of the reader");
    drop(batches);
    assert_eq!(full.held_bytes(), 0);
}
