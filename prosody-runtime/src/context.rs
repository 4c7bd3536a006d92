//! What may a handler ask while it runs: is it cancelled, and the timers of its key?

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use prosody_base::{Clock, Instant, sabotaged};
use prosody_state::{Category, Firing, KeyImage, MAX_KEY_BYTES, Overlay, StoreError, Time};
use tokio::sync::Notify;

use crate::handler::HandlerError;
use crate::trace::{Lineage, Place, TraceContext};

/// The surroundings of one attempt at one event. Cheap to clone; a clone that outlives the attempt stays cancelled.
#[derive(Clone)]
pub struct Context {
    attempt: Arc<Attempt>,
}

impl Context {
    pub(crate) fn new(attempt: Arc<Attempt>) -> Context {
        Context { attempt }
    }

    /// A context that is never cancelled, for tests of handlers.
    #[must_use]
    pub fn detached() -> Context {
        Context { attempt: Arc::new(Attempt::new(Clock::system())) }
    }

    /// Whether the attempt should end: its timeout passed, or its partition is being given up. Cheap enough for a
    /// tight loop, and true in time also for a handler that never awaits.
    #[must_use]
    pub fn should_cancel(&self) -> bool {
        self.attempt.is_cancelled()
    }

    /// Resolves when [`should_cancel`](Context::should_cancel) becomes true. A handler that sees this and has not
    /// finished its work must return an error, or the event counts as done.
    pub async fn cancelled(&self) {
        self.attempt.cancelled().await;
    }

    /// As [`cancelled`](Context::cancelled), and lets the attempt's timeout pass by itself. Its worker does that, but not
    /// while the handler holds the worker's thread.
    pub async fn cancelled_or_late(&self) {
        let late = async {
            match self.attempt.deadline {
                Some(deadline) => self.attempt.clock.sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.cancelled() => {}
            () = late => self.attempt.cancel(),
        }
    }

    /// Keeps the attempt's key and its share of `MaxConcurrency` taken, even after the attempt was abandoned, until
    /// every clone of the returned value is dropped. For bindings whose handlers cannot be stopped from outside.
    #[must_use]
    pub fn occupy(&self) -> Occupancy {
        self.attempt.enter()
    }

    /// Where this attempt runs in a distributed trace: as the message's headers say, or, of a timer, as it was where the
    /// timer was scheduled. `None` when nobody traced it.
    ///
    /// It is [current](TraceContext::current) while the handler runs, so what the handler sends and schedules belongs to
    /// the trace by itself; a task that the handler spawns takes it along with [`TraceContext::follow`].
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        self.attempt.place.here()
    }

    /// The same with where it came from, for bindings that make spans of their own.
    #[must_use]
    pub fn lineage(&self) -> Option<Lineage> {
        self.attempt.place.lineage()
    }

    /// Says that the handler runs in this span, which a binding made of [`lineage`](Context::lineage): state and
    /// baggage stay. `recorded` says that
    /// somebody else records it; otherwise it is exported from here, if anything is.
    pub fn locate(&self, here: TraceContext, recorded: bool) {
        self.attempt.place.locate(here, recorded);
    }

    /// Schedules a timer of this event's key, at the nearest second. It fires at that second or later, at once when
    /// that is past, and never while another event of the key runs. A timer that is scheduled already stays.
    ///
    /// This and the calls below count when the event ends well: an attempt that fails leaves nothing of them.
    ///
    /// # Errors
    /// Transient: without a store, which `PROSODY_CASSANDRA_NODES` names; beyond 16,384 timers of the key; once the
    /// attempt has ended.
    pub async fn schedule(&self, time: SystemTime) -> Result<(), HandlerError> {
        let (time, trace) = (seconds(time), self.row());
        self.attempt.timers("scheduling a timer", |overlay| overlay.schedule(time, &trace))
    }

    /// Replaces all timers of this event's key by one.
    ///
    /// # Errors
    /// As [`schedule`](Context::schedule).
    pub async fn clear_and_schedule(&self, time: SystemTime) -> Result<(), HandlerError> {
        let (time, trace) = (seconds(time), self.row());
        self.attempt.timers("replacing timers", |overlay| overlay.clear_and_schedule(time, &trace))
    }

