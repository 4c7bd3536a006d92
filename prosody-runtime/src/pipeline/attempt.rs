//! How does one attempt at a handler run and end? Whatever user code does ends here: a result, a panic, or silence.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Cx, Poll};

use prosody_base::Clock;

use crate::context::Attempt;
use crate::handler::HandlerError;
use crate::insight::Counters;
use crate::schedule::gate::Gate;
use crate::trace::TraceContext;

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The handler returned.
    Returned(Result<(), HandlerError>),
    /// The handler panicked, with this message.
    Panicked(String),
    /// Its partition was given up before it returned.
    Abandoned,
}

/// Runs what `start` makes to its end. It is polled once on the spot; only when it waits are its timeout and
/// cancellation watched, so a handler that never waits costs nothing here.
pub(crate) async fn run<F>(
    start: impl FnOnce() -> F,
    attempt: &Arc<Attempt>,
    trace: Option<&TraceContext>,
    gate: &Arc<Gate>,
    clock: &Clock,
    counters: &Counters,
) -> Outcome
where
    F: Future<Output = Result<(), HandlerError>>,
{
    let _clock_stands = clock.hold();
    let start = || within(trace, start);
    let future = match catch_unwind(AssertUnwindSafe(start)) {
        Ok(future) => future,
        Err(panic) => return Outcome::Panicked(text_of(&*panic)),
    };
    let mut future = pin!(Some(future));
    let poll = |future: Pin<&mut Option<F>>, cx: &mut Cx<'_>| within(trace, || poll(future, cx));
    if let Some(outcome) = std::future::poll_fn(|cx| Poll::Ready(poll(future.as_mut(), cx))).await {
        return outcome;
    }
    gate.pause();
    let outcome = {
        let mut abandoned = pin!(attempt.abandoned());
        let mut timeout = pin!(async {
            if let Some(deadline) = attempt.deadline() {
                clock.sleep_until(deadline).await;
                counters.timeouts.one();
                attempt.cancel();
            }
            std::future::pending::<()>().await;
        });
        std::future::poll_fn(|cx| {
            if let Some(outcome) = poll(future.as_mut(), cx) {
                return Poll::Ready(outcome);
            }
            if abandoned.as_mut().poll(cx).is_ready() {
                // Destructors are user code, too.
                let _ = catch_unwind(AssertUnwindSafe(|| future.set(None)));
                return Poll::Ready(Outcome::Abandoned);
            }
            let _ = timeout.as_mut().poll(cx);
            Poll::Pending
        })
        .await
    };
    gate.resume();
    outcome
}

/// Runs user code where the trace says; without one it costs nothing.
fn within<T>(trace: Option<&TraceContext>, code: impl FnOnce() -> T) -> T {
    if trace.is_some() { TraceContext::within(trace, code) } else { code() }
}

/// Polls user code. The future is gone once it has ended, so nothing of it outlives the attempt.
fn poll<F>(mut future: Pin<&mut Option<F>>, cx: &mut Cx<'_>) -> Option<Outcome>
where
    F: Future<Output = Result<(), HandlerError>>,
{
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let result = match future.as_mut().as_pin_mut()?.poll(cx) {
            Poll::Ready(result) => result,
            Poll::Pending => return None,
        };
        future.set(None);
        Some(Outcome::Returned(result))
    }));
    ended.unwrap_or_else(|panic| {
        let _ = catch_unwind(AssertUnwindSafe(|| future.set(None)));
        Some(Outcome::Panicked(text_of(&*panic)))
    })
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is not text").to_owned()
}
