//! What is a span, and what does it say? Names and attributes are those of OpenTelemetry's semantic conventions for messaging.

use std::sync::Arc;

use super::TraceContext;

/// Bytes of a key that are told.
const KEY_BYTES: usize = 256;

/// What a span is to its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Client = 3,
    Producer = 4,
    Consumer = 5,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(Arc<str>),
    Word(&'static str),
    Int(i64),
    Flag(bool),
}

/// Why what a span stands for failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// One of few.
    pub(crate) kind: String,
    /// What the error said.
    pub(crate) text: String,
}

/// A span that has begun, and later ended. Times in nanoseconds since the Unix epoch.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// Its own ids.
    pub(crate) context: TraceContext,
    /// The span in the same trace that it is a child of.
    pub(crate) parent: Option<[u8; 8]>,
    /// The span of another trace that caused it.
    pub(crate) link: Option<TraceContext>,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    pub(crate) failed: Option<Failed>,
}

/// What every span of a client says.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) client_id: Arc<str>,
    pub(crate) group_id: Option<Arc<str>>,
}

impl Span {
    pub(crate) fn say(&mut self, name: &'static str, value: Value) {
        self.attributes.push((name, value));
    }

    /// Says what is done to which topic. `operation` is `send`, `receive` or `process`.
    pub(crate) fn messaging(&mut self, operation: &'static str, topic: &Arc<str>, common: &Common) {
        self.say("messaging.system", Value::Word("kafka"));
        self.say("messaging.operation.name", Value::Word(operation));
        self.say("messaging.operation.type", Value::Word(operation));
        self.say("messaging.destination.name", Value::Text(Arc::clone(topic)));
        self.say("messaging.client.id", Value::Text(Arc::clone(&common.client_id)));
        if let (Some(group), true) = (&common.group_id, operation != "send") {
            self.say("messaging.consumer.group.name", Value::Text(Arc::clone(group)));
        }
    }

    pub(crate) fn partition(&mut self, partition: i32) {
        self.say("messaging.destination.partition.id", Value::Text(Arc::from(partition.to_string())));
    }

    pub(crate) fn offset(&mut self, offset: i64) {
        self.say("messaging.kafka.offset", Value::Int(offset));
    }

    pub(crate) fn key(&mut self, key: &[u8]) {
        let key = String::from_utf8_lossy(key);
        let end = (0..=KEY_BYTES.min(key.len())).rev().find(|at| key.is_char_boundary(*at)).unwrap_or(0);
        self.say("messaging.kafka.message.key", Value::Text(Arc::from(key.get(..end).unwrap_or_default())));
    }

    pub(crate) fn fail(&mut self, kind: &str, text: &str) {
        self.failed = Some(Failed { kind: kind.to_owned(), text: text.to_owned() });
    }
}
