//! What does any member do, whatever protocol its group speaks? Find the coordinator, ask it, hold partitions, read their
//! offsets, wait before it tries again.
//!
//! Pure. A machine of one protocol owns a [`Core`] and adds how membership is won, kept and lost; to the driver both are
//! a [`Membership`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::time::Duration;

use prosody_base::{Instant, Rng, sabotaged};

use super::calls::{Answer, Asked, Call, CallId, Coordinator, Effect, Identity, Offsets, Pending};
use super::classic::RackSet;
use super::config::GroupConfig;
use super::event::{AssignedPartition, AssignmentEpoch};
use super::holdings::Holdings;
use super::outbox::Notice;
use super::pattern::matching;
use super::remedy::Remedy;
use crate::error::{Error, ErrorKind};
use crate::proto::ErrorCode;
use crate::types::{Topic, TopicId, TopicPartition};

/// Wait after an answer that only a person can change.
pub(crate) const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// Time from an assignment to the first heartbeat after it. Members hear of what others gave up by heartbeats: with the
/// usual interval alone, moved partitions would rest for seconds.
pub(crate) const FIRST_BEAT: Duration = Duration::from_millis(100);

/// What metadata knows of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) id: Option<TopicId>,
    pub(crate) partitions: i32,
    /// Racks of the replicas of each partition, where the cluster has racks.
    pub(crate) racks: Vec<RackSet>,
}

/// The topics that metadata knows.
pub(crate) type Topics = BTreeMap<Topic, Known>;

/// Whether it is known which topics match our patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// To be asked for, from this time on.
    Due(Instant),
    Asked,
    Known,
}

/// A member as its driver sees it.
pub(crate) trait Membership: Debug + Send {
    /// What it has in common with members of the other protocol.
    fn core(&self) -> &Core;
    /// The same, to change it.
    fn core_mut(&mut self) -> &mut Core;
    /// Does whatever is due. Every input ends with it; call it when [`Membership::deadline`] has come.
    fn tick(&mut self, now: Instant);
    /// When [`Membership::tick`] has something to do although nothing happens.
    fn deadline(&self) -> Option<Instant>;
    /// An answer came, or is known never to come. Answers to requests that were given up are ignored.
    fn answered(&mut self, now: Instant, id: CallId, result: Result<Answer, Error>);
    /// A heartbeat or a commit, sent as `sender`, was refused. Says whether the sender's membership is over.
    fn member_error(&mut self, now: Instant, why: &Error, sender: &Identity) -> bool;
    /// Topics whose metadata matters to this member.
    fn interest(&self) -> BTreeSet<Topic>;
    /// Metadata changed.
    fn metadata(&mut self, now: Instant, topics: &Topics);
    /// Everything that can be known about the topics of [`Effect::Resolve`] is known.
    fn resolved(&mut self, now: Instant);
    /// [`Effect::Look`] was carried out, or could not be.
    fn looked(&mut self, now: Instant, ok: bool) {
        self.core_mut().looked(now, ok);
        self.tick(now);
    }
    /// Leaves the group. [`Membership::has_ended`] says when that is done. Whoever leaves has drained and committed.
    fn leave(&mut self, now: Instant);
    /// Whether this member is over: left, or fenced.
    fn has_ended(&self) -> bool;
    /// Who a commit may be sent as; `None` while it would be refused.
    fn committer(&self) -> Option<Identity>;

    /// The coordinator was found, or not.
    fn found(&mut self, now: Instant, result: Result<(), Error>) {
        self.core_mut().found(now, result);
        self.tick(now);
    }

    /// A revocation was carried out.
    fn acknowledged(&mut self, now: Instant, ticket: u64) {
        self.core_mut().holdings.finish(ticket);
        self.tick(now);
    }
}

/// What members of both protocols have in common.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) config: GroupConfig,
    /// Topics that exist and match our patterns, sorted.
    pub(super) matched: Vec<Topic>,
    look: Look,
    has_looked: bool,
    pub(super) rng: Rng,
    pub(super) backoff: (Duration, Duration),
    pub(super) coordinator: Coordinator,
    pub(super) finding: u64,
    pub(super) holdings: Holdings,
    pub(super) calls: BTreeMap<CallId, Pending>,
    next_call: u64,
    /// Send time of the newest request that proved our membership.
    pub(super) alive: Instant,
    pub(super) offsets_at: Instant,
    /// Failures since the last success of membership, and of reading offsets.
    pub(super) attempts: u32,
    pub(super) offset_attempts: u32,
    pub(super) out: VecDeque<Effect>,
}

