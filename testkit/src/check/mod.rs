//! Did a history keep the promises? Recorded by a test's handlers and senders, judged against the log at the end.
//!
//! The recorder numbers every note in the order it arrives, so "before" means what a user would mean by it: an offset
//! was committed after its handler had returned, a record of a key started after its elder had ended.

mod timers;
mod verdict;

pub use timers::{TimerHistory, TimerViolation, Times};
pub use verdict::{Logged, Violation};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// What a sender was told about one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Acknowledged at this offset.
    Written(i64),
    /// Certainly not in the log.
    NotWritten,
    /// Perhaps in the log.
    Unknown,
}

/// One record's place. A timer's has its time instead of an offset: −1 − its second.
pub type Place = (i32, i64);

/// One numbered note.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    Started { member: String, place: Place, key: String },
    Ended { place: Place, done: bool },
    Stored { place: Place },
    GivenUp { place: Place },
    Committed { partition: i32, offset: i64, by: String },
}

/// A member's standing in its group, as the broker sees it when a handler is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is in the group, under this member id.
    Member(String),
    /// An operator removed it and it cannot know yet: others may run what it runs.
    Evicted,
    /// It is not in the group.
    Out,
}

/// A handler call that has not ended.
#[derive(Debug)]
pub(crate) struct Call {
    member: String,
    standing: Standing,
    place: Place,
}

/// The newest commit of a partition.
#[derive(Clone, Debug)]
pub(crate) struct Latest {
    pub(crate) offset: i64,
    pub(crate) by: String,
    connection: u64,
}

/// Recorder of one run over one topic. Clones are not needed: share it behind an `Arc`.
#[derive(Debug, Default)]
pub struct History {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    stored: usize,
    pub(crate) notes: Vec<Note>,
    /// By the unique text of the record's value.
    pub(crate) sent: BTreeMap<String, (String, Told)>,
    pub(crate) running: BTreeMap<(i32, String), Vec<Call>>,
    pub(crate) online: Vec<Violation>,
    finished: BTreeSet<Place>,
    /// Of those, the ones whose handler returned well.
    well: BTreeSet<Place>,
    /// Records that a store keeps or kept: what the group committed says nothing of them.
    kept: BTreeSet<Place>,
    /// Partitions whose commit went back once, which those who began to read then cannot know.
    disturbed: BTreeSet<i32>,
    pub(crate) committed: BTreeMap<i32, Latest>,
    /// Partitions whose offset is that of a commit that had been overtaken, and the connection it came by.
    pub(crate) overtaken: BTreeMap<i32, (i64, u64)>,
    trace: u64,
}

impl Inner {
    /// FNV-1a: stable over builds, unlike the standard hasher.
    fn fold(&mut self, text: &str) {
        let start = if self.trace == 0 { 0xcbf2_9ce4_8422_2325 } else { self.trace };
        self.trace =
            text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    }
}

impl History {
    /// A handler was called. `is_over` says whether a member id is in the group no more: only then may its handler of
    /// the same key still be running.
    pub fn started(
        &self,
        member: &str,
        standing: Standing,
        place: Place,
        key: &str,
        is_over: impl Fn(&str) -> bool,
    ) {
        self.with(|inner| {
            inner.fold(&format!("start {member} {place:?}"));
            let running = inner.running.entry((place.0, key.to_owned())).or_default();
            for other in running.iter() {
                let may_both = match (&standing, &other.standing) {
                    _ if other.member == member => false,
                    (Standing::Evicted, _) | (_, Standing::Evicted | Standing::Out) => true,
                    (_, Standing::Member(id)) => is_over(id),
                };
                if !may_both {
                    inner.online.push(Violation::Overlap {
                        key: key.to_owned(),
                        first: (other.member.clone(), other.place),
                        second: (member.to_owned(), place),
                    });
                }
            }
            if let (Standing::Member(_), Some(latest)) = (&standing, inner.committed.get(&place.0))
                && place.1 < latest.offset
                && inner.well.contains(&place)
                && !inner.kept.contains(&place)
                && !inner.disturbed.contains(&place.0)
            {
                let (member, committed) = (member.to_owned(), latest.offset);
                inner.online.push(Violation::Repeated { member, place, committed });
            }
            running.push(Call { member: member.to_owned(), standing, place });
            inner.notes.push(Note::Started { member: member.to_owned(), place, key: key.to_owned() });
        });
    }

    /// A handler was called although its member says that the partition is not its own.
    pub fn started_unowned(&self, member: &str, place: Place) {
        self.with(|inner| {
            inner.online.push(Violation::StartedUnowned { member: member.to_owned(), place });
        });
    }

    /// How many records a member was given twice in one assignment, by its own count.
    pub fn rewound(&self, member: &str, records: u64) {
        if records > 0 {
            self.with(|inner| inner.online.push(Violation::Rewound { member: member.to_owned(), records }));
        }
    }

    /// A handler returned, or was dropped (`done` = false).
    pub fn ended(&self, member: &str, place: Place, key: &str, done: bool) {
        self.with(|inner| {
            if let Some(running) = inner.running.get_mut(&(place.0, key.to_owned()))
                && let Some(at) = running.iter().position(|call| call.member == member && call.place == place)
            {
                running.swap_remove(at);
            }
            inner.fold(&format!("end {member} {place:?} {done}"));
            if done && place.1 >= 0 {
                inner.finished.insert(place);
                inner.well.insert(place);
            }
            inner.notes.push(Note::Ended { place, done });
        });
    }

