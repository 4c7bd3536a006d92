//! When is membership over, and when is it begun again?

use prosody_base::Instant;

use super::machine::{Machine, Phase};
use crate::error::{Error, ErrorKind};
use crate::group::calls::Asked;
use crate::group::outbox::Notice;
use crate::types::Topic;

impl Machine {
    /// Joins again: at once, or when an eager member has given up what it holds.
    pub(super) fn rejoin(&mut self, now: Instant) {
        if self.core.config.is_eager() {
            let deadline = now + self.core.config.drain_time();
            if let Some((ticket, partitions)) = self.core.holdings.revoke_all(deadline) {
                self.core.tell(Notice::Revoke { ticket, partitions, deadline });
            }
        }
        self.go_out(now);
    }

    /// Drops whatever joining is under way and starts over at `at`.
    pub(super) fn go_out(&mut self, at: Instant) {
        self.core.calls.retain(|_, call| !matches!(call.asked, Asked::Join | Asked::Sync));
        self.phase = Phase::Out(at);
    }

    /// Membership is over: what we held is somebody else's.
    pub(super) fn lose(&mut self, why: Error) {
        self.generation = -1;
        self.held_generation = -1;
        self.rejoin_when_drained = false;
        self.led = None;
        self.core.lose(why);
    }

    /// Another process runs with our instance id: this member is over.
    pub(super) fn fence(&mut self, why: Error) {
        self.lose(why.clone());
        self.core.tell(Notice::Failed(why));
        self.core.calls.clear();
        self.phase = Phase::Ended;
    }

    /// Whether there are other partitions than those we divided, or, for who has a rack, replicas elsewhere (KIP-881).
    pub(super) fn is_divided_by_old_news(&self) -> bool {
        let Some(led) = &self.led else { return false };
        let changed = |(topic, by): (&Topic, &i32)| self.counts.get(topic).is_some_and(|known| known != by);
        let has_rack = self.core.config.client_rack.is_some();
        led.iter().any(changed) || (has_rack && self.led_by_racks != self.racks.of(led.keys()))
    }

    pub(super) fn check_session(&mut self, now: Instant) {
        if self.core.holdings.is_empty() || now < self.session_end() {
            return;
        }
        let session = self.core.config.session_timeout;
        let why = if now < self.core.alive + session {
            let (group, within) = (&self.core.config.group_id, self.core.config.rebalance_timeout);
            let doing =
                format!("rejoining group {group}: no JoinGroup reached the coordinator within {within:?}");
            Error::new(doing, ErrorKind::Timeout)
        } else {
            self.core.silence(session)
        };
        self.lose(why);
        if !matches!(self.phase, Phase::Out(_) | Phase::Leaving | Phase::Ended) {
            self.go_out(now);
        }
    }

    /// When the coordinator may give our partitions away: a session after the last sign of life it may know of, and,
    /// while we are not even asking to join, a rebalance timeout after the last time we know of no rebalance.
    pub(super) fn session_end(&self) -> Instant {
        let silent = self.core.silent_for(self.core.config.session_timeout);
        match self.phase {
            Phase::Out(_) => silent.min(self.calm + self.core.config.rebalance_timeout),
            _ => silent,
        }
    }
}
