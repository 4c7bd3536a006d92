//! Spans as an `ExportTraceServiceRequest` of opentelemetry-proto 1. Field numbers never change, so they stand here.

use super::{Resource, SCOPE, VERSION, failure};
use crate::trace::span::{Span, Value};

/// Kinds of fields on the wire.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const FIXED32: u32 = 5;

struct Writer(Vec<u8>);

impl Writer {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push((number & 0x7f) as u8);
    }

    fn tag(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    fn number(&mut self, field: u32, number: u64) {
        self.tag(field, VARINT);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u32, number: u64) {
        self.tag(field, FIXED64);
        self.0.extend(number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u32, number: u32) {
        self.tag(field, FIXED32);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn message(&mut self, field: u32, write: impl FnOnce(&mut Writer)) {
        let mut inner = Writer(Vec::new());
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// `repeated KeyValue`.
    fn attribute(&mut self, field: u32, name: &str, value: &Value) {
        self.message(field, |pair| {
            pair.bytes(1, name.as_bytes());
            pair.message(2, |any| match value {
                Value::Text(text) => any.bytes(1, text.as_bytes()),
                Value::Word(text) => any.bytes(1, text.as_bytes()),
                Value::Flag(flag) => any.number(2, u64::from(*flag)),
                Value::Int(number) => any.number(3, number.cast_unsigned()),
            });
        });
    }
}

/// The body of a request.
pub(crate) fn request(resource: &Resource, spans: &[Box<Span>]) -> Vec<u8> {
    let mut writer = Writer(Vec::with_capacity(spans.len() * 512));
    writer.message(1, |of_resource| {
        of_resource.message(1, |out| {
            for (name, value) in resource {
                out.attribute(1, name, &Value::Text(value.as_str().into()));
            }
        });
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.bytes(1, SCOPE.as_bytes());
                scope.bytes(2, VERSION.as_bytes());
            });
            for span in spans {
                of_scope.message(2, |out| write(out, span));
            }
        });
    });
    writer.0
}

fn write(out: &mut Writer, span: &Span) {
    let failure = failure(span);
    out.bytes(1, &span.context.trace_id());
    out.bytes(2, &span.context.span_id());
    if let Some(state) = span.context.state() {
        out.bytes(3, state.as_bytes());
    }
    if let Some(parent) = &span.parent {
        out.bytes(4, parent);
    }
    out.bytes(5, span.name.as_bytes());
    out.number(6, span.kind as u64);
    out.fixed64(7, span.start);
    out.fixed64(8, span.end);
    let more = failure.iter().flat_map(|(attributes, ..)| attributes);
    for (name, value) in span.attributes.iter().chain(more) {
        out.attribute(9, name, value);
    }
    if let Some((_, event, _)) = &failure {
        out.message(11, |out| {
            out.fixed64(1, span.end);
            out.bytes(2, b"exception");
            event.iter().for_each(|(name, value)| out.attribute(3, name, value));
        });
    }
    if let Some(link) = &span.link {
        out.message(13, |out| {
            out.bytes(1, &link.trace_id());
            out.bytes(2, &link.span_id());
            if let Some(state) = link.state() {
                out.bytes(3, state.as_bytes());
            }
            out.fixed32(6, link.flags().into());
        });
    }
    if let Some((.., text)) = &failure {
        out.message(15, |out| {
            out.bytes(2, text.as_bytes());
            out.number(3, 2);
        });
    }
    out.fixed32(16, span.context.flags().into());
}
