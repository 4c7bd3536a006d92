//! What does the cluster look like, and which of two answers is newer? Pure.
//!
//! Brokers learn of changes at different times, so an answer may be older than the one before it. The rules:
//! - for one topic id a partition's leader epoch never goes back; an older row is ignored as a whole (KIP-320);
//! - a topic with another id is another topic: it starts clean (KIP-516);
//! - a leader of −1 means "none now" and is never stored as a broker;
//! - a topic that is reported missing keeps its epochs aside, in case the report was the stale one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prosody_base::sabotaged;

use crate::error::DecodeError;
use crate::proto::{ErrorCode, messages, topic_of};
use crate::types::{BrokerId, LeaderEpoch, Topic, TopicId};

/// A broker's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokerNode {
    pub(crate) id: BrokerId,
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
    pub(crate) rack: Option<Arc<str>>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionMetadata {
    pub(crate) partition: i32,
    /// `None` while an election runs.
    pub(crate) leader: Option<BrokerId>,
    /// The highest epoch seen; −1 where the broker does not say.
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) replicas: Vec<BrokerId>,
}

/// One topic. `partitions` holds 0, 1, 2, … without gaps, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicMetadata {
    pub(crate) topic: Topic,
    /// `None` before Metadata v10 (Kafka 2.8).
    pub(crate) id: Option<TopicId>,
    pub(crate) partitions: Vec<PartitionMetadata>,
}

impl TopicMetadata {
    pub(crate) fn partition(&self, partition: i32) -> Option<&PartitionMetadata> {
        usize::try_from(partition).ok().and_then(|at| self.partitions.get(at))
    }
}

/// Everything known of a cluster. Replaced as a whole, never changed in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) brokers: BTreeMap<BrokerId, BrokerNode>,
    pub(crate) topics: BTreeMap<Topic, Arc<TopicMetadata>>,
    /// Topics the cluster answered for with an error.
    pub(crate) failed: BTreeMap<Topic, ErrorCode>,
    pub(crate) controller: Option<BrokerId>,
    pub(crate) cluster_id: Option<String>,
    /// What is remembered of topics that were reported missing: their epochs.
    missing: BTreeMap<Topic, Arc<TopicMetadata>>,
}

impl Metadata {
    pub(crate) fn topic(&self, topic: &str) -> Option<&Arc<TopicMetadata>> {
        self.topics.get(topic)
    }

    /// What is known after `answer`.
    ///
    /// # Errors
    /// When the answer names more than `broker_limit` brokers.
    pub(crate) fn merge(
        &self,
        answer: &messages::MetadataResponse,
        broker_limit: usize,
    ) -> Result<Metadata, DecodeError> {
        if answer.brokers.len() > broker_limit {
            let count = answer.brokers.len();
            return Err(DecodeError::Body(format!("{count} brokers are over the limit of {broker_limit}")));
        }
        let mut next = self.clone();
        let brokers: BTreeMap<_, _> = answer
            .brokers
            .iter()
            .filter_map(|broker| node(broker.node_id.0, &broker.host, broker.port, broker.rack.as_deref()))
            .map(|node| (node.id, node))
            .collect();
        // A broker that is just starting may answer with an empty list; that is no reason to forget the others.
        if !brokers.is_empty() {
            next.brokers = brokers;
            next.controller = broker_id(answer.controller_id.0);
        }
        if let Some(id) = &answer.cluster_id {
            next.cluster_id = Some(id.to_string());
        }
        for topic in &answer.topics {
            if let Some(name) = &topic.name {
                next.merge_topic(topic_of(name), topic);
            }
        }
        Ok(next)
    }

    /// Brokers are only found through the bootstrap addresses again (KIP-1102).
    pub(crate) fn without_brokers(&self) -> Metadata {
        Metadata { brokers: BTreeMap::new(), ..self.clone() }
    }

