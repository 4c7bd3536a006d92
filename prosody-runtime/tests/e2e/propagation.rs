//! Trace contexts without an exporter: what comes in with an event goes out with what it causes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prosody_runtime::{Client, Context, Handler, HandlerError, Message, Mode, Timer, TraceContext};
use prosody_testkit::broker::batch::Record;
use prosody_wire::produce::OutgoingRecord;

use crate::failure_topic::send_raw;
use crate::stage::Stage;
use crate::world::World;

pub const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The values of a record's headers of that name.
pub fn header(record: &Record, name: &str) -> Vec<String> {
    let named = record.headers.iter().filter(|(key, _)| key == name.as_bytes());
    named
        .map(|(_, value)| String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned())
        .collect()
}

/// `traceparent`, `tracestate` and `baggage` of each record of a topic, by key.
fn traced(world: &World, topic: &str) -> Vec<[String; 4]> {
    let partitions = 0..world.cluster.partitions(topic).unwrap();
    let mut all: Vec<_> = partitions
        .flat_map(|partition| world.cluster.log(topic, partition))
        .map(|record| {
            let key = String::from_utf8_lossy(record.key.as_deref().unwrap_or_default()).into_owned();
            let [parent, state, baggage] =
                ["traceparent", "tracestate", "baggage"].map(|name| header(&record, name).join("+"));
            [key, parent, state, baggage]
        })
        .collect();
    all.sort();
    all
}

pub async fn send_with(world: &World, key: &str, headers: &[(&str, &str)]) {
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_bytes(), Some(value.as_bytes()))).collect();
    let (topic, key, value) = ("t", Some(key.as_bytes()), Some(&b"{}"[..]));
    send_raw(
        world,
        OutgoingRecord { topic, partition: None, key, value, headers: &headers, timestamp: None },
    )
    .await;
}

/// Sends what it gets on to topic `out`: at once, after a wait, and from a task of its own. A timer does the same.
struct Relay {
    client: Client,
    schedule: Option<u64>,
    seen: Arc<Mutex<Vec<Option<TraceContext>>>>,
}

impl Relay {
    async fn relay(&self, context: Context, key: &str) -> Result<(), HandlerError> {
        self.seen.lock().unwrap().push(context.trace());
        assert_eq!(TraceContext::current(), context.trace());
        self.client.send("out", &format!("{key} at once"), b"{}").await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.client.send("out", &format!("{key} later"), b"{}").await?;
        let sending = self.client.send("out", &format!("{key} task"), b"{}");
        let (client, key) = (self.client.clone(), format!("{key} followed"));
        let task = async move { client.send("out", &key, b"{}").await };
        match context.trace() {
            Some(trace) => tokio::spawn(trace.follow(task)).await??,
            None => tokio::spawn(task).await??,
        };
        tokio::spawn(sending).await??;
        Ok(())
    }
}

