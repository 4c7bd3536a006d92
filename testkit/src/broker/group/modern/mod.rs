//! Who is in a group of the new protocol (KIP-848), in which epoch, and what may it read? A pure machine.
//!
//! The coordinator divides: every change of members, subscriptions or topics makes a new group epoch and with it a new
//! target assignment. A member walks from what it has to its target: it is told what to give up, keeps its epoch until it
//! no longer reports it, then gets the target's epoch with what others have released.
//!
//! Regular expressions are matched at every heartbeat; Kafka does it in the background. Epochs survive a move of the
//! coordinator, as they do in Kafka, where they are in the offsets topic.

mod assign;
mod beat;
mod member;
#[cfg(test)]
mod model;
mod reconcile;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prosody_base::Instant;

pub use self::assign::Assignor;
pub use self::beat::{Beat, Beaten};
use self::beat::{check, compile};
pub use self::member::{Member, Standing};
use crate::broker::code;

/// Topic id and partition.
pub type Place = ([u8; 16], i32);
/// Partitions.
pub type Places = BTreeSet<Place>;
/// Topic → its id and number of partitions.
pub type Catalog = BTreeMap<String, ([u8; 16], i32)>;
/// Why a heartbeat is refused: the error code, and what it is about.
pub type Refusal = (i16, String);

/// The epoch by which a member joins.
const JOIN: i32 = 0;
/// The epoch by which a static member says that it will be back.
const LEAVE_STATIC: i32 = -2;
/// Times of a group, as its settings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A member not heard of for this long is removed.
    pub session: Duration,
    /// What members are told to keep between heartbeats.
    pub heartbeat: Duration,
}

/// One group.
#[derive(Clone, Debug)]
pub struct Group {
    epoch: i32,
    target_epoch: i32,
    target: BTreeMap<String, Places>,
    members: BTreeMap<String, Member>,
    instances: BTreeMap<String, String>,
    /// Topics of the subscriptions as they were when the epoch last changed.
    topics: Catalog,
    bound: usize,
}

impl Group {
    /// An empty group of at most `bound` members. Its epochs are above `epoch`, the generation of the classic group it
    /// was before.
    #[must_use]
    pub fn new(epoch: i32, bound: usize) -> Group {
        Group {
            epoch,
            target_epoch: epoch,
            target: BTreeMap::new(),
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            topics: Catalog::new(),
            bound,
        }
    }

    /// Its epoch, and that of its target assignment.
    #[must_use]
    pub fn epochs(&self) -> (i32, i32) {
        (self.epoch, self.target_epoch)
    }

    /// Its members by id.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    /// What a member shall have in the end.
    #[must_use]
    pub fn target(&self, member: &str) -> Places {
        self.target.get(member).cloned().unwrap_or_default()
    }

    /// The state's name in the protocol.
    #[must_use]
    pub fn state(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if self.epoch > self.target_epoch {
            "Assigning"
        } else if self
            .members
            .values()
            .any(|member| member.standing != Standing::Stable || member.epoch != self.target_epoch)
        {
            "Reconciling"
        } else {
            "Stable"
        }
    }

    /// The assignor most members ask for; the first of equals.
    #[must_use]
    pub fn assignor(&self) -> Assignor {
        let votes = |one: &Assignor| {
            self.members.values().filter(|member| member.assignor.as_deref() == Some(one.name())).count()
        };
        if votes(&Assignor::Range) > votes(&Assignor::Uniform) { Assignor::Range } else { Assignor::Uniform }
    }

