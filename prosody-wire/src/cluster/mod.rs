//! Which broker is responsible, and how is it reached? Seeds, metadata, lanes and coordinators of one client.
//!
//! | file | question |
//! |---|---|
//! | `metadata.rs` | what does the cluster look like, and which answer is newer? (pure) |
//! | `refresher.rs` | when is metadata asked for again? (one task) |
//! | `lanes.rs` | how is a broker reached, and what happens while it is not? |
//! | `reach.rs` | which broker is asked when any will do? |
//! | `coordinators.rs` | which broker coordinates a group? |
//! | `attempts.rs` | how often is a call tried? |

mod attempts;
mod coordinators;
mod lanes;
mod metadata;
#[cfg(test)]
mod metadata_tests;
mod reach;
mod refresher;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prosody_base::{Doors, Instant, Task, watch};

use crate::client::ClientConfig;
use crate::conn::Connection;
use crate::error::{Error, ErrorKind};
use crate::figures::BrokerFigures;
use crate::group::TopicPattern;
use crate::limits::Limits;
use crate::net::Connector;
use crate::proto::ErrorCode;
use crate::types::{BrokerId, LeaderEpoch, Topic, TopicId, TopicPartition};
pub(crate) use attempts::Attempt;
use coordinators::Coordinators;
use lanes::{Address, Lanes};
pub(crate) use lanes::{Lane, MemberLane};
pub(crate) use metadata::{BrokerNode, Metadata, TopicMetadata, node};
use refresher::Refresher;

/// One cluster as one client sees it. Cheap to clone; everything ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Cluster(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Arc<ClientConfig>,
    doors: Doors,
    seeds: Vec<Address>,
    lanes: Arc<Lanes>,
    /// Numbers of the lanes of group members.
    members: Arc<Mutex<BTreeSet<u16>>>,
    metadata: watch::Sender<Arc<Metadata>>,
    refresher: Refresher,
    coordinators: Coordinators,
    task: Mutex<Option<Task<()>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.lanes.close();
    }
}

impl Cluster {
    /// Starts the refresher; nothing is dialed before somebody asks for something.
    pub(crate) fn new(
        config: ClientConfig,
        seeds: Vec<Address>,
        connector: Arc<dyn Connector>,
        doors: Doors,
    ) -> Cluster {
        let config = Arc::new(config);
        let (metadata, _) = watch::channel(Arc::default());
        let inner = Arc::new(Inner {
            lanes: Arc::new(Lanes::new(connector, Arc::clone(&config), doors.clone())),
            members: Arc::default(),
            config,
            seeds,
            metadata,
            refresher: Refresher::new(),
            coordinators: Coordinators::default(),
            task: Mutex::default(),
            doors,
        });
        let run = refresher::run(Arc::downgrade(&inner));
        let task = inner.doors.spawner.spawn(prosody_base::Lane::Io, run);
        *inner.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        Cluster(inner)
    }

    /// A connection to `broker`: an open one, or the result of the one dial under way. After a failed dial the next one
    /// waits for the backoff, so callers may simply ask again.
    ///
    /// # Errors
    /// When metadata does not know the broker, or the dial failed: with the address and the cause.
    pub(crate) async fn connection(&self, broker: BrokerId, lane: Lane) -> Result<Connection, Error> {
        self.0.connection(broker, lane).await
    }

    /// A connection of the coordination lane for a short request; of another lane while a request waits there that may
    /// take minutes (JoinGroup).
    pub(crate) async fn short(&self, broker: BrokerId) -> Result<Connection, Error> {
        self.0.short(broker).await
    }

    /// A lane for what one more member of a group waits for. The first one's is the coordination lane.
    pub(crate) fn member_lane(&self) -> MemberLane {
        MemberLane::first_free(&self.0.members)
    }

