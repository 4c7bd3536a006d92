//! Is the new group protocol (KIP-848) right from outside: its epochs, errors, settings, and the way to it and back?

use std::time::Duration;

use crate::common::{Client, cluster, text};
use crate::groups::join;
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::*;
use prosody_base::{Clock, Doors};
use prosody_testkit::broker::{Violation, code};
use prosody_testkit::{Cluster, ClusterConfig};
use uuid::Uuid;

const GROUP_RESOURCE: i8 = 32;

fn ready(partitions: i32) -> (Cluster, Client) {
    let cluster = cluster(1);
    cluster.create_topic("t", partitions).unwrap();
    let client = Client::new(&cluster, 1);
    (cluster, client)
}

fn group() -> GroupId {
    GroupId(text("g"))
}

fn beat(member: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group())
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_rebalance_timeout_ms(-1)
        .with_topic_partitions(None)
}

fn joins(member: &str) -> ConsumerGroupHeartbeatRequest {
    beat(member, 0)
        .with_rebalance_timeout_ms(30_000)
        .with_subscribed_topic_names(Some(vec![TopicName(text("t"))]))
        .with_topic_partitions(Some(vec![]))
}

fn owns(cluster: &Cluster, partitions: &[i32]) -> Option<Vec<TopicPartitions>> {
    let id = Uuid::from_bytes(cluster.topic_id("t").unwrap());
    Some(vec![TopicPartitions::default().with_topic_id(id).with_partitions(partitions.to_vec())])
}

/// What an answer gives: error, epoch, partitions.
fn seen(answer: &ConsumerGroupHeartbeatResponse) -> (i16, i32, Option<Vec<i32>>) {
    let given = answer.assignment.as_ref().map(|given| {
        given.topic_partitions.iter().flat_map(|topic| topic.partitions.iter().copied()).collect()
    });
    (answer.error_code, answer.member_epoch, given)
}

fn commit(member: &str, epoch: i32, partition: i32) -> OffsetCommitRequest {
    let one =
        OffsetCommitRequestPartition::default().with_partition_index(partition).with_committed_offset(1);
    let topic = OffsetCommitRequestTopic::default().with_name(TopicName(text("t")));
    OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(epoch)
        .with_member_id(text(member))
        .with_topics(vec![topic.with_partitions(vec![one])])
}

async fn commits(client: &mut Client, member: &str, epoch: i32, partition: i32) -> i16 {
    client.call(9, &commit(member, epoch, partition)).await.topics[0].partitions[0].error_code
}

async fn reads(client: &mut Client, member: Option<&str>, epoch: i32) -> i16 {
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(group())
        .with_member_id(member.map(text))
        .with_member_epoch(epoch)
        .with_topics(None);
    client.call(9, &OffsetFetchRequest::default().with_groups(vec![group])).await.groups[0].error_code
}

