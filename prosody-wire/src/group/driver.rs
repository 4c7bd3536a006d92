//! Who moves a member? One task on the I/O lane: it feeds the machine and carries out what it wants.
//!
//! The task never waits for the application: events go to the outbox whether or not somebody reads them, commits come
//! from a bounded queue, and requests are polled side by side. So heartbeats are as regular as the lane.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prosody_base::{Instant, sabotaged};
use tokio::sync::{mpsc, oneshot};

use super::calls::{Answer, Call, CallId, Effect, Identity};
use super::classic::machine::LEADER_PATIENCE;
use super::commit::{CommitQueue, Order};
use super::config::{GroupConfig, GroupProtocol};
use super::core::{Core, Known, Membership, Topics};
use super::outbox::Notice;
use super::pattern::TopicPattern;
use super::running::Running;
use super::shared::Shared;
use super::{classic, codec, modern};
use crate::cluster::{Cluster, MemberLane, TopicMetadata};
use crate::conn::Connection;
use crate::error::Error;
use crate::proto::ErrorCode;
use crate::types::{BrokerId, Topic, TopicPartition};

/// Everything the task owns.
pub(super) struct Driver {
    cluster: Cluster,
    /// Where JoinGroup and SyncGroup go.
    lane: MemberLane,
    config: Arc<GroupConfig>,
    shared: Arc<Shared>,
    machine: Box<dyn Membership>,
    /// Which of the two protocols the machine speaks.
    is_modern: bool,
    commits: CommitQueue,
    coordinator: Option<BrokerId>,
    running: Running<Outcome>,
    /// While we match topics ourselves: keeps metadata asking for all of them.
    following: Option<Arc<[TopicPattern]>>,
}

/// What came of something the driver started.
enum Outcome {
    Found(Result<BrokerId, Error>),
    Answered(CallId, Result<Answer, Error>),
    Committed(String, Result<BTreeMap<TopicPartition, ErrorCode>, Error>),
    Resolved,
    /// Whether there was an answer.
    Looked(bool),
}

impl Driver {
    pub(super) fn new(
        cluster: Cluster,
        config: GroupConfig,
        shared: Arc<Shared>,
        unanswered: Arc<AtomicU64>,
    ) -> Driver {
        let (doors, limits) = (cluster.doors().clone(), cluster.limits().clone());
        let backoff = (limits.backoff, limits.backoff_max);
        let config = config.checked();
        let (now, is_modern) = (doors.clock.now(), config.protocol != GroupProtocol::Classic);
        let core = Core::new(config.clone(), backoff, doors.rng.fork(), now);
        Driver {
            machine: member(core, is_modern, now),
            is_modern,
            config: Arc::new(config),
            shared,
            commits: CommitQueue::new(unanswered),
            coordinator: None,
            running: Running::default(),
            following: None,
            lane: cluster.member_lane(),
            cluster,
        }
    }

