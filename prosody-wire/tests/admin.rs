#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]
//! Administrative calls against every release the broker can play, and through every fault it can cause.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prosody_base::{Doors, Instant};
use prosody_testkit::broker::control::{Action, Match};
use prosody_testkit::broker::keys::ApiKey;
use prosody_testkit::{Cluster, ClusterConfig};
use prosody_wire::group::{CommittedOffset, Group, GroupConfig, GroupEvent, GroupProtocol};
use prosody_wire::{
    Client, ClientConfig, ConfigEntry, ErrorCode, ErrorKind, NewTopic, OffsetAt, PipeConnector, TcpConnector,
    TopicPartition,
};

/// A cluster and a client of it.
fn start(config: ClusterConfig) -> (Cluster, Client, Doors) {
    let doors = Doors::simulated(1);
    let cluster = Cluster::start(config, doors.clone());
    let seeds = ClientConfig::new(cluster.bootstrap().split(','));
    let client = Client::new(seeds, Arc::new(PipeConnector(cluster.network())), doors.clone()).unwrap();
    (cluster, client, doors)
}

fn three() -> ClusterConfig {
    ClusterConfig { brokers: 3, ..ClusterConfig::default() }
}

fn in_minutes(doors: &Doors, minutes: u64) -> Instant {
    doors.clock.now() + Duration::from_secs(60 * minutes)
}

#[tokio::test(start_paused = true)]
async fn every_release_is_spoken_to() {
    for release in ["2.1", "2.8", "3.9", "newest"] {
        let config = ClusterConfig { default_partitions: 4, ..three() };
        let (cluster, client, doors) = start(config.as_version(release));
        let (admin, deadline) = (client.admin(), in_minutes(&doors, 1));
        admin.create_topic(&NewTopic::new("plain"), deadline).await.unwrap();
        assert_eq!(cluster.partitions("plain"), Some(4), "{release}: the broker's default");
        let mut topic = NewTopic::new("t").partitions(3);
        topic.configs.push(("cleanup.policy".to_owned(), "compact".to_owned()));
        admin.create_topic(&topic, deadline).await.unwrap();
        assert_eq!(cluster.partitions("t"), Some(3), "{release}");
        let again = admin.create_topic(&topic, deadline).await.unwrap_err();
        assert_eq!(again.code(), Some(ErrorCode::TOPIC_ALREADY_EXISTS), "{release}: {again}");
        cluster.append("t", 1, &[(Some(b"k"), Some(b"v")), (Some(b"k"), None)]).unwrap();
        let offsets = |at| admin.offsets("t", at, deadline);
        let ends: Vec<_> = offsets(OffsetAt::Latest).await.unwrap().into_iter().collect();
        assert_eq!(ends, [(0, 0), (1, 2), (2, 0)], "{release}");
        let starts: Vec<_> = offsets(OffsetAt::Earliest).await.unwrap().into_iter().collect();
        assert_eq!(starts, [(0, 0), (1, 0), (2, 0)], "{release}");
        let later = OffsetAt::Timestamp(i64::MAX);
        assert_eq!(offsets(later).await.unwrap()[&1], 2, "{release}: past the last record is the end");
        let configs = admin.describe_topic("t", deadline).await.unwrap();
        let policy = configs.iter().find(|entry| entry.name == "cleanup.policy").unwrap();
        assert_eq!(policy.value.as_deref(), Some("compact"), "{release}");
        admin.create_partitions("t", 5, deadline).await.unwrap();
        assert_eq!(offsets(OffsetAt::Latest).await.unwrap().len(), 5, "{release}");
        let fewer = admin.create_partitions("t", 4, deadline).await.unwrap_err();
        assert_eq!(fewer.code(), Some(ErrorCode::INVALID_PARTITIONS), "{release}: {fewer}");
        admin.delete_topic("t", deadline).await.unwrap();
        assert_eq!(cluster.partitions("t"), None, "{release}");
        let before = doors.clock.now();
        let missing = admin.delete_topic("t", deadline).await.unwrap_err();
        assert_eq!(missing.code(), Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), "{release}");
        assert!(missing.to_string().starts_with("deleting topic t: DeleteTopics to broker"), "{missing}");
        assert_eq!(doors.clock.now(), before, "a missing topic is an answer, not a reason to wait");
    }
}

