//! Who is in a group, and in which generation? The classic group protocol as a pure machine.
//!
//! Events and the time go in, answers come out: each JoinGroup or SyncGroup has a token, and an [`Effect`] answers it,
//! at once or later. Covers dynamic members (KIP-394), static members (KIP-345, KIP-814), several protocols, session
//! and rebalance timeouts. The cooperative protocol lives in the clients; nothing here depends on it.

mod events;
mod rebalance;
mod statics;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use prosody_base::Instant;

pub use self::events::{Effect, Join, Joined, State, Sync, Token};
use super::member::{Identity, Member};
use crate::broker::code;

/// What a new coordinator reads from the offsets topic: the last generation that was complete.
#[derive(Clone, Debug, Default)]
struct Persisted {
    generation: i32,
    members: BTreeMap<String, Member>,
    leader: Option<String>,
    protocol: Option<String>,
}

/// One group.
#[derive(Clone, Debug)]
pub struct Group {
    state: State,
    generation: i32,
    protocol_type: Option<String>,
    protocol: Option<String>,
    leader: Option<String>,
    members: BTreeMap<String, Member>,
    /// Ids given out by MEMBER_ID_REQUIRED, until they are used or expire.
    pending: BTreeMap<String, Instant>,
    instances: BTreeMap<String, String>,
    /// When the rebalance goes on without those who are missing.
    rebalance_deadline: Option<Instant>,
    /// The first rebalance of an empty group waits for its delay even when everyone known has joined.
    initial: bool,
    /// When members that did not sync are removed.
    sync_deadline: Option<Instant>,
    initial_delay: Duration,
    bound: usize,
    joins: u64,
    persisted: Persisted,
}

impl Group {
    /// An empty group of at most `bound` members.
    #[must_use]
    pub fn new(initial_delay: Duration, bound: usize) -> Group {
        Group {
            state: State::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            pending: BTreeMap::new(),
            instances: BTreeMap::new(),
            rebalance_deadline: None,
            initial: false,
            sync_deadline: None,
            initial_delay,
            bound,
            joins: 0,
            persisted: Persisted::default(),
        }
    }

    /// Generations go on above the epochs of the group of the new protocol that this was in between.
    pub(crate) fn continue_after(&mut self, epoch: i32) {
        self.generation = self.generation.max(epoch);
        self.persisted.generation = self.generation;
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Its generation; 0 before the first.
    #[must_use]
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// Type and name of the chosen protocol.
    #[must_use]
    pub fn protocol(&self) -> (&str, &str) {
        (self.protocol_type.as_deref().unwrap_or(""), self.protocol.as_deref().unwrap_or(""))
    }

    /// Its members by id.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    /// The member's metadata for the chosen protocol.
    #[must_use]
    pub fn metadata(&self, member: &Member) -> Bytes {
        self.protocol.as_deref().and_then(|protocol| member.metadata(protocol)).unwrap_or_default()
    }

    /// When [`Group::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let sessions = self.members.values().filter_map(Member::expires);
        let pending = self.pending.values().copied();
        sessions.chain(pending).chain(self.rebalance_deadline).chain(self.sync_deadline).min()
    }

    /// A member joins.
    pub fn join(&mut self, join: Join, now: Instant, out: &mut Vec<Effect>) {
        let (token, member_id) = (join.token, join.member_id.clone());
        if let Err(error) = self.try_join(join, now, out) {
            out.push(Effect::Joined(token, Box::new(Joined::error(error, member_id))));
        }
    }

    fn try_join(&mut self, join: Join, now: Instant, out: &mut Vec<Effect>) -> Result<(), i16> {
        let fits = self.members.is_empty()
            || (self.protocol_type.as_deref() == Some(&join.protocol_type)
                && join.protocols.iter().any(|(name, _)| self.everyone_supports(name)));
        if join.protocol_type.is_empty() || join.protocols.is_empty() || !fits {
            return Err(code::INCONSISTENT_GROUP_PROTOCOL);
        }
        let known = join.instance.as_ref().and_then(|instance| self.instances.get(instance)).cloned();
        if join.member_id.is_empty() {
            if let Some(old) = known {
                self.replace_static(&old, join, now, out);
                return Ok(());
            }
            if self.members.len() + self.pending.len() >= self.bound {
                return Err(code::GROUP_MAX_SIZE_REACHED);
            }
            if join.instance.is_none() && join.needs_id {
                self.pending.insert(join.new_id.clone(), now + join.session_timeout);
                let answer = Joined::error(code::MEMBER_ID_REQUIRED, join.new_id);
                out.push(Effect::Joined(join.token, Box::new(answer)));
                return Ok(());
            }
            let id = join.new_id.clone();
            self.add(id, join, now, out);
            return Ok(());
        }
        if join.instance.is_some() {
            match known {
                None => return Err(code::UNKNOWN_MEMBER_ID),
                Some(id) if id != join.member_id => return Err(code::FENCED_INSTANCE_ID),
                Some(_) => {}
            }
        }
        if self.pending.remove(&join.member_id).is_some() {
            let id = join.member_id.clone();
            self.add(id, join, now, out);
            return Ok(());
        }
        self.rejoin(join, now, out)
    }