    /// Removes the timer of this event's key that is due at `time`, if there is one.
    ///
    /// # Errors
    /// As [`schedule`](Context::schedule).
    pub async fn unschedule(&self, time: SystemTime) -> Result<(), HandlerError> {
        let time = seconds(time);
        self.attempt.timers("removing a timer", |overlay| {
            overlay.unschedule(time);
            Ok(())
        })
    }

    /// Removes all timers of this event's key.
    ///
    /// # Errors
    /// As [`schedule`](Context::schedule).
    pub async fn clear_scheduled(&self) -> Result<(), HandlerError> {
        self.attempt.timers("removing timers", |overlay| {
            overlay.clear();
            Ok(())
        })
    }

    /// The times of this event's key at which timers are due, ascending, as this attempt's calls have made them. The
    /// timer that is firing is not among them unless it was scheduled again.
    ///
    /// # Errors
    /// As [`schedule`](Context::schedule).
    pub fn scheduled(&self) -> Result<Vec<SystemTime>, HandlerError> {
        let times = self.attempt.timers("listing timers", |overlay| Ok(overlay.scheduled()))?;
        Ok(times.into_iter().map(|time| UNIX_EPOCH + Duration::from_secs(time.seconds().into())).collect())
    }

    /// What a timer that is scheduled now keeps of the trace.
    fn row(&self) -> Bytes {
        TraceContext::current().or_else(|| self.trace()).map(|trace| trace.to_row()).unwrap_or_default()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("should_cancel", &self.should_cancel()).finish_non_exhaustive()
    }
}

/// See [`Context::occupy`].
pub struct Occupancy {
    attempt: Arc<Attempt>,
}

impl Clone for Occupancy {
    fn clone(&self) -> Occupancy {
        self.attempt.enter()
    }
}

impl Drop for Occupancy {
    fn drop(&mut self) {
        self.attempt.exit();
    }
}

impl fmt::Debug for Occupancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Occupancy")
    }
}

