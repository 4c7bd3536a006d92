//! On whose behalf does this code run? A context that is current on this thread while a handler is polled.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;

use super::TraceContext;

thread_local! {
    static CURRENT: RefCell<Option<TraceContext>> = const { RefCell::new(None) };
}

/// Puts back what was current before.
struct Before(Option<TraceContext>);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl TraceContext {
    /// On whose behalf this code runs; `None` outside of handlers, and in a handler of an event that nobody traced.
    #[must_use]
    pub fn current() -> Option<TraceContext> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Makes a context, or none, current during `call`.
    pub fn within<T>(context: Option<&TraceContext>, call: impl FnOnce() -> T) -> T {
        let _before = Before(CURRENT.replace(context.cloned()));
        call()
    }

    /// Makes this context current whenever `future` runs: for what a handler spawns as a task of its own.
    pub async fn follow<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| TraceContext::within(Some(&self), || future.as_mut().poll(cx))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_context_is_current_for_its_own_code_and_for_no_other() {
        let [a, b] = [1, 2].map(|n| TraceContext::new([n; 16], [n; 8], 1).expect("ids"));
        assert_eq!(TraceContext::current(), None);
        let nested = TraceContext::within(Some(&a), || {
            let inner = TraceContext::within(None, TraceContext::current);
            (inner, TraceContext::current())
        });
        assert_eq!(nested, (None, Some(a.clone())));
        let told = b.clone().follow(async {
            let before = TraceContext::current();
            tokio::task::yield_now().await;
            (before, TraceContext::current())
        });
        assert_eq!(told.await, (Some(b.clone()), Some(b)));
        let unwound = std::panic::catch_unwind(|| TraceContext::within(Some(&a), || panic!("user code")));
        assert!(unwound.is_err());
        assert_eq!(TraceContext::current(), None, "also after a panic");
    }
}
