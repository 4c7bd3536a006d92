//! What has to be asked before anything can be sent? Unknown topics, and the producer id.

use std::sync::Arc;
use std::time::Duration;

use prosody_base::Instant;

use super::{Driver, Event, Fetching, Lookup};
use crate::cluster::{Cluster, TopicMetadata};
use crate::error::{DecodeError, Error};
use crate::produce::sequencer::Identity;
use crate::proto::{ErrorCode, messages};
use crate::types::Topic;

/// How long an unknown topic is asked for again: one just created takes a moment to be known everywhere.
const TOPIC_PATIENCE: Duration = Duration::from_secs(5);

impl Driver {
    /// Starts what has to be asked before anything can be sent.
    pub(super) fn look_up(&mut self, now: Instant) {
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

    pub(super) fn topic(&mut self, now: Instant, topic: &Topic, result: Result<Arc<TopicMetadata>, Error>) {
        let error = match result {
            Ok(known) => {
                self.lookups.remove(topic);
                let leaders = known.partitions.iter().map(|partition| partition.leader);
                self.shared.state().topic_known(topic, leaders);
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
    pub(super) fn follow_metadata(&mut self) {
        let metadata = Arc::clone(&self.metadata.borrow_and_update());
        let mut state = self.shared.state();
        for topic in state.known_topics() {
            match metadata.topic(&topic) {
                Some(known) => {
                    let leaders = known.partitions.iter().map(|partition| partition.leader);
                    state.topic_known(&topic, leaders);
                }
                None => state.leaders(&topic, std::iter::empty()),
            }
        }
    }

    fn deadline(&self) -> Instant {
        let cluster = &self.shared.cluster;
        cluster.doors().clock.now() + cluster.limits().request_timeout
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
    let (id, epoch) = (response.producer_id.0, response.producer_epoch);
    if id < 0 || epoch < 0 {
        // Batches would go out without sequences, and nobody would notice those that are sent twice.
        let why = format!("producer id {id} with epoch {epoch} is none");
        return Err(Error::decode(doing(), DecodeError::Body(why)));
    }
    Ok(Identity { id, epoch })
}
