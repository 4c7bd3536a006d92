//! What are the nouns of Kafka called here? Newtypes and small enums every folder shares.

use std::fmt;
use std::sync::Arc;

/// A topic's name. Shared, because every record, partition and error names it.
pub type Topic = Arc<str>;

/// A position in a partition's log. −1 means "none" only on the wire; here it is an `Option`.
pub type Offset = i64;

/// How often a partition's leadership changed (KIP-320). −1: not known.
pub type LeaderEpoch = i32;

/// A broker's node id. Never negative: −1 on the wire becomes `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerId(pub i32);

impl fmt::Display for BrokerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One partition of one topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Topic,
    /// The partition's number, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// Partition `partition` of `topic`.
    pub fn new(topic: impl Into<Topic>, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition }
    }
}

/// `topic-3`, as Kafka's own logs write it.
impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// The id that tells a topic from a later one of the same name (KIP-516).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// The id of these bytes; `None` for the all-zero id, which means "not known" on the wire.
    #[must_use]
    pub fn known(bytes: [u8; 16]) -> Option<TopicId> {
        (bytes != [0; 16]).then_some(TopicId(bytes))
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Which records of transactions a reader sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsolationLevel {
    /// All records, also those of aborted and open transactions.
    ReadUncommitted,
    /// Only records outside transactions and of committed ones.
    #[default]
    ReadCommitted,
}
