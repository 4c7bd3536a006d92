//! What does the answer to a Fetch mean for the broker, its session, and each partition?

use bytes::Bytes;
use prosody_base::Instant;

use super::{Asked, Driver, Kind, Reply};
use crate::cluster::{Cluster, node};
use crate::error::Error;
use crate::fetch::buffer::{Charge, Counted, Fetched, Part, Queued};
use crate::fetch::plan::{expanded, wanted};
use crate::fetch::validate::walk;
use crate::fetch::wire::{self, Answer, DIVERGING, PartitionData, TopicRef};
use crate::proto::{Disposition, ErrorCode};
use crate::types::BrokerId;

impl Driver {
    pub(super) fn fetched(
        &mut self,
        now: Instant,
        id: BrokerId,
        kind: Kind,
        asked: &[Asked],
        result: Result<Reply, Error>,
    ) {
        {
            let mut state = self.shared.state();
            for asked in asked {
                if let Some(part) = state.parts.get_mut(&asked.id) {
                    part.asked = false;
                }
            }
        }
        if let Ok(reply) = &result {
            self.look_ahead(now, id, kind, reply);
        }
        // An older one cannot say that the log has parted from what was read.
        let says_diverging = result.as_ref().is_ok_and(|reply| reply.version >= DIVERGING);
        let answer = result.and_then(|reply| self.read(id, reply));
        let failures = self.brokers.get(&id).map_or(1, |broker| broker.failures + 1);
        let wait = self.backoff(failures);
        let broker = self.brokers.entry(id).or_default();
        match kind {
            Kind::Poll => broker.polling = false,
            Kind::Look | Kind::Next => broker.beside = broker.beside.saturating_sub(1),
        }
        let answer = match answer {
            Ok(answer) if answer.error == 0 => answer,
            Ok(answer) => {
                broker.session.reset();
                let code = ErrorCode(answer.error);
                let lost = matches!(
                    code,
                    ErrorCode::FETCH_SESSION_ID_NOT_FOUND
                        | ErrorCode::INVALID_FETCH_SESSION_EPOCH
                        | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR
                );
                // The broker forgot the session, as it may: the next full request helps at once, but only once in a row.
                if !lost || broker.failures > 0 {
                    broker.retry_at = Some(now + wait);
                }
                broker.failures = failures;
                if !lost {
                    self.leave_follower(now, id, asked);
                }
                if code.disposition() == Disposition::RefreshMetadata
                    || code == ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR
                {
                    self.shared.cluster.refresh_soon("a Fetch was refused");
                }
                tracing::debug!(%code, broker = id.0, "a Fetch was refused");
                return;
            }
            Err(error) => {
                if kind == Kind::Poll {
                    broker.session.reset();
                }
                (broker.failures, broker.retry_at) = (failures, Some(now + wait));
                self.leave_follower(now, id, asked);
                tracing::debug!(%error, "a Fetch failed");
                self.shared.cluster.refresh_soon("a Fetch failed");
                return;
            }
        };
        if kind == Kind::Poll {
            broker.session.answered(answer.session_id);
        }
        (broker.failures, broker.retry_at) = (0, None);
        self.learn(&answer, asked);
        if !says_diverging {
            self.prove(asked);
        }
        self.apply(now, id, kind, asked, answer);
    }

    /// What was asked of a follower is asked of leaders again.
    fn leave_follower(&self, now: Instant, id: BrokerId, asked: &[Asked]) {
        let mut state = self.shared.state();
        for asked in asked {
            if let Some(part) = state.parts.get_mut(&asked.id) {
                part.leave_follower(id, now);
            }
        }
    }

    /// How much of the budget is worth using follows from what each broker brings, and how long it takes.
    fn look_ahead(&mut self, now: Instant, id: BrokerId, kind: Kind, reply: &Reply) {
        let state = self.shared.state();
        let of_it = state.parts.values().filter(|part| part.source(now) == Some(id));
        let percent = of_it.map(|part| part.percent).max().unwrap_or(100);
        let Some(broker) = self.brokers.get_mut(&id) else { return };
        let bytes = expanded(reply.body.len(), percent);
        if kind != Kind::Poll {
            broker.brought = broker.brought.saturating_add(bytes);
            return;
        }
        let bytes = bytes.saturating_add(std::mem::take(&mut broker.brought));
        let cycle = now.saturating_duration_since(broker.answered_at.replace(now).unwrap_or(now));
        broker.wanted = wanted(broker.wanted, bytes, cycle, reply.connection.distance());
        let read = |id: &BrokerId| state.parts.values().any(|part| part.source(now).as_ref() == Some(id));
        let sources = self.brokers.iter().filter(|(id, _)| read(id));
        self.shared.set_window(sources.fold(0, |all: usize, (_, one)| all.saturating_add(one.wanted)));
    }

    /// Partitions with a new leader are asked for once more when it is known that it has what was read.
    fn prove(&self, asked: &[Asked]) {
        let mut state = self.shared.state();
        for asked in asked {
            if let Some(part) = state.parts.get_mut(&asked.id) {
                part.cursor.is_proven(asked.leader_epoch);
            }
        }
    }

