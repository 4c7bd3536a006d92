//! Is every advertised version of every API answered with bytes that the protocol's own description reads back?
use crate::common::{Client, batch, cluster, text};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;
use uuid::Uuid;

const TOPIC: &str = "events";

fn name() -> TopicName {
    TopicName(text(TOPIC))
}

fn group() -> GroupId {
    GroupId(text("group"))
}

async fn ranges(client: &mut Client) -> Vec<(i16, i16, i16)> {
    let answer = client.call(4, &ApiVersionsRequest::default()).await;
    assert_eq!(answer.error_code, 0);
    let range = |api: &kafka_protocol::messages::api_versions_response::ApiVersion| {
        (api.api_key, api.min_version, api.max_version)
    };
    answer.api_keys.iter().map(range).collect()
}

#[tokio::test(start_paused = true)]
async fn data_apis_in_every_version() {
    let cluster = cluster(2);
    cluster.create_topic(TOPIC, 2).unwrap();
    let id = Uuid::from_bytes(cluster.topic_id(TOPIC).unwrap());
    let mut client = Client::new(&cluster, 1);
    let advertised = ranges(&mut client).await;
    let range = |key| {
        let (_, min, max) = *advertised.iter().find(|api| api.0 == key).expect("advertised");
        min..=max
    };
    let mut appended = 0;
    for version in range(0).filter(|version| *version >= 3) {
        // Partition 0 is led here, partition 1 by the other broker, partition 7 does not exist.
        let partition = |index| {
            PartitionProduceData::default().with_index(index).with_records(Some(batch(-1, -1, -1, 3)))
        };
        let mut topic =
            TopicProduceData::default().with_partition_data(vec![partition(0), partition(1), partition(7)]);
        if version >= 13 {
            topic.topic_id = id
        } else {
            topic.name = name()
        }
        let request = ProduceRequest::default().with_acks(-1).with_topic_data(vec![topic]);
        let answer = client.call(version, &request).await;
        let answered = &answer.responses[0].partition_responses;
        assert_eq!((answered[0].error_code, answered[0].base_offset), (0, appended), "v{version}");
        assert_eq!((answered[1].error_code, answered[2].error_code), (6, 3), "v{version}");
        if version >= 10 {
            assert_eq!(answered[1].current_leader.leader_id, BrokerId(2));
            assert_eq!(answer.node_endpoints[0].host.as_str(), "b2");
        }
        appended += 3;
    }
    for version in range(1) {
        let partition = |index, offset| {
            FetchPartition::default()
                .with_partition(index)
                .with_fetch_offset(offset)
                .with_partition_max_bytes(1 << 20)
        };
        let mut topic = FetchTopic::default().with_partitions(vec![
            partition(0, 1),
            partition(0, 9_999),
            partition(1, 0),
            partition(7, 0),
        ]);
        if version >= 13 {
            topic.topic_id = id
        } else {
            topic.topic = name()
        }
        let request = FetchRequest::default()
            .with_max_wait_ms(10)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_isolation_level((version % 2) as i8)
            .with_session_epoch(-1)
            .with_topics(vec![topic]);
        let answer = client.call(version, &request).await;
        let partitions = &answer.responses[0].partitions;
        assert_eq!(partitions[0].high_watermark, appended, "v{version}");
        let records = partitions[0].records.clone().expect("records");
        assert_eq!(&records[..8], &0i64.to_be_bytes(), "the batch that holds offset 1 begins at 0");
        let errors: Vec<i16> = partitions.iter().map(|one| one.error_code).collect();
        assert_eq!(errors, [0, 1, 6, 3], "v{version}");
        if version >= 12 {
            assert_eq!(partitions[2].current_leader.leader_id, BrokerId(2));
        }
        assert_eq!(answer.node_endpoints.len(), usize::from(version >= 16), "v{version}");
    }
    for version in range(2) {
        for (timestamp, expected) in [(-1, appended), (-2, 0), (500, 0), (5_000, -1)] {
            let partition =
                |index| ListOffsetsPartition::default().with_partition_index(index).with_timestamp(timestamp);
            let topic = ListOffsetsTopic::default()
                .with_name(name())
                .with_partitions(vec![partition(0), partition(1)]);
            let request =
                ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
            let answer = client.call(version, &request).await;
            assert_eq!(answer.topics[0].partitions[0].offset, expected, "v{version} at {timestamp}");
            assert_eq!(answer.topics[0].partitions[1].error_code, 6);
        }
    }
    for version in range(23) {
        let partition = OffsetForLeaderPartition::default().with_leader_epoch(0).with_current_leader_epoch(0);
        let topic = OffsetForLeaderTopic::default().with_topic(name()).with_partitions(vec![partition]);
        let mut request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
        if version >= 3 {
            request.replica_id = BrokerId(-1);
        }
        let answer = client.call(version, &request).await;
        assert_eq!(answer.topics[0].partitions[0].end_offset, appended);
    }
    for version in range(22) {
        let answer =
            client.call(version, &InitProducerIdRequest::default().with_transactional_id(None)).await;
        assert!(answer.error_code == 0 && answer.producer_id.0 > 0 && answer.producer_epoch == 0);
    }
    for version in range(3) {
        let topic = |text| MetadataRequestTopic::default().with_name(Some(TopicName(text)));
        let mut topics = vec![topic(text(TOPIC)), topic(text("missing"))];
        if version >= 12 {
            topics.push(MetadataRequestTopic::default().with_name(None).with_topic_id(id));
        }
        let answer = client.call(version, &MetadataRequest::default().with_topics(Some(topics))).await;
        assert_eq!(answer.brokers.len(), 2);
        assert_eq!(answer.topics[0].partitions.len(), 2, "v{version}");
        assert_eq!(answer.topics[1].error_code, 3);
        if let Some(by_id) = answer.topics.get(2) {
            assert_eq!(by_id.name, Some(name()));
        }
        let all = if version == 0 { Some(Vec::new()) } else { None };
        let answer = client.call(version, &MetadataRequest::default().with_topics(all)).await;
        assert_eq!(answer.topics.len(), 1, "v{version}: all topics");
    }
    assert!(cluster.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn group_apis_in_every_version() {
    let cluster = cluster(1);
    cluster.create_topic(TOPIC, 2).unwrap();
    let mut client = Client::new(&cluster, 1);
    let advertised = ranges(&mut client).await;
    let newest = |key| advertised.iter().find(|api| api.0 == key).expect("advertised").2;
    for step in 0..=9 {
        let version = |key: i16| step.min(newest(key));
        let join = |member: &str| {
            let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
            let mut join = JoinGroupRequest::default()
                .with_group_id(group())
                .with_session_timeout_ms(10_000)
                .with_member_id(text(member))
                .with_protocol_type(text("consumer"))
                .with_protocols(vec![protocol.with_metadata(vec![0, 1].into())]);
            join.rebalance_timeout_ms = if version(11) >= 1 { 60_000 } else { -1 };
            join
        };
        for old in 0..=version(10) {
            let mut find = FindCoordinatorRequest::default();
            if old >= 4 {
                find.coordinator_keys = vec![text("group")]
            } else {
                find.key = text("group")
            }
            let answer = client.call(old, &find).await;
            let port = answer.coordinators.first().map_or(answer.port, |one| one.port);
            assert_eq!(port, 9_092);
        }
        let mut joined = client.call(version(11), &join("")).await;
        if version(11) >= 4 {
            assert_eq!(joined.error_code, 79, "a member id is required first");
            let member = joined.member_id.clone();
            joined = client.call(version(11), &join(&member)).await;
        }
        assert_eq!((joined.error_code, joined.members.len()), (0, 1), "v{step}");
        let member = joined.member_id.clone();
        let generation = joined.generation_id;
        // Version 0, topic "events", partition 0.
        let assignment: Vec<u8> =
            [&[0, 0, 0, 0, 0, 1, 0, 6][..], b"events", &[0, 0, 0, 1, 0, 0, 0, 0, 255, 255, 255, 255]]
                .concat();
        let given = SyncGroupRequestAssignment::default().with_member_id(member.clone());
        let mut sync = SyncGroupRequest::default()
            .with_group_id(group())
            .with_generation_id(generation)
            .with_member_id(member.clone())
            .with_assignments(vec![given.with_assignment(assignment.clone().into())]);
        if version(14) >= 5 {
            (sync.protocol_type, sync.protocol_name) = (Some(text("consumer")), Some(text("range")));
        }
        let synced = client.call(version(14), &sync).await;
        assert_eq!((synced.error_code, &synced.assignment[..]), (0, &assignment[..]));
        let beat = HeartbeatRequest::default()
            .with_group_id(group())
            .with_generation_id(generation)
            .with_member_id(member.clone());
        assert_eq!(client.call(version(12), &beat).await.error_code, 0);
        let stale = beat.with_generation_id(generation - 1);
        assert_eq!(client.call(version(12), &stale).await.error_code, 22);

        let commits = version(8).max(2);
        let partition = OffsetCommitRequestPartition::default()
            .with_committed_offset(i64::from(step))
            .with_committed_metadata(Some(text("progress")));
        let topic = OffsetCommitRequestTopic::default().with_name(name()).with_partitions(vec![partition]);
        let commit = OffsetCommitRequest::default()
            .with_group_id(group())
            .with_generation_id_or_member_epoch(generation)
            .with_member_id(member.clone())
            .with_topics(vec![topic]);
        assert_eq!(client.call(commits, &commit).await.topics[0].partitions[0].error_code, 0);

        let fetches = version(9).max(1);
        let mut fetch = OffsetFetchRequest::default();
        if fetches >= 8 {
            let topic =
                OffsetFetchRequestTopics::default().with_name(name()).with_partition_indexes(vec![0, 1]);
            let one = OffsetFetchRequestGroup::default().with_group_id(group());
            fetch.groups = vec![one.with_topics(Some(vec![topic]))];
        } else {
            let topic = OffsetFetchRequestTopic::default().with_name(name());
            fetch = fetch
                .with_group_id(group())
                .with_topics(Some(vec![topic.with_partition_indexes(vec![0, 1])]));
        }
        let fetched = client.call(fetches, &fetch).await;
        let found: Vec<(i64, Option<String>)> = match fetched.groups.first() {
            Some(one) => one.topics[0]
                .partitions
                .iter()
                .map(|one| (one.committed_offset, one.metadata.as_ref().map(ToString::to_string)))
                .collect(),
            None => fetched.topics[0]
                .partitions
                .iter()
                .map(|one| (one.committed_offset, one.metadata.as_ref().map(ToString::to_string)))
                .collect(),
        };
        assert_eq!(found, [(i64::from(step), Some("progress".into())), (-1, Some(String::new()))]);

        let described =
            client.call(version(15), &DescribeGroupsRequest::default().with_groups(vec![group()])).await;
        assert_eq!(described.groups[0].group_state.as_str(), "Stable");
        let listed = client.call(version(16), &ListGroupsRequest::default()).await;
        assert_eq!(listed.groups[0].group_id, group());

        let mut leave = LeaveGroupRequest::default().with_group_id(group());
        if version(13) >= 3 {
            leave.members = vec![MemberIdentity::default().with_member_id(member.clone())];
        } else {
            leave.member_id = member.clone();
        }
        assert_eq!(client.call(version(13), &leave).await.error_code, 0);
        assert_eq!(cluster.group("group").unwrap().state, "Empty");
        let delete = DeleteGroupsRequest::default().with_groups_names(vec![group()]);
        assert_eq!(client.call(version(42), &delete).await.results[0].error_code, 0);
        assert!(cluster.group("group").is_none());
    }
    assert!(cluster.violations().is_empty(), "{:?}", cluster.violations());
}

#[tokio::test(start_paused = true)]
async fn admin_apis_in_every_version() {
    let cluster = cluster(3);
    let mut client = Client::new(&cluster, 3);
    let advertised = ranges(&mut client).await;
    for (key, min, max) in advertised {
        for version in min..=max {
            match key {
                19 => {
                    let config = CreatableTopicConfig::default()
                        .with_name(text("retention.ms"))
                        .with_value(Some(text("1")));
                    let topic = CreatableTopic::default().with_name(name()).with_configs(vec![config]);
                    let counted = topic.with_num_partitions(-1).with_replication_factor(-1);
                    let request = CreateTopicsRequest::default().with_topics(vec![counted]);
                    let answer = client.call(version, &request).await;
                    assert_eq!(answer.topics[0].error_code, 0);
                    let again = client.call(version, &request).await;
                    assert_eq!(again.topics[0].error_code, 36);
                    assert!(cluster.delete_topic(TOPIC));
                }
                20 => {
                    cluster.create_topic(TOPIC, 1).unwrap();
                    let mut request = DeleteTopicsRequest::default();
                    if version >= 6 {
                        let id = Uuid::from_bytes(cluster.topic_id(TOPIC).unwrap());
                        request.topics = vec![DeleteTopicState::default().with_name(None).with_topic_id(id)];
                    } else {
                        request.topic_names = vec![name()];
                    }
                    let answer = client.call(version, &request).await;
                    assert_eq!(
                        (answer.responses[0].error_code, &answer.responses[0].name),
                        (0, &Some(name()))
                    );
                    assert!(cluster.topics().is_empty());
                }
                21 => {
                    let answer = client.call(version, &DeleteRecordsRequest::default()).await;
                    assert!(answer.topics.is_empty());
                }
                32 => {
                    let broker = DescribeConfigsResource::default()
                        .with_resource_type(4)
                        .with_resource_name(text("1"));
                    let topic = DescribeConfigsResource::default()
                        .with_resource_type(2)
                        .with_resource_name(text("no"));
                    let request = DescribeConfigsRequest::default().with_resources(vec![
                        broker.with_configuration_keys(None),
                        topic.with_configuration_keys(None),
                    ]);
                    let answer = client.call(version, &request).await;
                    assert!(!answer.results[0].configs.is_empty());
                    assert_eq!(answer.results[1].error_code, 3);
                }
                37 => {
                    let answer = client.call(version, &CreatePartitionsRequest::default()).await;
                    assert!(answer.results.is_empty());
                }
                44 => {
                    cluster.create_topic(TOPIC, 1).unwrap();
                    let config = AlterableConfig::default()
                        .with_name(text("retention.ms"))
                        .with_value(Some(text("x")));
                    let resource = AlterConfigsResource::default()
                        .with_resource_type(2)
                        .with_resource_name(text(TOPIC))
                        .with_configs(vec![config]);
                    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
                    assert_eq!(client.call(version, &request).await.responses[0].error_code, 40);
                    cluster.delete_topic(TOPIC);
                }
                47 => {
                    let request = OffsetDeleteRequest::default().with_group_id(group());
                    let answer = client.call(version, &request).await;
                    assert!([69, 16].contains(&answer.error_code), "{}", answer.error_code);
                }
                60 => {
                    let answer = client.call(version, &DescribeClusterRequest::default()).await;
                    assert_eq!((answer.brokers.len(), answer.error_code), (3, 0));
                }
                _ => {}
            }
        }
    }
}
