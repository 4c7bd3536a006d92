//! Who moves an assigned partition? Its reader task brings records in, workers bring endings back; this file is where
//! both meet the window, under one short lock that no user code ever runs under.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prosody_base::{Instant, sabotaged};
use prosody_wire::TopicPartition;
use tokio::sync::Notify;

use super::event::{Event, Position};
use super::held::Held;
use super::keys::{KeySlot, hash};
use super::offsets::{Snapshot, Ticket};
use super::record::Record;
use super::window::{Admitted, Dropped, Ending, Phase, Window};
use crate::durable::Durable;
use crate::schedule::gate::{Gate, Ran, Ready, Running, Wake};
use crate::schedule::retries::Retries;
use crate::timers::DueTimer;

/// What every partition of a subscription shares.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) gate: Arc<Gate>,
    pub(crate) retries: Arc<Retries>,
    pub(crate) held: Arc<Held>,
    /// Keeps peers from choosing keys that share a name.
    pub(crate) key_seed: u64,
}

/// One partition during one assignment.
pub(crate) struct Partition {
    id: u64,
    tp: TopicPartition,
    /// Makes the names of its keys differ from those of other partitions.
    key_seed: u64,
    shared: Shared,
    /// What of its keys outlives the process; `None` without a store.
    durable: Option<Arc<Durable>>,
    core: Mutex<Core>,
    /// The window's phase, readable without its lock.
    phase: AtomicU8,
    wants_records: Notify,
    ended: Notify,
    /// What still runs has been asked to end.
    cancelled: AtomicBool,
    /// It went from running to draining, or from there to cancelling.
    moved: Notify,
}

pub(super) struct Core {
    pub(super) window: Window,
    reader_waits: bool,
    /// When a record last finished, or came while none was unfinished.
    pub(super) moved: Instant,
}

