//! What do all brokers of a cluster share?

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prosody_base::{Doors, Network, Task};

use super::config::ClusterConfig;
use super::control::Control;
use super::group::Coordinator;
use super::group::modern::Times;
use super::invariants::Invariants;
use super::journal::Journal;
use super::observe::Observers;
use super::sessions::Sessions;
use super::storage::Keep;
use super::topics::{Topic, Topics, is_valid_name, lock};
use super::transactions::Transactions;
use super::{Limits, code};

/// Settings of groups, as Kafka calls them.
pub(crate) const SESSION_TIMEOUT: &str = "consumer.session.timeout.ms";
pub(crate) const HEARTBEAT_INTERVAL: &str = "consumer.heartbeat.interval.ms";

/// Port that every broker has on its pipe address; the host tells them apart.
const PIPE_PORT: u16 = 9_092;

/// Id, partitions, replication factor and settings of a topic that was, or could be, created.
pub(crate) type Checked = Result<([u8; 16], i32, i16, Vec<(&'static str, String, i8)>), (i16, String)>;

/// How a client reached a broker; it is told addresses of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Pipe,
    Tcp,
}

/// What metadata says about a partition instead of the truth; `None` is the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Its leader; −1 for none.
    pub leader: Option<i32>,
    /// Its leader epoch.
    pub epoch: Option<i32>,
    /// Its error code.
    pub error: Option<i16>,
}

/// One broker.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) up: bool,
    pub(crate) tcp: Option<u16>,
    pub(crate) sessions: Arc<Mutex<Sessions>>,
    /// Listeners and connections; dropping them closes everything.
    pub(crate) listeners: Vec<Task<()>>,
    pub(crate) connections: BTreeMap<u64, Task<()>>,
}

/// The cluster's state. Locks are held briefly, never two of the same kind, in the order: brokers, topics, a partition.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: ClusterConfig,
    pub(crate) doors: Doors,
    pub(crate) network: Network,
    pub(crate) topics: Mutex<Topics>,
    pub(crate) brokers: Mutex<BTreeMap<i32, Broker>>,
    pub(crate) coordinator: Coordinator,
    /// Group or transactional id → its coordinator.
    coordinators: Mutex<BTreeMap<String, i32>>,
    pub(crate) control: Control,
    pub(crate) journal: Journal,
    pub(crate) invariants: Invariants,
    pub(crate) observers: Observers,
    pub(crate) next_connection: AtomicU64,
    pub(crate) next_producer: AtomicI64,
    pub(crate) transactions: Transactions,
    /// Who says what full logs keep.
    pub(crate) keep: Keep,
    /// What metadata answers say that is not so.
    pub(crate) script: Mutex<BTreeMap<(String, i32), Told>>,
}

impl Shared {
    pub(crate) fn new(config: ClusterConfig, doors: Doors) -> Shared {
        let limits = &config.limits;
        let broker = || Broker {
            up: false,
            tcp: None,
            sessions: Arc::new(Mutex::new(Sessions::new(limits.fetch_sessions))),
            listeners: Vec::new(),
            connections: BTreeMap::new(),
        };
        Shared {
            brokers: Mutex::new((1..=config.brokers.max(1)).map(|id| (id, broker())).collect()),
            network: Network::default(),
            topics: Mutex::default(),
            coordinator: Coordinator::new(config.initial_rebalance_delay, limits.groups, limits.members),
            coordinators: Mutex::default(),
            control: Control::new(doors.rng.fork()),
            journal: Journal::new(limits.journal),
            invariants: Invariants::new(limits.violations),
            observers: Observers::default(),
            next_connection: AtomicU64::new(1),
            next_producer: AtomicI64::new(1_000),
            transactions: Transactions::default(),
            keep: Keep::default(),
            script: Mutex::default(),
            config,
            doors,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// Host and port under which a client of this transport reaches a broker; `None` while it is down.
    pub(crate) fn address(&self, broker: i32, transport: Transport) -> Option<(String, u16)> {
        let brokers = lock(&self.brokers);
        let known = brokers.get(&broker).filter(|broker| broker.up)?;
        match transport {
            Transport::Pipe => Some((pipe_host(broker), PIPE_PORT)),
            Transport::Tcp => known.tcp.map(|port| ("127.0.0.1".to_owned(), port)),
        }
    }

    /// Brokers that are up, in order.
    pub(crate) fn alive(&self) -> Vec<i32> {
        lock(&self.brokers).iter().filter(|(_, broker)| broker.up).map(|(id, _)| *id).collect()
    }

    /// Times of a group of the new protocol: its own settings, else the cluster's.
    pub(crate) fn group_times(&self, group: &str) -> Times {
        let own = self.coordinator.settings(group);
        let time = |name: &str, default| {
            own.get(name).and_then(|ms| ms.parse().ok()).map_or(default, Duration::from_millis)
        };
        Times {
            session: time(SESSION_TIMEOUT, self.config.consumer_session_timeout),
            heartbeat: time(HEARTBEAT_INTERVAL, self.config.consumer_heartbeat_interval),
        }
    }

    pub(crate) fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        lock(&self.topics).get(name)
    }

    pub(crate) fn topic_by_id(&self, id: &[u8; 16]) -> Option<Arc<Topic>> {
        lock(&self.topics).by_id(id)
    }

    /// Creates a topic; −1 takes the defaults.
    pub(crate) fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        replication: i16,
        configs: BTreeMap<String, String>,
    ) -> Result<Arc<Topic>, (i16, String)> {
        let (partitions, replication) = self.topic_counts(name, partitions, replication)?;
        let alive = self.alive();
        let mut topics = lock(&self.topics);
        if topics.get(name).is_some() {
            return Err((code::TOPIC_ALREADY_EXISTS, format!("topic {name} exists already")));
        }
        if topics.len() >= self.limits().topics {
            return Err((code::INVALID_REQUEST, format!("{} topics exist already", self.limits().topics)));
        }
        let topic = Arc::new(Topic::new(name, self.topic_id(), replication, configs));
        self.add_partitions(&topic, partitions, &alive);
        topics.insert(Arc::clone(&topic));
        Ok(topic)
    }

