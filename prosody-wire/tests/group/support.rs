//! A cluster, members whose readers behave, and waiting for conditions instead of for time.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prosody_base::{Doors, Instant};
use prosody_testkit::broker::ApiKey;
use prosody_testkit::{Cluster, ClusterConfig};
use prosody_wire::group::{
    AssignmentEpoch, CommitError, CommitOffset, CommittedOffset, Committer, Group, GroupConfig, GroupEvent,
    GroupProtocol,
};
use prosody_wire::{Client, ClientConfig, Error, PipeConnector, Topic, TopicPartition};

pub(crate) const GROUP: &str = "g";
pub(crate) const TOPIC: &str = "t";
pub(crate) const SESSION: Duration = Duration::from_secs(45);

pub(crate) fn cluster(brokers: i32, partitions: i32) -> Cluster {
    cluster_with(ClusterConfig { brokers, ..ClusterConfig::default() }, partitions)
}

pub(crate) fn cluster_with(config: ClusterConfig, partitions: i32) -> Cluster {
    let cluster = Cluster::start(config, Doors::simulated(1));
    cluster.create_topic(TOPIC, partitions).unwrap();
    cluster
}

pub(crate) fn tp(partition: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, partition)
}

thread_local! {
    static PROTOCOL: Cell<GroupProtocol> = const { Cell::new(GroupProtocol::Classic) };
}

/// Runs a test of classic members once more, with members of the consumer protocol (KIP-848).
pub(crate) fn by_the_consumer_protocol(test: fn()) {
    PROTOCOL.set(GroupProtocol::Consumer);
    test();
}

/// What the members of this test speak.
pub(crate) fn config() -> GroupConfig {
    GroupConfig { protocol: PROTOCOL.get(), ..GroupConfig::new(GROUP, [TOPIC.into()]) }
}

pub(crate) fn is_classic() -> bool {
    PROTOCOL.get() == GroupProtocol::Classic
}

/// What members beat with.
pub(crate) fn heartbeat() -> ApiKey {
    if is_classic() { ApiKey::HEARTBEAT } else { ApiKey::CONSUMER_GROUP_HEARTBEAT }
}

pub(crate) fn client(cluster: &Cluster, seed: u64) -> (Client, Doors) {
    let doors = Doors::simulated(seed);
    let mut config = ClientConfig::new(cluster.bootstrap().split(','));
    config.client_id = format!("client-{seed}");
    let connector = Arc::new(PipeConnector(cluster.network()));
    (Client::new(config, connector, doors.clone()).unwrap(), doors)
}

/// What a member's reader has heard.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) owned: BTreeMap<i32, (AssignmentEpoch, Option<CommittedOffset>)>,
    pub(crate) epoch: Option<AssignmentEpoch>,
    pub(crate) lost: Vec<Error>,
    pub(crate) failed: Vec<Error>,
    pub(crate) revoked: Vec<i32>,
    pub(crate) assignments: usize,
}

/// A member whose reader acknowledges revocations after `drain`.
pub(crate) struct Member {
    pub(crate) client: Client,
    pub(crate) doors: Doors,
    pub(crate) heard: Arc<Mutex<Heard>>,
    pub(crate) committer: Committer,
    topic: Topic,
    reader: tokio::task::JoinHandle<()>,
    leave: Option<tokio::sync::oneshot::Sender<Instant>>,
    left: Option<tokio::sync::oneshot::Receiver<()>>,
}

impl Member {
    pub(crate) fn join(cluster: &Cluster, seed: u64) -> Member {
        Member::join_with(cluster, seed, config(), Duration::ZERO)
    }

    pub(crate) fn join_with(cluster: &Cluster, seed: u64, config: GroupConfig, drain: Duration) -> Member {
        let (client, doors) = client(cluster, seed);
        Member::of(client, doors, config, drain)
    }

