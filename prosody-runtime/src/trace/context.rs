//! What is a trace context, and how is it written? W3C Trace Context (`traceparent`, `tracestate`) and W3C Baggage, and the
//! form in which timers keep it. Whatever does not fit is ignored: a header of a peer ends nothing. *Pure.*

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// The headers, in lower case as W3C asks senders to write them.
const TRACE_PARENT: &str = "traceparent";
const TRACE_STATE: &str = "tracestate";
const BAGGAGE: &str = "baggage";

/// Bytes of a `traceparent` of version 00. Later versions may be longer.
const PARENT_BYTES: usize = 55;
/// Bytes and members of a `tracestate` that is passed on; what W3C asks everyone to pass on at least.
const STATE_BYTES: usize = 512;
const STATE_MEMBERS: usize = 32;
/// Bytes and members of `baggage` that is passed on; the same.
const BAGGAGE_BYTES: usize = 8_192;
const BAGGAGE_MEMBERS: usize = 64;
/// The first byte of a context in a row of a timer, and the bytes before its state.
const ROW_VERSION: u8 = 1;
const ROW_HEAD: usize = 26;

/// Where code runs in a distributed trace: the current span's ids, and what travels with them. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
    state: Option<Arc<str>>,
    baggage: Option<Arc<str>>,
}

impl TraceContext {
    /// A context of these ids; `None` when one of them is all zero, which names nothing. Bit 0 of `flags` says that the
    /// trace is sampled.
    #[must_use]
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> Option<TraceContext> {
        let names = trace_id != [0; 16] && span_id != [0; 8];
        names.then_some(TraceContext { trace_id, span_id, flags, state: None, baggage: None })
    }

    /// Reads the values of the three headers; `None` when neither a span nor baggage comes out. What does not fit is
    /// ignored: a `traceparent` that is none (W3C Trace Context 2), a `tracestate` without a parent, above 512 bytes or
    /// 32 members, baggage above 8,192 bytes or 64 members.
    #[must_use]
    pub fn parse(
        parent: Option<&[u8]>,
        state: Option<&[u8]>,
        baggage: Option<&[u8]>,
    ) -> Option<TraceContext> {
        let ids = parent.and_then(ids_of);
        let context = match ids {
            Some((trace_id, span_id, flags)) => {
                TraceContext::new(trace_id, span_id, flags)?.with_state(state)
            }
            None => TraceContext::default(),
        };
        let context = context.with_baggage(baggage);
        (context.is_traced() || context.baggage.is_some()).then_some(context)
    }

    /// The same with this `tracestate`, if it is one.
    #[must_use]
    pub fn with_state(mut self, state: Option<&[u8]>) -> TraceContext {
        self.state = state.and_then(|text| list(text, STATE_BYTES, STATE_MEMBERS)).map(Arc::from);
        self
    }

    /// The same with this `baggage`, if it is one.
    #[must_use]
    pub fn with_baggage(mut self, baggage: Option<&[u8]>) -> TraceContext {
        let baggage = baggage.and_then(|text| list(text, BAGGAGE_BYTES, BAGGAGE_MEMBERS));
        self.baggage = baggage.map(Arc::from);
        self
    }

    /// The same in the span of `other`. The state stays within its trace.
    pub(crate) fn moved_to(&self, other: &TraceContext) -> TraceContext {
        let same = self.trace_id == other.trace_id;
        let kept = if same { self.clone() } else { self.baggage_alone() };
        kept.in_span(other.trace_id, other.span_id, other.flags)
    }

    /// The same in another span of its trace, or of another trace.
    pub(crate) fn in_span(&self, trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> TraceContext {
        TraceContext { trace_id, span_id, flags, ..self.clone() }
    }

    /// Its baggage alone, for a trace that starts here.
    pub(crate) fn baggage_alone(&self) -> TraceContext {
        TraceContext { baggage: self.baggage.clone(), ..TraceContext::default() }
    }

    /// Whether it names a span; otherwise it only has baggage.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.trace_id != [0; 16]
    }

    /// Whether the trace is recorded by whoever started it.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    /// The trace; all zero when there is none.
    #[must_use]
    pub fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The span; all zero when there is none.
    #[must_use]
    pub fn span_id(&self) -> [u8; 8] {
        self.span_id
    }

    /// Bit 0: sampled. The others as they came.
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// The `tracestate`.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// The `baggage`.
    #[must_use]
    pub fn baggage(&self) -> Option<&str> {
        self.baggage.as_deref()
    }