    /// What CreateTopics with `validate_only` answers: an empty id, the counts, no settings.
    pub(crate) fn check_topic(&self, name: &str, partitions: i32, replication: i16) -> Checked {
        let (partitions, replication) = self.topic_counts(name, partitions, replication)?;
        if self.topic(name).is_some() {
            return Err((code::TOPIC_ALREADY_EXISTS, format!("topic {name} exists already")));
        }
        Ok(([0; 16], partitions, replication, Vec::new()))
    }

    /// Checks a name and fills in defaults.
    fn topic_counts(
        &self,
        name: &str,
        partitions: i32,
        replication: i16,
    ) -> Result<(i32, i16), (i16, String)> {
        if !is_valid_name(name) {
            let why = format!("{name:?} is not a topic name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'");
            return Err((code::INVALID_TOPIC_EXCEPTION, why));
        }
        let partitions = if partitions == -1 { self.config.default_partitions } else { partitions };
        let bound = i32::try_from(self.limits().partitions).unwrap_or(i32::MAX);
        if partitions < 1 || partitions > bound {
            return Err((
                code::INVALID_PARTITIONS,
                format!("{partitions} partitions; 1 to {bound} are possible"),
            ));
        }
        let brokers = i16::try_from(self.config.brokers).unwrap_or(i16::MAX).max(1);
        let replication = if replication == -1 { brokers.min(3) } else { replication };
        if replication < 1 || replication > brokers {
            let why = format!("replication factor {replication} with {brokers} brokers");
            return Err((code::INVALID_REPLICATION_FACTOR, why));
        }
        Ok((partitions, replication))
    }

    /// Grows a topic to `count` partitions.
    pub(crate) fn add_partitions(&self, topic: &Topic, count: i32, alive: &[i32]) {
        let leader = |index| {
            let replicas = self.replicas(index, topic.replication);
            replicas.into_iter().find(|broker| alive.contains(broker)).unwrap_or(-1)
        };
        topic.add((topic.count()..count).map(leader), self.limits().log_bytes, &self.keep);
    }

    /// The brokers that hold a partition, the preferred leader first.
    pub(crate) fn replicas(&self, index: i32, replication: i16) -> Vec<i32> {
        let brokers = self.config.brokers.max(1);
        (0..i32::from(replication)).map(|step| (index.wrapping_add(step)).rem_euclid(brokers) + 1).collect()
    }

    pub(crate) fn delete_topic(&self, topic: &Topic) {
        let removed = lock(&self.topics).remove(&topic.name);
        let Some(removed) = removed else { return };
        for partition in removed.partitions() {
            // Whoever still holds the partition finds no leader, and so does a fetch that waits.
            partition.lock().lead(-1);
        }
        self.coordinator.forget_topic(&removed.name);
    }

    fn topic_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        let (head, tail) = id.split_at_mut(8);
        head.copy_from_slice(&self.doors.rng.next_u64().to_be_bytes());
        tail.copy_from_slice(&(self.doors.rng.next_u64() | 1).to_be_bytes());
        id
    }

    /// The broker that coordinates a group; it stays the same until it is moved or goes down. `None` with all down.
    pub(crate) fn coordinator_of(&self, key: &str) -> Option<i32> {
        let alive = self.alive();
        let mut coordinators = lock(&self.coordinators);
        if let Some(known) = coordinators.get(key) {
            return Some(*known).filter(|known| alive.contains(known));
        }
        let at = crc32c::crc32c(key.as_bytes()) as usize % alive.len().max(1);
        let chosen = alive.get(at).copied()?;
        if coordinators.len() < self.limits().groups.saturating_mul(2) {
            coordinators.insert(key.to_owned(), chosen);
        }
        Some(chosen)
    }

    /// Gives a group to another broker.
    pub(crate) fn set_coordinator(&self, key: &str, broker: i32) {
        lock(&self.coordinators).insert(key.to_owned(), broker);
        self.coordinator.relocate(self, key);
    }

    /// Groups that a broker coordinates.
    pub(crate) fn coordinated_by(&self, broker: i32) -> Vec<String> {
        let coordinators = lock(&self.coordinators);
        coordinators.iter().filter(|(_, at)| **at == broker).map(|(key, _)| key.clone()).collect()
    }
}

/// The pipe host of a broker.
pub(crate) fn pipe_host(broker: i32) -> String {
    format!("b{broker}")
}

/// The pipe address of a broker.
pub(crate) fn pipe_address(broker: i32) -> String {
    format!("{}:{PIPE_PORT}", pipe_host(broker))
}
