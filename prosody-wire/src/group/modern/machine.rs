//! What does a member of a group of the new protocol (KIP-848) do next?
//!
//! ```text
//!            answered with an epoch           something let go: at once; else every interval
//!   epoch 0 ────────────────────────▶ member ◀──────────────────────────────┐
//!    ▲  └── the coordinator still knows us: leave first, then again         │ heartbeat
//!    └──────── fenced, unknown: everything is lost at once ◀────────────────┘
//! ```
//!
//! A heartbeat says what changed since the last one that was answered; after any failure it says everything, and the
//! answer then does so too, so that no lost message is missed for good. The coordinator gives a partition to us when its
//! last holder has said that it let go, and waits for us likewise: what we hold is in the heartbeat until the reader has
//! acknowledged the revocation. Offsets of new partitions, the session and the coordinator are those of `../core.rs`.
//!
//! We say `owned` as soon as we take a partition up, before its offset is known: the other way round it could be ours on
//! the coordinator and nobody's here.

use std::collections::BTreeSet;
use std::time::Duration;

use prosody_base::{Instant, sabotaged};

use super::places::Places as Targets;
use crate::error::Error;
use crate::group::calls::{Answer, Asked, Beat, Call, CallId, Coordinator, Effect, Identity, Places, Wanted};
use crate::group::core::{Core, FIRST_BEAT, Membership, Topics};
use crate::group::pattern::for_coordinator;
use crate::types::Topic;

/// The interval until the broker has said one.
const FIRST_INTERVAL: Duration = Duration::from_secs(5);
/// The epoch of whoever joins.
pub(super) const JOIN: i32 = 0;
/// The epoch by which a member leaves.
const LEAVE: i32 = -1;
/// The epoch by which a static member says that it will be back.
const LEAVE_STATIC: i32 = -2;

/// Where a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Joining, or in, as the epoch says.
    In,
    /// The coordinator has us under an epoch we do not know: leaving, to join again.
    Withdrawing,
    Leaving,
    Ended,
}

/// One member of one group.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) core: Core,
    pub(super) phase: Phase,
    /// Ours for as long as this machine lives.
    pub(super) member_id: String,
    /// Our epoch; 0 while we are not in.
    pub(super) epoch: i32,
    /// Whether a heartbeat that joins was ever sent: its effect may be there although its answer never came.
    pub(super) asked_to_join: bool,
    /// What the last answered heartbeat said we hold; `None` when the next one shall say everything.
    pub(super) said: Option<Places>,
    pub(super) targets: Targets,
    /// Our patterns, while the coordinator matches them.
    pub(super) regex: Option<String>,
    /// Topics by pattern that the last full heartbeat named.
    named_by_pattern: Vec<Topic>,
    /// Until when the coordinator waits for us to say that we let go, and removes us otherwise.
    pub(super) release_by: Option<Instant>,
    /// The broker's interval between heartbeats.
    pub(super) interval: Duration,
    /// Wait after the next heartbeat: short after a change, then growing to the interval.
    pub(super) beat: Duration,
    pub(super) next_beat: Instant,
    /// The group's own session timeout, once known.
    pub(super) session: Option<Duration>,
    pub(super) asks_session: bool,
    /// When to ask for metadata again because an assignment names topics that it does not.
    pub(super) refresh_at: Option<Instant>,
    pub(super) refreshes: u32,
}

impl Machine {
    /// Joins from `at` on.
    pub(crate) fn new(core: Core, at: Instant) -> Machine {
        let member_id = format!("{:016x}{:016x}", core.rng.next_u64(), core.rng.next_u64());
        Machine {
            regex: for_coordinator(&core.config.patterns),
            named_by_pattern: Vec::new(),
            core,
            phase: Phase::In,
            member_id,
            epoch: JOIN,
            asked_to_join: false,
            said: None,
            targets: Targets::default(),
            release_by: None,
            interval: FIRST_INTERVAL,
            beat: FIRST_BEAT,
            next_beat: at,
            session: None,
            asks_session: true,
            refresh_at: None,
            refreshes: 0,
        }
    }

    pub(super) fn is_member(&self) -> bool {
        self.phase == Phase::In && self.epoch > JOIN
    }

    pub(super) fn identity(&self) -> Identity {
        Identity { member_id: self.member_id.clone(), generation: self.epoch, finding: self.core.finding }
    }

