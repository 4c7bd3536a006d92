//! Which promise was broken, by which record? The rules behind [`History::verdict`](super::History::verdict).

use std::collections::BTreeMap;
use std::fmt;

use super::{Inner, Latest, Note, Place, Told};

/// One record of the log, as the test reads it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Partition and offset.
    pub place: Place,
    /// Its key.
    pub key: String,
    /// Its value, unique in the run.
    pub value: String,
}

/// A broken promise. The text is what a failing run prints.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields say who and where; Display says the rest")]
pub enum Violation {
    Lost { place: Place, key: String },
    OutOfOrder { key: String, started: Place, before: Place, member: String },
    Overlap { key: String, first: (String, Place), second: (String, Place) },
    StartedUnowned { member: String, place: Place },
    Rewound { member: String, records: u64 },
    Abandoned { member: String, place: Place },
    Repeated { member: String, place: Place, committed: i64 },
    CommittedBackwards { partition: i32, before: i64, offset: i64, by: String },
    CommittedUnfinished { partition: i32, committed: i64, unfinished: i64, by: String },
    SendMissing { value: String, offset: i64 },
    SendDoubled { value: String, places: Vec<Place> },
    SendDenied { value: String, place: Place },
    SendsReordered { key: String, earlier: Place, later: Place },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Lost { place, key } => write!(f, "lost: {place:?} of key {key} never ended well"),
            Violation::OutOfOrder { key, started, before, member } => {
                write!(f, "order: {member} started {started:?} of key {key} before {before:?} had ended")
            }
            Violation::Overlap { key, first, second } => {
                write!(f, "overlap: key {key} ran at once in {first:?} and {second:?}")
            }
            Violation::StartedUnowned { member, place } => {
                write!(f, "ownership: {member} started {place:?} of a partition it had given up")
            }
            Violation::Rewound { member, records } => {
                write!(f, "reading: {member} was given {records} records twice in one assignment")
            }
            Violation::Abandoned { member, place } => {
                write!(f, "drain: {member} abandoned the handler of {place:?}, which had time left")
            }
            Violation::Repeated { member, place, committed } => {
                write!(
                    f,
                    "repeat: {member} started {place:?} again, which had ended and was committed ({committed})"
                )
            }
            Violation::CommittedBackwards { partition, before, offset, by } => {
                write!(f, "commit: {by} committed {partition}@{offset} after {before}")
            }
            Violation::CommittedUnfinished { partition, committed, unfinished, by } => {
                write!(f, "commit: {by} committed {partition}@{committed} while {unfinished} had not ended")
            }
            Violation::SendMissing { value, offset } => {
                write!(f, "send: {value} was acknowledged at {offset} and is not there")
            }
            Violation::SendDoubled { value, places } => {
                write!(f, "send: {value} is in the log at {places:?}")
            }
            Violation::SendDenied { value, place } => {
                write!(f, "send: {value} was reported as not written and is at {place:?}")
            }
            Violation::SendsReordered { key, earlier, later } => {
                write!(
                    f,
                    "send: key {key} has a later send at {later:?} before an earlier one at {earlier:?}"
                )
            }
        }
    }
}

/// Most violations a verdict lists; a broken run breaks many promises and the first ones tell the story.
const LISTED: usize = 32;

pub(super) fn judge(inner: &Inner, log: &[Logged]) -> Vec<Violation> {
    let first_end = first_ends(&inner.notes);
    let mut found = inner.online.clone();
    found.extend(losses(log, &first_end));
    found.extend(disorder(&inner.notes, log, &first_end));
    found.extend(early_commits(&inner.notes, log, &first_end));
    found.extend(unrepaired(inner));
    found.extend(sends(inner, log));
    found.truncate(LISTED);
    found
}

/// When each record first ended well, as the index of the note.
fn first_ends(notes: &[Note]) -> BTreeMap<Place, usize> {
    let mut first = BTreeMap::new();
    for (at, note) in notes.iter().enumerate() {
        if let Note::Ended { place, done: true, .. } | Note::GivenUp { place } = note {
            first.entry(*place).or_insert(at);
        }
    }
    first
}

fn losses(log: &[Logged], first_end: &BTreeMap<Place, usize>) -> Vec<Violation> {
    log.iter()
        .filter(|record| !first_end.contains_key(&record.place))
        .map(|record| Violation::Lost { place: record.place, key: record.key.clone() })
        .collect()
}

/// A call may start only when every earlier record of its key in its partition has ended well.
fn disorder(notes: &[Note], log: &[Logged], first_end: &BTreeMap<Place, usize>) -> Vec<Violation> {
    let mut elders: BTreeMap<(i32, &str), Vec<Place>> = BTreeMap::new();
    for record in log {
        elders.entry((record.place.0, &record.key)).or_default().push(record.place);
    }
    let mut found = Vec::new();
    for (at, note) in notes.iter().enumerate() {
        let Note::Started { member, place, key } = note else { continue };
        let of_key = elders.get(&(place.0, key.as_str())).map_or(&[][..], Vec::as_slice);
        let early = of_key
            .iter()
            .find(|elder| elder.1 < place.1 && first_end.get(*elder).is_none_or(|ended| *ended > at));
        if let Some(before) = early {
            found.push(Violation::OutOfOrder {
                key: key.clone(),
                started: *place,
                before: *before,
                member: member.clone(),
            });
        }
    }
    found
}

