//! How many connections does one client have to one broker, whatever it does at the same time?
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
use std::time::Duration;

use common::{World, numbered, record, send_all};
use prosody_testkit::broker::{Action, ApiKey, Match};
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, RecordReader, RunRequest, StartAt};
use prosody_wire::group::{Group, GroupConfig, GroupEvent, GroupProtocol};
use prosody_wire::{IsolationLevel, Limits, OffsetAt, TopicPartition};

/// Everything that a client can do, at once, while its JoinGroup waits at the same broker, and again once it is a member:
/// a broker that serves thousands of clients counts on three connections of each. ListOffsets of the administration stood
/// behind the JoinGroup until that was answered.
#[tokio::test(start_paused = true)]
async fn a_whole_client_has_three_connections_to_a_broker() {
    let world = World::new(1);
    world.cluster.create_topic("t", 2).unwrap();
    let held = Match::api(ApiKey::JOIN_GROUP).after(1).times(1);
    let held = world.cluster.control().on(held, Action::Delay(Duration::from_secs(10)));
    let config = GroupConfig { protocol: GroupProtocol::Classic, ..GroupConfig::new("g", ["t".into()]) };
    let mut group = Group::join(&world.client, config);
    world.cluster.control().reached(held, 1).await;
    let producer = world.producer();
    let fetcher = Fetcher::new(&world.client, FetchConfig::default());
    let mut polled = fetcher.open(TopicPartition::new("t", 1), StartAt::Latest);
    let (admin, records) =
        (world.client.admin(), RecordReader::new(&world.client, IsolationLevel::ReadCommitted));
    for round in 0..2 {
        for sent in send_all(&producer, "t", 0, numbered("", 0..10), None) {
            sent.await.unwrap();
        }
        let deadline = world.after(5_000).unwrap();
        let mut reader = fetcher.open(TopicPartition::new("t", 0), StartAt::Earliest);
        assert!(matches!(reader.next().await, FetchItem::Batch(_)));
        let run = RunRequest {
            partition: TopicPartition::new("t", 0),
            topic_id: None,
            first: 3,
            last: 4,
            leader_epoch: -1,
            max_bytes: 1 << 10,
        };
        let (read, groups, described, topics, ends) = tokio::join!(
            records.read(&run, deadline),
            admin.list_groups(deadline),
            admin.describe_group("g", deadline),
            admin.list_topics(deadline),
            admin.offsets("t", OffsetAt::Latest, deadline),
        );
        assert_eq!(read.unwrap().records.len(), 2);
        assert_eq!(ends.unwrap()[&0], 10 * (round as i64 + 1));
        assert_eq!((groups.unwrap().len(), topics.unwrap().len()), (1, 1));
        assert_eq!(described.unwrap().members.len(), round);
        if round == 0 {
            let event = tokio::time::timeout(Duration::from_secs(20), group.event()).await.unwrap();
            assert!(matches!(event, GroupEvent::Assigned { .. }), "{event:?}");
        }
    }
    producer.send(record("t", 1, "news"), None).await.unwrap();
    assert!(matches!(polled.next().await, FetchItem::Batch(_)));
    let brokers = world.client.brokers();
    assert_eq!(brokers[0].connections, Limits::CONNECTIONS_PER_BROKER, "{brokers:?}");
    // None was ever more than that, or replaced.
    let used: BTreeSet<u64> = world.cluster.journal().iter().map(|entry| entry.connection).collect();
    assert_eq!(used.len(), Limits::CONNECTIONS_PER_BROKER);
}
