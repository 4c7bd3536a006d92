//! How does a call become Kafka messages, and its answer a value? What both protocols share: offsets.
//!
//! Each message is filled for the version that is spoken on the connection: a field the version does not have stays
//! at its default, or it could not be encoded.

use std::collections::BTreeMap;
use std::time::Duration;

use super::calls::{Answer, Call};
use super::config::GroupConfig;
use super::event::CommittedOffset;
use super::{classic, modern};
use crate::conn::Connection;
use crate::error::{DecodeError, Error, ErrorKind};
use crate::proto::messages::{self as m, GroupId};
use crate::proto::{ApiKey, ErrorCode, StrBytes, text, topic_name, topic_of};
use crate::types::TopicPartition;

/// Sends one call on `connection` and waits for what it means.
pub(crate) async fn send(
    connection: &Connection,
    config: &GroupConfig,
    call: Call,
    request_timeout: Duration,
) -> Result<Answer, Error> {
    // A heartbeat that is not answered must leave time for another before the session ends.
    let soon = request_timeout.min(config.session_timeout / 3);
    match call {
        Call::Join { member_id, metadata, patience } => {
            classic::codec::join(connection, config, &member_id, &metadata, patience).await
        }
        Call::Sync { member_id, generation, protocol, assignments, patience } => {
            // The leader waits for nobody, and all others wait for it.
            let own = request_timeout.min(config.session_timeout);
            let within = if assignments.is_empty() { patience } else { own };
            let share = (protocol, assignments);
            classic::codec::sync(connection, config, member_id, generation, share, within).await
        }
        Call::Heartbeat { member_id, generation } => {
            classic::codec::heartbeat(connection, config, member_id, generation, soon).await
        }
        Call::Leave { member_id } => {
            classic::codec::leave(connection, config, &member_id, request_timeout).await
        }
        Call::Offsets { partitions, member } => {
            offsets(connection, config, &partitions, member, request_timeout).await
        }
        Call::Beat(beat) => modern::codec::beat(connection, config, beat, request_timeout).await,
        Call::SessionTimeout => modern::codec::session_timeout(connection, config, request_timeout).await,
    }
}

async fn offsets(
    connection: &Connection,
    config: &GroupConfig,
    partitions: &[TopicPartition],
    member: Option<(String, i32)>,
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
        let mut group =
            m::offset_fetch_request::OffsetFetchRequestGroup::default().with_group_id(group_id(config));
        if let Some((member_id, epoch)) = member.filter(|_| version >= 9) {
            group.member_id = Some(StrBytes::from_string(member_id));
            group.member_epoch = epoch;
        }
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

pub(super) fn group_id(config: &GroupConfig) -> GroupId {
    GroupId(text(&config.group_id))
}

pub(super) fn instance_id(config: &GroupConfig) -> Option<StrBytes> {
    config.instance_id.as_deref().map(text)
}

pub(super) fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

pub(crate) fn doing(what: &str, config: &GroupConfig, connection: &Connection) -> String {
    format!("{what} group {} at its coordinator {}", config.group_id, connection.peer())
}

pub(super) fn check(code: i16, doing: impl FnOnce() -> String) -> Result<(), Error> {
    ErrorCode::check(code).map_err(|code| Error::new(doing(), ErrorKind::Broker(code, None)))
}
