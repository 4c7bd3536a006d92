//! Up to which offset is everything finished, and what is finished above it? Pure.
//!
//! Every fetched record takes part: one that will run is *outstanding* until it is finished, everything else (skipped
//! records, poison, compacted gaps) only moves the *position*, the next offset to be read. The watermark is the first
//! outstanding offset, or the position when nothing is outstanding. A commit says the watermark and, as a map, what is
//! finished above it: everything up to the position that is not outstanding, and of what was not read yet that which
//! *earlier* owners of the partition had finished.

use std::collections::VecDeque;

use prosody_base::sabotaged;

use super::offset_map::OffsetMap;

/// Proof that an offset was registered, and in which life of the log. A completion from before a reset of the
/// position never finishes a record that was read after it, though their offsets may be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    life: u32,
    offset: i64,
}

#[cfg(test)]
impl Ticket {
    /// The record's offset.
    pub(crate) fn offset(self) -> i64 {
        self.offset
    }
}

/// What becomes of a record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registered {
    /// It runs.
    Runs(Ticket),
    /// It was seen in this assignment and must not run again.
    Seen,
    /// An earlier owner has finished it.
    Finished,
}

/// What a commit says; all of it is true of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The watermark, and what is finished above it.
    pub(crate) map: OffsetMap,
    /// Leader epoch of the newest record below the watermark; −1 when unknown.
    pub(crate) leader_epoch: i32,
}

/// The offsets of one partition during one assignment.
#[derive(Debug)]
pub(crate) struct Offsets {
    life: u32,
    /// Where this assignment began, or the log was reset to.
    start: i64,
    position: i64,
    /// Where the leader epochs of what was read begin, −1 for an unknown one. Ascending; the first holds for the newest
    /// record below the watermark, the last for what was read last. Epochs are few: one for each new leader.
    epochs: VecDeque<(i64, i32)>,
    /// Ascending. As long as what runs, waits and is looked ahead at, which are all bounded.
    outstanding: VecDeque<Ticket>,
    /// What earlier owners finished. Counts from the position on.
    earlier: OffsetMap,
    /// What the group knows.
    committed: OffsetMap,
}

impl Offsets {
    /// Reading starts where the group stands, with what earlier owners finished above.
    pub(crate) fn new(committed: OffsetMap, leader_epoch: i32) -> Offsets {
        Offsets {
            life: 0,
            start: committed.base(),
            position: committed.base(),
            epochs: VecDeque::from([(committed.base().saturating_sub(1), leader_epoch)]),
            outstanding: VecDeque::new(),
            earlier: committed.clone(),
            committed,
        }
    }

    /// The next offset to be read; smaller ones were seen in this assignment.
    #[cfg(test)]
    pub(crate) fn position(&self) -> i64 {
        self.position
    }

    /// Registers a record that will run unless it was seen or finished before.
    pub(crate) fn register(&mut self, offset: i64, leader_epoch: i32) -> Registered {
        if offset < self.position && !sabotaged("rewind-guard") {
            return Registered::Seen;
        }
        self.distrust(leader_epoch);
        self.read(offset, leader_epoch);
        if self.earlier.contains(offset) {
            self.pass(offset.saturating_add(1), leader_epoch);
            return Registered::Finished;
        }
        let ticket = Ticket { life: self.life, offset };
        self.outstanding.push_back(ticket);
        self.pass(offset.saturating_add(1), leader_epoch);
        Registered::Runs(ticket)
    }

    /// Everything below `position` was read, and what is not registered needs no work.
    pub(crate) fn pass(&mut self, position: i64, leader_epoch: i32) {
        if position > self.position {
            self.distrust(leader_epoch);
            self.read(self.position, leader_epoch);
            self.position = position;
            self.forget_epochs();
        }
    }

    /// Finishes a record. Returns whether it was outstanding.
    pub(crate) fn complete(&mut self, ticket: Ticket) -> bool {
        let found = self.outstanding.binary_search_by_key(&ticket.offset, |entry| entry.offset);
        let Ok(at) = found else { return false };
        if self.outstanding.get(at) != Some(&ticket) && !sabotaged("stale-ticket") {
            return false;
        }
        self.outstanding.remove(at);
        self.forget_epochs();
        true
    }

