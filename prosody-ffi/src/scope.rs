//! How does .NET learn where a handler runs in a trace, and how do we learn what it made of that?

use prosody_runtime::{Context, Lineage, SpanRelation, TraceContext};

use crate::abi::{
    PR_SCOPE_FOLLOWS, PR_SCOPE_HERE, PR_SCOPE_LOCATED, PR_SCOPE_ORIGIN, PR_SCOPE_RECORDED, PrBytes, PrScope,
    PrTrace,
};

const NOWHERE: PrTrace =
    PrTrace { trace_id: [0; 16], span_id: [0; 8], flags: 0, state: PrBytes::NONE, baggage: PrBytes::NONE };

/// Of an event that nobody traces.
const EMPTY: PrScope = PrScope { kind: 0, here: NOWHERE, origin: NOWHERE };

/// What .NET reads. It points into `lineage`.
pub(crate) fn scope(lineage: Option<&Lineage>) -> PrScope {
    let mut scope = EMPTY;
    let Some(Lineage { here, origin, relation }) = lineage else { return scope };
    if here.is_traced() {
        scope.kind |= PR_SCOPE_HERE;
        scope.here = describe(here);
    }
    if let Some(origin) = origin.as_ref().filter(|origin| origin.is_traced()) {
        scope.kind |= PR_SCOPE_ORIGIN;
        scope.origin = PrTrace { baggage: PrBytes::NONE, ..describe(origin) };
    }
    if *relation == SpanRelation::FollowsFrom {
        scope.kind |= PR_SCOPE_FOLLOWS;
    }
    scope
}

/// Takes over what .NET made of it.
pub(crate) fn take_over(scope: &PrScope, context: &Context) {
    if scope.kind & PR_SCOPE_LOCATED == 0 {
        return;
    }
    let PrTrace { trace_id, span_id, flags, .. } = scope.here;
    if let Some(here) = TraceContext::new(trace_id, span_id, (flags & 0xff) as u8) {
        context.locate(here, scope.kind & PR_SCOPE_RECORDED != 0);
    }
}

fn describe(context: &TraceContext) -> PrTrace {
    let bytes = |text: Option<&str>| text.map_or(PrBytes::NONE, |text| PrBytes::of(text.as_bytes()));
    PrTrace {
        trace_id: context.trace_id(),
        span_id: context.span_id(),
        flags: context.flags().into(),
        state: bytes(context.state()),
        baggage: bytes(context.baggage()),
    }
}