impl Handler for Relay {
    async fn on_message(&self, context: Context, message: Message) -> Result<(), HandlerError> {
        if let Some(second) = self.schedule {
            context.schedule(UNIX_EPOCH + Duration::from_secs(second)).await?;
            return Ok(());
        }
        self.relay(context, message.key()).await
    }
    async fn on_timer(&self, context: Context, timer: Timer) -> Result<(), HandlerError> {
        self.relay(context, &timer.key).await
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_sends_belongs_to_the_trace_of_its_message() {
    let world = World::new(&[("t", 1), ("out", 1)]);
    let client = world.client();
    let relay = Relay { client: client.clone(), schedule: None, seen: Arc::default() };
    let seen = Arc::clone(&relay.seen);
    client.subscribe(relay).await.unwrap();
    send_with(&world, "a", &[("traceparent", PARENT), ("tracestate", "x=y"), ("baggage", "user=7")]).await;
    world.until("four sends", || world.cluster.log("out", 0).len() == 4).await;
    for [key, parent, state, baggage] in traced(&world, "out") {
        assert_eq!([&*parent, &*state, &*baggage], [PARENT, "x=y", "user=7"], "{key}");
    }
    // Nobody's trace, and what is none: a header of a peer ends nothing, and nothing is made up.
    for headers in [
        &[][..],
        &[("traceparent", "00-1-2-3"), ("tracestate", "x=y")],
        &[("tracestate", "x=y")],
        &[("baggage", "=")],
    ] {
        let before = world.cluster.log("out", 0).len();
        send_with(&world, "b", headers).await;
        world.until("four sends", || world.cluster.log("out", 0).len() == before + 4).await;
        let sent = world.cluster.log("out", 0).split_off(before);
        assert!(sent.iter().all(|record| record.headers.len() == 1), "{headers:?}: {sent:?}");
    }
    send_with(&world, "c", &[("baggage", "user=8")]).await;
    world.until("four sends", || world.cluster.log("out", 0).len() == 24).await;
    let last = world.cluster.log("out", 0).pop().unwrap();
    assert_eq!((header(&last, "baggage"), header(&last, "traceparent")), (vec!["user=8".to_owned()], vec![]));
    let seen: Vec<_> = seen.lock().unwrap().iter().map(|trace| trace.as_ref()?.parent()).collect();
    assert_eq!(seen, [Some(PARENT.to_owned()), None, None, None, None, None]);
    assert_eq!(TraceContext::current(), None, "outside of handlers there is none");
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_keeps_its_trace_in_the_failure_topic() {
    let world = World::new(&[("t", 1), ("dead", 1)]);
    let client = world.builder().mode(Mode::LowLatency).max_retries(0).failure_topic("dead").build().unwrap();
    struct Fails;
    impl Handler for Fails {
        async fn on_message(&self, _: Context, _: Message) -> Result<(), HandlerError> {
            Err(HandlerError::permanent("no"))
        }
    }
    client.subscribe(Fails).await.unwrap();
    send_with(&world, "a", &[("tracestate", "old=1"), ("traceparent", PARENT), ("tracestate", "x=y")]).await;
    send_with(&world, "b", &[("traceparent", "none"), ("tracestate", "x=y")]).await;
    world.until("routed", || world.cluster.log("dead", 0).len() == 2).await;
    let [a, b] = [["a", PARENT, "x=y", ""], ["b", "none", "x=y", ""]];
    assert_eq!(
        traced(&world, "dead"),
        [a, b],
        "one of each: the last one counts, and what is none stays as it is"
    );
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_timer_brings_the_trace_of_whoever_scheduled_it_also_to_another_owner() {
    let stage = Stage::new(1);
    let world = &stage.world;
    world.cluster.create_topic("out", 1).unwrap();
    let due = stage.clock.unix_millis() / 1_000 + 600;
    let subscribe = async |schedule| {
        let client = stage.client();
        let relay = Relay { client: client.clone(), schedule, seen: Arc::default() };
        client.subscribe(relay).await.unwrap();
        client
    };
    let first = subscribe(Some(u64::try_from(due).unwrap())).await;
    send_with(world, "a", &[("traceparent", PARENT), ("tracestate", "x=y"), ("baggage", "user=7")]).await;
    send_with(world, "b", &[]).await;
    world.until("done", || world.committed_sum() == 2).await;
    first.close().await.unwrap();
    let second = subscribe(None).await;
    world.until_within(Duration::from_secs(900), "fired", || world.cluster.log("out", 0).len() == 8).await;
    for [key, parent, state, baggage] in traced(world, "out") {
        let expected = if key.starts_with('a') { [PARENT, "x=y", ""] } else { [""; 3] };
        assert_eq!([&*parent, &*state, &*baggage], expected, "{key}");
    }
    second.unsubscribe().await.unwrap();
}

/// Its row goes from the pending timers to the deferred ones and back.
#[tokio::test(start_paused = true)]
async fn a_timer_that_fails_and_is_set_aside_keeps_its_trace() {
    struct Sometimes(Client, Mutex<usize>);
    impl Handler for Sometimes {
        async fn on_message(&self, context: Context, _: Message) -> Result<(), HandlerError> {
            context.clear_and_schedule(SystemTime::UNIX_EPOCH).await
        }
        async fn on_timer(&self, _: Context, _: Timer) -> Result<(), HandlerError> {
            let fails = {
                let mut attempts = self.1.lock().unwrap();
                *attempts += 1;
                *attempts < 3
            };
            if fails {
                return Err(HandlerError::transient("not now"));
            }
            self.0.send("out", "fired", b"{}").await?;
            Ok(())
        }
    }
    let stage = Stage::new(1);
    let world = &stage.world;
    world.cluster.create_topic("out", 1).unwrap();
    let client = stage.client();
    client.subscribe(Sometimes(client.clone(), Mutex::new(0))).await.unwrap();
    send_with(world, "a", &[("traceparent", PARENT)]).await;
    world.until("fired", || world.cluster.log("out", 0).len() == 1).await;
    assert!(client.insight().deferred > 0);
    assert_eq!(traced(world, "out"), [["fired", PARENT, "", ""]]);
    client.unsubscribe().await.unwrap();
}
