//! Which consumer groups are there, what do they hold, and how are their offsets changed from outside?

use std::collections::BTreeMap;

use prosody_base::Instant;

use super::Admin;
use super::topics::{only, verdict};
use crate::cluster::Attempt;
use crate::conn::Connection;
use crate::error::{Error, ErrorKind};
use crate::group::{CommittedOffset, decode_assignment};
use crate::proto::messages::consumer_group_describe_response::Assignment;
use crate::proto::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use crate::proto::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use crate::proto::messages::{
    ConsumerGroupDescribeRequest, DeleteGroupsRequest, DescribeGroupsRequest, GroupId, ListGroupsRequest,
    OffsetCommitRequest, OffsetFetchRequest,
};
use crate::proto::{ApiKey, Disposition, ErrorCode, text, topic_name, topic_of};
use crate::types::{BrokerId, TopicPartition};

/// From this version on OffsetFetch asks for a list of groups (KIP-709).
const OFFSETS_OF_GROUPS: i16 = 8;
/// From this version on groups have states, in ListGroups.
const LISTED_STATES: i16 = 4;
/// Kafka's own name of a group that does not exist.
const DEAD: &str = "Dead";

/// A group as a broker lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    /// Its name.
    pub group_id: String,
    /// Its state, such as `Stable` or `Empty`; `None` from brokers before Kafka 2.6.
    pub state: Option<String>,
}

/// A group with its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// `Stable`, `Empty`, or `Dead` when there is no such group. While partitions move it is `PreparingRebalance` or
    /// `CompletingRebalance` for a classic group, `Assigning` or `Reconciling` for one of the consumer protocol (KIP-848).
    pub state: String,
    /// How partitions are divided, such as `cooperative-sticky` or, by the coordinator, `uniform`; empty for a classic
    /// group without members.
    pub assignor: String,
    /// Who is in it.
    pub members: Vec<GroupMember>,
}

/// One member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The id the coordinator gave it.
    pub member_id: String,
    /// Its own name when it is a static member (KIP-345).
    pub instance_id: Option<String>,
    /// The client id it connects with.
    pub client_id: String,
    /// What it is assigned. Empty too when it is written in a way this client cannot read.
    pub partitions: Vec<TopicPartition>,
}

impl Admin {
    /// Every group of the cluster, by name: each broker lists the ones it coordinates.
    ///
    /// # Errors
    /// What a broker answered, or at `deadline` the last cause.
    pub async fn list_groups(&self, deadline: Instant) -> Result<Vec<ListedGroup>, Error> {
        self.cluster.attempts("listing groups", deadline, |attempt| self.try_list(deadline, attempt)).await
    }

    /// One group with its members, whichever protocol they speak.
    ///
    /// # Errors
    /// What the coordinator answered (GROUP_AUTHORIZATION_FAILED, …), or at `deadline` the last cause. A missing group is
    /// no error, its state is `Dead`.
    pub async fn describe_group(&self, group: &str, deadline: Instant) -> Result<GroupDescription, Error> {
        let doing = format!("describing group {group}");
        self.cluster.attempts(&doing, deadline, |attempt| self.try_describe_group(group, attempt)).await
    }

    /// Deletes a group and its offsets.
    ///
    /// # Errors
    /// What the coordinator answered (NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND, …), or at `deadline` the
    /// last cause.
    pub async fn delete_group(&self, group: &str, deadline: Instant) -> Result<(), Error> {
        let doing = format!("deleting group {group}");
        self.cluster.attempts(&doing, deadline, |attempt| self.try_delete_group(group, attempt)).await
    }

    /// What a group has committed for a topic, by partition; partitions without a commit are left out.
    ///
    /// # Errors
    /// What a broker answered, or at `deadline` the last cause.
    pub async fn group_offsets(
        &self,
        group: &str,
        topic: &str,
        deadline: Instant,
    ) -> Result<BTreeMap<i32, CommittedOffset>, Error> {
        let doing = format!("reading what group {group} has committed for topic {topic}");
        self.cluster
            .attempts(&doing, deadline, |attempt| self.try_group_offsets(group, topic, deadline, attempt))
            .await
    }

    /// Moves a group without members to other offsets.
    ///
    /// # Errors
    /// What the coordinator answered (UNKNOWN_MEMBER_ID while the group has members), or at `deadline` the last cause.
    pub async fn set_group_offsets(
        &self,
        group: &str,
        topic: &str,
        offsets: &BTreeMap<i32, CommittedOffset>,
        deadline: Instant,
    ) -> Result<(), Error> {
        let doing = format!("setting the offsets of group {group} for topic {topic}");
        self.cluster
            .attempts(&doing, deadline, |attempt| self.try_set_offsets(group, topic, offsets, attempt))
            .await
    }

