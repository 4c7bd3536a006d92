//! Who moves a member? One task on the I/O lane: it feeds the machine and carries out what it wants.
//!
//! The task never waits for the application: events go to the outbox whether or not somebody reads them, commits come
//! from a bounded queue, and requests are polled side by side. So heartbeats are as regular as the lane.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use prosody_base::Instant;
use tokio::sync::{mpsc, oneshot};

use super::classic::calls::{Answer, Call, CallId, Effect, Identity};
use super::classic::codec;
use super::classic::machine::{LEADER_PATIENCE, Machine};
use super::commit::{CommitQueue, Order};
use super::config::GroupConfig;
use super::outbox::Notice;
use super::shared::Shared;
use crate::cluster::{Cluster, Lane};
use crate::error::Error;
use crate::proto::ErrorCode;
use crate::types::{BrokerId, Topic, TopicPartition};

/// Everything the task owns.
pub(super) struct Driver {
    cluster: Cluster,
    config: Arc<GroupConfig>,
    shared: Arc<Shared>,
    machine: Machine,
    commits: CommitQueue,
    coordinator: Option<BrokerId>,
    running: Running<Outcome>,
}

/// What came of something the driver started.
enum Outcome {
    Found(Result<BrokerId, Error>),
    Answered(CallId, Result<Answer, Error>),
    Committed(String, Result<BTreeMap<TopicPartition, ErrorCode>, Error>),
    Resolved,
}

impl Driver {
    pub(super) fn new(cluster: Cluster, config: GroupConfig, shared: Arc<Shared>) -> Driver {
        let (doors, limits) = (cluster.doors().clone(), cluster.limits().clone());
        let backoff = (limits.backoff, limits.backoff_max);
        let config = config.checked();
        Driver {
            machine: Machine::new(config.clone(), backoff, doors.rng.fork(), doors.clock.now()),
            config: Arc::new(config),
            shared,
            commits: CommitQueue::new(),
            coordinator: None,
            running: Running::default(),
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
            self.running.drop_where(|id| !self.machine.is_open(*id));
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
                        let machine = &self.machine;
                        self.commits.add(order, |partition| machine.owned_since(partition));
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
        let count =
            |topic: &str| known.topic(topic).and_then(|topic| i32::try_from(topic.partitions.len()).ok());
        self.machine.metadata(self.cluster.doors().clock.now(), count);
    }

    fn acknowledged(&mut self, now: Instant) {
        for ticket in self.shared.take_acknowledged() {
            self.machine.acknowledged(now, ticket);
        }
    }

    fn carry_out(&mut self, now: Instant) {
        while let Some(effect) = self.machine.effect() {
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
                Effect::Tell(notice) => {
                    self.log(&notice);
                    if let Some(needless) = self.shared.tell(notice) {
                        self.machine.acknowledged(now, needless);
                    }
                }
            }
        }
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
        let (cluster, config) = (self.cluster.clone(), Arc::clone(&self.config));
        self.running.start(Some(id), async move {
            let long = matches!(call, Call::Join { .. } | Call::Sync { .. });
            let connection = if long {
                cluster.connection(broker, Lane::Coordination).await
            } else {
                cluster.short(broker).await
            };
            let result = match connection {
                Ok(connection) => {
                    codec::send(&connection, &config, call, cluster.limits().request_timeout).await
                }
                Err(why) => Err(why),
            };
            Outcome::Answered(id, result)
        });
    }

    fn send_commits(&mut self, now: Instant) {
        let (machine, commits) = (&self.machine, &mut self.commits);
        let sender = self.coordinator.and_then(|_| machine.committer());
        let next = commits.next(now, sender, |partition| machine.owned_since(partition));
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
                    |why, sender| machine.member_error(now, why, sender),
                    wait,
                );
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

async fn until(clock: &prosody_base::Clock, deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => clock.sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// A future and the call of the machine it carries out, if it does.
type Work<T> = (Option<CallId>, Pin<Box<dyn Future<Output = T> + Send>>);

/// Futures polled side by side: a handful of requests, each with a deadline of its own.
struct Running<T>(Vec<Work<T>>);

impl<T> Default for Running<T> {
    fn default() -> Running<T> {
        Running(Vec::new())
    }
}

impl<T> Running<T> {
    fn start(&mut self, call: Option<CallId>, future: impl Future<Output = T> + Send + 'static) {
        self.0.push((call, Box::pin(future)));
    }

    /// Drops futures whose call this condition holds for.
    fn drop_where(&mut self, gone: impl Fn(&CallId) -> bool) {
        self.0.retain(|(call, _)| !call.as_ref().is_some_and(&gone));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The result of one that is done, oldest first. Waits for ever while there is none; dropping the wait loses nothing.
    async fn next(&mut self) -> T {
        poll_fn(|context| {
            let done =
                self.0.iter_mut().enumerate().find_map(|(at, (_, work))| match work.as_mut().poll(context) {
                    Poll::Ready(result) => Some((at, result)),
                    Poll::Pending => None,
                });
            let Some((at, result)) = done else { return Poll::Pending };
            drop(self.0.remove(at));
            Poll::Ready(result)
        })
        .await
    }
}
