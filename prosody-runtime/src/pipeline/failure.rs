//! What does a record of the failure topic look like? The original key, value and headers, and headers that say where
//! it came from and why it is there. *Pure.*

use prosody_wire::TopicPartition;

use super::filter::SOURCE_SYSTEM;
use crate::partition::event::{Event, Subject};
use crate::partition::keys::Keyed;
use crate::trace::{SentHeaders, TraceContext, is_trace_header};

/// Why an event goes to the failure topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Whether it is no message.
    pub(crate) poison: bool,
    /// At most 4 KiB, as a handler's error is.
    pub(crate) error: String,
    /// How often its handler ran.
    pub(crate) attempts: u32,
}

/// A header that Prosody writes.
type Note = (&'static str, String);
/// A header as the producer takes it.
pub(crate) type Header<'a> = (&'a [u8], Option<&'a [u8]>);

/// A record of the failure topic.
pub(crate) struct Routed<'a> {
    event: &'a Event,
    trace: Option<&'a TraceContext>,
    sent: SentHeaders<'a>,
    notes: Vec<Note>,
    /// What stands for a timer, which has no value of its own.
    body: Option<Vec<u8>>,
}

impl<'a> Routed<'a> {
    /// What is added to the original: where it came from and why it is there. `trace` is where it failed.
    pub(crate) fn new(
        (group_id, source_system): (&str, &str),
        trace: Option<&'a TraceContext>,
        tp: &TopicPartition,
        event: &'a Event,
        failure: &Failure,
    ) -> Routed<'a> {
        let (kind, offset, time, body) = match event.subject() {
            Subject::Message(record) => {
                let kind = if failure.poison { "poison" } else { "message" };
                (kind, Some(record.offset), record.timestamp, None)
            }
            Subject::Timer(time) => {
                let millis = time.unix_millis();
                let (key, time) = (String::from_utf8_lossy(event.key()), rfc3339(millis));
                let body = format!(r#"{{"key":{},"time":"{time}"}}"#, quoted(&key));
                ("timer", None, millis, Some(body.into_bytes()))
            }
            Subject::Nothing => ("message", None, 0, None),
        };
        let mut notes = vec![
            (SOURCE_SYSTEM, source_system.to_owned()),
            ("source-kind", kind.to_owned()),
            ("source-topic", tp.topic.to_string()),
            ("source-partition", tp.partition.to_string()),
        ];
        notes.extend(offset.map(|offset| ("source-offset", offset.to_string())));
        notes.extend([
            ("source-timestamp", rfc3339(time)),
            ("source-group-id", group_id.to_owned()),
            ("source-error", failure.error.clone()),
            ("source-attempts", failure.attempts.to_string()),
        ]);
        Routed { event, trace, sent: SentHeaders::of(trace), notes, body }
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self.event.subject() {
            Subject::Message(record) => record.written_key(),
            Subject::Timer(_) | Subject::Nothing => Some(self.event.key()),
        }
    }

    pub(crate) fn value(&self) -> Option<&[u8]> {
        match self.event.subject() {
            Subject::Message(record) => record.payload(),
            Subject::Timer(_) | Subject::Nothing => self.body.as_deref(),
        }
    }

    /// All headers of the record, in their order, but those that say who sent it and, when it was traced, where: and then
    /// ours. Where a record fails again the last header of a name is the newest.
    pub(crate) fn headers(&self) -> Vec<Header<'_>> {
        let mut headers = Vec::new();
        if let Subject::Message(record) = self.event.subject() {
            let ours = |name: &[u8]| {
                name == SOURCE_SYSTEM.as_bytes()
                    || self.trace.is_some_and(|trace| is_trace_header(trace, name))
            };
            let kept = record.headers().filter(|header| !ours(header.key));
            headers.extend(kept.map(|header| (header.key, header.value)));
        }
        headers.extend(self.sent.each());
        headers.extend(self.notes.iter().map(|(name, text)| (name.as_bytes(), Some(text.as_bytes()))));
        headers
    }
}

/// A text as JSON writes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\0'..='\x1f' => quoted.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// Milliseconds since 1970 as RFC 3339 in UTC. Times outside of the years 0 to 9999, which it cannot write, become the
/// nearest it can.
pub(crate) fn rfc3339(millis: i64) -> String {
    const DAY: i64 = 86_400_000;
    let millis = millis.clamp(-62_167_219_200_000, 253_402_300_799_999);
    let (days, rest) = (millis.div_euclid(DAY), millis.rem_euclid(DAY));
    // Days from 0000-03-01, in eras of 400 years, so that a leap day ends its year: Howard Hinnant's civil_from_days.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_are_quoted_as_json_says() {
        let text = "a\"b\\c\n\0\u{1f}é\u{7f}";
        assert_eq!(serde_json::from_str::<String>(&quoted(text)).ok().as_deref(), Some(text));
    }

    #[test]
    fn times_are_written_as_rfc_3339_says() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_583_020_799_007, "2020-02-29T23:59:59.007Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
            (i64::MIN, "0000-01-01T00:00:00.000Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(millis), text);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Texts of one length sort like their times, and the next day is the next date.
        #[test]
        fn texts_sort_like_their_times(at in -62_167_219_200_000..253_402_300_713_599i64, later in 1..86_400_000i64) {
            let (first, second) = (rfc3339(at), rfc3339(at + later));
            prop_assert!(first < second && first.len() == 24, "{} {}", first, second);
            let tomorrow = rfc3339(at + 86_400_000);
            prop_assert_eq!(&tomorrow[10..], &first[10..]);
            prop_assert!(tomorrow[8..10] == *"01" || tomorrow[..8] == first[..8]);
        }
    }
}
