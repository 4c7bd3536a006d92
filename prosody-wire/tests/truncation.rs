//! A log that loses what was read of it, or that is another one by now (KIP-320).
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

use std::collections::BTreeMap;
use std::time::Duration;

use common::{World, numbered};
use prosody_testkit::ClusterConfig;
use prosody_testkit::broker::ApiKey;
use prosody_wire::TopicPartition;
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, PartitionReader, StartAt};

/// A release whose Fetch says where logs part, and one whose Fetch does not, so that OffsetForLeaderEpoch is asked.
const RELEASES: [&str; 2] = ["4.0", "2.1"];

/// Two brokers; the first one leads partition 0 of `t`, which both have.
fn world(release: &str) -> World {
    let config = ClusterConfig { brokers: 2, ..ClusterConfig::default() };
    let world = World::with(config.as_version(release), 1);
    world.cluster.create_topic_with("t", 1, 2, BTreeMap::new()).unwrap();
    world
}

fn open(world: &World, offset: i64, leader_epoch: i32) -> PartitionReader {
    let fetcher = Fetcher::new(&world.client, FetchConfig::default());
    fetcher.open(TopicPartition::new("t", 0), StartAt::Offset { offset, leader_epoch })
}

async fn next(reader: &mut PartitionReader) -> FetchItem {
    tokio::time::timeout(Duration::from_secs(20), reader.next()).await.expect("in time")
}

async fn values(reader: &mut PartitionReader, count: usize) -> Vec<String> {
    let mut read = Vec::new();
    while read.len() < count {
        let item = next(reader).await;
        let FetchItem::Batch(batch) = item else { panic!("{item:?}") };
        let value = |record: prosody_wire::batch::RecordView<'_>| record.value().unwrap_or_default().to_vec();
        read.extend(batch.records().map(|record| String::from_utf8(value(record.unwrap())).unwrap()));
    }
    read
}

async fn reset(reader: &mut PartitionReader) -> (i64, i64, &'static str) {
    let item = next(reader).await;
    let FetchItem::Reset { from, to, why } = item else { panic!("{item:?}") };
    (from, to, why)
}

/// Records were skipped in silence: others had taken the offsets of those that an unclean election had lost.
#[tokio::test(start_paused = true)]
async fn a_log_that_was_truncated_is_read_again_from_where_it_parts() {
    for release in RELEASES {
        let world = world(release);
        world.fill("t", 0, numbered("", 0..10));
        let mut reader = open(&world, 0, -1);
        assert_eq!(values(&mut reader, 10).await, numbered("", 0..10), "{release}");
        world.fill("t", 0, numbered("", 10..20));
        assert_eq!(values(&mut reader, 10).await, numbered("", 10..20), "{release}");
        assert!(world.cluster.elect_unclean("t", 0, 2, 10));
        world.fill("t", 0, numbered("new", 0..25));
        // One that read on, and one that comes with an offset and its epoch, such as a commit.
        for mut one in [reader, open(&world, 20, 0)] {
            let (from, to, why) = reset(&mut one).await;
            assert!((from, to) == (20, 10) && why.contains("truncated"), "{release}: {from} {to} {why}");
            assert_eq!(values(&mut one, 25).await, numbered("new", 0..25), "{release}");
        }
    }
}

/// Leaders move all the time, and nothing is lost: nothing is read twice then, and what the broker says by itself is not
/// asked for.
#[tokio::test(start_paused = true)]
async fn a_new_leader_that_has_everything_moves_no_position() {
    for release in RELEASES {
        let world = world(release);
        let mut reader = open(&world, 0, -1);
        for round in 0..4 {
            world.fill("t", 0, numbered("", round * 10..round * 10 + 10));
            assert_eq!(values(&mut reader, 10).await, numbered("", round * 10..round * 10 + 10), "{release}");
            assert!(world.cluster.move_leader("t", 0, 2 - i32::try_from(round % 2).unwrap()));
        }
        let asked = world.cluster.requests(ApiKey::OFFSET_FOR_LEADER_EPOCH).len();
        assert_eq!(asked > 0, release == "2.1", "{release}: {asked}");
    }
}

/// A commit named an epoch that its topic, which was created again since, has never reached: the broker refused the offset
/// for ever, although it lies within the log.
#[tokio::test(start_paused = true)]
async fn an_epoch_that_the_log_has_not_reached_is_no_dead_end() {
    for release in RELEASES {
        let world = world(release);
        world.fill("t", 0, numbered("", 0..50));
        let mut reader = open(&world, 30, 7);
        let (from, to, why) = reset(&mut reader).await;
        assert!((from, to) == (30, 0) && why.contains("epoch"), "{release}: {from} {to} {why}");
        assert_eq!(values(&mut reader, 50).await, numbered("", 0..50), "{release}");
    }
}

/// What had been fetched when the log lost more was dropped, and nobody was told of it.
#[tokio::test(start_paused = true)]
async fn what_was_fetched_comes_before_the_notice_that_the_rest_is_gone() {
    let world = world("4.0");
    world.fill("t", 0, numbered("", 0..10));
    let mut reader = open(&world, 0, -1);
    // Fetched, and nobody has asked for it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.fill("t", 0, numbered("", 10..50));
    world.cluster.delete_records("t", 0, 50);
    world.fill("t", 0, numbered("", 50..60));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut seen = Vec::new();
    let (from, to, _) = loop {
        match next(&mut reader).await {
            FetchItem::Batch(batch) => seen.extend(batch.records().map(|record| record.unwrap().offset())),
            FetchItem::Reset { from, to, why } => break (from, to, why),
            FetchItem::Failed(why) => panic!("{why}"),
        }
    };
    assert!(
        !seen.is_empty() && seen.len() == usize::try_from(from).unwrap() && to == 50,
        "{seen:?} {from} {to}"
    );
    assert_eq!(values(&mut reader, 10).await, numbered("", 50..60));
}
