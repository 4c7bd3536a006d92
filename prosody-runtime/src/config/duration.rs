//! How do people write durations and sizes?

use std::fmt::Write as _;
use std::time::Duration;

/// Units of time with their length in nanoseconds. Months and years are those of the civil calendar's average.
const TIME_UNITS: &[(&[&str], u64)] = &[
    (&["ns", "nsec", "nanos"], 1),
    (&["us", "usec", "µs", "micros"], 1_000),
    (&["ms", "msec", "millis", "millisecond", "milliseconds"], 1_000_000),
    (&["s", "sec", "secs", "second", "seconds"], 1_000_000_000),
    (&["m", "min", "mins", "minute", "minutes"], 60_000_000_000),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600_000_000_000),
    (&["d", "day", "days"], 86_400_000_000_000),
    (&["w", "week", "weeks"], 604_800_000_000_000),
    (&["M", "month", "months"], 2_630_016_000_000_000),
    (&["y", "year", "years"], 31_557_600_000_000_000),
];

/// Units of size with their bytes.
const SIZE_UNITS: &[(&[&str], u64)] = &[
    (&["", "b"], 1),
    (&["k", "kb"], 1_000),
    (&["ki", "kib"], 1 << 10),
    (&["m", "mb"], 1_000_000),
    (&["mi", "mib"], 1 << 20),
    (&["g", "gb"], 1_000_000_000),
    (&["gi", "gib"], 1 << 30),
];

/// Reads `15s`, `1h 30m`, `250ms`.
///
/// # Errors
/// A sentence for the user when the text is no duration or too long for one.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration; write one like `15s`, `250ms` or `1h 30m`");
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let (number, after) = leading_digits(rest).ok_or_else(wrong)?;
        let after = after.trim_start();
        let unit_end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(unit_end).ok_or_else(wrong)?;
        let nanos = unit_of(TIME_UNITS, unit).ok_or_else(wrong)?;
        let part = u128::from(number) * u128::from(nanos);
        let part = Duration::new(
            u64::try_from(part / 1_000_000_000).map_err(|_| wrong())?,
            u32::try_from(part % 1_000_000_000).unwrap_or(0),
        );
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = after.trim_start();
    }
    Ok(total)
}

/// Reads `67108864`, `64MiB`, `1 GB`.
///
/// # Errors
/// A sentence for the user when the text is no size or does not fit 64 bits.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; write bytes, or a number with KiB, MiB or GiB");
    let (number, unit) = leading_digits(text.trim()).ok_or_else(wrong)?;
    let factor = unit_of(SIZE_UNITS, &unit.trim().to_ascii_lowercase()).ok_or_else(wrong)?;
    number.checked_mul(factor).ok_or_else(wrong)
}

/// Writes a duration the way [`parse_duration`] reads it.
pub(crate) fn render_duration(duration: Duration) -> String {
    let mut nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, length) in
        [("d", 86_400_000_000_000), ("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000)]
            .into_iter()
            .chain([("ms", 1_000_000), ("us", 1_000), ("ns", 1)])
    {
        let count = nanos / length;
        nanos %= length;
        if count > 0 {
            let gap = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{gap}{count}{unit}");
        }
    }
    text
}

fn leading_digits(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, rest))
}

fn unit_of(units: &[(&[&str], u64)], name: &str) -> Option<u64> {
    units.iter().find(|(names, _)| names.contains(&name)).map(|(_, factor)| *factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn people_write_durations_and_sizes_in_many_ways() {
        for (text, seconds) in [("15s", 15), ("1h 30m", 5_400), ("2 min", 120), ("7d", 604_800), ("0", 0)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in
            ["", "15", "s", "1.5s", "-1s", "1s x", "99999999999999999999s", "18446744073709551615y 1y"]
        {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        for (text, bytes) in [("7", 7), ("64MiB", 64 << 20), ("1 GB", 1_000_000_000), ("8k", 8_000)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "MiB", "-1", "1TiBs", "18446744073709551615KiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_reads_back(nanos in 0u64..u64::MAX) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&render_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC*") {
            let _ = (parse_duration(&text), parse_size(&text));
        }
    }
}