    /// When [`Group::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.members.values().flat_map(|member| [Some(member.expires), member.revoke_by]).flatten().min()
    }

    /// Time passed: members that were silent, or held on to what they should have given up, are removed.
    pub fn tick(&mut self, now: Instant) {
        let is_over = |member: &Member| member.expires <= now || member.revoke_by.is_some_and(|by| by <= now);
        let gone: Vec<String> =
            self.members.iter().filter(|(_, member)| is_over(member)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            self.remove(&id);
        }
    }

    /// Another broker took the group over: every session begins anew.
    pub fn relocate(&mut self, now: Instant, session: Duration) {
        for member in self.members.values_mut() {
            member.expires = now + session;
        }
    }

    /// A heartbeat.
    ///
    /// # Errors
    /// The error code to answer and what it is about.
    pub fn heartbeat(
        &mut self,
        beat: Beat,
        catalog: &Catalog,
        times: Times,
        now: Instant,
    ) -> Result<Beaten, Refusal> {
        check(&beat)?;
        if beat.epoch < JOIN {
            return self.leave(&beat, now, times);
        }
        let before = if beat.epoch == JOIN { self.admit(&beat, now)? } else { self.known(&beat)? };
        let id = beat.member_id.clone();
        let Some(member) = self.members.get_mut(&id) else { return Err(unknown(&id)) };
        member.expires = now + times.session;
        let changed = member.update(&beat) | before.is_none();
        let topics = self.wanted(catalog);
        if changed || topics != self.topics {
            self.epoch += 1;
            self.topics = topics;
        }
        if self.epoch > self.target_epoch {
            self.target = assign::assign(self.assignor(), &self.members, &self.topics, &self.target);
            self.target_epoch = self.epoch;
        }
        self.reconcile(&id, beat.owned.as_ref(), now);
        let Some(member) = self.members.get(&id) else { return Err(unknown(&id)) };
        let news = beat.is_full() || before.is_none_or(|before| before != member.assigned);
        Ok(Beaten { epoch: member.epoch, assignment: news.then(|| member.assigned.clone()) })
    }

    /// Whether a member may commit offsets now.
    ///
    /// # Errors
    /// The error code to answer for every partition.
    pub fn commit(&self, member_id: &str, epoch: i32) -> Result<(), i16> {
        if epoch < 0 && self.members.is_empty() {
            return Ok(());
        }
        let member = self.members.get(member_id).ok_or(code::UNKNOWN_MEMBER_ID)?;
        if member.epoch == epoch { Ok(()) } else { Err(code::STALE_MEMBER_EPOCH) }
    }

    /// Whether a member, or somebody from outside, may read offsets now.
    ///
    /// # Errors
    /// The error code to answer.
    pub fn read(&self, member_id: Option<&str>, epoch: i32) -> Result<(), i16> {
        match member_id {
            None => Ok(()),
            Some("") if epoch < 0 => Ok(()),
            Some(id) => match self.members.get(id) {
                None => Err(code::UNKNOWN_MEMBER_ID),
                Some(member) if member.epoch != epoch => Err(code::STALE_MEMBER_EPOCH),
                Some(_) => Ok(()),
            },
        }
    }

    /// Who holds a partition, or has not released it yet.
    #[must_use]
    pub fn holder(&self, place: &Place) -> Option<&str> {
        let holds = |member: &Member| member.assigned.contains(place) || member.revoking.contains(place);
        self.members.iter().find(|(_, member)| holds(member)).map(|(id, _)| id.as_str())
    }

    /// Removes a member, as an operator may.
    pub fn remove(&mut self, id: &str) -> bool {
        let Some(member) = self.members.remove(id) else { return false };
        self.target.remove(id);
        self.epoch += 1;
        if let Some(instance) = &member.instance
            && self.instances.get(instance).is_some_and(|holder| holder == id)
        {
            self.instances.remove(instance);
        }
        true
    }

    /// A member joins. Returns what it held, when it is known already or takes the place of a static member.
    fn admit(&mut self, beat: &Beat, now: Instant) -> Result<Option<Places>, Refusal> {
        let id = &beat.member_id;
        if let Some(instance) = &beat.instance
            && let Some(holder) = self.instances.get(instance).cloned()
        {
            let left = self.members.get(&holder).is_some_and(|member| member.epoch == LEAVE_STATIC);
            if !left {
                let why = format!("instance {instance} is still held by member {holder}");
                return Err((code::UNRELEASED_INSTANCE_ID, why));
            }
            if let Some(mut member) = self.members.remove(&holder) {
                (member.epoch, member.previous) = (JOIN, JOIN);
                let held = member.assigned.clone();
                self.members.insert(id.clone(), member);
                self.instances.insert(instance.clone(), id.clone());
                if let Some(target) = self.target.remove(&holder) {
                    self.target.insert(id.clone(), target);
                }
                return Ok(Some(held));
            }
        }
        if let Some(member) = self.members.get(id) {
            member.check_epoch(beat)?;
            return Ok(Some(member.assigned.clone()));
        }
        if self.members.len() >= self.bound {
            let why = format!("the group has {} members already", self.bound);
            return Err((code::GROUP_MAX_SIZE_REACHED, why));
        }
        if let Some(instance) = &beat.instance {
            self.instances.insert(instance.clone(), id.clone());
        }
        self.members.insert(id.clone(), Member::new(beat, self.epoch, now));
        Ok(None)
    }

    /// A member that is in goes on. Returns what it held.
    fn known(&self, beat: &Beat) -> Result<Option<Places>, Refusal> {
        self.check_instance(beat)?;
        let member = self.members.get(&beat.member_id).ok_or_else(|| unknown(&beat.member_id))?;
        member.check_epoch(beat)?;
        Ok(Some(member.assigned.clone()))
    }

    fn check_instance(&self, beat: &Beat) -> Result<(), Refusal> {
        let Some(instance) = &beat.instance else { return Ok(()) };
        match self.instances.get(instance) {
            None => Err((code::UNKNOWN_MEMBER_ID, format!("no static member {instance}"))),
            Some(holder) if *holder != beat.member_id => {
                Err((code::FENCED_INSTANCE_ID, format!("instance {instance} belongs to member {holder}")))
            }
            Some(_) => Ok(()),
        }
    }

    fn leave(&mut self, beat: &Beat, now: Instant, times: Times) -> Result<Beaten, Refusal> {
        self.check_instance(beat)?;
        let Some(member) = self.members.get_mut(&beat.member_id) else {
            return Err(unknown(&beat.member_id));
        };
        if beat.epoch == LEAVE_STATIC {
            // Its partitions wait for its return.
            member.epoch = LEAVE_STATIC;
            member.expires = now + times.session;
            member.revoke_by = None;
        } else {
            self.remove(&beat.member_id);
        }
        Ok(Beaten { epoch: beat.epoch, assignment: None })
    }

    /// The topics that members want, of those that exist. Remembers for each member which they are.
    fn wanted(&mut self, catalog: &Catalog) -> Catalog {
        let mut all = Catalog::new();
        for member in self.members.values_mut() {
            let matches = |name: &String| member.matcher.as_ref().is_some_and(|regex| regex.is_match(name));
            let wants = |name: &&String| member.topics.contains(*name) || matches(name);
            let wanted: BTreeSet<String> = catalog.keys().filter(wants).cloned().collect();
            for name in &wanted {
                all.extend(catalog.get(name).map(|topic| (name.clone(), *topic)));
            }
            member.wanted = wanted;
        }
        all
    }
}

fn unknown(id: &str) -> Refusal {
    (code::UNKNOWN_MEMBER_ID, format!("no member {id}"))
}
