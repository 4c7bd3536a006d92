//! Partitions that come to a fetcher with a large backlog: how long do they wait for their first records?
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

use common::{World, at};
use prosody_wire::TopicPartition;
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, PartitionReader};

/// Bytes of a record, which is a batch of its own.
const RECORD: usize = 50_000;
/// Unread records of each partition.
const BACKLOG: usize = 400;

/// More than a turn is too long.
const SOON: Duration = Duration::from_secs(1);

/// Reads on every `pause`; handlers work on each batch for so long.
async fn slowly(mut reader: PartitionReader, pause: Duration, work: Duration) {
    loop {
        if let FetchItem::Batch(batch) = reader.next().await {
            tokio::spawn(async move {
                tokio::time::sleep(work).await;
                drop(batch);
            });
        }
        tokio::time::sleep(pause).await;
    }
}

/// A member took over partitions while it had a large backlog itself, and the first records of one of them came seconds after
/// those of the others: one partition after the other gave up what it had not read, a second each, and nothing was free
/// before the last one whose records had come in the same answer.
#[tokio::test(start_paused = true)]
async fn a_new_partition_beside_a_backlog_is_read_within_a_second() {
    for buffer in [8 << 20, 64 << 20] {
        for (pause, work) in [(20, 100), (500, 600), (100, 1_000), (60_000, 0)] {
            let world = World::new(1);
            world.cluster.create_topic("t", 8).unwrap();
            for partition in 0..8 {
                world.fill("t", partition, (0..BACKLOG).map(|_| "x".repeat(RECORD)));
            }
            let config = FetchConfig { buffer_bytes: buffer, ..FetchConfig::default() };
            let fetcher = Fetcher::new(&world.client, config);
            let open = |partition| fetcher.open(TopicPartition::new("t", partition), at(0));
            let (pause, work) = (Duration::from_millis(pause), Duration::from_millis(work));
            let old: Vec<_> =
                (0..4).map(|partition| tokio::spawn(slowly(open(partition), pause, work))).collect();
            tokio::time::sleep(Duration::from_secs(5)).await;
            let since = world.now();
            let new = (4..8).map(|partition| {
                let mut reader = open(partition);
                let clock = world.doors.clock.clone();
                tokio::spawn(async move {
                    let FetchItem::Batch(_) = reader.next().await else { panic!() };
                    let took = clock.now().saturating_duration_since(since);
                    (took, tokio::spawn(slowly(reader, pause, work)))
                })
            });
            for (number, new) in new.collect::<Vec<_>>().into_iter().enumerate() {
                let (took, task) = new.await.unwrap();
                let case = format!("{buffer} B, a batch in {pause:?}, work of {work:?}");
                assert!(took < SOON, "new partition {number}: {took:?}; {case}");
                task.abort();
            }
            old.iter().for_each(tokio::task::JoinHandle::abort);
        }
    }
}
