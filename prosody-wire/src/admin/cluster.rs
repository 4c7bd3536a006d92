//! Which brokers and topics does the cluster have, and how are old records dropped?

use std::collections::BTreeMap;

use prosody_base::Instant;

use super::Admin;
use super::topics::{only, verdict};
use crate::cluster::Attempt;
use crate::error::Error;
use crate::proto::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use crate::proto::messages::{DeleteRecordsRequest, DescribeClusterRequest, MetadataRequest};
use crate::proto::{ErrorCode, topic_name, topic_of};
use crate::types::{BrokerId, Offset};

/// The cluster as one of its brokers describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDescription {
    /// The cluster's id.
    pub cluster_id: String,
    /// Who takes administrative calls; `None` while there is nobody. KRaft names any broker.
    pub controller: Option<BrokerId>,
    /// `host:port` of every broker.
    pub brokers: BTreeMap<BrokerId, String>,
}

impl Admin {
    /// Describes the cluster (KIP-700; Kafka 2.8 and later).
    ///
    /// # Errors
    /// What the broker answered, `Unsupported` from an older one, or at `deadline` the last cause.
    pub async fn describe_cluster(&self, deadline: Instant) -> Result<ClusterDescription, Error> {
        self.cluster.attempts("describing the cluster", deadline, |attempt| self.try_cluster(attempt)).await
    }

    /// Names of all topics this client may see, with the number of their partitions; internal ones are left out.
    ///
    /// # Errors
    /// What went wrong last, at `deadline`.
    pub async fn list_topics(&self, deadline: Instant) -> Result<BTreeMap<String, usize>, Error> {
        self.cluster.attempts("listing topics", deadline, |attempt| self.try_topics(attempt)).await
    }

    /// Deletes the records of a partition before an offset, −1 for all of them, and says where it begins now.
    ///
    /// # Errors
    /// What the leader answered (OFFSET_OUT_OF_RANGE beyond the end, POLICY_VIOLATION for a compacted topic, …), or at
    /// `deadline` the last cause.
    pub async fn delete_records(
        &self,
        topic: &str,
        partition: i32,
        before: Offset,
        deadline: Instant,
    ) -> Result<Offset, Error> {
        let doing = format!("deleting the records of {topic}-{partition} before offset {before}");
        self.cluster
            .attempts(&doing, deadline, |attempt| {
                self.try_delete_records(topic, partition, before, deadline, attempt)
            })
            .await
    }

    async fn try_cluster(&self, attempt: Attempt) -> Result<ClusterDescription, Error> {
        let connection = self.cluster.any().await?;
        let answer = connection.call(&DescribeClusterRequest::default(), attempt.timeout).await?;
        let doing = format!("DescribeCluster to {}", connection.peer());
        verdict(answer.error_code, answer.error_message.as_ref(), doing)?;
        let brokers = answer.brokers.iter();
        let brokers = brokers.map(|row| (BrokerId(row.broker_id.0), format!("{}:{}", row.host, row.port)));
        Ok(ClusterDescription {
            cluster_id: answer.cluster_id.to_string(),
            controller: (answer.controller_id.0 >= 0).then_some(BrokerId(answer.controller_id.0)),
            brokers: brokers.collect(),
        })
    }

    async fn try_topics(&self, attempt: Attempt) -> Result<BTreeMap<String, usize>, Error> {
        let connection = self.cluster.any().await?;
        let request = MetadataRequest::default().with_topics(None).with_allow_auto_topic_creation(false);
        let answer = connection.call(&request, attempt.timeout).await?;
        let named = answer.topics.iter().filter(|topic| !topic.is_internal);
        let named = named.filter_map(|topic| Some((topic_of(topic.name.as_ref()?), topic.partitions.len())));
        Ok(named.map(|(name, partitions)| (name.to_string(), partitions)).collect())
    }

    async fn try_delete_records(
        &self,
        topic: &str,
        partition: i32,
        before: Offset,
        deadline: Instant,
        attempt: Attempt,
    ) -> Result<Offset, Error> {
        let known = self.cluster.topic(topic, deadline).await?;
        let place = || format!("partition {partition} of topic {topic}");
        let found = known.partitions.iter().find(|known| known.partition == partition);
        let found = found
            .ok_or_else(|| Error::broker(place(), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION).final_answer())?;
        let leader = found.leader.ok_or_else(|| Error::broker(place(), ErrorCode::LEADER_NOT_AVAILABLE))?;
        let connection = self.cluster.short(leader).await?;
        let row = DeleteRecordsPartition::default().with_partition_index(partition).with_offset(before);
        let row = DeleteRecordsTopic::default().with_name(topic_name(topic)).with_partitions(vec![row]);
        let request =
            DeleteRecordsRequest::default().with_topics(vec![row]).with_timeout_ms(attempt.timeout_ms());
        let answer = connection.call(&request, attempt.timeout).await?;
        let doing = format!("DeleteRecords to {}", connection.peer());
        let row = only(only(answer.topics, &doing)?.partitions, &doing)?;
        verdict(row.error_code, None, doing)?;
        Ok(row.low_watermark)
    }
}