impl Partition {
    /// `id` is unique in the process. Keys that something of an earlier assignment still holds wait for it.
    pub(crate) fn new(
        id: u64,
        tp: TopicPartition,
        window: Window,
        shared: Shared,
        durable: Option<Arc<Durable>>,
    ) -> Arc<Partition> {
        let key_seed = hash(shared.key_seed ^ u64::from(tp.partition.cast_unsigned()), tp.topic.as_bytes());
        let moved = shared.gate.now();
        let partition = Arc::new(Partition {
            id,
            tp,
            key_seed,
            shared,
            durable,
            core: Mutex::new(Core { window, reader_waits: false, moved }),
            phase: AtomicU8::new(Phase::Running as u8),
            wants_records: Notify::new(),
            ended: Notify::new(),
            cancelled: AtomicBool::new(false),
            moved: Notify::new(),
        });
        partition.shared.held.block(&partition);
        partition
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn tp(&self) -> &TopicPartition {
        &self.tp
    }

    /// What of its keys outlives the process; `None` without a store.
    pub(crate) fn durable(&self) -> Option<&Arc<Durable>> {
        self.durable.as_ref()
    }

    /// What the scheduler calls a key. It outlives the assignment.
    pub(crate) fn key_name(&self, key: &[u8]) -> u64 {
        hash(self.key_seed, key)
    }

    /// Whether events may start.
    pub(crate) fn is_running(&self) -> bool {
        self.phase.load(Ordering::Acquire) == Phase::Running as u8
    }

    /// Waits until records are wanted; how many.
    pub(crate) async fn room(&self) -> usize {
        loop {
            {
                let mut core = self.lock();
                let room = core.window.room();
                core.reader_waits = room == 0;
                if room > 0 {
                    return room;
                }
            }
            self.wants_records.notified().await;
        }
    }

    /// Takes what was read: see [`Window::push`].
    pub(crate) fn push(
        self: &Arc<Self>,
        records: &mut Vec<Record>,
        position: i64,
        leader_epoch: i32,
    ) -> Dropped {
        let mut admitted = Vec::new();
        let (dropped, wake) = {
            let mut core = self.lock();
            if core.window.offsets().outstanding() == 0 {
                core.moved = self.shared.gate.now();
            }
            let dropped = core.window.push(records, position, leader_epoch);
            core.window.admit(&mut admitted);
            (dropped, self.hand_out(&mut admitted))
        };
        self.shared.gate.wake(wake);
        dropped
    }

    /// Takes a timer that is due: see [`Window::fire`].
    pub(crate) fn fire(self: &Arc<Self>, due: DueTimer) -> bool {
        let mut admitted = Vec::new();
        let (taken, wake) = {
            let mut core = self.lock();
            let taken = core.window.fire(due, &mut admitted);
            (taken, self.hand_out(&mut admitted))
        };
        self.shared.gate.wake(wake);
        taken
    }

    /// The log moved under us: see [`Window::reset`].
    pub(crate) fn reset(&self, position: i64, leader_epoch: i32) {
        self.lock().window.reset(position, leader_epoch);
    }

    /// See [`Window::copy_out`].
    pub(crate) fn copy_out(&self, slot: KeySlot, event: &mut Event) {
        self.lock().window.copy_out(slot, event);
    }

    /// An event runs again at `due`; its key waits with it. Not when the partition is being given up: `false`.
    pub(crate) fn retry(self: &Arc<Self>, mut one: Admitted, due: Instant) -> bool {
        let mut core = self.lock();
        if core.window.phase() != Phase::Running || sabotaged("retry-holds-key") {
            return false;
        }
        one.event.failures = one.event.failures.saturating_add(1);
        core.window.copy_out(one.slot, &mut one.event);
        let ready = Ready { partition: Arc::clone(self), admitted: one };
        // Under the lock: a drain that begins now finds the event among the retries.
        self.shared.retries.push(due, ready);
        true
    }

    /// An event that is out may run now; it ends when the partition is being given up.
    pub(crate) fn ready(self: &Arc<Self>, one: Admitted) {
        let (slot, ticket) = (one.slot, one.event.ticket());
        let wake = {
            let core = self.lock();
            // Under the lock: a drain that begins now finds the event at the gate.
            let runs = core.window.phase() == Phase::Running;
            runs.then(|| self.shared.gate.push(self, &mut vec![one]))
        };
        match wake {
            Some(wake) => self.shared.gate.wake(wake),
            None => self.finish(slot, ticket, Ending::Unfinished, &mut Vec::new(), &mut None),
        }
    }

    /// An event that is out goes on with what the record of its key says next; it ends when the partition is being given
    /// up.
    pub(crate) fn resume(self: &Arc<Self>, one: Admitted) {
        let (slot, ticket) = (one.slot, one.event.ticket());
        let mut admitted = vec![one];
        let wake = {
            let core = self.lock();
            (core.window.phase() == Phase::Running).then(|| self.hand_out(&mut admitted))
        };
        match wake {
            Some(wake) => self.shared.gate.wake(wake),
            None => self.finish(slot, ticket, Ending::Unfinished, &mut Vec::new(), &mut None),
        }
    }

    /// An event has ended. `scratch` is the worker's, empty before and after. `ran` is what it took; see
    /// [`Gate::push_from_worker`].
    pub(crate) fn finish(
        self: &Arc<Self>,
        slot: KeySlot,
        ticket: Option<Ticket>,
        ending: Ending,
        scratch: &mut Vec<Admitted>,
        ran: &mut Option<Ran>,
    ) {
        let (read_more, drained, closed) = {
            let mut core = self.lock();
            core.window.finish(slot, ticket, ending, scratch);
            if ending == Ending::Done {
                core.moved = ran.as_ref().map_or_else(|| self.shared.gate.now(), |ran| ran.until);
            }
            self.root(scratch);
            self.shared.gate.push_from_worker(self, scratch, ran);
            let read_more = core.reader_waits && core.window.room() > 0;
            core.reader_waits &= !read_more;
            let phase = core.window.phase();
            (read_more, phase != Phase::Running && core.window.out() == 0, phase == Phase::Closed)
        };
        if read_more {
            self.wants_records.notify_one();
        }
        if drained {
            self.ended.notify_waiters();
        }
        if closed {
            self.shared.held.release(self.id, slot);
        }
    }

    /// Starts giving the partition up: nothing new starts, and what only waits is forgotten.
    pub(crate) fn drain(&self) {
        let mut core = self.lock();
        core.window.drain();
        self.phase.store(core.window.phase() as u8, Ordering::Release);
        let mut none = Vec::new();
        let retries = if sabotaged("drain-retries") { Vec::new() } else { self.shared.retries.take(self.id) };
        let waiting = self.shared.gate.take(self.id).into_iter().chain(retries);
        for Admitted { slot, event, .. } in waiting {
            core.window.finish(slot, event.ticket(), Ending::Unfinished, &mut none);
        }
        self.moved.notify_waiters();
    }

    /// Waits until no event of a draining partition is out.
    pub(crate) async fn ended(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if self.lock().window.out() == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Resolves once the partition is being given up.
    pub(crate) async fn draining(&self) {
        self.wait_until(|| !self.is_running()).await;
    }

    /// Resolves once what still goes on has been asked to end.
    pub(crate) async fn cancelled(&self) {
        self.wait_until(|| self.cancelled.load(Ordering::Acquire)).await;
    }

    async fn wait_until(&self, moved: impl Fn() -> bool) {
        loop {
            let mut next = std::pin::pin!(self.moved.notified());
            next.as_mut().enable();
            if moved() {
                return;
            }
            next.await;
        }
    }

    /// Fires the tokens of what still runs.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.moved.notify_waiters();
        self.running().iter().for_each(|running| running.attempt.cancel());
    }

    /// Gives the partition up. Handlers that still run are abandoned: their results count for nothing, and their keys
    /// stay taken until they end. Returns their keys and positions.
    pub(crate) fn close(&self) -> Vec<(String, Position)> {
        let mut core = self.lock();
        // It happens at the end of the drain and once more after the last commit. Handlers that were abandoned the first time
        // may not have noticed yet: each holds its key once, because it ends once.
        if core.window.phase() == Phase::Closed {
            return Vec::new();
        }
        core.window.close();
        if let Some(durable) = &self.durable {
            durable.timers().drain();
        }
        self.phase.store(Phase::Closed as u8, Ordering::Release);
        let left = self.running();
        let names = left.iter().map(|running| {
            let key = core.window.key(running.slot);
            self.shared.held.hold(&self.tp, running, key);
            running.attempt.abandon();
            (String::from_utf8_lossy(key).into_owned(), running.position)
        });
        names.collect()
    }

    /// What to commit, unless the group knows it.
    pub(crate) fn uncommitted(&self) -> Option<Snapshot> {
        self.lock().window.offsets().uncommitted()
    }

    /// What could be committed, whether the group knows it or not.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.lock().window.offsets().snapshot()
    }

