//! Are the group protocol's times and moves right from outside, and does the broker notice what clients must not do?

use std::time::Duration;

use crate::common::{Client, cluster, text};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use prosody_base::Clock;
use prosody_testkit::Cluster;
use prosody_testkit::broker::{Action, ApiKey, Match, Violation};

fn group() -> GroupId {
    GroupId(text("g"))
}

pub(crate) fn join(member: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
    JoinGroupRequest::default()
        .with_group_id(group())
        .with_member_id(text(member))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(30_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

fn sync(generation: i32, member: &StrBytes, given: &[(&StrBytes, &[i32])]) -> SyncGroupRequest {
    let assignment = |partitions: &[i32]| {
        let mut bytes = vec![0, 0, 0, 0, 0, 1, 0, 1, b't'];
        bytes.extend((partitions.len() as i32).to_be_bytes());
        partitions.iter().for_each(|one| bytes.extend(one.to_be_bytes()));
        bytes
    };
    let one = |(member, partitions): &(&StrBytes, &[i32])| {
        SyncGroupRequestAssignment::default()
            .with_member_id((*member).clone())
            .with_assignment(assignment(partitions).into())
    };
    SyncGroupRequest::default()
        .with_group_id(group())
        .with_generation_id(generation)
        .with_member_id(member.clone())
        .with_assignments(given.iter().map(one).collect())
}

fn beat(generation: i32, member: &StrBytes) -> HeartbeatRequest {
    HeartbeatRequest::default()
        .with_group_id(group())
        .with_generation_id(generation)
        .with_member_id(member.clone())
}

fn commit(generation: i32, member: &StrBytes, partition: i32) -> OffsetCommitRequest {
    let one =
        OffsetCommitRequestPartition::default().with_partition_index(partition).with_committed_offset(1);
    let topic =
        OffsetCommitRequestTopic::default().with_name(TopicName(text("t"))).with_partitions(vec![one]);
    OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(generation)
        .with_member_id(member.clone())
        .with_topics(vec![topic])
}

/// Two members, `a` leads; both have joined generation 2 and nobody has synced.
async fn two(cluster: &Cluster) -> (Client, StrBytes, Client, StrBytes) {
    let (mut a, mut b) = (Client::new(cluster, 1), Client::new(cluster, 1));
    // Version 3 gives the id in the answer.
    let first = a.call(3, &join("")).await;
    assert_eq!((first.error_code, first.generation_id), (0, 1));
    let id = first.member_id.clone();
    assert_eq!(a.call(3, &sync(1, &id, &[(&id, &[0, 1])])).await.error_code, 0);
    b.send(3, &join("")).await;
    Clock::system().sleep(Duration::from_millis(1)).await;
    assert_eq!(a.call(3, &beat(1, &id)).await.error_code, 27, "a rebalance is on");
    let again = a.call(3, &join(&id)).await;
    let second = b.receive::<JoinGroupRequest>(3).await;
    assert_eq!((again.generation_id, second.generation_id, again.members.len()), (2, 2, 2));
    assert_eq!((second.members.len(), &second.leader), (0, &id));
    (a, id, b, second.member_id)
}

fn ready() -> Cluster {
    let cluster = cluster(2);
    cluster.create_topic("t", 2).unwrap();
    cluster.move_coordinator("g", 1);
    cluster
}

#[tokio::test(start_paused = true)]
async fn an_evicted_member_learns_it_from_its_next_request() {
    let cluster = ready();
    let (mut a, leader, _b, _other) = two(&cluster).await;
    let client = cluster.group("g").unwrap().members[leader.as_str()].client_id.clone();
    assert_eq!((cluster.evict("g", "nobody"), cluster.evict("nothing", &client)), (0, 0));
    assert_eq!(cluster.evict("g", &client), 2, "both members of this client id");
    assert_eq!(a.call(3, &beat(2, &leader)).await.error_code, 25);
    assert_eq!(cluster.violations(), vec![], "it could not know");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_silent_is_removed_after_its_session_and_not_before() {
    let cluster = ready();
    let clock = Clock::system();
    let (mut a, leader, mut b, other) = two(&cluster).await;
    assert_eq!(a.call(3, &sync(2, &leader, &[(&leader, &[0]), (&other, &[1])])).await.error_code, 0);
    assert_eq!(b.call(3, &sync(2, &other, &[])).await.error_code, 0);
    for _ in 0..3 {
        clock.sleep(Duration::from_secs(3)).await;
        assert_eq!(a.call(3, &beat(2, &leader)).await.error_code, 0, "the other one is still there");
    }
    clock.sleep(Duration::from_millis(1_001)).await;
    assert_eq!(a.call(3, &beat(2, &leader)).await.error_code, 27, "it is gone");
    let alone = a.call(3, &join(&leader)).await;
    assert_eq!((alone.generation_id, alone.members.len()), (3, 1));
    assert_eq!(b.call(3, &beat(2, &other)).await.error_code, 25);
    assert!(cluster.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rebalance_goes_on_without_a_member_that_does_not_join() {
    let cluster = ready();
    let clock = Clock::system();
    let (mut a, leader, mut b, other) = two(&cluster).await;
    a.call(3, &sync(2, &leader, &[(&leader, &[0]), (&other, &[1])])).await;
    b.call(3, &sync(2, &other, &[])).await;
    let start = clock.now();
    a.send(3, &join(&leader)).await;
    // It lives, but it does not join.
    for _ in 0..9 {
        clock.sleep(Duration::from_secs(3)).await;
        assert_eq!(b.call(3, &beat(2, &other)).await.error_code, 27);
    }
    let joined = a.receive::<JoinGroupRequest>(3).await;
    assert_eq!((clock.now() - start, joined.members.len()), (Duration::from_secs(30), 1));
}

#[tokio::test(start_paused = true)]
async fn another_coordinator_knows_the_last_complete_generation() {
    let cluster = ready();
    let (mut a, leader, mut b, other) = two(&cluster).await;
    // The coordinator moves while the leader computes: the new one knows generation 1 with its one member.
    b.send(3, &sync(2, &other, &[])).await;
    Clock::system().sleep(Duration::from_millis(1)).await;
    cluster.move_coordinator("g", 2);
    assert_eq!(b.receive::<SyncGroupRequest>(3).await.error_code, 16, "whoever waits is told");
    assert_eq!(a.call(3, &beat(2, &leader)).await.error_code, 16);
    let mut moved = Client::new(&cluster, 2);
    assert_eq!(moved.call(3, &beat(2, &leader)).await.error_code, 22);
    assert_eq!(moved.call(3, &beat(1, &leader)).await.error_code, 0);
    assert_eq!(moved.call(3, &beat(2, &other)).await.error_code, 25);
    let find = FindCoordinatorRequest::default().with_key(text("g"));
    assert_eq!(b.call(1, &find).await.node_id, BrokerId(2));
    cluster.stop_broker(2);
    assert_eq!(b.call(1, &find).await.node_id, BrokerId(1), "groups of a broker that stops go elsewhere");
    assert_eq!(Client::new(&cluster, 1).call(3, &beat(1, &leader)).await.error_code, 0);
    cluster.start_broker(2);
    assert_eq!(Client::new(&cluster, 2).call(3, &beat(1, &leader)).await.error_code, 16);
}

#[tokio::test(start_paused = true)]
async fn two_owners_foreign_commits_and_requests_after_leaving_are_noticed() {
    let cluster = ready();
    let (mut a, leader, mut b, other) = two(&cluster).await;
    a.call(3, &sync(2, &leader, &[(&leader, &[0]), (&other, &[0, 1])])).await;
    assert!(matches!(&cluster.violations()[..], [Violation::TwoOwners { generation: 2, .. }]));
    b.call(3, &sync(2, &other, &[])).await;
    let answer = b.call(3, &commit(2, &other, 1)).await;
    assert_eq!((answer.topics[0].partitions[0].error_code, cluster.violations().len()), (0, 1), "its own");
    let answer = a.call(3, &commit(2, &leader, 1)).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, 0, "Kafka lets it pass");
    assert!(
        matches!(&cluster.violations()[1], Violation::ForeignCommit { member, .. } if *member == *leader)
    );
    let leave = LeaveGroupRequest::default().with_group_id(group()).with_member_id(other.clone());
    assert_eq!(b.call(1, &leave).await.error_code, 0);
    assert_eq!(cluster.violations().len(), 2);
    assert_eq!(b.call(3, &beat(2, &other)).await.error_code, 25);
    assert!(matches!(&cluster.violations()[2], Violation::AfterLeave { api: "Heartbeat", .. }));
}

#[tokio::test(start_paused = true)]
async fn what_was_on_its_way_when_a_member_left_is_not_held_against_it() {
    let cluster = ready();
    let (_a, _, mut b, other) = two(&cluster).await;
    let delay = Action::Delay(Duration::from_secs(1));
    cluster.control().on(Match::api(ApiKey::HEARTBEAT), delay);
    b.send(3, &beat(2, &other)).await;
    Clock::system().sleep(Duration::from_millis(500)).await;
    let leave = LeaveGroupRequest::default().with_group_id(group()).with_member_id(other.clone());
    assert_eq!(Client::new(&cluster, 1).call(1, &leave).await.error_code, 0);
    assert_eq!(b.receive::<HeartbeatRequest>(3).await.error_code, 25);
    assert_eq!(cluster.violations(), []);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_stops_cuts_its_connections_and_comes_back_at_its_address() {
    let cluster = ready();
    let mut a = Client::new(&cluster, 1);
    let leader = cluster.leader("t", 0).unwrap();
    cluster.stop_broker(1);
    assert!(a.frame().await.is_none());
    assert!(
        cluster.network().connect("b1:9092").is_err() || Client::new(&cluster, 1).frame().await.is_none()
    );
    let answer = Client::new(&cluster, 2).call(9, &MetadataRequest::default().with_topics(None)).await;
    assert_eq!(answer.brokers.iter().map(|one| one.node_id.0).collect::<Vec<_>>(), [2]);
    assert_eq!(answer.topics[0].partitions[0].leader_id, BrokerId(2), "a replica took over from {leader}");
    cluster.start_broker(1);
    Clock::system().sleep(Duration::from_millis(5)).await;
    let answer = Client::new(&cluster, 1).call(9, &MetadataRequest::default().with_topics(None)).await;
    assert_eq!(answer.brokers.len(), 2);
}
