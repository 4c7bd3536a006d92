//! How does time pass when somebody says so? A clock that stands still, a thread on which everything runs that waits for
//! it, and the rule by which it moves: from one instant at which something is due to the next, each time once nothing is
//! left to do at the present one.
#![allow(clippy::disallowed_methods, reason = "this file is part of the doors to time and tasks")]

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, oneshot};

use crate::Doors;
use crate::clock::{Clock, Instant};
use crate::rng::Rng;
use crate::spawn::{Lane, Spawner};

/// Real time for which the clock waits for something that [holds](Clock::hold) it. What takes longer is taken to wait for
/// the clock itself.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// As far as it goes: beyond this, sums with its times would have no form.
const AGES: Duration = Duration::from_secs(1_000 * 31_557_600);

/// A clock of its own that moves only by [`advance`](VirtualTime::advance), with the thread of everything that goes by
/// it. Clones share both; the thread ends with the last one.
#[derive(Clone, Debug)]
pub struct VirtualTime {
    clock: Manual,
    doors: Doors,
    /// One move at a time.
    moving: Arc<tokio::sync::Mutex<()>>,
    _thread: Arc<oneshot::Sender<()>>,
}

impl VirtualTime {
    /// A clock that shows the machine's time, and stands still.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn start() -> io::Result<VirtualTime> {
        let clock = Manual::new();
        let idle = clock.clone();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().on_thread_park(move || idle.settled()).build()?;
        let spawner = Spawner::on(runtime.handle().clone());
        let (thread, ends) = oneshot::channel::<()>();
        std::thread::Builder::new().name("prosody-virtual".to_owned()).spawn(move || {
            let _ = runtime.block_on(ends);
        })?;
        let doors = Doors { clock: Clock::manual(clock.clone()), rng: Rng::from_entropy(), spawner };
        Ok(VirtualTime { clock, doors, moving: Arc::default(), _thread: Arc::new(thread) })
    }

    /// What goes by this clock gets its doors from here.
    #[must_use]
    pub fn doors(&self) -> &Doors {
        &self.doors
    }

    /// Moves the clock. It stops at every instant at which something is due, until all that follows from it at that
    /// instant has happened; see [`PATIENCE`] for handlers that wait for the clock itself. Dropped, it stops where it is.
    pub async fn advance(&self, by: Duration) {
        let _one = self.moving.lock().await;
        let clock = self.clock.clone();
        let moving = async move {
            let _stop = Stop(&clock);
            {
                let mut state = clock.lock();
                state.target = Some(state.now.saturating_add(by).min(AGES));
            }
            // The runtime looks at the clock whenever its thread has nothing to do, such as when this task waits.
            while clock.lock().target.is_some() {
                let changes = clock.lock().changes;
                let told = tokio::time::timeout(PATIENCE, clock.0.told.notified()).await;
                let mut state = clock.lock();
                state.waited |= told.is_err() && state.changes == changes;
            }
        };
        let moved = self.doors.spawner.spawn(Lane::Io, moving).await;
        debug_assert!(moved.is_ok());
    }
}

/// Ends a move wherever it is.
struct Stop<'a>(&'a Manual);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.target, state.waited) = (None, false);
    }
}

/// The hands of a clock that somebody moves.
#[derive(Clone)]
pub(crate) struct Manual(Arc<Inner>);

struct Inner {
    start: Instant,
    /// Milliseconds since the Unix epoch at the start.
    epoch: i64,
    state: Mutex<State>,
    /// It has arrived, or nothing holds it any more.
    told: Notify,
}

/// Times are counted from the start.
#[derive(Default)]
struct State {
    now: Duration,
    /// Where a move ends.
    target: Option<Duration>,
    sleepers: BTreeMap<(Duration, u64), Waker>,
    next: u64,
    holds: usize,
    /// Rises whenever something begins or ceases to hold the clock.
    changes: u64,
    /// What holds the clock has been waited for.
    waited: bool,
    /// Something has ceased to hold it since the thread last had nothing to do.
    released: bool,
}

impl Manual {
    fn new() -> Manual {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        let (state, told) = (Mutex::default(), Notify::new());
        Manual(Arc::new(Inner { start: Instant::now(), epoch, state, told }))
    }

    pub(crate) fn now(&self) -> Instant {
        self.0.start + self.lock().now
    }

    pub(crate) fn unix_millis(&self) -> i64 {
        let run = i64::try_from(self.lock().now.as_millis()).unwrap_or(i64::MAX);
        self.0.epoch.saturating_add(run)
    }

    pub(crate) fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep { clock: self.clone(), until: deadline.saturating_duration_since(self.0.start), number: None }
    }

    pub(crate) fn hold(&self) -> Held {
        let mut state = self.lock();
        state.holds += 1;
        state.changed();
        Held(self.clone())
    }

    /// Nothing is left to do at this instant: every task waits.
    fn settled(&self) {
        let due = {
            let mut state = self.lock();
            let Some(target) = state.target else { return };
            if state.holds > 0 && !state.waited {
                return;
            }
            // Whoever let go on another thread may have started tasks here after this thread looked for some: it looks
            // again, once the move has had its turn.
            if std::mem::take(&mut state.released) {
                self.0.told.notify_one();
                return;
            }
            let next = state.sleepers.first_key_value().map(|((time, _), _)| *time);
            match next.filter(|next| *next <= target) {
                Some(next) => {
                    state.now = state.now.max(next);
                    let later = state.sleepers.split_off(&(next, u64::MAX));
                    std::mem::replace(&mut state.sleepers, later)
                }
                None => {
                    state.now = target;
                    state.target = None;
                    self.0.told.notify_one();
                    BTreeMap::new()
                }
            }
        };
        due.into_values().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn changed(&mut self) {
        self.changes += 1;
        self.waited = false;
    }
}