    /// See [`Offsets::finished_here`](super::offsets::Offsets::finished_here).
    pub(crate) fn finished_here(&self, offset: i64) -> bool {
        self.lock().window.offsets().finished_here(offset)
    }

    /// See [`Offsets::committed`](super::offsets::Offsets::committed).
    pub(crate) fn committed(&self, snapshot: Snapshot) {
        self.lock().window.offsets_mut().committed(snapshot);
    }

    /// See [`Window::age`].
    pub(crate) fn age(&self) {
        self.lock().window.age();
    }

    /// Keys that wait for abandoned handlers of earlier assignments: key, event, and since when each runs.
    pub(super) fn abandoned(&self) -> Vec<(String, Position, Instant)> {
        self.shared.held.of(&self.tp)
    }

    fn running(&self) -> Vec<Running> {
        let running = self.shared.gate.running();
        running.into_iter().filter(|running| running.partition == self.id).collect()
    }

    pub(super) fn unblock(self: &Arc<Self>, slot: KeySlot) {
        let mut admitted = Vec::new();
        let wake = {
            let mut core = self.lock();
            core.window.unblock(slot, &mut admitted);
            self.hand_out(&mut admitted)
        };
        self.shared.gate.wake(wake);
    }

    /// Called under the lock, so that a drain that begins later finds the events at the gate.
    fn hand_out(self: &Arc<Self>, admitted: &mut Vec<Admitted>) -> Wake {
        self.root(admitted);
        if admitted.is_empty() { Wake::No } else { self.shared.gate.push(self, admitted) }
    }

    /// Gives events the records of their keys; those that have to wait for theirs are taken out and come back.
    fn root(self: &Arc<Self>, admitted: &mut Vec<Admitted>) {
        if let Some(durable) = &self.durable {
            durable.root(self, admitted);
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "runtime_tests.rs"]
mod tests;
