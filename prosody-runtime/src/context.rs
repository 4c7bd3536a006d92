//! What may a handler ask while it runs: is it cancelled, and the timers of its key?

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use prosody_base::{Clock, Instant};
use tokio::sync::Notify;

use crate::handler::HandlerError;

/// The surroundings of one attempt at one event. Cheap to clone; a clone that outlives the attempt stays cancelled.
#[derive(Clone)]
pub struct Context {
    attempt: Arc<Attempt>,
}

impl Context {
    #[allow(dead_code, reason = "made by the worker")]
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

    /// Keeps the attempt's key and its share of `MaxConcurrency` taken, even after the attempt was abandoned, until
    /// every clone of the returned value is dropped. For bindings whose handlers cannot be stopped from outside.
    #[must_use]
    pub fn occupy(&self) -> Occupancy {
        Occupancy { _attempt: Arc::clone(&self.attempt) }
    }

    /// Schedules a timer of this event's key.
    ///
    /// # Errors
    /// Transient: timers need a store, which `PROSODY_CASSANDRA_NODES` names.
    pub async fn schedule(&self, _time: SystemTime) -> Result<(), HandlerError> {
        Err(no_store("scheduling a timer"))
    }

    /// Replaces all timers of this event's key by one.
    ///
    /// # Errors
    /// As [`schedule`](Context::schedule).
    pub async fn clear_and_schedule(&self, _time: SystemTime) -> Result<(), HandlerError> {
        Err(no_store("replacing timers"))
    }

    /// Removes the timer of this event's key that is due at `time`.
    ///
    /// # Errors
    /// As [`schedule`](Context::schedule).
    pub async fn unschedule(&self, _time: SystemTime) -> Result<(), HandlerError> {
        Err(no_store("removing a timer"))
    }

    /// Removes all timers of this event's key.
    ///
    /// # Errors
    /// As [`schedule`](Context::schedule).
    pub async fn clear_scheduled(&self) -> Result<(), HandlerError> {
        Err(no_store("removing timers"))
    }

    /// The times of this event's key at which timers are due, ascending.
    ///
    /// # Errors
    /// As [`schedule`](Context::schedule).
    pub async fn scheduled(&self) -> Result<Vec<SystemTime>, HandlerError> {
        Err(no_store("listing timers"))
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("should_cancel", &self.should_cancel()).finish_non_exhaustive()
    }
}

/// See [`Context::occupy`].
#[derive(Clone)]
pub struct Occupancy {
    _attempt: Arc<Attempt>,
}

impl fmt::Debug for Occupancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Occupancy")
    }
}

fn no_store(doing: &str) -> HandlerError {
    HandlerError::transient(format!(
        "{doing} needs a store that survives a restart: set PROSODY_CASSANDRA_NODES"
    ))
}

/// Shared between one run of a handler and whoever may end it.
pub(crate) struct Attempt {
    clock: Clock,
    /// When the attempt's timeout passes. Read by the handler itself, so that a loop that never awaits sees it too.
    deadline: Option<Instant>,
    cancelled: AtomicBool,
    signal: Notify,
}

#[allow(dead_code, reason = "used by the worker")]
impl Attempt {
    pub(crate) fn new(clock: Clock) -> Attempt {
        Attempt { clock, deadline: None, cancelled: AtomicBool::new(false), signal: Notify::new() }
    }

    /// Fires the token; later calls change nothing.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.signal.notify_waiters();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
            || self.deadline.is_some_and(|deadline| self.clock.now() >= deadline)
    }

    async fn cancelled(&self) {
        let mut fired = std::pin::pin!(self.signal.notified());
        // Registered before the flag is read, or a cancellation in between would be missed.
        fired.as_mut().enable();
        if !self.is_cancelled() {
            fired.await;
        }
    }
}
