//! What does a member hear from its group, and what must it answer?

use std::sync::Arc;

use prosody_base::Instant;

use super::shared::Shared;
use crate::error::Error;
use crate::types::{LeaderEpoch, Offset, TopicPartition};

/// Counts the assignments of one [`Group`](super::Group). A later assignment has a higher number.
///
/// A commit carries one. It proves that the committer knew of the assignment that gave it the partition: a partition
/// that was lost and given back has a later number, and an acknowledgement that belongs to the time before is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssignmentEpoch(pub(crate) u64);

/// Something the group decided. Delivered in order; what was decided and undone before it was read is left out.
#[derive(Debug)]
pub enum GroupEvent {
    /// These partitions are ours from now on, besides the ones we have.
    Assigned {
        /// Goes with every commit of these partitions.
        epoch: AssignmentEpoch,
        /// Each with what the group committed for it.
        partitions: Vec<AssignedPartition>,
    },
    /// These partitions go to somebody else: finish or drop what runs, commit, then acknowledge. Commits are possible
    /// until the acknowledgement, heartbeats go on meanwhile. At the deadline the partitions are given up anyway.
    Revoke {
        /// The partitions.
        partitions: Vec<TopicPartition>,
        /// When they are given up without an acknowledgement.
        deadline: Instant,
        /// To be called when drained and committed.
        done: RevokeAck,
    },
    /// These partitions are somebody else's already (fenced, or no heartbeat for the session timeout): stop at once,
    /// nothing can be committed. The member joins again by itself.
    Lost {
        /// The partitions.
        partitions: Vec<TopicPartition>,
        /// What happened.
        why: Error,
    },
    /// Something a person should know: not allowed, inconsistent protocols, an unreadable assignment. The member keeps
    /// trying, except after FENCED_INSTANCE_ID: then another process runs with our instance id and this member is over.
    Failed(Error),
}

/// One partition of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedPartition {
    /// The partition.
    pub tp: TopicPartition,
    /// Where the group stands; `None` only when the broker says that nothing was ever committed.
    pub committed: Option<CommittedOffset>,
}

/// A committed position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next record to read.
    pub offset: Offset,
    /// The leader epoch of the record before it; `None` when the committer did not say (KIP-320).
    pub leader_epoch: Option<LeaderEpoch>,
    /// Whatever the committer attached; empty when nothing. Any text: other programs commit to groups too.
    pub metadata: String,
}

/// Says that a revocation has been carried out. Dropping it says nothing: the partitions are then given up at the
/// deadline.
#[derive(Debug)]
pub struct RevokeAck {
    pub(crate) ticket: u64,
    pub(crate) shared: Arc<Shared>,
}

impl RevokeAck {
    /// The partitions are drained and what could be committed is committed.
    pub fn done(self) {
        self.shared.acknowledge(self.ticket);
    }
}
