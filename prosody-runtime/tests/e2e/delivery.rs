//! Order, parallelism, commits.

use std::time::Duration;

use prosody_testkit::broker::{Action, ApiKey, Match};

use crate::world::{Diary, World, quick, send_numbered, sleepy};

#[tokio::test(start_paused = true)]
async fn messages_of_a_key_run_one_at_a_time_in_order_and_keys_in_parallel() {
    let world = World::new(&[("t", 4)]);
    let (client, diary) = (world.client(), Diary::default());
    client.subscribe(sleepy(&diary, &world.clock, Duration::from_millis(20))).await.unwrap();
    send_numbered(&client, 400, 40).await;
    world.until("all handled", || diary.ended().len() == 400).await;
    assert!(diary.in_order());
    assert_eq!(diary.overlaps(), 0);
    assert_eq!(diary.most_running(), 32, "MaxConcurrency is used in full and not passed");
    world.until("all committed", || world.committed_sum() == 400).await;
    client.unsubscribe().await.unwrap();
    assert_eq!(diary.ended().len(), 400, "each once");
}

#[tokio::test(start_paused = true)]
async fn twenty_millisecond_handlers_at_defaults_reach_the_rate_that_max_concurrency_allows() {
    let world = World::new(&[("t", 8)]);
    let (client, diary) = (world.client(), Diary::default());
    send_numbered(&client, 6_400, 1_000).await;
    client.subscribe(sleepy(&diary, &world.clock, Duration::from_millis(20))).await.unwrap();
    world.until("the first", || !diary.ended().is_empty()).await;
    let start = world.clock.now();
    world.until("the rest", || diary.ended().len() == 6_400).await;
    let took = (world.clock.now() - start).as_secs_f64();
    let ideal = 6_400.0 / 32.0 * 0.020;
    assert!(took <= ideal / 0.95, "{took} s, ideal {ideal} s");
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_starts_again_goes_on_where_it_committed() {
    let world = World::new(&[("t", 2)]);
    let (client, first) = (world.client(), Diary::default());
    send_numbered(&client, 50, 10).await;
    client.subscribe(quick(&first)).await.unwrap();
    world.until("the first fifty", || first.ended().len() == 50).await;
    client.unsubscribe().await.unwrap();
    assert_eq!(world.committed_sum(), 50, "unsubscribing commits, not only the interval");
    send_numbered(&client, 30, 10).await;

    let (again, second) = (world.client(), Diary::default());
    again.subscribe(quick(&second)).await.unwrap();
    world.until("the thirty that came meanwhile", || second.ended().len() == 30).await;
    again.unsubscribe().await.unwrap();
    assert_eq!((first.ended().len(), second.ended().len()), (50, 30));
}

#[tokio::test(start_paused = true)]
async fn the_watermark_stands_still_at_a_message_that_is_not_finished() {
    // Elsewhere: a commit taken from "highest read" loses the record that still runs when the process dies.
    let world = World::new(&[("t", 1)]);
    let (process, doors) = world.process();
    let (client, diary) = (process.build().unwrap(), Diary::default());
    let clock = world.clock.clone();
    let stuck = crate::world::Script {
        diary: diary.clone(),
        play: move |_, call: crate::world::Call| {
            let clock = clock.clone();
            async move {
                if call.offset == 7 {
                    clock.sleep(Duration::from_secs(3_600)).await;
                }
                Ok(())
            }
        },
    };
    client.subscribe(stuck).await.unwrap();
    send_numbered(&world.client(), 200, 50).await;
    world.until("all others", || diary.ended().len() == 196).await;
    world.clock.sleep(Duration::from_secs(5)).await;
    assert_eq!(world.committed(0), Some(7), "its key's three later messages and the watermark wait for it");
    doors.spawner.kill();
    drop(client);

    let (again, second) = (world.client(), Diary::default());
    again.subscribe(quick(&second)).await.unwrap();
    world.until("all", || world.committed(0) == Some(200)).await;
    let again_run: Vec<i64> = second.started().iter().map(|call| call.offset).collect();
    assert_eq!(again_run, [7, 57, 107, 157], "what was finished above the watermark is known");
    again.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_second_member_takes_its_share_without_loss_or_duplicates() {
    let world = World::new(&[("t", 8)]);
    let (first, second, diary) = (world.client(), world.client(), Diary::default());
    first.subscribe(sleepy(&diary, &world.clock, Duration::from_millis(5))).await.unwrap();
    send_numbered(&first, 1_000, 100).await;
    second.subscribe(sleepy(&diary, &world.clock, Duration::from_millis(5))).await.unwrap();
    world
        .until("a fair share", || (first.assigned_partitions(), second.assigned_partitions()) == (4, 4))
        .await;
    send_numbered(&second, 1_000, 100).await;
    first.unsubscribe().await.unwrap();
    send_numbered(&second, 1_000, 100).await;
    world.until("all handled", || diary.ended().len() >= 3_000).await;
    world.until("all committed", || world.committed_sum() == 3_000).await;
    second.unsubscribe().await.unwrap();
    assert_eq!(diary.started().len(), 3_000, "a rebalance without a fault repeats nothing");
    assert!(diary.in_order());
    assert_eq!(diary.overlaps(), 0);
    assert_eq!(world.cluster.violations(), vec![]);
}

#[tokio::test(start_paused = true)]
async fn a_full_partition_holds_max_uncommitted_messages_and_stops_only_itself() {
    let world = World::new(&[("t", 2)]);
    let client = world.builder().configure(|o| {
        (o.max_uncommitted, o.shutdown_timeout) = (Some(8), Some(Duration::from_secs(1)));
    });
    let (client, diary) = (client.build().unwrap(), Diary::default());
    for n in 0..40 {
        let key = format!("key-{n}");
        world.cluster.append("t", n % 2, &[(Some(key.as_bytes()), Some(b"1"))]).unwrap();
    }
    let half_stuck = crate::world::Script {
        diary: diary.clone(),
        play: |_, call: crate::world::Call| async move {
            if call.partition == 0 {
                std::future::pending::<()>().await;
            }
            Ok(())
        },
    };
    client.subscribe(half_stuck).await.unwrap();
    world.until("the other partition", || world.committed(1) == Some(20)).await;
    world.clock.sleep(Duration::from_secs(5)).await;
    assert_eq!(diary.started().iter().filter(|call| call.partition == 0).count(), 8);
    let full = client.partitions().remove(0);
    assert_eq!((full.partition, full.in_progress, full.running.len()), (0, 8, 8), "{full:?}");
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_hot_key_does_not_stop_the_others() {
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (world.client(), Diary::default());
    let mut sent = Vec::new();
    for number in 0..900 {
        sent.push(client.send("t", "hot", format!(r#"{{"n":{number}}}"#).as_bytes()));
    }
    for number in 0..50 {
        sent.push(client.send("t", &format!("key-{number}"), b"{}"));
    }
    for sent in sent {
        sent.await.unwrap();
    }
    client.subscribe(sleepy(&diary, &world.clock, Duration::from_secs(1))).await.unwrap();
    world.until("the others", || diary.ended().iter().filter(|call| call.key != "hot").count() == 50).await;
    let hot = diary.ended().iter().filter(|call| call.key == "hot").count();
    assert!(hot <= 3, "{hot} of the hot key ran before the last of the others");
    client.unsubscribe().await.unwrap();
}

/// A commit waited at the broker until its connection was given up, and was carried out after the newer one that went by
/// the next connection. Nothing new was finished, so the group kept the old offset, and the next owner repeated.
#[tokio::test(start_paused = true)]
async fn what_a_late_commit_overwrites_is_committed_again() {
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (world.client(), Diary::default());
    let late = Action::Delay(Duration::from_secs(40));
    let late = world.cluster.control().on(Match::api(ApiKey::OFFSET_COMMIT).times(1), late);
    client.subscribe(quick(&diary)).await.unwrap();
    send_numbered(&client, 5, 5).await;
    world.until("a commit under way", || world.cluster.control().hits(late) == 1).await;
    send_numbered(&client, 5, 5).await;
    world.until("the newer one", || world.committed(0) == Some(10)).await;
    world.until("the older one", || world.committed(0) == Some(5)).await;
    world
        .until_within(Duration::from_secs(2), "the newer one again", || world.committed(0) == Some(10))
        .await;
    client.unsubscribe().await.unwrap();
    assert_eq!(diary.ended().len(), 10, "each once");
}
