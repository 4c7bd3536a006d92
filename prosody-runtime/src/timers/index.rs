//! Which rows of the timers' index are kept in mind, which one is due, what is read and trimmed next? *Pure.*
//!
//! ```text
//!            watermark            cursor                       now + LOOK_AHEAD
//!   trimmed ────┼── resident rows ───┼── only in the store ─────────┼──▶ slabs
//! ```
//!
//! At or before the cursor every live row is resident, or its batch tells us: see [`Index::applied`] and
//! [`Index::loaded`]. The store is never asked for what is far away. Rows that a former owner puts late are found by
//! looking again at what was read: when such an owner has stopped, and once before a slab is trimmed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use prosody_base::sabotaged;
use prosody_state::{
    KeyBatch, KeyImage, SegmentRow, SlabPosition, SlabRow, Time, TimerId, TimerKind, Writer,
};

use super::due::{DueTimer, TimerEnd};
use super::look::{Looks, millis};

/// Rows are read this long before they are due.
const LOOK_AHEAD: Duration = Duration::from_secs(600);
/// A slab is trimmed this long after its end.
const TRIM_AFTER: Duration = Duration::from_secs(600);
/// Rows that wait to be deleted. What comes on top stays until its slab is trimmed.
const MAX_DOOMED: usize = 10_000;

/// What bounds memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most rows kept in mind; the others stay in the store.
    pub(super) resident: usize,
    /// Most rows of one read or delete.
    pub(super) page: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { resident: 100_000, page: 1_000 }
    }
}

/// What the store is asked for next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Read {
        after: SlabPosition,
        until: u32,
        limit: usize,
    },
    /// Rows of what was read before: a former owner may have put some since.
    Look {
        after: SlabPosition,
        until: u32,
        limit: usize,
    },
    Delete(Vec<SlabPosition>),
    Trim(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// It was offered; `true` once a batch has deleted it.
    Out(bool),
    Kept,
}

#[derive(Debug)]
struct Resident {
    writer: Writer,
    state: State,
}

/// Whether a page is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    No,
    /// Rows that came since may be missing in it.
    Yes,
    /// A row was let go since, and may be missing in it.
    InVain,
}

/// What may be out at once: retries must not starve the timers of handlers, nor these the retries.
#[derive(Debug, Default)]
struct Lane {
    waiting: BTreeSet<(Time, SlabPosition)>,
    out: BTreeSet<(Time, SlabPosition)>,
}

/// The timers of one partition that are due soon.
#[derive(Debug)]
pub(super) struct Index {
    writer: Writer,
    slab_seconds: u32,
    limits: Limits,
    /// Timers of each lane that may be out at once.
    budget: usize,
    residents: BTreeMap<SlabPosition, Resident>,
    lanes: [Lane; 2],
    cursor: SlabPosition,
    reading: Reading,
    /// Nothing is put before this slab.
    watermark: u32,
    looks: Looks,
    /// Rows of batches whose end is not known, by slab.
    unsettled: BTreeMap<u32, usize>,
    doomed: Vec<SlabPosition>,
    draining: bool,
}

