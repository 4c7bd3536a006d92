//! When is membership over, when is it begun again, and how long is the wait before?

use std::time::Duration;

use prosody_base::{Instant, sabotaged};

use super::calls::{Asked, Coordinator, Effect, Phase};
use super::machine::{Machine, REFUSED_PAUSE};
use crate::error::{Error, ErrorKind};
use crate::group::outbox::Notice;
use crate::proto::ErrorCode;
use crate::types::Topic;

impl Machine {
    /// Joins again: at once, or when an eager member has given up what it holds.
    pub(super) fn rejoin(&mut self, now: Instant) {
        if self.config.is_eager() {
            let deadline = now + self.config.drain_time();
            if let Some((ticket, partitions)) = self.holdings.revoke_all(deadline) {
                self.tell(Notice::Revoke { ticket, partitions, deadline });
            }
        }
        self.go_out(now);
    }

    /// Drops whatever joining is under way and starts over at `at`.
    pub(super) fn go_out(&mut self, at: Instant) {
        self.calls.retain(|_, call| !matches!(call.asked, Asked::Join | Asked::Sync));
        self.phase = Phase::Out(at);
    }

    /// Membership is over: what we held is somebody else's.
    pub(super) fn lose(&mut self, why: Error) {
        self.generation = -1;
        self.held_generation = -1;
        self.rejoin_when_drained = false;
        self.led = None;
        let partitions = self.holdings.lose_all();
        if !partitions.is_empty() {
            self.tell(Notice::Lost { partitions, why });
        }
    }

    /// Another process runs with our instance id: this member is over.
    pub(super) fn fence(&mut self, why: Error) {
        self.lose(why.clone());
        self.tell(Notice::Failed(why));
        self.calls.clear();
        self.phase = Phase::Ended;
    }

    /// The coordinator this was sent to is gone or is not it. Says whether it is the one in use.
    pub(super) fn lose_coordinator(&mut self, now: Instant, finding: u64) -> bool {
        if self.finding != finding {
            return false;
        }
        if self.coordinator == Coordinator::Known {
            let pause = self.pause();
            self.coordinator = Coordinator::Unknown(now + pause);
            self.out.push_back(Effect::Forget);
        }
        true
    }

    /// Wait before the next attempt: none after the first failure, then growing with jitter (KIP-580).
    pub(super) fn pause(&mut self) -> Duration {
        self.attempts = self.attempts.saturating_add(1);
        self.backoff_after(self.attempts)
    }

    pub(super) fn backoff_after(&self, failures: u32) -> Duration {
        match failures.checked_sub(2) {
            Some(attempt) => self.rng.backoff(self.backoff.0, self.backoff.1, attempt),
            None => Duration::ZERO,
        }
    }

    /// The same, and the reader is told when only a person can help.
    pub(super) fn pause_after(&mut self, why: &Error) -> Duration {
        if why.is_retriable() || why.code() == Some(ErrorCode::FENCED_INSTANCE_ID) {
            return self.pause();
        }
        self.tell(Notice::Failed(why.clone()));
        REFUSED_PAUSE
    }

    pub(super) fn is_divided_by_old_counts(&self) -> bool {
        let changed = |(topic, by): (&Topic, &i32)| self.counts.get(topic).is_some_and(|known| known != by);
        self.led.iter().flatten().any(changed)
    }

    pub(super) fn check_session(&mut self, now: Instant) {
        if self.holdings.is_empty() || now < self.session_end() {
            return;
        }
        let group = &self.config.group_id;
        let doing = if now < self.alive + self.config.session_timeout {
            format!(
                "rejoining group {group}: no JoinGroup reached the coordinator within {:?}",
                self.config.rebalance_timeout
            )
        } else {
            format!(
                "staying in group {group}: no heartbeat sent in the last {:?} was answered",
                self.config.session_timeout
            )
        };
        self.lose(Error::new(doing, ErrorKind::Timeout));
        if matches!(self.phase, Phase::Stable | Phase::Syncing(_) | Phase::Leading { .. }) {
            self.go_out(now);
        }
    }

    /// When the coordinator may give our partitions away: a session after the last sign of life it may know of, and,
    /// while we are not even asking to join, a rebalance timeout after the last time we know of no rebalance.
    pub(super) fn session_end(&self) -> Instant {
        let sessions = if sabotaged("group-session-expiry") { 100 } else { 1 };
        let silent = self.alive + self.config.session_timeout * sessions;
        match self.phase {
            Phase::Out(_) => silent.min(self.calm + self.config.rebalance_timeout),
            _ => silent,
        }
    }
}
