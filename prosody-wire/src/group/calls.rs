//! What can a member ask of its coordinator, what comes back, and what else does it want done? In both protocols.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use prosody_base::Instant;

use super::classic::Assignor;
use super::event::CommittedOffset;
use super::outbox::Notice;
use crate::error::Error;
use crate::types::{Topic, TopicId, TopicPartition};

/// Partitions of topics that are named by their ids.
pub(crate) type Places = BTreeMap<TopicId, Vec<i32>>;

/// Names one request of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId(pub(super) u64);

/// A request to the coordinator.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Join {
        member_id: String,
        metadata: Bytes,
        /// How long to wait before it is asked again over another connection.
        patience: Duration,
    },
    Sync {
        member_id: String,
        generation: i32,
        protocol: Assignor,
        assignments: Vec<(String, Bytes)>,
        /// The same, for who waits for the leader.
        patience: Duration,
    },
    Heartbeat {
        member_id: String,
        generation: i32,
    },
    Leave {
        member_id: String,
    },
    /// As this member in this epoch; classic members say nothing of themselves.
    Offsets {
        partitions: Vec<TopicPartition>,
        member: Option<(String, i32)>,
    },
    Beat(Beat),
    /// How long the group's own settings let a member be silent.
    SessionTimeout,
}

/// A heartbeat of the new protocol (KIP-848).
#[derive(Clone, Debug)]
pub(crate) struct Beat {
    pub(crate) member_id: String,
    /// 0 to join, −1 to leave, −2 to leave and be back.
    pub(crate) epoch: i32,
    /// To repeat everything (times, rack): what we subscribe to.
    pub(crate) full: Option<Wanted>,
    /// What we hold; `None` when that is what the last answered one said.
    pub(crate) owned: Option<Places>,
    /// How long its answer is worth waiting for.
    pub(crate) patience: Duration,
}

/// What a member subscribes to.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) topics: Vec<Topic>,
    /// For the coordinator to match.
    pub(crate) regex: Option<String>,
}

/// What the group committed for each partition, or why that is not known.
pub(crate) type Offsets = Vec<(TopicPartition, Result<Option<CommittedOffset>, Error>)>;

/// What came back, when no error did.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// MEMBER_ID_REQUIRED: join again as this member (KIP-394).
    MemberId(String),
    Joined(Joined),
    Synced(Bytes),
    Heartbeat,
    Left,
    Offsets(Offsets),
    Beaten(Beaten),
    /// `None` when the broker does not say.
    SessionTimeout(Option<Duration>),
}

/// A ConsumerGroupHeartbeat response.
#[derive(Clone, Debug)]
pub(crate) struct Beaten {
    pub(crate) epoch: i32,
    /// How long to wait until the next one.
    pub(crate) interval: Duration,
    /// What we may hold, when the coordinator says so.
    pub(crate) assignment: Option<Places>,
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
    /// Find the coordinator and say so with [`Membership::found`].
    Find,
    /// The coordinator found last is not it.
    Forget,
    /// Send this; say what came back with [`Membership::answered`].
    Send { id: CallId, call: Call },
    /// Find out how many partitions these topics have; then [`Membership::metadata`] and [`Membership::resolved`].
    Resolve(Vec<Topic>),
    /// Ask for fresh metadata, also of these topics: the coordinator knows topics that we do not.
    Refresh(Vec<TopicId>),
    /// Find out which topics there are; then [`Membership::metadata`] and [`Membership::looked`].
    Look,
    /// The group does not take members of this protocol: be one of the other, from this time on.
    Switch(Instant),
    /// Tell the reader.
    Tell(Notice),
}

/// Who we are to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) member_id: String,
    /// The generation, or the member's own epoch.
    pub(crate) generation: i32,
    /// Which finding of the coordinator this was sent to: a late failure must not forget a newer one.
    pub(crate) finding: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coordinator {
    Unknown(Instant),
    Finding,
    Known,
}

#[derive(Debug)]
pub(crate) enum Asked {
    Join,
    Sync,
    Heartbeat,
    Leave,
    /// The freshness number of [`Holdings::fetching`].
    Offsets(u64),
    /// What we said we hold, if we said it.
    Beat(Option<Places>),
    SessionTimeout,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(super) asked: Asked,
    pub(super) sent: Instant,
    pub(super) identity: Identity,
}
