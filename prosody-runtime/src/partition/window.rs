//! Which records of a partition are in progress, and what may start next?
//!
//! ```text
//! push ──▶ prepared ──admit──▶ key queues ──▶ out (handed to the caller) ──finish──▶ watermark
//!          ≤ look-ahead         ≤ MaxUncommitted in progress
//! ```

use std::collections::VecDeque;

use prosody_base::sabotaged;

use super::keys::{KeySlot, Keys, Offered, hash};
use super::offsets::{Offsets, Registered, Ticket};
use super::record::{Event, Record};

/// Records read ahead of what is in progress: prepared, or parked behind a full key.
pub(crate) const LOOK_AHEAD: usize = 1_024;
/// Prepared records below which more are wanted: enough for the time it takes to wake the reader.
const LOW_WATER: usize = 128;
/// Most records prepared at once.
const CHUNK: usize = 256;

/// How far giving the partition up has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It is ours.
    Running,
    /// Nothing new starts.
    Draining,
    /// It is no longer ours; whatever still ends counts for nothing.
    Closed,
}

/// How an event that was out has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// For good.
    Done,
    /// It must run again, here after a restart or at the next owner.
    Unfinished,
}

/// Records that were read and do not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Seen before in this assignment.
    pub(crate) seen: usize,
    /// Finished by an earlier owner of the partition.
    pub(crate) finished: usize,
}

/// An event that may run now.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) slot: KeySlot,
    pub(crate) event: Event,
}

/// One partition during one assignment.
#[derive(Debug)]
pub(crate) struct Window {
    offsets: Offsets,
    keys: Keys<Event>,
    prepared: VecDeque<Event>,
    max_uncommitted: usize,
    seed: u64,
    phase: Phase,
    /// Events handed out and not finished.
    out: usize,
    /// Keys held by something of an earlier assignment.
    blocked: usize,
}

impl Window {
    /// At most `max_uncommitted` records are in progress; one key holds an eighth of them, at least 2. `seed` keeps
    /// peers from choosing keys whose hashes collide.
    pub(crate) fn new(offsets: Offsets, max_uncommitted: usize, seed: u64) -> Window {
        Window {
            offsets,
            keys: Keys::new((max_uncommitted / 8).max(2)),
            prepared: VecDeque::new(),
            max_uncommitted: max_uncommitted.max(1),
            seed,
            phase: Phase::Running,
            out: 0,
            blocked: 0,
        }
    }