    /// How long the coordinator keeps us without hearing of us. While it waits for us to let go, that is the rebalance
    /// timeout, and we may not have heard that it does.
    pub(super) fn patience(&self) -> Duration {
        self.session_timeout().min(self.core.config.rebalance_timeout)
    }

    pub(super) fn session_timeout(&self) -> Duration {
        self.session.unwrap_or(self.interval * 3)
    }

    /// What we hold, as the coordinator names it.
    fn owned(&self) -> Places {
        self.targets.named(self.core.holdings.claims())
    }

    /// Whether the coordinator believes that we hold something that we let go.
    fn has_let_go(&self) -> bool {
        let Some(said) = self.said.as_ref().filter(|_| self.is_member()) else { return false };
        let owned = self.owned();
        let has = |(id, partition): (_, &i32)| {
            owned.get(id).is_some_and(|held| held.binary_search(partition).is_ok())
        };
        !said.iter().all(|(id, partitions)| partitions.iter().all(|partition| has((id, partition))))
    }

    fn is_asking(&self) -> bool {
        if sabotaged("drain-beats") && self.release_by.is_some() && !self.has_let_go() {
            return true;
        }
        self.core.calls.values().any(|call| matches!(call.asked, Asked::Beat(_) | Asked::Leave))
    }

    fn send_what_is_due(&mut self, now: Instant) {
        let phase = self.phase;
        match phase {
            Phase::In if !self.is_asking() && self.is_beat_due(now) && self.knows_topics(now) => {
                self.beat(now)
            }
            Phase::Withdrawing if !self.is_asking() && self.next_beat <= now => self.say_farewell(now),
            Phase::Leaving if self.core.calls.is_empty() => self.say_farewell(now),
            _ => {}
        }
        if self.is_member() && self.core.may_read_offsets() && self.core.offsets_at <= now {
            let (asked, partitions) = self.core.holdings.fetching();
            let member = Some((self.member_id.clone(), self.epoch));
            self.send(now, Asked::Offsets(asked), Call::Offsets { partitions, member });
        }
        if self.is_member() && self.asks_session {
            self.asks_session = false;
            self.send(now, Asked::SessionTimeout, Call::SessionTimeout);
        }
    }

    fn is_beat_due(&self, now: Instant) -> bool {
        self.next_beat <= now || self.has_let_go() || (self.is_member() && self.wants_other_topics())
    }

    /// Whether the coordinator matches our patterns, or we know what matches.
    fn knows_topics(&mut self, now: Instant) -> bool {
        self.regex.is_some() || self.core.knows_topics(now)
    }

    fn wants_other_topics(&self) -> bool {
        self.regex.is_none() && self.named_by_pattern != self.core.matched
    }

    fn beat(&mut self, now: Instant) {
        let owned = self.owned();
        let full = self.epoch == JOIN || self.said.is_none() || self.wants_other_topics();
        let owned = Some(owned).filter(|owned| full || self.said.as_ref() != Some(owned));
        self.next_beat = now + self.interval.min(self.beat);
        self.beat = self.beat.saturating_mul(2);
        self.asked_to_join |= self.epoch == JOIN;
        let full = full.then(|| self.wanted());
        self.send_beat(now, Asked::Beat(owned.clone()), self.epoch, full, owned);
    }

    fn wanted(&mut self) -> Wanted {
        match &self.regex {
            Some(regex) => Wanted { topics: self.core.config.topics.clone(), regex: Some(regex.clone()) },
            None => {
                self.named_by_pattern.clone_from(&self.core.matched);
                // Empty takes back what an earlier heartbeat said.
                let regex = (!self.core.config.patterns.is_empty()).then(String::new);
                Wanted { topics: self.core.topics(), regex }
            }
        }
    }

    fn say_farewell(&mut self, now: Instant) {
        let is_static = self.core.config.instance_id.is_some();
        let epoch = if is_static { LEAVE_STATIC } else { LEAVE };
        self.send_beat(now, Asked::Leave, epoch, None, None);
    }

    fn send_beat(
        &mut self,
        now: Instant,
        asked: Asked,
        epoch: i32,
        full: Option<Wanted>,
        owned: Option<Places>,
    ) {
        let patience = self.session_timeout() / 3;
        let member_id = self.member_id.clone();
        self.send(now, asked, Call::Beat(Beat { member_id, epoch, full, owned, patience }));
    }