/// The nearest second; times before 1970 and after 2106 are the first and the last.
fn seconds(time: SystemTime) -> Time {
    let millis = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Time::from_unix_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// What the handles of an attempt can reach.
#[derive(Default)]
enum Scope {
    #[default]
    NoStore,
    /// The key cannot have a record.
    LongKey,
    /// The key's record, the timer that is firing, and what the calls made of them.
    Open(Arc<KeyImage>, Option<Firing>, Option<Box<Overlay>>),
    Ended,
}

/// What is left to do when a handler that was abandoned has ended at last.
type Farewell = Box<dyn FnOnce() + Send>;

/// Shared between one run of a handler and whoever may end it.
pub(crate) struct Attempt {
    clock: Clock,
    /// When the attempt's timeout passes. Read by the handler itself, so that a loop that never awaits sees it too.
    deadline: Option<Instant>,
    cancelled: AtomicBool,
    abandoned: AtomicBool,
    cancel: Notify,
    abandon: Notify,
    occupants: AtomicUsize,
    scope: Mutex<Scope>,
    pub(crate) place: Place,
    farewell: Mutex<Option<Farewell>>,
}

impl Attempt {
    pub(crate) fn new(clock: Clock) -> Attempt {
        Attempt {
            clock,
            deadline: None,
            cancelled: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            cancel: Notify::new(),
            abandon: Notify::new(),
            occupants: AtomicUsize::new(0),
            scope: Mutex::default(),
            place: Place::default(),
            farewell: Mutex::new(None),
        }
    }

    /// A fresh attempt in the memory of `old` when nobody else looks at that any more.
    pub(crate) fn renew(mut old: Arc<Attempt>, deadline: Instant) -> Arc<Attempt> {
        if let Some(attempt) = Arc::get_mut(&mut old)
            && (!*attempt.cancelled.get_mut() || sabotaged("attempt-cancelled"))
        {
            attempt.deadline = Some(deadline);
            attempt.place.forget();
            return old;
        }
        Arc::new(Attempt { deadline: Some(deadline), ..Attempt::new(old.clock.clone()) })
    }

    /// Fires the token; later calls change nothing.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.cancel.notify_waiters();
    }

    /// Cancels, and lets the worker go on without the handler.
    pub(crate) fn abandon(&self) {
        self.cancel();
        if !matches!(*self.lock_scope(), Scope::NoStore) {
            self.close();
        }
        self.abandoned.store(true, Ordering::Release);
        self.abandon.notify_one();
    }

    /// Resolves when [`abandon`](Attempt::abandon) was called. For one waiter: the worker.
    pub(crate) async fn abandoned(&self) {
        while !self.abandoned.load(Ordering::Acquire) {
            self.abandon.notified().await;
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
            || self.deadline.is_some_and(|deadline| self.clock.now() >= deadline)
    }

    /// When the timeout passes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    async fn cancelled(&self) {
        let mut fired = std::pin::pin!(self.cancel.notified());
        // Registered before the flag is read, or a cancellation in between would be missed.
        fired.as_mut().enable();
        if !self.is_cancelled() {
            fired.await;
        }
    }

    /// Lets timer calls reach the record of the event's key.
    pub(crate) fn open(&self, root: &Arc<KeyImage>, firing: Option<Firing>, key: &[u8]) {
        let long = key.len() > MAX_KEY_BYTES;
        *self.lock_scope() = if long { Scope::LongKey } else { Scope::Open(Arc::clone(root), firing, None) };
    }

    /// Ends the reach of its handles; what they asked for.
    pub(crate) fn close(&self) -> Option<Box<Overlay>> {
        match std::mem::replace(&mut *self.lock_scope(), Scope::Ended) {
            Scope::Open(_, _, overlay) => overlay,
            Scope::NoStore | Scope::LongKey | Scope::Ended => None,
        }
    }

    fn timers<T>(
        &self,
        doing: &str,
        call: impl FnOnce(&mut Overlay) -> Result<T, StoreError>,
    ) -> Result<T, HandlerError> {
        match &mut *self.lock_scope() {
            Scope::NoStore => Err(HandlerError::transient(format!(
                "{doing} needs a store that survives a restart: set PROSODY_CASSANDRA_NODES"
            ))),
            Scope::LongKey => Err(HandlerError::permanent(format!(
                "{doing}: the event's key has more than {MAX_KEY_BYTES} bytes, which no store takes as a key"
            ))),
            Scope::Ended => Err(HandlerError::transient(format!(
                "{doing}: the attempt this context belongs to has ended"
            ))),
            Scope::Open(root, firing, overlay) => {
                let overlay =
                    overlay.get_or_insert_with(|| Box::new(Overlay::new(Arc::clone(root), *firing)));
                call(overlay).map_err(|why| match why.category() {
                    Category::Permanent => HandlerError::permanent(why),
                    Category::Transient | Category::Terminal => HandlerError::transient(why),
                })
            }
        }
    }

    fn lock_scope(&self) -> MutexGuard<'_, Scope> {
        self.scope.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(self: &Arc<Attempt>) -> Occupancy {
        self.occupants.fetch_add(1, Ordering::AcqRel);
        Occupancy { attempt: Arc::clone(self) }
    }

    fn exit(&self) {
        if self.occupants.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.part();
        }
    }

    /// Whether something outside Rust still runs this attempt.
    pub(crate) fn is_occupied(&self) -> bool {
        self.occupants.load(Ordering::Acquire) > 0
    }

    /// Runs `farewell` once nobody occupies the attempt: now, or when the last occupant leaves.
    pub(crate) fn when_vacant(&self, farewell: impl FnOnce() + Send + 'static) {
        *self.lock_farewell() = Some(Box::new(farewell));
        if !self.is_occupied() {
            self.part();
        }
    }

    fn part(&self) {
        let farewell = self.lock_farewell().take();
        if let Some(farewell) = farewell {
            farewell();
        }
    }

    fn lock_farewell(&self) -> MutexGuard<'_, Option<Farewell>> {
        self.farewell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
