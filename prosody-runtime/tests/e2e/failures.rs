//! Errors, panics, retries, timeouts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prosody_runtime::{Context, HandlerError};

use crate::world::{Call, Diary, Said, Script, World, quick, send_numbered};

/// Fails the first `failures` attempts at each message for which `which` holds.
pub fn failing(
    diary: &Diary,
    failures: usize,
    which: impl Fn(&Call) -> bool + Send + Sync + 'static,
    fail: impl Fn() -> Result<(), HandlerError> + Send + Sync + 'static,
) -> impl prosody_runtime::Handler {
    let counts: std::sync::Mutex<std::collections::BTreeMap<(i32, i64), usize>> = Default::default();
    Script {
        diary: diary.clone(),
        play: move |_, call: Call| {
            let count = {
                let mut counts = counts.lock().unwrap();
                let count = counts.entry((call.partition, call.offset)).or_default();
                *count += 1;
                *count
            };
            let result = if which(&call) && count <= failures { fail() } else { Ok(()) };
            async move { result }
        },
    }
}

#[tokio::test(start_paused = true)]
async fn a_transient_error_is_retried_before_the_next_message_of_its_key() {
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (world.client(), Diary::default());
    send_numbered(&client, 60, 3).await;
    let handler = failing(&diary, 3, |call| call.key == "key-0", || Err(HandlerError::transient("not now")));
    client.subscribe(handler).await.unwrap();
    world.until("all handled", || diary.ended().len() == 60).await;
    assert!(diary.in_order(), "retries keep the order of their key");
    assert_eq!(diary.started().len(), 60 + 20 * 3);
    assert_eq!(client.insight().failed_attempts, 60);
    world.until("all committed", || world.committed_sum() == 60).await;
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_retry_holds_no_permit() {
    let world = World::new(&[("t", 1)]);
    let client =
        world.builder().max_concurrency(1).configure(|o| o.retry_base = Some(Duration::from_secs(60)));
    let (client, diary) = (client.build().unwrap(), Diary::default());
    send_numbered(&client, 20, 20).await;
    let handler = failing(&diary, 1, |call| call.offset == 0, || Err(HandlerError::transient("not now")));
    client.subscribe(handler).await.unwrap();
    world.until("the others", || diary.ended().len() == 19).await;
    assert_eq!(diary.started()[0].offset, 0, "the one that fails came first");
    world.until("the last", || diary.ended().len() == 20).await;
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_gives_the_message_up_and_no_other() {
    let (said, _listening) = Said::listen();
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (world.client(), Diary::default());
    send_numbered(&client, 10, 1).await;
    let handler =
        failing(&diary, usize::MAX, |call| call.offset == 4, || Err(HandlerError::permanent("malformed")));
    client.subscribe(handler).await.unwrap();
    world.until("all committed", || world.committed_sum() == 10).await;
    assert_eq!((diary.started().len(), diary.ended().len()), (10, 9));
    let insight = client.insight();
    assert_eq!((insight.permanent_errors, insight.given_up, insight.failed_attempts), (1, 1, 0));
    client.unsubscribe().await.unwrap();
    let said = said.text();
    let errors: Vec<&str> = said.lines().filter(|line| line.contains("ERROR")).collect();
    let place = "topic=\"t\" partition=0 offset=4 key=key-0 attempts=1";
    assert!(errors.len() == 1 && errors[0].contains(place) && errors[0].contains("malformed"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failed_attempt_and_never_a_dead_process() {
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (world.client(), Diary::default());
    send_numbered(&client, 10, 2).await;
    client.subscribe(failing(&diary, 2, |call| call.offset == 3, || panic!("boom"))).await.unwrap();
    world.until("all committed", || world.committed_sum() == 10).await;
    assert_eq!(client.insight().panics, 2);
    client.unsubscribe().await.unwrap();
}

/// Panics when it is called, when it is polled, and when it is dropped.
struct Bomb(Arc<AtomicUsize>);

impl prosody_runtime::Handler for Bomb {
    async fn on_message(&self, _: Context, _: prosody_runtime::Message) -> Result<(), HandlerError> {
        struct OnDrop;
        impl Drop for OnDrop {
            fn drop(&mut self) {
                if !std::thread::panicking() {
                    panic!("dropped");
                }
            }
        }
        let _bomb = OnDrop;
        self.0.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_when_it_is_abandoned_costs_no_worker() {
    let world = World::new(&[("t", 1)]);
    let client =
        world.builder().max_concurrency(1).configure(|o| o.shutdown_timeout = Some(Duration::from_secs(1)));
    let (client, calls) = (client.build().unwrap(), Arc::new(AtomicUsize::new(0)));
    send_numbered(&client, 1, 1).await;
    client.subscribe(Bomb(Arc::clone(&calls))).await.unwrap();
    world.until("it runs", || calls.load(Ordering::Relaxed) == 1).await;
    client.unsubscribe().await.unwrap();
    let diary = Diary::default();
    client.subscribe(quick(&diary)).await.unwrap();
    world.until("the next subscription handles it", || diary.ended().len() == 1).await;
    client.unsubscribe().await.unwrap();
}

/// Elsewhere: the next attempt is cancelled at once, for ever, because cancellation is kept on the event. Here it belongs to
/// the attempt.
#[tokio::test(start_paused = true)]
async fn a_timeout_cancels_the_attempt_and_the_next_one_is_not_cancelled() {
    let world = World::new(&[("t", 1)]);
    let client = world.builder().configure(|o| o.timeout = Some(Duration::from_secs(3)));
    let (client, diary) = (client.build().unwrap(), Diary::default());
    send_numbered(&client, 1, 1).await;
    let (attempts, clock) = (Arc::new(AtomicUsize::new(0)), world.clock.clone());
    let counted = Arc::clone(&attempts);
    let handler = Script {
        diary: diary.clone(),
        play: move |context: Context, _| {
            let (attempt, clock) = (counted.fetch_add(1, Ordering::Relaxed), clock.clone());
            async move {
                if attempt == 0 {
                    let start = clock.now();
                    context.cancelled().await;
                    assert_eq!((clock.now() - start).as_secs(), 3);
                    return Err(HandlerError::transient("cancelled"));
                }
                assert!(!context.should_cancel());
                clock.sleep(Duration::from_secs(1)).await;
                assert!(!context.should_cancel());
                Ok(())
            }
        },
    };
    client.subscribe(handler).await.unwrap();
    world.until("the second attempt", || diary.ended().len() == 1).await;
    let insight = client.insight();
    assert_eq!((attempts.load(Ordering::Relaxed), insight.timeouts, insight.panics), (2, 1, 0));
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_returns_ok_after_its_timeout_has_succeeded() {
    let world = World::new(&[("t", 1)]);
    let client = world.builder().configure(|o| o.timeout = Some(Duration::from_secs(3)));
    let (client, diary) = (client.build().unwrap(), Diary::default());
    send_numbered(&client, 1, 1).await;
    client.subscribe(crate::world::sleepy(&diary, &world.clock, Duration::from_secs(10))).await.unwrap();
    world.until("committed", || world.committed_sum() == 1).await;
    assert_eq!(diary.started().len(), 1);
    client.unsubscribe().await.unwrap();
}
