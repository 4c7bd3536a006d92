//! How are spans written for a collector (OTLP 1)? *Pure.*
//!
//! Two files instead of the `opentelemetry` crates: docs/adr/0013-own-otlp.md.

mod json;
mod protobuf;

pub(crate) use json::request as json;
pub(crate) use protobuf::request as protobuf;

use std::sync::Arc;

use super::span::{Span, Value};

/// Who recorded the spans.
const SCOPE: &str = "prosody";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the spans of a process say together.
pub(crate) type Resource = Vec<(String, String)>;

/// The attributes of a span, and of the exception that ended it.
type Attributes = Vec<(&'static str, Value)>;

/// What a failed span says besides: its class as an attribute, and an event with the text.
fn failure(span: &Span) -> Option<(Attributes, Attributes, &str)> {
    let failed = span.failed.as_ref()?;
    let (kind, text) = (Arc::<str>::from(&*failed.kind), Arc::<str>::from(&*failed.text));
    let attribute = vec![("error.type", Value::Text(Arc::clone(&kind)))];
    let event = vec![("exception.type", Value::Text(kind)), ("exception.message", Value::Text(text))];
    Some((attribute, event, &failed.text))
}

#[cfg(test)]
mod tests;