    async fn try_list(&self, deadline: Instant, attempt: Attempt) -> Result<Vec<ListedGroup>, Error> {
        let known = self.cluster.refresh(deadline).await?;
        let mut found = BTreeMap::new();
        for broker in known.brokers.keys() {
            let connection = self.cluster.short(*broker).await?;
            let version = connection.require(ApiKey::ListGroups)?;
            let request = ListGroupsRequest::default();
            let answer = connection.call_version(&request, version, attempt.timeout).await?;
            verdict(answer.error_code, None, format!("ListGroups to {}", connection.peer()))?;
            for group in answer.groups {
                let state = (version >= LISTED_STATES).then(|| group.group_state.to_string());
                let group_id = group.group_id.to_string();
                found.insert(group_id.clone(), ListedGroup { group_id, state });
            }
        }
        Ok(found.into_values().collect())
    }

    async fn try_describe_group(&self, group: &str, attempt: Attempt) -> Result<GroupDescription, Error> {
        let (broker, connection) = self.coordinator(group).await?;
        let request = DescribeGroupsRequest::default().with_groups(vec![group_id(group)]);
        let answer = connection.call(&request, attempt.timeout).await?;
        let doing = format!("DescribeGroups to {}", connection.peer());
        let row = only(answer.groups, &doing)?;
        match self.coordinated(group, broker, verdict(row.error_code, row.error_message.as_ref(), doing)) {
            // An error since version 6 (KIP-1043), a state before: no classic group, and perhaps one of the other protocol.
            Err(error) if error.code() == Some(ErrorCode::GROUP_ID_NOT_FOUND) => {
                return self.try_describe_modern(group, broker, &connection, attempt).await;
            }
            Ok(()) if row.group_state.as_str() == DEAD => {
                return self.try_describe_modern(group, broker, &connection, attempt).await;
            }
            verdict => verdict?,
        }
        let members = row.members.into_iter().map(|member| GroupMember {
            member_id: member.member_id.to_string(),
            instance_id: member.group_instance_id.map(|id| id.to_string()),
            client_id: member.client_id.to_string(),
            partitions: decode_assignment(&member.member_assignment).unwrap_or_default(),
        });
        Ok(GroupDescription {
            state: row.group_state.to_string(),
            assignor: row.protocol_data.to_string(),
            members: members.collect(),
        })
    }

