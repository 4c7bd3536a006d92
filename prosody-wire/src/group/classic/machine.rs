//! What does a member of a classic group do next?
//!
//! ```text
//!            found            MEMBER_ID_REQUIRED: again
//!   Out ───────────────▶ Joining ───────────────▶ Leading (we divide) ──▶ Syncing ──▶ Stable
//!    ▲                      └──────── follower ──────────────────────────────▲           │
//!    └──── rebalance, lost membership, coordinator gone, partitions to give up ◀─────────┘
//! ```
//!
//! Inputs are answers, the clock, acknowledgements and metadata; outputs are effects. Nothing here waits. Beside
//! the phase runs what does not depend on it: heartbeats while there is a generation, offsets of new partitions,
//! revocations until their acknowledgement or deadline, and the session: when no heartbeat sent within the session
//! timeout was answered, everything is lost at once.
//!
//! `answers.rs` says what each answer means, `membership.rs` when membership is over; what both protocols share is in
//! `../core.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use prosody_base::Instant;

use super::assignors::{Assignor, Member, Racks};
use crate::error::Error;
use crate::group::calls::{Answer, Asked, Call, CallId, Coordinator, Identity};
use crate::group::core::{Core, FIRST_BEAT, Membership, Topics};
use crate::group::subscription::Subscription;
use crate::types::{Topic, TopicPartition};

/// How long a leader waits for metadata of topics only others read before it divides what it knows.
pub(crate) const LEADER_PATIENCE: Duration = Duration::from_secs(5);

/// The count of a topic that the leader has not seen yet: its first appearance is no change.
pub(super) const UNKNOWN_COUNT: i32 = -1;

/// Where a member stands.
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

/// One member of one classic group.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) core: Core,
    pub(super) phase: Phase,
    pub(super) member_id: String,
    /// The generation we joined; −1 when we are in none.
    pub(super) generation: i32,
    /// The generation in which we were given what we hold.
    pub(super) held_generation: i32,
    /// What the last JoinGroup said we subscribe to, sorted; and which of it by pattern.
    pub(super) subscribed: Vec<Topic>,
    subscribed_by_pattern: Vec<Topic>,
    /// What the last JoinGroup said we own.
    pub(super) claimed: BTreeSet<TopicPartition>,
    /// The last assignment kept something from us that we claimed: join again once it is given up (KIP-429).
    pub(super) rejoin_when_drained: bool,
    /// Send time of the newest request that was answered while no rebalance was running: one may run since.
    pub(super) calm: Instant,
    pub(super) next_heartbeat: Instant,
    /// Wait after the next heartbeat: short after an assignment, then growing to the configured interval.
    pub(super) beat: Duration,
    /// Known partition counts of the topics in question.
    pub(super) counts: BTreeMap<Topic, i32>,
    /// Where their replicas are.
    pub(super) racks: Racks,
    /// The counts we divided by as leader; a difference means another division.
    pub(super) led: Option<BTreeMap<Topic, i32>>,
    /// Where the replicas were when we divided; only for who has a rack.
    pub(super) led_by_racks: Racks,
}

impl Machine {
    /// Joins from `at` on.
    pub(crate) fn new(core: Core, at: Instant) -> Machine {
        Machine {
            core,
            phase: Phase::Out(at),
            member_id: String::new(),
            generation: -1,
            held_generation: -1,
            subscribed: Vec::new(),
            subscribed_by_pattern: Vec::new(),
            claimed: BTreeSet::new(),
            rejoin_when_drained: false,
            calm: at,
            next_heartbeat: at,
            beat: FIRST_BEAT,
            counts: BTreeMap::new(),
            racks: Racks::default(),
            led: None,
            led_by_racks: Racks::default(),
        }
    }

    fn send_what_is_due(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Out(at) if at <= now) && self.may_join() && self.core.knows_topics(now)
        {
            self.join(now);
        }
        if let Phase::Syncing(shares) = &mut self.phase
            && let Some((protocol, assignments)) = shares.take()
        {
            let (member_id, generation, patience) =
                (self.member_id.clone(), self.generation, self.patience());
            let call = Call::Sync { member_id, generation, protocol, assignments, patience };
            self.send(now, Asked::Sync, call);
        }
        if self.may_heartbeat() && self.next_heartbeat <= now {
            self.next_heartbeat = now + self.core.config.heartbeat_interval.min(self.beat);
            self.beat = self.beat.saturating_mul(2);
            let call = Call::Heartbeat { member_id: self.member_id.clone(), generation: self.generation };
            self.send(now, Asked::Heartbeat, call);
        }
        if self.core.may_read_offsets() && self.core.offsets_at <= now {
            let (asked, partitions) = self.core.holdings.fetching();
            self.send(now, Asked::Offsets(asked), Call::Offsets { partitions, member: None });
        }
        if matches!(self.phase, Phase::Leaving) && self.core.calls.is_empty() {
            self.send(now, Asked::Leave, Call::Leave { member_id: self.member_id.clone() });
        }
    }

    fn join(&mut self, now: Instant) {
        let owned = self.core.holdings.claims();
        self.claimed = owned.iter().cloned().collect();
        self.rejoin_when_drained = false;
        self.led = None;
        let generation = (self.held_generation >= 0).then_some(self.held_generation);
        let topics = self.core.topics();
        self.subscribed.clone_from(&topics);
        self.subscribed_by_pattern.clone_from(&self.core.matched);
        let rack = self.core.config.client_rack.clone();
        let metadata = Subscription { topics, owned, generation, rack }.encode();
        self.phase = Phase::Joining;
        let (member_id, patience) = (self.member_id.clone(), self.patience());
        self.send(now, Asked::Join, Call::Join { member_id, metadata, patience });
    }

    /// How long a JoinGroup or SyncGroup is waited for on one connection: its answer may be lost there, and who holds
    /// nothing would not notice before a whole rebalance has passed. Asked again, the coordinator answers the new request
    /// in place of the old one, at once when the rebalance is over. Each failure doubles the wait, so a long rebalance
    /// costs a few connections and nothing else.
    fn patience(&self) -> Duration {
        let first = self.core.config.session_timeout / 3;
        let wait = first.saturating_mul(1 << self.core.attempts.min(16));
        wait.min(self.core.config.rebalance_wait())
    }

    fn send(&mut self, now: Instant, asked: Asked, call: Call) {
        let identity = self.identity();
        self.core.send(now, asked, call, identity);
    }

    pub(super) fn identity(&self) -> Identity {
        Identity {
            member_id: self.member_id.clone(),
            generation: self.generation,
            finding: self.core.finding,
        }
    }

    fn may_join(&self) -> bool {
        !self.core.config.is_eager() || self.core.holdings.is_empty()
    }

    fn may_heartbeat(&self) -> bool {
        let member = self.generation >= 0 && !matches!(self.phase, Phase::Leaving | Phase::Ended);
        member && !self.core.calls.values().any(|call| matches!(call.asked, Asked::Heartbeat))
    }
}

