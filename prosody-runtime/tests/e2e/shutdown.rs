//! The three phases of giving a partition up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use prosody_runtime::{Context, HandlerError, Occupancy};
use prosody_testkit::broker::{Action, ApiKey, Match, code};

use crate::world::{Call, Diary, Said, Script, World, quick, send_numbered, sleepy};

#[tokio::test(start_paused = true)]
async fn unsubscribing_lets_running_handlers_end_starts_nothing_new_and_commits() {
    let world = World::new(&[("t", 1)]);
    let (client, first) = (world.client(), Diary::default());
    send_numbered(&client, 100, 50).await;
    client.subscribe(sleepy(&first, &world.clock, Duration::from_secs(5))).await.unwrap();
    world.until("thirty-two run", || first.started().len() == 32).await;
    client.unsubscribe().await.unwrap();
    assert_eq!((first.started().len(), first.ended().len()), (32, 32));
    assert_eq!(world.committed(0), Some(32), "what finished during the stop is not repeated");

    let second = Diary::default();
    client.subscribe(quick(&second)).await.unwrap();
    world.until("the rest", || second.ended().len() == 68).await;
    client.unsubscribe().await.unwrap();
    assert_eq!(second.started().len(), 68);
}

/// Elsewhere: closing hung, because an entry of a partition that was given up stayed behind among the retries, and the drain
/// waited for it.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_retry_ends_when_the_partition_drains() {
    let world = World::new(&[("t", 1)]);
    let client = world.builder().configure(|o| {
        o.retry_base = Some(Duration::from_secs(200));
        o.max_retry_delay = Some(Duration::from_secs(300));
    });
    let (client, diary) = (client.build().unwrap(), Diary::default());
    send_numbered(&client, 1, 1).await;
    let failing =
        Script { diary: diary.clone(), play: |_, _| async { Err(HandlerError::transient("not now")) } };
    client.subscribe(failing).await.unwrap();
    world.until("it failed", || client.insight().failed_attempts == 1).await;
    let start = world.clock.now();
    client.unsubscribe().await.unwrap();
    assert!(world.clock.now() - start < Duration::from_secs(1));
    assert_eq!(world.committed_sum(), 0);
}

