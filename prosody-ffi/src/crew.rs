//! Who works for a client? Threads of .NET, which poll its workers and take what else there is for .NET.
//!
//! As few as possible: a thread that *attends* looks at what waits between any two pieces of work, so nobody is woken
//! while one does, and a handler that ends at once costs no system call. The price is that what waits behind user code
//! waits for it, so a [`watch`](Crew::watch) looks at the threads while there is work: one that has run the same
//! handler for a tick attends no more, and another one is called. There is always another one: whoever is about to
//! call user code hears how many threads are parked, and .NET starts one when there is none.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prosody_base::{Doors, Instant, Lane, Spawner, Task as Spawned};
use prosody_runtime::Worker;

use crate::abi::PrRun;
use crate::port::Event;
use crate::pump::{Look, Pump, SAMPLE};
use crate::slots::Token;
use crate::task::Task;

/// How often the watch looks. User code that was running at two looks in a row has stalled.
const TICK: Duration = Duration::from_millis(1);
/// The watch ends after this many looks at nothing.
const QUIET_TICKS: u32 = 3;
/// After a second stall, so many handlers are not waited for from their start: those that block seldom come alone.
const SLOW_CALLS: u32 = 32;
/// A stall with more quick handlers than this since the one before is no second one: on a busy machine any thread stands
/// still now and then.
const QUICK_CALLS: u32 = 256;
/// Handlers that take longer than this on average are worth the wake-up of another thread.
const HEAVY: Duration = Duration::from_micros(20);

/// What a thread got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// This many events were handed over; at least one.
    Events(usize),
    /// Nothing came in time, and another thread is parked.
    TimedOut,
    /// Nothing will ever come.
    Closed,
}

/// What looks after an event whose handler has stalled.
type LookAfter = Box<dyn Fn(Token) -> Option<Spawned<()>> + Send + Sync>;

/// See the file's question.
pub(crate) struct Crew {
    state: Mutex<State>,
    bell: Condvar,
    /// A copy of the state's number, for whoever needs it only roughly.
    parked: AtomicU32,
    slow: AtomicU32,
    /// Handlers that ended since the last stall, as far as they are timed.
    quick: AtomicU32,
    /// Average time of a handler in nanoseconds.
    pace: AtomicU32,
    doors: Doors,
    look_after: LookAfter,
}

#[derive(Debug, Default)]
struct State {
    /// What .NET itself must do.
    events: VecDeque<Event>,
    tasks: VecDeque<Arc<Task>>,
    pumps: Vec<Arc<Pump>>,
    parked: usize,
    /// Threads that were called and have not woken yet.
    called: usize,
    /// Threads that will look at the queues soon, those called included.
    attending: usize,
    /// Threads with ends of operations that .NET does not know yet.
    holding: usize,
    /// Everything ever queued and ever taken.
    put: u64,
    taken: u64,
    /// How often a thread found nothing to do.
    rests: u64,
    watched: bool,
    closed: bool,
}

impl Crew {
    pub(crate) fn new(doors: Doors, look_after: LookAfter) -> Crew {
        Crew {
            state: Mutex::default(),
            bell: Condvar::new(),
            parked: AtomicU32::new(0),
            slow: AtomicU32::new(0),
            quick: AtomicU32::new(QUICK_CALLS),
            pace: AtomicU32::new(0),
            doors,
            look_after,
        }
    }

    /// Queues an event for .NET. A closed crew drops it.
    pub(crate) fn push(self: &Arc<Self>, event: Event) {
        let mut state = self.lock();
        if !state.closed {
            state.events.push_back(event);
            self.added(state);
        }
    }

    /// Queues a task that was woken. A closed crew has no threads any more; what is left needs none of .NET.
    pub(crate) fn put(self: &Arc<Self>, task: Arc<Task>) {
        let mut state = self.lock();
        if state.closed && state.attending == 0 {
            drop(state);
            self.doors.spawner.spawn(Lane::Work, async move { task.run(None) }).detach();
        } else {
            state.tasks.push_back(task);
            self.added(state);
        }
    }

    fn added(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        state.put += 1;
        let heavy = Duration::from_nanos(self.pace.load(Ordering::Relaxed).into()) >= HEAVY;
        let call =
            (state.attending == 0 || (heavy && state.waiting() > state.called)) && self.call(&mut state);
        let watch = !std::mem::replace(&mut state.watched, true);
        drop(state);
        if call {
            self.bell.notify_one();
        }
        if watch {
            self.doors.spawner.spawn(Lane::Work, Arc::clone(self).watch()).detach();
        }
    }

    /// Works on this thread until there is something for .NET itself, at most until `timeout` without any work. Up to
    /// `max` events go to `take`, in order; a cancellation goes alone, because it is user code.
    pub(crate) fn wait(
        self: &Arc<Self>,
        run: PrRun,
        max: usize,
        timeout: Duration,
        mut take: impl FnMut(Event),
    ) -> Waited {
        let pump = Pump::here(run, self);
        let mut state = self.lock();
        if pump.holds.swap(false, Ordering::Relaxed) {
            state.holding -= 1;
        } else {
            state.attending += 1;
        }
        loop {
            if !state.events.is_empty() {
                let (count, user_code) = state.batch(max);
                state.events.drain(..count).for_each(&mut take);
                state.taken += count as u64;
                if user_code {
                    self.leave(state);
                } else {
                    // It is back in no time, so it attends still.
                    state.holding += 1;
                    pump.holds.store(true, Ordering::Relaxed);
                }
                return Waited::Events(count);
            }
            if let Some(task) = state.tasks.pop_front() {
                state.taken += 1;
                drop(state);
                task.run(Some(&pump));
                state = self.lock();
                continue;
            }
            if state.closed && state.holding == 0 {
                state.attending -= 1;
                state.pumps.retain(|known| !Arc::ptr_eq(known, &pump));
                drop(state);
                self.bell.notify_all();
                return Waited::Closed;
            }
            state.attending -= 1;
            state.parked += 1;
            state.rests += 1;
            self.parked_changed(&state);
            state = self
                .bell
                .wait_timeout_while(state, timeout, |state| {
                    state.called == 0 && !(state.closed && state.holding == 0)
                })
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if state.called > 0 {
                // Whoever called has counted this thread as attending.
                state.called -= 1;
                continue;
            }
            let alone = state.parked == 1;
            state.parked -= 1;
            self.parked_changed(&state);
            if !alone && !state.closed {
                state.pumps.retain(|known| !Arc::ptr_eq(known, &pump));
                return Waited::TimedOut;
            }
            state.attending += 1;
        }
    }

