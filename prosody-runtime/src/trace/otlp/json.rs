//! The same as JSON: names in camel case, ids in hex, 64-bit numbers as text, enums as numbers.

use std::fmt::Write as _;

use super::{Resource, SCOPE, VERSION, failure};
use crate::insight::quote::quote;
use crate::trace::TraceContext;
use crate::trace::span::{Span, Value};

/// The body of a request.
pub(crate) fn request(resource: &Resource, spans: &[Box<Span>]) -> Vec<u8> {
    let of_resource =
        resource.iter().map(|(name, value)| attribute(name, &Value::Text(value.as_str().into())));
    let json = format!(
        r#"{{"resourceSpans":[{{"resource":{{"attributes":{}}},"scopeSpans":[{{"scope":{{"name":"{SCOPE}","version":"{VERSION}"}},"spans":{}}}]}}]}}"#,
        list(of_resource),
        list(spans.iter().map(|span| write(span)))
    );
    json.into_bytes()
}

fn list(members: impl Iterator<Item = String>) -> String {
    format!("[{}]", members.collect::<Vec<_>>().join(","))
}

fn attribute(name: &str, value: &Value) -> String {
    let value = match value {
        Value::Text(text) => format!(r#""stringValue":{}"#, quote(text)),
        Value::Word(text) => format!(r#""stringValue":{}"#, quote(text)),
        Value::Int(number) => format!(r#""intValue":"{number}""#),
        Value::Flag(flag) => format!(r#""boolValue":{flag}"#),
    };
    format!(r#"{{"key":{},"value":{{{value}}}}}"#, quote(name))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Ids and state, as spans and links begin.
fn ids(context: &TraceContext) -> String {
    let mut json =
        format!(r#""traceId":"{}","spanId":"{}""#, hex(&context.trace_id()), hex(&context.span_id()));
    if let Some(state) = context.state() {
        let _ = write!(json, r#","traceState":{}"#, quote(state));
    }
    json
}

fn write(span: &Span) -> String {
    let (failure, context) = (failure(span), &span.context);
    let more = failure.iter().flat_map(|(attributes, ..)| attributes);
    let attributes = list(span.attributes.iter().chain(more).map(|(name, value)| attribute(name, value)));
    let mut json = format!(
        r#"{{{},"name":{},"kind":{},"startTimeUnixNano":"{}","endTimeUnixNano":"{}","attributes":{attributes},"flags":{}"#,
        ids(context),
        quote(&span.name),
        span.kind as u8,
        span.start,
        span.end,
        context.flags(),
    );
    if let Some(parent) = &span.parent {
        let _ = write!(json, r#","parentSpanId":"{}""#, hex(parent));
    }
    if let Some((_, event, text)) = &failure {
        let event = list(event.iter().map(|(name, value)| attribute(name, value)));
        let _ = write!(
            json,
            r#","events":[{{"timeUnixNano":"{}","name":"exception","attributes":{event}}}],"status":{{"code":2,"message":{}}}"#,
            span.end,
            quote(text)
        );
    }
    if let Some(link) = &span.link {
        let _ = write!(json, r#","links":[{{{},"flags":{}}}]"#, ids(link), link.flags());
    }
    json.push('}');
    json
}