    /// A record was found in a failure topic, which is as good an end as any.
    pub fn buried(&self, place: Place) {
        self.with(|inner| {
            inner.fold(&format!("buried {place:?}"));
            inner.finished.insert(place);
            inner.notes.push(Note::Ended { place, done: true });
        });
    }

    /// The handler of a record failed in a way after which its member does not try it again: an end as good as any. It may
    /// come again all the same, if the member could not say so in time.
    pub fn given_up(&self, place: Place) {
        self.with(|inner| {
            inner.fold(&format!("given up {place:?}"));
            inner.finished.insert(place);
            inner.notes.push(Note::GivenUp { place });
        });
    }

    /// A store keeps a record to be handled later: its offset may be committed from now on, and it has to end well all the
    /// same.
    pub fn stored(&self, place: Place) {
        self.with(|inner| {
            inner.fold(&format!("stored {place:?}"));
            inner.stored += 1;
            inner.kept.insert(place);
            inner.notes.push(Note::Stored { place });
        });
    }

    /// Records that a store was given, each time.
    pub fn stored_records(&self) -> usize {
        self.with(|inner| inner.stored)
    }

    /// A handler was dropped before it returned, by a process that lives.
    pub fn abandoned(&self, member: &str, place: Place, key: &str) {
        self.with(|inner| {
            let running = inner.running.get(&(place.0, key.to_owned())).into_iter().flatten();
            if running.into_iter().any(|call| call.member == member && call.place == place) {
                inner.online.push(Violation::Abandoned { member: member.to_owned(), place });
            }
        });
    }

    /// A process ended without a word; its handlers are gone with it. Returns how many were running.
    pub fn killed(&self, member: &str) -> usize {
        self.with(|inner| {
            let mut gone = 0;
            for running in inner.running.values_mut() {
                let before = running.len();
                running.retain(|call| call.member != member);
                gone += before - running.len();
            }
            inner.fold(&format!("killed {member} {gone}"));
            gone
        })
    }

    /// The broker accepted a commit. Connections are numbered in the order in which they began.
    ///
    /// A member sends commits one at a time, but the broker may carry one out whose connection the member has given up,
    /// after a newer one of the member's next connection. Neither can help that. So a commit may go back behind one of
    /// the same member that came by a *later* connection, and only if a commit that does not go back follows by another
    /// connection: one that goes on was not given up.
    pub fn committed(&self, partition: i32, offset: i64, by: &str, connection: u64) {
        self.with(|inner| {
            inner.fold(&format!("commit {partition} {offset} {by}"));
            let latest = Latest { offset, by: by.to_owned(), connection };
            match inner.committed.get(&partition) {
                Some(before)
                    if offset < before.offset && before.by == by && connection < before.connection =>
                {
                    inner.overtaken.insert(partition, (offset, connection));
                    inner.disturbed.insert(partition);
                }
                before => {
                    let before = before.map_or(0, |before| before.offset);
                    let late = inner.overtaken.remove(&partition).filter(|late| late.1 == connection);
                    let lowest = late.map_or(offset, |late| late.0.min(offset));
                    if lowest < before {
                        let by = by.to_owned();
                        inner.online.push(Violation::CommittedBackwards {
                            partition,
                            before,
                            offset: lowest,
                            by,
                        });
                    }
                    inner.committed.insert(partition, latest);
                }
            }
            inner.notes.push(Note::Committed { partition, offset, by: by.to_owned() });
        });
    }

    /// A send ended. `value` is unique in the run.
    pub fn sent(&self, value: &str, key: &str, told: Told) {
        self.with(|inner| {
            inner.fold(&format!("sent {value} {told:?}"));
            inner.sent.insert(value.to_owned(), (key.to_owned(), told));
        });
    }

    /// Handlers running now, over all members.
    pub fn running(&self) -> usize {
        self.with(|inner| inner.running.values().map(Vec::len).sum())
    }

    /// Handlers of one member running now.
    pub fn running_of(&self, member: &str) -> usize {
        self.with(|inner| inner.running.values().flatten().filter(|call| call.member == member).count())
    }

    /// Records that ended well at least once.
    pub fn done(&self) -> usize {
        self.with(|inner| inner.finished.len())
    }

    /// Handler calls of records that had already ended well: what a user sees as duplicates.
    pub fn repeated(&self) -> usize {
        self.with(|inner| {
            let mut finished = BTreeSet::new();
            let mut repeated = 0;
            for note in &inner.notes {
                match note {
                    // A timer may be scheduled for the same second again.
                    Note::Started { place, .. } | Note::Ended { place, .. } if place.1 < 0 => {}
                    Note::Ended { place, done: true, .. } => drop(finished.insert(*place)),
                    Note::Started { place, .. } if finished.contains(place) => repeated += 1,
                    _ => {}
                }
            }
            repeated
        })
    }

    /// A number that two equal runs share and two different ones do not.
    pub fn trace(&self) -> u64 {
        self.with(|inner| inner.trace)
    }

    /// Everything that broke a promise, judged against what the log holds now.
    pub fn verdict(&self, log: &[Logged]) -> Vec<Violation> {
        self.with(|inner| verdict::judge(inner, log))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
