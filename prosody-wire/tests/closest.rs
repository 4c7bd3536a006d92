//! Reading from the closest replica (KIP-392): the leader names a follower in our rack, and the leader serves while that
//! one fails.
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
use prosody_testkit::broker::{Action, ApiKey, Match, code};
use prosody_wire::TopicPartition;
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, PartitionReader, StartAt};

/// Three brokers in three racks; broker 1 leads partition 0 of `t`, and all have it.
fn world() -> World {
    let racks = ["a", "b", "c"].map(str::to_owned).to_vec();
    let world = World::with(ClusterConfig { brokers: 3, racks, ..ClusterConfig::default() }, 1);
    world.cluster.create_topic_with("t", 1, 3, BTreeMap::new()).unwrap();
    world
}

fn open(world: &World, rack: Option<&str>) -> (Fetcher, PartitionReader) {
    let client_rack = rack.map(str::to_owned);
    let fetcher = Fetcher::new(&world.client, FetchConfig { client_rack, ..FetchConfig::default() });
    let reader = fetcher.open(TopicPartition::new("t", 0), StartAt::Earliest);
    (fetcher, reader)
}

/// Writes ten more records and reads them; whatever else the reader says is a failure.
async fn ten_more(world: &World, reader: &mut PartitionReader, from: usize) {
    world.fill("t", 0, numbered("", from..from + 10));
    let mut read = Vec::new();
    while read.len() < 10 {
        let item = tokio::time::timeout(Duration::from_secs(3), reader.next()).await.expect("in time");
        let FetchItem::Batch(batch) = item else { panic!("{item:?}") };
        let value = |record: prosody_wire::batch::RecordView<'_>| {
            String::from_utf8(record.value().unwrap_or_default().to_vec()).unwrap()
        };
        read.extend(batch.records().map(|record| value(record.unwrap())));
    }
    assert_eq!(read, numbered("", from..from + 10));
}

/// Brokers that were asked to fetch during the next second.
async fn asked(world: &World) -> Vec<i32> {
    world.cluster.clear_journal();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut brokers: Vec<i32> = world.cluster.requests(ApiKey::FETCH).iter().map(|one| one.broker).collect();
    brokers.sort_unstable();
    brokers.dedup();
    brokers
}

#[tokio::test(start_paused = true)]
async fn a_reader_reads_from_its_own_rack() {
    for (rack, broker) in [(None, 1), (Some("a"), 1), (Some("b"), 2), (Some("c"), 3), (Some("nowhere"), 1)] {
        let world = world();
        let (_fetcher, mut reader) = open(&world, rack);
        ten_more(&world, &mut reader, 0).await;
        ten_more(&world, &mut reader, 10).await;
        assert_eq!(asked(&world).await, [broker], "{rack:?}");
    }
}

/// The follower died, and the leader went on naming it: nothing was read until the cluster had noticed.
#[tokio::test(start_paused = true)]
async fn a_follower_that_dies_is_left_for_the_leader_at_once() {
    let world = world();
    let (_fetcher, mut reader) = open(&world, Some("b"));
    ten_more(&world, &mut reader, 0).await;
    assert_eq!(asked(&world).await, [2]);
    // As if it were dead, while the cluster believes that it lives.
    let dead = world.cluster.control().on(Match::any().broker(2), Action::CutBefore);
    tokio::time::sleep(Duration::from_millis(200)).await;
    ten_more(&world, &mut reader, 10).await;
    assert_eq!(asked(&world).await, [1]);
    world.cluster.control().remove(dead);
    // Meanwhile nobody asks it; then the leader is told our rack again.
    tokio::time::sleep(Duration::from_secs(11)).await;
    ten_more(&world, &mut reader, 20).await;
    assert_eq!(asked(&world).await, [2]);
}

/// A follower that is behind, or is none any more, or cannot say: the leader knows. The position never jumps.
#[tokio::test(start_paused = true)]
async fn what_a_follower_refuses_the_leader_is_asked() {
    for refusal in [
        code::OFFSET_OUT_OF_RANGE,
        code::NOT_LEADER_OR_FOLLOWER,
        code::FENCED_LEADER_EPOCH,
        code::UNKNOWN_TOPIC_OR_PARTITION,
    ] {
        let world = world();
        let (_fetcher, mut reader) = open(&world, Some("c"));
        ten_more(&world, &mut reader, 0).await;
        assert_eq!(asked(&world).await, [3]);
        world.cluster.control().on(Match::api(ApiKey::FETCH).broker(3).topic("t"), Action::Error(refusal));
        tokio::time::sleep(Duration::from_millis(200)).await;
        ten_more(&world, &mut reader, 10).await;
        assert_eq!(asked(&world).await, [1], "error {refusal}");
    }
}
