//! Who caused an event, and how does whoever an event causes learn of it?
//!
//! ```text
//! headers of a record ──┐                            ┌──▶ headers of what is sent, and of the failure topic
//!                       ├─▶ the handler's context ───┼──▶ rows of timers ──▶ the context of their firing
//! row of a timer ───────┘    (current while it runs) └──▶ events of the telemetry topic
//! ```
//!
//! Contexts travel always, and cost nothing where there are none. Spans are made only when a collector is named.
//!
//! | file | question it answers |
//! |---|---|
//! | `context.rs` | what is a trace context, and how is it written? |
//! | `current.rs` | on whose behalf does this code run? |
//! | `place.rs` | where does an attempt run? |
//! | `settings.rs`, `sampler.rs` | where do spans go, and which? |
//! | `tracer.rs`, `span.rs` | which spans are there, who is whose child, and what do they say? |
//! | `otlp/` | how are they written? |
//! | `export.rs` | who brings them to a collector? |

mod context;
mod current;
mod export;
mod otlp;
mod place;
mod sampler;
pub(crate) mod settings;
mod span;
mod tracer;

pub use context::TraceContext;
pub(crate) use context::{SentHeaders, is_trace_header};
pub(crate) use place::Place;

pub(crate) use span::Common;
pub(crate) use tracer::{Tracer, Tracing};

use prosody_state::KeyImage;

use crate::config::SpanRelation;
use crate::partition::event::{Entry, Event, What};
use crate::partition::record::Record;

/// Where an attempt runs, and where that came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// The span of the handler; without an exporter, the origin's.
    pub here: TraceContext,
    /// The sender of the message, or whoever scheduled the timer.
    pub origin: Option<TraceContext>,
    /// How the handler's span relates to the origin, as `MessageSpans` or `TimerSpans` says.
    pub relation: SpanRelation,
}

/// Who caused an event, as its record's headers or its timer's row say.
pub(crate) fn origin(event: &Event, root: Option<&KeyImage>) -> Option<TraceContext> {
    let row = match &event.what {
        What::Message(_, record) => return of_record(record),
        What::Timer(due) => root?.timers.get(&due.id).map(|facts| &facts.trace),
        What::Retry(retry) => match &retry.entry {
            Entry::Message(record) => return of_record(record),
            Entry::Timer(_) => root?.deferred_timers.get(&retry.number).map(|entry| &entry.trace),
            Entry::Gone(..) | Entry::Unread(..) | Entry::Void(_) => None,
        },
    };
    row.and_then(|row| TraceContext::from_row(row))
}

fn of_record(record: &Record) -> Option<TraceContext> {
    TraceContext::from_headers(record.headers().map(|header| (header.key, header.value)))
}
