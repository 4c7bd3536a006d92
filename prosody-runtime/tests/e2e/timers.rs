//! Timers beside messages: they fire at their second, in the order of their key, and count only when their event ends well.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prosody_runtime::{ErrorClass, Mode};

use crate::stage::{Seen, Stage};

#[tokio::test(start_paused = true)]
async fn a_timer_fires_once_at_its_rounded_second_and_a_past_one_at_once() {
    let stage = Stage::new(1);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "s10.4 s12.5 s12.6 s-100").await;
    stage.world.until("all fired", || stage.fired().len() == 3).await;
    let at: Vec<(Seen, i64)> = stage.entries().into_iter().map(|entry| (entry.seen, entry.at)).collect();
    assert_eq!((&at[1].0, &at[2].0, &at[3].0), (&Seen::Timer(-100), &Seen::Timer(10), &Seen::Timer(13)));
    assert!(at[1].1 < at[0].1 + 100, "at once: {at:?}");
    assert!((10_000..10_100).contains(&at[2].1) && (13_000..13_100).contains(&at[3].1), "{at:?}");
    stage.until_second(4_000).await;
    assert_eq!((stage.fired().len(), client.insight().timers_handled), (3, 3), "once each");
    client.unsubscribe().await.unwrap();
    assert_eq!(stage.world.committed_sum(), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_read_their_own_writes_and_only_what_is_left_fires() {
    let stage = Stage::new(1);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "l s9 s5 s5 l u5 l r20 l c l s7 s8 l").await;
    stage.send(&client, "a", "l u8 s6 l").await;
    stage.on_fire("a", 6, "l s30 l");
    stage.until_second(60).await;
    let lists: [&[i64]; 10] = [&[], &[5, 9], &[9], &[20], &[], &[7, 8], &[7, 8], &[6, 7], &[7], &[7, 30]];
    assert_eq!(stage.lists(), lists);
    assert_eq!(stage.fired(), [6, 7, 30].map(|at| (at, "a".to_owned())));
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_leaves_no_timers_and_its_handles_are_dead() {
    for (mode, fired) in [(Mode::Pipeline, vec![8]), (Mode::LowLatency, vec![8]), (Mode::BestEffort, vec![])]
    {
        let stage = Stage::new(1);
        let client = stage.process().0.mode(mode).failure_topic("dead").build().unwrap();
        client.subscribe(stage.handler()).await.unwrap();
        stage.send(&client, "a", "s5 x|l s6 x|l s8").await;
        stage.send(&client, "b", "s7 p").await;
        stage.until_second(20).await;
        assert_eq!(
            stage.fired(),
            fired.iter().map(|at| (*at, "a".to_owned())).collect::<Vec<_>>(),
            "{mode:?}"
        );
        assert!(stage.lists().iter().all(Vec::is_empty));
        for context in stage.contexts() {
            let dead = context.schedule(std::time::UNIX_EPOCH).await.unwrap_err();
            assert!(dead.class() == ErrorClass::Transient && dead.text().contains("has ended"), "{dead}");
            assert!(context.scheduled().is_err());
        }
        client.unsubscribe().await.unwrap();
        assert_eq!(stage.world.committed_sum(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn timers_and_messages_of_a_key_never_overlap_and_keep_the_order_they_came_in() {
    let stage = Stage::new(1);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "s3 s5").await;
    stage.until_second(1).await;
    stage.send(&client, "a", "w3").await; // runs from 1 to 4
    stage.until_second(2).await;
    stage.send(&client, "a", "").await; // waits before the timer of second 3
    stage.on_fire("a", 3, "w4");
    stage.world.until("the timer of second 3 runs", || stage.now() > 4_500).await;
    stage.send(&client, "b", "").await; // another key is not held up
    stage
        .world
        .until("the other key", || stage.entries().iter().any(|entry| entry.key == "b" && entry.ended))
        .await;
    assert!(stage.now() < 5_000);
    stage.until_second(6).await;
    stage.send(&client, "a", "x|").await; // behind the timer of second 5
    stage.world.until("all", || stage.messages() == 5 && stage.fired().len() == 2).await;
    let of_a = stage.entries().into_iter().filter(|entry| entry.key == "a").map(|entry| entry.seen);
    let message = |script: &str| Seen::Message(script.to_owned());
    assert_eq!(
        of_a.collect::<Vec<_>>(),
        [
            message("s3 s5"),
            message("w3"),
            message(""),
            Seen::Timer(3),
            Seen::Timer(5),
            message("x|"),
            message("x|")
        ]
    );
    assert_eq!(stage.overlaps(), 0);
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_an_earlier_event_took_away_does_not_fire() {
    let stage = Stage::new(1);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "s3 s4").await;
    stage.until_second(2).await;
    stage.send(&client, "a", "w5 u3").await; // both timers wait behind it
    stage.until_second(20).await;
    assert_eq!(stage.fired(), [(4, "a".to_owned())]);
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_schedules_its_own_time_fires_again() {
    let stage = Stage::new(1);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.on_fire("a", 3, "s3 l|x|s3 s6 u3 l");
    stage.send(&client, "a", "s3").await;
    stage.until_second(20).await;
    assert_eq!(stage.fired(), [3, 3, 6].map(|at| (at, "a".to_owned())));
    assert_eq!(stage.lists(), [vec![3], vec![6]]);
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failing_timer_is_retried_routed_or_given_up_as_its_mode_says() {
    for mode in [Mode::Pipeline, Mode::LowLatency, Mode::BestEffort] {
        let stage = Stage::new(1);
        let client = stage.process().0.mode(mode).failure_topic("dead").max_retries(2).build().unwrap();
        client.subscribe(stage.handler()).await.unwrap();
        for (key, script) in [("k\"y", "s9 x|s9 x|s9 x|x|x|"), ("p", "p")] {
            stage.on_fire(key, 3, script);
            stage.send(&client, key, "s3").await;
        }
        stage.until_second(60).await;
        let attempts = |key: &str| {
            let timers = stage.entries().into_iter().filter(|entry| matches!(entry.seen, Seen::Timer(3)));
            timers.filter(|entry| entry.key == key).count()
        };
        let insight = client.insight();
        let (expected, ended) = match mode {
            Mode::Pipeline => ((6, 1), (1, 0, 1)),
            Mode::LowLatency => ((3, 1), (0, 2, 0)),
            Mode::BestEffort => ((1, 1), (0, 0, 2)),
        };
        assert_eq!((attempts("k\"y"), attempts("p")), expected, "{mode:?}");
        assert_eq!((insight.timers_handled, insight.routed, insight.given_up), ended, "{mode:?}");
        assert_eq!((insight.timers_routed, insight.timers_given_up), (ended.1, ended.2), "{mode:?}");
        for (outcome, count) in [("ok", ended.0), ("routed", ended.1), ("given_up", ended.2)] {
            let counted = |of: &str| {
                let text = prosody_runtime::prometheus_text(&[client.metrics()]);
                let outcome = format!("outcome=\"{outcome}\"}} ");
                let line = text.lines().find(|line| line.starts_with(of) && line.contains(&outcome)).unwrap();
                line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
            };
            let messages = if outcome == "ok" { 2 } else { 0 };
            let both = (counted("prosody_timers_total{"), counted("prosody_messages_total{"));
            assert_eq!(both, (count, messages), "{mode:?} {outcome}");
        }
        let again = stage.client();
        client.unsubscribe().await.unwrap();
        again.subscribe(stage.handler()).await.unwrap();
        stage.until_second(120).await;
        assert_eq!((attempts("k\"y"), attempts("p")), expected, "it is gone");
        again.unsubscribe().await.unwrap();
        if mode == Mode::LowLatency {
            let log = stage.world.cluster.log("dead", 0);
            let record = log.iter().find(|record| record.key.as_deref() == Some(b"k\"y")).unwrap();
            let value: serde_json::Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
            assert_eq!(value, serde_json::json!({ "key": "k\"y", "time": "2026-01-01T00:00:03.000Z" }));
            let headers: BTreeMap<_, _> = record.headers.iter().cloned().collect();
            for (name, text) in [
                ("source-system", "tests"),
                ("source-kind", "timer"),
                ("source-topic", "t"),
                ("source-partition", "0"),
                ("source-timestamp", "2026-01-01T00:00:03.000Z"),
                ("source-group-id", "g"),
                ("source-error", "not now"),
                ("source-attempts", "3"),
            ] {
                assert_eq!(headers[name.as_bytes()].as_deref(), Some(text.as_bytes()), "{name}");
            }
            assert!(!headers.contains_key(&b"source-offset"[..]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_outlasts_its_timeout_is_cancelled_and_tried_again() {
    let stage = Stage::new(1);
    let builder = stage.process().0.configure(|o| o.timeout = Some(Duration::from_secs(2)));
    let client = builder.build().unwrap();
    client.subscribe(stage.handler()).await.unwrap();
    stage.on_fire("a", 1, "s9 C|C|s12");
    stage.send(&client, "a", "s1").await;
    stage.until_second(20).await;
    assert_eq!(
        (stage.fired(), client.insight().timeouts),
        ([1, 12].map(|at| (at, "a".to_owned())).to_vec(), 2)
    );
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn timers_survive_a_restart_and_what_was_running_fires_again() {
    let stage = Stage::new(4);
    let first = stage.process().0.configure(|o| o.shutdown_timeout = Some(Duration::from_secs(1)));
    let first = first.build().unwrap();
    first.subscribe(stage.handler()).await.unwrap();
    stage.on_fire("a", 2, "s99 C|");
    for key in ["a", "b", "c", "d"] {
        stage.send(&first, key, "s2 s5 s40").await;
    }
    stage.world.until("one runs", || stage.fired().len() == 3 && stage.now() > 2_500).await;
    first.unsubscribe().await.unwrap();
    stage.until_second(10).await;
    assert_eq!(stage.fired().len(), 3);
    let second = stage.client();
    second.subscribe(stage.handler()).await.unwrap();
    stage.world.until("what was due", || stage.fired().len() == 8).await;
    assert!(stage.now() < 12_000, "at once");
    stage.until_second(60).await;
    let fired: BTreeSet<_> = stage.fired().into_iter().collect();
    assert_eq!((fired.len(), stage.fired().len()), (12, 12), "each once");
    second.unsubscribe().await.unwrap();
    assert_eq!((stage.messages(), stage.overlaps(), stage.world.committed_sum()), (4, 0, 4));
}

#[tokio::test(start_paused = true)]
async fn calls_of_an_abandoned_handler_fail_and_what_it_scheduled_is_not_there() {
    let stage = Stage::new(1);
    let client = stage.process().0.configure(|o| o.shutdown_timeout = Some(Duration::from_secs(1)));
    let client = client.build().unwrap();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "s50 w9999|l").await;
    stage.world.until("it runs", || stage.contexts().len() == 1).await;
    client.unsubscribe().await.unwrap();
    let context = stage.contexts().remove(0);
    assert!(client.insight().abandoned == 1 && context.should_cancel());
    let dead = context.schedule(std::time::UNIX_EPOCH).await.unwrap_err();
    assert!(dead.text().contains("has ended") && context.scheduled().is_err(), "{dead}");
    let next = stage.client();
    next.subscribe(stage.handler()).await.unwrap();
    stage.until_second(100).await;
    assert_eq!((stage.lists(), stage.fired()), (vec![vec![]], vec![]));
    next.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_timer_fires_once_while_members_come_and_go() {
    let stage = Stage::new(4);
    let clients = [stage.client(), stage.client(), stage.client()];
    clients[0].subscribe(stage.handler()).await.unwrap();
    for key in 0..60 {
        let (first, second) = (3 + key % 40, 10 + key % 35);
        stage.send(&clients[0], &format!("k{key}"), &format!("w0.2 s{first} s{second} s300")).await;
        stage.on_fire(&format!("k{key}"), second, "w0.5 u300");
    }
    stage.until_second(8).await;
    clients[1].subscribe(stage.handler()).await.unwrap();
    stage.until_second(20).await;
    clients[2].subscribe(stage.handler()).await.unwrap();
    stage.until_second(27).await;
    clients[0].unsubscribe().await.unwrap();
    stage.until_second(35).await;
    clients[1].unsubscribe().await.unwrap();
    stage.until_second(400).await;
    clients[2].unsubscribe().await.unwrap();
    let fired = stage.fired();
    let distinct: BTreeSet<_> = fired.iter().cloned().collect();
    let expected: BTreeSet<_> =
        (0..60).flat_map(|key| [3 + key % 40, 10 + key % 35].map(|at| (at, format!("k{key}")))).collect();
    assert_eq!(distinct, expected);
    assert_eq!((fired.len(), stage.messages(), stage.overlaps()), (expected.len(), 60, 0));
    assert!(clients.iter().all(|client| client.insight().conflicts == 0));
}
