//! How is something counted where it happens, without a lock and without threads waiting for each other?
//!
//! A counter is several numbers, each on a cache line of its own; a thread adds to one of them and a reader sums up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Upper bounds of a [`Histogram`]'s buckets, in microseconds; what is longer has a bucket of its own.
const BOUNDS: [u64; 19] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];
const BUCKETS: usize = BOUNDS.len() + 1;

/// On a cache line of its own, with the one the CPU fetches beside it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe<T>(T);

/// One number that only grows. `STRIPES` is a power of two: 1 where a single thread counts.
#[derive(Debug)]
pub struct Counter<const STRIPES: usize = 8>([Stripe<AtomicU64>; STRIPES]);

impl<const STRIPES: usize> Default for Counter<STRIPES> {
    fn default() -> Self {
        Counter(std::array::from_fn(|_| Stripe::default()))
    }
}

impl<const STRIPES: usize> Counter<STRIPES> {
    /// Adds.
    pub fn add(&self, count: u64) {
        if let Some(stripe) = self.0.get(mine(STRIPES)) {
            stripe.0.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Adds one.
    pub fn one(&self) {
        self.add(1);
    }

    /// The sum.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.iter().fold(0, |sum, stripe| sum.wrapping_add(stripe.0.load(Ordering::Relaxed)))
    }
}

/// How often something took how long.
#[derive(Debug)]
pub struct Histogram<const STRIPES: usize = 8>([Stripe<Cells>; STRIPES]);

#[derive(Debug, Default)]
struct Cells {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

/// What a [`Histogram`] counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// The upper bound of each bucket and how many were within it and not within the one before, in ascending order.
    pub buckets: Vec<(Duration, u64)>,
    /// How many were longer than the last bound.
    pub longer: u64,
    /// The sum of all.
    pub sum: Duration,
}

impl Distribution {
    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(self.longer, |sum, (_, count)| sum.wrapping_add(*count))
    }
}

impl<const STRIPES: usize> Default for Histogram<STRIPES> {
    fn default() -> Self {
        Histogram(std::array::from_fn(|_| Stripe::default()))
    }
}

impl<const STRIPES: usize> Histogram<STRIPES> {
    /// Something took this long.
    pub fn record(&self, took: Duration) {
        let Some(Stripe(cells)) = self.0.get(mine(STRIPES)) else { return };
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| bound.saturating_mul(1_000) < nanos);
        if let Some(bucket) = cells.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        cells.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// What was counted so far.
    #[must_use]
    pub fn read(&self) -> Distribution {
        let sum = |at: usize| {
            let cells = self.0.iter().filter_map(|Stripe(cells)| cells.buckets.get(at));
            cells.fold(0u64, |sum, cell| sum.wrapping_add(cell.load(Ordering::Relaxed)))
        };
        let bounds = BOUNDS.iter().map(|bound| Duration::from_micros(*bound));
        let nanos = self
            .0
            .iter()
            .fold(0u64, |sum, Stripe(cells)| sum.wrapping_add(cells.nanos.load(Ordering::Relaxed)));
        Distribution {
            buckets: bounds.enumerate().map(|(at, bound)| (bound, sum(at))).collect(),
            longer: sum(BOUNDS.len()),
            sum: Duration::from_nanos(nanos),
        }
    }
}

/// The stripe of this thread.
fn mine(stripes: usize) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // A thread that is ending has none; it counts like the first.
    MINE.try_with(|mine| *mine).unwrap_or(0) & stripes.wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_is_lost_between_threads() {
        let (counter, histogram) = (<Counter>::default(), <Histogram>::default());
        std::thread::scope(|scope| {
            for thread in 0..20u64 {
                let (counter, histogram) = (&counter, &histogram);
                scope.spawn(move || {
                    for _ in 0..1_000 {
                        counter.add(2);
                        histogram.record(Duration::from_micros(thread));
                    }
                });
            }
        });
        assert_eq!(counter.get(), 40_000);
        let read = histogram.read();
        assert_eq!((read.count(), read.sum), (20_000, Duration::from_micros(190 * 1_000)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_duration_is_in_the_first_bucket_whose_bound_is_not_shorter(
            micros in prop_oneof![0..2_000u64, 0..400_000_000u64, prop::sample::select(&BOUNDS[..])],
            nanos in 0..2u64,
        ) {
            let (histogram, took) = (Histogram::<1>::default(), Duration::from_nanos(micros * 1_000 + nanos));
            histogram.record(took);
            let read = histogram.read();
            let expected = read.buckets.iter().position(|(bound, _)| took <= *bound);
            prop_assert_eq!(read.buckets.iter().position(|(_, count)| *count == 1), expected);
            prop_assert_eq!((read.longer, read.count()), (u64::from(expected.is_none()), 1));
            prop_assert_eq!(read.sum, took);
        }
    }
}
