//! What crosses the boundary? Blittable structs and numbers, and nothing else.
//!
//! Statuses and kinds are plain non-negative constants: .NET may pass any number in, and an invalid value of a Rust enum
//! would be undefined behaviour. A struct passed by pointer starts with its size, so that it can grow at its end.

/// Version of everything in this file and of the exports' signatures. .NET refuses to run with another one.
pub const PR_ABI_VERSION: u32 = 5;

/// Done.
pub const PR_OK: i32 = 0;
/// An operation goes on; its end comes as an event. From a wait: nothing came in time.
pub const PR_PENDING: i32 = 1;
/// The token's event is over.
pub const PR_STALE: i32 = 2;
/// The handle is closed or was never given out.
pub const PR_CLOSED: i32 = 3;
/// A panic inside the library; `pr_fault_text` has its message.
pub const PR_FAULTED: i32 = 4;
/// The operation failed; the error says how.
pub const PR_FAILED: i32 = 5;
/// An argument makes no sense (null where data is needed, text that is not UTF-8).
pub const PR_INVALID: i32 = 6;

/// A message for the handler; the token must be completed.
pub const PR_EVENT_MESSAGE: i32 = 1;
/// A timer for the handler; the token must be completed.
pub const PR_EVENT_TIMER: i32 = 2;
/// The attempt behind the token is to be cancelled.
pub const PR_EVENT_CANCEL: i32 = 3;
/// The operation named by the token ended.
pub const PR_EVENT_DONE: i32 = 4;
/// The client is unusable from now on.
pub const PR_EVENT_FAULT: i32 = 5;
/// A token is wanted; `pr_token` answers the question that the event's token names.
pub const PR_EVENT_TOKEN: i32 = 6;
/// Nobody waits for the answer to that question any more.
pub const PR_EVENT_TOKEN_CANCEL: i32 = 7;

/// [`pr_client_new`](crate::ffi::pr_client_new): .NET gives tokens.
pub const PR_CLIENT_GIVES_TOKENS: u32 = 1;

/// The token is one.
pub const PR_TOKEN_GIVEN: i32 = 0;
/// There is none; another attempt may succeed.
pub const PR_TOKEN_UNAVAILABLE: i32 = 1;
/// There is none, and asking again helps only after somebody has changed a setting.
pub const PR_TOKEN_REFUSED: i32 = 2;

/// The handler returned.
pub const PR_OUTCOME_OK: i32 = 0;
/// The handler failed; a retry may help.
pub const PR_OUTCOME_TRANSIENT: i32 = 1;
/// The handler failed; a retry will not help.
pub const PR_OUTCOME_PERMANENT: i32 = 2;
/// Added to a failure: the payload could not be parsed. If it is not JSON at all, the record is poison.
pub const PR_OUTCOME_UNREADABLE: i32 = 4;

/// Schedules a timer of the event's key.
pub const PR_TIMER_SCHEDULE: i32 = 0;
/// Replaces all timers of the event's key by one.
pub const PR_TIMER_CLEAR_AND_SCHEDULE: i32 = 1;
/// Removes one timer.
pub const PR_TIMER_UNSCHEDULE: i32 = 2;
/// Removes all timers.
pub const PR_TIMER_CLEAR: i32 = 3;

/// Options or arguments are wrong.
pub const PR_ERROR_CONFIG: i32 = 1;
/// The call does not fit the client's state.
pub const PR_ERROR_STATE: i32 = 2;
/// The cluster refused or could not be reached.
pub const PR_ERROR_KAFKA: i32 = 3;
/// A deadline passed.
pub const PR_ERROR_TIMEOUT: i32 = 4;
/// A timer or state call failed; a retry may help.
pub const PR_ERROR_STORE: i32 = 5;
/// The client was closed meanwhile.
pub const PR_ERROR_CLOSED: i32 = 6;
/// What the call was given cannot be used.
pub const PR_ERROR_ARGUMENT: i32 = 7;

/// [`PrError::flags`]: a retry may help.
pub const PR_FLAG_TRANSIENT: u32 = 1;
/// [`PrError::flags`]: the record may have been written.
pub const PR_FLAG_MAYBE_WRITTEN: u32 = 2;

