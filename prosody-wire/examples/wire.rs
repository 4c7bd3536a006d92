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
//! | verb and options | what it does |
//! |---|---|
//! | `create --bootstrap B --topic T --partitions N`, `delete …` | makes a topic whose files go soon after it is deleted |
//! | `produce … --count N --size S --keys K` | pipelined; `--codec none` instead of lz4, `--partition P` for one partition |
//! | `consume … --count N --partitions N` | every record is looked at; `--buffer MIB` instead of the default |
//! | `send … --count N` | one awaited send at a time, everything on one thread; `p50_us` |
//! | `idle … --partitions N` | what a group member that was assigned all of an empty topic holds; `grown_kib` |
//! | `broker --count N --size S --keys K` | producing to the testkit broker in this process and consuming, both at once |
//!
//! `--through ADDRESS` dials that address instead of every broker's: a delaying proxy in front of the only broker.
//! Producing and consuming also say how many requests there were and how long the mean one took.

#[path = "../../benches/common.rs"]
mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Meter, Options, Records, median};
use prosody_base::{Distribution, Doors};
use prosody_wire::batch::Compression;
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, PartitionReader, StartAt};
use prosody_wire::group::{Group, GroupConfig, GroupEvent};
use prosody_wire::produce::{OutgoingRecord, Producer, ProducerConfig, Sending};
use prosody_wire::{
    BoxFuture, Client, ClientConfig, Connector, NewTopic, PipeConnector, Stream, TcpConnector, TopicPartition,
};
use tokio::sync::mpsc;

/// Records that may wait for their acknowledgement, as many as librdkafka's queue takes by default.
const WINDOW: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (what, options) = Options::from_args();
    match what.as_str() {
        "create" => create(&options).await,
        "delete" => delete(&options).await,
        "produce" => produce(&options).await,
        "consume" => consume(&options).await,
        "send" => send(&options).await,
        "idle" => idle(&options).await,
        "broker" => broker(&options).await,
        other => panic!("create, delete, produce, consume, send, idle or broker, not {other}"),
    }
}

/// Dials one address, whatever broker is meant.
#[derive(Debug)]
struct Through(String, u16);

impl Connector for Through {
    fn connect<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, std::io::Result<Box<dyn Stream>>> {
        TcpConnector.connect(&self.0, self.1)
    }
}

fn client(options: &Options) -> Client {
    client_in(options, Doors::process().expect("threads"))
}

fn client_in(options: &Options, doors: Doors) -> Client {
    let config = ClientConfig::new(options.text("bootstrap").split(',').map(str::to_owned));
    let connector: Arc<dyn Connector> = match options.maybe("through") {
        None => Arc::new(TcpConnector),
        Some(address) => {
            let (host, port) = address.split_once(':').expect("host:port");
            Arc::new(Through(host.to_owned(), port.parse().expect("a port")))
        }
    };
    Client::new(config, connector, doors).expect("a configuration")
}

/// Requests of a kind to all brokers, and how long the mean one took.
fn requests<'a>(figures: impl Iterator<Item = &'a Distribution>) -> String {
    let (count, sum) =
        figures.fold((0, Duration::ZERO), |(count, sum), one| (count + one.count(), sum + one.sum));
    let mean = sum.as_secs_f64() * 1e3 / count.max(1) as f64;
    format!("\"requests\":{count},\"request_ms\":{mean:.3}")
}

fn deadline() -> prosody_base::Instant {
    prosody_base::Instant::now() + PATIENCE
}

async fn create(options: &Options) {
    let meter = Meter::start();
    let mut topic = NewTopic::new(options.text("topic")).partitions(options.number("partitions") as i32);
    topic.configs.push(("file.delete.delay.ms".to_owned(), "1000".to_owned()));
    client(options).admin().create_topic(&topic, deadline()).await.expect("created");
    meter.report(0, "");
}

async fn delete(options: &Options) {
    let meter = Meter::start();
    client(options).admin().delete_topic(&options.text("topic"), deadline()).await.expect("deleted");
    meter.report(0, "");
}

fn record<'a>(topic: &'a str, partition: Option<i32>, records: &'a Records, n: u64) -> OutgoingRecord<'a> {
    OutgoingRecord {
        topic,
        partition,
        key: Some(records.key(n).as_bytes()),
        value: Some(records.value(n)),
        headers: &[],
        timestamp: None,
    }
}

async fn produce(options: &Options) {
    let (topic, count) = (options.text("topic"), options.number("count"));
    let records = Records::new(options.number("keys"), options.number("size") as usize);
    let mut config = ProducerConfig::default();
    if options.maybe("codec").is_some_and(|codec| codec == "none") {
        config.compression = Compression::None;
    }
    let partition = options.maybe("partition").map(|partition| partition.parse().expect("a partition"));
    let meter = Meter::start();
    let client = client(options);
    send_all(&Producer::new(&client, config), &topic, partition, &records, count).await;
    meter.report(count, &requests(client.brokers().iter().map(|broker| &broker.produce)));
}

