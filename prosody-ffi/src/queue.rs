//! How do events reach .NET? A queue whose reader blocks on a condition variable, so that no native thread ever enters
//! managed code.
//!
//! Its bound is the sum of the live objects that push into it: one event per running handler, one cancellation per
//! running handler, one completion per pending operation. Each of those has a bound of its own.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a reader got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// This many events were handed over; at least one.
    Events(usize),
    /// Nothing came in time.
    TimedOut,
    /// The queue is closed and empty: nothing will ever come.
    Closed,
}

/// Any number of writers, any number of blocked readers.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    state: Mutex<State<E>>,
    ready: Condvar,
}

#[derive(Debug)]
struct State<E> {
    events: VecDeque<E>,
    waiting: usize,
    closed: bool,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        let state = State { events: VecDeque::new(), waiting: 0, closed: false };
        EventQueue { state: Mutex::new(state), ready: Condvar::new() }
    }
}

impl<E> EventQueue<E> {
    /// Appends an event. A closed queue gives it back.
    ///
    /// A reader is woken only when the queue was empty: whoever was woken before takes this event along, which is what
    /// makes batches under load.
    pub(crate) fn push(&self, event: E) -> Result<(), E> {
        let mut state = self.lock();
        if state.closed {
            return Err(event);
        }
        state.events.push_back(event);
        let wake = state.events.len() == 1 && state.waiting > 0;
        drop(state);
        if wake {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Waits for events and hands up to `max` of them to `take`, in order.
    pub(crate) fn wait(&self, max: usize, timeout: Duration, mut take: impl FnMut(E)) -> Waited {
        let mut state = self.lock();
        if state.events.is_empty() && !state.closed && !timeout.is_zero() {
            state.waiting += 1;
            state = self
                .ready
                .wait_timeout_while(state, timeout, |state| state.events.is_empty() && !state.closed)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            state.waiting -= 1;
        }
        if state.events.is_empty() {
            return if state.closed { Waited::Closed } else { Waited::TimedOut };
        }
        let count = state.events.len().min(max.max(1));
        state.events.drain(..count).for_each(&mut take);
        // The push that found this reader asleep woke nobody else for what is left.
        let wake = !state.events.is_empty() && state.waiting > 0;
        drop(state);
        if wake {
            self.ready.notify_one();
        }
        Waited::Events(count)
    }

    /// Refuses further events; readers get what is left and then [`Waited::Closed`].
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().events.len()
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    const LONG: Duration = Duration::from_secs(30);

    proptest! {
        /// Against a plain list: same events, same order, batches never above their maximum, closed is final.
        #[test]
        fn behaves_like_a_list(ops in proptest::collection::vec((0u8..8, 1usize..9), 0..200)) {
            let queue = EventQueue::default();
            let (mut model, mut closed, mut next) = (VecDeque::new(), false, 0u32);
            for (op, size) in ops {
                match op {
                    0 if model.len() > 20 => { queue.close(); closed = true; }
                    0..=4 => {
                        next += 1;
                        prop_assert_eq!(queue.push(next).is_err(), closed);
                        if !closed { model.push_back(next); }
                    }
                    _ => {
                        let mut got = Vec::new();
                        let waited = queue.wait(size, Duration::ZERO, |event| got.push(event));
                        let expected: Vec<u32> = model.drain(..size.min(model.len())).collect();
                        let outcome = match (expected.len(), closed) {
                            (0, true) => Waited::Closed,
                            (0, false) => Waited::TimedOut,
                            (count, _) => Waited::Events(count),
                        };
                        prop_assert_eq!(waited, outcome);
                        prop_assert_eq!(got, expected);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
            }
        }
    }

    /// Two readers with small batches against four writers: nothing is lost, doubled, or left behind by a wake-up that
    /// went to the wrong thread. Without the wake-up for leftovers this hangs.
    #[test]
    fn no_wake_up_is_lost() {
        const EACH: usize = 20_000;
        let queue = Arc::new(EventQueue::default());
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let queue = Arc::clone(&queue);
                std::thread::spawn(move || {
                    let mut seen = Vec::new();
                    while queue.wait(3, LONG, |event| seen.push(event)) != Waited::Closed {}
                    seen
                })
            })
            .collect();
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let queue = Arc::clone(&queue);
                std::thread::spawn(move || {
                    for n in 0..EACH {
                        queue.push(writer * EACH + n).expect("open");
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("wrote"));
        queue.close();
        let mut seen: Vec<usize> =
            readers.into_iter().flat_map(|reader| reader.join().expect("read")).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..4 * EACH).collect::<Vec<_>>());
    }

    #[test]
    fn close_wakes_every_reader() {
        let queue = Arc::new(EventQueue::<u32>::default());
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let queue = Arc::clone(&queue);
                std::thread::spawn(move || queue.wait(1, LONG, |_| {}))
            })
            .collect();
        while queue.lock().waiting < 3 {
            std::thread::yield_now();
        }
        queue.close();
        for reader in readers {
            assert_eq!(reader.join().expect("woken"), Waited::Closed);
        }
    }
}
