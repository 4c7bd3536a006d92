//! Which worker runs the next event, within `MaxConcurrency`?
//!
//! A worker is one task that runs one event at a time, so workers are permits: at most `MaxConcurrency` exist, and each
//! is started once. Ready events wait here; `fair.rs` says which is next. What an event took is accounted when its worker
//! comes back, before its key's next event waits, under the lock that is taken then anyway.
//!
//! A handler that ends without waiting costs no hop: its worker takes the next event itself. Another worker is woken
//! only while events wait and fewer workers than threads are *active*, which means running a handler that has not
//! yet waited for anything. A handler that blocks its thread stays active and takes nothing from others but that.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use prosody_base::{Clock, Instant};
use tokio::sync::Notify;

use crate::context::Attempt;
use crate::partition::event::Position;
use crate::partition::keys::{KeySlot, Keyed};
use crate::partition::runtime::Partition;
use crate::partition::window::Admitted;
use crate::schedule::fair::{Class, Grant, Policy, Selector};

/// An event that may run, with the partition it belongs to.
pub(crate) struct Ready {
    pub(crate) partition: Arc<Partition>,
    pub(crate) admitted: Admitted,
}

/// An event has run: what its permit was granted for, and until when.
pub(crate) struct Ran {
    pub(crate) grant: Grant,
    pub(crate) until: Instant,
}

/// Starts the worker of a seat.
type Launch = Box<dyn Fn(&Arc<Gate>, Arc<Seat>) + Send + Sync>;

/// Handlers that were abandoned and still run, over all subscriptions of a client. Each keeps a permit.
#[derive(Default)]
pub(crate) struct Occupied {
    count: AtomicUsize,
    /// Whose events may wait for one of those permits.
    newest: Mutex<Weak<Gate>>,
}

/// Hands ready events to workers.
pub(crate) struct Gate {
    inner: Mutex<Inner>,
    launch: Launch,
    clock: Clock,
    occupied: Arc<Occupied>,
    max: usize,
    /// Threads that can run handlers at the same instant.
    threads: usize,
}

struct Inner {
    ready: Selector<Ready>,
    seats: Vec<Arc<Seat>>,
    /// Seats whose workers wait for an event, or did when the gate closed; the last one slept least.
    idle: Vec<usize>,
    active: usize,
    /// Workers that ended because their permit went to an abandoned handler.
    retired: Vec<usize>,
    closed: bool,
}

/// Where one worker sits.
pub(crate) struct Seat {
    number: usize,
    woken: Notify,
    current: Mutex<Option<Running>>,
}

/// What a worker runs.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) partition: u64,
    pub(crate) slot: KeySlot,
    pub(crate) position: Position,
    /// When it started.
    pub(crate) since: Instant,
    pub(crate) attempt: Arc<Attempt>,
}

/// Someone to be woken once no lock is held.
#[must_use]
pub(crate) enum Wake {
    No,
    Seat(Arc<Seat>),
    Launch(Arc<Seat>),
}