    /// A connection to any broker: an open one, else the first that answers, known brokers before seeds.
    ///
    /// # Errors
    /// When none can be reached: with every address tried and what came back.
    pub(crate) async fn any(&self) -> Result<Connection, Error> {
        self.0.any().await
    }

    /// A connection to the controller, or to any broker where none is known (KRaft brokers forward), or where the one that
    /// is named is none of the brokers: librdkafka's mock cluster names broker 0 and has none.
    pub(crate) async fn controller(&self) -> Result<Connection, Error> {
        let known = self.metadata();
        match known.controller.filter(|broker| known.brokers.contains_key(broker)) {
            Some(broker) => self.0.short(broker).await,
            None => self.0.any().await,
        }
    }

    /// The broker that coordinates `group`, from memory or by one FindCoordinator request.
    ///
    /// # Errors
    /// When no broker can be asked or the answer is an error, such as COORDINATOR_NOT_AVAILABLE while the offsets topic
    /// is being created. Callers retry with a backoff.
    pub(crate) async fn coordinator(&self, group: &str) -> Result<BrokerId, Error> {
        coordinators::find(&self.0, group).await
    }

    /// Connects to the leaders of partitions that will be fetched in a moment, so that the first Fetch waits for no dial.
    pub(crate) fn dial_leaders(&self, partitions: &[TopicPartition]) {
        let known = self.metadata();
        let leaders: BTreeSet<BrokerId> = partitions
            .iter()
            .filter_map(|one| known.topic(&one.topic)?.partition(one.partition)?.leader)
            .collect();
        for leader in leaders {
            let cluster = self.clone();
            // Whoever fetches says what went wrong.
            let dial = async move { drop(cluster.connection(leader, Lane::Fetch).await) };
            self.0.doors.spawner.spawn(prosody_base::Lane::Io, dial).detach();
        }
    }

    /// Forgets that `broker` coordinates `group`; does nothing when somebody found another one meanwhile.
    pub(crate) fn forget_coordinator(&self, group: &str, broker: BrokerId) {
        self.0.coordinators.forget(group, broker);
    }

    /// What is known now.
    pub(crate) fn metadata(&self) -> Arc<Metadata> {
        Arc::clone(&self.0.metadata.borrow())
    }

