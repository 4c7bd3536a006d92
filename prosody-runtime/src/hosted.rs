//! What does a binding need whose handlers run on threads of another runtime? Workers that it polls where it likes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use prosody_base::{Clock, Hold};

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
    pub(crate) fn new(
        gate: &Arc<Gate>,
        clock: &Clock,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Worker {
        let future: Pin<Box<dyn Future<Output = ()> + Send>> =
            if clock.is_manual() { Box::pin(Standing::new(clock, future)) } else { Box::pin(future) };
        Worker { future, share: Share(Arc::clone(gate)) }
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

/// A worker beside a clock that somebody moves. That clock's own thread does not see what waits for another one, so the
/// clock stands still from the moment the worker is woken until it waits again.
struct Standing {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    bell: Arc<Bell>,
}

struct Bell {
    clock: Clock,
    state: Mutex<(Option<Hold>, Waker)>,
}

impl Standing {
    fn new(clock: &Clock, future: impl Future<Output = ()> + Send + 'static) -> Standing {
        let state = Mutex::new((Some(clock.hold()), Waker::noop().clone()));
        Standing { future: Box::pin(future), bell: Arc::new(Bell { clock: clock.clone(), state }) }
    }
}

impl Future for Standing {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let _stands = {
            let mut state = self.bell.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.1.clone_from(cx.waker());
            state.0.take()
        };
        let waker = Waker::from(Arc::clone(&self.bell));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.0.get_or_insert_with(|| self.clock.hold());
            state.1.clone()
        };
        waker.wake();
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prosody_base::{Lane, VirtualTime};

    use super::*;

    #[tokio::test]
    async fn a_clock_that_is_moved_stands_still_while_a_worker_waits_for_its_thread() {
        let time = VirtualTime::start().unwrap();
        let (clock, start) = (time.doors().clock.clone(), time.doors().clock.now());
        let (go, told) = tokio::sync::oneshot::channel::<()>();
        let work = async move {
            told.await.unwrap();
            std::future::pending::<()>().await;
        };
        let mut worker = Box::pin(Standing::new(&clock, work));
        let mut poll = || worker.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending());
        go.send(()).unwrap();
        let mut moving = std::pin::pin!(time.advance(Duration::from_secs(60)));
        let first = std::future::poll_fn(|cx| Poll::Ready(moving.as_mut().poll(cx).is_pending())).await;
        assert!(first);
        for _ in 0..20 {
            // The clock's thread has had nothing to do in between.
            time.doors().spawner.spawn(Lane::Io, async {}).await.unwrap();
        }
        assert_eq!(clock.now(), start);
        assert!(poll().is_pending());
        moving.await;
        assert_eq!(clock.now(), start + Duration::from_secs(60));
    }
}
