//! How do requests meet their group? One lock per group, answers through one-shot channels, one task for timeouts.

pub mod machine;
mod member;
#[cfg(test)]
mod model;
pub mod modern;
mod offsets;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use prosody_base::Instant;
use tokio::sync::{Notify, oneshot};

use self::machine::{Effect, Group, Join, Joined, Sync, Token};
pub use self::member::{Identity, Member};
pub(crate) use self::offsets::Committed;
pub use self::offsets::CommittedOffset;
use super::code;
use super::invariants::Owners;
use super::state::Shared;
use super::topics::lock;

#[derive(Debug)]
enum Waiting {
    Join(oneshot::Sender<Box<Joined>>),
    Sync(oneshot::Sender<(i16, Bytes)>),
}

/// One group: its machine, who waits, what is committed.
#[derive(Debug)]
pub(crate) struct Cell {
    /// The classic group; without members while `modern` is there.
    pub(crate) machine: Group,
    /// The group of the new protocol, once a member of it has joined. It ends when a classic member joins it empty.
    pub(crate) modern: Option<modern::Group>,
    pub(crate) offsets: BTreeMap<(Arc<str>, i32), Committed>,
    pub(crate) owners: Owners,
    waiting: BTreeMap<Token, Waiting>,
}

impl Cell {
    pub(crate) fn is_empty(&self) -> bool {
        let modern = self.modern.as_ref().is_none_or(|group| group.members().is_empty());
        modern && self.machine.members().is_empty()
    }

    fn deadline(&self) -> Option<Instant> {
        earlier(self.machine.deadline(), self.modern.as_ref().and_then(modern::Group::deadline))
    }

