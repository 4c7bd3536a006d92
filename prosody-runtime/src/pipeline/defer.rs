//! May a failed event be set aside, and for how long? *Pure*: times and outcomes in, answers out.

use std::time::Duration;

use prosody_base::Instant;

/// Entries that a key may have in one of its queues; the next one waits in place.
pub(crate) const MAX_ENTRIES: u32 = 100_000;
/// First runs below which a share of failures says nothing.
const ENOUGH: u64 = 20;
/// Steps in which the window of the share moves on.
const STEPS: usize = 64;

/// The options of deferral.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Deferral {
    /// Keys without deferred events may get some.
    pub(crate) enabled: bool,
    /// The wait before the first retry, at least a second.
    pub(crate) base: Duration,
    /// The longest wait.
    pub(crate) max: Duration,
    /// Share of failures above which nothing new is set aside.
    pub(crate) threshold: f64,
    /// How far back that share looks.
    pub(crate) window: Duration,
    /// Retries of a deferred event; `None` is without end.
    pub(crate) max_retries: Option<u32>,
}

impl Deferral {
    /// The wait before retry `retry`, from 0: the base, and from then on whole seconds, uniform in
    /// `[1, max(1, min(base · 2^retry, max))]`. `unit` is a random number in `[0, 1)`.
    pub(crate) fn wait(&self, retry: u32, unit: f64) -> Duration {
        if retry == 0 {
            return self.base;
        }
        let grown = self.base.saturating_mul(1u32.checked_shl(retry).unwrap_or(u32::MAX)).min(self.max);
        let most = grown.as_secs().max(1);
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "a share of whole seconds"
        )]
        let drawn = (unit * most as f64) as u64;
        Duration::from_secs(1 + drawn.min(most - 1))
    }
}

/// How first runs ended lately. When nearly all fail, it is not the key: setting events aside one by one would only move
/// an outage into the store. It forgets by itself, so it never stays shut for want of news.
#[derive(Debug)]
pub(crate) struct FailureRate {
    threshold: f64,
    step: Duration,
    start: Instant,
    /// The number of the step that counts now.
    now: u64,
    /// Failures and successes of the last steps, in a ring.
    steps: [(u64, u64); STEPS],
}

impl FailureRate {
    pub(crate) fn new(deferral: &Deferral, now: Instant) -> FailureRate {
        let step = (deferral.window / STEPS as u32).max(Duration::from_millis(1));
        FailureRate { threshold: deferral.threshold, step, start: now, now: 0, steps: [(0, 0); STEPS] }
    }

    /// A first run ended.
    pub(crate) fn ended(&mut self, failed: bool, now: Instant) {
        self.advance(now);
        if let Some((failures, successes)) = self.steps.get_mut(self.now as usize % STEPS) {
            *(if failed { failures } else { successes }) += 1;
        }
    }

    /// Whether so few fail that what fails may be set aside.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        self.advance(now);
        let (failures, successes) =
            self.steps.iter().fold((0, 0), |sum, step| (sum.0 + step.0, sum.1 + step.1));
        let all: u64 = failures + successes;
        #[allow(clippy::cast_precision_loss, reason = "a share")]
        let share = failures as f64 / all.max(1) as f64;
        all < ENOUGH || share <= self.threshold
    }

    fn advance(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.start).as_nanos() / self.step.as_nanos().max(1);
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        let behind = passed.saturating_sub(self.now).min(STEPS as u64);
        for step in (0..behind).map(|back| passed - back) {
            if let Some(old) = self.steps.get_mut((step % STEPS as u64) as usize) {
                *old = (0, 0);
            }
        }
        self.now = self.now.max(passed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEFAULT: Deferral = Deferral {
        enabled: true,
        base: Duration::from_secs(1),
        max: Duration::from_secs(86_400),
        threshold: 0.9,
        window: Duration::from_secs(300),
        max_retries: None,
    };

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_wait_is_whole_seconds_within_a_range_that_doubles(
            retry in 0..200u32, unit in 0.0..1.0f64, base in 1..90u64, more in 0..100_000u64,
        ) {
            let deferral = Deferral {
                base: Duration::from_secs(base), max: Duration::from_secs(base + more), ..DEFAULT
            };
            let wait = deferral.wait(retry, unit);
            let most = (base as f64 * 2f64.powi(retry.min(40) as i32)).min((base + more) as f64);
            match retry {
                0 => prop_assert_eq!(wait, deferral.base),
                _ => {
                    prop_assert_eq!(wait.subsec_nanos(), 0);
                    prop_assert!((1..=most as u64).contains(&wait.as_secs()), "{:?} of {}", wait, most);
                    let highest = deferral.wait(retry, 0.999_999_999_9).as_secs_f64();
                    prop_assert!((highest - most).abs() < 0.001 && deferral.wait(retry, 0.0).as_secs() == 1);
                }
            }
        }

        /// Against a list of every run: what is surely within the window and what may be at its edge bound the answer.
        #[test]
        fn the_gate_is_shut_while_the_share_of_failures_in_the_window_is_above_the_threshold(
            runs in proptest::collection::vec((0..40_000u64, 0..10u8, any::<bool>()), 0..200),
            threshold in 0.05..0.95f64,
            bad in 0..11u8,
            pause in 0..900_000u64,
        ) {
            let start = Instant::now();
            let deferral = Deferral { threshold, ..DEFAULT };
            let mut rate = FailureRate::new(&deferral, start);
            let (mut now, mut all): (Duration, Vec<(Duration, bool)>) = (Duration::ZERO, Vec::new());
            let mut shut = 0;
            for (millis, draw, slow) in runs {
                now += Duration::from_millis(if slow { millis } else { millis / 100 });
                let failed = draw < bad;
                rate.ended(failed, start + now);
                all.push((now, failed));
                let share = |window: Duration| {
                    let recent: Vec<_> = all.iter().filter(|run| now - run.0 < window).collect();
                    let failures = recent.iter().filter(|run| run.1).count();
                    (recent.len() as u64, failures as f64 / recent.len().max(1) as f64)
                };
                let step = deferral.window / STEPS as u32;
                let edges = [share(deferral.window - step), share(deferral.window)];
                let allowed = |(count, share): (u64, f64)| count < ENOUGH || share <= threshold;
                let got = rate.allows(start + now);
                shut += usize::from(!got);
                // Between the two windows runs leave one by one; only where both agree is the answer certain.
                if edges[0].0 == edges[1].0 {
                    prop_assert_eq!(got, allowed(edges[0]), "{:?}", edges);
                }
            }
            if bad == 0 {
                prop_assert_eq!(shut, 0);
            }
            let later = start + now + deferral.window + Duration::from_millis(pause);
            prop_assert!(rate.allows(later), "an empty window lets everything pass");
        }
    }

    #[test]
    fn twenty_failures_shut_the_gate_and_an_empty_window_opens_it() {
        let start = Instant::now();
        let mut rate = FailureRate::new(&DEFAULT, start);
        for n in 0..19 {
            rate.ended(true, start + Duration::from_secs(n));
            assert!(rate.allows(start + Duration::from_secs(n)));
        }
        rate.ended(true, start + Duration::from_secs(20));
        assert!(!rate.allows(start + Duration::from_secs(20)));
        assert!(!rate.allows(start + Duration::from_secs(290)), "still 20 in the window");
        assert!(rate.allows(start + Duration::from_secs(301)), "fewer than 20");
    }
}
