//! What a client says about its brokers, and what it tells a tracer about its requests.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

mod common;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{World, numbered, send_all};
use prosody_testkit::broker::{Action, ApiKey, Match};
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, StartAt};
use prosody_wire::{BrokerFigures, TopicPartition};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Counts spans by their `api` field.
#[derive(Clone)]
struct Tracer(Level, Arc<Mutex<BTreeMap<String, usize>>>);

impl Tracer {
    fn listen(level: Level) -> (Tracer, tracing::subscriber::DefaultGuard) {
        let tracer = Tracer(level, Arc::default());
        let guard = tracing::subscriber::set_default(tracer.clone());
        (tracer, guard)
    }
}

struct Api(String);

impl Visit for Api {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "api" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Tracer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= &self.0
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut api = Api(String::new());
        span.record(&mut api);
        *self.1.lock().unwrap().entry(api.0).or_default() += 1;
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

async fn work(world: &World) -> Vec<BrokerFigures> {
    world.cluster.create_topic("t", 2).unwrap();
    let slow = Match::api(ApiKey::PRODUCE).times(1);
    world.cluster.control().on(slow, Action::Delay(Duration::from_millis(70)));
    let producer = world.producer();
    for sent in send_all(&producer, "t", 0, numbered("n", 0..10), None) {
        sent.await.unwrap();
    }
    let fetcher = Fetcher::new(&world.client, FetchConfig::default());
    let mut reader = fetcher.open(TopicPartition::new("t", 0), StartAt::Earliest);
    assert!(matches!(reader.next().await, FetchItem::Batch(_)));
    assert_eq!(fetcher.high_watermarks().values().collect::<Vec<_>>(), [&10]);
    world.client.brokers()
}

#[tokio::test(start_paused = true)]
async fn requests_bytes_and_latencies_are_counted_for_each_broker() {
    let world = World::new(1);
    let (tracer, _guard) = Tracer::listen(Level::DEBUG);
    let brokers = work(&world).await;
    let [broker] = brokers.as_slice() else { panic!("one address, {brokers:?}") };
    let spans = tracer.1.lock().unwrap().clone();
    assert_eq!(spans["Produce"] as u64, broker.produce.count(), "one span for each request");
    assert!(broker.produce.sum >= Duration::from_millis(70), "{broker:?}");
    let slow: u64 =
        broker.produce.buckets.iter().filter(|(bound, _)| bound.as_millis() == 100).map(|(_, n)| *n).sum();
    assert_eq!(slow, 1, "{broker:?}");
    assert!(broker.fetch.count() >= 1 && broker.other.count() >= 2, "{broker:?}");
    assert!(broker.in_flight >= 1, "a poll waits at the broker: {broker:?}");
    assert!(broker.connections == 3 && broker.connects == 3 && broker.failed_connects == 0, "{broker:?}");
    assert!(broker.sent_bytes > 400 && broker.received_bytes > 400, "{broker:?}");
}

#[tokio::test(start_paused = true)]
async fn at_the_default_level_a_request_has_no_span() {
    let world = World::new(1);
    let (tracer, _guard) = Tracer::listen(Level::INFO);
    work(&world).await;
    assert!(tracer.1.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn throttles_and_failed_connects_are_counted() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    let producer = world.producer();
    world
        .cluster
        .control()
        .on(Match::api(ApiKey::PRODUCE).times(1), Action::Throttle(Duration::from_millis(400)));
    for sent in send_all(&producer, "t", 0, numbered("n", 0..1), None) {
        sent.await.unwrap();
    }
    assert_eq!(world.client.brokers()[0].throttled, Duration::from_millis(400));
    let address = world.cluster.bootstrap();
    world.cluster.stop_broker(1);
    let again = send_all(&producer, "t", 0, numbered("n", 1..2), world.after(3_000));
    for sent in again {
        assert!(sent.await.is_err());
    }
    let brokers = world.client.brokers();
    let broker = brokers.iter().find(|broker| broker.address == address).unwrap();
    assert!(broker.failed_connects >= 2 && broker.connections == 0 && broker.in_flight == 0, "{brokers:?}");
}