#[tokio::test(start_paused = true)]
async fn handlers_are_asked_to_cancel_after_four_fifths_of_the_time() {
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (world.client(), Diary::default());
    send_numbered(&client, 1, 1).await;
    let handler = Script {
        diary: diary.clone(),
        play: |context: Context, _| async move {
            context.cancelled().await;
            assert!(context.should_cancel());
            Err(HandlerError::transient("cancelled"))
        },
    };
    client.subscribe(handler).await.unwrap();
    world.until("it runs", || diary.started().len() == 1).await;
    let start = world.clock.now();
    client.unsubscribe().await.unwrap();
    let took = world.clock.now() - start;
    assert!(took >= Duration::from_secs(24) && took < Duration::from_millis(24_500), "{took:?}");
    assert_eq!(
        (world.committed_sum(), diary.started().len()),
        (0, 1),
        "cancelled is not done, and not retried here"
    );
    assert_eq!(client.insight().abandoned, 0);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_never_ends_is_abandoned_at_the_end_of_shutdown_timeout() {
    let (said, _listening) = Said::listen();
    let world = World::new(&[("t", 2)]);
    let (client, diary) = (world.client(), Diary::default());
    send_numbered(&client, 10, 10).await;
    let stuck = Script {
        diary: diary.clone(),
        play: |_, call: Call| async move {
            if call.payload.contains(":3}") {
                std::future::pending::<()>().await;
            }
            Ok(())
        },
    };
    client.subscribe(stuck).await.unwrap();
    world.until("the others", || diary.ended().len() == 9).await;
    let start = world.clock.now();
    client.unsubscribe().await.unwrap();
    let took = world.clock.now() - start;
    assert!(took >= Duration::from_secs(30) && took < Duration::from_secs(31), "{took:?}");
    assert_eq!(client.insight().abandoned, 1);
    let text = said.text();
    let line = text.lines().find(|line| line.contains("are abandoned")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("count=1") && line.contains("key-3"), "{line}");
    assert!(world.committed_sum() < 10, "it stays uncommitted");

    let again = Diary::default();
    client.subscribe(quick(&again)).await.unwrap();
    world.until("it runs again", || again.payloads().iter().any(|payload| payload.contains(":3}"))).await;
    client.unsubscribe().await.unwrap();
    assert_eq!(world.committed_sum(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_handler_that_runs_on_outside_keeps_its_key_and_its_permit() {
    let world = World::new(&[("t", 1)]);
    let client =
        world.builder().max_concurrency(2).configure(|o| o.shutdown_timeout = Some(Duration::from_secs(1)));
    let (client, diary) = (client.build().unwrap(), Diary::default());
    let outside: Arc<Mutex<Option<Occupancy>>> = Arc::default();
    let kept = Arc::clone(&outside);
    let handler = Script {
        diary: diary.clone(),
        play: move |context: Context, _| {
            kept.lock().unwrap().replace(context.occupy());
            std::future::pending()
        },
    };
    client.send("t", "stuck", b"{\"n\":0}").await.unwrap();
    client.subscribe(handler).await.unwrap();
    world.until("it runs", || outside.lock().unwrap().is_some()).await;
    client.unsubscribe().await.unwrap();
    for number in 1..20 {
        client.send("t", &format!("key-{number}"), b"{}").await.unwrap();
    }

    let again = Diary::default();
    client.subscribe(sleepy(&again, &world.clock, Duration::from_millis(100))).await.unwrap();
    world.until("the other keys", || again.ended().len() == 19).await;
    world.clock.sleep(Duration::from_secs(5)).await;
    assert!(again.started().iter().all(|call| call.key != "stuck"), "its old handler still runs");
    assert_eq!(again.most_running(), 1, "one of two permits is still taken");
    outside.lock().unwrap().take();
    world.until("the key goes on", || again.ended().len() == 20).await;
    client.unsubscribe().await.unwrap();
    assert_eq!(world.committed_sum(), 20);
}

#[tokio::test(start_paused = true)]
async fn the_last_permit_of_an_abandoned_handler_goes_to_the_next_subscription() {
    // Its end once woke only the workers of its own subscription, which was over: the next one stood still.
    let world = World::new(&[("t", 1)]);
    let client =
        world.builder().max_concurrency(1).configure(|o| o.shutdown_timeout = Some(Duration::from_secs(1)));
    let client = client.build().unwrap();
    let outside: Arc<Mutex<Option<Occupancy>>> = Arc::default();
    let kept = Arc::clone(&outside);
    let handler = Script {
        diary: Diary::default(),
        play: move |context: Context, _| {
            kept.lock().unwrap().replace(context.occupy());
            std::future::pending()
        },
    };
    send_numbered(&client, 3, 3).await;
    client.subscribe(handler).await.unwrap();
    world.until("it runs", || outside.lock().unwrap().is_some()).await;
    client.unsubscribe().await.unwrap();

    let again = Diary::default();
    client.subscribe(quick(&again)).await.unwrap();
    world.clock.sleep(Duration::from_secs(5)).await;
    assert_eq!(again.started().len(), 0, "the only permit is taken");
    outside.lock().unwrap().take();
    world.until_within(Duration::from_secs(1), "all of them", || again.ended().len() == 3).await;
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn partitions_that_stay_go_on_while_one_drains() {
    // Elsewhere: the whole group stands still while one slow handler of a revoked partition ends.
    let world = World::new(&[("t", 4)]);
    let (first, second, diary) = (world.client(), world.client(), Diary::default());
    let clock = world.clock.clone();
    let slow_once = Script {
        diary: diary.clone(),
        play: move |_, call: Call| {
            let clock = clock.clone();
            async move {
                if call.payload == "\"slow\"" {
                    clock.sleep(Duration::from_secs(20)).await;
                }
                Ok(())
            }
        },
    };
    first.subscribe(slow_once).await.unwrap();
    world.until("all four", || first.assigned_partitions() == 4).await;
    for partition in 0..4 {
        world.cluster.append("t", partition, &[(Some(b"slow"), Some(b"\"slow\""))]).unwrap();
    }
    world.until("four slow ones run", || diary.started().len() == 4).await;
    second.subscribe(quick(&diary)).await.unwrap();
    world.until("two are being given up", || first.assigned_partitions() == 2).await;
    assert_eq!(diary.ended().len(), 0);
    let start = world.clock.now();
    for partition in 0..4 {
        world.cluster.append("t", partition, &[(Some(b"fast"), Some(b"1"))]).unwrap();
    }
    world.until("the partitions that stay", || diary.ended().len() == 2).await;
    assert!(world.clock.now() - start < Duration::from_secs(2));
    world.until("all", || diary.ended().len() == 8).await;
    assert_eq!(diary.started().len(), 8, "nothing twice");
    first.unsubscribe().await.unwrap();
    second.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_handler_was_abandoned_with_a_lost_partition_runs_when_it_comes_back() {
    // Giving it up closed the partition twice before the handler had noticed: its key was held twice, let go once, and
    // ran nothing any more (simulation, seed 51). It takes two partitions, whose handlers are told one after the other.
    let world = World::new(&[("t", 2)]);
    let client = world.builder().configure(|o| {
        o.session_timeout = Some(Duration::from_secs(6));
        o.shutdown_timeout = Some(Duration::from_secs(1));
    });
    let (client, diary) = (client.build().unwrap(), Diary::default());
    let first_hangs = Script {
        diary: diary.clone(),
        play: {
            let seen = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
            move |_, call: Call| {
                let hangs = seen.lock().unwrap().insert(call.partition);
                async move { if hangs { std::future::pending().await } else { Ok(()) } }
            }
        },
    };
    for partition in 0..2 {
        world.cluster.append("t", partition, &[(Some(b"stuck"), Some(b"1"))]).unwrap();
    }
    client.subscribe(first_hangs).await.unwrap();
    world.until("both run", || diary.started().len() == 2).await;
    let forgotten = Match::api(ApiKey::CONSUMER_GROUP_HEARTBEAT).times(1);
    world.cluster.control().on(forgotten, Action::Error(code::UNKNOWN_MEMBER_ID));
    world.until("they are abandoned", || client.insight().abandoned == 2).await;
    world.until_within(Duration::from_secs(10), "they run again", || world.committed_sum() == 2).await;
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_is_not_committed() {
    let world = World::new(&[("t", 1)]);
    let client = world.builder().configure(|o| o.commit_interval = Some(Duration::from_secs(3_600)));
    let (client, diary) = (client.build().unwrap(), Diary::default());
    send_numbered(&client, 5, 5).await;
    client.subscribe(quick(&diary)).await.unwrap();
    world.until("all", || diary.ended().len() == 5).await;
    let forgotten = Match::api(ApiKey::CONSUMER_GROUP_HEARTBEAT).times(1);
    world.cluster.control().on(forgotten, Action::Error(code::UNKNOWN_MEMBER_ID));
    world.until("it is lost", || client.insight().lost_partitions == 1).await;
    world.until("they run again", || diary.ended().len() == 10).await;
    assert_eq!((client.insight().commits, client.insight().failed_commits), (0, 0), "nobody tried");
    client.unsubscribe().await.unwrap();
    assert_eq!(world.committed_sum(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_is_lost_and_comes_back_waits_for_its_handlers() {
    // The coordinator forgets the member, which joins again at once, while a handler of the old assignment still runs.
    let world = World::new(&[("t", 1)]);
    let client = world.builder().configure(|o| o.session_timeout = Some(Duration::from_secs(6)));
    let (client, diary) = (client.build().unwrap(), Diary::default());
    send_numbered(&client, 5, 1).await;
    client.subscribe(sleepy(&diary, &world.clock, Duration::from_secs(20))).await.unwrap();
    world.until("it runs", || diary.started().len() == 1).await;
    let forgotten = Match::api(ApiKey::CONSUMER_GROUP_HEARTBEAT).times(1);
    world.cluster.control().on(forgotten, Action::Error(code::UNKNOWN_MEMBER_ID));
    world.until("it is lost", || client.insight().lost_partitions == 1).await;
    world.until("it is back", || client.assigned_partitions() == 1).await;
    assert_eq!(diary.ended().len(), 0, "the handler still runs");
    world.until("all committed", || world.committed_sum() == 5).await;
    assert_eq!(diary.overlaps(), 0, "two lives of a partition never run one key at the same time");
    assert_eq!(diary.started().len(), 6, "what ended after the loss runs again, and nothing else");
    client.unsubscribe().await.unwrap();
}