/// Whatever happens to one request, the call ends well, and its effect is there once.
#[tokio::test(start_paused = true)]
async fn every_call_survives_every_fault_once() {
    let faults = [
        Action::Error(ErrorCode::NOT_CONTROLLER.0),
        Action::Error(ErrorCode::REQUEST_TIMED_OUT.0),
        Action::Delay(Duration::from_secs(5)),
        Action::CutBefore,
        Action::CutAfter,
        Action::Hang,
        Action::HangAfter,
        Action::HalfClose,
        Action::Throttle(Duration::from_secs(2)),
        Action::WrongCorrelation,
        Action::DuplicateAnswer,
        Action::AbsurdLength(i32::MAX),
        Action::AbsurdLength(-5),
        Action::PartialWrite(7),
        Action::Body(Bytes::from_static(&[0xff; 40])),
        Action::Garbage(Bytes::from_static(&[0, 0, 0, 9, 0xee, 0xee, 0xee, 0xee, 0, 0, 0, 0, 0])),
    ];
    let apis = [
        ApiKey::CREATE_TOPICS,
        ApiKey::CREATE_PARTITIONS,
        ApiKey::LIST_OFFSETS,
        ApiKey::DESCRIBE_CONFIGS,
        ApiKey::DELETE_TOPICS,
        ApiKey::METADATA,
        ApiKey::API_VERSIONS,
    ];
    for fault in faults {
        for api in apis {
            let (cluster, client, doors) = start(three());
            let rule = cluster.control().on(Match::api(api).nth(1), fault.clone());
            let (admin, deadline) = (client.admin(), in_minutes(&doors, 5));
            let what = format!("{fault:?} of {api:?}");
            admin.create_topic(&NewTopic::new("t").partitions(2), deadline).await.expect(&what);
            admin.create_partitions("t", 4, deadline).await.expect(&what);
            assert_eq!(admin.offsets("t", OffsetAt::Latest, deadline).await.expect(&what).len(), 4);
            admin.describe_topic("t", deadline).await.expect(&what);
            admin.delete_topic("t", deadline).await.expect(&what);
            assert_eq!(cluster.partitions("t"), None, "{what}");
            assert_eq!(cluster.control().hits(rule), 1, "{what} struck");
        }
    }
}

