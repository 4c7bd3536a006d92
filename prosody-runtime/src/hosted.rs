//! What does a binding need whose handlers run on threads of another runtime? Workers that it polls where it likes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::schedule::gate::Gate;

/// Threads that run a handler's workers instead of the library's own.
pub trait Crew: fmt::Debug + Send + Sync {
    /// Takes a worker over: polls it now and whenever it is woken, until it ends.
    fn employ(self: Arc<Self>, worker: Worker);
}

/// Takes one event after the other and calls the handler. Every event's handler is first polled, and with that user
/// code is called, on the thread that polls the worker.
#[must_use]
pub struct Worker {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    share: Share,
}

impl Worker {
    pub(crate) fn new(gate: &Arc<Gate>, future: impl Future<Output = ()> + Send + 'static) -> Worker {
        Worker { future: Box::pin(future), share: Share(Arc::clone(gate)) }
    }

    /// The worker's share of the threads.
    #[must_use]
    pub fn share(&self) -> Share {
        self.share.clone()
    }
}

impl Future for Worker {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.future.as_mut().poll(cx)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Worker")
    }
}

/// A worker that runs user code holds one of as many shares as there are cores, and others wait for it.
#[derive(Clone)]
pub struct Share(Arc<Gate>);

impl Share {
    /// The worker's handler holds its thread for long: another worker may run. Once, until [`regain`](Share::regain).
    pub fn lend(&self) {
        self.0.pause();
    }

    /// The handler has ended, or waits without its thread.
    pub fn regain(&self) {
        self.0.resume();
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Share")
    }
}