impl Index {
    pub(super) fn new(row: SegmentRow, writer: Writer, budget: usize, limits: Limits, looks: Looks) -> Index {
        Index {
            writer,
            slab_seconds: row.slab_seconds.max(1),
            limits,
            budget: budget.max(1),
            residents: BTreeMap::new(),
            lanes: [Lane::default(), Lane::default()],
            cursor: SlabPosition::start_of(row.watermark),
            reading: Reading::No,
            watermark: row.watermark,
            looks,
            unsettled: BTreeMap::new(),
            doomed: Vec::new(),
            draining: false,
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    /// How many rows are kept in mind. Where there are fewer than before, more may be read.
    pub(super) fn rows_kept(&self) -> usize {
        self.residents.len()
    }

    /// Whether rows wait to be deleted.
    pub(super) fn has_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// Chooses the slabs of a batch's new timers; their rows come next. Never one that may have been trimmed.
    pub(super) fn place(&mut self, key: &Bytes, batch: &mut KeyBatch, now: i64) -> Vec<SlabRow> {
        let earliest = Time::floor(now).slab(self.slab_seconds).max(self.watermark);
        let rows = batch.put_timers.iter_mut().map(|put| {
            let slab = put.id.time.slab(self.slab_seconds);
            put.facts.slab = if sabotaged("timer-placed") { slab } else { slab.max(earliest) };
            *self.unsettled.entry(put.facts.slab).or_default() += 1;
            let at =
                SlabPosition { slab: put.facts.slab, id: put.id, key: key.clone(), nonce: put.facts.nonce };
            SlabRow { at, writer: self.writer, trace: put.facts.trace.clone() }
        });
        rows.collect()
    }

    /// A batch whose rows were placed is there.
    pub(super) fn applied(&mut self, key: &Bytes, batch: &KeyBatch) {
        for gone in &batch.delete_timers {
            let at = SlabPosition { slab: gone.slab, id: gone.id, key: key.clone(), nonce: gone.nonce };
            match self.residents.get_mut(&at).map(|resident| &mut resident.state) {
                Some(State::Out(deleted)) => *deleted = true,
                Some(_) => self.forget(&at),
                None => {}
            }
            self.doom(at);
        }
        for at in self.settle(key, batch) {
            self.take_up(at, self.writer);
        }
        self.evict();
    }

    /// A batch whose rows were placed cannot be applied any more, and this is what is there. It may have been applied
    /// without an answer, before another writer came.
    pub(super) fn lost(&mut self, key: &Bytes, batch: &KeyBatch, found: &KeyImage) {
        for at in self.settle(key, batch) {
            if !found.holds(at.id, at.nonce) || sabotaged("timer-held") {
                self.doom(at);
            }
        }
        self.loaded(key, found);
    }

    /// A key's record came from the store. A former owner may have put timers where we had already read.
    pub(super) fn loaded(&mut self, key: &Bytes, image: &KeyImage) {
        for (id, facts) in &image.timers {
            // As if it were ours: its batch has ended, so nobody can commit it once more.
            let at = SlabPosition { slab: facts.slab, id: *id, key: key.clone(), nonce: facts.nonce };
            self.take_up(at, self.writer);
        }
        self.evict();
    }

    /// The next timer that is due and has room; it is out from here on.
    pub(super) fn offer(&mut self, now: i64) -> Option<DueTimer> {
        if self.draining {
            return None;
        }
        let first =
            |lane: &Lane| lane.waiting.first().filter(|_| lane.out.len() < self.budget).map(|first| first.0);
        let times = self.lanes.each_ref().map(first);
        let is_due = |time: &Time| time.is_due(now) || sabotaged("timer-early");
        let [application, retries] = times.map(|time| time.filter(is_due));
        let chosen = match (application, retries) {
            (None, None) => return None,
            (Some(application), Some(retry)) => usize::from(retry < application),
            (application, _) => usize::from(application.is_none()),
        };
        let lane = self.lanes.get_mut(chosen)?;
        let (_, at) = lane.waiting.pop_first()?;
        lane.out.insert((at.id.time, at.clone()));
        let resident = self.residents.get_mut(&at)?;
        resident.state = State::Out(false);
        Some(DueTimer { key: at.key, id: at.id, nonce: at.nonce, slab: at.slab, writer: resident.writer })
    }

    /// A timer that was out has ended.
    pub(super) fn ended(&mut self, timer: &DueTimer, end: TimerEnd) {
        let at = timer.at();
        let Some(resident) = self.residents.get_mut(&at) else { return };
        let State::Out(deleted) = resident.state else { return };
        resident.state = State::Kept;
        self.lane(timer.id).out.remove(&(timer.id.time, at.clone()));
        if end != TimerEnd::Kept {
            self.residents.remove(&at);
            if !deleted {
                self.doom(at);
            }
        }
    }

    /// When [`offer`](Index::offer) has something next, unless something happens before.
    pub(super) fn next_due(&self) -> Option<Time> {
        let with_room = self.lanes.iter().filter(|lane| lane.out.len() < self.budget);
        with_room.filter_map(|lane| lane.waiting.first().map(|first| first.0)).min()
    }

    /// When [`next_step`](Index::next_step) has a look next, unless something happens before.
    pub(super) fn next_look(&self) -> Option<i64> {
        self.looks.next_at()
    }

    /// What the store is asked for now.
    pub(super) fn next_step(&mut self, now: i64) -> Option<Step> {
        if self.draining {
            return None;
        }
        let until = Time::after(now, LOOK_AHEAD).slab(self.slab_seconds);
        let room = self.limits.resident.saturating_sub(self.residents.len());
        let is_behind = self.cursor < SlabPosition::start_of(until.saturating_add(1));
        if is_behind && until >= self.cursor.slab && room >= self.limits.page {
            self.reading = Reading::Yes;
            return Some(Step::Read { after: self.cursor.clone(), until, limit: self.limits.page });
        }
        if !self.doomed.is_empty() {
            let from = self.doomed.len().saturating_sub(self.limits.page);
            return Some(Step::Delete(self.doomed.split_off(from)));
        }
        let finished = self.finished(now);
        if let Some((after, until)) = self.looks.next(self.watermark, self.cursor.slab, finished, now) {
            return Some(Step::Look { after, until, limit: self.limits.page });
        }
        (finished > self.watermark).then(|| {
            // Before it is asked for: an answer may be lost, and nothing may be put behind what was trimmed.
            self.watermark = finished;
            Step::Trim(finished)
        })
    }

    /// What was read: rows in order, fewer than asked for when there are no more until the end of slab `until`. `None`
    /// when the store did not say; the read comes again.
    pub(super) fn read(&mut self, rows: Option<Vec<SlabRow>>, until: u32, limit: usize) {
        let reading = std::mem::replace(&mut self.reading, Reading::No);
        let Some(rows) = rows.filter(|_| reading == Reading::Yes) else { return };
        let end = rows.last().filter(|_| rows.len() >= limit).map(|row| row.at.clone());
        self.cursor = end.unwrap_or_else(|| SlabPosition::start_of(until.saturating_add(1)));
        for row in rows {
            self.take_up(row.at, row.writer);
        }
        // What came meanwhile and lies behind will be read later.
        let behind = (Bound::Excluded(self.cursor.clone()), Bound::Unbounded);
        let late = self.residents.range(behind).filter(|(_, resident)| resident.state == State::Waiting);
        let late: Vec<SlabPosition> = late.map(|(at, _)| at.clone()).collect();
        late.iter().for_each(|at| self.forget(at));
        self.evict();
    }

    /// What a look found; see [`read`](Index::read). A row that is void goes the way of all due ones: its writer cannot
    /// commit it any more when it is deleted.
    pub(super) fn looked(&mut self, rows: Option<Vec<SlabRow>>, limit: usize) {
        let Some(rows) = rows else { return };
        self.looks.found(rows.last().filter(|_| rows.len() >= limit).map(|row| row.at.clone()));
        // Batches of this assignment tell of their own.
        let own = self.writer;
        for row in rows.into_iter().filter(|row| row.writer != own) {
            self.take_up(row.at, row.writer);
        }
        self.evict();
    }

    /// Residents, those of them that are due or out, and when the first of these was due.
    pub(super) fn sizes(&self, now: i64) -> (usize, usize, Option<Time>) {
        let due = |lane: &Lane| {
            lane.waiting.iter().take_while(|(time, _)| time.is_due(now)).count() + lane.out.len()
        };
        let firsts = self.lanes.iter().flat_map(|lane| [lane.waiting.first(), lane.out.first()]);
        let oldest = firsts.flatten().map(|first| first.0).min();
        let due = self.lanes.iter().map(due).sum();
        (self.residents.len(), due, oldest.filter(|time| time.is_due(now)))
    }

    /// Every slab before this one is over and empty.
    fn finished(&self, now: i64) -> u32 {
        let over = now.saturating_sub(millis(TRIM_AFTER));
        let over = Time::floor(over).slab(self.slab_seconds);
        let resident = self.residents.keys().next().map_or(u32::MAX, |at| at.slab);
        let unsettled = self.unsettled.keys().next().copied().filter(|_| !sabotaged("timer-unsettled"));
        let unsettled = unsettled.unwrap_or(u32::MAX);
        over.min(resident).min(unsettled).min(self.cursor.slab)
    }

    /// Keeps a row in mind, unless it will be read or is known.
    fn take_up(&mut self, at: SlabPosition, writer: Writer) {
        let may_be_missed = self.reading != Reading::No && !sabotaged("timer-meanwhile");
        if (at > self.cursor && !may_be_missed) || self.residents.contains_key(&at) {
            return;
        }
        self.lane(at.id).waiting.insert((at.id.time, at.clone()));
        self.residents.insert(at, Resident { writer, state: State::Waiting });
    }

    /// Lets go of rows at the end until the others have room. Reading goes on before them.
    fn evict(&mut self) {
        while self.residents.len() > self.limits.resident {
            let waiting = self.residents.iter().rev().find(|(_, resident)| resident.state == State::Waiting);
            let Some(at) = waiting.map(|(at, _)| at.clone()) else { return };
            self.forget(&at);
            let before = self.residents.range(..&at).next_back().map(|(at, _)| at.clone());
            let before = before.unwrap_or_else(|| SlabPosition::start_of(at.slab));
            if before < self.cursor {
                self.cursor = before;
            }
            if self.reading == Reading::Yes && !sabotaged("timer-in-vain") {
                self.reading = Reading::InVain;
            }
        }
    }

    /// The rows of a batch that has ended.
    fn settle(&mut self, key: &Bytes, batch: &KeyBatch) -> Vec<SlabPosition> {
        let rows = batch.put_timers.iter().map(|put| {
            let slab = put.facts.slab;
            if let Some(count) = self.unsettled.get_mut(&slab) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.unsettled.remove(&slab);
                }
            }
            SlabPosition { slab, id: put.id, key: key.clone(), nonce: put.facts.nonce }
        });
        rows.collect()
    }

    fn forget(&mut self, at: &SlabPosition) {
        self.residents.remove(at);
        self.lane(at.id).waiting.remove(&(at.id.time, at.clone()));
    }

    fn doom(&mut self, at: SlabPosition) {
        if self.doomed.len() < MAX_DOOMED {
            self.doomed.push(at);
        }
    }

    fn lane(&mut self, id: TimerId) -> &mut Lane {
        let [application, retries] = &mut self.lanes;
        if id.kind == TimerKind::Application { application } else { retries }
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
