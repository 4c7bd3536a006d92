//! How does a generation end, and the next begin?

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use prosody_base::Instant;

use super::{Effect, Group, Joined, Persisted, State};
use crate::broker::code;
use crate::broker::group::Member;

impl Group {
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

    pub(super) fn prepare(&mut self, now: Instant, out: &mut Vec<Effect>) {
        for member in self.members.values_mut() {
            if let Some(token) = member.sync.take() {
                // Its session stood still while it waited: it begins anew, or the answer would come too late.
                member.heard(now);
                out.push(Effect::Synced(token, code::REBALANCE_IN_PROGRESS, Bytes::new()));
            }
        }
        self.initial = self.state == State::Empty;
        self.state = State::PreparingRebalance;
        self.sync_deadline = None;
        let patience = self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or_default();
        self.rebalance_deadline = Some(now + if self.initial { self.initial_delay } else { patience });
    }

    pub(super) fn try_complete(&mut self, now: Instant, out: &mut Vec<Effect>) {
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
    pub(super) fn complete(&mut self, now: Instant, out: &mut Vec<Effect>) {
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

    pub(super) fn joined(&self, id: &str, with_members: bool) -> Joined {
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

    pub(super) fn everyone_supports(&self, protocol: &str) -> bool {
        self.members.values().all(|member| member.metadata(protocol).is_some())
    }

    /// Each member votes for its first protocol that everyone supports; ties go to the one voted for first by name.
    pub(super) fn chosen(&self) -> Option<String> {
        let mut votes = BTreeMap::<&str, usize>::new();
        for member in self.members.values() {
            if let Some((name, _)) = member.protocols.iter().find(|(name, _)| self.everyone_supports(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|(name, _)| name.to_owned())
    }

    pub(super) fn persist(&mut self) {
        self.persisted = Persisted {
            generation: self.generation,
            members: self.members.clone(),
            leader: self.leader.clone(),
            protocol: self.protocol.clone(),
        };
    }
}