    /// The log is not what it was, or what we wanted is gone: reading goes on at `position`. Outstanding records from
    /// there on belong to a log that no longer exists; their completions will count for nothing. What earlier owners
    /// finished there belongs to it, too.
    pub(crate) fn reset(&mut self, position: i64, leader_epoch: i32) {
        self.life = self.life.wrapping_add(1);
        while self.outstanding.back().is_some_and(|entry| entry.offset >= position) {
            self.outstanding.pop_back();
        }
        self.earlier.cut(position);
        (self.start, self.position) = (self.start.min(position), position);
        let below = position.saturating_sub(1);
        self.epochs.retain(|(since, _)| *since < below);
        self.epochs.push_back((below, leader_epoch));
        self.forget_epochs();
    }

    /// The first offset that is not finished.
    pub(crate) fn watermark(&self) -> i64 {
        if sabotaged("watermark-highest-read") {
            return self.position;
        }
        self.outstanding.front().map_or(self.position, |entry| entry.offset)
    }

    /// What to commit, unless the group knows it.
    pub(crate) fn uncommitted(&self) -> Option<Snapshot> {
        let snapshot = self.snapshot();
        let goes_back = snapshot.map.base() < self.committed.base() && sabotaged("reset-commits");
        (snapshot.map != self.committed && !goes_back).then_some(snapshot)
    }

    /// What could be committed now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { map: self.map(), leader_epoch: self.done_epoch() }
    }

    /// The group knows this now, or as much of it as it wants to know.
    pub(crate) fn committed(&mut self, snapshot: Snapshot) {
        self.committed = snapshot.map;
    }

    /// Whether this assignment itself read this offset and is done with it; `false` where an earlier owner was.
    pub(crate) fn finished_here(&self, offset: i64) -> bool {
        let is_out = self.outstanding.binary_search_by_key(&offset, |entry| entry.offset).is_ok();
        (self.start..self.position).contains(&offset) && !self.earlier.contains(offset) && !is_out
    }

    /// Records that are registered and not finished.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Watermark and what is finished above it, of one moment.
    fn map(&self) -> OffsetMap {
        let mut at = self.watermark();
        let mut map = OffsetMap::empty(self.earlier.topic(), at);
        for entry in &self.outstanding {
            map.add(at..entry.offset, self.read_epoch());
            at = at.max(entry.offset.saturating_add(1));
        }
        map.add(at..self.position, self.read_epoch());
        for run in self.earlier.from(self.position) {
            map.add(run, self.earlier.epoch());
        }
        map
    }

    /// A record at the position has this leader epoch. Epochs grow along a log, so when it is newer than everything the
    /// earlier owner had read, that owner did not read this record but one that was truncated away since.
    fn distrust(&mut self, leader_epoch: i32) {
        if leader_epoch > self.earlier.epoch() && self.earlier.end() > self.position {
            self.earlier.cut(self.position);
        }
    }

    /// Leader epoch of the newest record below the watermark. The group keeps it with the offset: a lower one would tell
    /// the next owner that the log was truncated below its position (KIP-320), and it would read back from there.
    fn done_epoch(&self) -> i32 {
        self.epochs.front().map_or(-1, |(_, epoch)| *epoch)
    }

    fn read_epoch(&self) -> i32 {
        self.epochs.back().map_or(-1, |(_, epoch)| *epoch)
    }

    /// What was read from `offset` on has this leader epoch.
    fn read(&mut self, offset: i64, leader_epoch: i32) {
        if leader_epoch > self.read_epoch() {
            self.epochs.push_back((offset, leader_epoch));
        }
    }

    fn forget_epochs(&mut self) {
        let watermark = self.watermark();
        while self.epochs.get(1).is_some_and(|(since, _)| *since < watermark) {
            self.epochs.pop_front();
        }
    }
}

#[cfg(test)]
#[path = "offsets_tests.rs"]
mod tests;
