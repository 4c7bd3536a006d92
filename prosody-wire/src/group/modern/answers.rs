//! What does each answer of the coordinator mean?

use std::time::Duration;

use prosody_base::Instant;

use super::machine::{JOIN, Machine, Phase};
use crate::error::{DecodeError, Error, ErrorKind};
use crate::group::calls::{Answer, Asked, Beaten, CallId, Effect, Identity, Pending, Places};
use crate::group::config::GroupProtocol;
use crate::group::core::{FIRST_BEAT, REFUSED_PAUSE};
use crate::group::outbox::Notice;
use crate::group::remedy::Remedy;
use crate::proto::ErrorCode;

/// Bounds of what a broker may ask for between two heartbeats.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));

impl Machine {
    pub(super) fn take_answer(&mut self, now: Instant, id: CallId, result: Result<Answer, Error>) {
        let Some(pending) = self.core.calls.remove(&id) else { return };
        match (&pending.asked, result) {
            (Asked::Beat(owned), Ok(Answer::Beaten(beaten))) => {
                self.beaten(now, &pending, owned.clone(), beaten);
            }
            (Asked::Beat(_), Err(why)) => self.beat_failed(now, &pending, &why),
            (Asked::Leave, Err(why)) if Remedy::of(&why) == Remedy::Find => {
                let _ = self.core.lose_coordinator(now, pending.identity.finding);
                self.next_beat = now;
            }
            (Asked::Leave, _) if self.phase == Phase::Withdrawing => {
                self.phase = Phase::In;
                self.next_beat = now;
            }
            (Asked::Leave, _) => self.phase = Phase::Ended,
            (Asked::Offsets(asked), result) => {
                let result = match result {
                    Ok(Answer::Offsets(offsets)) => Ok(offsets),
                    Ok(_) => Ok(Vec::new()),
                    Err(why) => Err(why),
                };
                if let Some(why) = self.core.offsets(now, *asked, result) {
                    self.core.offsets_failed(now, &why, &pending.identity);
                    if !matches!(Remedy::of(&why), Remedy::Find | Remedy::Report) {
                        self.take_error(now, &why, &pending.identity);
                        // Whoever takes heartbeats and refuses this would have us join for ever.
                        self.next_beat = self.next_beat.max(self.core.offsets_at);
                    }
                }
            }
            (Asked::SessionTimeout, Ok(Answer::SessionTimeout(session))) => {
                self.session = session.filter(|session| !session.is_zero()).or(self.session);
            }
            // A broker that is gone says nothing of the group; one that refuses will refuse again.
            (Asked::SessionTimeout, Err(why)) => self.asks_session = Remedy::of(&why) == Remedy::Find,
            _ => {}
        }
    }

    fn beaten(&mut self, now: Instant, pending: &Pending, said: Option<Places>, beaten: Beaten) {
        if beaten.epoch <= JOIN {
            let doing = format!("joining group {}", self.core.config.group_id);
            let why = format!("the coordinator answers with the epoch {}", beaten.epoch);
            let why = Error::decode(doing, DecodeError::Body(why));
            self.said = None;
            self.next_beat = now + self.core.pause_after(&why);
            return;
        }
        // The coordinator may have decided what it says now at any time since it last heard of us.
        let heard = self.core.alive;
        self.core.alive = self.core.alive.max(pending.sent);
        self.core.attempts = 0;
        self.interval = beaten.interval.clamp(INTERVALS.0, INTERVALS.1);
        let joined = self.epoch == JOIN;
        let news = beaten.epoch != self.epoch || beaten.assignment.is_some();
        self.epoch = beaten.epoch;
        self.said = said.or(self.said.take());
        let holds_more =
            |machine: &Machine| machine.said.as_ref().is_some_and(|said| machine.targets.is_more(said));
        if !holds_more(self) {
            self.release_by = None;
        }
        if news {
            self.beat = FIRST_BEAT;
            self.next_beat = self.next_beat.min(now + FIRST_BEAT);
        }
        if let Some(target) = beaten.assignment {
            self.targets.assign(target);
            if holds_more(self) && self.release_by.is_none() {
                self.release_by = Some(heard + self.core.config.rebalance_timeout);
            }
            let since = if joined { now } else { heard };
            self.reconcile(now, since + self.core.config.drain_time());
        }
    }

    /// Takes up what can be taken up of the assignment, and asks for fresh metadata because of the rest.
    pub(super) fn reconcile(&mut self, now: Instant, deadline: Instant) {
        let holdings = &self.core.holdings;
        let resolved = self.targets.resolve(|topic| holdings.holds_of(topic));
        let was_waiting = self.refresh_at.is_some();
        if !resolved.is_waiting {
            (self.refresh_at, self.refreshes) = (None, 0);
        } else if !was_waiting {
            self.refresh_at = Some(now);
        }
        self.core.reconcile(now, resolved.partitions, deadline);
    }

    /// A topic that was created anew is taken up when the last partition of the old one is given up.
    pub(super) fn take_up_recreated(&mut self, now: Instant) {
        if self.is_member() && self.core.holdings.is_drained() && self.targets.is_blocked() {
            self.reconcile(now, now + self.core.config.drain_time());
        }
    }

