//! May we subscribe, and if not, why? Topics are looked up first, so that a wrong name is an error and not silence.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

use prosody_base::{Instant, Lane, watch};
use prosody_state::EventScope;
use prosody_wire::fetch::{FetchConfig, Fetcher};
use prosody_wire::group::{Group, GroupConfig};
use prosody_wire::produce::Producer;
use prosody_wire::{Disposition, ErrorCode, Topic};
use tokio::sync::Notify;

use super::assign::Assignments;
use super::commit::Commits;
use super::{Inner, Lasting, Subscription, run};
use crate::config::{MAX_POLL, Mode};
use crate::durable::images::Images;
use crate::error::{Error, ErrorKind};
use crate::handler::Handler;
use crate::insight::beats::Beats;
use crate::loader::{Loader, LoaderConfig};
use crate::partition::copies::Copies;
use crate::partition::runtime::Shared;
use crate::pipeline::Pipeline;
use crate::pipeline::defer::FailureRate;
use crate::pipeline::filter::Filter;
use crate::pipeline::monopoly::Monopoly;
use crate::pipeline::retry::Backoff;
use crate::pipeline::verdict::Steps;
use crate::probes;
use crate::schedule::retries::Retries;
use crate::schedule::routes::FailureTopic;
use crate::worker;

/// Wait before a topic is looked up again after an answer that may change.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// What the protocol can say.
const LEAST_POLL: Duration = Duration::from_millis(1);
/// The least time members have to rejoin, and what they have beyond a drain.
const REBALANCE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(15));

/// Looks up the topics and joins the group.
pub(crate) async fn subscribe<H: Handler>(lasting: &Lasting, handler: H) -> Result<Subscription, Error> {
    let config = &lasting.config;
    let Some(group_id) = config.group_id.clone().filter(|_| config.has_topics()) else {
        return Err(Error::new(
            ErrorKind::Unconfigured,
            "subscribing needs GroupId (PROSODY_GROUP_ID) and SubscribedTopics (PROSODY_SUBSCRIBED_TOPICS)",
        ));
    };
    if config.defer_asked && lasting.store.is_none() {
        return Err(Error::new(
            ErrorKind::Unconfigured,
            "subscribing: DeferEnabled (PROSODY_DEFER_ENABLED) needs a store for what is set aside \
             (PROSODY_CASSANDRA_NODES), or mock mode; leave it unset to retry in place",
        ));
    }
    Group::prepare(&lasting.wire, &group_id);
    look_up(lasting, lasting.doors.clock.now() + config.subscribe_timeout).await?;
    let asked = Arc::new(OnceLock::new());
    let probes = match config.probes {
        Some(place) => Some(probes::join(&lasting.doors, place, lasting.number, ask(&asked)).await?),
        None => None,
    };

    let doors = lasting.doors.clone();
    let (rng, now) = (doors.rng.fork(), doors.clock.now());
    let key_seed = rng.next_u64();
    let pipeline = Arc::new(Pipeline {
        filter: Filter { group_id: Arc::clone(&group_id), allowed_events: config.allowed_events.clone() },
        dedup: Arc::clone(&lasting.dedup),
        events: EventScope::new(
            &config.idempotence_version,
            &lasting.wire.cluster_id().unwrap_or_default(),
            &group_id,
        ),
        steps: Steps::of(
            config.mode,
            config.max_retries,
            config.deferral.max_retries,
            config.failure_topic.is_some(),
        ),
        deferral: config.deferral,
        failure_rate: Mutex::new(FailureRate::new(&config.deferral, now)),
        monopoly: config
            .monopoly
            .filter(|_| config.mode == Mode::Pipeline)
            .map(|limits| Monopoly::new(limits, now)),
        failure_topic: config.failure_topic.as_ref().map(|name| failure_topic(lasting, name, &group_id)),
        backoff: Backoff { base: config.retry_base, max: config.max_retry_delay },
        timeout: config.timeout,
        clock: doors.clock.clone(),
        rng,
        counters: Arc::clone(&lasting.counters),
        telemetry: lasting.telemetry.clone(),
        tracing: Arc::clone(&lasting.tracing),
    });
    let gate = worker::gate(
        handler,
        Arc::clone(&pipeline),
        (config.max_concurrency, config.scheduler),
        Arc::clone(&lasting.occupied),
        doors.spawner.clone(),
    );
    let (retries, held) = (Arc::new(Retries::default()), Arc::clone(&lasting.held));
    let shared = Shared { gate, retries, held, key_seed };
    let group = Group::join(&lasting.wire, group_config(lasting, &group_id));
    let inner = Arc::new(Inner {
        config: Arc::clone(config),
        counters: Arc::clone(&lasting.counters),
        pipeline,
        shared,
        wire: lasting.wire.clone(),
        fetcher: Fetcher::new(&lasting.wire, fetch_config(lasting)),
        assignments: Assignments::new(Arc::clone(&lasting.names)),
        commits: Commits::new(group.committer()),
        beats: Arc::new(Beats::new(doors.clock.now())),
        number: lasting.number,
        loader: loader(lasting),
        images: Arc::new(Mutex::new(Images::new(
            usize::try_from(config.state_owned_cache).unwrap_or(usize::MAX),
        ))),
        store: lasting.store.clone(),
        copies: Copies::bounded(usize::try_from(config.fetch_buffer).unwrap_or(usize::MAX)),
        doors,
    });
    let _ = asked.set(Arc::downgrade(&inner));
    let (stop, (ending, ended)) = (Arc::new(Notify::new()), watch::channel(None));
    let task = run(Arc::clone(&inner), group, Arc::clone(&stop), ending, probes);
    let task = Mutex::new(Some(inner.doors.spawner.spawn(Lane::Io, task)));
    Ok(Subscription { inner, stop, ended, task })
}

