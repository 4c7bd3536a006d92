//! Which calls are there? Every export, and the only unsafe code besides freeing errors.
//!
//! Rules, each checked by a test: every export starts with the guard; none is made by a macro (the generator of the C#
//! externs skips those in silence); no `bool` and no Rust enum comes in.
//!
//! # Safety of all exports
//! A [`PrBytes`] argument is null or points to `len` readable bytes for the duration of the call. Every other pointer is
//! null, which is refused, or points to writable memory of its type for the duration of the call. Handles and tokens may
//! be any number.

use std::time::Duration;

use crate::abi::{
    PR_ABI_VERSION, PR_CLOSED, PR_FAILED, PR_FAULTED, PR_INVALID, PR_OK, PR_PENDING, PR_STALE, PrBytes,
    PrClientInfo, PrCounters, PrError, PrEvent, PrResult, PrRun, PrSend, PrSnapshot, PrToken, PrTrace,
    layout,
};
use prosody_runtime::TraceContext;

use crate::crew::Waited;
use crate::guard::{guard, guard_or, last_panic, order_panic};
use crate::host::{self, Host};
use crate::{failure, logs, metrics};

/// Version of the interface; the caller refuses to run with another one than it was built for.
#[unsafe(no_mangle)]
pub extern "C" fn pr_abi_version() -> u32 {
    guard_or("pr_abi_version", 0, 0, || PR_ABI_VERSION)
}

/// Writes sizes and offsets of the structs, as many as fit, and returns how many there are.
///
/// # Safety
/// See the module; `numbers` has room for `capacity` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_layout(numbers: *mut u32, capacity: u32) -> u32 {
    guard_or("pr_layout", 0, 0, || {
        let all = layout();
        if !numbers.is_null() {
            for (at, number) in all.iter().take(capacity as usize).enumerate() {
                // SAFETY: `at` is below the capacity the caller promises.
                unsafe { numbers.add(at).write(*number) };
            }
        }
        all.len() as u32
    })
}

/// Makes a client from pairs of texts (`pairs.rs`): options by name, and the environment of the host. Never touches the
/// network. A failure lists every problem on a line of its own. `flags`: `PR_CLIENT_*`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_client_new(
    options: PrBytes,
    environment: PrBytes,
    flags: u32,
    client: *mut u64,
    error: *mut *mut PrError,
) -> i32 {
    guard("pr_client_new", 0, || {
        // SAFETY: the module's contract.
        let (options, environment) = unsafe { (bytes(options), bytes(environment)) };
        // SAFETY: the module's contract.
        unsafe { give(client, error, Host::client(options, environment, flags)) }
    })
}

/// Makes an admin client; see `pr_client_new`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_admin_new(
    options: PrBytes,
    environment: PrBytes,
    admin: *mut u64,
    error: *mut *mut PrError,
) -> i32 {
    guard("pr_admin_new", 0, || {
        // SAFETY: the module's contract.
        let (options, environment) = unsafe { (bytes(options), bytes(environment)) };
        // SAFETY: the module's contract.
        unsafe { give(admin, error, Host::admin(options, environment)) }
    })
}

/// What does not change during the client's life.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_client_info(client: u64, info: *mut PrClientInfo) -> i32 {
    guard("pr_client_info", client, || {
        with(client, |host| {
            // SAFETY: the module's contract.
            unsafe { put(info, host.info()) }
        })
    })
}

/// What changes: state, assigned partitions, stalled.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_client_snapshot(client: u64, snapshot: *mut PrSnapshot) -> i32 {
    guard("pr_client_snapshot", client, || {
        with(client, |host| {
            // SAFETY: the module's contract.
            unsafe { put(snapshot, host.snapshot()) }
        })
    })
}

/// Starts to consume. `op` comes back in `PR_EVENT_DONE` when the answer is `PR_PENDING`.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_subscribe(client: u64, op: u64, result: *mut PrResult) -> i32 {
    guard("pr_subscribe", client, || {
        with(client, |host| {
            // SAFETY: the module's contract.
            unsafe { answer(result, |result| host.subscribe(op, result)) }
        })
    })
}

/// Stops to consume, gracefully.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_unsubscribe(client: u64, op: u64, result: *mut PrResult) -> i32 {
    guard("pr_unsubscribe", client, || {
        with(client, |host| {
            // SAFETY: the module's contract.
            unsafe { answer(result, |result| host.unsubscribe(op, result)) }
        })
    })
}

