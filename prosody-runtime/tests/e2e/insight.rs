//! What a client says about itself: stalled partitions, metrics.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use prosody_runtime::{Client, Context, HandlerError, METRICS, Position, Reading, Value};

use crate::world::{Call, Diary, Script, World, quick, send_numbered, sleepy};

fn with_threshold(world: &World, seconds: u64) -> Client {
    let client = world.builder().configure(|o| o.stall_threshold = Some(Duration::from_secs(seconds)));
    client.build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_runs_too_long_is_a_stall_although_other_keys_go_on() {
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (with_threshold(&world, 15), Diary::default());
    let clock = world.clock.clone();
    let handler = Script {
        diary: diary.clone(),
        play: move |_, call: Call| {
            let clock = clock.clone();
            async move {
                clock.sleep(Duration::from_secs(if call.key == "key-1" { 20 } else { 0 })).await;
                Ok(())
            }
        },
    };
    client.subscribe(handler).await.unwrap();
    send_numbered(&client, 2, 2).await;
    world.until("it runs", || diary.started().len() == 2).await;
    let start = world.clock.now();
    for _ in 0..100 {
        let stalled = world.clock.now() - start >= Duration::from_secs(15);
        assert_eq!(client.is_stalled(), stalled, "{:?}", client.partitions());
        if stalled {
            let status = client.partitions().remove(0);
            assert_eq!(
                (status.running[0].key.as_str(), status.running[0].position),
                ("key-1", Position::Offset(1))
            );
            assert_eq!((status.watermark, status.lag()), (1, status.end.map(|end| end - 1)));
            assert!(status.describe(true).contains("runs offset 1 for 15 s (key \"key-1\")"), "{status}");
            assert!(!status.to_string().contains("key-1"), "keys only when asked for");
            break;
        }
        world.clock.sleep(Duration::from_millis(500)).await;
        client.send("t", "key-0", b"{}").await.unwrap();
    }
    world.until("it ends", || diary.ended().iter().any(|call| call.key == "key-1")).await;
    assert!(!client.is_stalled());
    client.unsubscribe().await.unwrap();
    assert!(!client.is_stalled() && client.partitions().is_empty(), "not subscribed");
}

/// Idleness was looked at once a second: with a threshold of a second, a message that came late in that second made an
/// idle consumer unhealthy at once.
#[tokio::test(start_paused = true)]
async fn time_without_work_does_not_count() {
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (with_threshold(&world, 1), Diary::default());
    client.subscribe(sleepy(&diary, &world.clock, Duration::from_millis(700))).await.unwrap();
    for _ in 0..20 {
        world.clock.sleep(Duration::from_millis(930)).await;
        send_numbered(&client, 1, 1).await;
        for _ in 0..30 {
            assert!(!client.is_stalled(), "{:?}", client.partitions());
            world.clock.sleep(Duration::from_millis(10)).await;
        }
    }
    assert!(diary.ended().len() >= 10);
}

#[tokio::test(start_paused = true)]
async fn a_long_queue_that_moves_is_no_stall_and_a_message_that_always_fails_is_one() {
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (with_threshold(&world, 15), Diary::default());
    client.subscribe(sleepy(&diary, &world.clock, Duration::from_secs(10))).await.unwrap();
    send_numbered(&client, 12, 1).await;
    world
        .until_within(Duration::from_secs(200), "the queue is done", || {
            assert!(!client.is_stalled(), "{:?}", client.partitions());
            diary.ended().len() == 12
        })
        .await;
    client.unsubscribe().await.unwrap();

    let (failing, tries) = (with_threshold(&world, 15), Diary::default());
    let never = Script { diary: tries.clone(), play: |_, _| async { Err(HandlerError::transient("no")) } };
    failing.subscribe(never).await.unwrap();
    send_numbered(&failing, 1, 1).await;
    world.until("it was tried", || !tries.started().is_empty()).await;
    let start = world.clock.now();
    world.until("it counts as stalled", || failing.is_stalled()).await;
    let took = world.clock.now() - start;
    assert!(took > Duration::from_secs(14) && took < Duration::from_secs(16), "{took:?}");
    let status = failing.partitions().remove(0);
    assert!(status.unfinished == 1 && status.in_progress == 1, "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_handler_whose_key_waits_is_named() {
    let world = World::new(&[("t", 1)]);
    let client = world.builder().configure(|o| {
        o.stall_threshold = Some(Duration::from_secs(100));
        o.shutdown_timeout = Some(Duration::from_secs(10));
    });
    let (client, diary) = (client.build().unwrap(), Diary::default());
    let held = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&held);
    let stuck = Script {
        diary: diary.clone(),
        play: move |context: Context, _| {
            keep.lock().unwrap().push(context.occupy());
            std::future::pending::<Result<(), HandlerError>>()
        },
    };
    send_numbered(&client, 1, 1).await;
    client.subscribe(stuck).await.unwrap();
    world.until("it runs", || diary.started().len() == 1).await;
    client.unsubscribe().await.unwrap();

    let second = Diary::default();
    client.subscribe(quick(&second)).await.unwrap();
    world.until("it counts as stalled", || client.is_stalled()).await;
    let status = client.partitions().remove(0);
    assert!(status.running[0].abandoned && status.running[0].lasts >= Duration::from_secs(100), "{status:?}");
    assert!(status.to_string().contains("an abandoned handler runs offset 0"), "{status}");
    held.lock().unwrap().clear();
    world.until("the next owner's turn", || second.ended().len() == 1).await;
    assert!(!client.is_stalled());
}

fn number(reading: &Reading, metric: &str, labels: &[&str]) -> f64 {
    let found = reading.samples.iter().find(|sample| sample.metric.name == metric && sample.labels == labels);
    match &found.unwrap_or_else(|| panic!("no {metric} {labels:?}")).value {
        Value::Number(number) => *number,
        Value::Times(times) => times.count() as f64,
    }
}

#[tokio::test(start_paused = true)]
async fn every_metric_of_the_table_has_a_sample_and_they_say_what_happened() {
    let world = World::new(&[("t", 2), ("failed", 1)]);
    let client =
        world.builder().mode(prosody_runtime::Mode::LowLatency).failure_topic("failed").max_retries(1);
    let (client, diary) = (client.max_concurrency(3).build().unwrap(), Diary::default());
    let clock = world.clock.clone();
    let handler = Script {
        diary: diary.clone(),
        play: move |_, call: Call| {
            let clock = clock.clone();
            async move {
                match call.payload.as_str() {
                    "\"fails\"" => Err(HandlerError::transient("no")),
                    "\"slow\"" => {
                        clock.sleep(Duration::from_secs(30)).await;
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
        },
    };
    client.subscribe(handler).await.unwrap();
    let payloads = ["1", r#"{"id":"a"}"#, r#"{"id":"a"}"#, "\"fails\"", "not json"];
    for payload in payloads {
        client.send("t", "k", payload.as_bytes()).await.unwrap();
    }
    world.until("two are in the failure topic", || client.insight().routed == 2).await;
    for number in 0..5 {
        client.send("t", &format!("slow-{number}"), b"\"slow\"").await.unwrap();
    }
    world.until("three run", || diary.most_running() == 3).await;
    world.clock.sleep(Duration::from_secs(5)).await;
    let reading = client.metrics();
    for metric in METRICS {
        let samples: Vec<_> = reading.samples.iter().filter(|sample| sample.metric == *metric).collect();
        assert!(!samples.is_empty(), "{} has no sample", metric.name);
        assert!(samples.iter().all(|sample| sample.labels.len() == metric.labels.len()), "{}", metric.name);
    }
    let says = |metric, labels: &[&str]| number(&reading, metric, labels);
    assert_eq!(says("prosody_messages_total", &["ok"]), 2.0);
    assert_eq!(says("prosody_messages_total", &["routed"]), 2.0);
    assert_eq!(says("prosody_attempts_failed_total", &["transient"]), 2.0);
    assert_eq!(says("prosody_retries_total", &[]), 1.0);
    assert_eq!(
        says("prosody_handler_duration_seconds", &[]),
        4.0,
        "neither the duplicate nor the poison record ran"
    );
    assert_eq!(says("prosody_dedup_hits_total", &[]), 1.0);
    assert_eq!(says("prosody_poison_total", &[]), 1.0);
    assert_eq!(says("prosody_sent_total", &["ok"]), 10.0);
    for request in ["produce", "fetch"] {
        assert!(says("prosody_broker_request_duration_seconds", &["b1:9092", request]) > 0.0, "{request}");
    }
    assert_eq!((says("prosody_permits_in_use", &[]), says("prosody_permits", &[])), (3.0, 3.0));
    assert_eq!(says("prosody_ready", &[]), 2.0);
    assert_eq!(says("prosody_partitions_assigned", &[]), 2.0);
    let both = |metric| says(metric, &["t", "0"]) + says(metric, &["t", "1"]);
    assert_eq!((both("prosody_partition_lag"), both("prosody_partition_unfinished")), (5.0, 5.0));
    assert_eq!(both("prosody_partition_in_progress"), 5.0);
    assert!(both("prosody_partition_standing_seconds") >= 5.0);
    world.until("all is done", || world.committed_sum() == 10).await;
    client.unsubscribe().await.unwrap();
    assert_eq!(
        number(&client.metrics(), "prosody_messages_total", &["ok"]),
        7.0,
        "counters outlive a subscription"
    );
}
