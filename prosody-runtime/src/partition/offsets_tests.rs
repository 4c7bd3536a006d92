use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn fresh(position: i64, leader_epoch: i32) -> Offsets {
    Offsets::new(OffsetMap::empty(None, position), leader_epoch)
}

fn run(offsets: &mut Offsets, offset: i64, leader_epoch: i32) -> Ticket {
    match offsets.register(offset, leader_epoch) {
        Registered::Runs(ticket) => ticket,
        other => panic!("{offset} does not run: {other:?}"),
    }
}

/// The next owner of a partition, as it reads what was committed.
fn next_owner(snapshot: &Snapshot) -> Offsets {
    let base = snapshot.map.base();
    let map = OffsetMap::decode(&snapshot.map.encode(), snapshot.map.topic(), base).expect("our own text");
    Offsets::new(map, snapshot.leader_epoch)
}

/// Ten records of leader epoch 3 from offset 5 on, of which 5 and 8 are not finished.
fn two_left() -> Offsets {
    let mut offsets = fresh(5, 3);
    let tickets: Vec<Ticket> = (5..15).map(|at| run(&mut offsets, at, 3)).collect();
    for ticket in tickets.into_iter().filter(|ticket| ![5, 8].contains(&ticket.offset())) {
        assert!(offsets.complete(ticket));
    }
    offsets
}

/// Elsewhere: one offset never ran, and the commit stood still behind it until a restart: a record from before a change of the
/// log was still in the slot of its offset. Here a log is truncated to 5 while record 7 runs; the new record 7 is another one.
#[test]
fn a_completion_from_before_a_reset_does_not_finish_the_new_record_of_its_offset() {
    let mut offsets = fresh(5, 1);
    let old = run(&mut offsets, 7, 1);
    offsets.reset(5, 2);
    let new = run(&mut offsets, 7, 2);
    assert!(!offsets.complete(old));
    assert_eq!(offsets.watermark(), 7);
    assert!(offsets.complete(new));
    let snapshot = offsets.uncommitted().unwrap();
    assert_eq!(snapshot, Snapshot { map: OffsetMap::empty(None, 8), leader_epoch: 2 });
}

/// Elsewhere: the committed offset and its offset map were computed at two moments. In between a record finished, the map
/// spoke of another offset than the commit, and the next owner's position jumped.
#[test]
fn watermark_and_map_are_of_one_moment() {
    let mut offsets = fresh(5, 0);
    let first = run(&mut offsets, 5, 0);
    let second = run(&mut offsets, 6, 0);
    offsets.complete(second);
    let before = offsets.uncommitted().unwrap();
    offsets.complete(first);
    let after = offsets.uncommitted().unwrap();
    assert_eq!((before.map.base(), before.map.end()), (5, 7));
    assert_eq!((after.map.base(), after.map.end()), (7, 7));
    let mixed = OffsetMap::decode(&before.map.encode(), None, after.map.base());
    assert!(mixed.is_err(), "a map of another moment than its offset is not used");
}

#[test]
fn what_changes_above_a_watermark_that_stands_still_is_committed_once() {
    let mut offsets = two_left();
    let first = offsets.uncommitted().expect("8 of 10 are finished");
    assert_eq!(first.map.base(), 5);
    offsets.committed(first);
    assert_eq!(offsets.uncommitted(), None);
    run(&mut offsets, 15, 3);
    assert_eq!(offsets.uncommitted(), None, "what is only read is no news");
    assert!(offsets.complete(Ticket { life: 0, offset: 8 }));
    assert!(offsets.uncommitted().is_some());
}

#[test]
fn with_nothing_above_the_watermark_there_is_no_map() {
    let mut offsets = two_left();
    assert!(offsets.complete(Ticket { life: 0, offset: 5 }));
    assert!(offsets.complete(Ticket { life: 0, offset: 8 }));
    let snapshot = offsets.uncommitted().unwrap();
    assert_eq!((snapshot.map.base(), snapshot.map.encode().as_str()), (15, ""));
}

#[test]
fn the_next_owner_runs_what_was_left_and_nothing_else() {
    let mut offsets = next_owner(&two_left().uncommitted().unwrap());
    assert_eq!(offsets.uncommitted(), None, "it knows nothing that the group does not");
    let runs = (5..17).filter(|at| matches!(offsets.register(*at, 3), Registered::Runs(_)));
    assert_eq!(runs.collect::<Vec<_>>(), [5, 8, 15, 16]);
    for (offset, watermark) in [(5, 8), (8, 15), (15, 16), (16, 17)] {
        assert!(offsets.complete(Ticket { life: 0, offset }));
        assert_eq!(offsets.watermark(), watermark);
    }
}

#[test]
fn an_owner_that_read_nothing_hands_on_what_it_was_told() {
    let first = two_left().uncommitted().unwrap();
    let mut second = next_owner(&first);
    assert_eq!(second.map(), first.map);
    let ticket = run(&mut second, 5, 3);
    assert!(second.complete(ticket));
    let handed_on = second.uncommitted().unwrap();
    assert_eq!((handed_on.map.base(), handed_on.map.end()), (6, 15));
    let mut third = next_owner(&handed_on);
    let runs = (6..17).filter(|at| matches!(third.register(*at, 3), Registered::Runs(_)));
    assert_eq!(runs.collect::<Vec<_>>(), [8, 15, 16]);
}

