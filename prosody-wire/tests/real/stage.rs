//! The cluster the tests are given, a topic for each, and what they read and write there.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Doors, Instant};
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, PartitionReader, StartAt};
use prosody_wire::group::{GroupConfig, GroupProtocol};
use prosody_wire::produce::{OutgoingRecord, Producer, ProducerConfig};
use prosody_wire::{Client, ClientConfig, Limits, NewTopic, TopicPartition};

use crate::support::Member;
use crate::wires::Wires;

/// Where the brokers are.
const ADDRESSES: &str = "PROSODY_REAL_KAFKA";
/// Whether they serve the consumer protocol (KIP-848).
const CONSUMER_PROTOCOL: &str = "PROSODY_REAL_KAFKA_CONSUMER_PROTOCOL";
/// For anything that is expected to happen: longer than a JoinGroup whose answer never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(100);

pub(crate) struct Stage {
    pub(crate) brokers: Vec<String>,
    /// The test's own topic, and the group of its members.
    pub(crate) topic: String,
    pub(crate) doors: Doors,
    pub(crate) client: Client,
    pub(crate) protocol: GroupProtocol,
}

/// Runs a test where there is a Kafka with at least this many brokers, once for each of the protocols that it serves.
pub(crate) fn play<F: Future<Output = ()>>(
    name: &str,
    brokers: usize,
    protocols: &[GroupProtocol],
    test: impl Fn(Stage) -> F,
) {
    let Ok(addresses) = std::env::var(ADDRESSES) else {
        return eprintln!("{name}: skipped, {ADDRESSES} names no Kafka");
    };
    let addresses: Vec<String> = addresses.split(',').map(str::to_owned).collect();
    let serves_consumer = std::env::var(CONSUMER_PROTOCOL).is_ok();
    if addresses.len() < brokers || (protocols == [GroupProtocol::Consumer] && !serves_consumer) {
        return eprintln!("{name}: skipped, it needs {brokers} brokers, {protocols:?}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for protocol in protocols {
        if *protocol == GroupProtocol::Consumer && !serves_consumer {
            continue;
        }
        runtime.block_on(async {
            // A cluster may be used again.
            let topic = format!("{name}-{protocol:?}-{}", std::process::id()).to_lowercase();
            let stage = Stage::new(addresses.clone(), topic, *protocol);
            tokio::time::timeout(4 * PATIENCE, test(stage)).await.expect("a test ends");
        });
    }
}

pub(crate) const BOTH: &[GroupProtocol] = &[GroupProtocol::Classic, GroupProtocol::Consumer];
pub(crate) const CLASSIC: &[GroupProtocol] = &[GroupProtocol::Classic];
pub(crate) const CONSUMER: &[GroupProtocol] = &[GroupProtocol::Consumer];

impl Stage {
    fn new(brokers: Vec<String>, topic: String, protocol: GroupProtocol) -> Stage {
        let doors = Doors::process().unwrap();
        let client = client(&brokers, &doors, &Wires::new(), Limits::default());
        Stage { brokers, topic, doors, client, protocol }
    }

    /// Another client of the same cluster, whose connections go through these wires.
    pub(crate) fn client_over(&self, wires: &Wires, limits: Limits) -> Client {
        client(&self.brokers, &self.doors, wires, limits)
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.doors.clock.now() + PATIENCE
    }

    pub(crate) async fn create(&self, partitions: i32, configs: &[(&str, &str)]) {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut topic = NewTopic::new(self.topic.as_str()).partitions(partitions);
        topic.configs = configs.iter().map(own).collect();
        self.client.admin().create_topic(&topic, self.deadline()).await.unwrap();
    }

    pub(crate) fn tp(&self, partition: i32) -> TopicPartition {
        TopicPartition::new(self.topic.as_str(), partition)
    }

    pub(crate) fn record<'a>(&'a self, partition: i32, value: &'a str) -> OutgoingRecord<'a> {
        OutgoingRecord {
            topic: &self.topic,
            partition: Some(partition),
            key: Some(b"k"),
            value: Some(value.as_bytes()),
            headers: &[],
            timestamp: None,
        }
    }

    pub(crate) async fn fill(&self, partition: i32, values: impl IntoIterator<Item = String>) {
        let producer = Producer::new(&self.client, ProducerConfig::default());
        let deadline = Some(self.deadline());
        let values: Vec<String> = values.into_iter().collect();
        let sends: Vec<_> =
            values.iter().map(|value| producer.send(self.record(partition, value), deadline)).collect();
        for send in sends {
            send.await.unwrap();
        }
    }

    pub(crate) fn reader(&self, partition: i32, offset: i64) -> PartitionReader {
        let fetcher = Fetcher::new(&self.client, FetchConfig::default());
        fetcher.open(self.tp(partition), StartAt::Offset { offset, leader_epoch: -1 })
    }

    pub(crate) fn group(&self) -> GroupConfig {
        GroupConfig {
            protocol: self.protocol,
            ..GroupConfig::new(self.topic.as_str(), [self.topic.as_str().into()])
        }
    }

    /// A member with a client of its own.
    pub(crate) fn join(&self) -> Member {
        self.join_with(self.group(), Duration::ZERO)
    }

    pub(crate) fn join_with(&self, config: GroupConfig, drain: Duration) -> Member {
        let client = self.client_over(&Wires::new(), Limits::default());
        Member::of(client, self.doors.clone(), config, drain)
    }

    /// What the group has committed for this partition, as the broker says.
    pub(crate) async fn committed(&self, partition: i32) -> Option<i64> {
        let all = self.client.admin().group_offsets(&self.topic, &self.topic, self.deadline()).await.unwrap();
        all.get(&partition).map(|one| one.offset)
    }
}

fn client(brokers: &[String], doors: &Doors, wires: &Wires, limits: Limits) -> Client {
    let mut config = ClientConfig::new(brokers);
    config.limits = limits;
    Client::new(config, Arc::new(wires.clone()), doors.clone()).unwrap()
}

/// The next item, which must come.
pub(crate) async fn next(reader: &mut PartitionReader) -> FetchItem {
    tokio::time::timeout(PATIENCE, reader.next()).await.expect("something to read")
}

/// Values from here on, until the batch that holds the last of them; nothing but batches may come.
pub(crate) async fn values(reader: &mut PartitionReader, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let FetchItem::Batch(batch) = next(reader).await else { panic!("not a batch") };
        let value = |record: prosody_wire::batch::RecordView<'_>| {
            String::from_utf8(record.value().unwrap_or_default().to_vec()).unwrap()
        };
        seen.extend(batch.records().map(|record| value(record.unwrap())));
    }
    seen
}

pub(crate) fn numbered(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}
