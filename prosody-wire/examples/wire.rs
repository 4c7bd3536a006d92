#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    unreachable_pub,
    reason = "a bench program"
)]
//! How fast is the Kafka layer alone? The program `cargo xtask bench` runs beside other clients.
//!
//! `create --bootstrap B --topic T --partitions N`, `produce … --count N --size S --keys K`,
//! `consume … --count N --partitions N`, `send … --count N`

#[path = "../../benches/common.rs"]
mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Meter, Options, Records, median};
use prosody_base::Doors;
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, PartitionReader, StartAt};
use prosody_wire::produce::{OutgoingRecord, Producer, ProducerConfig, Sending};
use prosody_wire::{Client, ClientConfig, NewTopic, TcpConnector, TopicPartition};
use tokio::sync::mpsc;

/// Records that may wait for their acknowledgement, as many as librdkafka's queue takes by default.
const WINDOW: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (what, options) = Options::from_args();
    match what.as_str() {
        "create" => create(&options).await,
        "produce" => produce(&options).await,
        "consume" => consume(&options).await,
        "send" => send(&options).await,
        other => panic!("create, produce, consume or send, not {other}"),
    }
}

fn client(options: &Options) -> Client {
    let doors = Doors::process().expect("threads");
    let config = ClientConfig::new(options.text("bootstrap").split(',').map(str::to_owned));
    Client::new(config, Arc::new(TcpConnector), doors).expect("a configuration")
}

fn deadline() -> prosody_base::Instant {
    prosody_base::Instant::now() + PATIENCE
}

async fn create(options: &Options) {
    let meter = Meter::start();
    let topic = NewTopic::new(options.text("topic")).partitions(options.number("partitions") as i32);
    client(options).admin().create_topic(&topic, deadline()).await.expect("created");
    meter.report(0, "");
}

fn record<'a>(topic: &'a str, records: &'a Records, n: u64) -> OutgoingRecord<'a> {
    OutgoingRecord {
        topic,
        partition: None,
        key: Some(records.key(n).as_bytes()),
        value: Some(records.value(n)),
        headers: &[],
        timestamp: None,
    }
}

async fn produce(options: &Options) {
    let (topic, count) = (options.text("topic"), options.number("count"));
    let records = Records::new(options.number("keys"), options.number("size") as usize);
    let meter = Meter::start();
    let producer = Producer::new(&client(options), ProducerConfig::default());
    let mut waiting: VecDeque<Sending> = VecDeque::with_capacity(WINDOW);
    for n in 0..count {
        if waiting.len() == WINDOW {
            // Half of the window at once: one wake-up for many records, as a callback would be.
            for sending in waiting.drain(..WINDOW / 2) {
                sending.await.expect("acknowledged");
            }
        }
        waiting.push_back(producer.send(record(&topic, &records, n), None));
    }
    for sending in waiting {
        sending.await.expect("acknowledged");
    }
    producer.close(deadline()).await.expect("nothing is under way");
    meter.report(count, "");
}

async fn consume(options: &Options) {
    let (topic, count) = (options.text("topic"), options.number("count"));
    let meter = Meter::start();
    let fetcher = Fetcher::new(&client(options), FetchConfig::default());
    let (say, mut heard) = mpsc::channel(64);
    for partition in 0..options.number("partitions") as i32 {
        let tp = TopicPartition { topic: topic.as_str().into(), partition };
        tokio::spawn(read(fetcher.open(tp, StartAt::Offset { offset: 0, leader_epoch: -1 }), say.clone()));
    }
    let (mut seen, mut bytes) = (0, 0);
    while seen < count {
        let (more, size) =
            tokio::time::timeout(PATIENCE, heard.recv()).await.expect("records").expect("readers");
        seen += more;
        bytes += size;
    }
    meter.report(seen, &format!("\"bytes\":{bytes}"));
}

/// Looks at every record of a partition and says how many there were in each batch, and their size.
async fn read(mut reader: PartitionReader, say: mpsc::Sender<(u64, u64)>) {
    let mut next = 0;
    loop {
        let FetchItem::Batch(batch) = reader.next().await else { panic!("a reset or an error") };
        let (mut records, mut bytes) = (0, 0);
        for record in batch.records() {
            let record = record.expect("readable");
            assert_eq!(record.offset(), next, "a gap");
            next += 1;
            records += 1;
            bytes += record.key().map_or(0, <[u8]>::len) + record.value().map_or(0, <[u8]>::len);
        }
        if say.send((records, bytes as u64)).await.is_err() {
            return;
        }
    }
}

async fn send(options: &Options) {
    let (topic, count) = (options.text("topic"), options.number("count"));
    let records = Records::new(16, 100);
    let producer = Producer::new(&client(options), ProducerConfig::default());
    let mut took = Vec::new();
    let meter = Meter::start();
    for n in 0..count {
        let start = Instant::now();
        producer.send(record(&topic, &records, n), None).await.expect("acknowledged");
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    meter.report(count, &format!("\"p50_us\":{:.1}", median(&mut took)));
}
