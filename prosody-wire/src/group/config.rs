//! What does a member of a group need to know before it joins? Times, names, and the bounds of each.

use std::time::Duration;

use super::classic::Assignor;
use super::pattern::TopicPattern;
use crate::types::Topic;

/// Which protocol a member speaks with its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupProtocol {
    /// The consumer protocol where the broker serves it and the group has no classic members; the classic one elsewhere.
    #[default]
    Auto,
    /// JoinGroup, SyncGroup and Heartbeat: members divide the partitions among themselves.
    Classic,
    /// ConsumerGroupHeartbeat (KIP-848, Kafka 4.0): the coordinator divides. Where that is not possible the member does
    /// not join, and [`GroupEvent::Failed`](super::GroupEvent::Failed) says why.
    Consumer,
}

/// How to be a member of a consumer group.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// The group's name (`group.id`).
    pub group_id: String,
    /// Topics to read. Order and duplicates do not matter. A topic that does not exist yet is picked up when it does.
    pub topics: Vec<Topic>,
    /// Topics to read by pattern, in addition. Topics that appear later are read when metadata shows them (at the latest
    /// [`Limits::metadata_age`](crate::Limits::metadata_age) later), deleted ones leave. Groups of the consumer protocol
    /// have their coordinator match where it can (KIP-848). Default: none.
    pub patterns: Vec<TopicPattern>,
    /// Which protocol to speak. Default: [`GroupProtocol::Auto`].
    pub protocol: GroupProtocol,
    /// The broker gives the partitions away after this long without a heartbeat, and so do we: counted from the *send*
    /// of the last answered heartbeat. Brokers accept 6 s to 30 min by default. Default 45 s.
    /// By the consumer protocol the group's own setting counts (`consumer.session.timeout.ms`), or, where it cannot be
    /// read, three times the broker's heartbeat interval.
    pub session_timeout: Duration,
    /// How long the broker waits for members to rejoin, and how long a revocation may take. Default 60 s.
    pub rebalance_timeout: Duration,
    /// Time between heartbeats; at most a third of the session timeout, a longer one is shortened. Default 3 s.
    /// By the consumer protocol the broker says it.
    pub heartbeat_interval: Duration,
    /// A name that makes this a static member (KIP-345): a restart within the session timeout causes no rebalance,
    /// and [`Group::leave`](super::Group::leave) gives nothing away.
    pub instance_id: Option<String>,
    /// Where this member runs (KIP-881).
    pub client_rack: Option<String>,
    /// Ways to divide partitions that this member offers, best first. The group uses one that all members offer.
    /// With an eager one in the list, every rebalance gives up all partitions first. Default: cooperative-sticky alone.
    /// By the consumer protocol the coordinator divides, and this says nothing.
    pub assignors: Vec<Assignor>,
    /// How long one commit may take with all its retries. Default 30 s.
    pub commit_timeout: Duration,
}

impl GroupConfig {
    /// The defaults, for `group_id` reading `topics`.
    pub fn new(group_id: impl Into<String>, topics: impl IntoIterator<Item = Topic>) -> GroupConfig {
        GroupConfig {
            group_id: group_id.into(),
            topics: topics.into_iter().collect(),
            patterns: Vec::new(),
            protocol: GroupProtocol::Auto,
            session_timeout: Duration::from_secs(45),
            rebalance_timeout: Duration::from_secs(60),
            heartbeat_interval: Duration::from_secs(3),
            instance_id: None,
            client_rack: None,
            assignors: vec![Assignor::CooperativeSticky],
            commit_timeout: Duration::from_secs(30),
        }
    }

    /// The same configuration in the form the machine relies on: topics sorted, each once; a heartbeat that fits the
    /// session; at least one assignor.
    pub(crate) fn checked(mut self) -> GroupConfig {
        self.topics.sort_unstable();
        self.topics.dedup();
        self.session_timeout = self.session_timeout.max(Duration::from_millis(1));
        self.heartbeat_interval = self.heartbeat_interval.min(self.session_timeout / 3);
        if self.assignors.is_empty() {
            self.assignors.push(Assignor::CooperativeSticky);
        }
        self
    }

    /// Whether each rebalance gives up everything first.
    pub(crate) fn is_eager(&self) -> bool {
        self.assignors.iter().any(|assignor| assignor.is_eager())
    }

    /// Longest wait for the answer of a JoinGroup or SyncGroup: a rebalance, and the time for its answer to arrive.
    pub(crate) fn rebalance_wait(&self) -> Duration {
        self.rebalance_timeout + Duration::from_secs(5)
    }

    /// How long a revocation may take: the rebalance timeout, less the time until we notice a rebalance and join it.
    pub(crate) fn drain_time(&self) -> Duration {
        let margin = self.heartbeat_interval + Duration::from_secs(2);
        self.rebalance_timeout.saturating_sub(margin.min(self.rebalance_timeout / 4))
    }
}