impl Gate {
    /// `launch` starts the task of a worker, which calls [`next`](Gate::next) until it returns `None`.
    pub(crate) fn new(
        (max, policy): (usize, Policy),
        threads: usize,
        occupied: Arc<Occupied>,
        clock: Clock,
        launch: Launch,
    ) -> Arc<Gate> {
        let inner = Inner {
            ready: Selector::new(policy, clock.now()),
            seats: Vec::new(),
            idle: Vec::new(),
            active: 0,
            retired: Vec::new(),
            closed: false,
        };
        let gate = Arc::new(Gate {
            inner: Mutex::new(inner),
            launch,
            clock,
            occupied,
            max: max.max(1),
            threads: threads.max(1),
        });
        *gate.occupied.newest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&gate);
        gate
    }

    /// Queues events from outside a worker. The caller performs the wake after releasing its own locks.
    pub(crate) fn push(&self, partition: &Arc<Partition>, admitted: &mut Vec<Admitted>) -> Wake {
        let now = self.clock.now();
        let mut inner = self.lock();
        inner.queue(partition, admitted, now);
        self.next_wake(&mut inner)
    }

    /// Queues what a worker's own event made ready. Nobody is woken: the worker comes back for the next event at once.
    /// Takes `ran`, or leaves it for [`next`](Gate::next).
    pub(crate) fn push_from_worker(
        &self,
        partition: &Arc<Partition>,
        admitted: &mut Vec<Admitted>,
        ran: &mut Option<Ran>,
    ) {
        if !admitted.is_empty() {
            let now = ran.as_ref().map_or_else(|| self.clock.now(), |ran| ran.until);
            let mut inner = self.lock();
            inner.account(ran.take());
            inner.queue(partition, admitted, now);
        }
    }

    /// Performs a wake.
    pub(crate) fn wake(self: &Arc<Self>, wake: Wake) {
        match wake {
            Wake::No => {}
            Wake::Seat(seat) => seat.woken.notify_one(),
            Wake::Launch(seat) => (self.launch)(self, seat),
        }
    }

    /// The next event for the worker of `seat`; waits for one. `None` ends the worker. `ran` is its last event, unless
    /// that is accounted already, and `now` the time.
    pub(crate) async fn next(
        self: &Arc<Self>,
        seat: &Arc<Seat>,
        mut ran: Option<Ran>,
        mut now: Instant,
    ) -> Option<(Ready, Grant)> {
        loop {
            let (mut taken, wake, is_alone) = {
                let mut inner = self.lock();
                inner.account(ran.take());
                if inner.closed {
                    inner.active -= 1;
                    let kept_its_permit = !inner.idle.contains(&seat.number);
                    drop(inner);
                    if kept_its_permit {
                        self.occupied.leave();
                    }
                    return None;
                }
                if inner.working() > self.allowed() {
                    inner.active -= 1;
                    inner.retired.push(seat.number);
                    return None;
                }
                let taken = inner.ready.pop(now);
                if taken.is_none() {
                    inner.active -= 1;
                    inner.idle.push(seat.number);
                }
                let wake = self.next_wake(&mut inner);
                (taken, wake, inner.working() <= inner.active.min(self.threads))
            };
            self.wake(wake);
            if let Some((ready, _)) = &mut taken {
                // Others have been suspended, so this one may be, too, for long: its batch with a thousand other records
                // must not stay in memory until then.
                if !is_alone {
                    ready.partition.copy_out(ready.admitted.slot, &mut ready.admitted.event);
                }
                return taken;
            }
            seat.woken.notified().await;
            now = self.clock.now();
        }
    }

    /// The worker's handler waits for something: another worker may use the thread.
    pub(crate) fn pause(self: &Arc<Self>) {
        let wake = {
            let mut inner = self.lock();
            inner.active -= 1;
            self.next_wake(&mut inner)
        };
        self.wake(wake);
    }

    /// The worker's handler has ended after a [`pause`](Gate::pause).
    pub(crate) fn resume(&self) {
        self.lock().active += 1;
    }

    /// Takes back the ready events of one partition.
    pub(crate) fn take(&self, partition: u64) -> Vec<Admitted> {
        let taken = self.lock().ready.take(|ready| ready.partition.id() == partition);
        taken.into_iter().map(|ready| ready.admitted).collect()
    }

    /// The time.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// How many run (abandoned ones included), may run at most, and wait for a permit.
    pub(crate) fn load(&self) -> (usize, usize, usize) {
        let inner = self.lock();
        let seated = inner.seats.iter().filter(|seat| seat.current().is_some()).count();
        (seated + self.occupied.count.load(Ordering::Acquire), self.max, inner.ready.len())
    }

    /// What runs now.
    pub(crate) fn running(&self) -> Vec<Running> {
        self.lock().seats.iter().filter_map(|seat| seat.current().clone()).collect()
    }

    /// An abandoned handler has ended: its permit is free.
    pub(crate) fn vacated(self: &Arc<Self>, ran: Option<Ran>) {
        self.lock().account(ran);
        self.occupied.leave();
    }

    /// Wakes a worker for what [`push_from_worker`](Gate::push_from_worker) queued on behalf of somebody else.
    pub(crate) fn rouse(self: &Arc<Self>) {
        let wake = {
            let mut inner = self.lock();
            self.next_wake(&mut inner)
        };
        self.wake(wake);
    }

    /// An abandoned handler goes on without a worker and keeps a permit.
    pub(crate) fn occupy(&self) {
        self.occupied.count.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends the workers. What is ready is dropped. A worker whose handler holds its thread cannot end yet: it keeps its
    /// permit, also from later subscriptions.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        if std::mem::replace(&mut inner.closed, true) {
            return;
        }
        drop(inner.ready.take(|_| true));
        inner.active += inner.idle.len();
        self.occupied.count.fetch_add(inner.working() - inner.idle.len(), Ordering::AcqRel);
        // Nobody is woken from this list any more; it says who had nothing to do at the end.
        for seat in inner.idle.iter().filter_map(|number| inner.seats.get(*number)) {
            seat.woken.notify_one();
        }
    }

    fn allowed(&self) -> usize {
        self.max.saturating_sub(self.occupied.count.load(Ordering::Acquire))
    }

    /// Whom to wake, if events wait and a thread is free. Whoever it is counts as active from now on.
    fn next_wake(&self, inner: &mut Inner) -> Wake {
        if inner.ready.is_empty() || inner.active >= self.threads || inner.closed {
            return Wake::No;
        }
        if let Some(seat) = inner.idle.pop().and_then(|number| inner.seats.get(number)) {
            inner.active += 1;
            return Wake::Seat(Arc::clone(seat));
        }
        if inner.working() >= self.allowed() {
            return Wake::No;
        }
        inner.active += 1;
        if let Some(seat) = inner.retired.pop().and_then(|number| inner.seats.get(number)) {
            return Wake::Launch(Arc::clone(seat));
        }
        let seat = Seat { number: inner.seats.len(), woken: Notify::new(), current: Mutex::new(None) };
        let seat = Arc::new(seat);
        inner.seats.push(Arc::clone(&seat));
        Wake::Launch(seat)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Occupied {
    /// A permit is free: an event of the newest subscription may have it.
    fn leave(&self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(gate) = newest {
            gate.rouse();
        }
    }
}

impl Inner {
    fn queue(&mut self, partition: &Arc<Partition>, admitted: &mut Vec<Admitted>, now: Instant) {
        for admitted in admitted.drain(..) {
            let event = &admitted.event;
            let key = partition.key_name(event.key());
            let again = event.failures > 0 || event.is_retry();
            let class = if again { Class::Failure } else { Class::Normal };
            self.ready.push(key, class, now, Ready { partition: Arc::clone(partition), admitted });
        }
    }

    fn account(&mut self, ran: Option<Ran>) {
        if let Some(Ran { grant, until }) = ran {
            self.ready.release(&grant, until);
        }
    }

    fn working(&self) -> usize {
        self.seats.len() - self.retired.len()
    }
}

impl Seat {
    /// Makes what the worker runs known to whoever may cancel it.
    pub(crate) fn sit(&self, running: Running) {
        *self.current() = Some(running);
    }

    /// The worker runs nothing.
    pub(crate) fn rise(&self) {
        *self.current() = None;
    }

    fn current(&self) -> MutexGuard<'_, Option<Running>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
