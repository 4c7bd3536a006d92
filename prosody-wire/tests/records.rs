//! Single-record reads against the in-process broker. Whatever brokers do, a record that is in the log is never called gone.
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

use bytes::Bytes;
use common::{World, numbered};
use prosody_testkit::ClusterConfig;
use prosody_testkit::broker::batch::{KeyValue, NewBatch};
use prosody_testkit::broker::{Action, ApiKey, Match};
use prosody_wire::fetch::{Gone, RecordReader, RunAnswer, RunRequest};
use prosody_wire::{Error, ErrorCode, IsolationLevel, TopicId, TopicPartition};

fn run(first: i64, last: i64) -> RunRequest {
    let partition = TopicPartition::new("t", 0);
    RunRequest { partition, topic_id: None, first, last, leader_epoch: -1, max_bytes: 64 << 10 }
}

async fn read(world: &World, run: &RunRequest, seconds: u64) -> Result<RunAnswer, Error> {
    let reader = RecordReader::new(&world.client, IsolationLevel::ReadCommitted);
    reader.read(run, world.now() + Duration::from_secs(seconds)).await
}

/// Values of the records found, and the first offset that is not decided.
fn seen(answer: &RunAnswer) -> (Vec<String>, i64) {
    let value = |found: &prosody_wire::fetch::RunRecord| {
        String::from_utf8(found.record.value().unwrap_or_default().to_vec()).unwrap()
    };
    (answer.records.iter().map(value).collect(), answer.next)
}

fn filled(brokers: i32, records: usize) -> World {
    let world = World::new(brokers);
    world.cluster.create_topic("t", 1).unwrap();
    world.fill("t", 0, numbered("", 0..records));
    world
}

