//! What does a member of a classic group do next?
//!
//! ```text
//!            found            MEMBER_ID_REQUIRED: again
//!   Out ───────────────▶ Joining ───────────────▶ Leading (we divide) ──▶ Syncing ──▶ Stable
//!    ▲                      └──────── follower ──────────────────────────────▲           │
//!    └──── rebalance, lost membership, coordinator gone, partitions to give up ◀─────────┘
//! ```
//!
//! Inputs are answers, the clock, acknowledgements and metadata; outputs are [`Effect`]s. Nothing here waits. Beside
//! the phase runs what does not depend on it: heartbeats while there is a generation, offsets of new partitions,
//! revocations until their acknowledgement or deadline, and the session: when no heartbeat sent within the session
//! timeout was answered, everything is lost at once.
//!
//! `calls.rs` holds the vocabulary, `answers.rs` what each answer means, `holdings.rs` the partitions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use prosody_base::{Instant, Rng};

use super::calls::{Asked, Call, CallId, Coordinator, Effect, Identity, Pending, Phase};
use super::holdings::Holdings;
use crate::error::Error;
use crate::group::config::GroupConfig;
use crate::group::event::AssignmentEpoch;
use crate::group::outbox::Notice;
use crate::group::subscription::Subscription;
use crate::types::{Topic, TopicPartition};

/// Wait after an answer that only a person can change.
pub(super) const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// How long a leader waits for metadata of topics only others read before it divides what it knows.
pub(crate) const LEADER_PATIENCE: Duration = Duration::from_secs(5);

/// Time from an assignment to the first heartbeat. A cooperative rebalance has a second round as soon as partitions
/// were given up, and heartbeats are how members hear of it: with the usual interval alone, moved partitions would rest
/// for seconds.
pub(super) const FIRST_BEAT: Duration = Duration::from_millis(100);
/// The count of a topic that the leader has not seen yet: its first appearance is no change.
pub(super) const UNKNOWN_COUNT: i32 = -1;

/// One member of one classic group.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) config: GroupConfig,
    pub(super) rng: Rng,
    pub(super) backoff: (Duration, Duration),
    pub(super) phase: Phase,
    pub(super) coordinator: Coordinator,
    pub(super) finding: u64,
    pub(super) member_id: String,
    /// The generation we joined; −1 when we are in none.
    pub(super) generation: i32,
    /// The generation in which we were given what we hold.
    pub(super) held_generation: i32,
    pub(super) holdings: Holdings,
    /// What the last JoinGroup said we own.
    pub(super) claimed: BTreeSet<TopicPartition>,
    /// The last assignment kept something from us that we claimed: join again once it is given up (KIP-429).
    pub(super) rejoin_when_drained: bool,
    pub(super) calls: BTreeMap<CallId, Pending>,
    next_call: u64,
    /// Send time of the newest request that proved our membership.
    pub(super) alive: Instant,
    /// Send time of the newest request that was answered while no rebalance was running: one may run since.
    pub(super) calm: Instant,
    pub(super) next_heartbeat: Instant,
    /// Wait after the next heartbeat: short after an assignment, then growing to the configured interval.
    pub(super) beat: Duration,
    pub(super) offsets_at: Instant,
    /// Failures since the last success of membership, and of reading offsets.
    pub(super) attempts: u32,
    pub(super) offset_attempts: u32,
    /// Known partition counts of the topics in question.
    pub(super) counts: BTreeMap<Topic, i32>,
    /// The counts we divided by as leader; a difference means another division.
    pub(super) led: Option<BTreeMap<Topic, i32>>,
    pub(super) out: VecDeque<Effect>,
}

impl Machine {
    pub(crate) fn new(config: GroupConfig, backoff: (Duration, Duration), rng: Rng, now: Instant) -> Machine {
        Machine {
            config: config.checked(),
            rng,
            backoff,
            phase: Phase::Out(now),
            coordinator: Coordinator::Unknown(now),
            finding: 0,
            member_id: String::new(),
            generation: -1,
            held_generation: -1,
            holdings: Holdings::default(),
            claimed: BTreeSet::new(),
            rejoin_when_drained: false,
            calls: BTreeMap::new(),
            next_call: 0,
            alive: now,
            calm: now,
            next_heartbeat: now,
            beat: FIRST_BEAT,
            offsets_at: now,
            attempts: 0,
            offset_attempts: 0,
            counts: BTreeMap::new(),
            led: None,
            out: VecDeque::new(),
        }
    }

