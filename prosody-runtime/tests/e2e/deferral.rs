//! Events that are set aside: the key keeps its order, other keys and the offset go on, and nothing is lost or repeated.

use std::time::Duration;

use prosody_runtime::Mode;
use prosody_state::Fault;

use crate::stage::{Seen, Stage};
use crate::world::{Said, set};

/// The messages of a key whose handler returned ok, in order, with their second.
fn done(stage: &Stage, key: &str) -> Vec<(String, i64)> {
    let ended = stage.entries().into_iter().filter(|entry| entry.key == key && entry.ended);
    let messages = ended.filter_map(|entry| match entry.seen {
        Seen::Message(text) => Some((text, entry.at / 1_000)),
        _ => None,
    });
    messages.collect()
}

fn texts(stage: &Stage, key: &str) -> Vec<String> {
    done(stage, key).into_iter().map(|(text, _)| text).collect()
}

/// An option by name.
/// How often handlers of a key were called.
fn calls(stage: &Stage, key: &str) -> usize {
    stage.entries().iter().filter(|entry| entry.key == key).count()
}

#[tokio::test(start_paused = true)]
async fn a_deferred_key_keeps_its_order_and_everything_else_goes_on() {
    let stage = Stage::new(1);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "x|x|x|").await;
    for text in ["w0 ", "x| ", "w0"] {
        stage.send(&client, "a", text).await;
    }
    stage.send(&client, "b", "").await;
    stage.world.until("the other key", || !texts(&stage, "b").is_empty()).await;
    assert!(stage.now() < 1_000 && calls(&stage, "a") == 1, "only the first of the key ran");
    stage.world.until("offsets of all five", || stage.world.committed(0) == Some(5)).await;
    assert!(texts(&stage, "a").is_empty(), "committed before it is done: the store has it");
    stage.send(&client, "a", "w0  ").await;
    stage.world.until("all of the key", || texts(&stage, "a").len() == 5).await;
    assert_eq!(texts(&stage, "a"), ["x|x|x|", "w0 ", "x| ", "w0", "w0  "]);
    let seconds: Vec<i64> =
        stage.entries().iter().filter(|entry| entry.key == "a").map(|entry| entry.at / 1_000).collect();
    // The first wait is DeferBase; the second up to 2 s and the third up to 4 s.
    let waits = [seconds[1] - seconds[0], seconds[2] - seconds[1], seconds[3] - seconds[2]];
    assert!(
        (1..=2).contains(&waits[0]) && (1..=3).contains(&waits[1]) && (1..=5).contains(&waits[2]),
        "{waits:?}"
    );
    assert_eq!((stage.overlaps(), calls(&stage, "a")), (0, 4 + 1 + 2 + 1 + 1));
    stage.until_second(4_000).await;
    assert_eq!(calls(&stage, "a"), 9, "drained once");
    client.unsubscribe().await.unwrap();
    assert_eq!(stage.world.committed(0), Some(6));
}