/// Not enough options to subscribe.
pub const PR_STATE_UNCONFIGURED: i32 = 0;
/// Could subscribe.
pub const PR_STATE_CONFIGURED: i32 = 1;
/// Subscribed.
pub const PR_STATE_RUNNING: i32 = 2;

/// [`PrScope::kind`]: there is a span to run in.
pub const PR_SCOPE_HERE: u32 = 1;
/// [`PrScope::kind`]: something caused the event.
pub const PR_SCOPE_ORIGIN: u32 = 2;
/// [`PrScope::kind`]: the span is the root of a trace of its own, with a link to the origin; otherwise its child.
pub const PR_SCOPE_FOLLOWS: u32 = 4;
/// [`PrScope::kind`], written by .NET: the handler runs in the span that `here` names now.
pub const PR_SCOPE_LOCATED: u32 = 8;
/// [`PrScope::kind`], written by .NET: that span is recorded there, so nobody else needs to.
pub const PR_SCOPE_RECORDED: u32 = 16;

/// Text or bytes that somebody else owns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PrBytes {
    /// First byte; null only when there is nothing at all (no key, no header).
    pub data: *const u8,
    /// Number of bytes.
    pub len: u32,
}

impl PrBytes {
    /// Nothing.
    pub const NONE: PrBytes = PrBytes { data: std::ptr::null(), len: 0 };

    /// A view of `bytes`; whoever hands it out says how long it lives.
    pub fn of(bytes: &[u8]) -> PrBytes {
        PrBytes { data: bytes.as_ptr(), len: u32::try_from(bytes.len()).unwrap_or(u32::MAX) }
    }
}

/// A span of a distributed trace, and what travels with it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PrTrace {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span.
    pub span_id: [u8; 8],
    /// W3C trace flags.
    pub flags: u32,
    /// W3C `tracestate`; nothing when there is none.
    pub state: PrBytes,
    /// W3C `baggage`; nothing when there is none.
    pub baggage: PrBytes,
}

/// Where a handler runs in a trace. In the caller's memory during a [`PrRun`]; .NET writes where it really runs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PrScope {
    /// `PR_SCOPE_*`.
    pub kind: u32,
    /// The handler's span, if nobody makes another one.
    pub here: PrTrace,
    /// What caused the event. Without `baggage`.
    pub origin: PrTrace,
}

/// One event of `pr_wait`. Written by us, into memory of the caller.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PrEvent {
    /// `PR_EVENT_*`.
    pub kind: i32,
    /// `PR_EVENT_DONE`: how the operation ended.
    pub status: i32,
    /// The event's token, or the number .NET gave the operation.
    pub token: u64,
    /// `PR_EVENT_MESSAGE`: position in the partition.
    pub offset: i64,
    /// Message: milliseconds since the Unix epoch. Timer: its time in seconds.
    pub timestamp: i64,
    /// `PR_EVENT_DONE`: the operation's number result.
    pub value: u64,
    /// `PR_EVENT_DONE` with `PR_FAILED`: to be freed by `pr_error_free`.
    pub error: *mut PrError,
    /// Message, timer: valid until the token is completed.
    pub key: PrBytes,
    /// Message: JSON, valid until the token is completed.
    pub payload: PrBytes,
    /// Message: number of the topic, see `pr_topic`.
    pub topic: u32,
    /// Message: partition.
    pub partition: i32,
    /// Message, timer, cancellation: how many threads are parked in `pr_wait`. At 0 there must soon be another, because
    /// what follows is user code, which may hold this thread for ever.
    pub spare: u32,
    /// Message, timer: where its handler runs. Never null during a [`PrRun`], which may write to it.
    pub scope: *mut PrScope,
}

/// Calls the handler of a message or a timer; 0 when it has succeeded, anything else when the event has ended or will end
/// by `pr_complete`. The event's memory is valid during the call.
pub type PrRun = extern "C" fn(event: *const PrEvent) -> i32;

