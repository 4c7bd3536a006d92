//! How much may be fetched now, and for which partitions, under one budget? Pure.
//!
//! Every open partition owns an equal share of the budget, at least one batch. It is left out of requests only while its
//! share is full, until half of it is free again: a partition nobody reads stops itself and no other. One that is read goes
//! on beyond its share while there is memory, since what it holds is at work. A request asks for no more than what is free of its partitions' shares, so that the requests to other brokers find theirs. All
//! numbers are decompressed bytes: what is still compressed counts as large as that partition's batches lately became.

use std::time::Duration;

use prosody_base::sabotaged;

/// What is held of a near broker's partitions, and of those of any before its distance is known.
pub(crate) const FIRST_WINDOW: usize = 16 << 20;
/// How many round trips' worth of records are held: half of a share is read before it is asked for again, and the answer
/// itself takes as long as reading it does.
const ROUND_TRIPS: u32 = 4;

/// Bytes to be held of one broker's partitions, so that its readers need not wait for it. An answer brought `bytes`,
/// `cycle` after the one before it; the broker is `distance` away. A broker that is near or read slowly needs little
/// ahead, a distant one that is read fast needs much; `before` was wanted until now.
pub(crate) fn wanted(before: usize, bytes: usize, cycle: Duration, distance: Duration) -> usize {
    let per_second = bytes as f64 / cycle.max(Duration::from_micros(1)).as_secs_f64();
    let now = per_second * distance.saturating_mul(ROUND_TRIPS).as_secs_f64();
    // Down slowly: one quiet answer says little.
    (now as usize).max(before - before / 16)
}

/// One partition as the plan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Bytes it holds: buffered (at its expected size) and in the hands of the reader.
    pub(crate) bytes: usize,
    /// It was left out of the last request.
    pub(crate) full: bool,
}

/// The share of each of `partitions`; never less than what one fetch of a partition brings.
pub(crate) fn share(budget: usize, partitions: usize, batch: usize) -> usize {
    (budget / partitions.max(1)).max(batch)
}

/// What a partition may hold of its share. One whose reader `waits` has nothing buffered: all it holds is in the hands of
/// those who use its records, and may be for minutes. It may go on with most of what is `free` for everybody.
pub(crate) fn limit(share: usize, waits: bool, free: usize) -> usize {
    if waits { share.max(free.saturating_mul(4)) } else { share }
}

/// Whether a partition is left out. Its last eighth is not worth a round trip.
pub(crate) fn is_full(held: Held, share: usize) -> bool {
    held.bytes > if held.full { share / 2 } else { share - share / 8 }
}

/// Bytes of records the next request may ask for, or `None` when it has to wait. `held` is everything held and asked
/// for already, `room` what is free of the shares of the request's partitions, `percent` the size of decompressed
/// batches relative to compressed ones.
///
/// One response may go over the budget: a broker sends one whole batch whatever the limit is.
pub(crate) fn request_bytes(
    budget: usize,
    held: usize,
    room: usize,
    largest: usize,
    percent: usize,
) -> Option<usize> {
    let free = if sabotaged("fetch-budget") { budget } else { budget.saturating_sub(held) };
    // A few bytes are not worth a round trip, and the broker would send a whole batch all the same.
    let enough = largest.min(budget / 8).min(room).max(1);
    (free >= enough).then(|| (free.min(room).saturating_mul(100) / percent.max(100)).clamp(1, largest))
}