/// Elsewhere: a consumer stopped fetching while it had nothing to do: events that always fail filled the intake of their
/// partition, which then stood still for the others.
#[tokio::test(start_paused = true)]
async fn a_partition_with_keys_that_always_fail_does_not_stall() {
    let stage = Stage::new(1);
    let client = stage.process().0.configure(set(&[("MaxUncommitted", "8")])).build().unwrap();
    client.subscribe(stage.handler()).await.unwrap();
    for n in 0..60 {
        stage.send(&client, &format!("bad{n}"), &"x|".repeat(500)).await;
        stage.send(&client, &format!("good{n}"), "").await;
    }
    stage
        .world
        .until("the good ones", || (0..60).all(|n| texts(&stage, &format!("good{n}")).len() == 1))
        .await;
    assert!(stage.now() < 30_000, "at once: {}", stage.now());
    stage.world.until("offsets of all", || stage.world.committed(0) == Some(120)).await;
    assert_eq!(client.insight().given_up, 0);
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_next_owner_goes_on_where_the_last_one_stopped() {
    for crash in [false, true] {
        let stage = Stage::new(1);
        let (builder, doors) = stage.process();
        let client = builder.build().unwrap();
        client.subscribe(stage.handler()).await.unwrap();
        stage.send(&client, "a", "x|x|").await;
        stage.send(&client, "a", "w0").await;
        stage.send(&client, "b", "").await;
        stage
            .world
            .until("the first retry", || calls(&stage, "a") == 2 && stage.world.committed(0) == Some(3))
            .await;
        if crash {
            doors.spawner.kill();
        } else {
            client.unsubscribe().await.unwrap();
        }
        let next = stage.client();
        next.subscribe(stage.handler()).await.unwrap();
        stage.send(&next, "a", "w0 ").await;
        stage.world.until("all of the key", || texts(&stage, "a").len() == 3).await;
        assert_eq!(texts(&stage, "a"), ["x|x|", "w0", "w0 "], "crash: {crash}");
        stage.until_second(stage.now() / 1_000 + 1_000).await;
        assert_eq!((calls(&stage, "a"), calls(&stage, "b")), (5, 1), "drained once; crash: {crash}");
        next.unsubscribe().await.unwrap();
    }
}

/// An outage of what handlers depend on: nothing is set aside any more, keys wait in place, and offsets with them.
#[tokio::test(start_paused = true)]
async fn when_nearly_everything_fails_keys_block_until_the_window_is_empty() {
    let stage = Stage::new(1);
    let builder = stage.process().0.configure(set(&[("DeferFailureWindow", "1m")]));
    let client = builder.configure(set(&[("RetryBase", "20s")])).build().unwrap();
    client.subscribe(stage.handler()).await.unwrap();
    for n in 0..30 {
        stage.send(&client, &format!("k{n}"), "x|x|x|x|").await;
    }
    stage.until_second(5).await;
    let committed = stage.world.committed(0).unwrap();
    assert_eq!(committed, 19, "the twentieth failure shuts the gate");
    let all = || stage.world.committed(0) == Some(30);
    stage.world.until_within(Duration::from_secs(900), "the held ones are set aside", all).await;
    assert!(stage.now() > 60_000, "not before the window was empty: {}", stage.now());
    stage.world.until("all", || stage.messages() == 30).await;
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deferred_record_that_kafka_lost_is_passed_over_with_a_warning() {
    let (said, _guard) = Said::listen();
    let stage = Stage::new(1);
    let builder = stage.process().0.configure(set(&[("LoaderCacheSize", "0")]));
    let client = builder.configure(set(&[("DeferBase", "10s")])).build().unwrap();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "b", "").await;
    stage.send(&client, "a", "x|").await;
    stage.send(&client, "a", "w0").await;
    stage.world.until("both are set aside", || stage.world.committed(0) == Some(3)).await;
    stage.world.cluster.delete_records("t", 0, 2);
    stage.world.until("the second of the key", || texts(&stage, "a") == ["w0"]).await;
    stage.until_second(100).await;
    assert_eq!(calls(&stage, "a"), 2);
    assert_eq!(client.insight().deferred_gone, 1);
    let text = said.text();
    let line = text.lines().find(|line| line.contains("is skipped")).unwrap_or_else(|| panic!("{text}"));
    for part in ["topic=\"t\"", "partition=0", "offset=1", "the log begins at offset 2"] {
        assert!(line.contains(part), "{line}");
    }
    stage.send(&client, "a", "").await;
    stage.world.until("the key is free", || texts(&stage, "a").len() == 2).await;
    client.unsubscribe().await.unwrap();
}

/// What cannot be read is not gone: it waits for its next retry.
#[tokio::test(start_paused = true)]
async fn a_broker_that_is_away_loses_no_deferred_record() {
    let stage = Stage::new(1);
    let builder = stage.process().0.configure(set(&[("LoaderCacheSize", "0")]));
    let client = builder
        .configure(set(&[("LoaderSeekTimeout", "2s")]))
        .configure(set(&[("DeferBase", "10s")]))
        .build()
        .unwrap();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "x|").await;
    stage.world.until("it is set aside", || stage.world.committed(0) == Some(1)).await;
    stage.world.cluster.stop_broker(1);
    stage.until_second(30).await;
    assert_eq!(calls(&stage, "a"), 1);
    stage.world.cluster.start_broker(1);
    stage.world.until_within(Duration::from_secs(600), "it runs", || texts(&stage, "a").len() == 1).await;
    assert!(client.insight().reloads_failed > 0 && client.insight().deferred_gone == 0);
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn failing_timers_are_set_aside_under_their_time_and_hold_back_later_ones_but_no_messages() {
    let stage = Stage::new(1);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.on_fire("a", 5, "x|x|l ");
    stage.send(&client, "a", "s5 s6 s7").await;
    stage.until_second(5).await;
    stage.world.until("the first fire", || calls(&stage, "a") == 2).await;
    stage.send(&client, "a", "l ").await;
    stage.world.until("the message", || texts(&stage, "a").len() == 2).await;
    assert!(stage.now() < 6_000, "it does not wait for the timer");
    stage.world.until("all timers", || stage.fired().len() == 3).await;
    assert_eq!(stage.fired(), [5, 6, 7].map(|at| (at, "a".to_owned())));
    // A deferred timer is listed like a pending one, and not while it fires.
    assert_eq!(stage.lists()[0], [5, 6, 7]);
    assert!(!stage.lists()[1].contains(&5), "{:?}", stage.lists());
    stage.until_second(1_000).await;
    assert_eq!((stage.fired().len(), stage.overlaps()), (3, 0));
    // Unscheduled while it is set aside, it does not fire.
    stage.on_fire("b", 1_010, "x|");
    stage.send(&client, "b", "s1010").await;
    stage.until_second(1_010).await;
    stage.world.until("it fails", || calls(&stage, "b") == 2).await;
    stage.send(&client, "b", "u1010").await;
    stage.until_second(2_000).await;
    assert!(stage.fired().iter().all(|(_, key)| key == "a"));
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_its_last_retry_a_deferred_event_goes_to_the_failure_topic_or_is_passed_over() {
    for topic in [true, false] {
        let stage = Stage::new(1);
        let mut builder = stage.process().0.configure(set(&[("DeferMaxRetries", "2")]));
        if topic {
            builder = builder.failure_topic("dead");
        }
        let client = builder.build().unwrap();
        client.subscribe(stage.handler()).await.unwrap();
        stage.send(&client, "a", &"x|".repeat(50)).await;
        stage.send(&client, "a", "w0").await;
        stage.world.until("the second", || texts(&stage, "a") == ["w0"]).await;
        assert_eq!(calls(&stage, "a"), 4, "a first run and two retries");
        let dead = stage.world.cluster.log("dead", 0);
        assert_eq!((dead.len(), client.insight().given_up), if topic { (1, 0) } else { (0, 1) });
        if topic {
            assert_eq!(dead[0].key.as_deref(), Some(&b"a"[..]));
            let header = |name: &str| {
                let found = dead[0].headers.iter().find(|(key, _)| key == name.as_bytes());
                String::from_utf8(found.unwrap().1.as_ref().unwrap().to_vec()).unwrap()
            };
            assert_eq!((header("source-offset"), header("source-attempts")), ("0".into(), "3".into()));
        }
        client.unsubscribe().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn every_mode_works_off_what_is_set_aside_and_without_deferral_nothing_new_is() {
    let off = |stage: &Stage| stage.process().0.configure(set(&[("DeferEnabled", "false")]));
    for (mode, switch) in [(Mode::Pipeline, true), (Mode::LowLatency, false), (Mode::BestEffort, false)] {
        let stage = Stage::new(1);
        let first = stage.process().0.configure(set(&[("DeferBase", "20s")])).build().unwrap();
        first.subscribe(stage.handler()).await.unwrap();
        stage.send(&first, "a", "x|").await;
        stage.send(&first, "a", "w0").await;
        stage.world.until("both are set aside", || stage.world.committed(0) == Some(2)).await;
        first.unsubscribe().await.unwrap();
        let builder = if switch { off(&stage) } else { stage.process().0 };
        let next = builder.mode(mode).failure_topic("dead").build().unwrap();
        next.subscribe(stage.handler()).await.unwrap();
        stage.send(&next, "a", "w0 ").await;
        stage.send(&next, "b", "x|").await;
        stage.world.until("the key", || texts(&stage, "a").len() == 3).await;
        assert_eq!(texts(&stage, "a"), ["x|", "w0", "w0 "], "{mode:?}");
        assert!(stage.now() > 19_000, "its wait is kept: {}", stage.now());
        if mode != Mode::BestEffort {
            let b = done(&stage, "b");
            assert!(b[0].1 < 2, "in place: {b:?}");
        }
        next.unsubscribe().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn deferral_without_a_store_is_refused_when_asked_for_and_off_otherwise() {
    let stage = Stage::new(1);
    let asked = stage.world.builder().configure(set(&[("DeferEnabled", "true")])).build().unwrap();
    let why = asked.subscribe(stage.handler()).await.expect_err("no store").to_string();
    assert!(why.contains("DeferEnabled") && why.contains("PROSODY_CASSANDRA_NODES"), "{why}");
    let client = stage.world.builder().build().unwrap();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "x|x|").await;
    stage.world.until("it is done", || texts(&stage, "a").len() == 1).await;
    assert!(stage.now() < 1_000, "in place: {}", stage.now());
    assert_eq!(client.insight().deferred, 0);
    client.unsubscribe().await.unwrap();
}

/// A key whose handlers take all the time of a window gives others its permits.
#[tokio::test(start_paused = true)]
async fn a_key_that_takes_all_the_time_is_held_back() {
    let stage = Stage::new(1);
    let builder = stage.process().0.configure(set(&[("MonopolizationWindow", "10s")]));
    let client = builder.build().unwrap();
    client.subscribe(stage.handler()).await.unwrap();
    for n in 0..12 {
        stage.send(&client, "a", &format!("w1.5 #{n}").replace('#', "w0.0000")).await;
    }
    stage.world.until("it is held back", || client.insight().monopolies > 0).await;
    let before = calls(&stage, "a");
    assert!((6..9).contains(&before), "after about nine seconds: {before}");
    stage.world.until("all", || texts(&stage, "a").len() == 12).await;
    let numbers: Vec<String> = texts(&stage, "a");
    let sorted: Vec<String> = (0..12).map(|n| format!("w1.5 w0.0000{n}")).collect();
    assert_eq!(numbers, sorted, "in order");
    assert!(client.insight().failed_attempts == 0, "its handler never failed");
    client.unsubscribe().await.unwrap();
}

/// The queue of a key is known while it is owned: only what is behind the first 128 is read, and that many at once.
#[tokio::test(start_paused = true)]
async fn a_drained_message_costs_one_batch_and_no_read() {
    for (count, reads) in [(100, 0), (300, 2)] {
        let mut stage = Stage::new(1);
        let statements = stage.watch_store(|_| Fault::None);
        let client = stage.process().0.configure(set(&[("DeferBase", "60s")])).build().unwrap();
        client.subscribe(stage.handler()).await.unwrap();
        stage.send(&client, "a", "x|").await;
        for _ in 1..count {
            stage.send(&client, "a", "w0").await;
        }
        stage.world.until("all are set aside", || stage.world.committed(0) == Some(count)).await;
        let names = ["load", "deferred_messages", "commit", "seen"];
        assert_eq!(statements.take(names), [0, 0, count as usize, 0]);
        stage.world.until("all ran", || texts(&stage, "a").len() == count as usize).await;
        stage.until_second(stage.now() / 1_000 + 10).await;
        assert_eq!(statements.take(names), [0, reads, count as usize, 0]);
        client.unsubscribe().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_owner_reads_the_record_and_the_queue_once_each() {
    let mut stage = Stage::new(1);
    let first = stage.process().0.configure(set(&[("DeferBase", "60s")])).build().unwrap();
    first.subscribe(stage.handler()).await.unwrap();
    for text in ["x|", "w0", "w0", "w0"] {
        stage.send(&first, "a", text).await;
    }
    stage.world.until("all are set aside", || stage.world.committed(0) == Some(4)).await;
    first.unsubscribe().await.unwrap();
    let statements = stage.watch_store(|_| Fault::None);
    let next = stage.client();
    next.subscribe(stage.handler()).await.unwrap();
    stage.world.until("all ran", || texts(&stage, "a").len() == 4).await;
    stage.until_second(stage.now() / 1_000 + 10).await;
    assert_eq!(statements.take(["load", "deferred_messages", "commit"]), [1, 1, 4]);
    next.unsubscribe().await.unwrap();
}
