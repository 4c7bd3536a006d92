//! What is known of the topics records go to? Their partitions and leaders, and what waits until they are known. Pure.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Accumulator, PartitionQueue, TopicState};
use crate::error::Error;
use crate::produce::completion::SendError;
use crate::produce::record::OwnedRecord;
use crate::types::{BrokerId, Topic};

impl Accumulator {
    /// Metadata answered: the topic has these partitions, led by these brokers. Records that waited for it find their
    /// batches.
    pub(crate) fn topic_known(
        &mut self,
        topic: &Topic,
        leaders: impl ExactSizeIterator<Item = Option<BrokerId>>,
    ) {
        let pending = self.grow(topic, leaders.len());
        // Before the records: those without a key look for a partition that has a leader.
        self.leaders(topic, leaders);
        for record in pending {
            self.used -= record.size;
            self.admit(record);
        }
    }

    /// The topic has so many partitions; makes queues for new ones. Returns what waited for the topic.
    fn grow(&mut self, topic: &Topic, count: usize) -> VecDeque<OwnedRecord> {
        let pending = match self.topics.get_mut(topic) {
            None => return VecDeque::new(),
            Some(TopicState::Unknown { pending, .. }) => std::mem::take(pending),
            Some(TopicState::Known { queues, count: known, sticky }) if queues.len() >= count => {
                if *known != count {
                    (*known, *sticky) = (count, None);
                }
                return VecDeque::new();
            }
            Some(TopicState::Known { .. }) => VecDeque::new(),
        };
        let mut grown = match self.topics.remove(topic) {
            Some(TopicState::Known { queues, .. }) => queues,
            _ => Vec::new(),
        };
        for partition in grown.len()..count {
            grown.push(self.partitions.len());
            let partition = i32::try_from(partition).unwrap_or(i32::MAX);
            let mut queue = PartitionQueue::new(Arc::clone(topic), partition);
            if let Some(identity) = self.identity {
                queue.sequencer.adopt(identity);
            }
            self.partitions.push(queue);
        }
        let known = TopicState::Known { queues: grown, count, sticky: None };
        self.topics.insert(Arc::clone(topic), known);
        self.unknown.remove(topic);
        pending
    }

    /// The topic cannot be written to: what waited for it fails, and later records ask again.
    pub(crate) fn topic_refused(&mut self, topic: &Topic, error: &Error) {
        if matches!(self.topics.get(topic), Some(TopicState::Unknown { .. }))
            && let Some(TopicState::Unknown { pending, .. }) = self.topics.remove(topic)
        {
            self.unknown.remove(topic);
            for record in pending {
                self.used -= record.size;
                record.slot.fail(SendError::not_written(error.clone()));
            }
            self.admit_waiting();
        }
    }

    /// Remembers why a topic is still not known.
    pub(crate) fn topic_late(&mut self, topic: &Topic, error: Error) {
        if let Some(TopicState::Unknown { last_error, .. }) = self.topics.get_mut(topic) {
            *last_error = Some(error);
        }
    }

    /// Sets the leaders of a topic's partitions, in partition order. Those behind them have none.
    pub(crate) fn leaders(&mut self, topic: &Topic, leaders: impl Iterator<Item = Option<BrokerId>>) {
        if let Some(TopicState::Known { queues, .. }) = self.topics.get(topic) {
            for (place, leader) in queues.iter().zip(leaders.chain(std::iter::repeat(None))) {
                if let Some(queue) = self.partitions.get_mut(*place)
                    && queue.leader != leader
                {
                    queue.leader = leader;
                    // A new leader owes no wait for what the old one said.
                    queue.retry_at = None;
                }
            }
        }
    }

    /// Topics with queues.
    pub(crate) fn known_topics(&self) -> BTreeSet<Topic> {
        self.partitions.iter().map(|queue| Arc::clone(&queue.topic)).collect()
    }
}
