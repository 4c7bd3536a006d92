//! librdkafka, used the way its users make it fast: batch polling, delivery reports counted, `fetch.queue.backoff.ms=1`.
//!
//! `produce|consume --bootstrap B --topic T --count N --size S --keys K`, `send … --count N`, `first … --group G`

#[path = "../../../common.rs"]
mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use common::{Meter, Options, Records, median};
use rdkafka::bindings as c;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{Message, Offset, TopicPartitionList};

const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let (what, options) = Options::from_args();
    match what.as_str() {
        "produce" => produce(&options),
        "consume" => consume(&options),
        "send" => send(&options),
        "first" => first(&options),
        other => panic!("produce, consume, send or first, not {other}"),
    }
}

fn config(options: &Options) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", options.text("bootstrap"));
    config
}

#[derive(Default)]
struct Delivered {
    ok: AtomicU64,
    failed: AtomicU64,
}

impl ClientContext for Delivered {}

impl ProducerContext for Delivered {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let counter = if result.is_ok() { &self.ok } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn idempotent(options: &Options) -> ClientConfig {
    let mut config = config(options);
    config.set("enable.idempotence", "true").set("compression.codec", "lz4").set("partitioner", "consistent");
    config
}

fn produce(options: &Options) {
    let (topic, count) = (options.text("topic"), options.number("count"));
    let records = Records::new(options.number("keys"), options.number("size") as usize);
    let meter = Meter::start();
    let producer: BaseProducer<Delivered> =
        idempotent(options).create_with_context(Delivered::default()).expect("a producer");
    for n in 0..count {
        let mut record = BaseRecord::to(&topic).key(records.key(n)).payload(records.value(n));
        while let Err((problem, back)) = producer.send(record) {
            match problem {
                KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) => {
                    producer.poll(Duration::from_millis(1));
                    record = back;
                }
                other => panic!("send: {other}"),
            }
        }
        if n % 1_000 == 0 {
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(PATIENCE).expect("flushed");
    let context = producer.context();
    assert_eq!((context.ok.load(Ordering::Relaxed), context.failed.load(Ordering::Relaxed)), (count, 0));
    meter.report(count, "");
}

fn assigned(options: &Options, topic: &str, partitions: i32) -> BaseConsumer {
    let consumer: BaseConsumer = config(options)
        .set("group.id", "peer-librdkafka")
        .set("enable.auto.commit", "false")
        .set("fetch.queue.backoff.ms", "1")
        .create()
        .expect("a consumer");
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition_offset(topic, partition, Offset::Beginning).expect("a partition");
    }
    consumer.assign(&list).expect("assigned");
    consumer
}

fn consume(options: &Options) {
    let (topic, count) = (options.text("topic"), options.number("count"));
    let partitions = options.number("partitions") as i32;
    let meter = Meter::start();
    let consumer = assigned(options, &topic, partitions);
    let mut next = vec![0_i64; partitions as usize];
    let (mut seen, mut bytes) = (0_u64, 0_u64);
    let mut messages = vec![std::ptr::null_mut::<c::rd_kafka_message_t>(); 2_000];
    // SAFETY: the client outlives its queue; every message is valid until it is destroyed here.
    let queue = unsafe { c::rd_kafka_queue_get_consumer(consumer.client().native_ptr()) };
    while seen < count {
        let got =
            unsafe { c::rd_kafka_consume_batch_queue(queue, 1_000, messages.as_mut_ptr(), messages.len()) };
        assert!(got >= 0 && meter.elapsed() < PATIENCE * 5, "no records");
        for &message in &messages[..got as usize] {
            let view = unsafe { &*message };
            if view.err == c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                let next = &mut next[view.partition as usize];
                assert_eq!(view.offset, *next, "a gap");
                *next += 1;
                bytes += (view.len + view.key_len) as u64;
                seen += 1;
            }
            unsafe { c::rd_kafka_message_destroy(message) };
        }
    }
    unsafe { c::rd_kafka_queue_destroy(queue) };
    meter.report(seen, &format!("\"bytes\":{bytes}"));
}

/// Says that a delivery report came.
struct Woken(SyncSender<bool>);

impl ClientContext for Woken {}

impl ProducerContext for Woken {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        self.0.send(result.is_ok()).expect("somebody waits");
    }
}

/// One record at a time, each awaited, without lingering; a thread of its own polls for the reports.
fn send(options: &Options) {
    let (topic, count) = (options.text("topic"), options.number("count"));
    let records = Records::new(16, 100);
    let (say, heard) = sync_channel(1);
    let producer: ThreadedProducer<Woken> =
        idempotent(options).set("linger.ms", "0").create_with_context(Woken(say)).expect("a producer");
    let mut took = Vec::new();
    let meter = Meter::start();
    for n in 0..count {
        let start = Instant::now();
        let record = BaseRecord::to(&topic).key(records.key(n)).payload(records.value(n));
        assert!(producer.send(record).is_ok() && heard.recv().expect("a report"), "not delivered");
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    meter.report(count, &format!("\"p50_us\":{:.1}", median(&mut took)));
}

fn first(options: &Options) {
    let start = Instant::now();
    let meter = Meter::start();
    let consumer: BaseConsumer = config(options)
        .set("group.id", options.text("group"))
        .set("auto.offset.reset", "earliest")
        .set("fetch.queue.backoff.ms", "1")
        .create()
        .expect("a consumer");
    consumer.subscribe(&[&options.text("topic")]).expect("subscribed");
    // A rebalance ends a poll without a record.
    let message = (0..1_000).find_map(|_| consumer.poll(PATIENCE)).expect("a record").expect("no error");
    let took = start.elapsed().as_secs_f64() * 1e3;
    assert!(message.payload().is_some());
    drop(message);
    let closing = Instant::now();
    consumer.commit_consumer_state(CommitMode::Sync).expect("committed");
    drop(consumer);
    let closed = closing.elapsed().as_secs_f64() * 1e3;
    meter.report(1, &format!("\"first_ms\":{took:.1},\"close_ms\":{closed:.1}"));
}
