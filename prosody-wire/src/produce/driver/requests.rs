//! Which batches go into the next request to a broker, and how are they sealed?

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use prosody_base::Instant;

use super::{Driver, Event};
use crate::batch::{ProducerStamp, restamp};
use crate::conn::Connection;
use crate::error::Error;
use crate::produce::queue::OpenBatch;
use crate::produce::sealed::SealedBatch;
use crate::produce::sequencer::{BatchId, Refusal, Sequence};
use crate::produce::wire::{self, PartitionBatch};
use crate::proto::ApiKey;
use crate::types::{BrokerId, Topic};

/// Produce requests of one broker without an answer. A broker works on one at a time; the others wait in its socket.
const REQUESTS: usize = 5;
/// Batches that could still grow are sent while a broker has fewer requests than this to answer.
const REQUESTS_WHEN_PARTIAL: usize = 1;

impl Driver {
    /// Sends one request to a broker, if there is something for it.
    pub(super) fn send_one(&mut self, id: BrokerId, connection: &Connection, now: Instant) -> bool {
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
            sequence: Some(sequence),
            indices: 0..indices,
            is_part: false,
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
        if sealed.sequence != Some(sequence) {
            sealed.bytes = restamp(&sealed.bytes, &self.pool, stamp(sequence))?;
            sealed.sequence = Some(sequence);
        }
        Some(sealed.bytes.clone())
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

fn stamp(sequence: Sequence) -> ProducerStamp {
    ProducerStamp {
        id: sequence.identity.id,
        epoch: sequence.identity.epoch,
        base_sequence: sequence.first,
        is_transactional: false,
    }
}