    /// A group of the consumer protocol. A coordinator that does not speak it has none.
    async fn try_describe_modern(
        &self,
        group: &str,
        broker: BrokerId,
        connection: &Connection,
        attempt: Attempt,
    ) -> Result<GroupDescription, Error> {
        let none =
            || GroupDescription { state: DEAD.to_owned(), assignor: String::new(), members: Vec::new() };
        let Some(version) = connection.version(ApiKey::ConsumerGroupDescribe) else { return Ok(none()) };
        let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group_id(group)]);
        let answer = connection.call_version(&request, version, attempt.timeout).await?;
        let doing = format!("ConsumerGroupDescribe to {}", connection.peer());
        let row = only(answer.groups, &doing)?;
        let code = ErrorCode(row.error_code);
        if [ErrorCode::GROUP_ID_NOT_FOUND, ErrorCode::UNSUPPORTED_VERSION].contains(&code) {
            return Ok(none());
        }
        self.coordinated(group, broker, verdict(row.error_code, row.error_message.as_ref(), doing))?;
        let members = row.members.into_iter().map(|member| GroupMember {
            member_id: member.member_id.to_string(),
            instance_id: member.instance_id.map(|id| id.to_string()),
            client_id: member.client_id.to_string(),
            partitions: partitions_of(&member.assignment),
        });
        Ok(GroupDescription {
            state: row.group_state.to_string(),
            assignor: row.assignor_name.to_string(),
            members: members.collect(),
        })
    }

    async fn try_delete_group(&self, group: &str, attempt: Attempt) -> Result<(), Error> {
        let (broker, connection) = self.coordinator(group).await?;
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id(group)]);
        let answer = connection.call(&request, attempt.timeout).await?;
        let doing = format!("DeleteGroups to {}", connection.peer());
        let row = only(answer.results, &doing)?;
        match self.coordinated(group, broker, verdict(row.error_code, None, doing)) {
            Err(error) if attempt.unclear && error.code() == Some(ErrorCode::GROUP_ID_NOT_FOUND) => Ok(()),
            verdict => verdict,
        }
    }

    async fn try_group_offsets(
        &self,
        group: &str,
        topic: &str,
        deadline: Instant,
        attempt: Attempt,
    ) -> Result<BTreeMap<i32, CommittedOffset>, Error> {
        let partitions = self.cluster.topic(topic, deadline).await?.partitions.len();
        let partitions: Vec<i32> = (0..i32::try_from(partitions).unwrap_or(i32::MAX)).collect();
        let (broker, connection) = self.coordinator(group).await?;
        let version = connection.require(ApiKey::OffsetFetch)?;
        let doing = format!("OffsetFetch to {}", connection.peer());
        let request = OffsetFetchRequest::default();
        let request = if version >= OFFSETS_OF_GROUPS {
            let topics = OffsetFetchRequestTopics::default().with_name(topic_name(topic));
            let topics = vec![topics.with_partition_indexes(partitions)];
            let asked = OffsetFetchRequestGroup::default().with_group_id(group_id(group));
            request.with_groups(vec![asked.with_topics(Some(topics))])
        } else {
            let topics = OffsetFetchRequestTopic::default().with_name(topic_name(topic));
            let topics = vec![topics.with_partition_indexes(partitions)];
            request.with_group_id(group_id(group)).with_topics(Some(topics))
        };
        let answer = connection.call_version(&request, version, attempt.timeout).await?;
        let mut rows = Vec::new();
        if version >= OFFSETS_OF_GROUPS {
            let row = only(answer.groups, &doing)?;
            self.coordinated(group, broker, verdict(row.error_code, None, doing.clone()))?;
            for one in row.topics {
                rows.extend(one.partitions.into_iter().map(|row| {
                    let at = (row.partition_index, row.committed_offset, row.committed_leader_epoch);
                    (row.error_code, at, row.metadata)
                }));
            }
        } else {
            self.coordinated(group, broker, verdict(answer.error_code, None, doing.clone()))?;
            for one in answer.topics {
                rows.extend(one.partitions.into_iter().map(|row| {
                    let at = (row.partition_index, row.committed_offset, row.committed_leader_epoch);
                    (row.error_code, at, row.metadata)
                }));
            }
        }
        let mut found = BTreeMap::new();
        for (code, (partition, offset, epoch), metadata) in rows {
            let doing = format!("{doing} about {topic}-{partition}");
            self.coordinated(group, broker, verdict(code, None, doing))?;
            if offset >= 0 {
                let leader_epoch = (epoch >= 0).then_some(epoch);
                let metadata = metadata.map(|text| text.to_string()).unwrap_or_default();
                found.insert(partition, CommittedOffset { offset, leader_epoch, metadata });
            }
        }
        Ok(found)
    }

    async fn try_set_offsets(
        &self,
        group: &str,
        topic: &str,
        offsets: &BTreeMap<i32, CommittedOffset>,
        attempt: Attempt,
    ) -> Result<(), Error> {
        let (broker, connection) = self.coordinator(group).await?;
        let partitions = offsets.iter().map(|(partition, to)| {
            OffsetCommitRequestPartition::default()
                .with_partition_index(*partition)
                .with_committed_offset(to.offset)
                .with_committed_leader_epoch(to.leader_epoch.unwrap_or(-1))
                .with_committed_metadata(Some(text(&to.metadata)))
        });
        let topics = OffsetCommitRequestTopic::default().with_name(topic_name(topic));
        let request = OffsetCommitRequest::default()
            .with_group_id(group_id(group))
            .with_topics(vec![topics.with_partitions(partitions.collect())]);
        let answer = connection.call(&request, attempt.timeout).await?;
        for row in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            let partition = row.partition_index;
            let doing = format!("OffsetCommit of {topic}-{partition} to {}", connection.peer());
            self.coordinated(group, broker, verdict(row.error_code, None, doing))?;
        }
        Ok(())
    }

    async fn coordinator(&self, group: &str) -> Result<(BrokerId, Connection), Error> {
        let broker = self.cluster.coordinator(group).await?;
        match self.cluster.short(broker).await {
            Ok(connection) => Ok((broker, connection)),
            Err(error) => {
                self.cluster.forget_coordinator(group, broker);
                Err(error)
            }
        }
    }

    /// Finds the coordinator again when it has moved. An outsider cannot rejoin, so what asks for that is final.
    fn coordinated(&self, group: &str, broker: BrokerId, verdict: Result<(), Error>) -> Result<(), Error> {
        verdict.map_err(|error| match error.disposition() {
            Disposition::FindCoordinator => {
                self.cluster.forget_coordinator(group, broker);
                error
            }
            Disposition::Rejoin if matches!(error.kind(), ErrorKind::Broker(..)) => error.final_answer(),
            _ => error,
        })
    }
}

/// Sorted, as those of a classic member are.
fn partitions_of(assignment: &Assignment) -> Vec<TopicPartition> {
    let topics =
        assignment.topic_partitions.iter().map(|topic| (topic_of(&topic.topic_name), &topic.partitions));
    let mut all: Vec<TopicPartition> = topics
        .flat_map(|(topic, partitions)| {
            partitions
                .iter()
                .map(move |partition| TopicPartition { topic: topic.clone(), partition: *partition })
        })
        .collect();
    all.sort_unstable();
    all
}

fn group_id(group: &str) -> GroupId {
    text(group).into()
}
