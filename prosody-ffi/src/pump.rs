//! What does one thread of .NET do for us? It polls workers, and inside of that calls the handler of an event.
//!
//! A thread of .NET that came in through `pr_wait` may call managed code: that is a return of sorts, and no thread of
//! ours is ever attached to the runtime of the host. What it calls is user code, which may hold the thread for ever, so
//! a watch looks at every thread from time to time and lets others go on without it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prosody_base::Task as Spawned;
use prosody_runtime::Share;

use crate::abi::{PrEvent, PrRun};
use crate::crew::Crew;
use crate::slots::Token;

/// [`Pump::turn`] is odd while user code runs; with this bit the watch has let others go on.
const STALLED: u64 = 1 << 63;
/// One of how many calls is timed.
pub(crate) const SAMPLE: u32 = 8;

thread_local! {
    static HERE: RefCell<Option<Arc<Pump>>> = const { RefCell::new(None) };
}

/// A thread of .NET.
#[derive(Debug)]
pub(crate) struct Pump {
    run: PrRun,
    turn: AtomicU64,
    /// The event whose handler runs.
    token: AtomicU64,
    /// The turn at the watch's last look.
    seen: AtomicU64,
    /// Others went on when this turn began.
    aside: AtomicBool,
    /// Ends of operations that this thread has taken and that are not yet known in .NET.
    pub(crate) holds: AtomicBool,
    /// The share of the worker that is polled.
    share: Mutex<Option<Share>>,
    /// What watches over the stalled event. Locked while the watch takes the thread for stalled.
    stall: Mutex<Option<Spawned<()>>>,
}

impl Pump {
    /// This thread, for as long as it lives; made when it first comes in.
    pub(crate) fn here(run: PrRun, crew: &Crew) -> Arc<Pump> {
        HERE.with_borrow_mut(|here| {
            if let Some(pump) = here.as_ref().filter(|pump| crew.knows(pump)) {
                return Arc::clone(pump);
            }
            let pump = Arc::new(Pump {
                run,
                turn: AtomicU64::new(0),
                token: AtomicU64::new(0),
                seen: AtomicU64::new(0),
                aside: AtomicBool::new(false),
                holds: AtomicBool::new(false),
                share: Mutex::new(None),
                stall: Mutex::new(None),
            });
            crew.enter(Arc::clone(&pump));
            *here = Some(Arc::clone(&pump));
            pump
        })
    }

    /// Whose share the following calls use.
    pub(crate) fn works_for(&self, share: Option<Share>) {
        *lock(&self.share) = share;
    }

    /// Calls the handler of `event` on this thread; `None` when this is no thread that can.
    pub(crate) fn call(crew: &Arc<Crew>, event: &mut PrEvent) -> Option<i32> {
        HERE.with_borrow(|here| here.as_ref().map(|pump| pump.turn(crew, event)))
    }

    fn turn(&self, crew: &Arc<Crew>, event: &mut PrEvent) -> i32 {
        let aside = crew.is_slow();
        event.spare = crew.spare();
        self.aside.store(aside, Ordering::Relaxed);
        self.token.store(event.token, Ordering::Relaxed);
        let turn = self.turn.load(Ordering::Relaxed) + 1;
        let start = (turn / 2).is_multiple_of(SAMPLE.into()).then(|| crew.now());
        // First of all: the watch may end as soon as nobody attends and no user code runs.
        self.turn.store(turn, Ordering::Release);
        if aside {
            crew.step_aside();
            self.share().inspect(Share::lend);
        }
        let ended = (self.run)(event);
        let stalled =
            self.turn.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Relaxed).is_err();
        if stalled {
            drop(lock(&self.stall).take());
            self.turn.store(turn + 1, Ordering::Release);
        }
        if aside || stalled {
            crew.step_in();
            self.share().inspect(Share::regain);
        }
        crew.ended(start, stalled);
        ended
    }

    /// A look of the watch. When user code has run since the last one, others go on without this thread.
    pub(crate) fn look(&self, crew: &Crew) -> Look {
        let turn = self.turn.load(Ordering::Acquire);
        if turn & 1 == 0 || turn & STALLED != 0 {
            return Look::Rests;
        }
        if self.seen.swap(turn, Ordering::Relaxed) != turn {
            return Look::Runs;
        }
        let mut stall = lock(&self.stall);
        if self.turn.compare_exchange(turn, turn | STALLED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Look::Runs;
        }
        *stall = crew.look_after(Token(self.token.load(Ordering::Relaxed)));
        if !self.aside.load(Ordering::Relaxed) {
            crew.step_aside();
            self.share().inspect(Share::lend);
        }
        Look::Stalled
    }

    fn share(&self) -> Option<Share> {
        lock(&self.share).clone()
    }
}

/// What the watch saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// No user code runs, or others go on already.
    Rests,
    /// User code runs.
    Runs,
    /// User code has run for long, and others go on from now on.
    Stalled,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