#[tokio::test(start_paused = true)]
async fn one_record_and_a_run_are_read_in_every_version() {
    for release in ["2.1", "2.8", "3.9", "newest"] {
        let world = World::with(ClusterConfig::default().as_version(release), 1);
        world.cluster.create_topic("t", 1).unwrap();
        world.produce_batches(500).await;
        for offset in [0, 1, 250, 499] {
            let answer = read(&world, &run(offset, offset), 1).await.unwrap();
            assert_eq!(seen(&answer), (vec![offset.to_string()], offset + 1), "{release}");
            assert_eq!(answer.records[0].leader_epoch, 0);
        }
        let (mut next, mut all) = (100, Vec::new());
        while next < 400 {
            let answer = read(&world, &RunRequest { max_bytes: 300, ..run(next, 399) }, 1).await.unwrap();
            assert!(answer.next > next);
            next = answer.next;
            all.extend(seen(&answer).0);
        }
        assert_eq!(all, numbered("", 100..400), "{release}");
        let whole = read(&world, &run(0, 499), 1).await.unwrap();
        assert_eq!(seen(&whole), (numbered("", 0..500), 500), "one request is enough for a run: {release}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_retention_or_compaction_took_is_gone_and_the_rest_is_not() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    let kv = |key: &'static str, value: &'static str| (Some(key.as_bytes()), Some(value.as_bytes()));
    world.cluster.append("t", 0, &[kv("a", "0"), kv("b", "1"), kv("a", "2")]).unwrap();
    world.cluster.append("t", 0, &[kv("c", "3")]).unwrap();
    world.cluster.append("t", 0, &[kv("b", "4"), kv("c", "5")]).unwrap();
    assert_eq!(world.cluster.compact("t", 0), Some(3));
    let answer = read(&world, &run(0, 5), 1).await.unwrap();
    assert_eq!((seen(&answer), answer.gone), ((vec!["2".into(), "4".into(), "5".into()], 6), Gone::NoRecord));
    for (offset, found) in [(1, vec![]), (2, vec!["2".to_owned()]), (3, vec![])] {
        let answer = read(&world, &run(offset, offset), 1).await.unwrap();
        assert_eq!(seen(&answer), (found, offset + 1));
    }
    world.cluster.delete_records("t", 0, 5);
    let answer = read(&world, &run(2, 9), 1).await.unwrap();
    assert_eq!((seen(&answer), answer.gone), ((vec![], 5), Gone::BelowLogStart(5)));
    let answer = read(&world, &run(2, 3), 1).await.unwrap();
    assert_eq!((seen(&answer), answer.gone), ((vec![], 4), Gone::BelowLogStart(5)));
    assert_eq!(seen(&read(&world, &run(5, 5), 1).await.unwrap()), (vec!["5".into()], 6));
}

fn transactional(records: &'static [KeyValue<'static>]) -> NewBatch<'static> {
    NewBatch { attributes: 0x10, producer_id: 9, producer_epoch: 0, base_sequence: 0, timestamp: 0, records }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_is_open_is_waited_for_and_one_that_was_aborted_is_gone() {
    let world = filled(1, 1);
    world.cluster.append_batch("t", 0, &transactional(&[(Some(b"k"), Some(b"maybe"))])).unwrap();
    world.fill("t", 0, ["behind".to_owned()]);
    let error = read(&world, &run(1, 1), 2).await.expect_err("nobody knows yet");
    assert!(error.to_string().contains("t-0 at offset 1"), "{error}");
    assert!(error.to_string().contains("a transaction that is open since offset 1"), "{error}");
    assert!(error.is_retriable());
    let uncommitted = RecordReader::new(&world.client, IsolationLevel::ReadUncommitted);
    let answer = uncommitted.read(&run(1, 1), world.now() + Duration::from_secs(1)).await.unwrap();
    assert_eq!(seen(&answer), (vec!["maybe".into()], 2));

    let (client, doors) = (world.client.clone(), world.doors.clone());
    let waiting = tokio::spawn(async move {
        let reader = RecordReader::new(&client, IsolationLevel::ReadCommitted);
        reader.read(&run(1, 3), doors.clock.now() + Duration::from_secs(30)).await
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.cluster.end_transaction("t", 0, (9, 0), false);
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!((seen(&answer), answer.gone), ((vec!["behind".into()], 4), Gone::NoRecord));
    let marker = read(&world, &run(3, 3), 1).await.unwrap();
    assert_eq!(seen(&marker), (vec![], 4), "a marker is no record");
}

#[tokio::test(start_paused = true)]
async fn an_offset_that_is_not_there_yet_is_waited_for() {
    let world = filled(1, 3);
    for offset in [3, 90] {
        let error = read(&world, &run(offset, offset), 2).await.expect_err("not there");
        assert!(error.to_string().contains("the log ends at offset 3"), "{error}");
    }
    let wanted = run(3, 3);
    let (answer, ()) = tokio::join!(read(&world, &wanted, 10), async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        world.fill("t", 0, ["new".to_owned()]);
    });
    assert_eq!(seen(&answer.unwrap()), (vec!["new".into()], 4));
}

/// A replica that lags behind calls an offset out of range that is there.
#[tokio::test(start_paused = true)]
async fn out_of_range_alone_is_no_proof() {
    let world = filled(1, 50);
    let code = ErrorCode::OFFSET_OUT_OF_RANGE.0;
    let rule = world.cluster.control().on(Match::api(ApiKey::FETCH).times(4), Action::Error(code));
    assert_eq!(seen(&read(&world, &run(7, 7), 20).await.unwrap()), (vec!["7".into()], 8));
    assert_eq!(world.cluster.control().hits(rule), 4);
    world.cluster.control().on(Match::api(ApiKey::FETCH), Action::Error(code));
    let error = read(&world, &run(7, 7), 3).await.expect_err("it never says anything else");
    assert!(error.to_string().contains("out of range, and the log holds 0 to 50"), "{error}");
    // Nor are the ends of a log that another broker led.
    world.cluster.control().clear();
    world.cluster.delete_records("t", 0, 20);
    let fenced = ErrorCode::FENCED_LEADER_EPOCH.0;
    world.cluster.control().on(Match::api(ApiKey::LIST_OFFSETS), Action::Error(fenced));
    let error = read(&world, &run(7, 7), 3).await.expect_err("nobody answers for the log");
    assert!(error.to_string().contains("FENCED_LEADER_EPOCH"), "{error}");
}

/// A client whose metadata is old asks the leader of an older epoch than the one that wrote the record.
#[tokio::test(start_paused = true)]
async fn a_leader_older_than_the_record_is_not_asked() {
    let world = filled(2, 5);
    world.cluster.delete_records("t", 0, 2);
    let newer = RunRequest { leader_epoch: 3, ..run(0, 0) };
    let error = read(&world, &newer, 3).await.expect_err("epoch 3 is not known");
    assert!(error.to_string().contains("UNKNOWN_LEADER_EPOCH"), "{error}");
    assert_eq!(world.cluster.requests(ApiKey::FETCH).len(), 0);
    for broker in [2, 1, 2] {
        world.cluster.move_leader("t", 0, broker);
    }
    let answer = read(&world, &newer, 3).await.unwrap();
    assert_eq!((seen(&answer), answer.gone), ((vec![], 1), Gone::BelowLogStart(2)));
}

#[tokio::test(start_paused = true)]
async fn a_topic_made_again_has_none_of_the_old_records() {
    let world = filled(1, 5);
    let id = TopicId(world.cluster.topic_id("t").unwrap());
    let old = RunRequest { topic_id: Some(id), ..run(2, 4) };
    assert_eq!(seen(&read(&world, &old, 1).await.unwrap()).0, numbered("", 2..5));
    world.cluster.recreate_topic("t").unwrap();
    world.fill("t", 0, numbered("new", 0..9));
    let answer = read(&world, &old, 5).await.unwrap();
    let id = TopicId(world.cluster.topic_id("t").unwrap());
    assert_eq!((seen(&answer), answer.gone), ((vec![], 5), Gone::Recreated(id)));
    world.cluster.delete_topic("t");
    let error = read(&world, &RunRequest { topic_id: Some(id), ..run(0, 0) }, 3).await.expect_err("no topic");
    assert!(error.to_string().contains("reading t-0 at offset 0"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn whatever_passes_is_retried_and_the_record_is_found() {
    let codes = [
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::FENCED_LEADER_EPOCH,
        ErrorCode::UNKNOWN_LEADER_EPOCH,
        ErrorCode::KAFKA_STORAGE_ERROR,
        ErrorCode::OFFSET_NOT_AVAILABLE,
        ErrorCode::UNKNOWN_TOPIC_ID,
        ErrorCode::OFFSET_OUT_OF_RANGE,
    ];
    let actions = codes.map(|code| Action::Error(code.0)).into_iter().chain([
        Action::CutBefore,
        Action::CutAfter,
        Action::PartialWrite(50),
        Action::HalfClose,
        Action::WrongCorrelation,
        Action::AbsurdLength(-5),
        Action::Throttle(Duration::from_secs(2)),
    ]);
    for action in actions {
        let world = filled(2, 20);
        let rule = world.cluster.control().on(Match::api(ApiKey::FETCH).times(3), action.clone());
        for offset in [3, 17] {
            let answer = read(&world, &run(offset, offset), 60).await.unwrap();
            assert_eq!(seen(&answer), (vec![offset.to_string()], offset + 1), "{action:?}");
        }
        assert!(world.cluster.control().hits(rule) >= 2, "{action:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_or_moves_is_followed() {
    let world = filled(3, 20);
    for step in 0..9 {
        let leader = world.cluster.leader("t", 0).unwrap();
        match step % 3 {
            0 => world.cluster.stop_broker(leader),
            1 => {
                (1..=3).for_each(|id| world.cluster.start_broker(id));
            }
            _ => {
                world.cluster.move_leader("t", 0, leader % 3 + 1);
            }
        }
        let answer = read(&world, &run(step, step), 60).await.unwrap();
        assert_eq!(seen(&answer), (vec![step.to_string()], step + 1), "step {step}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_retry_helps_is_said_at_once_and_a_silent_broker_at_the_deadline() {
    let world = filled(1, 20);
    let denied = Action::Error(ErrorCode::TOPIC_AUTHORIZATION_FAILED.0);
    let rule = world.cluster.control().on(Match::api(ApiKey::FETCH), denied);
    let before = world.now();
    let error = read(&world, &run(3, 3), 60).await.expect_err("denied");
    assert!(world.now() < before + Duration::from_secs(1));
    assert!(error.to_string().contains("reading t-0 at offset 3"), "{error}");
    assert!(error.to_string().contains("TOPIC_AUTHORIZATION_FAILED") && !error.is_retriable(), "{error}");
    world.cluster.control().remove(rule);
    world.cluster.append_raw("t", 0, Bytes::from_static(&[0x55; 80]), 20);
    let error = read(&world, &run(20, 20), 60).await.expect_err("damaged");
    assert!(error.to_string().contains("reading t-0 at offset 20"), "{error}");
    assert_eq!(seen(&read(&world, &run(18, 20), 1).await.unwrap()), (vec!["18".into(), "19".into()], 20));
    world.cluster.control().on(Match::api(ApiKey::FETCH), Action::Hang);
    let before = world.now();
    let error = read(&world, &run(3, 3), 5).await.expect_err("silent");
    assert_eq!(world.now(), before + Duration::from_secs(5));
    assert!(error.to_string().contains("t-0 at offset 3"), "{error}");
}

/// A batch larger than what was asked for comes all the same, from every broker that keeps to KIP-74.
#[tokio::test(start_paused = true)]
async fn a_large_batch_comes_whole() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    world.fill("t", 0, ["x".repeat(300_000)]);
    let answer = read(&world, &RunRequest { max_bytes: 1_000, ..run(0, 0) }, 5).await.unwrap();
    assert_eq!(answer.records[0].record.value().map(<[u8]>::len), Some(300_000));
}
