//! What does an answer, or its loss, mean for each batch of a request?

use std::sync::Arc;

use bytes::Bytes;
use prosody_base::Instant;

use super::Driver;
use crate::cluster::node;
use crate::error::{DecodeError, Error, ErrorKind};
use crate::produce::accumulator::Accumulator;
use crate::produce::sequencer::{BatchId, Refusal, Verdict};
use crate::produce::wire::{self, Answer, PartitionAnswer};
use crate::proto::{Disposition, ErrorCode};
use crate::types::BrokerId;

impl Driver {
    pub(super) fn answered(
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

    fn apply(&mut self, now: Instant, broker: BrokerId, batches: &[(usize, BatchId)], answer: &Answer) {
        let mut refresh = false;
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
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
            if matches!(found.error, ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE)
                && self.split(&mut state, *place, *batch)
            {
                tracing::debug!(%error, "a batch is split");
                continue;
            }
            let Some(queue) = state.partitions.get_mut(*place) else { continue };
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

    /// Whether the records of a batch that is too large go on in two.
    fn split(&mut self, state: &mut Accumulator, place: usize, batch: BatchId) -> bool {
        let rest = state.name_batch();
        let Some(queue) = state.partitions.get_mut(place) else { return false };
        let codec = (self.shared.config.compression, &mut self.compressor);
        queue.split(batch, rest, &self.pool, codec).unwrap_or_else(|error| {
            tracing::error!(%error, "a batch that is too large could not be split");
            false
        })
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
