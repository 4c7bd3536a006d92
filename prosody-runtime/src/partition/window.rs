//! Which records of a partition are in progress, and what may start next?
//!
//! ```text
//! push ──▶ prepared ──admit──▶ key queues ──▶ out (handed to the caller) ──finish──▶ watermark
//!          ≤ look-ahead        ▲ ≤ MaxUncommitted in progress
//! fire ────────────────────────┘ timers that are due, bounded by whoever brings them
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use prosody_base::sabotaged;
use prosody_state::KeyImage;

use super::copies::Copies;
use super::event::Event;
use super::keys::{KeySlot, Keyed, Keys, Offered, hash};
use super::offsets::{Offsets, Registered, Ticket};
use super::record::Record;
use crate::timers::DueTimer;

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
    /// The record of its key, once the partition knows it. Always `None` without a store.
    pub(crate) root: Option<Arc<KeyImage>>,
    /// Whether the store remembers its id; `None` when it was not asked.
    pub(crate) seen: Option<bool>,
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
    copies: Copies,
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
            copies: Copies::bounded(usize::MAX),
            out: 0,
            blocked: 0,
        }
    }

    /// Bounds the memory of what waits.
    pub(crate) fn within(mut self, copies: Copies) -> Window {
        self.copies = copies;
        self
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
        event.copy_out();
        self.keys.move_key(slot, event.shared_key());
    }

    /// How many records to [`push`](Window::push) next; 0 while there is enough to do.
    pub(crate) fn room(&self) -> usize {
        if self.phase != Phase::Running || self.prepared.len() >= LOW_WATER || self.copies.are_enough() {
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
                    self.prepared.push_back(Event::message(ticket, record));
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
            self.offer(event, out);
        }
    }

    /// Puts a timer that is due behind what came before it for its key; adds it to `out` when it may run. `false` when the
    /// partition is being given up: it stays for the next owner.
    pub(crate) fn fire(&mut self, due: DueTimer, out: &mut Vec<Admitted>) -> bool {
        let runs = self.phase == Phase::Running;
        if runs {
            self.offer(Event::timer(due), out);
        }
        runs
    }

    /// An event that was out has ended. Adds to `out` what may run now: the next of its key, and what fits in.
    pub(crate) fn finish(
        &mut self,
        slot: KeySlot,
        ticket: Option<Ticket>,
        ending: Ending,
        out: &mut Vec<Admitted>,
    ) {
        self.out = self.out.saturating_sub(1);
        let counts = self.phase != Phase::Closed && ending == Ending::Done;
        if let Some(ticket) = ticket
            && (counts || sabotaged("watermark-unfinished"))
        {
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
        let Window { prepared, keys, copies, .. } = self;
        let mut age = |event: &mut Event| {
            if event.old {
                copies.take(event.copy_out());
            }
            event.old = true;
        };
        prepared.iter_mut().for_each(&mut age);
        keys.each_waiting(age);
    }

    /// Nothing new starts from here on; what waits is forgotten, unfinished.
    pub(crate) fn drain(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Draining;
        }
        if !sabotaged("drain-starts-nothing") {
            self.prepared.clear();
            self.keys.drop_waiting();
            self.copies.give_all_back();
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

    fn offer(&mut self, event: Event, out: &mut Vec<Admitted>) {
        let hash = hash(self.seed, event.key());
        match self.keys.offer(hash, event) {
            Offered::Run(slot, event) => self.hand_out(slot, event, out),
            Offered::Queued | Offered::Parked => {}
        }
    }

    fn hand_out(&mut self, slot: KeySlot, event: Event, out: &mut Vec<Admitted>) {
        self.out += 1;
        self.copies.give_back(event.copied());
        out.push(Admitted { slot, event, root: None, seen: None });
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