    fn rejoin(&mut self, join: Join, now: Instant, out: &mut Vec<Effect>) -> Result<(), i16> {
        let is_leader = self.leader.as_deref() == Some(&join.member_id);
        let member = self.members.get_mut(&join.member_id).ok_or(code::UNKNOWN_MEMBER_ID)?;
        let same = member.protocols == join.protocols;
        let answer_now = match self.state {
            State::Empty => return Err(code::UNKNOWN_MEMBER_ID),
            State::PreparingRebalance => false,
            State::CompletingRebalance => same,
            State::Stable => same && !is_leader,
        };
        if answer_now {
            member.heard(now);
            let joined = self.joined(&join.member_id, is_leader && self.state == State::CompletingRebalance);
            out.push(Effect::Joined(join.token, Box::new(joined)));
            return Ok(());
        }
        if let Some(old) = member.join.take() {
            out.push(Effect::Joined(
                old,
                Box::new(Joined::error(code::REBALANCE_IN_PROGRESS, join.member_id.clone())),
            ));
        }
        member.update(&join);
        self.joins += 1;
        member.join = Some(join.token);
        member.joined_at = self.joins;
        if self.state != State::PreparingRebalance {
            self.prepare(now, out);
        }
        self.try_complete(now, out);
        Ok(())
    }

