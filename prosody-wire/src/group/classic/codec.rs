//! How do a member's calls become Kafka messages, and answers values?
//!
//! Each message is filled for the version that is spoken on the connection: a field the version does not have stays
//! at its default, or it could not be encoded.

use std::collections::BTreeMap;
use std::time::Duration;

use super::calls::{Answer, Call, Joined};
use crate::conn::Connection;
use crate::error::{DecodeError, Error, ErrorKind};
use crate::group::config::GroupConfig;
use crate::group::event::CommittedOffset;
use crate::proto::messages::{self as m, GroupId};
use crate::proto::{ApiKey, ErrorCode, StrBytes, text, topic_name, topic_of};
use crate::types::TopicPartition;

/// What consumers call their embedded protocol.
const PROTOCOL_TYPE: &str = "consumer";
/// Added to the rebalance timeout for the answer of a JoinGroup or SyncGroup to arrive.
const REBALANCE_SLACK: Duration = Duration::from_secs(5);

/// Sends one call on `connection` and waits for what it means.
pub(crate) async fn send(
    connection: &Connection,
    config: &GroupConfig,
    call: Call,
    request_timeout: Duration,
) -> Result<Answer, Error> {
    // A heartbeat that is not answered must leave time for another before the session ends.
    let heartbeat = request_timeout.min(config.session_timeout / 3);
    let rebalance = config.rebalance_timeout + REBALANCE_SLACK;
    match call {
        Call::Join { member_id, metadata } => {
            join(connection, config, &member_id, &metadata, rebalance).await
        }
        Call::Sync { member_id, generation, protocol, assignments } => {
            let version = connection.require(ApiKey::SyncGroup)?;
            let rows = assignments.into_iter().map(|(member, assignment)| {
                m::sync_group_request::SyncGroupRequestAssignment::default()
                    .with_member_id(StrBytes::from_string(member))
                    .with_assignment(assignment)
            });
            let mut request = m::SyncGroupRequest::default()
                .with_group_id(group_id(config))
                .with_generation_id(generation)
                .with_member_id(StrBytes::from_string(member_id))
                .with_assignments(rows.collect());
            if version >= 3 {
                request.group_instance_id = instance_id(config);
            }
            if version >= 5 {
                request.protocol_type = Some(StrBytes::from_static_str(PROTOCOL_TYPE));
                request.protocol_name = Some(StrBytes::from_static_str(protocol.name()));
            }
            let answer = connection.call_version(&request, version, rebalance).await?;
            check(answer.error_code, || doing("getting our assignment in", config, connection))?;
            Ok(Answer::Synced(answer.assignment))
        }
        Call::Heartbeat { member_id, generation } => {
            let version = connection.require(ApiKey::Heartbeat)?;
            let mut request = m::HeartbeatRequest::default()
                .with_group_id(group_id(config))
                .with_generation_id(generation)
                .with_member_id(StrBytes::from_string(member_id));
            if version >= 3 {
                request.group_instance_id = instance_id(config);
            }
            let answer = connection.call_version(&request, version, heartbeat).await?;
            check(answer.error_code, || doing("sending a heartbeat to", config, connection))?;
            Ok(Answer::Heartbeat)
        }
        Call::Leave { member_id } => leave(connection, config, &member_id, request_timeout).await,
        Call::Offsets { partitions } => offsets(connection, config, &partitions, request_timeout).await,
    }
}