/// A failure. Owned by us until `pr_error_free`.
#[repr(C)]
#[derive(Debug)]
pub struct PrError {
    /// Size of this struct.
    pub size: u32,
    /// `PR_ERROR_*`.
    pub kind: i32,
    /// `PR_FLAG_*`.
    pub flags: u32,
    /// Kafka's name of the error, where there is one.
    pub code: PrBytes,
    /// What was being done, to what, and what came back. Several problems are separated by line feeds.
    pub message: PrBytes,
}

/// How an operation ended that did not need to wait.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PrResult {
    /// Size of this struct.
    pub size: u32,
    /// The operation's number result.
    pub value: u64,
    /// With `PR_FAILED`: to be freed by `pr_error_free`.
    pub error: *mut PrError,
}

/// A record to send. Borrowed for the duration of the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PrSend {
    /// Size of this struct.
    pub size: u32,
    /// Number .NET gives the operation; it comes back in `PR_EVENT_DONE`.
    pub op: u64,
    /// Topic name.
    pub topic: PrBytes,
    /// Key.
    pub key: PrBytes,
    /// JSON.
    pub payload: PrBytes,
    /// On whose behalf; null when nobody knows.
    pub trace: *const PrTrace,
}

/// The answer to `PR_EVENT_TOKEN`. Borrowed for the duration of the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PrToken {
    /// Size of this struct.
    pub size: u32,
    /// `PR_TOKEN_*`.
    pub kind: i32,
    /// How long the token counts from now on, in milliseconds; 0 without end.
    pub lifetime_ms: u64,
    /// The token, or why there is none.
    pub text: PrBytes,
    /// Pairs of names and values: SASL extensions.
    pub extensions: PrBytes,
}

/// What does not change during a client's life.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PrClientInfo {
    /// Size of this struct.
    pub size: u32,
    /// Longest graceful stop, in milliseconds.
    pub shutdown_ms: u64,
    /// Valid until the client is freed.
    pub source_system: PrBytes,
}

/// What changes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PrSnapshot {
    /// Size of this struct.
    pub size: u32,
    /// `PR_STATE_*`.
    pub state: i32,
    /// Partitions assigned to this consumer.
    pub assigned: u32,
    /// 1 when a partition is stalled.
    pub stalled: i32,
}

/// Live objects of the whole process, for tests: all 0 when everything was given back.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PrCounters {
    /// Size of this struct.
    pub size: u32,
    /// Clients and admin clients not freed, or freed while events of theirs are still with .NET.
    pub handles: u32,
    /// Events whose bytes .NET may still read.
    pub events: u32,
    /// Operations that have not ended.
    pub operations: u32,
    /// Errors not freed.
    pub errors: u32,
}

/// Sizes and field offsets in the order .NET checks them at load.
pub fn layout() -> Vec<u32> {
    use std::mem::{offset_of, size_of};
    [
        size_of::<PrBytes>(),
        offset_of!(PrBytes, len),
        size_of::<PrEvent>(),
        offset_of!(PrEvent, token),
        offset_of!(PrEvent, error),
        offset_of!(PrEvent, key),
        offset_of!(PrEvent, payload),
        offset_of!(PrEvent, spare),
        offset_of!(PrEvent, scope),
        size_of::<PrTrace>(),
        offset_of!(PrTrace, span_id),
        offset_of!(PrTrace, flags),
        offset_of!(PrTrace, baggage),
        size_of::<PrScope>(),
        offset_of!(PrScope, origin),
        size_of::<PrError>(),
        offset_of!(PrError, message),
        size_of::<PrResult>(),
        offset_of!(PrResult, error),
        size_of::<PrSend>(),
        offset_of!(PrSend, payload),
        offset_of!(PrSend, trace),
        size_of::<PrToken>(),
        offset_of!(PrToken, extensions),
        size_of::<PrClientInfo>(),
        offset_of!(PrClientInfo, source_system),
        size_of::<PrSnapshot>(),
        offset_of!(PrSnapshot, stalled),
        size_of::<PrCounters>(),
        offset_of!(PrCounters, errors),
    ]
    .into_iter()
    .map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    .collect()
}