/// Asks the subscription once there is one, as long as there is.
fn ask(asked: &Arc<OnceLock<Weak<Inner>>>) -> probes::Ask {
    let asked = Arc::clone(asked);
    Arc::new(move || Some(asked.get()?.upgrade()?.view()))
}

fn failure_topic(lasting: &Lasting, name: &Topic, group_id: &Arc<str>) -> Arc<FailureTopic> {
    let config = &lasting.config;
    Arc::new(FailureTopic {
        name: Arc::clone(name),
        group_id: Arc::clone(group_id),
        source_system: Arc::clone(&config.source_system),
        producer: Producer::new(&lasting.wire, config.producer()),
        spawner: lasting.doors.spawner.clone(),
    })
}

fn loader(lasting: &Lasting) -> Loader {
    let config = &lasting.config;
    let bounds = LoaderConfig {
        cache_bytes: usize::try_from(config.loader_cache).unwrap_or(usize::MAX),
        seek_timeout: config.loader_seek_timeout,
        isolation: config.isolation.into(),
    };
    Loader::new(&lasting.wire, lasting.doors.clone(), bounds, Arc::clone(&lasting.counters))
}

fn group_config(lasting: &Lasting, group_id: &str) -> GroupConfig {
    let config = &lasting.config;
    let mut group = GroupConfig::new(group_id, config.topics.iter().cloned());
    group.patterns.clone_from(&config.patterns);
    group.protocol = config.group_protocol.into();
    if let Some(assignors) = &config.assignors {
        group.assignors.clone_from(assignors);
    }
    group.session_timeout = config.session_timeout;
    group.rebalance_timeout = REBALANCE.0.max(config.shutdown_timeout + REBALANCE.1);
    group.instance_id = config.instance_id.clone();
    group.client_rack = config.client_rack.clone();
    group
}

fn fetch_config(lasting: &Lasting) -> FetchConfig {
    let config = &lasting.config;
    FetchConfig {
        buffer_bytes: usize::try_from(config.fetch_buffer).unwrap_or(usize::MAX),
        // It is answered as soon as there is something, and otherwise its end is one more step of a clock that somebody moves.
        // Without any wait at all, an idle partition would be asked for without a pause.
        max_wait: if lasting.doors.clock.is_manual() {
            MAX_POLL
        } else {
            config.poll_interval.max(LEAST_POLL)
        },
        isolation: config.isolation.into(),
        client_rack: config.client_rack.clone(),
        ..FetchConfig::default()
    }
}

/// All topics at once, so that every missing one is named.
async fn look_up(lasting: &Lasting, deadline: Instant) -> Result<(), Error> {
    let topics = || lasting.config.topics.iter().chain(&lasting.config.failure_topic);
    let lookups = topics().map(|topic| look_up_one(lasting, topic, deadline));
    let mut missing = Vec::new();
    let mut failed = None;
    for (topic, found) in topics().zip(all(lookups).await) {
        match found {
            Ok(()) => {}
            Err(error) if error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => {
                missing.push(topic.to_string());
            }
            Err(error) => failed = Some(error),
        }
    }
    if !missing.is_empty() {
        return Err(Error::missing_topics(missing));
    }
    match failed {
        Some(error) => Err(Error::from_wire("subscribing", &error)),
        None => Ok(()),
    }
}

/// Tries again what may be different in a moment, such as a topic without a leader.
async fn look_up_one(lasting: &Lasting, topic: &Topic, deadline: Instant) -> Result<(), prosody_wire::Error> {
    let clock = &lasting.doors.clock;
    loop {
        let error = match lasting.wire.partition_count(topic, deadline).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let answered = error.code().is_some()
            && (error.disposition() == Disposition::Fatal
                || error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        if answered || error.is_refusal() || clock.now() + LOOK_AGAIN >= deadline {
            return Err(error);
        }
        clock.sleep(LOOK_AGAIN).await;
    }
}

/// Runs futures at the same time; results in their order.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    enum Slot<F: Future> {
        Runs(Pin<Box<F>>),
        Ended(Option<F::Output>),
    }
    let mut slots: Vec<Slot<F>> = futures.map(|future| Slot::Runs(Box::pin(future))).collect();
    std::future::poll_fn(|cx| {
        let mut open = false;
        for slot in &mut slots {
            if let Slot::Runs(future) = slot {
                match future.as_mut().poll(cx) {
                    Poll::Ready(output) => *slot = Slot::Ended(Some(output)),
                    Poll::Pending => open = true,
                }
            }
        }
        if open { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let ended = slots.into_iter().filter_map(|slot| match slot {
        Slot::Ended(output) => output,
        Slot::Runs(_) => None,
    });
    ended.collect()
}