/// A commit may pass only records that had ended well by then, or that a store keeps.
fn early_commits(notes: &[Note], log: &[Logged], first_end: &BTreeMap<Place, usize>) -> Vec<Violation> {
    let mut first_end = first_end.clone();
    for (at, note) in notes.iter().enumerate() {
        if let Note::Stored { place } = note {
            let first = first_end.entry(*place).or_insert(at);
            *first = at.min(*first);
        }
    }
    let mut found = Vec::new();
    for (at, note) in notes.iter().enumerate() {
        let Note::Committed { partition, offset, by } = note else { continue };
        let early = log.iter().find(|record| {
            record.place.0 == *partition
                && record.place.1 < *offset
                && first_end.get(&record.place).is_none_or(|ended| *ended > at)
        });
        if let Some(record) = early {
            found.push(Violation::CommittedUnfinished {
                partition: *partition,
                committed: *offset,
                unfinished: record.place.1,
                by: by.clone(),
            });
        }
    }
    found
}

/// A commit that went back because it had been overtaken is followed by one that did not.
fn unrepaired(inner: &Inner) -> impl Iterator<Item = Violation> {
    inner.overtaken.iter().filter_map(|(partition, (offset, _))| {
        let Latest { offset: before, by, .. } = inner.committed.get(partition)?.clone();
        Some(Violation::CommittedBackwards { partition: *partition, before, offset: *offset, by })
    })
}

