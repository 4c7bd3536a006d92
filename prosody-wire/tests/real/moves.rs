//! Leaders and coordinators move, on the word of the test.

use std::time::Duration;

use kafka_protocol::messages as m;
use prosody_wire::fetch::FetchItem;

use crate::raw::{ask, text};
use crate::stage::{BOTH, CLASSIC, PATIENCE, Stage, next, numbered, play, values};
use crate::support::{seconds, settled};

/// Versions that every broker from 3.9 on serves.
const METADATA: i16 = 12;
const REASSIGN: i16 = 0;
const ELECT: i16 = 2;
const OFFSETS: &str = "__consumer_offsets";
const OFFSETS_PARTITIONS: i32 = 50;

/// Which broker leads a partition, and all its replicas.
async fn leader(stage: &Stage, topic: &str, partition: i32) -> (i32, Vec<i32>) {
    let wanted = m::metadata_request::MetadataRequestTopic::default();
    let wanted = wanted.with_name(Some(m::TopicName(text(topic))));
    let request = m::MetadataRequest::default().with_topics(Some(vec![wanted]));
    let answer = ask(&stage.brokers[0], METADATA, &request).await;
    let rows = &answer.topics[0].partitions;
    let row = rows.iter().find(|row| row.partition_index == partition).expect("a partition");
    (row.leader_id.0, row.replica_nodes.iter().map(|node| node.0).collect())
}

/// Makes another replica the leader, and waits until the brokers say so.
async fn move_leader(stage: &Stage, topic: &str, partition: i32) {
    use m::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
    let (before, replicas) = leader(stage, topic, partition).await;
    let to = *replicas.iter().find(|one| **one != before).expect("another replica");
    let order = [to].into_iter().chain(replicas.into_iter().filter(|one| *one != to));
    let row = ReassignablePartition::default()
        .with_partition_index(partition)
        .with_replicas(Some(order.map(m::BrokerId).collect()));
    let named = ReassignableTopic::default().with_name(m::TopicName(text(topic))).with_partitions(vec![row]);
    let request =
        m::AlterPartitionReassignmentsRequest::default().with_timeout_ms(20_000).with_topics(vec![named]);
    let answer = ask(&stage.brokers[0], REASSIGN, &request).await;
    assert_eq!(answer.error_code, 0, "{answer:?}");
    assert!(
        answer.responses.iter().all(|one| one.partitions.iter().all(|one| one.error_code == 0)),
        "{answer:?}"
    );
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while leader(stage, topic, partition).await.0 != to {
        assert!(tokio::time::Instant::now() < deadline, "{topic}-{partition} stays at {before}");
        let rows = m::elect_leaders_request::TopicPartitions::default()
            .with_topic(m::TopicName(text(topic)))
            .with_partitions(vec![partition]);
        let request =
            m::ElectLeadersRequest::default().with_timeout_ms(20_000).with_topic_partitions(Some(vec![rows]));
        // "Election not needed" while the new order is on its way.
        let _ = ask(&stage.brokers[0], ELECT, &request).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Java's hash of a name, by which a group finds its partition of the offsets.
fn hash(name: &str) -> i32 {
    name.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

async fn move_coordinator(stage: &Stage) {
    let partition = (hash(&stage.topic) & i32::MAX) % OFFSETS_PARTITIONS;
    move_leader(stage, OFFSETS, partition).await;
}

/// Every commit failed with NOT_COORDINATOR after the coordinator had moved, until the process was restarted.
/// Here each is made at the new one; so is what is asked about the group without being a member.
#[test]
fn a_commit_follows_the_coordinator() {
    play("a-commit-follows", 2, BOTH, |stage| async move {
        stage.create(3, &[]).await;
        let member = stage.join();
        settled(PATIENCE, &[&member], 3).await;
        for offset in 1..5 {
            // Somebody without a membership knows the coordinator too, and is not told either.
            assert_eq!(stage.committed(0).await, (offset > 1).then_some(offset - 1));
            move_coordinator(&stage).await;
            let start = tokio::time::Instant::now();
            member.commit(0, offset).await.unwrap();
            assert!(start.elapsed() < seconds(20), "{:?}", start.elapsed());
            assert_eq!(stage.committed(0).await, Some(offset));
        }
        let heard = member.heard.lock().unwrap();
        assert!(heard.lost.is_empty() && heard.failed.is_empty(), "{heard:?}");
    });
}

/// After a rolling update consumers were stuck rejoining, or a partition never started, or it started at the latest offset:
/// JoinGroup, SyncGroup or OffsetFetch met the old coordinator. Here a client that knows the old one joins all the same.
#[test]
fn members_join_at_a_coordinator_that_has_moved() {
    play("joining-at-a-moved", 2, BOTH, |stage| async move {
        stage.create(3, &[]).await;
        let mut last = stage.join();
        settled(PATIENCE, &[&last], 3).await;
        for partition in 0..3 {
            last.commit(partition, 41).await.unwrap();
        }
        for _ in 0..4 {
            let client = last.client.clone();
            last.leave(seconds(20)).await;
            move_coordinator(&stage).await;
            // The same client: it remembers who the coordinator was.
            last = crate::support::Member::of(client, stage.doors.clone(), stage.group(), Duration::ZERO);
            settled(PATIENCE, &[&last], 3).await;
            let heard = last.heard.lock().unwrap();
            let from = |(_, committed): &(_, Option<prosody_wire::group::CommittedOffset>)| {
                committed.as_ref().map(|one| one.offset)
            };
            assert!(heard.owned.values().all(|one| from(one) == Some(41)), "{heard:?}");
        }
    });
}

/// A poll hung when metadata named an older leader. Here leaders move all the time and everything is read, in order; and a
/// topic that is created again, whose epochs begin at 0, is read from its start.
#[test]
fn leaders_that_move_are_followed() {
    play("leaders-move", 2, CLASSIC, |stage| async move {
        stage.create(1, &[]).await;
        let mut reader = stage.reader(0, 0);
        for round in 0..6 {
            stage.fill(0, numbered(round * 10..round * 10 + 10)).await;
            assert_eq!(values(&mut reader, 10).await, numbered(round * 10..round * 10 + 10));
            move_leader(&stage, &stage.topic, 0).await;
        }
        stage.client.admin().delete_topic(&stage.topic, stage.deadline()).await.unwrap();
        stage.create(1, &[]).await;
        stage.fill(0, numbered(0..80)).await;
        loop {
            match next(&mut reader).await {
                FetchItem::Reset { from: 60, to: 0, .. } => break,
                FetchItem::Failed(why) => assert!(!why.is_retriable(), "{why}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(values(&mut reader, 80).await, numbered(0..80));
    });
}
