//! What can a test do with a cluster? Start it, reach it, look into it, and break it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use prosody_base::{Doors, Lane, Network, Task};

use super::batch::{self, KeyValue, NewBatch, Record};
use super::config::ClusterConfig;
use super::control::Control;
use super::group::{GroupView, run_timeouts};
use super::invariants::Violation;
use super::journal::Entry;
use super::observe::CommitSeen;
use super::state::{Shared, pipe_address};
use super::storage::{LogEnd, Wants};
use super::topics::lock;
use super::{code, keys};
use crate::net::listen_tcp;

/// A running cluster. Dropping it closes every connection.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) shared: Arc<Shared>,
    _timeouts: Task<()>,
}

impl Cluster {
    /// Starts a cluster that listens on its own pipe network.
    #[must_use]
    pub fn start(config: ClusterConfig, doors: Doors) -> Cluster {
        let shared = Arc::new(Shared::new(config, doors));
        let lane: Lane = shared.config.lane;
        let timeouts = shared.doors.spawner.spawn(lane, run_timeouts(Arc::downgrade(&shared)));
        let cluster = Cluster { shared, _timeouts: timeouts };
        for broker in cluster.brokers() {
            cluster.start_broker(broker);
        }
        cluster
    }

    /// The pipe network that the brokers listen on.
    #[must_use]
    pub fn network(&self) -> Network {
        self.shared.network.clone()
    }

    /// Pipe addresses of all brokers, `b1:9092,b2:9092,…`, for a connector of [`Cluster::network`].
    #[must_use]
    pub fn bootstrap(&self) -> String {
        self.brokers().into_iter().map(pipe_address).collect::<Vec<_>>().join(",")
    }

    /// Listens on 127.0.0.1 too: broker `n` at `port + n − 1`, or anywhere free for port 0.
    ///
    /// # Errors
    /// When a port is taken.
    pub fn serve_tcp(&self, port: u16) -> io::Result<()> {
        for (step, broker) in (0u16..).zip(self.brokers()) {
            let port = if port == 0 { 0 } else { port.saturating_add(step) };
            let (task, port) = listen_tcp(&self.shared, broker, port)?;
            if let Some(state) = lock(&self.shared.brokers).get_mut(&broker) {
                state.tcp = Some(port);
                state.listeners.push(task);
            }
        }
        Ok(())
    }

    /// TCP addresses of all brokers; empty before [`Cluster::serve_tcp`].
    #[must_use]
    pub fn tcp_bootstrap(&self) -> String {
        let brokers = lock(&self.shared.brokers);
        let addresses: Vec<_> = brokers
            .values()
            .filter_map(|broker| broker.tcp)
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        addresses.join(",")
    }

    /// Broker ids, from 1.
    #[must_use]
    pub fn brokers(&self) -> Vec<i32> {
        lock(&self.shared.brokers).keys().copied().collect()
    }

    // ---- topics and logs

    /// Creates a topic with the default replication factor.
    ///
    /// # Errors
    /// Kafka's error code and why.
    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<(), (i16, String)> {
        self.create_topic_with(name, partitions, -1, BTreeMap::new())
    }

    /// Creates a topic; −1 takes the cluster's defaults.
    ///
    /// # Errors
    /// Kafka's error code and why.
    pub fn create_topic_with(
        &self,
        name: &str,
        partitions: i32,
        replication: i16,
        configs: BTreeMap<String, String>,
    ) -> Result<(), (i16, String)> {
        self.shared.create_topic(name, partitions, replication, configs).map(|_| ())
    }

    /// Deletes a topic and its committed offsets; `false` when there is none.
    pub fn delete_topic(&self, name: &str) -> bool {
        match self.shared.topic(name) {
            Some(topic) => {
                self.shared.delete_topic(&topic);
                true
            }
            None => false,
        }
    }

    /// Deletes a topic and creates it again, empty, with a new id.
    ///
    /// # Errors
    /// Kafka's error code and why.
    pub fn recreate_topic(&self, name: &str) -> Result<(), (i16, String)> {
        let topic = self.shared.topic(name).ok_or_else(|| missing(name))?;
        let (count, replication) = (topic.count(), topic.replication);
        let configs = lock(&topic.configs).clone();
        self.shared.delete_topic(&topic);
        self.create_topic_with(name, count, replication, configs)
    }

    /// Names of all topics.
    #[must_use]
    pub fn topics(&self) -> Vec<String> {
        lock(&self.shared.topics).all().iter().map(|topic| topic.name.as_ref().to_owned()).collect()
    }

    /// Partitions of a topic; `None` when there is no such topic.
    #[must_use]
    pub fn partitions(&self, topic: &str) -> Option<i32> {
        self.shared.topic(topic).map(|topic| topic.count())
    }

    /// The id of a topic.
    #[must_use]
    pub fn topic_id(&self, topic: &str) -> Option<[u8; 16]> {
        self.shared.topic(topic).map(|topic| topic.id)
    }

    /// Every data record kept of a partition, decoded; empty when there is no such partition.
    #[must_use]
    pub fn log(&self, topic: &str, partition: i32) -> Vec<Record> {
        self.inner(topic, partition, |inner| inner.log.records()).unwrap_or_default()
    }