async fn send_all(producer: &Producer, topic: &str, partition: Option<i32>, records: &Records, count: u64) {
    // Beyond the producer's memory each record would be copied once more.
    let window = WINDOW.min(ProducerConfig::default().memory * 3 / 4 / records.value(0).len());
    let mut waiting: VecDeque<Sending> = VecDeque::with_capacity(window);
    for n in 0..count {
        if waiting.len() == window {
            // Half of the window at once: one wake-up for many records, as a callback would be.
            for sending in waiting.drain(..window / 2) {
                sending.await.expect("acknowledged");
            }
        }
        waiting.push_back(producer.send(record(topic, partition, records, n), None));
    }
    for sending in waiting {
        sending.await.expect("acknowledged");
    }
    producer.close(deadline()).await.expect("nothing is under way");
}

async fn consume(options: &Options) {
    let (topic, count) = (options.text("topic"), options.number("count"));
    let meter = Meter::start();
    let client = client(options);
    let mut config = FetchConfig::default();
    if let Some(mebibytes) = options.maybe("buffer") {
        config.buffer_bytes = mebibytes.parse::<usize>().expect("a number") << 20;
    }
    let fetcher = Fetcher::new(&client, config);
    let (seen, bytes, half) = read_all(&fetcher, &topic, options.number("partitions") as i32, count).await;
    let steady = half.elapsed().as_secs_f64();
    let requests = requests(client.brokers().iter().map(|broker| &broker.fetch));
    meter.report(seen, &format!("\"bytes\":{bytes},\"second_half_seconds\":{steady:.4},{requests}"));
}

/// Returns how many records and bytes there were, and when half of the records had been seen.
async fn read_all(fetcher: &Fetcher, topic: &str, partitions: i32, count: u64) -> (u64, u64, Instant) {
    let (say, mut heard) = mpsc::channel(64);
    for partition in 0..partitions {
        let tp = TopicPartition { topic: topic.into(), partition };
        tokio::spawn(read(fetcher.open(tp, StartAt::Offset { offset: 0, leader_epoch: -1 }), say.clone()));
    }
    let (mut seen, mut bytes, mut half) = (0, 0, Instant::now());
    while seen < count {
        let (more, size) =
            tokio::time::timeout(PATIENCE, heard.recv()).await.expect("records").expect("readers");
        if seen < count / 2 {
            half = Instant::now();
        }
        seen += more;
        bytes += size;
    }
    (seen, bytes, half)
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
    let producer = Producer::new(&client_in(options, Doors::current()), ProducerConfig::default());
    let mut took = Vec::new();
    let meter = Meter::start();
    for n in 0..count {
        let start = Instant::now();
        producer.send(record(&topic, None, &records, n), None).await.expect("acknowledged");
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    meter.report(count, &format!("\"p50_us\":{:.1}", median(&mut took)));
}

/// Joins a group, takes all partitions of the topic, and opens a reader for each. The topic is empty.
async fn idle(options: &Options) {
    let (topic, partitions) = (options.text("topic"), options.number("partitions"));
    let meter = Meter::start();
    let before = rss_kib();
    let client = client(options);
    let fetcher = Fetcher::new(&client, FetchConfig::default());
    let mut group = Group::join(&client, GroupConfig::new(&*options.text("group"), [topic.as_str().into()]));
    let mut readers = Vec::new();
    while (readers.len() as u64) < partitions {
        match tokio::time::timeout(PATIENCE, group.event()).await.expect("an assignment") {
            GroupEvent::Assigned { partitions, .. } => {
                readers.extend(partitions.into_iter().map(|one| fetcher.open(one.tp, StartAt::Earliest)));
            }
            other => panic!("{other:?}"),
        }
    }
    // Idle: every partition was looked at, and a poll has come back empty since.
    while (fetcher.high_watermarks().len() as u64) < partitions {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let grown = rss_kib() - before;
    group.leave(deadline()).await;
    meter.report(0, &format!("\"grown_kib\":{grown}"));
}

fn rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Producer, broker and consumer in this process; `cargo xtask bench` gives it one core.
async fn broker(options: &Options) {
    let count = options.number("count");
    let records = Records::new(options.number("keys"), options.number("size") as usize);
    let doors = Doors::process().expect("threads");
    let cluster = prosody_testkit::Cluster::start(prosody_testkit::ClusterConfig::default(), doors.clone());
    cluster.create_topic("t", 1).expect("created");
    let config = ClientConfig::new(cluster.bootstrap().split(','));
    let client =
        Client::new(config, Arc::new(PipeConnector(cluster.network())), doors).expect("a configuration");
    let meter = Meter::start();
    // 1,000 records.
    let config = ProducerConfig { batch_size: 115_000, ..ProducerConfig::default() };
    let producer = Producer::new(&client, config);
    let fetcher = Fetcher::new(&client, FetchConfig::default());
    let (_, (seen, ..)) =
        tokio::join!(send_all(&producer, "t", Some(0), &records, count), read_all(&fetcher, "t", 1, count));
    // The log keeps the newest only.
    let batches: u64 = client.brokers().iter().map(|broker| broker.produce.count()).sum();
    assert!(cluster.violations().is_empty());
    meter.report(seen, &format!("\"batches\":{batches}"));
}