    fn beat_failed(&mut self, now: Instant, pending: &Pending, why: &Error) {
        // Whether it had an effect is not known: the next one says everything.
        self.said = None;
        let joining = pending.identity.generation == JOIN;
        match why.code() {
            Some(ErrorCode::UNSUPPORTED_VERSION) => return self.refused(now, why),
            Some(ErrorCode::GROUP_ID_NOT_FOUND) if joining => return self.refused(now, why),
            None if matches!(why.kind(), ErrorKind::Unsupported { .. }) => return self.refused(now, why),
            Some(ErrorCode::FENCED_MEMBER_EPOCH) if joining => {
                // The coordinator has us in an epoch we do not know, and would until our session is over.
                self.phase = Phase::Withdrawing;
                self.next_beat = now + self.core.pause();
                return;
            }
            Some(ErrorCode::INVALID_REGULAR_EXPRESSION) if self.regex.is_some() => {
                tracing::debug!(group = self.core.config.group_id, %why, "matching topics ourselves");
                self.regex = None;
                self.next_beat = now;
                return;
            }
            Some(ErrorCode::UNRELEASED_INSTANCE_ID) => return self.unreleased(now, pending, why),
            _ => {}
        }
        self.take_error(now, why, &pending.identity);
        let pause = match Remedy::of(why) {
            Remedy::Report => REFUSED_PAUSE,
            // Asked again as soon as there is somebody to ask.
            Remedy::Find | Remedy::End => Duration::ZERO,
            Remedy::NewMember | Remedy::NewGeneration => self.core.pause(),
            // Has not been counted: a commit may be told the same, and that is no failure of membership.
            Remedy::Wait if why.code() == Some(ErrorCode::STALE_MEMBER_EPOCH) => self.core.pause(),
            Remedy::Join => self.core.pause(),
            Remedy::Wait => self.core.backoff_after(self.core.attempts),
        };
        self.next_beat = now + pause;
    }

    /// Another process has our instance id and has not said that it left: it runs, or it died and is still believed to.
    /// If it was us, whose answer was lost, we say that we left.
    fn unreleased(&mut self, now: Instant, pending: &Pending, why: &Error) {
        if self.core.attempts == 0 {
            self.core.tell(Notice::Failed(why.clone()));
        } else if self.asked_to_join && pending.identity.generation == JOIN {
            self.phase = Phase::Withdrawing;
        }
        self.core.attempts = self.core.attempts.max(1);
        self.next_beat = now + self.core.pause().max(FIRST_BEAT);
    }

    /// No member of this protocol is wanted: the broker does not know it, or the group has members of the classic one.
    fn refused(&mut self, now: Instant, why: &Error) {
        let doing = format!("joining group {} by the consumer protocol (KIP-848)", self.core.config.group_id);
        let why = why.clone().during(&doing);
        self.lose(why.clone());
        if self.core.config.protocol == GroupProtocol::Auto {
            tracing::debug!(group = self.core.config.group_id, %why, "this group is a classic one");
            self.core.out.push_back(Effect::Switch(now));
        } else {
            self.core.tell(Notice::Failed(why));
        }
        self.next_beat = now + REFUSED_PAUSE;
    }

    /// A heartbeat, a commit or a read of offsets, sent as `sender`, was refused. Says whether the sender's membership is
    /// over.
    pub(super) fn take_error(&mut self, now: Instant, why: &Error, sender: &Identity) -> bool {
        let current = sender.generation == self.epoch;
        match Remedy::of(why) {
            Remedy::NewMember if self.epoch > JOIN => {
                self.lose(why.clone());
                self.next_beat = now;
                return true;
            }
            Remedy::NewGeneration if self.epoch > JOIN && current => {
                self.lose(why.clone());
                self.next_beat = now;
                return true;
            }
            Remedy::NewMember | Remedy::NewGeneration | Remedy::Join => {}
            Remedy::End => {
                self.lose(why.clone());
                self.core.tell(Notice::Failed(why.clone()));
                self.core.calls.clear();
                self.phase = Phase::Ended;
                return true;
            }
            Remedy::Find => {
                let _ = self.core.lose_coordinator(now, sender.finding);
                self.said = None;
            }
            // The answer that told us of our new epoch is on its way, or was lost: ask for it.
            Remedy::Wait if why.code() == Some(ErrorCode::STALE_MEMBER_EPOCH) => {
                if current && self.is_member() {
                    self.said = None;
                    self.next_beat = now;
                }
            }
            Remedy::Wait => self.core.attempts = self.core.attempts.saturating_add(1),
            Remedy::Report => self.core.tell(Notice::Failed(why.clone())),
        }
        false
    }

    /// Membership is over: what we held is somebody else's, and we join anew.
    fn lose(&mut self, why: Error) {
        self.epoch = JOIN;
        (self.said, self.release_by) = (None, None);
        self.asks_session = true;
        self.refresh_at = None;
        self.targets.clear();
        self.core.lose(why);
    }
}