impl Core {
    pub(crate) fn new(config: GroupConfig, backoff: (Duration, Duration), rng: Rng, now: Instant) -> Core {
        Core {
            config: config.checked(),
            matched: Vec::new(),
            look: Look::Due(now),
            has_looked: false,
            rng,
            backoff,
            coordinator: Coordinator::Unknown(now),
            finding: 0,
            holdings: Holdings::default(),
            calls: BTreeMap::new(),
            next_call: 0,
            alive: now,
            offsets_at: now,
            attempts: 0,
            offset_attempts: 0,
            out: VecDeque::new(),
        }
    }

    /// For the member of the other protocol that takes this one's place: who the coordinator is, and nothing of what was
    /// asked or held.
    pub(super) fn successor(&mut self) -> Core {
        Core {
            config: self.config.clone(),
            matched: self.matched.clone(),
            rng: self.rng.clone(),
            holdings: Holdings::default(),
            calls: BTreeMap::new(),
            offset_attempts: 0,
            out: std::mem::take(&mut self.out),
            ..*self
        }
    }

    /// The next thing to do.
    pub(crate) fn effect(&mut self) -> Option<Effect> {
        self.out.pop_front()
    }

    /// Whether an answer to this request would still be listened to.
    pub(crate) fn is_open(&self, id: CallId) -> bool {
        self.calls.contains_key(&id)
    }

    /// The epoch in which the reader got the partition, while it has it.
    pub(crate) fn owned_since(&self, partition: &TopicPartition) -> Option<AssignmentEpoch> {
        self.holdings.announced(partition)
    }

    /// What we subscribe to, sorted, each once.
    pub(super) fn topics(&self) -> Vec<Topic> {
        let mut topics: Vec<Topic> = self.config.topics.iter().chain(&self.matched).cloned().collect();
        topics.sort_unstable();
        topics.dedup();
        topics
    }

    /// Takes up which topics match now.
    pub(super) fn match_topics(&mut self, topics: &Topics) {
        if !self.config.patterns.is_empty() {
            self.matched = matching(&self.config.patterns, topics.keys());
        }
    }

    /// Whether it is known which topics match. Asks when it is time. Members ask before they join, so that one new topic
    /// does not cause a rebalance for each of them that hears of it.
    pub(super) fn knows_topics(&mut self, now: Instant) -> bool {
        if matches!(self.look, Look::Due(at) if at <= now) && !self.config.patterns.is_empty() {
            self.look = Look::Asked;
            self.out.push_back(Effect::Look);
        }
        self.topics_known(now).is_some_and(|at| at <= now)
    }

    /// When something that is due `at` and needs to know the topics can be done; `None` while an answer is waited for.
    pub(super) fn topics_known(&self, at: Instant) -> Option<Instant> {
        match self.look {
            _ if self.config.patterns.is_empty() => Some(at),
            Look::Due(due) => Some(at.max(due)),
            Look::Asked => None,
            Look::Known => Some(at),
        }
    }

    /// Before the next join the topics are looked at again.
    pub(super) fn look_again(&mut self, now: Instant) {
        self.look = Look::Due(now);
    }

    /// Who has seen the topics once makes do with that when there is no answer.
    fn looked(&mut self, now: Instant, ok: bool) {
        self.has_looked |= ok;
        self.look = if self.has_looked { Look::Known } else { Look::Due(now + REFUSED_PAUSE) };
    }

    pub(super) fn tell(&mut self, notice: Notice) {
        self.out.push_back(Effect::Tell(notice));
    }

    pub(super) fn send(&mut self, now: Instant, asked: Asked, call: Call, identity: Identity) {
        self.next_call += 1;
        let id = CallId(self.next_call);
        self.calls.insert(id, Pending { asked, sent: now, identity });
        self.out.push_back(Effect::Send { id, call });
    }

