//! Who owns a running event? A slab of slots named by generational tokens.
//!
//! An event has two owners. .NET owns its bytes from the moment its handler is called until it completes the token; the Rust
//! side waits for the outcome until it gets it or gives up. A slot is free again when both are done, and a token of an
//! earlier use of the slot is stale for ever after.

use std::task::Waker;

/// Names one use of one slot: generation in the upper half, slot in the lower. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Token(pub(crate) u64);

impl Token {
    fn new(generation: u32, slot: usize) -> Token {
        Token(u64::from(generation) << 32 | (slot as u64 & u64::from(u32::MAX)))
    }

    fn slot(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The token names no event that could be meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stale;

/// Events of type `T` that end with an outcome of type `O`.
#[derive(Debug)]
pub(crate) struct Slots<T, O> {
    entries: Vec<Entry<T, O>>,
    free: Vec<usize>,
    with_host: usize,
}

#[derive(Debug)]
struct Entry<T, O> {
    generation: u32,
    phase: Phase<T, O>,
}

#[derive(Debug)]
enum Phase<T, O> {
    Free,
    /// Both sides hold on.
    Running {
        event: T,
        waker: Waker,
    },
    /// The Rust side gave up; the bytes stay until .NET is done.
    Abandoned {
        event: T,
    },
    /// .NET is done; the outcome waits to be taken.
    Done {
        outcome: O,
    },
}

/// What ending an event hands back, to be dropped and woken outside of any lock.
#[derive(Debug)]
pub(crate) struct Completed<T> {
    /// The event and with it the bytes .NET was reading.
    pub(crate) event: T,
    /// Who waits for the outcome; `None` when the event had been abandoned and the outcome goes nowhere.
    pub(crate) waker: Option<Waker>,
}

impl<T, O> Default for Slots<T, O> {
    fn default() -> Self {
        Slots { entries: Vec::new(), free: Vec::new(), with_host: 0 }
    }
}

impl<T, O> Slots<T, O> {
    /// Takes a slot for `event`; `waker` is woken by its completion.
    pub(crate) fn insert(&mut self, event: T, waker: Waker) -> Token {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 1, phase: Phase::Free });
            self.entries.len() - 1
        });
        self.with_host += 1;
        match self.entries.get_mut(slot) {
            Some(entry) => {
                entry.phase = Phase::Running { event, waker };
                Token::new(entry.generation, slot)
            }
            // Unreachable: the index was just taken from the list or pushed. A dead token harms nobody.
            None => Token(0),
        }
    }

    /// The event, while it runs.
    pub(crate) fn running(&self, token: Token) -> Result<&T, Stale> {
        match self.entries.get(token.slot()) {
            Some(Entry { generation, phase: Phase::Running { event, .. } })
                if *generation == token.generation() =>
            {
                Ok(event)
            }
            _ => Err(Stale),
        }
    }

    /// Takes the outcome once there is one; until then remembers who asks.
    pub(crate) fn poll(&mut self, token: Token, asks: &Waker) -> Option<O> {
        let entry = self.entries.get_mut(token.slot())?;
        if entry.generation != token.generation() {
            return None;
        }
        match &mut entry.phase {
            Phase::Running { waker, .. } => {
                waker.clone_from(asks);
                None
            }
            Phase::Done { .. } => match release(entry, &mut self.free, token.slot()) {
                Phase::Done { outcome } => Some(outcome),
                _ => None,
            },
            Phase::Free | Phase::Abandoned { .. } => None,
        }
    }

    /// The Rust side gives up. The token is stale for everything but its completion.
    pub(crate) fn abandon(&mut self, token: Token) {
        let Some(entry) = self.entries.get_mut(token.slot()) else { return };
        if entry.generation != token.generation() {
            return;
        }
        match std::mem::replace(&mut entry.phase, Phase::Free) {
            Phase::Running { event, .. } => entry.phase = Phase::Abandoned { event },
            Phase::Done { outcome } => {
                entry.phase = Phase::Done { outcome };
                release(entry, &mut self.free, token.slot());
            }
            phase @ (Phase::Free | Phase::Abandoned { .. }) => entry.phase = phase,
        }
    }

    /// .NET is done with the event and its bytes.
    pub(crate) fn complete(&mut self, token: Token, outcome: O) -> Result<Completed<T>, Stale> {
        let entry = self.entries.get_mut(token.slot()).ok_or(Stale)?;
        if entry.generation != token.generation() {
            return Err(Stale);
        }
        match std::mem::replace(&mut entry.phase, Phase::Free) {
            Phase::Running { event, waker } => {
                entry.phase = Phase::Done { outcome };
                self.with_host -= 1;
                Ok(Completed { event, waker: Some(waker) })
            }
            Phase::Abandoned { event } => {
                release(entry, &mut self.free, token.slot());
                self.with_host -= 1;
                Ok(Completed { event, waker: None })
            }
            phase @ (Phase::Free | Phase::Done { .. }) => {
                entry.phase = phase;
                Err(Stale)
            }
        }
    }

    /// The handler has ended on the thread that waits for it, so both sides are done at once.
    pub(crate) fn end(&mut self, token: Token) -> Result<T, Stale> {
        let entry = self.entries.get_mut(token.slot()).ok_or(Stale)?;
        if entry.generation != token.generation() || !matches!(entry.phase, Phase::Running { .. }) {
            return Err(Stale);
        }
        match release(entry, &mut self.free, token.slot()) {
            Phase::Running { event, .. } => {
                self.with_host -= 1;
                Ok(event)
            }
            _ => Err(Stale),
        }
    }

    /// Events whose bytes .NET may still read.
    pub(crate) fn with_host(&self) -> usize {
        self.with_host
    }

    /// Slots ever made: the most events that were alive at once.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.entries.len()
    }
}

