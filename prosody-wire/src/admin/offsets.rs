//! Where do a topic's partitions begin and end? ListOffsets, sent to each leader.

use std::collections::BTreeMap;

use prosody_base::Instant;

use super::Admin;
use crate::cluster::Attempt;
use crate::error::Error;
use crate::proto::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use crate::proto::messages::{BrokerId as MessageBrokerId, ListOffsetsRequest};
use crate::proto::{ErrorCode, topic_name};
use crate::types::{BrokerId, Offset};

/// Which offset of a partition is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetAt {
    /// The first one still there.
    Earliest,
    /// The one the next record will have.
    Latest,
    /// The first with this timestamp (milliseconds since the epoch) or a later one; the end when there is none.
    Timestamp(i64),
}

impl Admin {
    /// Offsets of all partitions of a topic, by partition.
    ///
    /// # Errors
    /// What a broker answered, or at `deadline` the last cause.
    pub async fn offsets(
        &self,
        topic: &str,
        at: OffsetAt,
        deadline: Instant,
    ) -> Result<BTreeMap<i32, Offset>, Error> {
        let doing = format!("listing offsets of topic {topic}");
        self.cluster
            .attempts(&doing, deadline, |attempt| self.try_offsets(topic, at, deadline, attempt))
            .await
    }

    async fn try_offsets(
        &self,
        topic: &str,
        at: OffsetAt,
        deadline: Instant,
        attempt: Attempt,
    ) -> Result<BTreeMap<i32, Offset>, Error> {
        let known = self.cluster.topic(topic, deadline).await?;
        let mut by_leader: BTreeMap<BrokerId, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for partition in &known.partitions {
            let leader = partition.leader.ok_or_else(|| {
                let doing = format!("partition {} of topic {topic}", partition.partition);
                Error::broker(doing, ErrorCode::LEADER_NOT_AVAILABLE)
            })?;
            let asked = ListOffsetsPartition::default()
                .with_partition_index(partition.partition)
                .with_current_leader_epoch(partition.leader_epoch)
                .with_timestamp(match at {
                    OffsetAt::Latest => -1,
                    OffsetAt::Earliest => -2,
                    OffsetAt::Timestamp(timestamp) => timestamp.max(0),
                });
            by_leader.entry(leader).or_default().push(asked);
        }
        let mut offsets = BTreeMap::new();
        for (leader, partitions) in by_leader {
            let connection = self.cluster.short(leader).await?;
            let asked = ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(partitions);
            let request =
                ListOffsetsRequest::default().with_replica_id(MessageBrokerId(-1)).with_topics(vec![asked]);
            let answer = connection.call(&request, attempt.timeout).await?;
            for row in answer.topics.iter().flat_map(|topic| &topic.partitions) {
                ErrorCode::check(row.error_code).map_err(|code| {
                    let partition = row.partition_index;
                    Error::broker(
                        format!("ListOffsets of {topic}-{partition} to {}", connection.peer()),
                        code,
                    )
                })?;
                offsets.insert(row.partition_index, row.offset);
            }
        }
        // A timestamp after the last record has no offset: −1 on the wire, the end of the partition for the caller.
        if matches!(at, OffsetAt::Timestamp(_)) && offsets.values().any(|offset| *offset < 0) {
            let ends = Box::pin(self.try_offsets(topic, OffsetAt::Latest, deadline, attempt)).await?;
            for (partition, offset) in offsets.iter_mut().filter(|(_, offset)| **offset < 0) {
                *offset = ends.get(partition).copied().unwrap_or(*offset);
            }
        }
        Ok(offsets)
    }
}