    /// Follows what is known.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Metadata>> {
        self.0.metadata.subscribe()
    }

    /// Keeps these topics fresh from now on, and asks at once for those not known yet.
    pub(crate) fn track(&self, topics: &[Topic]) {
        if self.0.refresher.track(topics) {
            self.refresh_soon("topics to follow");
        }
    }

    /// A topic's metadata: at once when it is known, else from the next answer of a broker. Known topics are kept fresh.
    ///
    /// # Errors
    /// What the broker answered (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, …) in an answer to a request
    /// made after this call; at `deadline` a timeout, or why no broker could be asked.
    pub(crate) async fn topic(&self, topic: &str, deadline: Instant) -> Result<Arc<TopicMetadata>, Error> {
        if let Some(known) = self.metadata().topic(topic) {
            return Ok(Arc::clone(known));
        }
        let name = Topic::from(topic);
        let _want = self.0.refresher.want(name.clone());
        let number = self.0.ask();
        let answered = self.0.doors.clock.until(deadline, self.0.refresher.covers(number)).await;
        let known = self.metadata();
        if let Some(known) = known.topic(topic) {
            self.0.refresher.track(&[name]);
            return Ok(Arc::clone(known));
        }
        let doing = format!("looking up topic {topic}");
        match answered {
            Ok(Ok(())) => {
                let code = known.failed.get(topic).copied();
                Err(Error::broker(doing, code.unwrap_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)))
            }
            Ok(Err(closed)) => Err(closed.during(&doing)),
            Err(_) => Err(self.late().during(&doing)),
        }
    }

    /// Asks for all topics from now on, and keeps those that match, as long as the patterns live.
    pub(crate) fn follow(&self, patterns: &Arc<[TopicPattern]>) {
        self.0.refresher.follow(patterns);
    }

    /// Asks for fresh metadata, once also of the topics with these ids.
    pub(crate) fn identify(&self, ids: Vec<TopicId>) {
        self.0.refresher.identify(ids);
        self.refresh_soon("an assignment names a topic that is not known");
    }

    /// Asks for fresh metadata. Many calls make one request; the first of a quiet period is sent at once.
    pub(crate) fn refresh_soon(&self, why: &'static str) {
        tracing::debug!(why, "metadata refresh asked for");
        self.0.ask();
    }

    /// Waits for an answer to a request made after this call.
    ///
    /// # Errors
    /// At `deadline`: a timeout, or why no broker could be asked.
    pub(crate) async fn refresh(&self, deadline: Instant) -> Result<Arc<Metadata>, Error> {
        let number = self.0.ask();
        match self.0.doors.clock.until(deadline, self.0.refresher.covers(number)).await {
            Ok(covered) => covered.map(|()| self.metadata()),
            Err(_) => Err(self.late()),
        }
    }

    /// How the last refresh of metadata failed, if it did.
    pub(crate) fn refresh_error(&self) -> Option<Error> {
        self.0.refresher.last_error()
    }

    /// Why metadata did not come in time.
    fn late(&self) -> Error {
        let timeout = || Error::new("refreshing metadata", ErrorKind::Timeout);
        self.0.refresher.last_error().unwrap_or_else(timeout)
    }

    /// A leader another answer hinted at, with the address of its broker when it came along (KIP-951).
    pub(crate) fn learn_leader(
        &self,
        topic: &str,
        partition: i32,
        leader: BrokerId,
        epoch: LeaderEpoch,
        address: Option<BrokerNode>,
    ) {
        if let Some(node) = address {
            self.0.learn_node(node);
        }
        let _ = self.0.learn(|known| {
            Ok(known.with_leader(topic, partition, leader, epoch).unwrap_or_else(|| known.clone()))
        });
    }

    /// What happened between us and each broker.
    pub(crate) fn figures(&self) -> Vec<BrokerFigures> {
        self.0.lanes.figures()
    }

    /// Time, randomness, tasks.
    pub(crate) fn doors(&self) -> &Doors {
        &self.0.doors
    }

    /// Every bound of this client.
    pub(crate) fn limits(&self) -> &Limits {
        &self.0.config.limits
    }

    /// Ends every connection and task. Calls that are open fail.
    pub(crate) fn close(&self) {
        self.0.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.0.refresher.close();
        self.0.lanes.close();
    }
}

impl Inner {
    fn ask(&self) -> u64 {
        self.refresher.ask(self.doors.clock.now(), self.quiet())
    }

    /// After this long without a request the next one is the first of a new series.
    fn quiet(&self) -> Duration {
        self.config.limits.backoff_max
    }

    fn learn_node(&self, node: BrokerNode) {
        let limit = self.config.limits.brokers;
        let _ = self.learn(|known| Ok(known.with_node(node, limit).unwrap_or_else(|| known.clone())));
    }

    /// Replaces what is known; tells followers only when it changed. `true` when it did.
    fn learn(&self, change: impl FnOnce(&Metadata) -> Result<Metadata, Error>) -> Result<bool, Error> {
        let mut result = Ok(false);
        self.metadata.send_if_modified(|known| match change(known) {
            Ok(next) if next == **known => false,
            Ok(next) => {
                *known = Arc::new(next);
                result = Ok(true);
                true
            }
            Err(error) => {
                result = Err(error);
                false
            }
        });
        if matches!(result, Ok(true)) {
            let brokers: BTreeSet<BrokerId> = self.metadata.borrow().brokers.keys().copied().collect();
            for broker in brokers {
                if let Some(address) = self.address(broker) {
                    self.lanes.adopt(broker, &address);
                }
            }
        }
        result
    }
}