/// Frees a slot and makes its token stale. A slot whose generations are used up is retired.
fn release<T, O>(entry: &mut Entry<T, O>, free: &mut Vec<usize>, slot: usize) -> Phase<T, O> {
    let phase = std::mem::replace(&mut entry.phase, Phase::Free);
    if let Some(next) = entry.generation.checked_add(1) {
        entry.generation = next;
        free.push(slot);
    } else {
        entry.generation = 0;
    }
    phase
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What each token ever handed out should be, by the description of the two owners.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Model {
        Running(u32),
        Abandoned(u32),
        Done(u32),
        Gone,
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        /// Any interleaving of the two owners, old tokens included: bytes live exactly until .NET completes, an outcome
        /// is taken exactly once, stale tokens reach nothing, and slots are reused.
        #[test]
        fn two_owners(ops in proptest::collection::vec((0u8..6, any::<prop::sample::Index>()), 1..120)) {
            let mut slots = Slots::<u32, u32>::default();
            let mut model: BTreeMap<Token, Model> = BTreeMap::new();
            let wakes = Arc::new(Count::default());
            let waker = Waker::from(Arc::clone(&wakes));
            let (mut next, mut expected_wakes, mut most) = (0u32, 0usize, 0usize);
            for (op, pick) in ops {
                let tokens: Vec<Token> = model.keys().copied().collect();
                if op == 0 || tokens.is_empty() {
                    next += 1;
                    let token = slots.insert(next, waker.clone());
                    prop_assert_ne!(token.0, 0);
                    prop_assert!(model.insert(token, Model::Running(next)).is_none(), "token used twice");
                } else {
                    let token = *pick.get(&tokens);
                    let state = model[&token];
                    match op {
                        1 => {
                            let outcome = slots.poll(token, &waker);
                            prop_assert_eq!(outcome, if let Model::Done(o) = state { Some(o) } else { None });
                            if outcome.is_some() { model.insert(token, Model::Gone); }
                        }
                        2 => {
                            slots.abandon(token);
                            model.insert(token, match state {
                                Model::Running(event) => Model::Abandoned(event),
                                Model::Done(_) => Model::Gone,
                                other => other,
                            });
                        }
                        3 => {
                            let ended = slots.end(token);
                            prop_assert_eq!(ended.ok(), if let Model::Running(event) = state { Some(event) } else { None });
                            if ended.is_ok() { model.insert(token, Model::Gone); }
                        }
                        _ => {
                            next += 1;
                            let completed = slots.complete(token, next);
                            match state {
                                Model::Running(event) => {
                                    let completed = completed.expect("runs");
                                    prop_assert_eq!(completed.event, event);
                                    completed.waker.expect("somebody waits").wake();
                                    expected_wakes += 1;
                                    model.insert(token, Model::Done(next));
                                }
                                Model::Abandoned(event) => {
                                    let completed = completed.expect("bytes were kept");
                                    prop_assert_eq!(completed.event, event);
                                    prop_assert!(completed.waker.is_none());
                                    model.insert(token, Model::Gone);
                                }
                                _ => prop_assert!(completed.is_err()),
                            }
                        }
                    }
                }
                let with_host = model.values().filter(|m| matches!(m, Model::Running(_) | Model::Abandoned(_))).count();
                let live = model.values().filter(|m| **m != Model::Gone).count();
                most = most.max(live);
                prop_assert_eq!(slots.with_host(), with_host);
                prop_assert_eq!(slots.capacity(), most, "slots are reused");
                for (token, state) in &model {
                    prop_assert_eq!(slots.running(*token).is_ok(), matches!(state, Model::Running(_)));
                }
            }
            prop_assert_eq!(wakes.0.load(Ordering::Relaxed), expected_wakes);
        }
    }

    #[test]
    fn a_slot_retires_before_its_generation_wraps() {
        let mut slots = Slots::<(), ()>::default();
        let waker = Waker::noop();
        let first = slots.insert((), waker.clone());
        slots.entries[0].generation = u32::MAX;
        let last = Token::new(u32::MAX, first.slot());
        slots.complete(last, ()).expect("runs");
        assert_eq!(slots.poll(last, waker), Some(()));
        let next = slots.insert((), waker.clone());
        assert_eq!(next.slot(), 1, "the worn-out slot is not used again");
    }
}