/// What an operator asks about groups, records and settings, of every release that has the request.
#[tokio::test(start_paused = true)]
async fn groups_records_and_settings_are_looked_at_and_changed() {
    for release in ["2.1", "2.8", "3.9", "newest"] {
        let (cluster, client, doors) = start(three().as_version(release));
        let (admin, deadline) = (client.admin(), in_minutes(&doors, 1));
        cluster.create_topic("t", 2).unwrap();
        cluster.append("t", 0, &[(None, Some(b"a")), (None, Some(b"b")), (None, Some(b"c"))]).unwrap();
        assert_eq!(
            admin.list_topics(deadline).await.unwrap(),
            BTreeMap::from([("t".to_owned(), 2)]),
            "{release}"
        );
        assert_eq!(admin.delete_records("t", 0, 2, deadline).await.unwrap(), 2, "{release}");
        assert_eq!(admin.offsets("t", OffsetAt::Earliest, deadline).await.unwrap()[&0], 2, "{release}");
        let beyond = admin.delete_records("t", 0, 9, deadline).await.unwrap_err();
        assert_eq!(beyond.code(), Some(ErrorCode::OFFSET_OUT_OF_RANGE), "{release}: {beyond}");
        let nowhere = admin.delete_records("t", 9, 1, deadline).await.unwrap_err();
        assert_eq!(nowhere.code(), Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), "{release}: {nowhere}");

        let at = |offset| CommittedOffset { offset, leader_epoch: None, metadata: "text".to_owned() };
        let offsets = BTreeMap::from([(0, at(1)), (1, at(0))]);
        admin.set_group_offsets("g", "t", &offsets, deadline).await.unwrap();
        assert_eq!(admin.group_offsets("g", "t", deadline).await.unwrap(), offsets, "{release}");
        assert_eq!(admin.group_offsets("other", "t", deadline).await.unwrap(), BTreeMap::new(), "{release}");
        assert_eq!(admin.describe_group("g", deadline).await.unwrap().state, "Empty", "{release}");
        assert_eq!(admin.describe_group("other", deadline).await.unwrap().state, "Dead", "{release}");
        let mut config = GroupConfig::new("g", ["t".into()]);
        config.protocol = GroupProtocol::Classic;
        let mut member = Group::join(&client, config);
        let GroupEvent::Assigned { .. } = member.event().await else { panic!("no assignment") };
        let described = admin.describe_group("g", deadline).await.unwrap();
        assert_eq!((described.state.as_str(), described.members.len()), ("Stable", 1), "{release}");
        assert_eq!(described.members[0].partitions.len(), 2, "{release}");
        let in_use = admin.delete_group("g", deadline).await.unwrap_err();
        assert_eq!(in_use.code(), Some(ErrorCode::NON_EMPTY_GROUP), "{release}: {in_use}");
        let before = doors.clock.now();
        let outsider = admin.set_group_offsets("g", "t", &offsets, deadline).await.unwrap_err();
        assert_eq!(outsider.code(), Some(ErrorCode::UNKNOWN_MEMBER_ID), "{release}: {outsider}");
        assert_eq!(doors.clock.now(), before, "an outsider cannot rejoin: no reason to try again");
        member.leave(deadline).await;
        let listed = admin.list_groups(deadline).await.unwrap();
        assert_eq!(
            listed.iter().map(|group| group.group_id.as_str()).collect::<Vec<_>>(),
            ["g"],
            "{release}"
        );
        admin.delete_group("g", deadline).await.unwrap();
        let missing = admin.delete_group("g", deadline).await.unwrap_err();
        assert_eq!(missing.code(), Some(ErrorCode::GROUP_ID_NOT_FOUND), "{release}: {missing}");

        let change = admin.alter_topic("t", &[("cleanup.policy", Some("compact"))], deadline).await;
        let cluster_is = admin.describe_cluster(deadline).await;
        if release == "2.1" {
            for error in [change.unwrap_err(), cluster_is.unwrap_err()] {
                assert!(matches!(error.kind(), ErrorKind::Unsupported { theirs: None, .. }), "{error}");
            }
            continue;
        }
        change.unwrap();
        let own = |entries: Vec<ConfigEntry>| entries.into_iter().filter(|entry| entry.own).count();
        assert_eq!(own(admin.describe_topic("t", deadline).await.unwrap()), 1, "{release}");
        admin.alter_topic("t", &[("cleanup.policy", None)], deadline).await.unwrap();
        assert_eq!(own(admin.describe_topic("t", deadline).await.unwrap()), 0, "{release}");
        let nonsense = admin.alter_topic("t", &[("retention.ms", Some("soon"))], deadline).await.unwrap_err();
        assert_eq!(nonsense.code(), Some(ErrorCode::INVALID_CONFIG), "{release}: {nonsense}");
        let described = cluster_is.unwrap();
        assert_eq!((described.brokers.len(), described.cluster_id.as_str()), (3, "prosody-testkit"));
    }
}

/// A group of the consumer protocol, which is what members make where the broker speaks it, was said to be dead while they
/// were reading.
#[tokio::test(start_paused = true)]
async fn a_group_of_the_consumer_protocol_is_looked_at_too() {
    let (cluster, client, doors) = start(three());
    let (admin, deadline) = (client.admin(), in_minutes(&doors, 1));
    let state = async || admin.describe_group("g", deadline).await.unwrap().state;
    cluster.create_topic("t", 2).unwrap();
    let config = GroupConfig::new("g", ["t".into()]);
    assert_eq!((config.protocol, state().await.as_str()), (GroupProtocol::Auto, "Dead"));
    let mut member = Group::join(&client, config);
    let GroupEvent::Assigned { .. } = member.event().await else { panic!("no assignment") };
    let moved = Action::Error(ErrorCode::NOT_COORDINATOR.0);
    cluster.control().on(Match::api(ApiKey::CONSUMER_GROUP_DESCRIBE).nth(1), moved);
    let described = admin.describe_group("g", deadline).await.unwrap();
    assert_eq!((described.state.as_str(), described.assignor.as_str()), ("Stable", "uniform"));
    let [one] = described.members.as_slice() else { panic!("{described:?}") };
    assert_eq!((one.client_id.as_str(), one.instance_id.as_deref()), ("prosody", None));
    assert_eq!(one.partitions, [TopicPartition::new("t", 0), TopicPartition::new("t", 1)]);
    let in_use = admin.delete_group("g", deadline).await.unwrap_err();
    assert_eq!(in_use.code(), Some(ErrorCode::NON_EMPTY_GROUP), "{in_use}");
    member.leave(deadline).await;
    assert_eq!(state().await, "Empty");
    admin.delete_group("g", deadline).await.unwrap();
    assert_eq!(state().await, "Dead");
    // Brokers that have the request and not the feature.
    let (_cluster, client, doors) = start(ClusterConfig { consumer_groups: false, ..three() });
    let described = client.admin().describe_group("g", in_minutes(&doors, 1)).await.unwrap();
    assert_eq!(described.state, "Dead");
}

