//! Which requests of a member are under way? Futures polled side by side, in one task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::calls::CallId;

/// A future and the call of the machine it carries out, if it does.
type Work<T> = (Option<CallId>, Pin<Box<dyn Future<Output = T> + Send>>);

/// Futures polled side by side: a handful of requests, each with a deadline of its own.
pub(super) struct Running<T>(Vec<Work<T>>);

impl<T> Default for Running<T> {
    fn default() -> Running<T> {
        Running(Vec::new())
    }
}

impl<T> Running<T> {
    pub(super) fn start(&mut self, call: Option<CallId>, future: impl Future<Output = T> + Send + 'static) {
        self.0.push((call, Box::pin(future)));
    }

    /// Drops futures whose call this condition holds for.
    pub(super) fn drop_where(&mut self, gone: impl Fn(&CallId) -> bool) {
        self.0.retain(|(call, _)| !call.as_ref().is_some_and(&gone));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The result of one that is done, oldest first. Waits for ever while there is none; dropping the wait loses nothing.
    pub(super) async fn next(&mut self) -> T {
        poll_fn(|context| {
            let done =
                self.0.iter_mut().enumerate().find_map(|(at, (_, work))| match work.as_mut().poll(context) {
                    Poll::Ready(result) => Some((at, result)),
                    Poll::Pending => None,
                });
            let Some((at, result)) = done else { return Poll::Pending };
            drop(self.0.remove(at));
            Poll::Ready(result)
        })
        .await
    }
}