    /// No further events; threads leave once nothing is left.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.bell.notify_all();
    }

    /// This thread attends no more: it goes into user code.
    pub(crate) fn step_aside(&self) {
        self.leave(self.lock());
    }

    /// It is back.
    pub(crate) fn step_in(self: &Arc<Self>) {
        let mut state = self.lock();
        state.attending += 1;
        let watch = !std::mem::replace(&mut state.watched, true);
        drop(state);
        if watch {
            self.doors.spawner.spawn(Lane::Work, Arc::clone(self).watch()).detach();
        }
    }

    fn leave(&self, mut state: MutexGuard<'_, State>) {
        state.attending -= 1;
        let call = state.attending == 0 && state.waiting() > 0 && self.call(&mut state);
        drop(state);
        if call {
            self.bell.notify_one();
        }
    }

    /// Calls a parked thread, which attends from now on. The caller rings the bell.
    fn call(&self, state: &mut State) -> bool {
        if state.parked == 0 {
            return false;
        }
        state.parked -= 1;
        state.called += 1;
        state.attending += 1;
        self.parked_changed(state);
        true
    }

    fn parked_changed(&self, state: &State) {
        self.parked.store(u32::try_from(state.parked).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Looks at the threads while there is work.
    async fn watch(self: Arc<Self>) {
        let (mut quiet, mut put, mut rests) = (0, 0, 0);
        while quiet < QUIET_TICKS {
            self.doors.clock.sleep(TICK).await;
            let pumps = self.lock().pumps.clone();
            let looks: Vec<Look> = pumps.iter().map(|pump| pump.look(&self)).collect();
            if looks.contains(&Look::Stalled) && self.quick.swap(0, Ordering::Relaxed) < QUICK_CALLS {
                self.slow.store(SLOW_CALLS, Ordering::Relaxed);
            }
            let mut state = self.lock();
            // What waited at the last look waits still, or nobody had a moment's rest since.
            let late = state.attending == 0 || state.taken < put || state.rests == rests;
            let call = late && state.waiting() > 0 && self.call(&mut state);
            (put, rests) = (state.put, state.rests);
            let busy =
                state.waiting() > 0 || state.attending > 0 || looks.iter().any(|look| *look != Look::Rests);
            quiet = if busy { 0 } else { quiet + 1 };
            // Under the lock: whoever brings work after this starts a new watch.
            state.watched = quiet < QUIET_TICKS;
            drop(state);
            if call {
                self.bell.notify_one();
            }
        }
    }

    pub(crate) fn spare(&self) -> u32 {
        self.parked.load(Ordering::Relaxed)
    }

    /// Whether handlers hold their threads these days.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed) > 0
    }

    /// A handler gave its thread back. `start` when it was timed.
    pub(crate) fn ended(&self, start: Option<Instant>, stalled: bool) {
        if !stalled && self.is_slow() {
            let _ = self.slow.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        }
        if let Some(start) = start {
            // Cut, so that one call that was interrupted says little.
            let took = self.now().saturating_duration_since(start).min(HEAVY * 2);
            let pace = self.pace.load(Ordering::Relaxed);
            self.pace.store(pace - pace / 8 + took.subsec_nanos() / 8, Ordering::Relaxed);
            if !stalled {
                let _ = self.quick.fetch_add(SAMPLE, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn look_after(&self, token: Token) -> Option<Spawned<()>> {
        (self.look_after)(token)
    }

    pub(crate) fn knows(&self, pump: &Arc<Pump>) -> bool {
        self.lock().pumps.iter().any(|known| Arc::ptr_eq(known, pump))
    }

    pub(crate) fn enter(&self, pump: Arc<Pump>) {
        self.lock().pumps.push(pump);
    }

    pub(crate) fn spawner(&self) -> &Spawner {
        &self.doors.spawner
    }

    pub(crate) fn now(&self) -> Instant {
        self.doors.clock.now()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn waiting(&self) -> usize {
        self.events.len() + self.tasks.len()
    }

    /// How many events go together, and whether they are user code.
    fn batch(&self, max: usize) -> (usize, bool) {
        let is_cancel = |event: &&Event| matches!(event, Event::Cancel(_));
        match self.events.front().filter(is_cancel) {
            Some(_) => (1, true),
            None => {
                (self.events.iter().take(max.max(1)).take_while(|event| !is_cancel(event)).count(), false)
            }
        }
    }
}

impl prosody_runtime::Crew for Crew {
    fn employ(self: Arc<Self>, worker: Worker) {
        Task::start(&self, worker);
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("state", &self.state).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "crew_tests.rs"]
mod tests;
