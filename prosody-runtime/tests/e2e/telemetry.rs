//! The telemetry topic.

use std::time::Duration;

use prosody_runtime::{ClientBuilder, HandlerError};
use prosody_wire::produce::OutgoingRecord;
use serde_json::Value;

use crate::failure_topic::send_raw;
use crate::stage::Stage;
use crate::world::{Call, Diary, Script, World, quick, send_numbered};

const TOPIC: &str = "prosody.telemetry-events";

fn with_telemetry(world: &World) -> ClientBuilder {
    world.builder().configure(|o| o.telemetry_enabled = Some(true))
}

/// What was told, in the order of the events.
fn told(world: &World) -> Vec<Value> {
    let partitions = 0..world.cluster.partitions(TOPIC).unwrap();
    let records = partitions.flat_map(|partition| world.cluster.log(TOPIC, partition));
    records.map(|record| serde_json::from_slice(&record.value.unwrap()).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn every_attempt_and_every_send_is_told() {
    let world = World::new(&[("t", 1), (TOPIC, 1)]);
    let (client, diary) = (with_telemetry(&world).build().unwrap(), Diary::default());
    let first = diary.clone();
    let handler = Script {
        diary: diary.clone(),
        play: move |_, call: Call| {
            let fails =
                call.key == "bad" && first.started().iter().filter(|call| call.key == "bad").count() == 1;
            async move { if fails { Err(HandlerError::transient("not now")) } else { Ok(()) } }
        },
    };
    client.subscribe(handler).await.unwrap();
    client.send("t", "bad", b"{}").await.unwrap();
    world.until("five events", || told(&world).len() == 5).await;
    let mut kinds: Vec<String> = Vec::new();
    for event in told(&world) {
        assert_eq!(
            (&event["topic"], &event["partition"], &event["offset"]),
            (&"t".into(), &0.into(), &0.into())
        );
        assert_eq!((&event["key"], &event["source"]), (&"bad".into(), &"tests".into()), "{event}");
        let text = |name: &str| event[name].as_str().unwrap_or("-").to_owned();
        assert!(text("eventTime").ends_with('Z') && event.get("traceParent").is_none(), "{event}");
        kinds.push([text("type"), text("demandType"), text("errorCategory"), text("exception")].join(" "));
    }
    kinds.sort();
    let expected = [
        "prosody.message.dispatched failure - -",
        "prosody.message.dispatched normal - -",
        "prosody.message.failed normal transient not now",
        "prosody.message.sent - - -",
        "prosody.message.succeeded failure - -",
    ];
    assert_eq!(kinds, expected);
    let record = world.cluster.log(TOPIC, 0).remove(0);
    assert_eq!(record.key.as_deref(), Some(&b"bad"[..]));
    assert!(
        record
            .headers
            .iter()
            .any(|(name, value)| &name[..] == b"source-system" && value.as_deref() == Some(&b"tests"[..]))
    );
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_trace_of_a_message_is_told_and_what_is_none_is_not() {
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let world = World::new(&[("t", 1), (TOPIC, 1)]);
    let (client, diary) = (with_telemetry(&world).build().unwrap(), Diary::default());
    client.subscribe(quick(&diary)).await.unwrap();
    let long = "x".repeat(513);
    let cases: [(&str, &[(&[u8], Option<&[u8]>)], Option<&str>, Option<&str>); 4] = [
        (
            "a",
            &[(b"traceparent", Some(PARENT.as_bytes())), (b"tracestate", Some(b"a=b"))],
            Some(PARENT),
            Some("a=b"),
        ),
        (
            "b",
            &[(b"traceparent", Some(PARENT.as_bytes())), (b"tracestate", Some(long.as_bytes()))],
            Some(PARENT),
            None,
        ),
        ("c", &[(b"traceparent", Some(b"short")), (b"tracestate", Some(b"a=b"))], None, None),
        ("d", &[(b"traceparent", Some(&[0xff; 55])), (b"traceparent", None)], None, None),
    ];
    for (key, headers, ..) in cases {
        let (topic, key, value) = ("t", Some(key.as_bytes()), Some(&b"{}"[..]));
        send_raw(&world, OutgoingRecord { topic, partition: None, key, value, headers, timestamp: None })
            .await;
    }
    world.until("all told", || told(&world).len() == 8).await;
    for event in told(&world) {
        let (_, _, parent, state) = cases.iter().find(|(key, ..)| event["key"] == *key).unwrap();
        assert_eq!(
            (event["traceParent"].as_str(), event["traceState"].as_str()),
            (*parent, *state),
            "{event}"
        );
    }
    client.unsubscribe().await.unwrap();
}

/// The topic does not exist: every event waits for it and fails in the end.
#[tokio::test(start_paused = true)]
async fn events_that_cannot_be_sent_slow_nobody_and_are_counted() {
    let world = World::new(&[("t", 4)]);
    let (client, diary) = (with_telemetry(&world).build().unwrap(), Diary::default());
    client.subscribe(quick(&diary)).await.unwrap();
    world.until("partitions", || client.assigned_partitions() == 4).await;
    let start = world.clock.now();
    for _ in 0..20 {
        send_numbered(&client, 100, 50).await;
    }
    world.until("all handled", || diary.ended().len() == 2_000).await;
    assert!(world.clock.now() - start < Duration::from_secs(5), "{:?}", world.clock.now() - start);
    let insight = client.insight();
    assert!(insight.telemetry_dropped > 0, "6,000 events, of which 4,096 wait: {insight:?}");
    world
        .until("the rest is given up", || {
            let insight = client.insight();
            insight.telemetry_dropped + insight.telemetry_failed == 6_000
        })
        .await;
    client.unsubscribe().await.unwrap();
}

#[test]
fn the_topic_of_events_is_none_that_is_consumed() {
    let client = ClientBuilder::default().mock(true).group_id("g").subscribed_topics(["t"]).configure(|o| {
        o.telemetry_enabled = Some(true);
        o.telemetry_topic = Some("t".to_owned());
    });
    let why = client.build().expect_err("a loop").to_string();
    assert!(why.contains("TelemetryTopic (PROSODY_TELEMETRY_TOPIC): must not be one of"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn timers_that_come_and_go_are_told_when_their_event_ends_well() {
    let stage = Stage::new(1);
    let world = &stage.world;
    world.cluster.create_topic(TOPIC, 1).unwrap();
    let client = stage.process().0.configure(|o| o.telemetry_enabled = Some(true)).build().unwrap();
    client.subscribe(stage.handler()).await.unwrap();
    // Second 3 fires and schedules itself and 9; 5 goes, and what is cancelled in the attempt itself never was.
    stage.on_fire("a", 3, "u7 s3 s9|");
    stage.send(&client, "a", "s3 x|s3 s5 s6 u6 s7").await;
    stage.send(&client, "a", "u5 u100").await;
    stage.world.until("all fired", || stage.fired().len() == 3).await;
    let base = stage.clock.unix_millis() - stage.now();
    let second = |event: &Value| {
        let text = event["scheduledTime"].as_str().unwrap().to_owned();
        (0..20).find(|at| text == rfc3339(base + at * 1_000)).unwrap()
    };
    let timers = |verb: &str| {
        let kind = format!("prosody.timer.{verb}");
        let told = told(world).into_iter().filter(|event| event["type"] == kind.as_str());
        told.map(|event| {
            assert_eq!((&event["key"], &event["timerType"]), (&"a".into(), &"application".into()));
            assert!(
                event.get("offset").is_none() && event.get("demandType").is_some() == (verb == "dispatched")
            );
            second(&event)
        })
        .collect::<Vec<_>>()
    };
    world.until("all told", || timers("dispatched").len() == 3).await;
    let (mut scheduled, cancelled) = (timers("scheduled"), timers("cancelled"));
    scheduled.sort_unstable();
    assert_eq!((scheduled, cancelled), (vec![3, 3, 5, 7, 9], vec![5, 7]));
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_attempt_at_a_timer_is_told() {
    let stage = Stage::new(1);
    let world = &stage.world;
    world.cluster.create_topic(TOPIC, 1).unwrap();
    let client = stage.process().0.configure(|o| o.telemetry_enabled = Some(true)).build().unwrap();
    client.subscribe(stage.handler()).await.unwrap();
    stage.on_fire("a", 3, "x|");
    stage.send(&client, "a", "s3").await;
    world.until("it fired", || stage.fired().len() == 1).await;
    let attempts = || {
        let told = told(world).into_iter().filter(|event| {
            let kind = event["type"].as_str().unwrap();
            kind.starts_with("prosody.timer.") && kind != "prosody.timer.scheduled"
        });
        told.collect::<Vec<_>>()
    };
    world.until("all told", || attempts().len() == 4).await;
    let base = stage.clock.unix_millis() - stage.now();
    let mut kinds: Vec<String> = Vec::new();
    for event in attempts() {
        assert_eq!(
            (&event["key"], &event["topic"], &event["partition"]),
            (&"a".into(), &"t".into(), &0.into())
        );
        assert_eq!(event["scheduledTime"], rfc3339(base + 3_000), "{event}");
        let text = |name: &str| event[name].as_str().unwrap_or("-").to_owned();
        kinds.push(["type", "timerType", "demandType", "errorCategory", "exception"].map(text).join(" "));
    }
    kinds.sort();
    let expected = [
        "prosody.timer.dispatched application normal - -",
        "prosody.timer.dispatched deferred failure - -",
        "prosody.timer.failed application normal transient not now",
        "prosody.timer.succeeded deferred failure - -",
    ];
    assert_eq!(kinds, expected);
    client.unsubscribe().await.unwrap();
}

/// Whole seconds of the simulated day.
fn rfc3339(millis: i64) -> String {
    let of_day = millis / 1_000 % 86_400;
    format!("2026-01-01T{:02}:{:02}:{:02}.000Z", of_day / 3_600, of_day / 60 % 60, of_day % 60)
}