/// What a member gives up goes to the other one when it no longer reports it, and not before; epochs tell both how far
/// they are.
#[tokio::test(start_paused = true)]
async fn partitions_change_hands_only_when_they_were_let_go() {
    let (cluster, mut client) = ready(4);
    let first = client.call(1, &joins("a")).await;
    assert_eq!(seen(&first), (0, 1, Some(vec![0, 1, 2, 3])));
    assert_eq!((first.heartbeat_interval_ms, first.member_id.as_deref()), (5_000, Some("a")));
    let held = |partitions: &[i32]| owns(&cluster, partitions);
    assert_eq!(
        seen(&client.call(1, &beat("a", 1).with_topic_partitions(held(&[0, 1, 2, 3]))).await),
        (0, 1, None)
    );
    assert_eq!(seen(&client.call(1, &joins("b")).await), (0, 2, Some(vec![])), "nothing is free yet");
    assert_eq!(seen(&client.call(1, &beat("b", 2)).await), (0, 2, None));
    let told = client.call(1, &beat("a", 1)).await;
    assert_eq!(seen(&told), (0, 1, Some(vec![0, 1])), "to give up 2 and 3, in the old epoch");
    assert_eq!(cluster.group("g").unwrap().state, "Reconciling");
    assert_eq!(commits(&mut client, "a", 1, 3).await, 0, "it still may");
    assert_eq!(
        seen(&client.call(1, &beat("a", 1).with_topic_partitions(held(&[0, 1, 3]))).await),
        (0, 1, None)
    );
    assert_eq!(seen(&client.call(1, &beat("b", 2)).await), (0, 2, None), "3 is still held");
    assert_eq!(seen(&client.call(1, &beat("a", 1).with_topic_partitions(held(&[0, 1]))).await), (0, 2, None));
    assert_eq!(seen(&client.call(1, &beat("b", 2)).await), (0, 2, Some(vec![2, 3])));
    assert_eq!(cluster.group("g").unwrap().state, "Stable");
    assert_eq!(commits(&mut client, "a", 1, 0).await, code::STALE_MEMBER_EPOCH);
    assert_eq!(commits(&mut client, "a", 2, 0).await, 0);
    assert_eq!(reads(&mut client, Some("a"), 1).await, code::STALE_MEMBER_EPOCH);
    assert_eq!(reads(&mut client, Some("x"), 1).await, code::UNKNOWN_MEMBER_ID);
    assert_eq!((reads(&mut client, Some("a"), 2).await, reads(&mut client, None, -1).await), (0, 0));
    assert_eq!(cluster.violations(), []);
    // What Kafka lets pass.
    assert_eq!(commits(&mut client, "a", 2, 2).await, 0);
    client.call(1, &beat("a", 2).with_topic_partitions(held(&[0, 1, 2]))).await;
    let [Violation::ForeignCommit { member, owner, .. }, Violation::TwoOwners { members, .. }] =
        &cluster.violations()[..]
    else {
        panic!("{:?}", cluster.violations())
    };
    assert_eq!((member.as_str(), owner.as_deref()), ("a", Some("b")));
    assert_eq!(members, &("b".to_owned(), "a".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn every_refusal_has_its_error() {
    let (cluster, mut client) = ready(2);
    assert_eq!(client.call(1, &beat("a", 3)).await.error_code, code::GROUP_ID_NOT_FOUND);
    client.call(1, &joins("a")).await;
    let bad_assignor = joins("b").with_server_assignor(Some(text("sticky")));
    let bad_regex = joins("b").with_subscribed_topic_names(None).with_subscribed_topic_regex(Some(text("(")));
    let owns_already = joins("b").with_topic_partitions(owns(&cluster, &[0]));
    let rows = [
        (beat("", 1), code::INVALID_REQUEST),
        (beat("a", -3), code::INVALID_REQUEST),
        (beat("a", -2), code::INVALID_REQUEST),
        (beat("b", 0), code::INVALID_REQUEST),
        (owns_already, code::INVALID_REQUEST),
        (bad_assignor, code::UNSUPPORTED_ASSIGNOR),
        (bad_regex, code::INVALID_REGULAR_EXPRESSION),
        (beat("b", 1), code::UNKNOWN_MEMBER_ID),
        (beat("a", 2), code::FENCED_MEMBER_EPOCH),
    ];
    for (request, expected) in rows {
        let answer = client.call(1, &request).await;
        assert_eq!(answer.error_code, expected, "{request:?}");
        assert!(answer.error_message.is_some_and(|why| !why.is_empty()));
    }
    let off = ClusterConfig { consumer_groups: false, ..ClusterConfig::default() };
    let off = Cluster::start(off, Doors::simulated(1));
    let answer = Client::new(&off, 1).call(1, &joins("a")).await;
    assert_eq!(answer.error_code, code::UNSUPPORTED_VERSION);
    // A lost answer: the epoch before is right while its holder claims nothing that it was not given.
    assert_eq!(seen(&client.call(1, &joins("a")).await), (0, 1, Some(vec![0, 1])));
    client.call(1, &joins("b")).await;
    client.call(1, &beat("a", 1)).await;
    client.call(1, &beat("a", 1).with_topic_partitions(owns(&cluster, &[0]))).await;
    let again = |held: &[i32]| beat("a", 1).with_topic_partitions(owns(&cluster, held));
    assert_eq!(client.call(1, &again(&[0, 1])).await.error_code, code::FENCED_MEMBER_EPOCH);
    assert_eq!(seen(&client.call(1, &again(&[0])).await), (0, 2, None));
}

/// A static member says that it will be back, and its next process finds everything as it was.
#[tokio::test(start_paused = true)]
async fn a_static_member_comes_back_to_its_partitions() {
    let (cluster, mut client) = ready(4);
    let named = |request: ConsumerGroupHeartbeatRequest, name| request.with_instance_id(Some(text(name)));
    client.call(1, &named(joins("a"), "one")).await;
    client.call(1, &joins("b")).await;
    client.call(1, &beat("a", 1)).await;
    client.call(1, &beat("a", 1).with_topic_partitions(owns(&cluster, &[0, 1]))).await;
    assert_eq!(client.call(1, &named(joins("a2"), "one")).await.error_code, code::UNRELEASED_INSTANCE_ID);
    assert_eq!(client.call(1, &named(beat("x", 2), "one")).await.error_code, code::FENCED_INSTANCE_ID);
    assert_eq!(seen(&client.call(1, &named(beat("a", -2), "one")).await), (0, -2, None));
    let (epoch, members) = {
        let group = cluster.group("g").unwrap();
        (group.generation, group.members.len())
    };
    assert_eq!(seen(&client.call(1, &named(joins("a2"), "one")).await), (0, 2, Some(vec![0, 1])));
    let group = cluster.group("g").unwrap();
    assert_eq!((group.generation, group.members.len()), (epoch, members), "no rebalance");
    client.call(1, &named(beat("a2", -2), "one")).await;
    Clock::system().sleep(Duration::from_secs(46)).await;
    assert_eq!(cluster.group("g").unwrap().members.len(), 0, "not for ever");
}

/// Whoever holds on to what it was told to give up is removed when its rebalance timeout is over.
#[tokio::test(start_paused = true)]
async fn who_does_not_let_go_in_time_is_removed() {
    let (cluster, mut client) = ready(2);
    let clock = Clock::system();
    client.call(1, &joins("a")).await;
    client.call(1, &joins("b")).await;
    client.call(1, &beat("a", 1)).await;
    for _ in 0..5 {
        clock.sleep(Duration::from_secs(5)).await;
        let holds_on = beat("a", 1).with_topic_partitions(owns(&cluster, &[0, 1]));
        assert_eq!(client.call(1, &holds_on).await.error_code, 0);
        assert_eq!(client.call(1, &beat("b", 2)).await.error_code, 0);
    }
    clock.sleep(Duration::from_millis(5_001)).await;
    assert_eq!(client.call(1, &beat("a", 1)).await.error_code, code::UNKNOWN_MEMBER_ID);
    assert_eq!(seen(&client.call(1, &beat("b", 2)).await), (0, 3, Some(vec![0, 1])));
}

/// Each protocol takes a group over when it is empty, and only then; generations and epochs go on.
#[tokio::test(start_paused = true)]
async fn an_empty_group_changes_its_protocol() {
    let (cluster, mut client) = ready(2);
    let classic = client.call(3, &join("")).await;
    assert_eq!((classic.error_code, classic.generation_id), (0, 1));
    assert_eq!(client.call(1, &joins("a")).await.error_code, code::GROUP_ID_NOT_FOUND);
    let leave = LeaveGroupRequest::default().with_group_id(group()).with_member_id(classic.member_id);
    client.call(1, &leave).await;
    let modern = client.call(1, &joins("a")).await;
    assert_eq!(modern.error_code, 0);
    assert!(modern.member_epoch > classic.generation_id, "{}", modern.member_epoch);
    assert_eq!(cluster.group("g").unwrap().protocol, "consumer");
    assert_eq!(client.call(3, &join("")).await.error_code, code::INCONSISTENT_GROUP_PROTOCOL);
    let listed = client.call(5, &ListGroupsRequest::default()).await;
    assert_eq!(
        (listed.groups[0].group_type.as_str(), listed.groups[0].group_state.as_str()),
        ("consumer", "Stable")
    );
    let described = client.call(6, &DescribeGroupsRequest::default().with_groups(vec![group()])).await;
    assert_eq!(described.groups[0].error_code, code::GROUP_ID_NOT_FOUND, "not with the old call");
    for version in 0..=1 {
        let ask = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group()]);
        let described = client.call(version, &ask).await;
        let member = &described.groups[0].members[0];
        assert_eq!(described.groups[0].assignor_name.as_str(), "uniform");
        assert_eq!(member.assignment.topic_partitions[0].topic_name.as_str(), "t");
        assert_eq!(
            (member.member_id.as_str(), member.assignment.topic_partitions[0].partitions.len()),
            ("a", 2)
        );
    }
    assert_eq!(client.call(1, &beat("a", -1)).await.member_epoch, -1);
    let back = client.call(3, &join("")).await;
    assert!(back.error_code == 0 && back.generation_id > modern.member_epoch, "{}", back.generation_id);
    assert_eq!(cluster.group("g").unwrap().protocol, "classic");
}

/// A group's own settings say how long its sessions are; version 0 gives ids to members that have none.
#[tokio::test(start_paused = true)]
async fn settings_of_a_group_count() {
    let (_cluster, mut client) = ready(1);
    let config = AlterableConfig::default()
        .with_name(text("consumer.session.timeout.ms"))
        .with_value(Some(text("9000")));
    let resource = AlterConfigsResource::default()
        .with_resource_type(GROUP_RESOURCE)
        .with_resource_name(text("g"))
        .with_configs(vec![config]);
    let answer =
        client.call(1, &IncrementalAlterConfigsRequest::default().with_resources(vec![resource])).await;
    assert_eq!(answer.responses[0].error_code, 0);
    let resource = DescribeConfigsResource::default()
        .with_resource_type(GROUP_RESOURCE)
        .with_resource_name(text("g"))
        .with_configuration_keys(None);
    let answer = client.call(4, &DescribeConfigsRequest::default().with_resources(vec![resource])).await;
    let values: Vec<_> = answer.results[0]
        .configs
        .iter()
        .map(|one| (one.name.to_string(), one.value.clone().unwrap_or_default().to_string()))
        .collect();
    let expected = [("consumer.heartbeat.interval.ms", "5000"), ("consumer.session.timeout.ms", "9000")];
    assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let given = client.call(0, &joins("")).await;
    let id = given.member_id.expect("an id");
    assert_eq!((given.error_code, id.len()), (0, 32));
    Clock::system().sleep(Duration::from_millis(8_999)).await;
    assert_eq!(client.call(0, &beat(&id, 1)).await.error_code, 0);
    Clock::system().sleep(Duration::from_millis(9_001)).await;
    assert_eq!(client.call(0, &beat(&id, 1)).await.error_code, code::UNKNOWN_MEMBER_ID);
}

/// Topics by expression: those that match as a whole, also those that come later.
#[tokio::test(start_paused = true)]
async fn an_expression_is_matched_by_the_broker() {
    let (cluster, mut client) = ready(2);
    cluster.create_topic("tt", 3).unwrap();
    let request = joins("a").with_subscribed_topic_names(None).with_subscribed_topic_regex(Some(text("t")));
    assert_eq!(seen(&client.call(1, &request).await).2.map(|given| given.len()), Some(2));
    let wider = beat("a", 1).with_subscribed_topic_regex(Some(text("t+|late")));
    assert_eq!(seen(&client.call(1, &wider).await).2.map(|given| given.len()), Some(5));
    cluster.create_topic("late", 1).unwrap();
    assert_eq!(seen(&client.call(1, &beat("a", 2)).await).2.map(|given| given.len()), Some(6));
}