    fn add(&mut self, id: String, join: Join, now: Instant, out: &mut Vec<Effect>) {
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type.clone());
        }
        if let Some(instance) = &join.instance {
            self.instances.insert(instance.clone(), id.clone());
        }
        let mut member = Member::new(&join, now);
        self.joins += 1;
        member.join = Some(join.token);
        member.joined_at = self.joins;
        self.members.insert(id, member);
        if self.state == State::PreparingRebalance {
            if self.initial {
                // Each newcomer renews the initial delay, up to the rebalance timeout it brings.
                self.rebalance_deadline = Some(now + self.initial_delay);
            }
        } else {
            self.prepare(now, out);
        }
        self.try_complete(now, out);
    }

    /// A member asks for its assignment; the leader brings everyone's.
    pub fn sync(&mut self, sync: Sync, now: Instant, out: &mut Vec<Effect>) {
        let token = sync.token;
        if let Err(error) = self.try_sync(sync, now, out) {
            out.push(Effect::Synced(token, error, Bytes::new()));
        }
    }

    fn try_sync(&mut self, sync: Sync, now: Instant, out: &mut Vec<Effect>) -> Result<(), i16> {
        let who = Identity { member_id: &sync.member_id, instance: sync.instance.as_deref() };
        self.check_member(who, Some(sync.generation))?;
        if sync.protocol.is_some() && sync.protocol != self.protocol {
            return Err(code::INCONSISTENT_GROUP_PROTOCOL);
        }
        let is_leader = self.leader.as_deref() == Some(&sync.member_id);
        let member = self.members.get_mut(&sync.member_id).ok_or(code::UNKNOWN_MEMBER_ID)?;
        match self.state {
            State::Empty => Err(code::UNKNOWN_MEMBER_ID),
            State::PreparingRebalance => Err(code::REBALANCE_IN_PROGRESS),
            State::Stable => {
                member.heard(now);
                member.synced = true;
                out.push(Effect::Synced(sync.token, code::NONE, member.assignment.clone()));
                self.stop_waiting_for_syncs();
                Ok(())
            }
            State::CompletingRebalance => {
                member.heard(now);
                if let Some(old) = member.sync.replace(sync.token) {
                    out.push(Effect::Synced(old, code::REBALANCE_IN_PROGRESS, Bytes::new()));
                }
                member.synced = true;
                if is_leader {
                    self.assign(sync.assignments, now, out);
                }
                Ok(())
            }
        }
    }

    fn assign(&mut self, mut assignments: BTreeMap<String, Bytes>, now: Instant, out: &mut Vec<Effect>) {
        self.state = State::Stable;
        let mut given = BTreeMap::new();
        for (id, member) in &mut self.members {
            member.assignment = assignments.remove(id).unwrap_or_default();
            given.insert(id.clone(), member.assignment.clone());
            if let Some(token) = member.sync.take() {
                member.heard(now);
                out.push(Effect::Synced(token, code::NONE, member.assignment.clone()));
            }
        }
        self.stop_waiting_for_syncs();
        out.push(Effect::Assigned(self.generation, given));
        self.persist();
    }

    fn stop_waiting_for_syncs(&mut self) {
        if self.members.values().all(|member| member.synced) {
            self.sync_deadline = None;
        }
    }

    /// A heartbeat; the answer is an error code.
    pub fn heartbeat(&mut self, who: Identity<'_>, generation: i32, now: Instant) -> i16 {
        if let Err(error) = self.check_member(who, Some(generation)) {
            return error;
        }
        if let Some(member) = self.members.get_mut(who.member_id) {
            member.heard(now);
        }
        match self.state {
            State::Empty => code::UNKNOWN_MEMBER_ID,
            State::PreparingRebalance => code::REBALANCE_IN_PROGRESS,
            State::CompletingRebalance | State::Stable => code::NONE,
        }
    }

    /// A member leaves, or is removed by an administrator by its instance (empty member id).
    pub fn leave(&mut self, who: Identity<'_>, now: Instant, out: &mut Vec<Effect>) -> i16 {
        if self.pending.remove(who.member_id).is_some() {
            self.try_complete(now, out);
            return code::NONE;
        }
        let id = match who.instance {
            Some(instance) => match self.instances.get(instance) {
                None => return code::UNKNOWN_MEMBER_ID,
                Some(id) if !who.member_id.is_empty() && id != who.member_id => {
                    return code::FENCED_INSTANCE_ID;
                }
                Some(id) => id.clone(),
            },
            None => who.member_id.to_owned(),
        };
        if !self.members.contains_key(&id) {
            return code::UNKNOWN_MEMBER_ID;
        }
        self.remove(&id, out);
        self.after_removal(now, out);
        code::NONE
    }

    /// Whether a member may commit offsets now; refreshes its session.
    ///
    /// # Errors
    /// The error code to answer for every partition.
    pub fn commit(&mut self, who: Identity<'_>, generation: i32, now: Instant) -> Result<(), i16> {
        if generation < 0 && self.members.is_empty() {
            return Ok(());
        }
        self.check_member(who, Some(generation))?;
        if self.state == State::CompletingRebalance {
            return Err(code::REBALANCE_IN_PROGRESS);
        }
        if let Some(member) = self.members.get_mut(who.member_id) {
            member.heard(now);
        }
        Ok(())
    }

    fn check_member(&self, who: Identity<'_>, generation: Option<i32>) -> Result<(), i16> {
        if let Some(instance) = who.instance {
            match self.instances.get(instance) {
                None => return Err(code::UNKNOWN_MEMBER_ID),
                Some(id) if id != who.member_id => return Err(code::FENCED_INSTANCE_ID),
                Some(_) => {}
            }
        }
        if !self.members.contains_key(who.member_id) {
            return Err(code::UNKNOWN_MEMBER_ID);
        }
        match generation {
            Some(generation) if generation != self.generation => Err(code::ILLEGAL_GENERATION),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, id: &str, out: &mut Vec<Effect>) {
        let Some(member) = self.members.remove(id) else { return };
        if let Some(token) = member.join {
            out.push(Effect::Joined(token, Box::new(Joined::error(code::UNKNOWN_MEMBER_ID, id.to_owned()))));
        }
        if let Some(token) = member.sync {
            out.push(Effect::Synced(token, code::UNKNOWN_MEMBER_ID, Bytes::new()));
        }
        if let Some(instance) = &member.instance
            && self.instances.get(instance).is_some_and(|known| known == id)
        {
            self.instances.remove(instance);
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = None;
        }
    }

    fn after_removal(&mut self, now: Instant, out: &mut Vec<Effect>) {
        match self.state {
            State::Empty => {}
            State::Stable | State::CompletingRebalance => {
                self.prepare(now, out);
                self.try_complete(now, out);
            }
            State::PreparingRebalance => self.try_complete(now, out),
        }
    }
}
