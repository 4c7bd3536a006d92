//! Which partitions does an incremental fetch mean? Fetch sessions of one broker (KIP-227).

use std::collections::{BTreeMap, BTreeSet};

use super::code;

/// What a client wants of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// From this offset.
    pub offset: i64,
    /// At most this many bytes.
    pub max_bytes: i32,
    /// The leader epoch the client knows, −1 for none.
    pub leader_epoch: i32,
    /// Epoch of the last record fetched, −1 for none.
    pub last_fetched_epoch: i32,
}

/// How a topic is named in a session: by id since version 13, by name before. One of them is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopicKey {
    /// All zero when names are used.
    pub id: [u8; 16],
    /// Empty when ids are used.
    pub name: String,
}

/// What the client was last told about a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// High watermark.
    pub high_watermark: i64,
    /// Log start.
    pub start: i64,
}

#[derive(Clone, Debug)]
struct Slot {
    wanted: Wanted,
    told: Option<Told>,
}

#[derive(Clone, Debug)]
struct Session {
    /// Epoch that the next request must carry.
    next_epoch: i32,
    by_id: bool,
    slots: BTreeMap<(TopicKey, i32), Slot>,
    /// The order in which partitions are served; those that gave data go to the end.
    order: Vec<(TopicKey, i32)>,
    used: u64,
}

/// A fetch as its session completes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Session to name in the answer, 0 for none.
    pub session: i32,
    /// Whether the answer leaves out partitions that have nothing new.
    pub incremental: bool,
    /// In the order to serve them.
    pub partitions: Vec<(TopicKey, i32, Wanted, Option<Told>)>,
}

/// The sessions of one broker.
#[derive(Debug, Default)]
pub struct Sessions {
    sessions: BTreeMap<i32, Session>,
    clock: u64,
    bound: usize,
}

/// One partition of a request.
pub type Listed = (TopicKey, i32, Wanted);

impl Sessions {
    /// At most `bound` sessions.
    #[must_use]
    pub fn new(bound: usize) -> Sessions {
        Sessions { sessions: BTreeMap::new(), clock: 0, bound: bound.max(1) }
    }

    /// Completes a request. `new_id` is used if it opens a session; 0 opens none.
    ///
    /// # Errors
    /// The session error to answer at the top level.
    pub fn plan(
        &mut self,
        (id, epoch): (i32, i32),
        by_id: bool,
        listed: Vec<Listed>,
        forgotten: &[(TopicKey, i32)],
        new_id: i32,
    ) -> Result<Plan, i16> {
        if epoch <= 0 {
            self.sessions.remove(&id);
            let partitions: Vec<_> =
                listed.into_iter().map(|(topic, index, wanted)| (topic, index, wanted, None)).collect();
            let session = if epoch == 0 && new_id != 0 && !partitions.is_empty() { new_id } else { 0 };
            if session != 0 {
                self.open(session, by_id, &partitions);
            }
            return Ok(Plan { session, incremental: false, partitions });
        }
        let session = self.sessions.get_mut(&id).ok_or(code::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.next_epoch != epoch {
            return Err(code::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.by_id != by_id {
            return Err(code::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        self.clock += 1;
        session.used = self.clock;
        session.next_epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        for (topic, index, wanted) in listed {
            let key = (topic, index);
            match session.slots.get_mut(&key) {
                Some(slot) => slot.wanted = wanted,
                None => {
                    session.order.push(key.clone());
                    session.slots.insert(key, Slot { wanted, told: None });
                }
            }
        }
        if !forgotten.is_empty() {
            for key in forgotten {
                session.slots.remove(key);
            }
            let slots = &session.slots;
            session.order.retain(|key| slots.contains_key(key));
        }
        let planned = |key: &(TopicKey, i32)| {
            session.slots.get(key).map(|slot| (key.0.clone(), key.1, slot.wanted, slot.told))
        };
        let partitions = session.order.iter().filter_map(planned).collect();
        Ok(Plan { session: id, incremental: true, partitions })
    }

    /// Remembers what an answer said, and moves partitions that gave data to the end.
    pub fn answered(&mut self, id: i32, said: &[(TopicKey, i32, Told, bool)]) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let mut moved = BTreeSet::new();
        for (topic, index, told, data) in said {
            let key = (topic.clone(), *index);
            if let Some(slot) = session.slots.get_mut(&key) {
                slot.told = Some(*told);
                if *data {
                    moved.insert(key);
                }
            }
        }
        if !moved.is_empty() {
            session.order.retain(|key| !moved.contains(key));
            session.order.extend(moved);
        }
    }

    /// Partitions of a session, for rules that name one.
    #[must_use]
    pub fn partitions(&self, id: i32) -> Vec<(TopicKey, i32)> {
        self.sessions.get(&id).map_or_else(Vec::new, |session| session.order.clone())
    }

    /// Whether an id is taken.
    #[must_use]
    pub fn contains(&self, id: i32) -> bool {
        self.sessions.contains_key(&id)
    }

    /// Forgets every session, as a restart does.
    pub fn clear(&mut self) {
        self.sessions.clear();
    }

    fn open(&mut self, id: i32, by_id: bool, partitions: &[(TopicKey, i32, Wanted, Option<Told>)]) {
        if self.sessions.len() >= self.bound {
            let oldest = self.sessions.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| *id);
            oldest.map(|id| self.sessions.remove(&id));
        }
        self.clock += 1;
        let mut session =
            Session { next_epoch: 1, by_id, slots: BTreeMap::new(), order: Vec::new(), used: self.clock };
        for (topic, index, wanted, _) in partitions {
            let key = (topic.clone(), *index);
            if session.slots.insert(key.clone(), Slot { wanted: *wanted, told: None }).is_none() {
                session.order.push(key);
            }
        }
        self.sessions.insert(id, session);
    }
}
