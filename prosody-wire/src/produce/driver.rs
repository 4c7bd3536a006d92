//! Who sends what the accumulator holds? One task per producer: it seals batches, writes requests, reads answers and
//! keeps deadlines. The only file of this folder that awaits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prosody_base::Instant;
use tokio::sync::{Notify, watch};

use super::ProducerConfig;
use super::accumulator::Accumulator;
use super::queue::{OpenBatch, SealedBatch};
use super::sequencer::{BatchId, Identity, Refusal, Sequence, Verdict};
use super::wire::{self, Answer, PartitionAnswer, PartitionBatch};
use crate::batch::{BufferPool, Compressor, ProducerStamp, restamp};
use crate::cluster::{Cluster, Lane, TopicMetadata, node};
use crate::conn::Connection;
use crate::error::{DecodeError, Error, ErrorKind};
use crate::proto::{ApiKey, Disposition, ErrorCode, messages};
use crate::types::{BrokerId, Topic};

/// Produce requests of one broker without an answer. A broker works on one at a time; the others wait in its socket.
const REQUESTS: usize = 5;
/// Batches that could still grow are sent while a broker has fewer requests than this to answer.
const REQUESTS_WHEN_PARTIAL: usize = 1;
/// How long an unknown topic is asked for again: one just created takes a moment to be known everywhere.
const TOPIC_PATIENCE: Duration = Duration::from_secs(5);

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
        let _ = self.end.send(Some(abandoned));
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
        [armed, retries, brokers, lookups, self.identity.due(), self.leaderless_at, self.shared.closing()]
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
                    self.identity = Fetching::Idle;
                    self.shared.state().adopt(identity);
                }
                Event::Identity(Err(error)) => {
                    if error.is_retriable() {
                        tracing::debug!(%error, "no producer id yet");
                    } else {
                        self.shared.state().refuse_unsent(&error);
                    }
                    self.identity = Fetching::RetryAt(now + self.backoff(1));
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

    fn topic(&mut self, now: Instant, topic: &Topic, result: Result<Arc<TopicMetadata>, Error>) {
        let error = match result {
            Ok(known) => {
                self.lookups.remove(topic);
                let mut state = self.shared.state();
                state.topic_known(topic, known.partitions.len());
                state.leaders(topic, known.partitions.iter().map(|partition| partition.leader));
                return;
            }
            Err(error) => error,
        };
        let Some(lookup) = self.lookups.get_mut(topic) else { return };
        let missing = error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        let over = now.saturating_duration_since(lookup.since) >= TOPIC_PATIENCE;
        lookup.failures += 1;
        if !error.is_retriable() || (missing && over) {
            self.lookups.remove(topic);
            self.shared.state().topic_refused(topic, &error.during(&format!("sending to {topic}")));
            return;
        }
        let failures = lookup.failures;
        let wait = self.backoff(failures);
        if let Some(lookup) = self.lookups.get_mut(topic) {
            lookup.state = Fetching::RetryAt(now + wait);
        }
        self.shared.state().topic_late(topic, error);
    }

    /// Leaders and partition counts as metadata has them now.
    fn follow_metadata(&mut self) {
        let metadata = Arc::clone(&self.metadata.borrow_and_update());
        let mut state = self.shared.state();
        for topic in state.known_topics() {
            match metadata.topic(&topic) {
                Some(known) => {
                    state.topic_known(&topic, known.partitions.len());
                    state.leaders(&topic, known.partitions.iter().map(|partition| partition.leader));
                }
                None => state.leaders(&topic, std::iter::repeat(None)),
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

    /// Starts what has to be asked before anything can be sent.
    fn look_up(&mut self, now: Instant) {
        let (unknown, identity, leaderless) = {
            let state = self.shared.state();
            let leaderless = state.partitions.iter().any(|queue| queue.leader.is_none() && !queue.is_empty());
            (state.unknown.clone(), state.needs_identity(), leaderless)
        };
        self.lookups
            .retain(|topic, lookup| unknown.contains(topic) || matches!(lookup.state, Fetching::Running));
        for topic in unknown {
            let fresh = Lookup { since: now, failures: 0, state: Fetching::Idle };
            let lookup = self.lookups.entry(Arc::clone(&topic)).or_insert(fresh);
            if lookup.state.start(now) {
                self.ask_topic(topic);
            }
        }
        if identity && self.identity.start(now) {
            self.ask_identity();
        }
        if !leaderless {
            self.leaderless_at = None;
        } else if self.leaderless_at.is_none_or(|at| at <= now) {
            self.shared.cluster.refresh_soon("a partition to produce to has no leader");
            self.leaderless_at = Some(now + self.shared.cluster.limits().backoff_max);
        }
    }

    fn ask_topic(&self, topic: Topic) {
        let shared = Arc::clone(&self.shared);
        let deadline = self.deadline();
        self.spawn(async move {
            let found = shared.cluster.topic(&topic, deadline).await;
            shared.report(Event::Topic(topic, found));
        });
    }

    fn ask_identity(&self) {
        let shared = Arc::clone(&self.shared);
        self.spawn(async move {
            let found = new_identity(&shared.cluster).await;
            shared.report(Event::Identity(found));
        });
    }

    fn deadline(&self) -> Instant {
        let cluster = &self.shared.cluster;
        cluster.doors().clock.now() + cluster.limits().request_timeout
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

    /// Sends one request to a broker, if there is something for it.
    fn send_one(&mut self, id: BrokerId, connection: &Connection, now: Instant) -> bool {
        let requests = self.brokers.get(&id).map_or(0, |broker| broker.requests);
        if requests >= REQUESTS {
            return false;
        }
        let Ok(version) = connection.require(ApiKey::Produce) else { return false };
        let chosen = self.choose(id, requests < REQUESTS_WHEN_PARTIAL, now);
        if chosen.is_empty() {
            return false;
        }
        let batches: Vec<(usize, BatchId)> =
            chosen.iter().map(|chosen| (chosen.place, chosen.id())).collect();
        let topics = self.seal(chosen);
        let limits = self.shared.cluster.limits();
        let body = wire::request(version, limits.request_timeout.mul_f64(0.8), &topics);
        let answer = connection.call_raw(ApiKey::Produce, version, body, limits.request_timeout);
        if let Some(broker) = self.brokers.get_mut(&id) {
            broker.requests += 1;
        }
        let shared = Arc::clone(&self.shared);
        self.spawn(async move {
            let result = answer.await;
            shared.report(Event::Answered { broker: id, version, batches, result });
        });
        true
    }

    /// What goes into the next request: at most one batch of each partition. First what is full or was sent before;
    /// what could still grow comes along, or goes alone when the broker has nothing to do.
    fn choose(&mut self, id: BrokerId, idle: bool, now: Instant) -> Vec<Chosen> {
        let closing = self.shared.closing().is_some();
        let config = &self.shared.config;
        let mut state = self.shared.state();
        let count = state.partitions.len();
        self.rotation = if count == 0 { 0 } else { (self.rotation + 1) % count };
        let order = (self.rotation..count).chain(0..self.rotation);
        let (mut chosen, mut taken, mut bytes) = (Vec::new(), BTreeSet::new(), 0);
        for partial in [false, true] {
            if partial && !idle && chosen.is_empty() && !closing {
                break;
            }
            for place in order.clone() {
                let Some(queue) = state.partitions.get_mut(place) else { continue };
                if queue.is_empty() || taken.contains(&place) || bytes >= config.request_size {
                    continue;
                }
                let next = match queue.resend(id, now) {
                    Some((batch, sequence)) => Some(Work::Again(batch, sequence)),
                    None => queue
                        .take(id, now, config.batch_size, partial, &self.pool)
                        .map(|(batch, sequence)| Work::First(batch, sequence)),
                };
                if let Some(work) = next {
                    bytes += match &work {
                        Work::First(batch, _) => batch.builder.size(),
                        Work::Again(id, _) => queue
                            .sealed
                            .iter()
                            .find(|batch| batch.id == *id)
                            .map_or(0, |batch| batch.bytes.len()),
                    };
                    taken.insert(place);
                    let (topic, partition) = (Arc::clone(&queue.topic), queue.partition);
                    chosen.push(Chosen { place, topic, partition, work });
                }
            }
        }
        chosen
    }

    /// Compresses what is new, stamps again what has another sequence now. Senders are not held up meanwhile.
    fn seal(&mut self, chosen: Vec<Chosen>) -> Vec<(Topic, Vec<PartitionBatch>)> {
        let mut topics: Vec<(Topic, Vec<PartitionBatch>)> = Vec::new();
        for Chosen { place, topic, partition, work } in chosen {
            let batch = match work {
                Work::First(batch, sequence) => self.seal_first(place, batch, sequence),
                Work::Again(id, sequence) => self.seal_again(place, id, sequence),
            };
            let Some(batch) = batch else { continue };
            let batch = PartitionBatch { partition, batch };
            match topics.iter_mut().find(|(known, _)| *known == topic) {
                Some((_, partitions)) => partitions.push(batch),
                None => topics.push((topic, vec![batch])),
            }
        }
        topics
    }

    fn seal_first(&mut self, place: usize, mut batch: OpenBatch, sequence: Sequence) -> Option<Bytes> {
        let sealed =
            batch.builder.seal(self.shared.config.compression, &mut self.compressor, stamp(sequence));
        let mut state = self.shared.state();
        let queue = state.partitions.get_mut(place)?;
        let (bytes, error) = match sealed {
            Ok(bytes) => (bytes.unwrap_or_default(), None),
            Err(why) => {
                (Bytes::new(), Some(Error::io(format!("compressing a batch for {}", batch.id.0), why)))
            }
        };
        let OpenBatch { id, completion, deadlines, charge, indices, .. } = batch;
        let kept = bytes.clone();
        queue.sealed.push_back(SealedBatch {
            id,
            bytes: kept,
            sequence,
            indices,
            completion,
            deadlines,
            charge,
        });
        if let Some(error) = error {
            let verdict = queue.sequencer.refused(id, Refusal::Never);
            let freed = queue.judged(id, verdict, error, self.shared.cluster.doors().clock.now());
            state.freed(freed);
            return None;
        }
        Some(bytes)
    }

    fn seal_again(&mut self, place: usize, id: BatchId, sequence: Sequence) -> Option<Bytes> {
        let mut state = self.shared.state();
        let sealed = state.partitions.get_mut(place)?.sealed.iter_mut().find(|batch| batch.id == id)?;
        if sealed.sequence != sequence {
            sealed.bytes = restamp(&sealed.bytes, &self.pool, stamp(sequence))?;
            sealed.sequence = sequence;
        }
        Some(sealed.bytes.clone())
    }

    fn answered(
        &mut self,
        now: Instant,
        id: BrokerId,
        version: i16,
        batches: &[(usize, BatchId)],
        result: Result<Bytes, Error>,
    ) {
        let connection = self.brokers.get_mut(&id).and_then(|broker| {
            broker.requests = broker.requests.saturating_sub(1);
            broker.connection.clone()
        });
        let doing = || format!("Produce v{version} to broker {id}");
        let answer = result.and_then(|body| {
            wire::response(version, &body).map_err(|why| Error::decode(doing(), why).with_sent(true))
        });
        match answer {
            Ok(answer) => {
                if let Some(connection) = connection {
                    connection.throttle(answer.throttle);
                }
                self.learn(&answer);
                self.apply(now, id, batches, &answer);
            }
            Err(error) => {
                if matches!(error.kind(), ErrorKind::Decode(_))
                    && let Some(connection) = connection
                {
                    connection.close("a Produce response could not be read");
                }
                self.shared.cluster.refresh_soon("a Produce request failed");
                let mut state = self.shared.state();
                for (place, batch) in batches {
                    let Some(queue) = state.partitions.get_mut(*place) else { continue };
                    let verdict = match (error.maybe_sent(), error.is_retriable()) {
                        (true, _) => queue.sequencer.lost(*batch),
                        (false, true) => queue.sequencer.unsent(*batch),
                        (false, false) => queue.sequencer.refused(*batch, Refusal::Never),
                    };
                    self.judge(&mut state, *place, *batch, verdict, error.clone(), now);
                }
            }
        }
    }

    /// Leaders and brokers the answer names (KIP-951).
    fn learn(&self, answer: &Answer) {
        for partition in &answer.partitions {
            if let Some((leader, epoch)) = partition.leader {
                let known = answer.nodes.iter().find(|node| node.id == leader.0);
                let address =
                    known.and_then(|known| node(known.id, &known.host, known.port, known.rack.as_deref()));
                self.shared.cluster.learn_leader(
                    &partition.topic,
                    partition.partition,
                    leader,
                    epoch,
                    address,
                );
            }
        }
    }

    fn apply(&self, now: Instant, broker: BrokerId, batches: &[(usize, BatchId)], answer: &Answer) {
        let mut refresh = false;
        let mut state = self.shared.state();
        for (place, batch) in batches {
            let Some(queue) = state.partitions.get_mut(*place) else { continue };
            let found = answer
                .partitions
                .iter()
                .find(|answer| answer.partition == queue.partition && *answer.topic == *queue.topic);
            let doing =
                format_args!("sending to {}-{} through broker {broker}", queue.topic, queue.partition);
            let Some(found) = found else {
                let why = DecodeError::Body("the response does not mention the partition".to_owned());
                let error = Error::decode(doing.to_string(), why);
                let verdict = queue.sequencer.lost(*batch);
                self.judge(&mut state, *place, *batch, verdict, error, now);
                continue;
            };
            let meaning = Meaning::of(found);
            if let Meaning::Written(base) = meaning {
                let freed = queue.written(*batch, base, found.append_time);
                state.freed(freed);
                continue;
            }
            let error = Error::new(doing.to_string(), ErrorKind::Broker(found.error, found.message.clone()));
            refresh |= found.error.disposition() == Disposition::RefreshMetadata;
            let verdict = match meaning {
                Meaning::Refused(refusal) => queue.sequencer.refused(*batch, refusal),
                Meaning::Written(_) | Meaning::Open => queue.sequencer.lost(*batch),
            };
            self.judge(&mut state, *place, *batch, verdict, error, now);
        }
        drop(state);
        if refresh {
            self.shared.cluster.refresh_soon("a Produce response named an old leader");
        }
    }

    fn judge(
        &self,
        state: &mut Accumulator,
        place: usize,
        batch: BatchId,
        verdict: Verdict,
        error: Error,
        now: Instant,
    ) {
        let Some(queue) = state.partitions.get_mut(place) else { return };
        if verdict == Verdict::Retry {
            queue.failures = queue.failures.saturating_add(1);
        }
        let retry_at = now + self.backoff(queue.failures);
        tracing::debug!(%error, ?verdict, "a batch was not acknowledged");
        let freed = queue.judged(batch, verdict, error, retry_at);
        state.freed(freed);
    }
}

/// A batch picked for a request.
#[derive(Debug)]
struct Chosen {
    place: usize,
    topic: Topic,
    partition: i32,
    work: Work,
}

#[derive(Debug)]
enum Work {
    First(OpenBatch, Sequence),
    Again(BatchId, Sequence),
}

impl Chosen {
    fn id(&self) -> BatchId {
        match &self.work {
            Work::First(batch, _) => batch.id,
            Work::Again(id, _) => *id,
        }
    }
}

/// What a partition's error code says about its batch.
enum Meaning {
    Written(i64),
    Refused(Refusal),
    /// It may have been appended.
    Open,
}

impl Meaning {
    fn of(answer: &PartitionAnswer) -> Meaning {
        match answer.error {
            ErrorCode::NONE => Meaning::Written(answer.base_offset),
            ErrorCode::DUPLICATE_SEQUENCE_NUMBER => Meaning::Written(-1),
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER => Meaning::Refused(Refusal::OutOfOrder),
            ErrorCode::UNKNOWN_PRODUCER_ID
            | ErrorCode::INVALID_PRODUCER_EPOCH
            | ErrorCode::INVALID_PRODUCER_ID_MAPPING
            | ErrorCode::PRODUCER_FENCED => Meaning::Refused(Refusal::UnknownProducer),
            ErrorCode::REQUEST_TIMED_OUT
            | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode::UNKNOWN_SERVER_ERROR
            | ErrorCode::NETWORK_EXCEPTION
            | ErrorCode::KAFKA_STORAGE_ERROR => Meaning::Open,
            code => match code.disposition() {
                Disposition::Retry | Disposition::RefreshMetadata => Meaning::Refused(Refusal::Later),
                _ => Meaning::Refused(Refusal::Never),
            },
        }
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

fn stamp(sequence: Sequence) -> ProducerStamp {
    ProducerStamp {
        id: sequence.identity.id,
        epoch: sequence.identity.epoch,
        base_sequence: sequence.first,
        is_transactional: false,
    }
}

async fn new_identity(cluster: &Cluster) -> Result<Identity, Error> {
    let connection = cluster.any().await?;
    let request = messages::InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_transaction_timeout_ms(60_000)
        .with_producer_id((-1).into())
        .with_producer_epoch(-1);
    let response = connection.call(&request, cluster.limits().request_timeout).await?;
    let doing = || format!("InitProducerId to {}", connection.peer());
    ErrorCode::check(response.error_code).map_err(|code| Error::broker(doing(), code))?;
    Ok(Identity { id: response.producer_id.0, epoch: response.producer_epoch })
}