    /// The same, after an answer that names all topics: `there` are. Of those that are not, the known ones and those that
    /// were `asked` for by name are missing.
    pub(crate) fn with_only(mut self, there: &BTreeSet<Topic>, asked: &BTreeSet<Topic>) -> Metadata {
        let gone: Vec<Topic> =
            self.topics.keys().chain(asked).filter(|topic| !there.contains(*topic)).cloned().collect();
        for topic in gone {
            if let Some(known) = self.topics.remove(&topic) {
                self.missing.insert(topic.clone(), known);
            }
            self.failed.insert(topic, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
        self
    }

    fn merge_topic(&mut self, name: Topic, answer: &messages::metadata_response::MetadataResponseTopic) {
        let code = ErrorCode(answer.error_code);
        // A topic whose partitions have no leader yet is there all the same.
        if code != ErrorCode::NONE && code != ErrorCode::LEADER_NOT_AVAILABLE {
            if let Some(known) = self.topics.remove(&name) {
                self.missing.insert(name.clone(), known);
            }
            self.failed.insert(name, code);
            return;
        }
        self.failed.remove(&name);
        let id = TopicId::known(*answer.topic_id.as_bytes());
        let was_missing = self.missing.remove(&name);
        let before = match self.topics.get(&name) {
            Some(known) => Some(Arc::clone(known)),
            // Without ids nothing tells a topic that came back from one that was created anew.
            None => was_missing.filter(|_| id.is_some()),
        };
        let before = before.filter(|known| known.id == id || known.id.is_none() || id.is_none());
        let mut rows: BTreeMap<i32, PartitionMetadata> = before
            .iter()
            .flat_map(|known| known.partitions.iter().cloned())
            .map(|partition| (partition.partition, partition))
            .collect();
        for partition in &answer.partitions {
            let row = PartitionMetadata {
                partition: partition.partition_index,
                leader: broker_id(partition.leader_id.0),
                leader_epoch: partition.leader_epoch,
                replicas: partition.replica_nodes.iter().filter_map(|id| broker_id(id.0)).collect(),
            };
            match rows.get(&row.partition) {
                Some(known) if is_older(row.leader_epoch, known.leader_epoch) => {}
                _ => {
                    rows.insert(row.partition, row);
                }
            }
        }
        let partitions = rows.into_values().zip(0..).take_while(|(row, at)| row.partition == *at);
        let partitions: Vec<PartitionMetadata> = partitions.map(|(row, _)| row).collect();
        if partitions.is_empty() {
            // It is just being created; brokers before Kafka 2.8 say so with LEADER_NOT_AVAILABLE.
            self.topics.remove(&name);
            self.failed.insert(name, ErrorCode::LEADER_NOT_AVAILABLE);
            return;
        }
        let topic = TopicMetadata { topic: name.clone(), id, partitions };
        if self.topics.get(&name).is_none_or(|known| **known != topic) {
            self.topics.insert(name, Arc::new(topic));
        }
    }

    /// A leader that another answer hinted at (KIP-951). `None` when it is no news.
    pub(crate) fn with_leader(
        &self,
        topic: &str,
        partition: i32,
        leader: BrokerId,
        epoch: LeaderEpoch,
    ) -> Option<Metadata> {
        let known = self.topic(topic)?;
        let row = known.partition(partition)?;
        if epoch <= row.leader_epoch || !self.brokers.contains_key(&leader) {
            return None;
        }
        let mut changed = TopicMetadata::clone(known);
        let row = changed.partitions.iter_mut().find(|row| row.partition == partition)?;
        row.leader = Some(leader);
        row.leader_epoch = epoch;
        let mut next = self.clone();
        next.topics.insert(changed.topic.clone(), Arc::new(changed));
        Some(next)
    }

    /// A broker's address from another answer. `None` when it is no news.
    pub(crate) fn with_node(&self, node: BrokerNode, broker_limit: usize) -> Option<Metadata> {
        match self.brokers.get(&node.id) {
            Some(known) if known.host == node.host && known.port == node.port => None,
            None if self.brokers.len() >= broker_limit => None,
            known => {
                let rack = node.rack.clone().or_else(|| known.and_then(|known| known.rack.clone()));
                let mut next = self.clone();
                next.brokers.insert(node.id, BrokerNode { rack, ..node });
                Some(next)
            }
        }
    }
}

/// Whether a row with epoch `new` was written before one with epoch `known`.
fn is_older(new: LeaderEpoch, known: LeaderEpoch) -> bool {
    new >= 0 && new < known && !sabotaged("leader-epoch-forward")
}

fn broker_id(id: i32) -> Option<BrokerId> {
    (id >= 0).then_some(BrokerId(id))
}

/// A broker's address; `None` when the id is negative or the port no port.
pub(crate) fn node(id: i32, host: &str, port: i32, rack: Option<&str>) -> Option<BrokerNode> {
    Some(BrokerNode {
        id: broker_id(id)?,
        host: Arc::from(host),
        port: u16::try_from(port).ok()?,
        rack: rack.map(Arc::from),
    })
}
