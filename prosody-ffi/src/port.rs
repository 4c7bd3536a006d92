//! How does one client talk to .NET? Its queue of events, its slots of running events, its topic numbers, and its fault.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use prosody_base::{Doors, Lane, Spawner, Task};
use prosody_runtime::{Context, Message, Occupancy, Timer};
use tokio::sync::Notify;

use crate::abi::{
    PR_EVENT_CANCEL, PR_EVENT_DONE, PR_EVENT_FAULT, PR_EVENT_MESSAGE, PR_EVENT_TIMER, PR_EVENT_TOKEN,
    PR_EVENT_TOKEN_CANCEL, PR_FAILED, PR_OK, PR_PENDING, PrBytes, PrEvent, PrResult, PrRun,
};
use crate::crew::{Crew, Waited};
use crate::failure::Failure;
use crate::slots::{Slots, Stale, Token};

/// How an operation ends: a number, or a failure.
pub(crate) type Ended = Result<u64, Failure>;

/// How .NET says an event ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) text: String,
}

/// What waits for .NET itself.
#[derive(Debug)]
pub(crate) enum Event {
    Cancel(Token),
    Done {
        op: u64,
        ended: Ended,
    },
    Fault,
    /// A question for a token.
    Token(u64),
    /// Nobody waits for its answer any more.
    TokenCancel(u64),
}

/// A running event: what .NET reads and what its calls need.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) item: Item,
    pub(crate) context: Context,
    /// The handler's task cannot be dropped from outside, so its key and permit stay taken until it ends.
    pub(crate) _occupancy: Occupancy,
}

#[derive(Debug)]
pub(crate) enum Item {
    Message { message: Message, topic: u32 },
    Timer { timer: Timer, seconds: i64 },
}

/// See the file's question.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) crew: Arc<Crew>,
    slots: Mutex<Slots<Running, Outcome>>,
    topics: RwLock<Vec<Arc<str>>>,
    operations: AtomicU32,
    reported: Notify,
    faulted: AtomicBool,
    fault: Mutex<String>,
}

impl Port {
    pub(crate) fn new(doors: Doors) -> Arc<Port> {
        Arc::new_cyclic(|port: &Weak<Port>| {
            let port = Weak::clone(port);
            let look_after = move |token| port.upgrade().and_then(|port| port.look_after(token));
            Port {
                crew: Arc::new(Crew::new(doors, Box::new(look_after))),
                slots: Mutex::default(),
                topics: RwLock::default(),
                operations: AtomicU32::new(0),
                reported: Notify::new(),
                faulted: AtomicBool::new(false),
                fault: Mutex::default(),
            }
        })
    }

    /// Works on this thread until there is something for .NET itself; see [`Crew::wait`].
    pub(crate) fn wait(
        &self,
        run: PrRun,
        max: usize,
        timeout: Duration,
        mut out: impl FnMut(PrEvent),
    ) -> Waited {
        self.crew.wait(run, max, timeout, |event| {
            let mut raw = EMPTY;
            match event {
                Event::Cancel(token) => {
                    raw.kind = PR_EVENT_CANCEL;
                    raw.token = token.0;
                    raw.spare = self.crew.spare();
                }
                Event::Done { op, ended } => {
                    raw.kind = PR_EVENT_DONE;
                    raw.token = op;
                    match ended {
                        Ok(value) => raw.value = value,
                        Err(failure) => {
                            raw.status = PR_FAILED;
                            raw.error = failure.into_raw();
                        }
                    }
                }
                Event::Fault => raw.kind = PR_EVENT_FAULT,
                Event::Token(question) => {
                    raw.kind = PR_EVENT_TOKEN;
                    raw.token = question;
                }
                Event::TokenCancel(question) => {
                    raw.kind = PR_EVENT_TOKEN_CANCEL;
                    raw.token = question;
                }
            }
            out(raw);
        })
    }

    /// Tells .NET of a cancellation while the event's handler holds the thread of its worker.
    fn look_after(&self, token: Token) -> Option<Task<()>> {
        let (context, crew) = (self.context(token.0).ok()?, Arc::clone(&self.crew));
        let told = async move {
            context.cancelled_or_late().await;
            crew.push(Event::Cancel(token));
        };
        Some(self.crew.spawner().spawn(Lane::Work, told))
    }

    /// .NET is done with an event. Its bytes are gone afterwards.
    pub(crate) fn complete(&self, token: u64, code: i32, text: String) -> Result<(), Stale> {
        let completed = self.slots().complete(Token(token), Outcome { code, text })?;
        match completed.waker {
            Some(waker) => {
                // The event goes first: whoever wakes may find its key and permit free.
                drop(completed.event);
                waker.wake();
                Ok(())
            }
            None => Err(Stale),
        }
    }

    /// The context of a running event.
    pub(crate) fn context(&self, token: u64) -> Result<Context, Stale> {
        self.slots().running(Token(token)).map(|running| running.context.clone())
    }