/// Elsewhere: after a position was reset to where the log begins again, the old offset was committed once more, and lag was
/// shown for ever.
#[test]
fn a_reset_forgets_what_earlier_owners_finished_from_there_on_and_moves_the_committed_offset() {
    for (to, left) in [(5, vec![5, 6, 7, 8, 9]), (7, vec![7, 8, 9]), (8, vec![8, 9])] {
        let mut offsets = next_owner(&two_left().uncommitted().unwrap());
        offsets.reset(to, -1);
        let runs = (5..10).filter(|at| matches!(offsets.register(*at, 3), Registered::Runs(_)));
        assert_eq!(runs.collect::<Vec<_>>(), left, "reset to {to}");
    }
    let mut offsets = next_owner(&two_left().uncommitted().unwrap());
    offsets.reset(2, -1);
    assert_eq!(offsets.uncommitted().map(|snapshot| snapshot.map.base()), Some(2));
    offsets.reset(40, -1);
    assert_eq!(offsets.uncommitted().map(|snapshot| snapshot.map.base()), Some(40));
}

#[test]
fn a_record_of_a_newer_leader_was_never_read_by_an_earlier_owner() {
    // The log was truncated to 10 by an unclean election, above the watermark, so that the position was right and no
    // reader saw a reset. Records 10 to 14 are new ones; the map speaks of those that are gone.
    let mut offsets = next_owner(&two_left().uncommitted().unwrap());
    let runs = |offsets: &mut Offsets, range: std::ops::Range<i64>, epoch| {
        range.filter(|at| matches!(offsets.register(*at, epoch), Registered::Runs(_))).collect::<Vec<_>>()
    };
    assert_eq!(runs(&mut offsets, 5..10, 3), [5, 8]);
    assert_eq!(runs(&mut offsets, 10..16, 4), [10, 11, 12, 13, 14, 15]);

    let mut offsets = next_owner(&two_left().uncommitted().unwrap());
    offsets.pass(11, 4);
    assert_eq!(runs(&mut offsets, 11..13, 4), [11, 12], "seen from a record that does not run, too");
}

#[test]
fn a_commit_has_the_epoch_of_its_newest_finished_record_whichever_finished_last() {
    // Record 5 of epoch 1 ran longest, the others are of the next leader. Committed with epoch 1, offset 8 looked as if
    // the log had been truncated to 6: the next owner read back and ran 6 and 7 again.
    let mut offsets = fresh(5, 1);
    let tickets = [(5, 1), (6, 2), (7, 2), (8, 2)].map(|(at, epoch)| run(&mut offsets, at, epoch));
    for at in [1, 2, 0] {
        assert!(offsets.complete(tickets[at]));
    }
    let snapshot = offsets.uncommitted().unwrap();
    assert_eq!((snapshot.map.base(), snapshot.leader_epoch), (8, 2));
}

#[derive(Clone, Debug)]
enum Step {
    Register { gap: u8, epoch: u8 },
    Pass { gap: u8 },
    Rewind { back: u8 },
    Complete { which: prop::sample::Index },
    Commit,
    Reset { to: u8 },
    HandOver,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        9 => (0..4u8, prop_oneof![9 => Just(0u8), 1 => Just(1u8)]).prop_map(|(gap, epoch)| Step::Register { gap, epoch }),
        2 => (0..6u8).prop_map(|gap| Step::Pass { gap }),
        1 => (1..9u8).prop_map(|back| Step::Rewind { back }),
        6 => any::<prop::sample::Index>().prop_map(|which| Step::Complete { which }),
        2 => Just(Step::Commit),
        1 => any::<u8>().prop_map(|to| Step::Reset { to }),
        1 => Just(Step::HandOver),
        1 => Just(Step::Crash),
    ]
}

/// What the group would give the next owner: text, offset and epoch, and what is finished by it.
#[derive(Clone)]
struct Group {
    snapshot: Snapshot,
    finished: BTreeSet<i64>,
}

/// Sets of single offsets instead of runs; finished ones stay in it over owners.
struct Model {
    offsets: Offsets,
    position: i64,
    epoch: i32,
    /// Where the leader epochs of what was read begin.
    epochs: BTreeMap<i64, i32>,
    /// Newest leader epoch of what the map of an earlier owner speaks of.
    trusted: i32,
    unfinished: BTreeMap<i64, Ticket>,
    finished: BTreeSet<i64>,
    stale: Vec<Ticket>,
    group: Group,
}

impl Model {
    fn new() -> Model {
        let map = OffsetMap::empty(None, 100);
        Model {
            offsets: Offsets::new(map.clone(), 0),
            position: 100,
            epoch: 0,
            epochs: BTreeMap::from([(99, 0)]),
            trusted: -1,
            unfinished: BTreeMap::new(),
            finished: BTreeSet::new(),
            stale: Vec::new(),
            group: Group { snapshot: Snapshot { map, leader_epoch: 0 }, finished: BTreeSet::new() },
        }
    }