impl fmt::Debug for Manual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Manual").field(&self.lock().now).finish()
    }
}

/// The clock stands still while this is there.
#[derive(Debug)]
pub(crate) struct Held(Manual);

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.holds -= 1;
        state.released = true;
        state.changed();
        // From another thread: its own has nothing to do and looks at the clock no more.
        self.0.0.told.notify_one();
    }
}

/// Waits until the clock shows a time.
pub(crate) struct Sleep {
    clock: Manual,
    until: Duration,
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut state = this.clock.lock();
        if state.now >= this.until {
            return Poll::Ready(());
        }
        let number = *this.number.get_or_insert_with(|| {
            state.next += 1;
            state.next
        });
        state.sleepers.insert((this.until, number), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.clock.lock().sleepers.remove(&(self.until, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(clock: &Clock, start: Instant) -> u64 {
        (clock.now() - start).as_secs()
    }

    #[tokio::test]
    async fn it_moves_only_when_told_and_stops_at_each_instant_at_which_something_is_due() {
        let time = VirtualTime::start().unwrap();
        let (clock, start) = (time.doors().clock.clone(), time.doors().clock.now());
        let seen = Arc::new(Mutex::new(Vec::new()));
        for first in [7u64, 3] {
            let (clock, seen) = (clock.clone(), Arc::clone(&seen));
            let sleeps = async move {
                for nth in 1..=4 {
                    clock.sleep_until(start + Duration::from_secs(first * nth)).await;
                    // What follows at the same instant, on the same clock, happens before it moves on.
                    tokio::task::yield_now().await;
                    seen.lock().unwrap().push((seconds(&clock, start), first));
                }
            };
            time.doors().spawner.spawn(Lane::Work, sleeps).detach();
        }
        let unix = clock.unix_millis();
        time.advance(Duration::from_secs(14)).await;
        let told = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(told, [(3, 3), (6, 3), (7, 7), (9, 3), (12, 3), (14, 7)]);
        assert_eq!((seconds(&clock, start), clock.unix_millis() - unix), (14, 14_000));
        time.advance(Duration::from_secs(100)).await;
        assert_eq!((seconds(&clock, start), &seen.lock().unwrap()[..]), (114, &[(21, 7), (28, 7)][..]));
    }

    #[tokio::test]
    async fn it_stands_still_while_something_holds_it() {
        let time = VirtualTime::start().unwrap();
        let (clock, start) = (time.doors().clock.clone(), time.doors().clock.now());
        let (go, told) = oneshot::channel::<()>();
        let held = clock.hold();
        let work = async move {
            told.await.unwrap();
            drop(held);
        };
        time.doors().spawner.spawn(Lane::Work, work).detach();
        let other = clock.clone();
        let late = async move {
            other.sleep(Duration::from_secs(5)).await;
            seconds(&other, start)
        };
        let late = time.doors().spawner.spawn(Lane::Work, late);
        let mut moving = std::pin::pin!(time.advance(Duration::from_secs(60)));
        // The move is under way once another task of the same thread had its turn behind it.
        assert!(futures_pending(&mut moving).await);
        time.doors().spawner.spawn(Lane::Work, async {}).await.unwrap();
        assert_eq!(seconds(&clock, start), 0);
        go.send(()).unwrap();
        moving.await;
        assert_eq!((late.await.unwrap(), seconds(&clock, start)), (5, 60));
    }

    /// Between the last look for tasks and the look at the clock another thread may start one and let go of the clock.
    #[test]
    fn after_a_hold_the_thread_looks_for_tasks_once_more() {
        let clock = Manual::new();
        clock.lock().target = Some(Duration::from_secs(5));
        let held = clock.hold();
        let mut shown = Vec::new();
        let mut settled = || {
            clock.settled();
            shown.push(clock.lock().now.as_secs());
        };
        settled();
        drop(held);
        settled();
        settled();
        assert_eq!(shown, [0, 0, 5]);
    }

    async fn futures_pending<F: Future>(future: &mut Pin<&mut F>) -> bool {
        std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }

    /// A handler that waits for its own timeout would otherwise wait for ever.
    #[tokio::test]
    async fn what_waits_for_the_clock_itself_holds_it_for_a_while_only() {
        let time = VirtualTime::start().unwrap();
        let clock = time.doors().clock.clone();
        let work = async move {
            let _held = clock.hold();
            clock.until(clock.now() + Duration::from_secs(240), std::future::pending::<()>()).await
        };
        let work = time.doors().spawner.spawn(Lane::Work, work);
        time.advance(Duration::from_secs(300)).await;
        assert!(work.await.unwrap().is_err());
    }

    #[tokio::test]
    async fn a_move_that_is_dropped_stops_and_the_next_one_goes_on() {
        let time = VirtualTime::start().unwrap();
        let (clock, start) = (time.doors().clock.clone(), time.doors().clock.now());
        let held = clock.hold();
        {
            let mut moving = std::pin::pin!(time.advance(Duration::from_secs(60)));
            assert!(futures_pending(&mut moving).await);
        }
        drop(held);
        time.doors().spawner.spawn(Lane::Work, async {}).await.unwrap();
        time.advance(Duration::from_secs(1)).await;
        assert_eq!(seconds(&clock, start), 1);
    }
}
