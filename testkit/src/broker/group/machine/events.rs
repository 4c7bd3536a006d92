//! What goes into a group's machine, and what comes out?

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

/// Names a JoinGroup or SyncGroup that is not answered yet.
pub type Token = u64;

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No members.
    Empty,
    /// Members are asked to join.
    PreparingRebalance,
    /// Joined; the leader computes the assignment.
    CompletingRebalance,
    /// Everyone has an assignment.
    Stable,
}

impl State {
    /// The protocol's name of the state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::PreparingRebalance => "PreparingRebalance",
            State::CompletingRebalance => "CompletingRebalance",
            State::Stable => "Stable",
        }
    }
}

/// A JoinGroup.
#[derive(Clone, Debug)]
pub struct Join {
    /// Answered under this name.
    pub token: Token,
    /// Empty for a member that has no id yet.
    pub member_id: String,
    /// The id to give to a member that has none.
    pub new_id: String,
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// For descriptions.
    pub client_id: String,
    /// For descriptions.
    pub client_host: String,
    /// Without a heartbeat for this long a member is removed.
    pub session_timeout: Duration,
    /// A rebalance waits this long for the member.
    pub rebalance_timeout: Duration,
    /// `consumer`, for consumers.
    pub protocol_type: String,
    /// Assignors by preference, with the member's metadata for each.
    pub protocols: Vec<(String, Bytes)>,
    /// Whether a member without an id must come again with the one it is given (version 4 and later).
    pub needs_id: bool,
    /// Whether the answer can say that no assignment is wanted of a leader (version 9 and later).
    pub can_skip: bool,
}

/// The answer to a JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// 0 when joined.
    pub error: i16,
    /// −1 with an error.
    pub generation: i32,
    /// Chosen assignor.
    pub protocol: Option<String>,
    /// Member id of the leader.
    pub leader: String,
    /// The member's own id.
    pub member_id: String,
    /// Every member, for the leader only: id, instance, metadata.
    pub members: Vec<(String, Option<String>, Bytes)>,
    /// The leader need not compute an assignment.
    pub skip_assignment: bool,
}

/// A SyncGroup.
#[derive(Clone, Debug)]
pub struct Sync {
    /// Answered under this name.
    pub token: Token,
    /// The member.
    pub member_id: String,
    /// Its instance, if static.
    pub instance: Option<String>,
    /// Its generation.
    pub generation: i32,
    /// What the client believes, since version 5.
    pub protocol: Option<String>,
    /// From the leader: member id → assignment.
    pub assignments: BTreeMap<String, Bytes>,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answers a JoinGroup.
    Joined(Token, Box<Joined>),
    /// Answers a SyncGroup: error code and assignment.
    Synced(Token, i16, Bytes),
    /// A generation has its assignments: member id → assignment.
    Assigned(i32, BTreeMap<String, Bytes>),
}
impl Joined {
    /// An answer that refuses.
    pub(crate) fn error(error: i16, member_id: String) -> Joined {
        Joined {
            error,
            generation: -1,
            protocol: None,
            leader: String::new(),
            member_id,
            members: Vec::new(),
            skip_assignment: false,
        }
    }
}