    pub(crate) fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    pub(crate) fn offsets_mut(&mut self) -> &mut Offsets {
        &mut self.offsets
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Events that were handed out and have not ended.
    pub(crate) fn out(&self) -> usize {
        self.out
    }

    /// Events that are out or queued; what `MaxUncommitted` bounds.
    pub(crate) fn in_progress(&self) -> usize {
        self.keys.in_progress()
    }

    /// The key of an event that was handed out.
    pub(crate) fn key(&self, slot: KeySlot) -> &[u8] {
        self.keys.key(slot)
    }

    /// Lets an event that is out, and will be for long, go of the batch it was read from.
    pub(crate) fn copy_out(&mut self, slot: KeySlot, event: &mut Event) {
        event.record.copy_out();
        self.keys.move_key(slot, event.record.shared_key());
    }

    /// How many records to [`push`](Window::push) next; 0 while there is enough to do.
    pub(crate) fn room(&self) -> usize {
        if self.phase != Phase::Running || self.prepared.len() >= LOW_WATER {
            return 0;
        }
        CHUNK.min(LOOK_AHEAD.saturating_sub(self.prepared.len() + self.keys.parked()))
    }

    /// Takes what was read next: the records that may run, in order, and the position behind everything read, which
    /// includes what was skipped. Empties `records`; returns how many of them do not run.
    pub(crate) fn push(&mut self, records: &mut Vec<Record>, position: i64, leader_epoch: i32) -> Dropped {
        let mut dropped = Dropped::default();
        for record in records.drain(..) {
            match self.offsets.register(record.offset, record.leader_epoch) {
                Registered::Runs(ticket) => {
                    self.prepared.push_back(Event { ticket, record, failures: 0, old: false });
                }
                Registered::Seen => dropped.seen += 1,
                Registered::Finished => dropped.finished += 1,
            }
        }
        self.offsets.pass(position, leader_epoch);
        dropped
    }

    /// Moves prepared records into the key queues while there is room, and adds to `out` those that may run.
    pub(crate) fn admit(&mut self, out: &mut Vec<Admitted>) {
        if self.phase != Phase::Running {
            return;
        }
        while self.keys.in_progress() < self.max_uncommitted + self.blocked {
            let Some(event) = self.prepared.pop_front() else { return };
            let hash = hash(self.seed, event.record.key());
            match self.keys.offer(hash, event) {
                Offered::Run(slot, event) => self.hand_out(slot, event, out),
                Offered::Queued | Offered::Parked => {}
            }
        }
    }

    /// An event that was out has ended. Adds to `out` what may run now: the next of its key, and what fits in.
    pub(crate) fn finish(&mut self, slot: KeySlot, ticket: Ticket, ending: Ending, out: &mut Vec<Admitted>) {
        self.out = self.out.saturating_sub(1);
        let counts = self.phase != Phase::Closed && ending == Ending::Done;
        if counts || sabotaged("watermark-unfinished") {
            self.offsets.complete(ticket);
        }
        if let Some(event) = self.keys.finish(slot) {
            self.hand_out(slot, event, out);
        }
        self.admit(out);
    }

    /// Called about once a second: what has waited since the last call lets go of the batch it was read from, or a few
    /// stuck keys would hold the whole fetch buffer.
    pub(crate) fn age(&mut self) {
        let mut age = |event: &mut Event| {
            if event.old {
                event.record.copy_out();
            }
            event.old = true;
        };
        self.prepared.iter_mut().for_each(&mut age);
        self.keys.each_waiting(age);
    }

    /// Nothing new starts from here on; what waits is forgotten, unfinished.
    pub(crate) fn drain(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Draining;
        }
        if !sabotaged("drain-starts-nothing") {
            self.prepared.clear();
            self.keys.drop_waiting();
        }
    }

    /// The partition is given up: endings that come later count for nothing.
    pub(crate) fn close(&mut self) {
        self.drain();
        self.phase = Phase::Closed;
    }

    /// The log is not what it was: reading goes on at `position`. What was read before still runs, in order, but
    /// finishes nothing at offsets that will be read again.
    pub(crate) fn reset(&mut self, position: i64, leader_epoch: i32) {
        self.offsets.reset(position, leader_epoch);
    }

    /// Keeps a key from running until [`unblock`](Window::unblock).
    pub(crate) fn block(&mut self, key: &[u8]) -> Option<KeySlot> {
        let slot = self.keys.block(hash(self.seed, key), bytes::Bytes::copy_from_slice(key))?;
        self.blocked += 1;
        Some(slot)
    }

    /// Lets a blocked key go on.
    pub(crate) fn unblock(&mut self, slot: KeySlot, out: &mut Vec<Admitted>) {
        self.blocked = self.blocked.saturating_sub(1);
        if let Some(event) = self.keys.finish(slot) {
            self.hand_out(slot, event, out);
        }
        self.admit(out);
    }

