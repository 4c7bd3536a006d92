//! What do an attempt's timer calls add up to? *Pure.* They read their own writes and become durable with the event, or never.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Category, StoreError};
use crate::key_batch::{KeyBatch, PutTimer};
use crate::key_image::{KeyImage, TimerFacts, TimerId, TimerKind};
use crate::time::Time;

/// Most application timers of one key, pending and deferred ones together.
pub const MAX_TIMERS: usize = 16_384;

/// The application timer whose firing is the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firing {
    /// A pending one.
    Pending(TimerId),
    /// One that failed before: its number in the queue of deferred timers.
    Deferred(u64),
}

/// The timer calls of one attempt over its key's record.
#[derive(Clone, Debug)]
pub struct Overlay {
    image: Arc<KeyImage>,
    firing: Option<Firing>,
    /// Times whose pending or deferred timers are taken away; the firing one is never among them.
    removed: BTreeSet<Time>,
    /// Times that are new, with the trace context of the call.
    added: BTreeMap<Time, Bytes>,
    /// Application timers there would be.
    count: usize,
}

impl Overlay {
    /// An attempt that has called nothing yet.
    #[must_use]
    pub fn new(image: Arc<KeyImage>, firing: Option<Firing>) -> Overlay {
        let mut overlay =
            Overlay { image, firing, removed: BTreeSet::new(), added: BTreeMap::new(), count: 0 };
        // Pending timers differ in time; a deferred one may have the time of another.
        let alike = !overlay.image.deferred_timers.is_empty();
        overlay.count = if alike { overlay.scheduled().len() } else { overlay.pending().count() };
        overlay
    }

    /// Schedules a timer. One that is there already stays as it is.
    ///
    /// # Errors
    /// Transient, when the key has [`MAX_TIMERS`] already.
    pub fn schedule(&mut self, time: Time, trace: &Bytes) -> Result<(), StoreError> {
        if self.added.contains_key(&time) || self.is_kept(time) {
            return Ok(());
        }
        if self.count >= MAX_TIMERS {
            let text =
                format!("scheduling a timer: its key has {MAX_TIMERS} timers already, which is the limit");
            return Err(StoreError::new(Category::Transient, text));
        }
        self.count += 1;
        if !self.removed.remove(&time) {
            self.added.insert(time, trace.clone());
        }
        Ok(())
    }

    /// Takes every timer away and schedules one.
    ///
    /// # Errors
    /// None today; as [`schedule`](Overlay::schedule).
    pub fn clear_and_schedule(&mut self, time: Time, trace: &Bytes) -> Result<(), StoreError> {
        self.clear();
        self.schedule(time, trace)
    }

    /// Takes the timer of this time away, if there is one.
    pub fn unschedule(&mut self, time: Time) {
        if self.added.remove(&time).is_some() {
            self.count -= 1;
        } else if self.is_kept(time) {
            self.removed.insert(time);
            self.count -= 1;
        }
    }

    /// Takes every timer away.
    pub fn clear(&mut self) {
        self.added.clear();
        let kept: Vec<Time> = self.kept().collect();
        self.removed.extend(kept);
        self.count = 0;
    }

    /// When timers are scheduled, ascending; without the one that is firing, unless it was scheduled again.
    #[must_use]
    pub fn scheduled(&self) -> Vec<Time> {
        let times: BTreeSet<Time> = self.kept().chain(self.added.keys().copied()).collect();
        times.into_iter().collect()
    }

    /// Whether the attempt changes nothing and no timer is firing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.firing.is_none() && self.removed.is_empty() && self.added.is_empty()
    }

    /// What the event changes now that it is done: the calls, and what was firing is no more unless scheduled again.
    /// New timers have no slab yet.
    #[must_use]
    pub fn into_batch(self, mut nonce: impl FnMut() -> u64) -> KeyBatch {
        let mut batch = self.ended();
        let removed = |time: Time| self.removed.contains(&time);
        let pending = self.pending().filter(|id| removed(id.time));
        batch.delete_timers.extend(pending.filter_map(|id| self.image.delete_timer(id)));
        batch
            .remove_timers
            .extend(self.deferred().filter(|(_, time)| removed(*time)).map(|(number, _)| number));
        for (time, trace) in self.added {
            let facts = TimerFacts { nonce: nonce(), slab: 0, trace };
            batch.put_timers.push(PutTimer { id: TimerId::application(time), facts });
        }
        batch
    }

    /// What the event changes when it ended without success: what was firing is no more, and nothing else.
    #[must_use]
    pub fn discard(self) -> KeyBatch {
        self.ended()
    }

    fn ended(&self) -> KeyBatch {
        let mut batch = KeyBatch::default();
        match self.firing {
            Some(Firing::Pending(id)) => batch.delete_timers.extend(self.image.delete_timer(id)),
            Some(Firing::Deferred(number)) => batch.remove_timers.push(number),
            None => {}
        }
        batch
    }

    /// Pending application timers but the one that is firing.
    fn pending(&self) -> impl Iterator<Item = TimerId> {
        let ids = self.image.timers.keys().copied();
        ids.filter(|id| id.kind == TimerKind::Application && self.firing != Some(Firing::Pending(*id)))
    }

    /// Deferred ones but the one that is firing.
    fn deferred(&self) -> impl Iterator<Item = (u64, Time)> {
        let entries = self.image.deferred_timers.iter().map(|(number, entry)| (*number, entry.time));
        entries.filter(|(number, _)| self.firing != Some(Firing::Deferred(*number)))
    }

    /// Times of the record that the attempt left alone.
    fn kept(&self) -> impl Iterator<Item = Time> {
        let times = self.pending().map(|id| id.time).chain(self.deferred().map(|(_, time)| time));
        times.filter(|time| !self.removed.contains(time))
    }

    fn is_kept(&self, time: Time) -> bool {
        let id = TimerId::application(time);
        let pending = self.image.timers.contains_key(&id) && self.firing != Some(Firing::Pending(id));
        (pending || self.deferred().any(|(_, deferred)| deferred == time)) && !self.removed.contains(&time)
    }
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
