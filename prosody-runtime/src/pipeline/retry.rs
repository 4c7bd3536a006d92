//! How long does a failed event wait?

use std::time::Duration;

/// Least range a wait is drawn from, or a tiny base would spin.
const LEAST: Duration = Duration::from_millis(1);

/// Waits between attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) base: Duration,
    pub(crate) max: Duration,
}

impl Backoff {
    /// The wait after attempt `attempt` (from 1) failed: uniform in `[0, min(base · 2^attempt, max))`. `unit` is a
    /// random number in `[0, 1)`.
    pub(crate) fn wait(&self, attempt: u32, unit: f64) -> Duration {
        let grown = self.base.saturating_mul(1u32.checked_shl(attempt).unwrap_or(u32::MAX));
        grown.min(self.max).max(LEAST).mul_f64(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_wait_doubles_up_to_its_maximum(attempt in 1..200u32, unit in 0.0..1.0f64) {
            let backoff = Backoff { base: Duration::from_millis(20), max: Duration::from_secs(300) };
            let range = 0.02 * 2f64.powi(attempt.min(30) as i32);
            let expected = range.min(300.0) * unit;
            prop_assert!((backoff.wait(attempt, unit).as_secs_f64() - expected).abs() < 1e-6);
            let tiny = Backoff { base: Duration::from_nanos(1), max: Duration::from_secs(1) };
            prop_assert!(tiny.wait(1, unit) <= LEAST && tiny.wait(1, 0.999) > LEAST.mul_f64(0.99));
        }
    }
}