    /// Takes up an assignment and asks the reader for what has to be given up, until `deadline`.
    pub(super) fn reconcile(&mut self, now: Instant, assigned: Vec<TopicPartition>, deadline: Instant) {
        self.offsets_at = now;
        if let Some((ticket, partitions)) = self.holdings.reconcile(assigned, deadline) {
            self.tell(Notice::Revoke { ticket, partitions, deadline });
        }
    }

    /// What we held is somebody else's.
    pub(super) fn lose(&mut self, why: Error) {
        let partitions = self.holdings.lose_all();
        if !partitions.is_empty() {
            self.tell(Notice::Lost { partitions, why });
        }
    }

    pub(super) fn finish_overdue(&mut self, now: Instant) {
        for ticket in self.holdings.overdue(now) {
            self.holdings.finish(ticket);
        }
    }

    fn found(&mut self, now: Instant, result: Result<(), Error>) {
        if self.coordinator != Coordinator::Finding {
            return;
        }
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

    /// Looks for the coordinator when it is time. Says whether it is known.
    pub(super) fn knows_coordinator(&mut self, now: Instant) -> bool {
        if matches!(self.coordinator, Coordinator::Unknown(at) if at <= now) {
            self.coordinator = Coordinator::Finding;
            self.out.push_back(Effect::Find);
        }
        self.coordinator == Coordinator::Known
    }

    /// When to look for the coordinator.
    pub(super) fn find_at(&self) -> Option<Instant> {
        match self.coordinator {
            Coordinator::Unknown(at) => Some(at),
            _ => None,
        }
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

    /// A time after the last sign of life that the coordinator may know of.
    pub(super) fn silent_for(&self, time: Duration) -> Instant {
        let sessions = if sabotaged("group-session-expiry") { 100 } else { 1 };
        self.alive + time * sessions
    }

    pub(super) fn silence(&self, session: Duration) -> Error {
        let group = &self.config.group_id;
        let doing =
            format!("staying in group {group}: no heartbeat sent in the last {session:?} was answered");
        Error::new(doing, ErrorKind::Timeout)
    }

    pub(super) fn may_read_offsets(&self) -> bool {
        self.holdings.wants_offsets()
            && !self.calls.values().any(|call| matches!(call.asked, Asked::Offsets(_)))
    }

    /// Offsets came. Announces the partitions whose offsets are known; an error of any is handed back.
    pub(super) fn offsets(
        &mut self,
        now: Instant,
        asked: u64,
        result: Result<Offsets, Error>,
    ) -> Option<Error> {
        let rows = match result {
            Ok(rows) => rows,
            Err(_) if sabotaged("group-offset-error") => {
                self.holdings.fetching().1.into_iter().map(|tp| (tp, Ok(None))).collect()
            }
            Err(why) => return Some(why),
        };
        let mut known = Vec::new();
        let mut failed = None;
        for (tp, offset) in rows {
            if !self.holdings.is_waiting(&tp, asked) {
                continue;
            }
            match offset {
                Ok(committed) => known.push(AssignedPartition { tp, committed }),
                Err(why) => failed = Some(why),
            }
        }
        if !known.is_empty() {
            let epoch = self.holdings.own(known.iter().map(|one| &one.tp));
            self.tell(Notice::Assigned { epoch, partitions: known });
        }
        if failed.is_none() {
            self.offset_attempts = 0;
            // What the answer left out is asked for again, but not in a tight loop.
            let left_out = self.holdings.is_waiting_since(asked);
            self.offsets_at = if left_out { now + REFUSED_PAUSE } else { now };
        }
        failed
    }

    /// No error ever means "nothing committed": the partition waits until its offset is known.
    pub(super) fn offsets_failed(&mut self, now: Instant, why: &Error, sender: &Identity) {
        self.offset_attempts = self.offset_attempts.saturating_add(1);
        let mut pause = self.backoff_after(self.offset_attempts);
        match Remedy::of(why) {
            Remedy::Find if sabotaged("offset-fetch-again") => pause = Duration::from_secs(3_600),
            Remedy::Find => {
                let _ = self.lose_coordinator(now, sender.finding);
            }
            Remedy::Report => {
                self.tell(Notice::Failed(why.clone()));
                pause = REFUSED_PAUSE;
            }
            _ => {}
        }
        self.offsets_at = now + pause;
    }
}