    /// Every batch kept of a partition, as a reader receives it.
    #[must_use]
    pub fn batches(&self, topic: &str, partition: i32) -> Vec<Bytes> {
        self.inner(topic, partition, |inner| inner.log.batches()).unwrap_or_default()
    }

    /// Where a log begins and ends.
    #[must_use]
    pub fn log_end(&self, topic: &str, partition: i32) -> Option<LogEnd> {
        self.inner(topic, partition, |inner| inner.log.ends())
    }

    /// Appends records without a client: keys and values, one batch, the broker's time.
    pub fn append(&self, topic: &str, partition: i32, records: &[KeyValue<'_>]) -> Option<i64> {
        self.append_batch(topic, partition, &NewBatch { records, ..self.plain() })
    }

    /// Appends a batch made by the test: transactional, of a producer, with a timestamp. Returns its base offset, `None`
    /// when there is no such partition or its producer's sequence is refused.
    pub fn append_batch(&self, topic: &str, partition: i32, new: &NewBatch<'_>) -> Option<i64> {
        let bytes = new.encode();
        let header = batch::header(&bytes).ok()?;
        let unknown = self.shared.config.unknown_producer;
        self.inner(topic, partition, |inner| {
            let epoch = inner.epoch;
            let appended = inner.log.append(&bytes, &header, epoch, unknown).ok();
            inner.wake();
            appended.map(|appended| appended.base_offset)
        })?
    }

    /// Ends the transaction of a producer on one partition with a marker (KIP-98): later readers of committed data see
    /// its records, or skip them.
    pub fn end_transaction(&self, topic: &str, partition: i32, producer: (i64, i16), commit: bool) -> bool {
        self.shared.mark(topic, partition, producer, commit)
    }

    /// Stores bytes as they are, unchecked, as the records up to `last_offset`: old formats, empty batches, corruption.
    pub fn append_raw(&self, topic: &str, partition: i32, bytes: Bytes, last_offset: i64) -> bool {
        self.inner(topic, partition, |inner| {
            let epoch = inner.epoch;
            inner.log.append_raw(bytes, last_offset, epoch);
            inner.wake();
        })
        .is_some()
    }

    /// Full logs keep what is wanted, whatever its age, and let go of the oldest of the rest. The first call counts.
    pub fn keep(&self, wants: Wants) {
        self.shared.keep.ask(wants);
    }

    /// Removes records below an offset.
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) -> bool {
        self.inner(topic, partition, |inner| {
            inner.log.delete_before(before);
            inner.wake();
        })
        .is_some()
    }

    /// Compacts a log: of each key only the newest record stays, and the last batch as it is. Returns how many records went.
    pub fn compact(&self, topic: &str, partition: i32) -> Option<usize> {
        self.inner(topic, partition, |inner| inner.log.compact())
    }

    fn plain(&self) -> NewBatch<'static> {
        NewBatch {
            attributes: 0,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            timestamp: self.shared.doors.clock.unix_millis(),
            records: &[],
        }
    }

    pub(super) fn inner<T>(
        &self,
        topic: &str,
        partition: i32,
        work: impl FnOnce(&mut super::topics::Inner) -> T,
    ) -> Option<T> {
        let partition = self.shared.topic(topic)?.partition(partition)?;
        let mut inner = partition.lock();
        Some(work(&mut inner))
    }

    // ---- what happened

    /// Rules that take over requests.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.shared.control
    }

    /// The newest requests, oldest first.
    #[must_use]
    pub fn journal(&self) -> Vec<Entry> {
        self.shared.journal.entries()
    }

    /// Requests of one API in the journal.
    #[must_use]
    pub fn requests(&self, api: keys::ApiKey) -> Vec<Entry> {
        let mut entries = self.journal();
        entries.retain(|entry| entry.api == api);
        entries
    }

    /// Requests since the start, also those that left the journal.
    #[must_use]
    pub fn request_count(&self) -> u64 {
        self.shared.journal.total()
    }

    /// Why connections were closed whose bytes are no requests, or none that are served: the newest 256, oldest first.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        self.shared.journal.refusals()
    }

    /// Empties the journal.
    pub fn clear_journal(&self) {
        self.shared.journal.clear();
    }

    /// Calls `observer` at every accepted offset commit, in the order they take effect. Only the first observer counts;
    /// `false` for a later one.
    pub fn observe_commits(&self, observer: impl Fn(CommitSeen<'_>) + Send + Sync + 'static) -> bool {
        self.shared.observers.set(Box::new(observer))
    }

    /// What clients did that must never happen.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.invariants.all()
    }

    /// A group's members, assignments and committed offsets; `None` when there is no such group.
    #[must_use]
    pub fn group(&self, group: &str) -> Option<GroupView> {
        self.shared.coordinator.view(group)
    }

    /// Names of all groups.
    #[must_use]
    pub fn groups(&self) -> Vec<String> {
        self.shared.coordinator.names()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Connections keep the state alive, and the state their tasks: this is where the circle is cut.
        for broker in lock(&self.shared.brokers).values_mut() {
            broker.up = false;
            broker.listeners.clear();
            broker.connections.clear();
        }
    }
}

fn missing(topic: &str) -> (i16, String) {
    (code::UNKNOWN_TOPIC_OR_PARTITION, format!("no topic {topic}"))
}
