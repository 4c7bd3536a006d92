//! krafka, with the two settings that make it fair: `max_poll_records` and `max_buffered_records` of 10,000. At its
//! defaults of 500 it costs the broker fifteen times more.
//!
//! `produce|consume --bootstrap B --topic T --count N --size S --keys K --codec none|lz4`, `send … --count N`,
//! `first … --group G`

#[path = "../../../common.rs"]
mod common;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Meter, Options, Records, median};
use krafka::consumer::{AutoOffsetReset, ConsumerBuilder, GroupProtocol};
use krafka::{Compression, Kafka, Record};

const PATIENCE: Duration = Duration::from_secs(60);
const BUFFERED: i32 = 10_000;
/// Records that may wait for their acknowledgement, as many as librdkafka's queue takes by default.
const WINDOW: usize = 100_000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (what, options) = Options::from_args();
    match what.as_str() {
        "produce" => produce(&options).await,
        "consume" => consume(&options).await,
        "send" => send(&options).await,
        "first" => first(&options).await,
        other => panic!("produce, consume, send or first, not {other}"),
    }
}

async fn kafka(options: &Options) -> Kafka {
    Kafka::builder(options.text("bootstrap")).connect().await.expect("a connection")
}

/// Keys and values as its API takes them, made before the clock starts.
struct Made {
    keys: Vec<Bytes>,
    values: Vec<Bytes>,
}

impl Made {
    fn new(keys: u64, size: usize) -> Made {
        let records = Records::new(keys, size);
        let key = |n| Bytes::copy_from_slice(records.key(n).as_bytes());
        let value = |n| Bytes::copy_from_slice(records.value(n));
        // Both repeat after this many.
        Made { keys: (0..keys).map(key).collect(), values: (0..1 << 14).map(value).collect() }
    }

    fn record(&self, topic: &str, n: u64) -> Record {
        let value = self.values[n as usize % self.values.len()].clone();
        Record::new(topic, value).key(self.keys[n as usize % self.keys.len()].clone())
    }
}

async fn produce(options: &Options) {
    let (topic, count) = (options.text("topic"), options.number("count"));
    let made = Made::new(options.number("keys"), options.number("size") as usize);
    let meter = Meter::start();
    let kafka = kafka(options).await;
    let producer = kafka.producer().compression(Compression::Lz4).build().await.expect("a producer");
    let mut waiting = VecDeque::with_capacity(WINDOW);
    for n in 0..count {
        if waiting.len() == WINDOW {
            for handle in waiting.drain(..WINDOW / 2) {
                let _: krafka::producer::RecordMetadata = handle_of(handle).await;
            }
        }
        waiting.push_back(producer.enqueue(made.record(&topic, n)).await.expect("enqueued"));
    }
    for handle in waiting {
        handle_of(handle).await;
    }
    producer.close().await.expect("closed");
    meter.report(count, "");
}

async fn handle_of<F: Future<Output = krafka::Result<T>>, T>(handle: F) -> T {
    handle.await.expect("acknowledged")
}

fn tuned(builder: ConsumerBuilder) -> ConsumerBuilder {
    builder
        .max_poll_records(BUFFERED)
        .max_buffered_records(BUFFERED)
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .enable_auto_commit(false)
}

async fn consume(options: &Options) {
    let (topic, count) = (options.text("topic"), options.number("count"));
    let partitions = options.number("partitions") as i32;
    let meter = Meter::start();
    let kafka = kafka(options).await;
    let consumer = tuned(kafka.consumer_without_group()).build().await.expect("a consumer");
    consumer.assign(&topic, (0..partitions).collect()).await.expect("assigned");
    let mut next = vec![0_i64; partitions as usize];
    let (mut seen, mut bytes) = (0_u64, 0_u64);
    while seen < count {
        assert!(meter.elapsed() < PATIENCE * 5, "no records");
        for record in consumer.poll(PATIENCE).await.expect("polled") {
            let next = &mut next[record.partition as usize];
            assert_eq!(record.offset, *next, "a gap");
            *next += 1;
            let length = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len) as u64;
            bytes += length(&record.key) + length(&record.value);
            seen += 1;
        }
    }
    meter.report(seen, &format!("\"bytes\":{bytes}"));
}

/// One record at a time, each awaited, without lingering.
async fn send(options: &Options) {
    let (topic, count) = (options.text("topic"), options.number("count"));
    let made = Made::new(16, 100);
    let kafka = kafka(options).await;
    let builder = kafka.producer().compression(Compression::Lz4).linger(Duration::ZERO);
    let producer = builder.build().await.expect("a producer");
    let mut took = Vec::new();
    let meter = Meter::start();
    for n in 0..count {
        let start = Instant::now();
        producer.send(made.record(&topic, n)).await.expect("acknowledged");
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    meter.report(count, &format!("\"p50_us\":{:.1}", median(&mut took)));
}

/// A new group's first record, and how long closing takes then, the commit included.
async fn first(options: &Options) {
    let start = Instant::now();
    let meter = Meter::start();
    let kafka = kafka(options).await;
    let builder = tuned(kafka.consumer(options.text("group"))).group_protocol(GroupProtocol::Classic);
    let consumer = builder.build().await.expect("a consumer");
    consumer.subscribe([options.text("topic")]).await.expect("subscribed");
    // A rebalance ends a poll without a record.
    let record = loop {
        assert!(meter.elapsed() < PATIENCE, "no record");
        if let Some(record) = consumer.poll(PATIENCE).await.expect("polled").into_iter().next() {
            break record;
        }
    };
    let took = start.elapsed().as_secs_f64() * 1e3;
    assert!(record.value.is_some());
    let closing = Instant::now();
    consumer.commit().await.expect("committed");
    consumer.close().await.expect("closed");
    let closed = closing.elapsed().as_secs_f64() * 1e3;
    meter.report(1, &format!("\"first_ms\":{took:.1},\"close_ms\":{closed:.1}"));
}