async fn join(
    connection: &Connection,
    config: &GroupConfig,
    member_id: &str,
    metadata: &bytes::Bytes,
    timeout: Duration,
) -> Result<Answer, Error> {
    let version = connection.require(ApiKey::JoinGroup)?;
    let protocols = config.assignors.iter().map(|assignor| {
        m::join_group_request::JoinGroupRequestProtocol::default()
            .with_name(StrBytes::from_static_str(assignor.name()))
            .with_metadata(metadata.clone())
    });
    let mut request = m::JoinGroupRequest::default()
        .with_group_id(group_id(config))
        .with_session_timeout_ms(milliseconds(config.session_timeout))
        .with_rebalance_timeout_ms(milliseconds(config.rebalance_timeout))
        .with_member_id(text(member_id))
        .with_protocol_type(StrBytes::from_static_str(PROTOCOL_TYPE))
        .with_protocols(protocols.collect());
    if version >= 5 {
        request.group_instance_id = instance_id(config);
    }
    let answer = connection.call_version(&request, version, timeout).await?;
    if ErrorCode(answer.error_code) == ErrorCode::MEMBER_ID_REQUIRED {
        return Ok(Answer::MemberId(answer.member_id.to_string()));
    }
    check(answer.error_code, || doing("joining", config, connection))?;
    let members = answer.members.into_iter().map(|member| {
        (member.member_id.to_string(), member.group_instance_id.map(|id| id.to_string()), member.metadata)
    });
    Ok(Answer::Joined(Joined {
        generation: answer.generation_id,
        protocol: answer.protocol_name.map(|name| name.to_string()).unwrap_or_default(),
        leader: answer.leader.to_string(),
        member_id: answer.member_id.to_string(),
        skip_assignment: answer.skip_assignment,
        members: members.collect(),
    }))
}

async fn leave(
    connection: &Connection,
    config: &GroupConfig,
    member_id: &str,
    timeout: Duration,
) -> Result<Answer, Error> {
    let version = connection.require(ApiKey::LeaveGroup)?;
    let mut request = m::LeaveGroupRequest::default().with_group_id(group_id(config));
    if version >= 3 {
        let mut member = m::leave_group_request::MemberIdentity::default().with_member_id(text(member_id));
        if version >= 5 {
            member.reason = Some(StrBytes::from_static_str("the consumer is closing"));
        }
        request.members = vec![member];
    } else {
        request.member_id = text(member_id);
    }
    let answer = connection.call_version(&request, version, timeout).await?;
    let code = answer.members.first().map_or(0, |member| member.error_code);
    check(if answer.error_code == 0 { code } else { answer.error_code }, || {
        doing("leaving", config, connection)
    })?;
    Ok(Answer::Left)
}

async fn offsets(
    connection: &Connection,
    config: &GroupConfig,
    partitions: &[TopicPartition],
    timeout: Duration,
) -> Result<Answer, Error> {
    let version = connection.require(ApiKey::OffsetFetch)?;
    let topics = by_topic(partitions);
    let mut request = m::OffsetFetchRequest::default();
    if version >= 8 {
        let topics = topics.into_iter().map(|(topic, partitions)| {
            m::offset_fetch_request::OffsetFetchRequestTopics::default()
                .with_name(topic_name(topic))
                .with_partition_indexes(partitions)
        });
        let group =
            m::offset_fetch_request::OffsetFetchRequestGroup::default().with_group_id(group_id(config));
        request.groups = vec![group.with_topics(Some(topics.collect()))];
    } else {
        let topics = topics.into_iter().map(|(topic, partitions)| {
            m::offset_fetch_request::OffsetFetchRequestTopic::default()
                .with_name(topic_name(topic))
                .with_partition_indexes(partitions)
        });
        request.group_id = group_id(config);
        request.topics = Some(topics.collect());
    }
    // Offsets of open transactions: wait for them rather than start before them (KIP-447).
    request.require_stable = version >= 7;
    let what = || doing("reading committed offsets of", config, connection);
    let answer = connection.call_version(&request, version, timeout).await?;
    check(answer.error_code, what)?;
    let mut rows = Vec::new();
    if version >= 8 {
        let group = answer.groups.into_iter().find(|group| group.group_id.as_str() == config.group_id);
        let group = group.ok_or_else(|| {
            Error::decode(what(), DecodeError::Body("the answer names other groups only".into()))
        })?;
        check(group.error_code, what)?;
        for topic in group.topics {
            let name = topic_of(&topic.name);
            rows.extend(topic.partitions.into_iter().map(|row| {
                let tp = TopicPartition { topic: name.clone(), partition: row.partition_index };
                (tp, row.error_code, row.committed_offset, row.committed_leader_epoch, row.metadata)
            }));
        }
    } else {
        for topic in answer.topics {
            let name = topic_of(&topic.name);
            rows.extend(topic.partitions.into_iter().map(|row| {
                let tp = TopicPartition { topic: name.clone(), partition: row.partition_index };
                (tp, row.error_code, row.committed_offset, row.committed_leader_epoch, row.metadata)
            }));
        }
    }
    let rows = rows.into_iter().map(|(tp, code, offset, epoch, metadata)| {
        let offset = ErrorCode::check(code)
            .map_err(|code| Error::broker(format!("{} ({tp})", what()), code))
            .map(|()| {
                (offset >= 0).then(|| CommittedOffset {
                    offset,
                    leader_epoch: (epoch >= 0).then_some(epoch),
                    metadata: metadata.map(|text| text.to_string()).unwrap_or_default(),
                })
            });
        (tp, offset)
    });
    Ok(Answer::Offsets(rows.collect()))
}

