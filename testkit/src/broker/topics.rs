//! Which topics and partitions exist, and who leads them?

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::storage::{Keep, Log};

/// Waiting fetches of connections that are gone are swept once a partition has this many.
const WAITERS_BEFORE_SWEEP: usize = 64;

/// Locks without caring about a panic elsewhere: every critical section here leaves its data consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One partition: its log, its leader and who waits for its next append.
#[derive(Debug)]
pub(crate) struct Partition {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) log: Log,
    /// −1 while no broker can lead.
    pub(crate) leader: i32,
    pub(crate) epoch: i32,
    /// Connection → what wakes its waiting fetch.
    waiters: BTreeMap<u64, Arc<Notify>>,
}

impl Inner {
    /// Wakes every fetch that waits for this partition.
    pub(crate) fn wake(&mut self) {
        for waiter in std::mem::take(&mut self.waiters).into_values() {
            waiter.notify_one();
        }
    }

    pub(crate) fn wait(&mut self, connection: u64, waiter: &Arc<Notify>) {
        if self.waiters.len() >= WAITERS_BEFORE_SWEEP {
            self.waiters.retain(|_, waiter| Arc::strong_count(waiter) > 1);
        }
        self.waiters.insert(connection, Arc::clone(waiter));
    }

    /// Gives the partition to another leader (−1 for none) in a new epoch.
    pub(crate) fn lead(&mut self, leader: i32) {
        self.leader = leader;
        self.epoch += 1;
        self.log.lead(self.epoch);
        self.wake();
    }
}

impl Partition {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

/// One topic. A topic that is deleted and created again is another one, with another id.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    pub(crate) id: [u8; 16],
    pub(crate) replication: i16,
    partitions: Mutex<Vec<Arc<Partition>>>,
    /// Settings that differ from the defaults.
    pub(crate) configs: Mutex<BTreeMap<String, String>>,
}

impl Topic {
    pub(crate) fn new(
        name: &str,
        id: [u8; 16],
        replication: i16,
        configs: BTreeMap<String, String>,
    ) -> Topic {
        let partitions = Mutex::default();
        Topic { name: name.into(), id, replication, partitions, configs: Mutex::new(configs) }
    }

    pub(crate) fn partitions(&self) -> Vec<Arc<Partition>> {
        lock(&self.partitions).clone()
    }

    pub(crate) fn partition(&self, index: i32) -> Option<Arc<Partition>> {
        lock(&self.partitions).get(usize::try_from(index).ok()?).cloned()
    }

    pub(crate) fn count(&self) -> i32 {
        i32::try_from(lock(&self.partitions).len()).unwrap_or(i32::MAX)
    }

    /// Adds partitions led by the given brokers.
    pub(crate) fn add(&self, leaders: impl Iterator<Item = i32>, log_bytes: usize, keep: &Keep) {
        let mut partitions = lock(&self.partitions);
        for leader in leaders {
            let index = i32::try_from(partitions.len()).unwrap_or(i32::MAX);
            let name = format!("{}[{index}]", self.name);
            let log = Log::new(name, log_bytes).keeping(self.id, index, keep.clone());
            let inner = Inner { log, leader, epoch: 0, waiters: BTreeMap::new() };
            partitions.push(Arc::new(Partition { inner: Mutex::new(inner) }));
        }
    }

    pub(crate) fn config(&self, name: &str) -> Option<String> {
        lock(&self.configs).get(name).cloned()
    }
}

/// Every topic, by name and by id.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    by_name: BTreeMap<Arc<str>, Arc<Topic>>,
    by_id: BTreeMap<[u8; 16], Arc<Topic>>,
}

impl Topics {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Topic>> {
        self.by_name.get(name).cloned()
    }

    pub(crate) fn by_id(&self, id: &[u8; 16]) -> Option<Arc<Topic>> {
        self.by_id.get(id).cloned()
    }

    pub(crate) fn insert(&mut self, topic: Arc<Topic>) {
        self.by_id.insert(topic.id, Arc::clone(&topic));
        self.by_name.insert(Arc::clone(&topic.name), topic);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Arc<Topic>> {
        let topic = self.by_name.remove(name)?;
        self.by_id.remove(&topic.id);
        Some(topic)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Topic>> {
        self.by_name.values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }
}

/// Whether Kafka accepts the name of a topic: 1–249 of `[a-zA-Z0-9._-]`, not `.` or `..`.
pub(crate) fn is_valid_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= 249 && name != "." && name != ".." && name.bytes().all(legal)
}
