//! Who is in a group, and in which generation? The classic group protocol as a pure machine.
//!
//! Events and the time go in, answers come out: each JoinGroup or SyncGroup has a token, and an [`Effect`] answers it,
//! at once or later. Covers dynamic members (KIP-394), static members (KIP-345, KIP-814), several protocols, session
//! and rebalance timeouts. The cooperative protocol lives in the clients; nothing here depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use prosody_base::Instant;

use super::member::{Identity, Member};
use crate::broker::code;

/// Names a JoinGroup or SyncGroup that is not answered yet.
pub type Token = u64;

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No members.
    Empty,
    /// Members are asked to join.
    PreparingRebalance,
    /// Joined; the leader computes the assignment.
    CompletingRebalance,
    /// Everyone has an assignment.
    Stable,
}

impl State {
    /// The protocol's name of the state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::PreparingRebalance => "PreparingRebalance",
            State::CompletingRebalance => "CompletingRebalance",
            State::Stable => "Stable",
        }
    }
}

/// A JoinGroup.
#[derive(Clone, Debug)]
pub struct Join {
    /// Answered under this name.
    pub token: Token,
    /// Empty for a member that has no id yet.
    pub member_id: String,
    /// The id to give to a member that has none.
    pub new_id: String,
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// For descriptions.
    pub client_id: String,
    /// For descriptions.
    pub client_host: String,
    /// Without a heartbeat for this long a member is removed.
    pub session_timeout: Duration,
    /// A rebalance waits this long for the member.
    pub rebalance_timeout: Duration,
    /// `consumer`, for consumers.
    pub protocol_type: String,
    /// Assignors by preference, with the member's metadata for each.
    pub protocols: Vec<(String, Bytes)>,
    /// Whether a member without an id must come again with the one it is given (version 4 and later).
    pub needs_id: bool,
    /// Whether the answer can say that no assignment is wanted of a leader (version 9 and later).
    pub can_skip: bool,
}

/// The answer to a JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// 0 when joined.
    pub error: i16,
    /// −1 with an error.
    pub generation: i32,
    /// Chosen assignor.
    pub protocol: Option<String>,
    /// Member id of the leader.
    pub leader: String,
    /// The member's own id.
    pub member_id: String,
    /// Every member, for the leader only: id, instance, metadata.
    pub members: Vec<(String, Option<String>, Bytes)>,
    /// The leader need not compute an assignment.
    pub skip_assignment: bool,
}