impl Membership for Machine {
    fn core(&self) -> &Core {
        &self.core
    }

    fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    fn answered(&mut self, now: Instant, id: CallId, result: Result<Answer, Error>) {
        self.take_answer(now, id, result);
        self.tick(now);
    }

    fn member_error(&mut self, now: Instant, why: &Error, sender: &Identity) -> bool {
        self.take_error(now, why, sender)
    }

    fn tick(&mut self, now: Instant) {
        self.core.finish_overdue(now);
        self.check_session(now);
        if matches!(self.phase, Phase::Ended) {
            return;
        }
        let drained = self.rejoin_when_drained && self.core.holdings.is_drained();
        let other_topics = self.subscribed_by_pattern != self.core.matched;
        if matches!(self.phase, Phase::Stable) && (drained || other_topics || self.is_divided_by_old_news()) {
            self.rejoin(now);
        }
        if matches!(self.phase, Phase::Leading { until, .. } if until <= now) {
            self.divide();
        }
        if self.core.knows_coordinator(now) {
            self.send_what_is_due(now);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let known = self.core.coordinator == Coordinator::Known;
        let in_time = [
            self.core.find_at(),
            match self.phase {
                Phase::Out(at) if known && self.may_join() => self.core.topics_known(at),
                Phase::Leading { until, .. } => Some(until),
                _ => None,
            },
            (known && self.may_heartbeat()).then_some(self.next_heartbeat),
            (known && self.core.may_read_offsets()).then_some(self.core.offsets_at),
            (!self.core.holdings.is_empty()).then(|| self.session_end()),
            self.core.holdings.next_deadline(),
        ];
        if matches!(self.phase, Phase::Ended) { None } else { in_time.into_iter().flatten().min() }
    }

    fn interest(&self) -> BTreeSet<Topic> {
        let mut topics: BTreeSet<Topic> = self.core.topics().into_iter().collect();
        topics.extend(self.led.iter().flat_map(BTreeMap::keys).cloned());
        if let Phase::Leading { members, .. } = &self.phase {
            topics.extend(members.iter().flat_map(|member| member.subscription.topics.iter().cloned()));
        }
        topics
    }

    /// The leader divides again when the number of partitions of a topic of the group has changed. A topic that is
    /// missing from metadata for a while is no change: giving its partitions up would help nobody.
    fn metadata(&mut self, now: Instant, topics: &Topics) {
        self.core.match_topics(topics);
        for topic in self.interest() {
            if let Some(known) = topics.get(&topic) {
                self.racks.learn(&topic, &known.racks);
                self.counts.insert(topic, known.partitions);
            }
        }
        for (topic, by) in self.led.iter_mut().flatten().filter(|(_, by)| **by == UNKNOWN_COUNT) {
            *by = self.counts.get(topic).copied().unwrap_or(UNKNOWN_COUNT);
        }
        if matches!(self.phase, Phase::Leading { .. })
            && self.interest().iter().all(|topic| self.counts.contains_key(topic))
        {
            self.divide();
        }
        self.tick(now);
    }

    fn resolved(&mut self, now: Instant) {
        self.divide();
        self.tick(now);
    }

    fn leave(&mut self, now: Instant) {
        self.core.holdings.lose_all();
        self.core.calls.clear();
        let nothing_to_say = self.member_id.is_empty() || self.core.config.instance_id.is_some();
        self.phase = if nothing_to_say || self.has_ended() { Phase::Ended } else { Phase::Leaving };
        self.tick(now);
    }

    fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// `None` also between JoinGroup and SyncGroup, when the coordinator would refuse it.
    fn committer(&self) -> Option<Identity> {
        let may = matches!(self.phase, Phase::Stable | Phase::Out(_) | Phase::Joining);
        (may && self.generation >= 0 && self.core.coordinator == Coordinator::Known).then(|| self.identity())
    }
}

#[cfg(test)]
#[path = "tests/machine.rs"]
mod tests;