/// Queues a record. All inputs are copied before this returns.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_send(client: u64, record: *const PrSend, result: *mut PrResult) -> i32 {
    guard("pr_send", client, || {
        with(client, |host| {
            // SAFETY: the module's contract.
            let Some(record) = (unsafe { record.as_ref() }) else { return PR_INVALID };
            // SAFETY: the module's contract.
            let (topic, key, payload) =
                unsafe { (text(record.topic), text(record.key), bytes(record.payload)) };
            let (Some(topic), Some(key)) = (topic, key) else { return PR_INVALID };
            // SAFETY: the module's contract.
            let trace = unsafe { trace(record.trace) };
            let send =
                |result: &mut _| on_behalf(trace, || host.send(record.op, topic, key, payload, result));
            // SAFETY: the module's contract.
            unsafe { answer(result, send) }
        })
    })
}

/// Works for the client until there are events for the caller itself, and writes up to `capacity` of them.
///
/// The work is done on this thread: `run` is called with one message or timer after the other. It returns 0 when the
/// handler has succeeded, and anything else when the event has ended or will end by `pr_complete`. It must not unwind.
///
/// `PR_OK`: events; a cancellation comes alone. `PR_PENDING`: there was no work for `timeout_ms`, and another thread is
/// parked, so this one may go. `PR_CLOSED`: nothing will ever come.
///
/// # Safety
/// See the module; `events` has room for `capacity` events, and `run` may be called during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_wait(
    handle: u64,
    run: Option<PrRun>,
    events: *mut PrEvent,
    capacity: u32,
    timeout_ms: u32,
    count: *mut u32,
) -> i32 {
    guard("pr_wait", handle, || {
        let Some(host) = host::find(handle) else { return PR_CLOSED };
        let Some(run) = run else { return PR_INVALID };
        if events.is_null() || count.is_null() || capacity == 0 {
            return PR_INVALID;
        }
        let mut written = 0u32;
        let timeout = Duration::from_millis(u64::from(timeout_ms));
        let waited = host.port.wait(run, capacity as usize, timeout, |event| {
            // SAFETY: the crew hands over at most `capacity` events.
            unsafe { events.add(written as usize).write(event) };
            written += 1;
        });
        // SAFETY: checked above and by the module's contract.
        unsafe { count.write(written) };
        // The last event may have ended on this thread.
        host::reap(handle, &host);
        match waited {
            Waited::Events(_) => PR_OK,
            Waited::TimedOut => PR_PENDING,
            Waited::Closed => PR_CLOSED,
        }
    })
}

/// Ends an event; its bytes are gone afterwards. `PR_STALE`: it had been given up, or was completed before.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_complete(client: u64, token: u64, outcome: i32, error: PrBytes) -> i32 {
    guard("pr_complete", client, || {
        // Also for a faulted or freed client: the bytes must go.
        let Some(host) = host::find(client) else { return PR_CLOSED };
        // SAFETY: the module's contract.
        let error = String::from_utf8_lossy(unsafe { bytes(error) }).into_owned();
        let completed = host.port.complete(token, outcome, error);
        host::reap(client, &host);
        if completed.is_ok() { PR_OK } else { PR_STALE }
    })
}

/// The name of a topic number. The text lives as long as the client.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_topic(client: u64, number: u32, name: *mut PrBytes) -> i32 {
    guard("pr_topic", client, || {
        let Some(host) = host::find(client) else { return PR_CLOSED };
        match host.port.topic(number) {
            // SAFETY: the module's contract. The port keeps the text.
            Some(topic) => unsafe { put(name, PrBytes::of(topic.as_bytes())) },
            None => PR_INVALID,
        }
    })
}

/// A timer call of a running event: `PR_TIMER_*`, and a time in seconds since the Unix epoch where it needs one. `trace` is
/// on whose behalf; null when that is the handler.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_timer(
    client: u64,
    token: u64,
    call: i32,
    seconds: i64,
    op: u64,
    trace: *const PrTrace,
    result: *mut PrResult,
) -> i32 {
    guard("pr_timer", client, || {
        with(client, |host| {
            // SAFETY: the module's contract.
            let trace = unsafe { self::trace(trace) };
            let call = |result: &mut _| on_behalf(trace, || host.timer(token, call, seconds, op, result));
            // SAFETY: the module's contract.
            unsafe { answer(result, call) }
        })
    })
}