    fn send(&mut self, now: Instant, asked: Asked, call: Call) {
        let identity = self.identity();
        self.core.send(now, asked, call, identity);
    }

    fn session_end(&self) -> Instant {
        let silent = self.core.silent_for(self.patience());
        let release_by = self.release_by.filter(|_| !sabotaged("group-release-by"));
        release_by.map_or(silent, |by| silent.min(by))
    }

    /// Whoever was not heard has lost its partitions, and keeps its epoch: if the coordinator has it still, it gives them
    /// back; a member that joined anew would be fenced until the coordinator misses it too.
    fn check_session(&mut self, now: Instant) {
        if !self.core.holdings.is_empty() && self.session_end() <= now {
            let late = self.release_by.filter(|by| *by <= now);
            let why = match late {
                Some(_) => self.core.silence(self.core.config.rebalance_timeout),
                None => self.core.silence(self.patience()),
            };
            self.core.lose(why);
            (self.said, self.release_by) = (None, None);
            // Nor does an open heartbeat say what we hold: only a full one makes the coordinator repeat our share.
            for call in self.core.calls.values_mut() {
                if let Asked::Beat(said) = &mut call.asked {
                    *said = None;
                }
            }
        }
    }
}

impl Membership for Machine {
    fn core(&self) -> &Core {
        &self.core
    }

    fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    fn tick(&mut self, now: Instant) {
        self.core.finish_overdue(now);
        self.check_session(now);
        if self.phase == Phase::Ended {
            return;
        }
        self.take_up_recreated(now);
        if self.refresh_at.is_some_and(|at| at <= now) {
            self.refreshes = self.refreshes.saturating_add(1);
            self.refresh_at = Some(now + self.core.backoff_after(self.refreshes.saturating_add(1)));
            let nameless = if self.regex.is_some() { self.targets.nameless() } else { Vec::new() };
            self.core.out.push_back(Effect::Refresh(nameless));
        }
        if self.core.knows_coordinator(now) {
            self.send_what_is_due(now);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let known = self.core.coordinator == Coordinator::Known;
        let beats = matches!(self.phase, Phase::In | Phase::Withdrawing) && !self.is_asking();
        let in_time = [
            self.core.find_at(),
            self.refresh_at,
            match self.regex {
                _ if !known || !beats => None,
                Some(_) => Some(self.next_beat),
                None => self.core.topics_known(self.next_beat),
            },
            (known && self.is_member() && self.core.may_read_offsets()).then_some(self.core.offsets_at),
            (!self.core.holdings.is_empty()).then(|| self.session_end()),
            self.core.holdings.next_deadline(),
        ];
        if self.phase == Phase::Ended { None } else { in_time.into_iter().flatten().min() }
    }

    fn answered(&mut self, now: Instant, id: CallId, result: Result<Answer, Error>) {
        self.take_answer(now, id, result);
        self.tick(now);
    }

    fn member_error(&mut self, now: Instant, why: &Error, sender: &Identity) -> bool {
        self.take_error(now, why, sender)
    }

    fn interest(&self) -> BTreeSet<Topic> {
        self.core.config.topics.iter().cloned().collect()
    }

    fn metadata(&mut self, now: Instant, topics: &Topics) {
        if self.regex.is_none() {
            self.core.match_topics(topics);
        }
        for (topic, known) in topics {
            let Some(id) = known.id else { continue };
            if self.targets.is_assigned(&id) || self.core.config.topics.binary_search(topic).is_ok() {
                self.targets.learn(topic.clone(), id);
            }
        }
        if self.refresh_at.is_some() {
            self.reconcile(now, now + self.core.config.drain_time());
        }
        self.tick(now);
    }

    fn resolved(&mut self, now: Instant) {
        self.tick(now);
    }

    fn leave(&mut self, now: Instant) {
        self.core.holdings.lose_all();
        self.core.calls.clear();
        let has_something_to_say = self.asked_to_join && !self.has_ended();
        self.phase = if has_something_to_say { Phase::Leaving } else { Phase::Ended };
        self.tick(now);
    }

    fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    fn committer(&self) -> Option<Identity> {
        let known = self.core.coordinator == Coordinator::Known;
        (known && self.is_member()).then(|| self.identity())
    }
}

#[cfg(test)]
#[path = "tests/machine.rs"]
mod tests;
