//! Where does jitter come from? The only file that draws random numbers.
#![allow(clippy::disallowed_methods, reason = "this file is the door to randomness")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A shared, seedable generator. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(Arc<Mutex<fastrand::Rng>>);

impl Rng {
    /// Seeded by the operating system.
    #[must_use]
    pub fn from_entropy() -> Rng {
        Rng(Arc::new(Mutex::new(fastrand::Rng::new())))
    }

    /// The same seed gives the same numbers.
    #[must_use]
    pub fn seeded(seed: u64) -> Rng {
        Rng(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// A generator of its own whose numbers do not depend on how often this one is used later.
    #[must_use]
    pub fn fork(&self) -> Rng {
        Rng::seeded(self.next_u64())
    }

    /// Any value.
    #[must_use]
    pub fn next_u64(&self) -> u64 {
        self.with(|rng| rng.u64(..))
    }

    /// A value in `0..bound`; 0 when `bound` is 0.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.with(|rng| rng.u64(..bound)) }
    }

    /// A value in `[0, 1)`.
    #[must_use]
    pub fn unit(&self) -> f64 {
        self.with(fastrand::Rng::f64)
    }

    /// Exponential backoff with jitter (KIP-580): `base · 2^attempt`, capped at `max`, times a factor in `[0.8, 1.2)`.
    #[must_use]
    pub fn backoff(&self, base: Duration, max: Duration, attempt: u32) -> Duration {
        let grown = base.saturating_mul(1u32.checked_shl(attempt.min(31)).unwrap_or(u32::MAX)).min(max);
        grown.mul_f64(0.8 + 0.4 * self.unit()).min(max)
    }

    fn with<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_a_fork_is_independent() {
        let (a, b) = (Rng::seeded(7), Rng::seeded(7));
        assert_eq!(a.next_u64(), b.next_u64());
        let fork = a.fork();
        assert_eq!(b.fork().next_u64(), fork.next_u64());
        assert_eq!(a.below(0), 0);
    }

    #[test]
    fn backoff_grows_and_never_passes_its_maximum() {
        let (rng, base, max) = (Rng::seeded(1), Duration::from_millis(100), Duration::from_secs(1));
        for attempt in 0..64 {
            let wait = rng.backoff(base, max, attempt);
            assert!(wait <= max && wait >= base.mul_f64(0.8), "{attempt}: {wait:?}");
        }
        assert!(rng.backoff(base, max, 40) >= max.mul_f64(0.8));
    }
}
