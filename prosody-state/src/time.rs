//! When is a timer due? Whole seconds since 1970 in 32 bits, which last until 2106.

use std::time::Duration;

/// A second since the Unix epoch. The last one is 2106-02-07T06:28:15Z; whatever is later counts as that one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u32);

impl Time {
    /// The last second there is.
    pub const MAX: Time = Time(u32::MAX);

    /// This second since the Unix epoch.
    #[must_use]
    pub const fn from_seconds(seconds: u32) -> Time {
        Time(seconds)
    }

    /// The nearest second, half up; before 1970 is the first second, after 2106 the last.
    #[must_use]
    pub fn from_unix_millis(millis: i64) -> Time {
        Time::clamped(millis.saturating_add(500).div_euclid(1_000))
    }

    /// The second `now` lies in.
    #[must_use]
    pub fn floor(now_unix_millis: i64) -> Time {
        Time::clamped(now_unix_millis.div_euclid(1_000))
    }

    /// The first second that is at least `wait` after now.
    #[must_use]
    pub fn after(now_unix_millis: i64, wait: Duration) -> Time {
        let wait = i64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
        Time::clamped(now_unix_millis.saturating_add(wait).saturating_add(999).div_euclid(1_000))
    }

    fn clamped(seconds: i64) -> Time {
        Time(u32::try_from(seconds.max(0)).unwrap_or(u32::MAX))
    }

    /// Seconds since the Unix epoch.
    #[must_use]
    pub const fn seconds(self) -> u32 {
        self.0
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_millis(self) -> i64 {
        self.0 as i64 * 1_000
    }

    /// Whether the second has begun, on the unrounded clock.
    #[must_use]
    pub const fn is_due(self, now_unix_millis: i64) -> bool {
        self.unix_millis() <= now_unix_millis
    }
}

#[cfg(test)]
mod tests {
    use super::Time;
    use std::time::Duration;

    #[test]
    fn a_time_rounds_to_the_nearest_second_half_up_and_stays_within_32_bits() {
        let cases = [
            (i64::MIN, 0),
            (-1, 0),
            (0, 0),
            (499, 0),
            (500, 1),
            (1_499, 1),
            (1_500, 2),
            // 2038-01-19T03:14:07Z, where signed seconds end, and the next one.
            (2_147_483_647_499, 2_147_483_647),
            (2_147_483_647_500, 2_147_483_648),
            // 2106-02-07T06:28:15Z, where unsigned ones end.
            (4_294_967_294_999, u32::MAX),
            (4_294_967_295_500, u32::MAX),
            (i64::MAX, u32::MAX),
        ];
        for (millis, seconds) in cases {
            assert_eq!(Time::from_unix_millis(millis).seconds(), seconds, "{millis}");
        }
    }

    #[test]
    fn a_timer_is_never_early_on_the_unrounded_clock() {
        let time = Time::from_unix_millis(10_500);
        assert_eq!(time.seconds(), 11);
        assert!(!time.is_due(10_999));
        assert!(time.is_due(11_000));
        assert!(Time::MAX.is_due(4_294_967_295_000));
        assert!(!Time::MAX.is_due(4_294_967_294_999));
    }

    #[test]
    fn a_wait_is_rounded_up() {
        assert_eq!(Time::after(1_000, Duration::from_secs(1)).seconds(), 2);
        assert_eq!(Time::after(1_001, Duration::from_secs(1)).seconds(), 3);
        assert_eq!(Time::after(1_000, Duration::from_nanos(1)).seconds(), 2);
        assert_eq!(Time::after(i64::MAX, Duration::MAX), Time::MAX);
        assert_eq!(Time::floor(1_999).seconds(), 1);
    }
}