/// Acknowledged once means there once; denied means absent; one key's sends keep their order (values end in a number).
fn sends(inner: &Inner, log: &[Logged]) -> Vec<Violation> {
    let mut places: BTreeMap<&str, Vec<Place>> = BTreeMap::new();
    for record in log {
        places.entry(&record.value).or_default().push(record.place);
    }
    let twice = places.iter().filter(|(_, there)| there.len() > 1);
    let mut found: Vec<_> = twice
        .map(|(value, there)| Violation::SendDoubled { value: (*value).to_owned(), places: there.clone() })
        .collect();
    for (value, (_, told)) in &inner.sent {
        let there = places.get(value.as_str()).map_or(&[][..], Vec::as_slice);
        match (told, there.first()) {
            (Told::Written(offset), None) => {
                found.push(Violation::SendMissing { value: value.clone(), offset: *offset });
            }
            (Told::Written(offset), Some(place)) if place.1 != *offset => {
                found.push(Violation::SendMissing { value: value.clone(), offset: *offset });
            }
            (Told::NotWritten, Some(place)) => {
                found.push(Violation::SendDenied { value: value.clone(), place: *place });
            }
            _ => {}
        }
    }
    let mut last: BTreeMap<(i32, &str), (u64, Place)> = BTreeMap::new();
    for record in log {
        let Some(number) = record.value.rsplit('-').next().and_then(|digits| digits.parse().ok()) else {
            continue;
        };
        let entry = last.entry((record.place.0, &record.key)).or_insert((number, record.place));
        if entry.0 > number {
            found.push(Violation::SendsReordered {
                key: record.key.clone(),
                earlier: record.place,
                later: entry.1,
            });
        }
        *entry = (number.max(entry.0), record.place);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{History, Standing};
    use super::*;

    fn log(entries: &[(i64, &str, &str)]) -> Vec<Logged> {
        let logged = |(offset, key, value): &(i64, &str, &str)| Logged {
            place: (0, *offset),
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        };
        entries.iter().map(logged).collect()
    }

    fn is(member: &str) -> Standing {
        Standing::Member(member.to_owned())
    }

    fn run(history: &History, member: &str, offset: i64, key: &str) {
        history.started(member, is(member), (0, offset), key, |_| false);
        history.ended(member, (0, offset), key, true);
    }

    #[test]
    fn a_repeat_is_counted_and_condemned_once_it_was_committed() {
        let history = History::default();
        history.sent("v-1", "a", Told::Written(0));
        run(&history, "m1", 0, "a");
        run(&history, "m2", 0, "a");
        assert_eq!((history.repeated(), history.verdict(&log(&[(0, "a", "v-1")]))), (1, vec![]));
        history.committed(0, 1, "m1", 1);
        run(&history, "m2", 0, "a");
        assert_eq!(history.repeated(), 2);
        let found = history.verdict(&log(&[(0, "a", "v-1")]));
        assert!(matches!(found[..], [Violation::Repeated { place: (0, 0), committed: 1, .. }]), "{found:?}");
    }

    #[test]
    fn each_broken_promise_is_named() {
        let history = History::default();
        history.sent("v-1", "a", Told::NotWritten);
        history.sent("v-9", "a", Told::Written(9));
        history.started("m1", is("m1"), (0, 1), "a", |_| false);
        history.started("m2", is("m2"), (0, 0), "a", |_| false);
        history.committed(0, 2, "m1", 1);
        history.committed(0, 1, "m1", 1);
        history.abandoned("m2", (0, 0), "a");
        history.abandoned("m2", (0, 7), "a");
        history.started_unowned("m1", (0, 1));
        history.rewound("m1", 0);
        history.rewound("m2", 3);
        history.ended("m1", (0, 1), "a", true);
        let verdict = history.verdict(&log(&[(0, "a", "v-2"), (1, "a", "v-1"), (2, "b", "v-2")]));
        let has = |wanted: fn(&Violation) -> bool| assert!(verdict.iter().any(wanted), "{verdict:?}");
        has(|v| matches!(v, Violation::Lost { place: (0, 0), .. }));
        has(|v| matches!(v, Violation::OutOfOrder { started: (0, 1), before: (0, 0), .. }));
        has(|v| matches!(v, Violation::Overlap { .. }));
        has(|v| matches!(v, Violation::CommittedUnfinished { committed: 2, unfinished: 0, .. }));
        has(|v| matches!(v, Violation::CommittedBackwards { before: 2, offset: 1, .. }));
        has(|v| matches!(v, Violation::Abandoned { place: (0, 0), .. }));
        has(|v| matches!(v, Violation::StartedUnowned { place: (0, 1), .. }));
        has(|v| matches!(v, Violation::Rewound { records: 3, .. }));
        has(|v| matches!(v, Violation::SendMissing { offset: 9, .. }));
        has(|v| matches!(v, Violation::SendDoubled { .. }));
        has(|v| matches!(v, Violation::SendDenied { place: (0, 1), .. }));
        has(|v| matches!(v, Violation::SendsReordered { .. }));
    }

    #[test]
    fn a_commit_may_go_back_when_a_later_connection_overtook_it_and_another_follows() {
        let verdict = |commits: &[(i64, &str, u64)]| {
            let history = History::default();
            commits
                .iter()
                .for_each(|(offset, by, connection)| history.committed(0, *offset, by, *connection));
            history.verdict(&[])
        };
        let back = |before, offset, by: &str| {
            vec![Violation::CommittedBackwards { partition: 0, before, offset, by: by.to_owned() }]
        };
        assert_eq!(verdict(&[(5, "m", 2), (3, "m", 1), (5, "m", 2)]), []);
        assert_eq!(verdict(&[(5, "m", 2), (3, "m", 1)]), back(5, 3, "m"), "nobody commits it again");
        assert_eq!(verdict(&[(5, "m", 2), (3, "m", 1), (4, "m", 2)]), back(5, 4, "m"));
        assert_eq!(verdict(&[(5, "m", 2), (3, "m", 1), (5, "m", 1)]), back(5, 3, "m"), "it is in use");
        for (by, connection) in [("m", 2), ("m", 3), ("n", 1)] {
            assert_eq!(verdict(&[(5, "m", 2), (3, by, connection), (5, by, 4)]), back(5, 3, by));
        }
    }

    #[test]
    fn a_record_in_the_failure_topic_has_ended_well_from_then_on() {
        let (early, late) = (History::default(), History::default());
        for history in [&early, &late] {
            history.started("m1", is("m1"), (0, 0), "a", |_| false);
            history.ended("m1", (0, 0), "a", false);
        }
        early.committed(0, 1, "m1", 1);
        early.buried((0, 0));
        late.buried((0, 0));
        late.committed(0, 1, "m1", 1);
        let log = log(&[(0, "a", "v-1")]);
        assert!(matches!(early.verdict(&log)[..], [Violation::CommittedUnfinished { unfinished: 0, .. }]));
        assert_eq!((late.verdict(&log), late.done()), (vec![], 1));
    }

    #[test]
    fn a_record_that_a_store_keeps_may_be_committed_and_must_still_end_well() {
        let log = log(&[(0, "a", "s-0"), (1, "b", "s-1")]);
        let history = History::default();
        history.stored((0, 0));
        run(&history, "m", 1, "b");
        history.committed(0, 2, "m", 1);
        let found = history.verdict(&log);
        assert_eq!(found, [Violation::Lost { place: (0, 0), key: "a".to_owned() }]);
        run(&history, "m", 0, "a");
        assert_eq!(history.verdict(&log), []);
        assert_eq!(history.stored_records(), 1);
    }

    #[test]
    fn an_evicted_member_may_still_be_running_and_a_killed_one_is_not() {
        let history = History::default();
        history.started("m1", is("m1"), (0, 0), "a", |_| false);
        history.started("m2", is("m2"), (0, 0), "a", |life| life == "m1");
        history.started("m3", Standing::Evicted, (0, 0), "a", |_| false);
        history.ended("m3", (0, 0), "a", false);
        assert_eq!(history.killed("m1"), 1);
        history.ended("m2", (0, 0), "a", true);
        assert_eq!(history.verdict(&log(&[(0, "a", "v-1")])), vec![]);
        assert_eq!(history.running(), 0);
    }
}