    /// Something at the position was read.
    fn read(&mut self, to: i64) {
        if self.epoch > self.trusted {
            self.finished.split_off(&self.position);
        }
        self.finished.extend(self.position..to);
        self.position = to;
    }

    fn commit(&mut self) {
        if let Some(snapshot) = self.offsets.uncommitted() {
            let finished = self.finished.clone();
            self.offsets.committed(snapshot.clone());
            self.group = Group { snapshot, finished };
        }
    }

    fn next_owner(&mut self) {
        let Group { snapshot, finished } = self.group.clone();
        self.offsets = next_owner(&snapshot);
        self.position = snapshot.map.base();
        self.trusted = snapshot.map.epoch();
        self.finished = finished;
        self.epochs = BTreeMap::from([(self.position - 1, snapshot.leader_epoch)]);
        self.unfinished.clear();
        self.stale.clear();
    }

    fn play(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Register { gap, epoch } => {
                self.epoch += i32::from(epoch);
                let offset = self.position + i64::from(gap);
                self.epochs.insert(offset, self.epoch);
                let expected_finished = self.epoch <= self.trusted && self.finished.contains(&offset);
                match self.offsets.register(offset, self.epoch) {
                    Registered::Runs(ticket) => {
                        prop_assert!(!expected_finished, "{} was finished before", offset);
                        self.read(offset);
                        self.position = offset + 1;
                        self.unfinished.insert(offset, ticket);
                    }
                    Registered::Finished => {
                        prop_assert!(expected_finished, "{} was never finished", offset);
                        self.read(offset + 1);
                    }
                    Registered::Seen => prop_assert!(false, "{} is new", offset),
                }
            }
            Step::Pass { gap } => {
                self.offsets.pass(self.position + i64::from(gap), self.epoch);
                if gap > 0 {
                    self.epochs.insert(self.position, self.epoch);
                    self.read(self.position + i64::from(gap));
                }
            }
            Step::Rewind { back } => {
                let offset = self.position - i64::from(back);
                prop_assert_eq!(self.offsets.register(offset, self.epoch), Registered::Seen);
                self.offsets.pass(offset, self.epoch);
            }
            Step::Complete { which } => {
                let tickets: Vec<Ticket> = self.unfinished.values().chain(&self.stale).copied().collect();
                if !tickets.is_empty() {
                    let ticket = tickets[which.index(tickets.len())];
                    let known = self.unfinished.get(&ticket.offset()) == Some(&ticket);
                    prop_assert_eq!(self.offsets.complete(ticket), known);
                    if known {
                        self.unfinished.remove(&ticket.offset());
                        self.finished.insert(ticket.offset());
                        self.stale.push(ticket);
                    }
                }
            }
            Step::Commit => self.commit(),
            Step::Reset { to } => {
                let to = i64::from(to);
                self.stale.extend(self.unfinished.split_off(&to).into_values());
                self.finished.split_off(&to);
                self.epochs.split_off(&(to - 1));
                self.epochs.insert(to - 1, self.epoch);
                // What is no longer in the log needs no work.
                self.finished.extend(self.position..to);
                self.position = to;
                self.offsets.reset(to, self.epoch);
            }
            Step::HandOver => {
                self.commit();
                self.next_owner();
            }
            Step::Crash => self.next_owner(),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let watermark = self.unfinished.keys().next().copied().unwrap_or(self.position);
        prop_assert_eq!(self.offsets.watermark(), watermark);
        prop_assert_eq!(self.offsets.position(), self.position);
        prop_assert_eq!(self.offsets.outstanding(), self.unfinished.len());
        let newest = self.epochs.range(..watermark).next_back().map(|(_, epoch)| *epoch);
        prop_assert_eq!(Some(self.offsets.done_epoch()), newest);
        let map = self.offsets.map();
        prop_assert_eq!((map.base(), map.epoch() <= self.epoch), (watermark, true));
        let last = self.finished.last().map_or(watermark, |last| *last);
        for offset in watermark..=last.max(self.position) + 3 {
            prop_assert_eq!(map.contains(offset), self.finished.contains(&offset), "{}", offset);
        }
        let news = self.offsets.uncommitted();
        prop_assert_eq!(news.is_some(), map != self.group.snapshot.map);
        prop_assert!(
            news.is_none_or(|news| news.map == map && news.leader_epoch == self.offsets.done_epoch())
        );
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Elsewhere: records were lost, because "highest fetched" was committed while they waited.
    /// Over owners that hand a partition over in peace or die, through the text of a commit: exactly what was finished,
    /// and known to the group, is not run again.
    #[test]
    fn watermark_and_map_say_what_is_finished(steps in prop::collection::vec(step(), 0..120)) {
        let mut model = Model::new();
        for step in steps {
            model.play(step)?;
            model.check()?;
        }
    }
}
