//! What does a group know of one member?

use std::time::Duration;

use bytes::Bytes;
use prosody_base::Instant;

use super::machine::{Join, Token};

/// Who speaks: a member id, and the instance of a static member.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Given by the coordinator.
    pub member_id: &'a str,
    /// `group.instance.id`.
    pub instance: Option<&'a str>,
}

/// One member.
#[derive(Clone, Debug)]
pub struct Member {
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// The client's name for itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
    /// Without a heartbeat for this long it is removed.
    pub session_timeout: Duration,
    /// A rebalance waits this long for it.
    pub rebalance_timeout: Duration,
    /// Assignors by preference, with its metadata for each.
    pub protocols: Vec<(String, Bytes)>,
    /// What the leader gave it.
    pub assignment: Bytes,
    pub(super) join: Option<Token>,
    pub(super) sync: Option<Token>,
    /// Whether it asked for the assignment of this generation.
    pub(super) synced: bool,
    /// Its place in the order of joining.
    pub(super) joined_at: u64,
    expires: Instant,
}

impl Member {
    pub(super) fn new(join: &Join, now: Instant) -> Member {
        Member {
            instance: join.instance.clone(),
            client_id: join.client_id.clone(),
            client_host: join.client_host.clone(),
            session_timeout: join.session_timeout,
            rebalance_timeout: join.rebalance_timeout,
            protocols: join.protocols.clone(),
            assignment: Bytes::new(),
            join: None,
            sync: None,
            synced: false,
            joined_at: 0,
            expires: now + join.session_timeout,
        }
    }

    pub(super) fn update(&mut self, join: &Join) {
        self.client_id.clone_from(&join.client_id);
        self.client_host.clone_from(&join.client_host);
        self.session_timeout = join.session_timeout;
        self.rebalance_timeout = join.rebalance_timeout;
        self.protocols.clone_from(&join.protocols);
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.expires = now + self.session_timeout;
    }

    /// `None` while it waits for an answer: then the coordinator owes it one.
    pub(super) fn expires(&self) -> Option<Instant> {
        (self.join.is_none() && self.sync.is_none()).then_some(self.expires)
    }

    pub(super) fn expired(&self, now: Instant) -> bool {
        self.expires().is_some_and(|expires| expires <= now)
    }

    /// Its metadata for a protocol, `None` when it does not support it.
    #[must_use]
    pub fn metadata(&self, protocol: &str) -> Option<Bytes> {
        self.protocols.iter().find(|(name, _)| name == protocol).map(|(_, metadata)| metadata.clone())
    }
}