    fn hand_out(&mut self, slot: KeySlot, event: Event, out: &mut Vec<Admitted>) {
        self.out += 1;
        out.push(Admitted { slot, event });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::offset_map::OffsetMap;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        /// Keys of records to push; `None` is a record that is skipped.
        Push(Vec<Option<u8>>),
        Finish(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = prop_oneof![4 => (0..12u8).prop_map(Some), 2 => Just(Some(0)), 1 => Just(None)];
        prop_oneof![
            1 => prop::collection::vec(key, 0..40).prop_map(Step::Push),
            6 => any::<prop::sample::Index>().prop_map(Step::Finish),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_record_runs_once_in_order_of_its_key_within_the_bounds(
            max in 1..20usize,
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut window = Window::new(Offsets::new(OffsetMap::empty(None, 0), 0), max, 7);
            let mut next = 0i64;
            let mut last: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
            let (mut out, mut ready, mut unfinished) = (Vec::new(), Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Push(keys) => {
                        let mut records = Vec::new();
                        for key in keys.into_iter().take(window.room()) {
                            if let Some(key) = key {
                                records.push(Record::test(next, &format!("k{key}"), Some("1")));
                                unfinished.push(next);
                            }
                            next += 1;
                        }
                        prop_assert_eq!(window.push(&mut records, next, 0), Dropped::default());
                        window.admit(&mut ready);
                    }
                    Step::Finish(which) if !out.is_empty() => {
                        let Admitted { slot, event } = out.swap_remove(which.index(out.len()));
                        unfinished.retain(|offset| *offset != event.ticket.offset());
                        window.finish(slot, event.ticket, Ending::Done, &mut ready);
                    }
                    Step::Finish(_) => {}
                }
                for admitted in ready.drain(..) {
                    let Admitted { event, .. } = &admitted;
                    let key = event.record.key().to_vec();
                    prop_assert!(out.iter().all(|other: &Admitted| other.event.record.key() != key.as_slice()));
                    prop_assert!(last.insert(key, event.record.offset).is_none_or(|last| last < event.record.offset));
                    out.push(admitted);
                }
                prop_assert_eq!(window.out(), out.len());
                prop_assert!(out.len() <= max && window.keys.in_progress() <= max);
                prop_assert!(window.prepared.len() + window.keys.parked() <= LOOK_AHEAD);
                prop_assert_eq!(window.offsets().watermark(), unfinished.first().copied().unwrap_or(next));
                // Nothing sleeps while there is room: either the window is full or nothing is prepared.
                prop_assert!(window.keys.in_progress() == max || window.prepared.is_empty());
            }
            while let Some(Admitted { slot, event }) = out.pop() {
                window.finish(slot, event.ticket, Ending::Done, &mut out);
            }
            prop_assert_eq!((window.offsets().watermark(), window.offsets().outstanding()), (next, 0));
        }
    }

    fn filled(records: usize) -> (Window, Vec<Admitted>) {
        let mut window = Window::new(Offsets::new(OffsetMap::empty(None, 0), 0), 64, 7);
        let mut out = Vec::new();
        let mut batch =
            (0..records).map(|at| Record::test(at as i64, &format!("k{}", at % 3), Some("1"))).collect();
        window.push(&mut batch, records as i64, 0);
        window.admit(&mut out);
        (window, out)
    }

    #[test]
    fn what_waits_long_lets_go_of_its_batch() {
        let (batch, mut out) = (bytes::Bytes::from(vec![b'k'; 10_000]), Vec::new());
        let mut window = Window::new(Offsets::new(OffsetMap::empty(None, 0), 0), 64, 7);
        let mut records = (0..600).map(|at| Record::in_batch(at, &batch)).collect();
        window.push(&mut records, 600, 0);
        window.admit(&mut out);
        assert_eq!((out.len(), window.prepared.len()), (1, 0), "one key: one is out, the others wait");
        window.age();
        assert!(!batch.is_unique());
        window.age();
        drop(out);
        assert!(batch.is_unique(), "only the record that is out held it");
    }

    #[test]
    fn draining_starts_nothing_new_and_keeps_what_waited_uncommitted() {
        let (mut window, mut out) = filled(30);
        assert_eq!(out.len(), 3);
        window.drain();
        let first = out.remove(0);
        window.finish(first.slot, first.event.ticket, Ending::Done, &mut out);
        assert_eq!((out.len(), window.out()), (2, 2), "its key had more records, none of which may start");
        assert_eq!(window.offsets().watermark(), 1);
        assert_eq!(window.room(), 0);
    }

    #[test]
    fn what_ends_after_the_partition_was_given_up_counts_for_nothing() {
        let (mut window, mut out) = filled(3);
        window.close();
        let first = out.remove(0);
        window.finish(first.slot, first.event.ticket, Ending::Done, &mut out);
        assert_eq!(window.offsets().watermark(), 0);
    }

    #[test]
    fn a_hot_key_holds_an_eighth_of_the_window_and_others_pass_it() {
        let mut window = Window::new(Offsets::new(OffsetMap::empty(None, 0), 0), 64, 7);
        let mut out = Vec::new();
        let mut batch: Vec<Record> = (0..200).map(|at| Record::test(at, "hot", Some("1"))).collect();
        batch.extend((200..220).map(|at| Record::test(at, &format!("k{at}"), Some("1"))));
        window.push(&mut batch, 220, 0);
        window.admit(&mut out);
        assert_eq!((out.len(), window.keys.in_progress(), window.keys.parked()), (21, 28, 192));
    }
}
