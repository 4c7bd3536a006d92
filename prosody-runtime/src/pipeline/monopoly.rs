//! Does one key take all the time of a handler? Execution time of keys within a window that moves on in steps. *Pure.*

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prosody_base::Instant;

/// Keys whose time is known. Of more, those with little time are forgotten: a key that takes nearly all of a window is
/// never among them.
const KEYS: usize = 4_096;
/// Steps in which the window moves on.
const STEPS: usize = 16;
/// Shorter runs count nothing, and cost nothing here.
const LEAST: Duration = Duration::from_micros(100);

/// The options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// Share of the window above which a key does not run.
    pub(crate) threshold: f64,
    pub(crate) window: Duration,
}

/// What keys took lately. Keys are named as the scheduler names them, which differs by topic and partition.
#[derive(Debug)]
pub(crate) struct Monopoly {
    limits: Limits,
    start: Instant,
    step: Duration,
    keys: Mutex<HashMap<u64, Taken>>,
    /// Some key was above its share once: until then nobody has to look.
    exceeded: AtomicBool,
}

/// Time of one key.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// The step of the newest run.
    step: u64,
    steps: [Duration; STEPS],
}

impl Taken {
    /// Forgets what left the window.
    fn advance(&mut self, to: u64) {
        let behind = to.saturating_sub(self.step).min(STEPS as u64);
        for step in (0..behind).map(|back| to - back) {
            if let Some(old) = self.steps.get_mut((step % STEPS as u64) as usize) {
                *old = Duration::ZERO;
            }
        }
        self.step = self.step.max(to);
    }

    fn total(&self) -> Duration {
        self.steps.iter().sum()
    }
}

impl Monopoly {
    pub(crate) fn new(limits: Limits, now: Instant) -> Monopoly {
        let step = (limits.window / STEPS as u32).max(Duration::from_millis(1));
        Monopoly { limits, start: now, step, keys: Mutex::default(), exceeded: AtomicBool::new(false) }
    }

    /// A handler of the key ran for `took` until `now`.
    pub(crate) fn ran(&self, key: impl FnOnce() -> u64, took: Duration, now: Instant) {
        if took < LEAST {
            return;
        }
        let key = key();
        let step = self.step(now);
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= KEYS && !keys.contains_key(&key) {
            forget(&mut keys, step);
        }
        let taken = keys.entry(key).or_insert(Taken { step, steps: [Duration::ZERO; STEPS] });
        taken.advance(step);
        // A run longer than the window counts as all of it.
        if let Some(sum) = taken.steps.get_mut((step % STEPS as u64) as usize) {
            *sum += took.min(self.limits.window);
        }
        if taken.total() > self.most() {
            self.exceeded.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the key took more than its share.
    pub(crate) fn is_exceeded(&self, key: impl FnOnce() -> u64, now: Instant) -> bool {
        if !self.exceeded.load(Ordering::Relaxed) {
            return false;
        }
        let (step, key) = (self.step(now), key());
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.get_mut(&key).is_some_and(|taken| {
            taken.advance(step);
            taken.total() > self.most()
        })
    }

    fn most(&self) -> Duration {
        self.limits.window.mul_f64(self.limits.threshold)
    }

    fn step(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.start).as_nanos() / self.step.as_nanos().max(1);
        u64::try_from(passed).unwrap_or(u64::MAX)
    }
}

/// Makes room: the half of the keys with less time goes.
fn forget(keys: &mut HashMap<u64, Taken>, step: u64) {
    let mut totals: Vec<Duration> = keys
        .values_mut()
        .map(|taken| {
            taken.advance(step);
            taken.total()
        })
        .collect();
    let middle = totals.len() / 2;
    let (_, median, _) = totals.select_nth_unstable(middle);
    let median = *median;
    keys.retain(|_, taken| taken.total() > median);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: Duration = Duration::from_secs(300);

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Against a list of every run: what is surely in the window and what may be at its edge bound the answer.
        #[test]
        fn a_key_is_stopped_when_its_time_in_the_window_is_above_its_share(
            runs in proptest::collection::vec((0..3u64, 0..40_000u64, 0..40_000u64), 0..120),
            threshold in 0.05..0.95f64,
        ) {
            let start = Instant::now();
            let monopoly = Monopoly::new(Limits { threshold, window: WINDOW }, start);
            let (mut now, mut all): (Duration, Vec<(Duration, u64, Duration)>) = (Duration::ZERO, Vec::new());
            for (key, pause, took) in runs {
                let took = Duration::from_millis(took);
                now += Duration::from_millis(pause) + took;
                monopoly.ran(|| key, took, start + now);
                all.push((now, key, took));
                for key in 0..3 {
                    let of = |window: Duration| -> Duration {
                        all.iter().filter(|run| run.1 == key && now - run.0 < window).map(|run| run.2).sum()
                    };
                    let limit = WINDOW.mul_f64(threshold);
                    let got = monopoly.is_exceeded(|| key, start + now);
                    if of(WINDOW - WINDOW / STEPS as u32) > limit {
                        prop_assert!(got, "key {} is above its share", key);
                    } else if of(WINDOW) <= limit {
                        prop_assert!(!got, "key {} is not", key);
                    }
                }
            }
            prop_assert!((0..3).all(|key| !monopoly.is_exceeded(|| key, start + now + WINDOW)));
        }
    }

    #[test]
    fn many_keys_are_bounded_and_do_not_hide_the_one_that_takes_all() {
        let start = Instant::now();
        let monopoly = Monopoly::new(Limits { threshold: 0.9, window: WINDOW }, start);
        for n in 0..30_000u64 {
            let now = start + Duration::from_millis(10 * n);
            monopoly.ran(|| 7, Duration::from_millis(10), now);
            monopoly.ran(|| 100 + n, Duration::from_millis(1), now);
            assert!(monopoly.keys.lock().unwrap().len() <= KEYS);
        }
        let now = start + Duration::from_secs(300);
        assert!(monopoly.is_exceeded(|| 7, now - Duration::from_millis(1)));
        assert!(!monopoly.is_exceeded(|| 30_000, now));
    }
}