    /// Does whatever is due. Every input ends with it; call it when [`Machine::deadline`] has come.
    pub(crate) fn tick(&mut self, now: Instant) {
        for ticket in self.holdings.overdue(now) {
            self.holdings.finish(ticket);
        }
        self.check_session(now);
        if matches!(self.phase, Phase::Ended) {
            return;
        }
        let drained = self.rejoin_when_drained && self.holdings.is_drained();
        if matches!(self.phase, Phase::Stable) && (drained || self.is_divided_by_old_counts()) {
            self.rejoin(now);
        }
        if matches!(self.phase, Phase::Leading { until, .. } if until <= now) {
            self.divide();
        }
        match self.coordinator {
            Coordinator::Unknown(at) if at <= now => {
                self.coordinator = Coordinator::Finding;
                self.out.push_back(Effect::Find);
            }
            Coordinator::Known => self.send_what_is_due(now),
            Coordinator::Unknown(_) | Coordinator::Finding => {}
        }
    }

    /// When [`Machine::tick`] has something to do although nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let known = self.coordinator == Coordinator::Known;
        let in_time = [
            match self.coordinator {
                Coordinator::Unknown(at) => Some(at),
                _ => None,
            },
            match self.phase {
                Phase::Out(at) if known && self.may_join() => Some(at),
                Phase::Leading { until, .. } => Some(until),
                _ => None,
            },
            (known && self.may_heartbeat()).then_some(self.next_heartbeat),
            (known && self.may_read_offsets()).then_some(self.offsets_at),
            (!self.holdings.is_empty()).then(|| self.session_end()),
            self.holdings.next_deadline(),
        ];
        if matches!(self.phase, Phase::Ended) { None } else { in_time.into_iter().flatten().min() }
    }

    /// The next thing to do.
    pub(crate) fn effect(&mut self) -> Option<Effect> {
        self.out.pop_front()
    }

    /// The coordinator was found, or not.
    pub(crate) fn found(&mut self, now: Instant, result: Result<(), Error>) {
        if self.coordinator == Coordinator::Finding {
            match result {
                Ok(()) => {
                    self.finding += 1;
                    self.coordinator = Coordinator::Known;
                }
                Err(why) => {
                    let pause = self.pause_after(&why);
                    self.coordinator = Coordinator::Unknown(now + pause);
                }
            }
        }
        self.tick(now);
    }

    /// A revocation was carried out.
    pub(crate) fn acknowledged(&mut self, now: Instant, ticket: u64) {
        self.holdings.finish(ticket);
        self.tick(now);
    }

    /// Topics whose partition counts matter to this member.
    pub(crate) fn interest(&self) -> BTreeSet<Topic> {
        let mut topics: BTreeSet<Topic> = self.config.topics.iter().cloned().collect();
        topics.extend(self.led.iter().flat_map(BTreeMap::keys).cloned());
        if let Phase::Leading { members, .. } = &self.phase {
            topics.extend(members.iter().flat_map(|member| member.subscription.topics.iter().cloned()));
        }
        topics
    }

    /// Metadata changed. `count` says how many partitions a topic has, `None` when that is not known.
    ///
    /// The leader divides again when the number of partitions of a topic of the group has changed. A topic that is
    /// missing from metadata for a while is no change: giving its partitions up would help nobody.
    pub(crate) fn metadata(&mut self, now: Instant, count: impl Fn(&str) -> Option<i32>) {
        for topic in self.interest() {
            if let Some(known) = count(&topic) {
                self.counts.insert(topic, known);
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

    /// Everything that can be known about the topics of [`Effect::Resolve`] is known.
    pub(crate) fn resolved(&mut self, now: Instant) {
        self.divide();
        self.tick(now);
    }

    /// Leaves the group. [`Machine::has_ended`] says when that is done. Whoever leaves has drained and committed.
    pub(crate) fn leave(&mut self, now: Instant) {
        self.holdings.lose_all();
        self.calls.clear();
        let nothing_to_say = self.member_id.is_empty() || self.config.instance_id.is_some();
        self.phase = if nothing_to_say || self.has_ended() { Phase::Ended } else { Phase::Leaving };
        self.tick(now);
    }

    /// Whether an answer to this request would still be listened to.
    pub(crate) fn is_open(&self, id: CallId) -> bool {
        self.calls.contains_key(&id)
    }

    /// Whether this member is over: left, or fenced.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Who a commit may be sent as; `None` while the coordinator is not known or would refuse it because the group is
    /// between JoinGroup and SyncGroup.
    pub(crate) fn committer(&self) -> Option<Identity> {
        let may = matches!(self.phase, Phase::Stable | Phase::Out(_) | Phase::Joining);
        (may && self.generation >= 0 && self.coordinator == Coordinator::Known).then(|| self.identity())
    }

    /// The epoch in which the reader got the partition, while it has it.
    pub(crate) fn owned_since(&self, partition: &TopicPartition) -> Option<AssignmentEpoch> {
        self.holdings.announced(partition)
    }

    fn send_what_is_due(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Out(at) if at <= now) && self.may_join() {
            self.join(now);
        }
        if let Phase::Syncing(shares) = &mut self.phase
            && let Some((protocol, assignments)) = shares.take()
        {
            let (member_id, generation) = (self.member_id.clone(), self.generation);
            self.send(now, Asked::Sync, Call::Sync { member_id, generation, protocol, assignments });
        }
        if self.may_heartbeat() && self.next_heartbeat <= now {
            self.next_heartbeat = now + self.config.heartbeat_interval.min(self.beat);
            self.beat = self.beat.saturating_mul(2);
            let call = Call::Heartbeat { member_id: self.member_id.clone(), generation: self.generation };
            self.send(now, Asked::Heartbeat, call);
        }
        if self.may_read_offsets() && self.offsets_at <= now {
            let (asked, partitions) = self.holdings.fetching();
            self.send(now, Asked::Offsets(asked), Call::Offsets { partitions });
        }
        if matches!(self.phase, Phase::Leaving) && self.calls.is_empty() {
            self.send(now, Asked::Leave, Call::Leave { member_id: self.member_id.clone() });
        }
    }

    fn join(&mut self, now: Instant) {
        let owned = self.holdings.claims();
        self.claimed = owned.iter().cloned().collect();
        self.rejoin_when_drained = false;
        self.led = None;
        let generation = (self.held_generation >= 0).then_some(self.held_generation);
        let topics = self.config.topics.clone();
        let rack = self.config.client_rack.clone();
        let metadata = Subscription { topics, owned, generation, rack }.encode();
        self.phase = Phase::Joining;
        self.send(now, Asked::Join, Call::Join { member_id: self.member_id.clone(), metadata });
    }

    pub(super) fn tell(&mut self, notice: Notice) {
        self.out.push_back(Effect::Tell(notice));
    }

    pub(super) fn send(&mut self, now: Instant, asked: Asked, call: Call) {
        self.next_call += 1;
        let id = CallId(self.next_call);
        self.calls.insert(id, Pending { asked, sent: now, identity: self.identity() });
        self.out.push_back(Effect::Send { id, call });
    }

    pub(super) fn resolve(&mut self, topics: Vec<Topic>) {
        self.out.push_back(Effect::Resolve(topics));
    }

    pub(super) fn identity(&self) -> Identity {
        Identity { member_id: self.member_id.clone(), generation: self.generation, finding: self.finding }
    }

    fn may_join(&self) -> bool {
        !self.config.is_eager() || self.holdings.is_empty()
    }

    fn may_heartbeat(&self) -> bool {
        let member = self.generation >= 0 && !matches!(self.phase, Phase::Leaving | Phase::Ended);
        member && !self.calls.values().any(|call| matches!(call.asked, Asked::Heartbeat))
    }

    fn may_read_offsets(&self) -> bool {
        self.holdings.wants_offsets()
            && !self.calls.values().any(|call| matches!(call.asked, Asked::Offsets(_)))
    }
}

#[cfg(test)]
#[path = "tests/machine.rs"]
mod tests;