/// When the timers of a running event's key are due, as the event's calls have made them: ascending, in seconds since
/// the Unix epoch. Up to `capacity` of them are written; the result's number says how many there are.
///
/// # Safety
/// See the module; `times` has room for `capacity` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_timers(
    client: u64,
    token: u64,
    times: *mut i64,
    capacity: u32,
    result: *mut PrResult,
) -> i32 {
    guard("pr_timers", client, || {
        with(client, |host| {
            let list = |result: &mut PrResult| {
                let listed = match host.timers(token, result) {
                    Ok(listed) => listed,
                    Err(status) => return status,
                };
                let part = listed.get(..capacity as usize).unwrap_or(&listed);
                if !times.is_null() {
                    // SAFETY: `part` is no longer than the capacity, and ours, so the two do not overlap.
                    unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), times, part.len()) };
                }
                result.value = listed.len() as u64;
                PR_OK
            };
            // SAFETY: the module's contract.
            unsafe { answer(result, list) }
        })
    })
}

/// Answers `PR_EVENT_TOKEN`. `PR_STALE`: nobody waits for it any more.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_token(client: u64, question: u64, answer: *const PrToken) -> i32 {
    guard("pr_token", client, || {
        // Also for a client that is closing: what is in flight may have to log in again.
        let Some(host) = host::find(client) else { return PR_CLOSED };
        // SAFETY: the module's contract.
        let Some(answer) = (unsafe { answer.as_ref() }) else { return PR_INVALID };
        // SAFETY: the module's contract.
        let (text, extensions) = unsafe { (text(answer.text), bytes(answer.extensions)) };
        let Some(text) = text else { return PR_INVALID };
        host.token(question, answer.kind, text, answer.lifetime_ms, extensions)
    })
}

/// Creates a topic.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_create_topic(
    admin: u64,
    op: u64,
    name: PrBytes,
    partitions: u32,
    replication: u32,
    result: *mut PrResult,
) -> i32 {
    guard("pr_create_topic", admin, || {
        with(admin, |host| {
            // SAFETY: the module's contract.
            let Some(name) = (unsafe { text(name) }) else { return PR_INVALID };
            // SAFETY: the module's contract.
            unsafe { answer(result, |result| host.create_topic(op, name, partitions, replication, result)) }
        })
    })
}

/// Deletes a topic.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_delete_topic(admin: u64, op: u64, name: PrBytes, result: *mut PrResult) -> i32 {
    guard("pr_delete_topic", admin, || {
        with(admin, |host| {
            // SAFETY: the module's contract.
            let Some(name) = (unsafe { text(name) }) else { return PR_INVALID };
            // SAFETY: the module's contract.
            unsafe { answer(result, |result| host.delete_topic(op, name, result)) }
        })
    })
}

/// Makes a mock cluster whose clock stands still until `pr_cluster_advance` moves it; clients with bootstrap
/// `mock://<name>` go by it. Before the first of them.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_cluster_new(name: PrBytes, cluster: *mut u64, error: *mut *mut PrError) -> i32 {
    guard("pr_cluster_new", 0, || {
        // SAFETY: the module's contract.
        let Some(name) = (unsafe { text(name) }).filter(|name| !name.is_empty()) else { return PR_INVALID };
        // SAFETY: the module's contract.
        unsafe { give(cluster, error, Host::cluster(name)) }
    })
}

/// Moves the clock of a mock cluster.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_cluster_advance(
    cluster: u64,
    op: u64,
    milliseconds: u64,
    result: *mut PrResult,
) -> i32 {
    guard("pr_cluster_advance", cluster, || {
        with(cluster, |host| {
            let by = Duration::from_millis(milliseconds);
            // SAFETY: the module's contract.
            unsafe { answer(result, |result| host.advance(op, by, result)) }
        })
    })
}

/// What the clock of a mock cluster shows: the result's number, in milliseconds since the Unix epoch.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_cluster_now(cluster: u64, result: *mut PrResult) -> i32 {
    guard("pr_cluster_now", cluster, || {
        with(cluster, |host| {
            // SAFETY: the module's contract.
            unsafe { answer(result, |result| host.now(result)) }
        })
    })
}

