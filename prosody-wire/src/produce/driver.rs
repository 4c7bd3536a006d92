//! Who sends what the accumulator holds? One task per producer: it seals batches, writes requests, reads answers and
//! keeps deadlines. The only folder of the producer that awaits.

mod answers;
mod lookups;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prosody_base::{Instant, sabotaged, watch};
use tokio::sync::Notify;

use super::ProducerConfig;
use super::accumulator::Accumulator;
use super::sequencer::{BatchId, Identity};
use crate::batch::{BufferPool, Compressor};
use crate::cluster::{Cluster, Lane, TopicMetadata};
use crate::conn::Connection;
use crate::error::{Error, ErrorKind};
use crate::proto::ApiKey;
use crate::types::{BrokerId, Topic};

/// What callers and the driver share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) cluster: Cluster,
    config: ProducerConfig,
    state: Mutex<Accumulator>,
    events: Mutex<Vec<Event>>,
    wake: Notify,
    closing: Mutex<Option<Instant>>,
}

impl Shared {
    pub(super) fn new(cluster: Cluster, config: ProducerConfig, state: Accumulator) -> Shared {
        Shared {
            cluster,
            config,
            state: Mutex::new(state),
            events: Mutex::default(),
            wake: Notify::new(),
            closing: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, Accumulator> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ring(&self) {
        self.wake.notify_one();
    }

    /// Ends at `deadline` or earlier; an earlier close stands.
    pub(super) fn close_by(&self, deadline: Instant) {
        {
            let late = if sabotaged("produce-close-deadline") { 60 } else { 0 };
            let deadline = deadline + Duration::from_secs(late);
            let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
            *closing = Some(closing.map_or(deadline, |known| known.min(deadline)));
        }
        self.ring();
    }

    fn closing(&self) -> Option<Instant> {
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At most one for each request, dial, lookup in flight.
    fn report(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        self.ring();
    }
}

/// What a task of the driver found out.
#[derive(Debug)]
enum Event {
    Answered { broker: BrokerId, version: i16, batches: Vec<(usize, BatchId)>, result: Result<Bytes, Error> },
    Dialed(BrokerId, Result<Connection, Error>),
    Topic(Topic, Result<Arc<TopicMetadata>, Error>),
    Identity(Result<Identity, Error>),
}

/// How the driver ended: the records it had to give up.
pub(super) type Ended = watch::Receiver<Option<usize>>;

/// Starts the driver; it ends after [`Shared::close_by`].
pub(super) fn start(shared: &Arc<Shared>, pool: BufferPool) -> Ended {
    let (end, ended) = watch::channel(None);
    let driver = Driver {
        shared: Arc::clone(shared),
        pool,
        compressor: Compressor::new(),
        brokers: BTreeMap::new(),
        metadata: shared.cluster.watch(),
        lookups: BTreeMap::new(),
        identity: Fetching::Idle,
        identity_failures: 0,
        leaderless_at: None,
        rotation: 0,
        end,
    };
    shared.cluster.doors().spawner.spawn(prosody_base::Lane::Io, driver.run()).detach();
    ended
}

#[derive(Debug, Default)]
struct Broker {
    connection: Option<Connection>,
    dialing: bool,
    requests: usize,
    failures: u32,
    retry_at: Option<Instant>,
    last_error: Option<Error>,
}

/// One lookup that may have to be repeated.
#[derive(Clone, Copy, Debug)]
enum Fetching {
    Idle,
    Running,
    RetryAt(Instant),
}

#[derive(Debug)]
struct Lookup {
    since: Instant,
    failures: u32,
    state: Fetching,
}

struct Driver {
    shared: Arc<Shared>,
    pool: BufferPool,
    compressor: Compressor,
    brokers: BTreeMap<BrokerId, Broker>,
    metadata: watch::Receiver<Arc<crate::cluster::Metadata>>,
    lookups: BTreeMap<Topic, Lookup>,
    identity: Fetching,
    identity_failures: u32,
    leaderless_at: Option<Instant>,
    /// The partition a request begins with, so that a full request does not always leave out the same ones.
    rotation: usize,
    end: watch::Sender<Option<usize>>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // However the task ends, no sender waits for ever.
        let error = Error::new("sending", ErrorKind::Closed("the producer has ended"));
        let abandoned = self.shared.state().abandon(&error);
        self.end.send_replace(Some(abandoned));
    }
}

impl Driver {
    async fn run(mut self) {
        let clock = self.shared.cluster.doors().clock.clone();
        loop {
            let now = clock.now();
            self.shared.state().attention = false;
            self.take_events(now);
            if self.metadata.has_changed().unwrap_or(false) {
                self.follow_metadata();
            }
            self.expire(now);
            self.look_up(now);
            self.pump(now);
            if let Some(deadline) = self.shared.closing()
                && (now >= deadline || self.shared.state().is_idle())
            {
                return;
            }
            let shared = Arc::clone(&self.shared);
            let until = self.wake_at(now);
            tokio::select! {
                biased;
                () = shared.wake.notified() => {}
                _ = self.metadata.changed() => self.metadata.mark_changed(),
                () = clock.sleep_until(until) => {}
            }
        }
    }

    /// The next moment at which time alone changes something.
    fn wake_at(&self, now: Instant) -> Instant {
        let far = now + Duration::from_secs(3600);
        let (armed, retries) = {
            let state = self.shared.state();
            let retries = state.partitions.iter().filter_map(|queue| queue.retry_at).filter(|at| *at > now);
            (state.armed, retries.min())
        };
        let brokers = self.brokers.values().filter_map(|broker| broker.retry_at).filter(|at| *at > now).min();
        let lookups = self.lookups.values().filter_map(|lookup| lookup.state.due()).min();
        // One that is due and was not asked for again is not needed now.
        let identity = self.identity.due().filter(|at| *at > now);
        [armed, retries, brokers, lookups, identity, self.leaderless_at, self.shared.closing()]
            .into_iter()
            .flatten()
            .fold(far, Instant::min)
    }

    fn take_events(&mut self, now: Instant) {
        let events = std::mem::take(&mut *self.shared.events.lock().unwrap_or_else(PoisonError::into_inner));
        for event in events {
            match event {
                Event::Answered { broker, version, batches, result } => {
                    self.answered(now, broker, version, &batches, result);
                }
                Event::Dialed(id, result) => self.dialed(now, id, result),
                Event::Topic(topic, result) => self.topic(now, &topic, result),
                Event::Identity(Ok(identity)) => {
                    (self.identity, self.identity_failures) = (Fetching::Idle, 0);
                    self.shared.state().adopt(identity);
                }
                Event::Identity(Err(error)) => {
                    if error.is_retriable() {
                        tracing::debug!(%error, "no producer id yet");
                    } else {
                        self.shared.state().refuse_unsent(&error);
                    }
                    self.identity_failures = self.identity_failures.saturating_add(1);
                    self.identity = Fetching::RetryAt(now + self.backoff(self.identity_failures));
                }
            }
        }
    }

    fn backoff(&self, failures: u32) -> Duration {
        let limits = self.shared.cluster.limits();
        let rng = &self.shared.cluster.doors().rng;
        rng.backoff(limits.backoff, limits.backoff_max, failures.saturating_sub(1))
    }

    fn dialed(&mut self, now: Instant, id: BrokerId, result: Result<Connection, Error>) {
        let wait = self.backoff(self.brokers.get(&id).map_or(1, |broker| broker.failures + 1));
        let broker = self.brokers.entry(id).or_default();
        broker.dialing = false;
        match result.and_then(|connection| connection.require(ApiKey::Produce).map(|_| connection)) {
            Ok(connection) => {
                *broker =
                    Broker { connection: Some(connection), requests: broker.requests, ..Broker::default() };
            }
            Err(error) => {
                broker.failures += 1;
                broker.retry_at = Some(now + wait);
                broker.last_error = Some(error);
                self.shared.cluster.refresh_soon("a broker to produce to cannot be reached");
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        let mut state = self.shared.state();
        if state.armed.is_some_and(|armed| armed <= now) {
            let brokers = &self.brokers;
            let unknown = self.shared.cluster.refresh_error();
            state.expire(now, unknown.as_ref(), |id| {
                brokers.get(&id).and_then(|broker| broker.last_error.clone())
            });
        }
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.shared.cluster.doors().spawner.spawn(prosody_base::Lane::Io, work).detach();
    }

    /// Sends everything that may be sent.
    fn pump(&mut self, now: Instant) {
        let leaders: BTreeSet<BrokerId> = {
            let state = self.shared.state();
            state
                .partitions
                .iter()
                .filter(|queue| !queue.is_empty())
                .filter_map(|queue| queue.leader)
                .collect()
        };
        for id in leaders {
            if let Some(connection) = self.connect(id, now) {
                while self.send_one(id, &connection, now) {}
            }
        }
    }

    /// The open connection to a broker; starts a dial when there is none.
    fn connect(&mut self, id: BrokerId, now: Instant) -> Option<Connection> {
        let broker = self.brokers.entry(id).or_default();
        if broker.connection.as_ref().is_some_and(|connection| connection.closed().is_some()) {
            broker.connection = None;
        }
        if broker.connection.is_none() && !broker.dialing && broker.retry_at.is_none_or(|at| at <= now) {
            broker.dialing = true;
            let shared = Arc::clone(&self.shared);
            self.spawn(async move {
                let dialed = shared.cluster.connection(id, Lane::Produce).await;
                shared.report(Event::Dialed(id, dialed));
            });
        }
        self.brokers.get(&id).and_then(|broker| broker.connection.clone())
    }
}

impl Fetching {
    /// Whether to start now; it counts as running then.
    fn start(&mut self, now: Instant) -> bool {
        let due = match self {
            Fetching::Idle => true,
            Fetching::Running => false,
            Fetching::RetryAt(at) => *at <= now,
        };
        if due {
            *self = Fetching::Running;
        }
        due
    }

    fn due(&self) -> Option<Instant> {
        match self {
            Fetching::RetryAt(at) => Some(*at),
            Fetching::Idle | Fetching::Running => None,
        }
    }
}
