//! What becomes of failing messages in each mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prosody_runtime::{Context, HandlerError, Mode};

use crate::failures::failing;
use crate::world::{Diary, Said, Script, World, send_numbered};

#[tokio::test(start_paused = true)]
async fn best_effort_writes_one_line_for_a_failure_and_goes_on() {
    let (said, _listening) = Said::listen();
    let world = World::new(&[("t", 1)]);
    let client = world.builder().mode(Mode::BestEffort).build().unwrap();
    let diary = Diary::default();
    send_numbered(&client, 10, 2).await;
    let kind = AtomicUsize::new(0);
    let fail = move || match kind.fetch_add(1, Ordering::Relaxed) {
        0 => Err(HandlerError::transient("not now")),
        1 => Err(HandlerError::permanent("never")),
        _ => panic!("boom"),
    };
    client.subscribe(failing(&diary, usize::MAX, |call| call.offset % 3 == 1, fail)).await.unwrap();
    world.until("all committed", || world.committed_sum() == 10).await;
    assert_eq!((diary.started().len(), diary.ended().len()), (10, 7), "nothing is retried");
    let insight = client.insight();
    assert_eq!((insight.given_up, insight.failed_attempts, insight.permanent_errors), (3, 2, 1));
    client.unsubscribe().await.unwrap();
    let said = said.text();
    for (offset, key, error) in [(1, "key-1", "not now"), (4, "key-0", "never"), (7, "key-1", "boom")] {
        let wanted = format!("topic=\"t\" partition=0 offset={offset} key={key} attempts=1");
        let line = said.lines().find(|line| line.contains("ERROR") && line.contains(&wanted));
        assert!(line.is_some_and(|line| line.contains(error)), "{wanted} in {said}");
    }
    assert_eq!(said.matches("ERROR").count(), 3, "{said}");
}

#[tokio::test(start_paused = true)]
async fn best_effort_leaves_what_fails_while_its_partition_drains_to_the_next_owner() {
    let world = World::new(&[("t", 1)]);
    let client = world.builder().mode(Mode::BestEffort).build().unwrap();
    let diary = Diary::default();
    send_numbered(&client, 1, 1).await;
    let clock = world.clock.clone();
    let fails_late = Script {
        diary: diary.clone(),
        play: move |_, _| {
            let clock = clock.clone();
            async move {
                clock.sleep(Duration::from_secs(2)).await;
                Err(HandlerError::transient("its connection is gone"))
            }
        },
    };
    client.subscribe(fails_late).await.unwrap();
    world.until("it runs", || diary.started().len() == 1).await;
    client.unsubscribe().await.unwrap();
    assert_eq!((world.committed_sum(), client.insight().given_up), (0, 0));
}

const MODES: [Mode; 3] = [Mode::Pipeline, Mode::LowLatency, Mode::BestEffort];

#[tokio::test(start_paused = true)]
async fn a_timeout_is_four_fifths_of_the_stall_threshold_and_every_attempt_has_a_fresh_token() {
    for (mode, attempts) in MODES.into_iter().zip([5, 3, 1]) {
        let world = World::new(&[("t", 1), ("dead", 1)]);
        let client = world.builder().mode(mode).failure_topic("dead").max_retries(2);
        let client = client.configure(|o| o.stall_threshold = Some(Duration::from_secs(50))).build().unwrap();
        let diary = Diary::default();
        send_numbered(&client, 1, 1).await;
        let (clock, count) = (world.clock.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&count);
        let obedient = Script {
            diary: diary.clone(),
            play: move |context: Context, _| {
                let (clock, attempt) = (clock.clone(), counted.fetch_add(1, Ordering::Relaxed));
                async move {
                    assert!(!context.should_cancel());
                    if attempt == 4 {
                        return Ok(());
                    }
                    let start = clock.now();
                    context.cancelled().await;
                    assert_eq!((clock.now() - start).as_secs(), 40);
                    assert!(context.should_cancel());
                    Err(HandlerError::transient("cancelled"))
                }
            },
        };
        client.subscribe(obedient).await.unwrap();
        world.until_within(Duration::from_secs(300), "committed", || world.committed_sum() == 1).await;
        let insight = client.insight();
        let timeouts = u64::try_from(attempts).unwrap() - u64::from(mode == Mode::Pipeline);
        assert_eq!(
            (count.load(Ordering::Relaxed), insight.timeouts, insight.panics),
            (attempts, timeouts, 0)
        );
        let ended = (insight.handled, insight.routed, insight.given_up);
        let expected = [(1, 0, 0), (0, 1, 0), (0, 0, 1)];
        assert_eq!(ended, expected[MODES.iter().position(|one| *one == mode).unwrap()]);
        client.unsubscribe().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ignores_its_timeout_is_awaited_and_its_own_result_decides() {
    for mode in MODES {
        for (result, ended) in [
            (Ok(()), (1, 0, 0)),
            (
                Err(HandlerError::permanent("no")),
                match mode {
                    Mode::LowLatency => (0, 1, 0),
                    _ => (0, 0, 1),
                },
            ),
        ] {
            let world = World::new(&[("t", 1), ("dead", 1)]);
            let client = world.builder().mode(mode).failure_topic("dead");
            let client = client.configure(|o| o.timeout = Some(Duration::from_secs(3))).build().unwrap();
            let diary = Diary::default();
            send_numbered(&client, 1, 1).await;
            let clock = world.clock.clone();
            let deaf = Script {
                diary: diary.clone(),
                play: move |_, _| {
                    let (clock, result) = (clock.clone(), result.clone());
                    async move {
                        clock.sleep(Duration::from_secs(60)).await;
                        result
                    }
                },
            };
            client.subscribe(deaf).await.unwrap();
            world.clock.sleep(Duration::from_secs(50)).await;
            assert_eq!((client.insight().timeouts, diary.started().len(), world.committed_sum()), (1, 1, 0));
            world.until("committed", || world.committed_sum() == 1).await;
            let insight = client.insight();
            assert_eq!((insight.handled, insight.routed, insight.given_up), ended, "{mode:?}");
            assert_eq!(diary.started().len(), 1);
            client.unsubscribe().await.unwrap();
        }
    }
}
