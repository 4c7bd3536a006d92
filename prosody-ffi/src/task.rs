//! When is a worker polled? When it was woken, by whichever thread attends.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use prosody_base::Lane;
use prosody_runtime::{Share, Worker};

use crate::crew::Crew;
use crate::pump::Pump;

/// Waits for news.
const IDLE: u8 = 0;
/// Waits for a thread.
const QUEUED: u8 = 1;
/// Is being polled.
const RUNS: u8 = 2;
/// Is being polled, and there was news meanwhile.
const AGAIN: u8 = 3;
/// Has ended.
const OVER: u8 = 4;

/// A worker of the runtime as a task of the crew.
#[derive(Debug)]
pub(crate) struct Task {
    crew: Arc<Crew>,
    worker: Mutex<Option<Worker>>,
    share: Share,
    state: AtomicU8,
}

impl Task {
    pub(crate) fn start(crew: &Arc<Crew>, worker: Worker) {
        let share = worker.share();
        let (worker, state) = (Mutex::new(Some(worker)), AtomicU8::new(QUEUED));
        crew.put(Arc::new(Task { crew: Arc::clone(crew), worker, share, state }));
    }

    /// Polls the worker once. `pump` is the thread; without one no handler can be called.
    pub(crate) fn run(self: Arc<Self>, pump: Option<&Pump>) {
        self.state.store(RUNS, Ordering::Release);
        if let Some(pump) = pump {
            pump.works_for(Some(self.share.clone()));
        }
        let (over, ended) = {
            let _runtime = self.crew.spawner().enter(Lane::Work);
            let waker = Waker::from(Arc::clone(&self));
            let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
            let polled =
                worker.as_mut().map(|worker| Pin::new(worker).poll(&mut Context::from_waker(&waker)));
            let over = polled.is_none_or(|polled| polled == Poll::Ready(()));
            (over, if over { worker.take() } else { None })
        };
        drop(ended);
        if over {
            self.state.store(OVER, Ordering::Release);
        } else if self.state.compare_exchange(RUNS, IDLE, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.state.store(QUEUED, Ordering::Release);
            let crew = Arc::clone(&self.crew);
            crew.put(self);
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let next = match state {
                IDLE => QUEUED,
                RUNS => AGAIN,
                _ => return,
            };
            match self.state.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if next == QUEUED => {
                    let crew = Arc::clone(&self.crew);
                    return crew.put(self);
                }
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }
}