/// Compressed bytes at the size they will have.
pub(crate) fn expanded(compressed: usize, percent: usize) -> usize {
    compressed.saturating_mul(percent.max(100)) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_ahead_follows_the_distance() {
        let milliseconds = Duration::from_millis;
        let settle = |latency: u64, readers: f64| {
            let mut window = FIRST_WINDOW;
            for _ in 0..100 {
                // Half of it is read, then the next answer is waited for.
                let bytes = window / 2;
                let reading = Duration::from_secs_f64(bytes as f64 / readers);
                let cycle = reading.max(milliseconds(latency));
                window = wanted(window, bytes, cycle, milliseconds(latency)).clamp(FIRST_WINDOW, 64 << 20);
            }
            window
        };
        assert_eq!(settle(1, 500e6), FIRST_WINDOW, "near");
        assert_eq!(settle(50, 20e6), FIRST_WINDOW, "distant, and read slowly");
        let distant = settle(50, 200e6);
        assert!((30 << 20..=40 << 20).contains(&distant), "as much as 200 ms bring: {distant}");
        assert_eq!(settle(200, 500e6), 64 << 20, "never more than the budget");
    }
    use proptest::prelude::*;

    #[test]
    fn a_share_is_left_at_full_and_taken_up_again_at_half() {
        let share = share(64 << 20, 4, 1 << 20);
        assert_eq!(share, 16 << 20);
        let held = |bytes, full| is_full(Held { bytes, full }, share);
        assert!(!held(share / 8 * 7, false) && held(share / 8 * 7 + 1, false));
        assert!(held(share / 2 + 1, true) && !held(share / 2, true));
        assert_eq!(super::share(64 << 20, 1000, 1 << 20), 1 << 20, "never less than one batch");
    }

    #[test]
    fn a_request_leaves_the_requests_to_other_brokers_their_shares() {
        // Small batches that expand sixteenfold: the long poll to one broker, idle and always asked again first, took
        // the whole budget, and a partition led by another broker was never read.
        let (budget, largest, percent) = (64 << 20, 8 << 20, 1_600);
        let share = share(budget, 2, 1 << 20);
        let first = request_bytes(budget, 0, share, largest, percent).unwrap();
        let reserved = expanded(first, percent);
        assert!(reserved <= share);
        assert_eq!(request_bytes(budget, reserved, share, largest, percent), Some(first));
    }

    #[test]
    fn who_waits_may_hold_most_of_what_there_is_and_leaves_some() {
        let (budget, share) = (64usize << 20, 2 << 20);
        let held_at_last = |waits| {
            (0..budget).step_by(1 << 16).find(|bytes| {
                is_full(Held { bytes: *bytes, full: false }, limit(share, waits, budget - bytes))
            })
        };
        assert!(held_at_last(false).unwrap() <= share);
        let most = held_at_last(true).unwrap();
        assert!((budget / 4 * 3..budget / 5 * 4).contains(&most), "{most}");
        assert_eq!(limit(share, true, 0), share, "never less than its share");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Partitions are read at random speeds, one possibly never; responses expand as the last ones did.
        #[test]
        fn the_budget_is_passed_by_one_response_at_most_and_nobody_starves(
            partitions in 1usize..12,
            percent in 100usize..600,
            steps in proptest::collection::vec((0usize..12, 0usize..100), 1..200),
        ) {
            let (budget, largest, batch) = (64_000, 16_000, 1_000);
            let mut held = vec![Held { bytes: 0, full: false }; partitions];
            for (reader, amount) in steps {
                // Partition 0 is never read.
                let reading = reader % partitions;
                if reading > 0 {
                    held[reading].bytes = held[reading].bytes * amount / 100;
                }
                let share = share(budget, partitions, batch);
                let total: usize = held.iter().map(|held| held.bytes).sum();
                for one in &mut held {
                    one.full = is_full(*one, share);
                }
                let wanting = held.iter().filter(|held| !held.full).count();
                let room = held.iter().filter(|held| !held.full).map(|held| share - held.bytes).sum();
                if let Some(bytes) = request_bytes(budget, total, room, largest, percent)
                    && wanting > 0
                {
                    let each = bytes / wanting;
                    for one in held.iter_mut().filter(|held| !held.full) {
                        one.bytes += expanded(each, percent);
                    }
                }
                let total: usize = held.iter().map(|held| held.bytes).sum();
                prop_assert!(total <= budget + expanded(largest, percent), "{total}");
                // With partitions for everybody, a reader that emptied its share is always served.
                if partitions > 1 {
                    let others: usize = held.iter().skip(1).map(|held| held.bytes).sum();
                    let may = request_bytes(budget, held[0].bytes, share, largest, percent).is_some();
                    prop_assert!(may || others > 0, "partition 0 alone never blocks the others");
                }
            }
        }
    }
}