    /// A member of whatever cluster the client is one of.
    pub(crate) fn of(client: Client, doors: Doors, config: GroupConfig, drain: Duration) -> Member {
        let topic = config.topics[0].clone();
        let mut group = Group::join(&client, config);
        let committer = group.committer();
        let heard = Arc::new(Mutex::new(Heard::default()));
        let (leave, mut leaving) = tokio::sync::oneshot::channel();
        let (say_left, left) = tokio::sync::oneshot::channel();
        let shared = Arc::clone(&heard);
        let reader = tokio::spawn(async move {
            loop {
                let event = tokio::select! {
                    biased;
                    event = group.event() => event,
                    deadline = &mut leaving => {
                        if let Ok(deadline) = deadline {
                            group.leave(deadline).await;
                            let _ = say_left.send(());
                        }
                        return;
                    }
                };
                take(&shared, event, drain);
            }
        });
        Member { client, doors, heard, committer, topic, reader, leave: Some(leave), left: Some(left) }
    }

    pub(crate) fn owned(&self) -> Vec<i32> {
        self.heard.lock().unwrap().owned.keys().copied().collect()
    }

    pub(crate) fn epoch(&self) -> AssignmentEpoch {
        self.heard.lock().unwrap().epoch.unwrap()
    }

    /// Like `kill -9`: nothing is said to anyone.
    pub(crate) fn kill(&mut self) {
        self.doors.spawner.kill();
        self.reader.abort();
        self.client.close();
        self.heard.lock().unwrap().owned.clear();
    }

    pub(crate) async fn leave(&mut self, within: Duration) {
        let _ = self.leave.take().unwrap().send(tokio::time::Instant::now() + within);
        let _ = self.left.take().unwrap().await;
        self.heard.lock().unwrap().owned.clear();
    }

    pub(crate) async fn commit(&self, partition: i32, offset: i64) -> Result<(), CommitError> {
        let tp = TopicPartition::new(self.topic.clone(), partition);
        self.committer.commit(self.epoch(), vec![CommitOffset { tp, ..at(partition, offset) }]).await
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

pub(crate) fn at(partition: i32, offset: i64) -> CommitOffset {
    CommitOffset { tp: tp(partition), offset, leader_epoch: None, metadata: String::new() }
}

fn take(heard: &Arc<Mutex<Heard>>, event: GroupEvent, drain: Duration) {
    let mut now = heard.lock().unwrap();
    match event {
        GroupEvent::Assigned { epoch, partitions } => {
            now.assignments += 1;
            now.epoch = Some(epoch);
            now.owned.extend(partitions.into_iter().map(|one| (one.tp.partition, (epoch, one.committed))));
        }
        GroupEvent::Revoke { partitions, done, .. } => {
            now.revoked.extend(partitions.iter().map(|one| one.partition));
            let heard = Arc::clone(heard);
            tokio::spawn(async move {
                tokio::time::sleep(drain).await;
                heard.lock().unwrap().owned.retain(|partition, _| !names(&partitions, *partition));
                done.done();
            });
        }
        GroupEvent::Lost { partitions, why } => {
            now.lost.push(why);
            now.owned.retain(|partition, _| !names(&partitions, *partition));
        }
        GroupEvent::Failed(why) => now.failed.push(why),
    }
}

fn names(partitions: &[TopicPartition], partition: i32) -> bool {
    partitions.iter().any(|one| one.partition == partition)
}

/// Lets virtual time pass until `condition` holds; fails with `what` after `within`. Returns how long it took.
pub(crate) async fn until(within: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = tokio::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    start.elapsed()
}

/// Waits until the members own all `partitions` between them, each once, and as evenly as can be.
pub(crate) async fn settled(within: Duration, members: &[&Member], partitions: i32) -> Duration {
    let what =
        || members.iter().map(|member| format!("{:?}", member.heard.lock().unwrap())).collect::<Vec<_>>();
    let fair = || {
        let mut all: Vec<i32> = members.iter().flat_map(|member| member.owned()).collect();
        all.sort_unstable();
        let loads = members.iter().map(|member| member.owned().len());
        let spread = loads.clone().max().unwrap_or(0) - loads.min().unwrap_or(0);
        all == (0..partitions).collect::<Vec<_>>() && spread <= 1
    };
    let start = tokio::time::Instant::now();
    while !fair() {
        assert!(start.elapsed() < within, "not settled within {within:?}: {:#?}", what());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    start.elapsed()
}

pub(crate) fn count(cluster: &Cluster, api: ApiKey) -> usize {
    cluster.requests(api).len()
}

pub(crate) fn assert_clean(cluster: &Cluster) {
    assert_eq!(cluster.violations(), [], "the broker saw what must not happen");
}

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