    fn read(&self, id: BrokerId, reply: Reply) -> Result<Answer, Error> {
        let charge = Charge::new(&self.shared.budget, reply.body.len(), None);
        let body = Bytes::from_owner(Counted { body: reply.body, _charge: charge });
        let answer = wire::response(reply.version, &body).map_err(|why| {
            reply.connection.close("a Fetch response could not be read");
            Error::decode(format!("Fetch v{} to broker {id}", reply.version), why)
        })?;
        reply.connection.throttle(answer.throttle);
        Ok(answer)
    }

    /// Leaders and brokers the answer names (KIP-951).
    fn learn(&self, answer: &Answer, asked: &[Asked]) {
        for data in &answer.partitions {
            if let (Some((leader, epoch)), Some(asked)) = (data.leader, find(asked, data)) {
                let known = answer.nodes.iter().find(|node| node.id == leader.0);
                let address =
                    known.and_then(|known| node(known.id, &known.host, known.port, known.rack.as_deref()));
                self.shared.cluster.learn_leader(&asked.key.topic, data.partition, leader, epoch, address);
            }
        }
    }

    fn apply(&mut self, now: Instant, id: BrokerId, kind: Kind, asked: &[Asked], answer: Answer) {
        let limits = self.shared.cluster.limits().clone();
        let mut refresh = false;
        let mut state = self.shared.state();
        if kind != Kind::Poll {
            for asked in asked {
                if let Some(part) = state.parts.get_mut(&asked.id) {
                    part.looked = true;
                }
            }
        }
        for data in answer.partitions {
            let Some(asked) = find(asked, &data) else { continue };
            let Some(part) = state.parts.get_mut(&asked.id) else { continue };
            let is_trouble = data.error != ErrorCode::NONE || data.diverging.is_some();
            if is_trouble && part.leave_follower(id, now) {
                // It is behind, or no replica any more. What is true of the log, the leader says.
                refresh |= data.error.disposition() == Disposition::RefreshMetadata;
                tracing::debug!(partition = %part.tp, follower = id.0, code = %data.error, "back to the leader");
            } else if data.error == ErrorCode::NONE {
                (part.failures, part.retry_at) = (0, None);
                if let Some(follower) = data.preferred
                    && !part.named(id, follower, now, limits.metadata_age)
                {
                    part.retry_at = Some(now + limits.backoff);
                }
                part.looked &= data.records.is_empty();
                part.data(now, asked.offset, data, limits.frame_bytes);
            } else if data.error == ErrorCode::OFFSET_OUT_OF_RANGE {
                part.cursor.out_of_range(asked.offset);
            } else {
                refresh |= data.error.disposition() == Disposition::RefreshMetadata;
                let doing = format!("fetching {} at offset {}", part.tp, asked.offset);
                part.refused(now, data.error, Error::broker(doing, data.error), &self.shared.cluster);
            }
        }
        drop(state);
        if refresh {
            self.shared.cluster.refresh_soon("a Fetch response named an old leader");
        }
    }
}

impl Part {
    /// Takes over what a fetch from `from` brought.
    fn data(&mut self, now: Instant, from: i64, data: PartitionData, largest: usize) {
        if self.cursor.position() != Some(from) {
            return;
        }
        self.high_watermark = Some(data.high_watermark);
        self.readable_end = if data.last_stable < 0 { data.high_watermark } else { data.last_stable };
        if let Some((epoch, end)) = data.diverging {
            if let Some(moved) = self.cursor.truncated(from, epoch, end) {
                self.push(Queued::Moved(moved));
            }
            return;
        }
        let walk = walk(&data.records, from);
        if walk.complete == 0 {
            if !data.records.is_empty() {
                // Not even one batch fits.
                self.max_bytes = self.max_bytes.saturating_mul(2).min(largest);
            }
            return;
        }
        if !walk.compressed {
            self.percent = 100;
        }
        if self.cursor.advance(from, walk) {
            let mut records = data.records;
            records.truncate(walk.complete);
            self.push(Queued::Records(Fetched { at: now, from, records, aborted: data.aborted }));
        }
    }

    /// The broker refused this partition.
    pub(super) fn refused(&mut self, now: Instant, code: ErrorCode, error: Error, cluster: &Cluster) {
        tracing::debug!(%error, "a partition was not fetched");
        if matches!(code.disposition(), Disposition::Retry | Disposition::RefreshMetadata) {
            self.put_off(now, cluster);
        } else {
            self.failures = self.failures.saturating_add(1);
            self.retry_at = Some(now + cluster.limits().backoff_max);
            self.push(Queued::Failed(error));
        }
    }

    /// It is asked for again after a wait that grows while nothing comes.
    pub(super) fn put_off(&mut self, now: Instant, cluster: &Cluster) {
        self.failures = self.failures.saturating_add(1);
        let limits = cluster.limits();
        let wait = cluster.doors().rng.backoff(limits.backoff, limits.backoff_max, self.failures);
        self.retry_at = Some(now + wait);
    }
}

fn find<'a>(asked: &'a [Asked], data: &PartitionData) -> Option<&'a Asked> {
    asked.iter().find(|asked| {
        asked.key.partition == data.partition
            && match &data.topic {
                TopicRef::Name(name) => *name == asked.key.topic,
                TopicRef::Id(id) => asked.key.topic_id == Some(*id),
            }
    })
}