    /// The `traceparent` of the current span.
    #[must_use]
    pub fn parent(&self) -> Option<String> {
        let text = self.is_traced().then(|| self.parent_text())?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    fn parent_text(&self) -> [u8; PARENT_BYTES] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        // Flags of later versions mean nothing in version 00, except the one for random ids (W3C Trace Context 2).
        let parts = [(3, &self.trace_id[..]), (36, &self.span_id[..]), (53, &[self.flags & 3][..])];
        for (at, bytes) in parts {
            let digits = text.iter_mut().skip(at);
            let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
            digits.zip(nibbles).for_each(|(digit, nibble)| {
                *digit = if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
            });
        }
        text
    }

    /// From the headers of a record; the last of a name counts.
    pub(crate) fn from_headers<'a>(
        headers: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Option<TraceContext> {
        let (mut parent, mut state, mut baggage) = (None, None, None);
        for (name, value) in headers {
            match name {
                b"traceparent" => parent = value,
                b"tracestate" => state = value,
                b"baggage" => baggage = value,
                _ => {}
            }
        }
        if parent.is_none() && baggage.is_none() {
            return None;
        }
        TraceContext::parse(parent, state, baggage)
    }

    /// What a timer's row keeps: the span and its state, not the baggage. Empty without a span.
    pub(crate) fn to_row(&self) -> Bytes {
        if !self.is_traced() {
            return Bytes::new();
        }
        let state = self.state().unwrap_or_default();
        let head = [&[ROW_VERSION][..], &self.trace_id, &self.span_id, &[self.flags]];
        Bytes::from([&head.concat()[..], state.as_bytes()].concat())
    }

    pub(crate) fn from_row(row: &[u8]) -> Option<TraceContext> {
        let (head, state) = row.split_at_checked(ROW_HEAD)?;
        let [version, ids @ .., flags] = head else { return None };
        let (trace_id, span_id) = ids.split_at_checked(16)?;
        if *version != ROW_VERSION {
            return None;
        }
        let context = TraceContext::new(trace_id.try_into().ok()?, span_id.try_into().ok()?, *flags)?;
        Some(context.with_state(Some(state)))
    }
}

/// Hex digits in lower case, and no others: W3C has no upper case.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if text.len() != N * 2 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(bytes)
}

/// The ids and flags of a `traceparent`. One of a later version is read as far as version 00 goes.
fn ids_of(text: &[u8]) -> Option<([u8; 16], [u8; 8], u8)> {
    let (known, more) = text.split_at_checked(PARENT_BYTES)?;
    let mut parts = known.split(|byte| *byte == b'-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let [version] = hex::<1>(version)?;
    let fits = match version {
        0 => more.is_empty(),
        0xff => false,
        _ => more.first().is_none_or(|byte| *byte == b'-'),
    };
    let [flags] = hex::<1>(flags)?;
    fits.then_some((hex(trace)?, hex(span)?, flags))
}

/// A list of `name=value` members that is short enough to be passed on and holds nothing but printable ASCII.
fn list(text: &[u8], bytes: usize, members: usize) -> Option<&str> {
    let printable = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t');
    if text.len() > bytes || !text.iter().all(printable) {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?.trim();
    let mut count = 0;
    for member in text.split(',').map(str::trim).filter(|member| !member.is_empty()) {
        let (name, _) = member.split_once('=')?;
        count += usize::from(!name.is_empty());
        if name.is_empty() || count > members {
            return None;
        }
    }
    (count > 0).then_some(text)
}

/// Whether a header of this name says what `context` says.
pub(crate) fn is_trace_header(context: &TraceContext, name: &[u8]) -> bool {
    match name {
        b"traceparent" | b"tracestate" => context.is_traced(),
        b"baggage" => context.baggage.is_some(),
        _ => false,
    }
}

/// What is written to the headers of a record, with room for what goes before it.
pub(crate) struct SentHeaders<'a> {
    parent: [u8; PARENT_BYTES],
    context: Option<&'a TraceContext>,
}

impl<'a> SentHeaders<'a> {
    pub(crate) fn of(context: Option<&'a TraceContext>) -> SentHeaders<'a> {
        let traced = context.filter(|context| context.is_traced());
        SentHeaders { parent: traced.map_or([0; PARENT_BYTES], TraceContext::parent_text), context }
    }

    /// Name and value of each.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let traced = self.context.filter(|context| context.is_traced()).map(|_| &self.parent[..]);
        let state = self.context.and_then(TraceContext::state);
        let baggage = self.context.and_then(TraceContext::baggage);
        let all = [
            (TRACE_PARENT, traced),
            (TRACE_STATE, state.map(str::as_bytes)),
            (BAGGAGE, baggage.map(str::as_bytes)),
        ];
        let there = all.into_iter().filter(|(_, value)| value.is_some());
        there.map(|(name, value)| (name.as_bytes(), value))
    }
}

/// As a `traceparent`; baggage may hold what must not reach a log.
impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.parent_text()).unwrap_or_default())
    }
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
