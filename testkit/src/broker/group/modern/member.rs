//! What does a group of the new protocol know of one member?

use std::collections::BTreeSet;
use std::time::Duration;

use prosody_base::Instant;
use regex_lite::Regex;

use super::{Beat, JOIN, Places, Refusal, compile};
use crate::broker::code;

/// How far a member is on its way to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has its target.
    Stable,
    /// It was told to give partitions up and has not said yet that it did.
    Revoking,
    /// Others have not released all of its target.
    Waiting,
}

/// One member.
#[derive(Clone, Debug)]
pub struct Member {
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// Where it runs.
    pub rack: Option<String>,
    /// The client's name for itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
    /// Its epoch; −2 for a static member that said it will be back.
    pub epoch: i32,
    /// Topics it named.
    pub topics: BTreeSet<String>,
    /// Topics it wants by name.
    pub regex: Option<String>,
    /// The assignor it asks for.
    pub assignor: Option<String>,
    /// The group's epoch when it joined: an id may leave and join again.
    pub since: i32,
    /// How far it is.
    pub standing: Standing,
    /// What it may hold.
    pub assigned: Places,
    /// What it was told to give up.
    pub revoking: Places,
    pub(super) matcher: Option<Regex>,
    pub(super) previous: i32,
    /// A rebalance waits this long for it.
    pub rebalance_timeout: Duration,
    /// Topics it wants, of those that exist.
    pub(super) wanted: BTreeSet<String>,
    pub(super) expires: Instant,
    /// When it is removed unless it has given up what it was told to.
    pub(super) revoke_by: Option<Instant>,
}

impl Member {
    pub(super) fn new(beat: &Beat, since: i32, now: Instant) -> Member {
        Member {
            instance: beat.instance.clone(),
            rack: None,
            client_id: String::new(),
            client_host: String::new(),
            epoch: JOIN,
            topics: BTreeSet::new(),
            regex: None,
            assignor: None,
            since,
            standing: Standing::Stable,
            assigned: Places::new(),
            revoking: Places::new(),
            matcher: None,
            previous: JOIN,
            rebalance_timeout: Duration::ZERO,
            wanted: BTreeSet::new(),
            expires: now,
            revoke_by: None,
        }
    }

    /// Takes over what a heartbeat says. `true` when its subscription is another now.
    pub(super) fn update(&mut self, beat: &Beat) -> bool {
        let before = (self.topics.clone(), self.regex.clone(), self.assignor.clone());
        self.client_id.clone_from(&beat.client_id);
        self.client_host.clone_from(&beat.client_host);
        if beat.rack.is_some() {
            self.rack.clone_from(&beat.rack);
        }
        if let Some(timeout) = beat.rebalance_timeout {
            self.rebalance_timeout = timeout;
        }
        if let Some(topics) = &beat.topics {
            self.topics.clone_from(topics);
        }
        if let Some(regex) = &beat.regex
            && self.regex.as_ref() != Some(regex)
        {
            self.regex = Some(regex.clone()).filter(|text| !text.is_empty());
            self.matcher = self.regex.as_deref().and_then(|text| compile(text).ok());
        }
        if beat.assignor.is_some() {
            self.assignor.clone_from(&beat.assignor);
        }
        before != (self.topics.clone(), self.regex.clone(), self.assignor.clone())
    }

    /// An epoch is right when it is the member's own. The one before is right too while its holder claims nothing that it
    /// was not given: the answer with the new one may have been lost.
    pub(super) fn check_epoch(&self, beat: &Beat) -> Result<(), Refusal> {
        let known = self.epoch;
        let claims_its_own = beat.owned.as_ref().is_some_and(|owned| owned.is_subset(&self.assigned));
        if beat.epoch == known || (beat.epoch < known && beat.epoch == self.previous && claims_its_own) {
            return Ok(());
        }
        let why = format!("member {} is in epoch {known}, not {}", beat.member_id, beat.epoch);
        Err((code::FENCED_MEMBER_EPOCH, why))
    }
}