/// A coordinator that moved is found again, and nothing is done twice.
#[tokio::test(start_paused = true)]
async fn calls_about_groups_follow_the_coordinator() {
    let (cluster, client, doors) = start(three());
    let (admin, deadline) = (client.admin(), in_minutes(&doors, 5));
    cluster.create_topic("t", 1).unwrap();
    let to = CommittedOffset { offset: 3, leader_epoch: None, metadata: String::new() };
    let offsets = BTreeMap::from([(0, to)]);
    admin.set_group_offsets("g", "t", &offsets, deadline).await.unwrap();
    let apis = [ApiKey::OFFSET_FETCH, ApiKey::OFFSET_COMMIT, ApiKey::DESCRIBE_GROUPS, ApiKey::DELETE_GROUPS];
    for api in apis {
        let moved = Action::Error(ErrorCode::NOT_COORDINATOR.0);
        cluster.control().on(Match::api(api).nth(1), moved);
        cluster.control().on(Match::api(api).nth(2), Action::CutBefore);
    }
    assert_eq!(admin.group_offsets("g", "t", deadline).await.unwrap(), offsets);
    admin.set_group_offsets("g", "t", &offsets, deadline).await.unwrap();
    assert_eq!(admin.describe_group("g", deadline).await.unwrap().state, "Empty");
    admin.delete_group("g", deadline).await.unwrap();
    assert_eq!(admin.list_groups(deadline).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_every_call_with_what_went_wrong() {
    let (cluster, client, doors) = start(ClusterConfig::default());
    let admin = client.admin();
    cluster.control().on(Match::api(ApiKey::CREATE_TOPICS), Action::Error(ErrorCode::NOT_CONTROLLER.0));
    let deadline = doors.clock.now() + Duration::from_secs(3);
    let error = admin.create_topic(&NewTopic::new("t"), deadline).await.unwrap_err();
    assert_eq!(doors.clock.now(), deadline);
    assert_eq!(error.code(), Some(ErrorCode::NOT_CONTROLLER));
    assert!(error.to_string().contains("creating topic t (deadline passed)"), "{error}");
    cluster.stop_broker(1);
    let deadline = doors.clock.now() + Duration::from_secs(3);
    let error = admin.delete_topic("t", deadline).await.unwrap_err();
    assert_eq!(doors.clock.now(), deadline);
    assert!(error.to_string().contains("b1:9092"), "the address that was tried: {error}");
}

#[tokio::test(start_paused = true)]
async fn brokers_may_restart_one_after_the_other() {
    let (cluster, client, doors) = start(three());
    let (admin, deadline) = (client.admin(), in_minutes(&doors, 10));
    for broker in cluster.brokers() {
        cluster.stop_broker(broker);
        let name = format!("without-{broker}");
        admin.create_topic(&NewTopic::new(&name).partitions(6), deadline).await.unwrap();
        cluster.start_broker(broker);
        assert_eq!(admin.offsets(&name, OffsetAt::Latest, deadline).await.unwrap().len(), 6);
    }
}

#[tokio::test]
async fn sockets_work_like_pipes() {
    let doors = Doors::process().unwrap();
    let cluster = Cluster::start(ClusterConfig::default(), doors.clone());
    cluster.serve_tcp(0).unwrap();
    let seeds = ClientConfig::new([cluster.tcp_bootstrap()]);
    let client = Client::new(seeds, Arc::new(TcpConnector), doors.clone()).unwrap();
    let deadline = in_minutes(&doors, 1);
    client.admin().create_topic(&NewTopic::new("t").partitions(3), deadline).await.unwrap();
    assert_eq!(client.admin().offsets("t", OffsetAt::Latest, deadline).await.unwrap().len(), 3);
    let seeds = ClientConfig::new([cluster.bootstrap()]);
    let beside = Client::new(seeds, Arc::new(PipeConnector(cluster.network())), doors.clone()).unwrap();
    assert_eq!(beside.admin().list_topics(deadline).await.unwrap(), BTreeMap::from([("t".to_owned(), 3)]));
    // A port where nobody listens: refused at once, by name and by number.
    let client =
        Client::new(ClientConfig::new(["localhost:1"]), Arc::new(TcpConnector), doors.clone()).unwrap();
    let deadline = doors.clock.now() + Duration::from_millis(300);
    let error = client.admin().delete_topic("t", deadline).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1:1: Connection refused"), "{error}");
}
