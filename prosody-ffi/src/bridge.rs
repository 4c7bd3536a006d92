//! How does an event of the runtime become a call of a .NET handler? The handler we subscribe puts it into the queue and
//! waits for its token to be completed.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use prosody_runtime::{Context, ErrorClass, Handler, HandlerError, Message, Timer};

use crate::abi::{PR_OUTCOME_OK, PR_OUTCOME_PERMANENT, PR_OUTCOME_TRANSIENT, PR_OUTCOME_UNREADABLE};
use crate::port::{Event, Item, Outcome, Port, Running};
use crate::slots::Token;

/// The handler the runtime calls: every event goes through the queue and comes back by its token.
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
}

impl Bridge {
    async fn run(&self, context: Context, item: Item) -> Result<(), HandlerError> {
        let running = Running { item, context: context.clone(), _occupancy: context.occupy() };
        let mut outcome = pin!(Awaiting { port: &self.0, phase: Phase::New(Some(running)) });
        let ended = tokio::select! {
            biased;
            ended = &mut outcome => Some(ended),
            () = context.cancelled() => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                if let Phase::Queued(token) = outcome.phase {
                    let _ = self.0.queue.push(Event::Cancel(token));
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
    phase: Phase,
}

enum Phase {
    New(Option<Running>),
    Queued(Token),
    Over,
}

impl Future for Awaiting<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Outcome> {
        match &mut self.phase {
            Phase::New(running) => {
                let Some(running) = running.take() else { return Poll::Pending };
                let token = self.port.slots().insert(running, cx.waker().clone());
                self.phase = Phase::Queued(token);
                if self.port.queue.push(Event::Run(token)).is_err() {
                    let text = "the client was closed before the handler started".to_owned();
                    let refused =
                        self.port.slots().complete(token, Outcome { code: PR_OUTCOME_TRANSIENT, text });
                    drop(refused);
                    return self.poll(cx);
                }
                Poll::Pending
            }
            Phase::Queued(token) => {
                let token = *token;
                match self.port.slots().poll(token, cx.waker()) {
                    Some(outcome) => {
                        self.phase = Phase::Over;
                        Poll::Ready(outcome)
                    }
                    None => Poll::Pending,
                }
            }
            Phase::Over => Poll::Pending,
        }
    }
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        if let Phase::Queued(token) = self.phase {
            self.port.slots().abandon(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::*;
    use crate::abi::{PR_EVENT_MESSAGE, PrEvent};
    use crate::queue::Waited;
    use crate::slots::Stale;

    fn next(port: &Port) -> Option<PrEvent> {
        let mut got = None;
        port.wait(1, Duration::ZERO, |event| got = Some(event));
        got
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut TaskContext::from_waker(Waker::noop()))
    }

    fn message(topic: &str, key: &str) -> Message {
        Message::new(topic, 3, 7, 1_000, key, b"{}")
    }

    #[test]
    fn an_event_goes_out_with_its_bytes_and_comes_back_with_its_outcome() {
        let bridge = Bridge(Arc::default());
        for (code, class) in [
            (PR_OUTCOME_OK, None),
            (PR_OUTCOME_TRANSIENT, Some(ErrorClass::Transient)),
            (PR_OUTCOME_PERMANENT, Some(ErrorClass::Permanent)),
            (PR_OUTCOME_PERMANENT | PR_OUTCOME_UNREADABLE, Some(ErrorClass::Permanent)),
            (99, Some(ErrorClass::Transient)),
        ] {
            let mut run = pin!(bridge.on_message(Context::detached(), message("topic", "key")));
            assert!(poll(run.as_mut()).is_pending());
            let event = next(&bridge.0).expect("queued");
            assert_eq!(
                (event.kind, event.partition, event.offset, event.timestamp),
                (PR_EVENT_MESSAGE, 3, 7, 1_000)
            );
            assert_eq!((event.key.len, event.payload.len), (3, 2));
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
    fn topics_get_one_number_each() {
        let port = Port::default();
        let numbers: Vec<u32> = ["a", "b", "a"].map(|topic| port.topic_number(&Arc::from(topic))).to_vec();
        assert_eq!(numbers, [0, 1, 0]);
        assert!(port.topic(2).is_none());
    }

    #[test]
    fn what_is_given_up_while_it_waits_is_never_handed_out() {
        let bridge = Bridge(Arc::default());
        {
            let mut run = pin!(bridge.on_message(Context::detached(), message("topic", "key")));
            assert!(poll(run.as_mut()).is_pending());
        }
        assert!(next(&bridge.0).is_none());
        assert_eq!(bridge.0.with_host(), 0, "and its bytes are gone");
    }

    #[test]
    fn what_is_given_up_while_it_runs_keeps_its_bytes_until_it_ends() {
        let bridge = Bridge(Arc::default());
        let event = {
            let mut run = pin!(bridge.on_message(Context::detached(), message("topic", "key")));
            assert!(poll(run.as_mut()).is_pending());
            next(&bridge.0).expect("queued")
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

    #[test]
    fn after_the_end_nothing_starts() {
        let bridge = Bridge(Arc::default());
        bridge.0.close();
        let timer = Timer { key: "key".to_owned(), time: std::time::UNIX_EPOCH };
        let mut run = pin!(bridge.on_timer(Context::detached(), timer));
        let Poll::Ready(ended) = poll(run.as_mut()) else { panic!("refused at once") };
        assert_eq!(ended.expect_err("closed").class(), ErrorClass::Transient);
        assert_eq!(bridge.0.wait(1, Duration::ZERO, |_| {}), Waited::Closed);
        assert_eq!(bridge.0.with_host(), 0);
    }
}