    /// Whether classic members may join: there is no member of the new protocol.
    pub(crate) fn turn_classic(&mut self) -> Result<(), i16> {
        match &self.modern {
            Some(group) if !group.members().is_empty() => Err(code::INCONSISTENT_GROUP_PROTOCOL),
            Some(group) => {
                self.machine.continue_after(group.epochs().0);
                self.modern = None;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The group of the new protocol; a classic group becomes one when it has no members.
    pub(crate) fn turn_modern(&mut self, bound: usize) -> Result<&mut modern::Group, modern::Refusal> {
        if self.modern.is_none() && !self.machine.members().is_empty() {
            return Err((
                code::GROUP_ID_NOT_FOUND,
                "the group has members of the classic protocol".to_owned(),
            ));
        }
        Ok(self.modern.get_or_insert_with(|| modern::Group::new(self.machine.generation(), bound)))
    }

    /// Whether a member may commit offsets now, by the rules of the group's protocol.
    pub(crate) fn commit(&mut self, who: Identity<'_>, epoch: i32, now: Instant) -> Result<(), i16> {
        match &self.modern {
            Some(group) => group.commit(who.member_id, epoch),
            None => self.machine.commit(who, epoch, now),
        }
    }
}

/// A group as a test sees it.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// `classic`, or `consumer` for the new protocol.
    pub protocol: &'static str,
    /// `Empty` or `Stable`; in between `PreparingRebalance` and `CompletingRebalance`, or `Assigning` and `Reconciling`.
    pub state: &'static str,
    /// Its generation, or group epoch.
    pub generation: i32,
    /// Members by id.
    pub members: BTreeMap<String, MemberView>,
    /// Committed offsets.
    pub offsets: BTreeMap<(Arc<str>, i32), CommittedOffset>,
}

/// A member as a test sees it.
#[derive(Clone, Debug)]
pub struct MemberView {
    /// The client's name for itself.
    pub client_id: String,
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// Where it says it runs; classic members tell only each other.
    pub rack: Option<String>,
    /// The generation, or the member's own epoch.
    pub epoch: i32,
    /// Tells a member of the new protocol from one that had its id and left; 0 for classic members, whose ids are given
    /// once.
    pub since: i32,
    /// How long a rebalance waits for it.
    pub rebalance_timeout: Duration,
}

/// Every group of a cluster.
#[derive(Debug)]
pub(crate) struct Coordinator {
    groups: Mutex<BTreeMap<String, Arc<Mutex<Cell>>>>,
    next_token: AtomicU64,
    /// Deadline the timeout task sleeps for.
    planned: Mutex<Option<Instant>>,
    replan: Notify,
    initial_delay: Duration,
    groups_bound: usize,
    members_bound: usize,
    /// Group → its settings that differ from the cluster's.
    settings: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
}

impl Coordinator {
    pub(crate) fn new(initial_delay: Duration, groups_bound: usize, members_bound: usize) -> Coordinator {
        Coordinator {
            groups: Mutex::default(),
            next_token: AtomicU64::new(1),
            planned: Mutex::default(),
            replan: Notify::new(),
            initial_delay,
            groups_bound,
            members_bound,
            settings: Mutex::default(),
        }
    }

    /// Settings of a group that differ from the cluster's.
    pub(crate) fn settings(&self, group: &str) -> BTreeMap<String, String> {
        lock(&self.settings).get(group).cloned().unwrap_or_default()
    }

    /// Changes settings of a group, which need not exist; refused when too many have their own.
    pub(crate) fn set(&self, group: &str, changed: BTreeMap<String, String>) -> Result<(), i16> {
        let mut settings = lock(&self.settings);
        if settings.len() >= self.groups_bound && !settings.contains_key(group) {
            return Err(code::INVALID_REQUEST);
        }
        settings.insert(group.to_owned(), changed);
        Ok(())
    }

    pub(crate) fn token(&self) -> Token {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    /// The group, if it exists.
    pub(crate) fn find(&self, group: &str) -> Option<Arc<Mutex<Cell>>> {
        lock(&self.groups).get(group).cloned()
    }

    /// The group, created when there is room.
    pub(crate) fn find_or_create(&self, group: &str) -> Result<Arc<Mutex<Cell>>, i16> {
        let mut groups = lock(&self.groups);
        if let Some(cell) = groups.get(group) {
            return Ok(Arc::clone(cell));
        }
        if groups.len() >= self.groups_bound {
            return Err(code::COORDINATOR_NOT_AVAILABLE);
        }
        let cell = Arc::new(Mutex::new(Cell {
            machine: Group::new(self.initial_delay, self.members_bound),
            modern: None,
            offsets: BTreeMap::new(),
            owners: Owners::default(),
            waiting: BTreeMap::new(),
        }));
        groups.insert(group.to_owned(), Arc::clone(&cell));
        Ok(cell)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        lock(&self.groups).keys().cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<(String, Arc<Mutex<Cell>>)> {
        lock(&self.groups).iter().map(|(name, cell)| (name.clone(), Arc::clone(cell))).collect()
    }

    /// Removes a group without members.
    pub(crate) fn delete(&self, group: &str) -> i16 {
        let mut groups = lock(&self.groups);
        let Some(cell) = groups.get(group) else { return code::GROUP_ID_NOT_FOUND };
        if !lock(cell).is_empty() {
            return code::NON_EMPTY_GROUP;
        }
        groups.remove(group);
        code::NONE
    }

    pub(crate) async fn join(&self, shared: &Shared, group: &str, join: Join) -> Box<Joined> {
        let failed = |error| {
            Box::new(Joined {
                error,
                generation: -1,
                protocol: None,
                leader: String::new(),
                member_id: String::new(),
                members: Vec::new(),
                skip_assignment: false,
            })
        };
        let cell = match self.find_or_create(group) {
            Ok(cell) => cell,
            Err(error) => return failed(error),
        };
        let (answer, answered) = oneshot::channel();
        let joining = self.with(shared, group, &cell, |cell, now, out| {
            cell.turn_classic()?;
            cell.waiting.insert(join.token, Waiting::Join(answer));
            cell.machine.join(join, now, out);
            Ok(())
        });
        if let Err(error) = joining {
            return failed(error);
        }
        answered.await.unwrap_or_else(|_| failed(code::NOT_COORDINATOR))
    }

    pub(crate) async fn sync(&self, shared: &Shared, group: &str, sync: Sync) -> (i16, Bytes) {
        let Some(cell) = self.find(group) else { return (code::UNKNOWN_MEMBER_ID, Bytes::new()) };
        let (answer, answered) = oneshot::channel();
        self.with(shared, group, &cell, |cell, now, out| {
            cell.waiting.insert(sync.token, Waiting::Sync(answer));
            cell.machine.sync(sync, now, out);
        });
        answered.await.unwrap_or((code::NOT_COORDINATOR, Bytes::new()))
    }

    /// Feeds one event to a group's machine and runs its effects.
    pub(crate) fn with<T>(
        &self,
        shared: &Shared,
        group: &str,
        cell: &Mutex<Cell>,
        event: impl FnOnce(&mut Cell, Instant, &mut Vec<Effect>) -> T,
    ) -> T {
        let now = shared.doors.clock.now();
        let mut effects = Vec::new();
        let mut cell = lock(cell);
        let result = event(&mut cell, now, &mut effects);
        run(shared, group, &mut cell, effects);
        let deadline = cell.deadline();
        drop(cell);
        self.plan(deadline);
        result
    }

    fn plan(&self, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        let mut planned = lock(&self.planned);
        if planned.is_none_or(|planned| deadline < planned) {
            *planned = Some(deadline);
            self.replan.notify_one();
        }
    }

    fn tick(&self, shared: &Shared) -> Option<Instant> {
        *lock(&self.planned) = None;
        let now = shared.doors.clock.now();
        let mut next: Option<Instant> = None;
        for (group, cell) in self.all() {
            let due = lock(&cell).deadline();
            if due.is_some_and(|due| due <= now) {
                self.with(shared, &group, &cell, |cell, now, out| {
                    cell.machine.tick(now, out);
                    cell.modern.iter_mut().for_each(|modern| modern.tick(now));
                });
            }
            let due = lock(&cell).deadline();
            next = earlier(next, due);
        }
        let mut planned = lock(&self.planned);
        *planned = earlier(*planned, next);
        *planned
    }

    /// Removes the committed offsets of a topic that is deleted.
    pub(crate) fn forget_topic(&self, topic: &str) {
        for (_, cell) in self.all() {
            lock(&cell).offsets.retain(|(name, _), _| &**name != topic);
        }
    }

    /// Another broker takes a group over.
    pub(crate) fn relocate(&self, shared: &Shared, group: &str) {
        if let Some(cell) = self.find(group) {
            let session = shared.group_times(group).session;
            self.with(shared, group, &cell, |cell, now, out| {
                cell.machine.relocate(now, out);
                cell.modern.iter_mut().for_each(|modern| modern.relocate(now, session));
            });
        }
    }

    pub(crate) fn view(&self, group: &str) -> Option<GroupView> {
        let cell = self.find(group)?;
        let cell = lock(&cell);
        let (protocol, state, generation, members) = match &cell.modern {
            Some(group) => {
                let view = |(id, member): (&String, &modern::Member)| {
                    let (client_id, instance) = (member.client_id.clone(), member.instance.clone());
                    let rack = member.rack.clone();
                    let (epoch, since, rebalance_timeout) =
                        (member.epoch, member.since, member.rebalance_timeout);
                    (id.clone(), MemberView { client_id, instance, rack, epoch, since, rebalance_timeout })
                };
                let members = group.members().iter().map(view).collect();
                ("consumer", group.state(), group.epochs().0, members)
            }
            None => {
                let generation = cell.machine.generation();
                let view = |(id, member): (&String, &Member)| {
                    let (client_id, instance) = (member.client_id.clone(), member.instance.clone());
                    let (epoch, since, rebalance_timeout) = (generation, 0, member.rebalance_timeout);
                    let rack = None;
                    (id.clone(), MemberView { client_id, instance, rack, epoch, since, rebalance_timeout })
                };
                let members = cell.machine.members().iter().map(view).collect();
                ("classic", cell.machine.state().name(), generation, members)
            }
        };
        Some(GroupView {
            protocol,
            state,
            generation,
            members,
            offsets: cell.offsets.iter().map(|(key, committed)| (key.clone(), committed.public())).collect(),
        })
    }
}

fn run(shared: &Shared, group: &str, cell: &mut MutexGuard<'_, Cell>, effects: Vec<Effect>) {
    for effect in effects {
        match effect {
            Effect::Joined(token, joined) => {
                if let Some(Waiting::Join(answer)) = cell.waiting.remove(&token) {
                    let _ = answer.send(joined);
                }
            }
            Effect::Synced(token, error, assignment) => {
                if let Some(Waiting::Sync(answer)) = cell.waiting.remove(&token) {
                    let _ = answer.send((error, assignment));
                }
            }
            Effect::Assigned(generation, assignments) => {
                if cell.machine.protocol().0 == "consumer" {
                    cell.owners.assigned(group, generation, &assignments, &shared.invariants);
                }
            }
        }
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}

/// Runs timeouts until the cluster is gone.
pub(crate) async fn run_timeouts(shared: Weak<Shared>) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let clock = strong.doors.clock.clone();
        let due = strong.coordinator.tick(&strong);
        // The notified future borrows the cluster; the task itself is ended with the cluster's other tasks.
        let replanned = strong.coordinator.replan.notified();
        match due {
            Some(due) => {
                let _ = clock.until(due, replanned).await;
            }
            None => replanned.await,
        }
    }
}