    /// Runs an operation's first step on the calling thread and the rest, if there is one, on the io lane.
    pub(crate) fn start<F>(
        self: &Arc<Self>,
        spawner: &Spawner,
        op: u64,
        future: F,
        result: &mut PrResult,
    ) -> i32
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        let mut future = Box::pin(future);
        let first = {
            let _runtime = spawner.enter(Lane::Io);
            future.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()))
        };
        match first {
            Poll::Ready(Ok(value)) => {
                result.value = value;
                PR_OK
            }
            Poll::Ready(Err(failure)) => {
                result.error = failure.into_raw();
                PR_FAILED
            }
            Poll::Pending => {
                let port = Arc::clone(self);
                let pending = Pending::new(port, op);
                spawner.spawn(Lane::Io, async move { pending.end(future.await) }).detach();
                PR_PENDING
            }
        }
    }

    /// The number under which .NET knows a topic.
    pub(crate) fn topic_number(&self, topic: &Arc<str>) -> u32 {
        let position = |topics: &[Arc<str>]| topics.iter().position(|known| known == topic);
        // A statement of its own: in a `match` the read lock would live until the write lock is asked for.
        let known = position(&self.topics.read().unwrap_or_else(PoisonError::into_inner));
        let at = known.unwrap_or_else(|| {
            let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
            position(&topics).unwrap_or_else(|| {
                topics.push(Arc::clone(topic));
                topics.len() - 1
            })
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// The topic's name; it lives as long as the port.
    pub(crate) fn topic(&self, number: u32) -> Option<Arc<str>> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.get(usize::try_from(number).ok()?).cloned()
    }

    /// Makes the client unusable.
    pub(crate) fn fault(&self, text: &str) {
        text.clone_into(&mut self.fault.lock().unwrap_or_else(PoisonError::into_inner));
        if !self.faulted.swap(true, Ordering::AcqRel) {
            self.crew.push(Event::Fault);
        }
    }

    pub(crate) fn is_faulted(&self) -> bool {
        self.faulted.load(Ordering::Acquire)
    }

    pub(crate) fn fault_text(&self) -> String {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// No further events; pump threads end once the queue is empty.
    pub(crate) fn close(&self) {
        self.crew.close();
    }

    /// Events whose bytes .NET may still read.
    pub(crate) fn with_host(&self) -> usize {
        self.slots().with_host()
    }

    pub(crate) fn operations(&self) -> u32 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Resolves when no operation goes on.
    pub(crate) async fn all_reported(&self) {
        loop {
            let mut reported = pin!(self.reported.notified());
            // Registered before the count is read, or the last report in between would be missed.
            reported.as_mut().enable();
            if self.operations() == 0 {
                return;
            }
            reported.await;
        }
    }

    pub(crate) fn slots(&self) -> MutexGuard<'_, Slots<Running, Outcome>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const EMPTY: PrEvent = PrEvent {
    kind: 0,
    status: PR_OK,
    token: 0,
    offset: 0,
    timestamp: 0,
    value: 0,
    error: std::ptr::null_mut(),
    key: PrBytes::NONE,
    payload: PrBytes::NONE,
    topic: 0,
    partition: 0,
    spare: 0,
    scope: std::ptr::null_mut(),
};

/// What .NET reads of an event. It points into the event.
pub(crate) fn describe(item: &Item) -> PrEvent {
    let mut raw = EMPTY;
    match item {
        Item::Message { message, topic } => {
            raw.kind = PR_EVENT_MESSAGE;
            raw.offset = message.offset();
            raw.timestamp = message.timestamp_millis();
            raw.key = PrBytes::of(message.key().as_bytes());
            raw.payload = PrBytes::of(message.payload());
            raw.topic = *topic;
            raw.partition = message.partition();
        }
        Item::Timer { timer, seconds } => {
            raw.kind = PR_EVENT_TIMER;
            raw.key = PrBytes::of(timer.key.as_bytes());
            raw.timestamp = *seconds;
        }
    }
    raw
}

/// An operation that goes on. Dropped without an end (its task was killed), it ends as closed, so that nobody in .NET
/// waits for ever.
struct Pending {
    port: Arc<Port>,
    op: u64,
    ended: bool,
}

impl Pending {
    fn new(port: Arc<Port>, op: u64) -> Pending {
        port.operations.fetch_add(1, Ordering::Relaxed);
        Pending { port, op, ended: false }
    }

    fn end(mut self, ended: Ended) {
        self.report(ended);
    }

    fn report(&mut self, ended: Ended) {
        if !std::mem::replace(&mut self.ended, true) {
            self.port.crew.push(Event::Done { op: self.op, ended });
            self.port.operations.fetch_sub(1, Ordering::Relaxed);
            self.port.reported.notify_waiters();
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let text = if std::thread::panicking() { "the operation panicked" } else { "the client was closed" };
        self.report(Err(Failure::new(crate::abi::PR_ERROR_CLOSED, text)));
    }
}