/// Begins the end of what a handle means: a graceful stop, then its queue closes. Returns at once.
#[unsafe(no_mangle)]
pub extern "C" fn pr_close(handle: u64) -> i32 {
    guard("pr_close", handle, || match host::find(handle) {
        Some(host) => host.close(),
        None => PR_CLOSED,
    })
}

/// Ends the handle. Bytes of events that .NET still holds stay valid until they are completed.
#[unsafe(no_mangle)]
pub extern "C" fn pr_free(handle: u64) -> i32 {
    guard("pr_free", handle, || match host::find(handle) {
        Some(host) => {
            host.free();
            host::reap(handle, &host);
            PR_OK
        }
        None => PR_CLOSED,
    })
}

/// Frees an error; null is ignored.
///
/// # Safety
/// `error` came from this library and was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_error_free(error: *mut PrError) {
    guard_or("pr_error_free", 0, (), || {
        // SAFETY: this function's contract.
        unsafe { failure::free(error) }
    });
}

/// Writes what the panic behind `PR_FAULTED` said (handle 0: the last panic that belongs to no client) and returns the
/// length of the whole text.
///
/// # Safety
/// See the module; `buffer` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_fault_text(handle: u64, buffer: *mut u8, capacity: u32) -> u32 {
    guard_or("pr_fault_text", handle, 0, || {
        let text = host::find(handle).map_or_else(last_panic, |host| host.port.fault_text());
        // SAFETY: this function's contract.
        unsafe { copy(text.as_bytes(), buffer, capacity) }
    })
}

/// Sets the filter of log lines: `tracing` directives, and the highest level (0 nothing … 5 trace) the sinks take.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_logs_configure(directives: PrBytes, highest: i32) -> i32 {
    guard("pr_logs_configure", 0, || {
        host::install();
        // SAFETY: the module's contract.
        match unsafe { text(directives) } {
            Some(directives) => {
                logs::configure(directives, highest);
                PR_OK
            }
            None => PR_INVALID,
        }
    })
}

/// Blocks until there are log lines or `timeout_ms` passed and writes whole lines (`logs.rs` has the form). `dropped`:
/// lines lost since the last call.
///
/// # Safety
/// See the module; `buffer` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_logs_take(
    buffer: *mut u8,
    capacity: u32,
    timeout_ms: u32,
    written: *mut u32,
    dropped: *mut u64,
) -> i32 {
    guard("pr_logs_take", 0, || {
        if buffer.is_null() || written.is_null() || dropped.is_null() {
            return PR_INVALID;
        }
        host::install();
        let mut lines = Vec::new();
        let lost = logs::take(&mut lines, capacity as usize, Duration::from_millis(u64::from(timeout_ms)));
        // SAFETY: checked above and by this function's contract.
        unsafe {
            written.write(copy(&lines, buffer, capacity));
            dropped.write(lost);
        }
        PR_OK
    })
}

/// Ends a running `pr_logs_take` at once.
#[unsafe(no_mangle)]
pub extern "C" fn pr_logs_wake() -> i32 {
    guard("pr_logs_wake", 0, || {
        logs::wake();
        PR_OK
    })
}

/// Live objects of the process, for tests.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_counters(counters: *mut PrCounters) -> i32 {
    guard("pr_counters", 0, || {
        // SAFETY: the module's contract.
        unsafe { put(counters, host::counters()) }
    })
}

/// Writes the table of options, one line `name<tab>variable` each, and returns its whole length; for tests.
///
/// # Safety
/// See the module; `buffer` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_options(buffer: *mut u8, capacity: u32) -> u32 {
    guard_or("pr_options", 0, 0, || {
        // SAFETY: this function's contract.
        unsafe { copy(host::options().as_bytes(), buffer, capacity) }
    })
}

/// Writes the table of metrics (`metrics.rs` has the form) and returns its whole length.
///
/// # Safety
/// See the module; `buffer` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_metrics_table(buffer: *mut u8, capacity: u32) -> u32 {
    guard_or("pr_metrics_table", 0, 0, || {
        // SAFETY: this function's contract.
        unsafe { copy(&metrics::table(), buffer, capacity) }
    })
}

