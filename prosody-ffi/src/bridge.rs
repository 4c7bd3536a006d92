//! How does an event of the runtime become a call of a .NET handler? Whoever polls the handler we subscribe is a thread
//! of .NET, and calls. A handler that goes on after that ends by its token.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use prosody_runtime::{Context, Crew, ErrorClass, Handler, HandlerError, Message, Timer};

use crate::abi::{PR_OUTCOME_OK, PR_OUTCOME_PERMANENT, PR_OUTCOME_TRANSIENT, PR_OUTCOME_UNREADABLE};
use crate::port::{Event, Item, Outcome, Port, Running, describe};
use crate::pump::Pump;
use crate::scope::{scope, take_over};
use crate::slots::Token;

/// The handler the runtime calls.
#[derive(Debug)]
pub(crate) struct Bridge(pub(crate) Arc<Port>);

impl Handler for Bridge {
    async fn on_message(&self, context: Context, message: Message) -> Result<(), HandlerError> {
        let topic = self.0.topic_number(message.topic_shared());
        self.run(context, Item::Message { message, topic }).await
    }

    async fn on_timer(&self, context: Context, timer: Timer) -> Result<(), HandlerError> {
        let since = timer.time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        self.run(context, Item::Timer { timer, seconds }).await
    }

    fn crew(&self) -> Option<Arc<dyn Crew>> {
        let crew = Arc::clone(&self.0.crew);
        Some(crew)
    }
}

impl Bridge {
    async fn run(&self, context: Context, item: Item) -> Result<(), HandlerError> {
        let running = Running { item, context: context.clone(), _occupancy: context.occupy() };
        let mut outcome =
            pin!(Awaiting { port: &self.0, context: &context, phase: Phase::New(Some(running)) });
        let ended = tokio::select! {
            biased;
            ended = &mut outcome => Some(ended),
            () = context.cancelled() => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                if let Phase::Called(token) = outcome.phase {
                    self.0.crew.push(Event::Cancel(token));
                }
                outcome.await
            }
        };
        match ended.code & !PR_OUTCOME_UNREADABLE {
            PR_OUTCOME_OK => Ok(()),
            code => {
                let class =
                    if code == PR_OUTCOME_PERMANENT { ErrorClass::Permanent } else { ErrorClass::Transient };
                let error = HandlerError::new(class, ended.text);
                Err(if ended.code & PR_OUTCOME_UNREADABLE == 0 { error } else { error.unreadable() })
            }
        }
    }
}

/// Resolves to what .NET says about one event. Dropped earlier, it abandons the event.
struct Awaiting<'a> {
    port: &'a Port,
    context: &'a Context,
    phase: Phase,
}

enum Phase {
    New(Option<Running>),
    Called(Token),
    Over,
}

impl Future for Awaiting<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Outcome> {
        if let Phase::New(running) = &mut self.phase {
            let Some(running) = running.take() else { return Poll::Pending };
            // The bytes it points to are behind shared pointers: the move into the slot changes nothing.
            let mut raw = describe(&running.item);
            // Whoever completes the token before the poll below need wake nobody.
            let token = self.port.slots().insert(running, Waker::noop().clone());
            raw.token = token.0;
            let lineage = self.context.lineage();
            let mut scope = scope(lineage.as_ref());
            raw.scope = &raw mut scope;
            self.phase = Phase::Called(token);
            let called = Pump::call(&self.port.crew, &mut raw);
            take_over(&scope, self.context);
            let (code, text) = match called {
                Some(0) => (PR_OUTCOME_OK, String::new()),
                Some(_) => return self.ended(token, cx),
                None => (PR_OUTCOME_TRANSIENT, "the client was closed before the handler started".to_owned()),
            };
            let ended = self.port.slots().end(token);
            if ended.is_ok() {
                self.phase = Phase::Over;
                return Poll::Ready(Outcome { code, text });
            }
        }
        match self.phase {
            Phase::Called(token) => self.ended(token, cx),
            Phase::New(_) | Phase::Over => Poll::Pending,
        }
    }
}

