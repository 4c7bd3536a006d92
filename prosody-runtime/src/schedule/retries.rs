//! Which failed events wait, and until when? No permit and no thread is held meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prosody_base::{Clock, Instant, sabotaged};
use tokio::sync::Notify;

use super::gate::{Gate, Ready};
use crate::insight::beats::{BEAT, Beats, Loop};
use crate::partition::window::Admitted;

/// Events that wait for their next attempt, by due time. Their number is bounded by `MaxUncommitted` per partition.
#[derive(Default)]
pub(crate) struct Retries {
    inner: Mutex<Inner>,
    sooner: Notify,
}

#[derive(Default)]
struct Inner {
    /// The number keeps events of one instant in the order they failed.
    waiting: BTreeMap<(Instant, u64), Ready>,
    counter: u64,
}

impl Retries {
    /// Lets `ready` run again at `due`.
    pub(crate) fn push(&self, due: Instant, ready: Ready) {
        let mut inner = self.lock();
        inner.counter += 1;
        let mut place = (due, inner.counter);
        if let Some((first, _)) = inner.waiting.first_key_value()
            && sabotaged("retry-identity")
        {
            place = *first;
        }
        inner.waiting.insert(place, ready);
        if inner.waiting.first_key_value().is_some_and(|(first, _)| *first == place) {
            self.sooner.notify_one();
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Takes back the waiting events of one partition.
    pub(crate) fn take(&self, partition: u64) -> Vec<Admitted> {
        let mut inner = self.lock();
        let (taken, kept) = std::mem::take(&mut inner.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|(_, ready)| ready.partition.id() == partition);
        inner.waiting = kept.into_iter().collect();
        taken.into_iter().map(|(_, ready)| ready.admitted).collect()
    }

    /// Moves events to `gate` when they are due. Runs as a task of its own.
    pub(crate) async fn drive(self: Arc<Self>, clock: Clock, gate: Arc<Gate>, beats: Arc<Beats>) {
        let mut one = Vec::with_capacity(1);
        loop {
            let due = self.lock().waiting.first_key_value().map(|((due, _), _)| *due);
            let now = clock.now();
            beats.beat(Loop::Retries, now);
            let due = due.map_or(now + BEAT, |due| due.min(now + BEAT));
            // A sooner event interrupts the wait; one that was taken back only makes it end early.
            let _ = clock.until(due, self.sooner.notified()).await;
            while let Some(ready) = self.pop_due(clock.now()) {
                one.push(ready.admitted);
                let wake = gate.push(&ready.partition, &mut one);
                gate.wake(wake);
            }
        }
    }

    fn pop_due(&self, now: Instant) -> Option<Ready> {
        let mut inner = self.lock();
        let first = inner.waiting.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