/// Writes what the metrics of all clients say now (`metrics.rs` has the form) and returns the whole length.
///
/// # Safety
/// See the module; `buffer` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_metrics_read(buffer: *mut u8, capacity: u32) -> u32 {
    guard_or("pr_metrics_read", 0, 0, || {
        // SAFETY: this function's contract.
        unsafe { copy(&host::metrics(), buffer, capacity) }
    })
}

/// Lets the next call of the named export on this handle panic, to test that the process survives it.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pr_debug_panic(handle: u64, export: PrBytes) -> i32 {
    guard("pr_debug_panic", 0, || {
        // SAFETY: the module's contract.
        match unsafe { text(export) } {
            Some(export) => {
                host::install();
                order_panic(handle, export.to_owned());
                PR_OK
            }
            None => PR_INVALID,
        }
    })
}

/// Runs `call` on the object behind a handle, unless it is gone, closing or faulted.
fn with(handle: u64, call: impl FnOnce(&Host) -> i32) -> i32 {
    match host::find(handle) {
        None => PR_CLOSED,
        Some(host) if host.port.is_faulted() => PR_FAULTED,
        Some(host) if host.is_closing() => PR_CLOSED,
        Some(host) => call(&host),
    }
}

/// # Safety
/// The module's contract.
unsafe fn bytes<'a>(view: PrBytes) -> &'a [u8] {
    if view.data.is_null() || view.len == 0 {
        return &[];
    }
    // SAFETY: the caller promises `len` readable bytes for the duration of the call.
    unsafe { std::slice::from_raw_parts(view.data, view.len as usize) }
}

/// # Safety
/// The module's contract.
unsafe fn text<'a>(view: PrBytes) -> Option<&'a str> {
    // SAFETY: passed on.
    std::str::from_utf8(unsafe { bytes(view) }).ok()
}

/// # Safety
/// `trace` is null or readable; the module's contract for its bytes.
unsafe fn trace(trace: *const PrTrace) -> Option<TraceContext> {
    // SAFETY: this function's contract.
    let PrTrace { trace_id, span_id, flags, state, baggage } = *unsafe { trace.as_ref() }?;
    // SAFETY: passed on.
    let (state, baggage) = unsafe { (bytes(state), bytes(baggage)) };
    let context = TraceContext::new(trace_id, span_id, (flags & 0xff) as u8)?;
    Some(context.with_state(Some(state)).with_baggage(Some(baggage)))
}

/// Without a context of its own a call is on behalf of whoever runs on this thread, if it is a handler.
fn on_behalf(trace: Option<TraceContext>, call: impl FnOnce() -> i32) -> i32 {
    if trace.is_some() { TraceContext::within(trace.as_ref(), call) } else { call() }
}

/// # Safety
/// `place` is null or writable.
unsafe fn put<T>(place: *mut T, value: T) -> i32 {
    if place.is_null() {
        return PR_INVALID;
    }
    // SAFETY: not null, so writable by this function's contract.
    unsafe { place.write(value) };
    PR_OK
}

/// # Safety
/// `buffer` is null or has room for `capacity` bytes.
unsafe fn copy(text: &[u8], buffer: *mut u8, capacity: u32) -> u32 {
    let part = text.get(..capacity as usize).unwrap_or(text);
    if !buffer.is_null() {
        // SAFETY: `part` is no longer than the capacity, and ours, so the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), buffer, part.len()) };
    }
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

/// # Safety
/// `handle` and `error` are null or writable.
unsafe fn give(handle: *mut u64, error: *mut *mut PrError, made: Result<u64, failure::Failure>) -> i32 {
    match made {
        // SAFETY: this function's contract.
        Ok(made) => unsafe { put(handle, made) },
        Err(failure) if error.is_null() => {
            drop(failure);
            PR_INVALID
        }
        Err(failure) => {
            // SAFETY: not null, so writable by this function's contract.
            unsafe { error.write(failure.into_raw()) };
            PR_FAILED
        }
    }
}

/// # Safety
/// `result` is null or writable.
unsafe fn answer(result: *mut PrResult, call: impl FnOnce(&mut PrResult) -> i32) -> i32 {
    // SAFETY: this function's contract; the caller has initialised it.
    match unsafe { result.as_mut() } {
        Some(result) => call(result),
        None => PR_INVALID,
    }
}
