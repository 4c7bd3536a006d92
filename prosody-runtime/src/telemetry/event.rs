//! What does an event of the telemetry topic say? JSON in camel case; what is unknown is left out. *Pure.*

use std::fmt::Write as _;
use std::sync::Arc;

use prosody_wire::TopicPartition;

use crate::insight::quote::quote;
use crate::partition::event::{Event, Subject as Called};
use crate::partition::keys::Keyed;
use crate::pipeline::failure::rfc3339;
use crate::trace::TraceContext;

/// Bytes of an error's text that are told.
const MAX_EXCEPTION: usize = 4 * 1024;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Dispatched,
    Succeeded,
    /// With the category of the error.
    Failed(&'static str),
    Sent,
    /// A timer, by a handler that succeeded.
    Scheduled,
    Cancelled,
}

/// Whom it happened to.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) position: Position,
    pub(crate) key: String,
    /// Whether it is a first attempt; a sent message and a timer that does not fire yet are none.
    pub(crate) first: Option<bool>,
    pub(crate) trace: Option<TraceContext>,
}

/// Which event of its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    Offset(i64),
    Timer { seconds: u32, deferred: bool },
}

/// An event before it is written.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) at: i64,
    pub(crate) happened: Happened,
    pub(crate) subject: Subject,
    /// What the handler's error said.
    pub(crate) exception: Option<String>,
}

impl Subject {
    pub(crate) fn of(tp: &TopicPartition, event: &Event, trace: Option<&TraceContext>) -> Subject {
        let position = match event.subject() {
            Called::Message(record) => Position::Offset(record.offset),
            Called::Timer(time) => Position::Timer { seconds: time.seconds(), deferred: event.is_retry() },
            // Nobody is called for it, so nobody is told.
            Called::Nothing => Position::Offset(-1),
        };
        Subject {
            topic: Arc::clone(&tp.topic),
            partition: tp.partition,
            position,
            key: String::from_utf8_lossy(event.key()).into_owned(),
            first: Some(event.failures == 0 && !event.is_retry()),
            trace: trace.cloned(),
        }
    }
}

impl Subject {
    /// The same, somewhere else in its trace.
    pub(crate) fn at(self, trace: Option<TraceContext>) -> Subject {
        Subject { trace, ..self }
    }
}

impl Told {
    /// The JSON text.
    pub(crate) fn json(&self, source: &str, hostname: Option<&str>) -> String {
        let Told { at, happened, subject, exception } = self;
        let kind = if matches!(subject.position, Position::Offset(_)) { "message" } else { "timer" };
        let (verb, category) = match happened {
            Happened::Dispatched => ("dispatched", None),
            Happened::Succeeded => ("succeeded", None),
            Happened::Failed(category) => ("failed", Some(*category)),
            Happened::Sent => ("sent", None),
            Happened::Scheduled => ("scheduled", None),
            Happened::Cancelled => ("cancelled", None),
        };
        let mut json = format!(
            "{{\"type\":\"prosody.{kind}.{verb}\",\"eventTime\":\"{}\",\"topic\":{},\"partition\":{}",
            rfc3339(*at),
            quote(&subject.topic),
            subject.partition
        );
        let _ = match subject.position {
            Position::Offset(offset) => write!(json, ",\"offset\":{offset}"),
            Position::Timer { seconds, deferred } => {
                let (time, kind) =
                    (rfc3339(i64::from(seconds) * 1_000), if deferred { "deferred" } else { "application" });
                write!(json, ",\"scheduledTime\":\"{time}\",\"timerType\":\"{kind}\"")
            }
        };
        let parent = subject.trace.as_ref().and_then(TraceContext::parent);
        let demand = subject.first.map(|first| if first { "normal" } else { "failure" });
        let exception = exception.as_deref().map(|text| {
            let end = (0..=MAX_EXCEPTION.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
            text.get(..end.unwrap_or(0)).unwrap_or_default()
        });
        for (name, value) in [
            ("key", Some(subject.key.as_str())),
            ("source", Some(source)),
            ("hostname", hostname),
            ("demandType", demand),
            ("errorCategory", category),
            ("exception", exception),
            ("traceParent", parent.as_deref()),
            ("traceState", subject.trace.as_ref().and_then(TraceContext::state)),
        ] {
            if let Some(value) = value {
                let _ = write!(json, ",\"{name}\":{}", quote(value));
            }
        }
        json.push('}');
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_are_omitted_and_the_rest_is_json() {
        let subject = Subject {
            topic: Arc::from("t"),
            partition: 3,
            position: Position::Offset(7),
            key: "k\"\n".to_owned(),
            first: Some(false),
            trace: None,
        };
        let told = Told {
            at: 1_700_000_000_123,
            happened: Happened::Failed("transient"),
            subject: subject.clone(),
            exception: Some("é".repeat(MAX_EXCEPTION)),
        };
        let json: serde_json::Value = serde_json::from_str(&told.json("s", None)).expect("JSON");
        assert_eq!(json["exception"].as_str().map(str::len), Some(MAX_EXCEPTION));
        let mut rest = json.as_object().expect("an object").clone();
        rest.remove("exception");
        let expected = serde_json::json!({
            "type": "prosody.message.failed", "eventTime": "2023-11-14T22:13:20.123Z", "topic": "t", "partition": 3,
            "offset": 7, "key": "k\"\n", "source": "s", "demandType": "failure", "errorCategory": "transient",
        });
        assert_eq!(serde_json::Value::Object(rest), expected);

        let position = Position::Timer { seconds: 1_700_000_000, deferred: false };
        let subject = Subject { position, first: Some(true), ..subject };
        let told = Told { at: 0, happened: Happened::Dispatched, subject, exception: None };
        let json: serde_json::Value = serde_json::from_str(&told.json("s", Some("h"))).expect("JSON");
        let expected = serde_json::json!({
            "type": "prosody.timer.dispatched", "eventTime": "1970-01-01T00:00:00.000Z", "topic": "t", "partition": 3,
            "scheduledTime": "2023-11-14T22:13:20.000Z", "timerType": "application", "key": "k\"\n", "source": "s",
            "hostname": "h", "demandType": "normal",
        });
        assert_eq!(json, expected);
    }
}
