//! A client and the in-process broker, both on the paused clock of the test.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "tests; each file uses its part"
)]

mod far;

use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Doors, Instant};
use prosody_testkit::{Cluster, ClusterConfig};
use prosody_wire::fetch::StartAt;
use prosody_wire::produce::{OutgoingRecord, Producer, ProducerConfig, Sending};
use prosody_wire::{Client, ClientConfig, PipeConnector};

/// A cluster, a client of it, and the doors of both.
pub struct World {
    pub cluster: Cluster,
    pub client: Client,
    pub doors: Doors,
}

impl World {
    pub fn new(brokers: i32) -> World {
        World::with(ClusterConfig { brokers, ..ClusterConfig::default() }, 1)
    }

    pub fn with(config: ClusterConfig, seed: u64) -> World {
        let doors = Doors::simulated(seed);
        let cluster = Cluster::start(config, doors.clone());
        let client = client(&cluster, &doors);
        World { cluster, client, doors }
    }

    pub fn now(&self) -> Instant {
        self.doors.clock.now()
    }

    pub fn after(&self, millis: u64) -> Option<Instant> {
        Some(self.now() + Duration::from_millis(millis))
    }

    pub fn producer(&self) -> Producer {
        Producer::new(&self.client, ProducerConfig::default())
    }

    /// Fills partition 0 of `t` with numbered records in batches of about 1,000 bytes, as our producer writes them.
    pub async fn produce_batches(&self, records: usize) {
        let config = ProducerConfig { batch_size: 1_000, ..ProducerConfig::default() };
        let producer = Producer::new(&self.client, config);
        for send in send_all(&producer, "t", 0, numbered("", 0..records), None) {
            send.await.unwrap();
        }
    }

    /// The values of a partition's records, as text.
    pub fn values(&self, topic: &str, partition: i32) -> Vec<String> {
        let value = |record: prosody_testkit::broker::batch::Record| {
            String::from_utf8(record.value.unwrap_or_default().to_vec()).unwrap()
        };
        self.cluster.log(topic, partition).into_iter().map(value).collect()
    }

    pub fn fill(&self, topic: &str, partition: i32, values: impl IntoIterator<Item = String>) {
        for value in values {
            self.cluster.append(topic, partition, &[(Some(b"k"), Some(value.as_bytes()))]).unwrap();
        }
    }
}

pub fn client(cluster: &Cluster, doors: &Doors) -> Client {
    let config = ClientConfig::new(cluster.bootstrap().split(','));
    Client::new(config, Arc::new(PipeConnector(cluster.network())), doors.clone()).unwrap()
}

/// A client that is this far away from every broker.
pub fn far_client(cluster: &Cluster, doors: &Doors, round_trip: Duration) -> Client {
    let config = ClientConfig::new(cluster.bootstrap().split(','));
    let connector = far::FarConnector { network: cluster.network(), round_trip };
    Client::new(config, Arc::new(connector), doors.clone()).unwrap()
}

/// A record for one partition.
pub fn record<'a>(topic: &'a str, partition: i32, value: &'a str) -> OutgoingRecord<'a> {
    OutgoingRecord {
        topic,
        partition: Some(partition),
        key: Some(b"k"),
        value: Some(value.as_bytes()),
        headers: &[],
        timestamp: None,
    }
}

/// Sends `values` to one partition, all at once.
pub fn send_all(
    producer: &Producer,
    topic: &str,
    partition: i32,
    values: impl IntoIterator<Item = String>,
    deadline: Option<Instant>,
) -> Vec<Sending> {
    values.into_iter().map(|value| producer.send(record(topic, partition, &value), deadline)).collect()
}

pub fn numbered(prefix: &str, range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("{prefix}{n}")).collect()
}

/// Letters that no codec makes much smaller, the same ones for a seed.
pub fn letters(seed: u32) -> impl FnMut() -> char {
    let mut random = seed;
    move || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (random >> 24) as u8 % 26)
    }
}

/// Reading begins at this offset, whatever its leader epoch is.
pub fn at(offset: i64) -> StartAt {
    StartAt::Offset { offset, leader_epoch: -1 }
}