/// A SyncGroup.
#[derive(Clone, Debug)]
pub struct Sync {
    /// Answered under this name.
    pub token: Token,
    /// The member.
    pub member_id: String,
    /// Its instance, if static.
    pub instance: Option<String>,
    /// Its generation.
    pub generation: i32,
    /// What the client believes, since version 5.
    pub protocol: Option<String>,
    /// From the leader: member id → assignment.
    pub assignments: BTreeMap<String, Bytes>,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answers a JoinGroup.
    Joined(Token, Box<Joined>),
    /// Answers a SyncGroup: error code and assignment.
    Synced(Token, i16, Bytes),
    /// A generation has its assignments: member id → assignment.
    Assigned(i32, BTreeMap<String, Bytes>),
}

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

    /// A static member came back under its instance: it takes over the old member's place with a new id.
    fn replace_static(&mut self, old: &str, join: Join, now: Instant, out: &mut Vec<Effect>) {
        let Some(mut member) = self.members.remove(old) else { return };
        let id = join.new_id.clone();
        self.fence(&mut member, old, out);
        let before = self.protocol.as_deref().and_then(|protocol| member.metadata(protocol));
        member.update(&join);
        member.heard(now);
        let after = self.protocol.as_deref().and_then(|protocol| member.metadata(protocol));
        if let Some(instance) = &join.instance {
            self.instances.insert(instance.clone(), id.clone());
        }
        let was_leader = self.leader.as_deref() == Some(old);
        if was_leader {
            self.leader = Some(id.clone());
        }
        self.joins += 1;
        member.joined_at = self.joins;
        let unchanged = before == after && self.chosen().as_deref() == self.protocol.as_deref();
        self.members.insert(id.clone(), member);
        match self.state {
            State::Stable if unchanged => {
                let mut joined = self.joined(&id, was_leader && join.can_skip);
                joined.skip_assignment = was_leader && join.can_skip;
                if was_leader && !join.can_skip {
                    // An old client must not believe that it leads: it would wait for an assignment of its own.
                    joined.leader = old.to_owned();
                }
                self.persist();
                out.push(Effect::Joined(join.token, Box::new(joined)));
                return;
            }
            State::Stable | State::CompletingRebalance => {
                self.wait_for_join(&id, join.token);
                self.prepare(now, out);
            }
            State::Empty | State::PreparingRebalance => self.wait_for_join(&id, join.token),
        }
        self.try_complete(now, out);
    }

    fn wait_for_join(&mut self, id: &str, token: Token) {
        if let Some(member) = self.members.get_mut(id) {
            member.join = Some(token);
        }
    }

    fn fence(&self, member: &mut Member, id: &str, out: &mut Vec<Effect>) {
        if let Some(token) = member.join.take() {
            out.push(Effect::Joined(token, Box::new(Joined::error(code::FENCED_INSTANCE_ID, id.to_owned()))));
        }
        if let Some(token) = member.sync.take() {
            out.push(Effect::Synced(token, code::FENCED_INSTANCE_ID, Bytes::new()));
        }
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

    /// Time passed.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let before = (self.members.len(), self.pending.len());
        self.pending.retain(|_, expires| *expires > now);
        let expired = |(id, member): (&String, &Member)| member.expired(now).then(|| id.clone());
        let mut gone: BTreeSet<String> = self.members.iter().filter_map(expired).collect();
        if self.sync_deadline.is_some_and(|deadline| deadline <= now) {
            self.sync_deadline = None;
            gone.extend(self.members.iter().filter(|(_, member)| !member.synced).map(|(id, _)| id.clone()));
        }
        for id in &gone {
            self.remove(id, out);
        }
        if self.rebalance_deadline.is_some_and(|deadline| deadline <= now) {
            self.complete(now, out);
        } else if before != (self.members.len(), self.pending.len()) {
            if gone.is_empty() {
                self.try_complete(now, out);
            } else {
                self.after_removal(now, out);
            }
        }
    }

    /// Another broker took the group over: it knows only the last complete generation, and no request that waits.
    pub fn relocate(&mut self, now: Instant, out: &mut Vec<Effect>) {
        for (id, member) in &mut self.members {
            if let Some(token) = member.join.take() {
                out.push(Effect::Joined(token, Box::new(Joined::error(code::NOT_COORDINATOR, id.clone()))));
            }
            if let Some(token) = member.sync.take() {
                out.push(Effect::Synced(token, code::NOT_COORDINATOR, Bytes::new()));
            }
        }
        let kept = self.persisted.clone();
        self.members = kept.members;
        self.generation = kept.generation;
        self.leader = kept.leader;
        self.protocol = kept.protocol;
        self.pending.clear();
        self.rebalance_deadline = None;
        self.sync_deadline = None;
        self.initial = false;
        self.state = if self.members.is_empty() { State::Empty } else { State::Stable };
        self.instances.clear();
        for (id, member) in &mut self.members {
            member.heard(now);
            member.instance.as_ref().map(|instance| self.instances.insert(instance.clone(), id.clone()));
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

    fn prepare(&mut self, now: Instant, out: &mut Vec<Effect>) {
        for member in self.members.values_mut() {
            if let Some(token) = member.sync.take() {
                out.push(Effect::Synced(token, code::REBALANCE_IN_PROGRESS, Bytes::new()));
            }
        }
        self.initial = self.state == State::Empty;
        self.state = State::PreparingRebalance;
        self.sync_deadline = None;
        let patience = self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or_default();
        self.rebalance_deadline = Some(now + if self.initial { self.initial_delay } else { patience });
    }

    fn try_complete(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.state != State::PreparingRebalance {
            return;
        }
        let everyone = self.pending.is_empty() && self.members.values().all(|member| member.join.is_some());
        let in_time = self.initial && !self.initial_delay.is_zero();
        if self.members.is_empty() || (everyone && !in_time) || (self.initial && self.initial_delay.is_zero())
        {
            self.complete(now, out);
        }
    }

    /// The rebalance goes on with those who joined.
    fn complete(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.rebalance_deadline = None;
        self.initial = false;
        let late = |(id, member): (&String, &Member)| {
            (member.join.is_none() && member.instance.is_none()).then(|| id.clone())
        };
        let missing: Vec<String> = self.members.iter().filter_map(late).collect();
        for id in missing {
            self.remove(&id, out);
        }
        self.generation += 1;
        if self.members.is_empty() {
            self.state = State::Empty;
            (self.protocol, self.leader) = (None, None);
            self.persist();
            return;
        }
        if self.members.values().all(|member| member.join.is_none()) {
            // Only static members that are away: nobody could lead, so the group waits for one of them.
            self.generation -= 1;
            let patience =
                self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or_default();
            self.rebalance_deadline = Some(now + patience.max(Duration::from_millis(1)));
            return;
        }
        self.protocol = self.chosen();
        let leads = |id: &String| self.members.get(id).is_some_and(|member| member.join.is_some());
        if !self.leader.as_ref().is_some_and(leads) {
            let first = self.members.iter().filter(|(_, member)| member.join.is_some());
            self.leader = first.min_by_key(|(_, member)| member.joined_at).map(|(id, _)| id.clone());
        }
        self.state = State::CompletingRebalance;
        let patience = self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or_default();
        self.sync_deadline = Some(now + patience);
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let joined = self.joined(&id, self.leader.as_ref() == Some(&id));
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.synced = member.join.is_none();
            if let Some(token) = member.join.take() {
                member.heard(now);
                out.push(Effect::Joined(token, Box::new(joined)));
            }
        }
    }

    fn joined(&self, id: &str, with_members: bool) -> Joined {
        let entry =
            |(id, member): (&String, &Member)| (id.clone(), member.instance.clone(), self.metadata(member));
        Joined {
            error: code::NONE,
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            member_id: id.to_owned(),
            members: if with_members { self.members.iter().map(entry).collect() } else { Vec::new() },
            skip_assignment: false,
        }
    }

    fn everyone_supports(&self, protocol: &str) -> bool {
        self.members.values().all(|member| member.metadata(protocol).is_some())
    }

    /// Each member votes for its first protocol that everyone supports; ties go to the one voted for first by name.
    fn chosen(&self) -> Option<String> {
        let mut votes = BTreeMap::<&str, usize>::new();
        for member in self.members.values() {
            if let Some((name, _)) = member.protocols.iter().find(|(name, _)| self.everyone_supports(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|(name, _)| name.to_owned())
    }

    fn persist(&mut self) {
        self.persisted = Persisted {
            generation: self.generation,
            members: self.members.clone(),
            leader: self.leader.clone(),
            protocol: self.protocol.clone(),
        };
    }
}

impl Joined {
    fn error(error: i16, member_id: String) -> Joined {
        Joined {
            error,
            generation: -1,
            protocol: None,
            leader: String::new(),
            member_id,
            members: Vec::new(),
            skip_assignment: false,
        }
    }
}