    /// Runs until the member has left or was fenced.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>, mut leaving: oneshot::Receiver<()>) {
        let clock = self.cluster.doors().clock.clone();
        let mut metadata = self.cluster.watch();
        let mut leave = false;
        let mut open = true;
        self.cluster.track(&self.config.topics);
        self.read_metadata();
        loop {
            let now = clock.now();
            self.machine.tick(now);
            self.carry_out(now);
            // What the machine gave up must not reach the coordinator later, least of all after our farewell.
            self.running.drop_where(|id| !self.machine.core().is_open(*id));
            self.commits.expire(now);
            self.send_commits(now);
            if leave && self.commits.is_idle() {
                leave = false;
                self.machine.leave(now);
                continue;
            }
            if self.machine.has_ended() {
                break;
            }
            let deadline = [self.machine.deadline(), self.commits.deadline()].into_iter().flatten().min();
            tokio::select! {
                biased;
                outcome = self.running.next() => self.ended(clock.now(), outcome),
                () = self.shared.driver.notified() => self.acknowledged(clock.now()),
                order = orders.recv(), if open && self.commits.has_room() => match order {
                    Some(order) => {
                        let core = self.machine.core();
                        self.commits.add(order, |partition| core.owned_since(partition));
                    }
                    None => open = false,
                },
                changed = metadata.changed() => {
                    if changed.is_err() {
                        break; // the client is closed
                    }
                    self.read_metadata();
                }
                gone = &mut leaving, if !leaving.is_terminated() => leave = gone.is_ok(),
                () = until(&clock, deadline) => {}
            }
        }
        self.commits.close();
        orders.close();
        while let Ok(order) = orders.try_recv() {
            self.commits.add(order, |_| None);
        }
    }

    fn read_metadata(&mut self) {
        let known = self.cluster.metadata();
        // Only members of classic groups divide.
        let has_racks = !self.is_modern && known.brokers.values().any(|broker| broker.rack.is_some());
        let rack = |broker: &BrokerId| known.brokers.get(broker)?.rack.clone();
        let topic = |(name, topic): (&Topic, &Arc<TopicMetadata>)| {
            let partitions = i32::try_from(topic.partitions.len()).ok()?;
            let with_racks = topic.partitions.iter().filter(|_| has_racks);
            let racks = with_racks.map(|one| one.replicas.iter().filter_map(rack).collect()).collect();
            Some((name.clone(), Known { id: topic.id, partitions, racks }))
        };
        let topics: Topics = known.topics.iter().filter_map(topic).collect();
        self.machine.metadata(self.cluster.doors().clock.now(), &topics);
    }

    fn acknowledged(&mut self, now: Instant) {
        for ticket in self.shared.take_acknowledged() {
            self.machine.acknowledged(now, ticket);
        }
    }

    fn carry_out(&mut self, now: Instant) {
        while let Some(effect) = self.machine.core_mut().effect() {
            match effect {
                Effect::Find => self.find(),
                Effect::Forget => {
                    if let Some(broker) = self.coordinator.take() {
                        tracing::debug!(group = self.config.group_id, %broker, "the coordinator is gone or moved; looking for it");
                        self.cluster.forget_coordinator(&self.config.group_id, broker);
                    }
                }
                Effect::Send { id, call } => self.send(id, call),
                Effect::Resolve(topics) => self.resolve(now, &topics),
                Effect::Refresh(ids) => {
                    self.cluster.identify(ids);
                    // Metadata may know already, of another reason to ask.
                    self.read_metadata();
                }
                Effect::Look => self.look(now),
                Effect::Switch(at) => self.switch(at),
                Effect::Tell(notice) => {
                    self.log(&notice);
                    if let Some(needless) = self.shared.tell(notice) {
                        self.machine.acknowledged(now, needless);
                    }
                }
            }
        }
    }

    /// Follows the topics that match our patterns, and waits for one answer, at most [`LEADER_PATIENCE`].
    fn look(&mut self, now: Instant) {
        let patterns = self.following.get_or_insert_with(|| self.config.patterns.as_slice().into());
        self.cluster.follow(patterns);
        let (cluster, deadline) = (self.cluster.clone(), now + LEADER_PATIENCE);
        self.running.start(None, async move { Outcome::Looked(cluster.refresh(deadline).await.is_ok()) });
    }

    /// The group speaks the other protocol: whoever we were is over, with every request of it.
    fn switch(&mut self, at: Instant) {
        self.is_modern = !self.is_modern;
        self.following = None;
        self.machine = member(self.machine.core_mut().successor(), self.is_modern, at);
        self.read_metadata();
    }

    fn find(&mut self) {
        let (cluster, config) = (self.cluster.clone(), Arc::clone(&self.config));
        self.running.start(None, async move { Outcome::Found(cluster.coordinator(&config.group_id).await) });
    }

    fn send(&mut self, id: CallId, call: Call) {
        let Some(broker) = self.coordinator else { return };
        if let Call::Sync { .. } = call {
            // The leader answers for topics only others read.
            let interest: Vec<Topic> = self.machine.interest().into_iter().collect();
            self.cluster.track(&interest);
        }
        if let Call::Offsets { partitions, .. } = &call {
            self.cluster.dial_leaders(partitions);
        }
        let (cluster, config, lane) = (self.cluster.clone(), Arc::clone(&self.config), self.lane.lane());
        self.running.start(Some(id), async move {
            let long = matches!(call, Call::Join { .. } | Call::Sync { .. });
            let connection =
                if long { cluster.connection(broker, lane).await } else { cluster.short(broker).await };
            let result = match connection {
                Ok(connection) => {
                    let mut given_up = GivenUp(long.then(|| connection.clone()));
                    let timeout = cluster.limits().request_timeout;
                    let result = codec::send(&connection, &config, call, timeout).await;
                    given_up.0 = None;
                    result
                }
                Err(why) => Err(why),
            };
            Outcome::Answered(id, result)
        });
    }

    fn send_commits(&mut self, now: Instant) {
        let (machine, commits) = (&self.machine, &mut self.commits);
        let sender = self.coordinator.and_then(|_| machine.committer());
        let next = commits.next(now, sender, |partition| machine.core().owned_since(partition));
        let Some((Identity { member_id, generation, .. }, offsets)) = next else { return };
        let Some(broker) = self.coordinator else { return };
        let (cluster, config) = (self.cluster.clone(), Arc::clone(&self.config));
        self.running.start(None, async move {
            let mut doing = format!("committing offsets of group {}", config.group_id);
            let result = match cluster.short(broker).await {
                Ok(connection) => {
                    doing = codec::doing("committing offsets of", &config, &connection);
                    let timeout = cluster.limits().request_timeout;
                    codec::commit(&connection, &config, &member_id, generation, offsets, timeout).await
                }
                Err(why) => Err(why),
            };
            Outcome::Committed(doing, result)
        });
    }

    /// Waits until the cluster has answered for every topic, at most [`LEADER_PATIENCE`].
    fn resolve(&mut self, now: Instant, topics: &[Topic]) {
        self.cluster.track(topics);
        let deadline = now + LEADER_PATIENCE;
        let mut lookups = Running::default();
        for topic in topics {
            let (cluster, topic) = (self.cluster.clone(), topic.clone());
            lookups.start(None, async move {
                let _ = cluster.topic(&topic, deadline).await;
            });
        }
        self.running.start(None, async move {
            while !lookups.is_empty() {
                lookups.next().await;
            }
            Outcome::Resolved
        });
    }

    fn ended(&mut self, now: Instant, outcome: Outcome) {
        match outcome {
            Outcome::Found(result) => {
                if let Ok(broker) = &result {
                    self.coordinator = Some(*broker);
                }
                self.machine.found(now, result.map(|_| ()));
            }
            Outcome::Answered(id, result) => {
                if let Err(why) = &result {
                    tracing::debug!(group = self.config.group_id, %why, "the coordinator refused or did not answer");
                }
                self.machine.answered(now, id, result);
            }
            Outcome::Committed(doing, result) => {
                let (machine, rng) = (&mut self.machine, self.cluster.doors().rng.clone());
                let limits = self.cluster.limits();
                let wait = |failures: u32| {
                    rng.backoff(limits.backoff, limits.backoff_max, failures.saturating_sub(1))
                };
                self.commits.answered(
                    now,
                    result,
                    &doing,
                    |why, sender| !sabotaged("commit-member-lost") && machine.member_error(now, why, sender),
                    wait,
                );
            }
            Outcome::Looked(ok) => {
                self.read_metadata();
                self.machine.looked(now, ok);
            }
            Outcome::Resolved => {
                self.read_metadata();
                self.machine.resolved(now);
            }
        }
    }

    fn log(&self, notice: &Notice) {
        let group = self.config.group_id.as_str();
        match notice {
            Notice::Assigned { epoch, partitions } => {
                tracing::info!(group, epoch = epoch.0, count = partitions.len(), "partitions assigned");
            }
            Notice::Revoke { partitions, .. } => {
                tracing::info!(group, count = partitions.len(), "partitions to give up")
            }
            Notice::Lost { partitions, why } => {
                tracing::warn!(group, count = partitions.len(), %why, "partitions lost")
            }
            Notice::Failed(why) => tracing::warn!(group, %why, "the group needs attention"),
        }
    }
}

/// Takes the connection along when a JoinGroup or SyncGroup is dropped before its answer: a broker works on one request of
/// a connection at a time, so whatever we asked next would wait behind it for as long as a rebalance may last.
struct GivenUp(Option<Connection>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            connection.close("its member no longer waits for what it asked");
        }
    }
}

async fn until(clock: &prosody_base::Clock, deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => clock.sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// A member of one protocol or the other, who joins from `at` on.
fn member(core: Core, is_modern: bool, at: Instant) -> Box<dyn Membership> {
    if is_modern {
        Box::new(modern::machine::Machine::new(core, at))
    } else {
        Box::new(classic::machine::Machine::new(core, at))
    }
}