/// One offset to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitOffset {
    /// The partition.
    pub tp: TopicPartition,
    /// The next record to read: the offset of the last finished one plus one.
    pub offset: i64,
    /// The leader epoch of the last finished record, where known (KIP-320).
    pub leader_epoch: Option<i32>,
    /// Text to keep with it; brokers accept 4,096 bytes by default (`offset.metadata.max.bytes`).
    pub metadata: String,
}

/// Sends one OffsetCommit. Each partition has a result of its own.
pub(crate) async fn commit(
    connection: &Connection,
    config: &GroupConfig,
    member_id: &str,
    generation: i32,
    offsets: Vec<CommitOffset>,
    timeout: Duration,
) -> Result<BTreeMap<TopicPartition, ErrorCode>, Error> {
    let version = connection.require(ApiKey::OffsetCommit)?;
    let mut topics: BTreeMap<
        crate::types::Topic,
        Vec<m::offset_commit_request::OffsetCommitRequestPartition>,
    > = BTreeMap::new();
    for one in offsets {
        let row = m::offset_commit_request::OffsetCommitRequestPartition::default()
            .with_partition_index(one.tp.partition)
            .with_committed_offset(one.offset)
            .with_committed_leader_epoch(one.leader_epoch.unwrap_or(-1))
            .with_committed_metadata(Some(StrBytes::from_string(one.metadata)));
        topics.entry(one.tp.topic).or_default().push(row);
    }
    let topics = topics.into_iter().map(|(topic, rows)| {
        m::offset_commit_request::OffsetCommitRequestTopic::default()
            .with_name(topic_name(&topic))
            .with_partitions(rows)
    });
    let mut request = m::OffsetCommitRequest::default()
        .with_group_id(group_id(config))
        .with_generation_id_or_member_epoch(generation)
        .with_member_id(text(member_id))
        .with_topics(topics.collect());
    if version >= 7 {
        request.group_instance_id = instance_id(config);
    }
    let answer = connection.call_version(&request, version, timeout).await?;
    let rows = answer.topics.into_iter().flat_map(|topic| {
        let name = topic_of(&topic.name);
        topic.partitions.into_iter().map(move |row| {
            (
                TopicPartition { topic: name.clone(), partition: row.partition_index },
                ErrorCode(row.error_code),
            )
        })
    });
    Ok(rows.collect())
}

fn by_topic(partitions: &[TopicPartition]) -> BTreeMap<&str, Vec<i32>> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for one in partitions {
        topics.entry(&one.topic).or_default().push(one.partition);
    }
    topics
}

fn group_id(config: &GroupConfig) -> GroupId {
    GroupId(text(&config.group_id))
}

fn instance_id(config: &GroupConfig) -> Option<StrBytes> {
    config.instance_id.as_deref().map(text)
}

fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

pub(crate) fn doing(what: &str, config: &GroupConfig, connection: &Connection) -> String {
    format!("{what} group {} at its coordinator {}", config.group_id, connection.peer())
}

fn check(code: i16, doing: impl FnOnce() -> String) -> Result<(), Error> {
    ErrorCode::check(code).map_err(|code| Error::new(doing(), ErrorKind::Broker(code, None)))
}
