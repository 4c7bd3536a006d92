//! How does a group leader divide partitions among members?
//!
//! `cooperative-sticky` follows Kafka's assignor of that name (KIP-429): members keep what they hold, loads differ by
//! at most one when all subscribe to the same topics, and a partition that another member still claims is given to
//! nobody until that member has given it up. `range` and `roundrobin` are Kafka's eager assignors, for groups that
//! still speak them. All but round-robin prefer members in the rack of a replica (KIP-881). All are deterministic: the same members and partitions give the same answer in any order.

mod eager;
mod racks;
mod sticky;

use std::collections::BTreeMap;

pub(crate) use racks::{RackSet, Racks};

use crate::group::subscription::Subscription;
use crate::types::{Topic, TopicPartition};

/// A way to divide partitions, as the group protocol names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Sticky and incremental: a rebalance touches only the partitions that move.
    CooperativeSticky,
    /// Consecutive partitions of each topic. Eager: every rebalance gives up everything first.
    Range,
    /// Partitions in turn over all topics. Eager.
    RoundRobin,
}

impl Assignor {
    /// The name in JoinGroup.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Assignor::CooperativeSticky => "cooperative-sticky",
            Assignor::Range => "range",
            Assignor::RoundRobin => "roundrobin",
        }
    }

    /// The assignor of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Assignor> {
        [Assignor::CooperativeSticky, Assignor::Range, Assignor::RoundRobin]
            .into_iter()
            .find(|one| one.name() == name)
    }

    /// Whether members give up everything before each rebalance. A member that offers one eager assignor behaves
    /// eagerly whichever is chosen, because it cannot know the choice when it joins.
    #[must_use]
    pub fn is_eager(self) -> bool {
        self != Assignor::CooperativeSticky
    }

    /// Divides the partitions of `counts` (topic → number of partitions) among `members`. The answer has an entry for
    /// every member, its partitions sorted. As in Kafka, all but round-robin prefer members in the rack of a replica,
    /// where balance allows it (KIP-881).
    pub(crate) fn assign(
        self,
        members: &[Member],
        counts: &BTreeMap<Topic, i32>,
        racks: &Racks,
    ) -> Assignments {
        match self {
            Assignor::CooperativeSticky => sticky::cooperative_sticky(members, counts, racks),
            Assignor::Range => eager::range(members, counts, racks),
            Assignor::RoundRobin => eager::round_robin(members, counts),
        }
    }
}

/// A member as the leader sees it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) subscription: Subscription,
}

/// Member id → its partitions.
pub(crate) type Assignments = BTreeMap<String, Vec<TopicPartition>>;

#[cfg(test)]
#[path = "tests/assignors.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/racks.rs"]
mod rack_tests;