impl Awaiting<'_> {
    fn ended(&mut self, token: Token, cx: &TaskContext<'_>) -> Poll<Outcome> {
        match self.port.slots().poll(token, cx.waker()) {
            Some(outcome) => {
                self.phase = Phase::Over;
                Poll::Ready(outcome)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        if let Phase::Called(token) = self.phase {
            self.port.slots().abandon(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use prosody_base::Doors;

    use super::*;
    use crate::abi::{PR_EVENT_MESSAGE, PrEvent};
    use crate::slots::Stale;

    thread_local! {
        static CALLED: RefCell<Vec<PrEvent>> = const { RefCell::new(Vec::new()) };
        static ANSWER: Cell<i32> = const { Cell::new(1) };
    }

    /// What .NET passes; each test has a thread of its own.
    extern "C" fn run(event: *const PrEvent) -> i32 {
        // SAFETY: the event lives during the call.
        CALLED.with_borrow_mut(|called| called.push(unsafe { *event }));
        ANSWER.get()
    }

    fn called() -> Option<PrEvent> {
        CALLED.with_borrow_mut(Vec::pop)
    }

    fn bridge() -> Bridge {
        Bridge(Port::new(Doors::process().expect("threads")))
    }

    /// A bridge whose handler this thread may call.
    fn here() -> Bridge {
        let bridge = bridge();
        Pump::here(run, &bridge.0.crew);
        bridge
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut TaskContext::from_waker(Waker::noop()))
    }

    fn message(topic: &str, key: &str) -> Message {
        Message::new(topic, 3, 7, 1_000, key, b"{}")
    }

    #[test]
    fn an_event_goes_out_with_its_bytes_and_comes_back_with_its_outcome() {
        let bridge = here();
        for (code, class) in [
            (PR_OUTCOME_OK, None),
            (PR_OUTCOME_TRANSIENT, Some(ErrorClass::Transient)),
            (PR_OUTCOME_PERMANENT, Some(ErrorClass::Permanent)),
            (PR_OUTCOME_PERMANENT | PR_OUTCOME_UNREADABLE, Some(ErrorClass::Permanent)),
            (99, Some(ErrorClass::Transient)),
        ] {
            let mut run = pin!(bridge.on_message(Context::detached(), message("topic", "key")));
            assert!(poll(run.as_mut()).is_pending());
            let event = called().expect("called");
            assert_eq!(
                (event.kind, event.partition, event.offset, event.timestamp),
                (PR_EVENT_MESSAGE, 3, 7, 1_000)
            );
            assert_eq!((event.key.len, event.payload.len), (3, 2));
            // SAFETY: the event is not completed.
            let key = unsafe { std::slice::from_raw_parts(event.key.data, 3) };
            assert_eq!(key, b"key");
            assert_eq!(bridge.0.topic(event.topic).as_deref(), Some("topic"));
            assert!(poll(run.as_mut()).is_pending(), "until it is completed");
            assert_eq!(bridge.0.complete(event.token, code, "why".to_owned()), Ok(()));
            assert_eq!(bridge.0.complete(event.token, code, String::new()), Err(Stale), "once");
            let Poll::Ready(ended) = poll(run.as_mut()) else { panic!("completed") };
            assert_eq!(ended.err().map(|error| error.class()), class, "{code}");
            assert_eq!(bridge.0.with_host(), 0);
        }
    }

    #[test]
    fn a_handler_that_ends_at_once_needs_no_second_call() {
        let bridge = here();
        ANSWER.set(0);
        let mut run = pin!(bridge.on_message(Context::detached(), message("topic", "key")));
        assert!(matches!(poll(run.as_mut()), Poll::Ready(Ok(()))));
        assert_eq!(bridge.0.with_host(), 0);
        let event = called().expect("called");
        assert_eq!(bridge.0.complete(event.token, PR_OUTCOME_OK, String::new()), Err(Stale));
    }

    #[test]
    fn topics_get_one_number_each() {
        let port = bridge().0;
        let numbers: Vec<u32> = ["a", "b", "a"].map(|topic| port.topic_number(&Arc::from(topic))).to_vec();
        assert_eq!(numbers, [0, 1, 0]);
        assert!(port.topic(2).is_none());
    }

    #[test]
    fn what_is_given_up_while_it_runs_keeps_its_bytes_until_it_ends() {
        let bridge = here();
        let event = {
            let mut run = pin!(bridge.on_message(Context::detached(), message("topic", "key")));
            assert!(poll(run.as_mut()).is_pending());
            called().expect("called")
        };
        assert_eq!(bridge.0.with_host(), 1);
        assert_eq!(bridge.0.context(event.token).err(), Some(Stale), "its calls are refused");
        assert_eq!(
            bridge.0.complete(event.token, PR_OUTCOME_OK, String::new()),
            Err(Stale),
            "its result is ignored"
        );
        assert_eq!(bridge.0.with_host(), 0);
    }

    /// After the end of a client its last tasks are polled by threads of ours, which must never call .NET.
    #[test]
    fn on_a_thread_of_ours_nothing_starts() {
        let bridge = bridge();
        let timer = Timer { key: "key".to_owned(), time: std::time::UNIX_EPOCH };
        let mut run = pin!(bridge.on_timer(Context::detached(), timer));
        let Poll::Ready(ended) = poll(run.as_mut()) else { panic!("refused at once") };
        assert_eq!(ended.expect_err("closed").class(), ErrorClass::Transient);
        assert_eq!(bridge.0.with_host(), 0);
    }
}
