//! What becomes of failing messages in each mode.

use std::time::Duration;

use prosody_runtime::{HandlerError, Mode};

use crate::failures::failing;
use crate::world::{Diary, Said, World, send_numbered};

#[tokio::test(start_paused = true)]
async fn best_effort_writes_one_line_for_a_failure_and_goes_on() {
    let (said, _listening) = Said::listen();
    let world = World::new(&[("t", 1)]);
    let client = world.builder().mode(Mode::BestEffort).build().unwrap();
    let diary = Diary::default();
    send_numbered(&client, 10, 2).await;
    let kind = std::sync::atomic::AtomicUsize::new(0);
    let fail = move || match kind.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
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
    let fails_late = crate::world::Script {
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
