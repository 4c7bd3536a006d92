//! What can a member ask of its coordinator, what comes back, and what else does it want done?

use bytes::Bytes;
use prosody_base::Instant;

use super::assignors::{Assignor, Member};
use crate::error::Error;
use crate::group::event::CommittedOffset;
use crate::group::outbox::Notice;
use crate::types::{Topic, TopicPartition};

/// Names one request of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId(pub(super) u64);

/// A request to the coordinator.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Join { member_id: String, metadata: Bytes },
    Sync { member_id: String, generation: i32, protocol: Assignor, assignments: Vec<(String, Bytes)> },
    Heartbeat { member_id: String, generation: i32 },
    Leave { member_id: String },
    Offsets { partitions: Vec<TopicPartition> },
}

/// What came back, when no error did.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// MEMBER_ID_REQUIRED: join again as this member (KIP-394).
    MemberId(String),
    Joined(Joined),
    Synced(Bytes),
    Heartbeat,
    Left,
    Offsets(Vec<(TopicPartition, Result<Option<CommittedOffset>, Error>)>),
}

/// A JoinGroup response.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) generation: i32,
    pub(crate) protocol: String,
    pub(crate) leader: String,
    pub(crate) member_id: String,
    /// The group keeps its assignment although a static leader came back (KIP-814).
    pub(crate) skip_assignment: bool,
    /// Id, instance id and subscription of each member; only the leader gets them.
    pub(crate) members: Vec<(String, Option<String>, Bytes)>,
}

/// What the machine wants done.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Find the coordinator and say so with [`Machine::found`].
    Find,
    /// The coordinator found last is not it.
    Forget,
    /// Send this; say what came back with [`Machine::answered`].
    Send { id: CallId, call: Call },
    /// Find out how many partitions these topics have; then [`Machine::metadata`] and [`Machine::resolved`].
    Resolve(Vec<Topic>),
    /// Tell the reader.
    Tell(Notice),
}

/// Who we are to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) member_id: String,
    pub(crate) generation: i32,
    /// Which finding of the coordinator this was sent to: a late failure must not forget a newer one.
    pub(crate) finding: u64,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Not joining yet, for this long.
    Out(Instant),
    Joining,
    /// We divide, once the partition counts are known or this time has come.
    Leading {
        until: Instant,
        protocol: Assignor,
        members: Vec<Member>,
    },
    /// The shares to send, until they are sent.
    Syncing(Option<(Assignor, Vec<(String, Bytes)>)>),
    Stable,
    Leaving,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coordinator {
    Unknown(Instant),
    Finding,
    Known,
}

#[derive(Debug)]
pub(super) enum Asked {
    Join,
    Sync,
    Heartbeat,
    Leave,
    /// The freshness number of [`Holdings::fetching`].
    Offsets(u64),
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) asked: Asked,
    pub(super) sent: Instant,
    pub(super) identity: Identity,
}
