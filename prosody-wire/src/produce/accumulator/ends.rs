//! How do records end that were not sent? At their deadline, with the producer, or because no producer id is given out.

use prosody_base::Instant;

use super::{Accumulator, TopicState};
use crate::error::{Error, ErrorKind};
use crate::produce::completion::SendError;
use crate::produce::queue::{PartitionQueue, gave_up};
use crate::produce::record::OwnedRecord;
use crate::types::BrokerId;

impl Accumulator {
    /// Whether every record has met its fate.
    pub(crate) fn is_idle(&self) -> bool {
        let no_pending = |state: &TopicState| match state {
            TopicState::Unknown { pending, .. } => pending.is_empty(),
            TopicState::Known { .. } => true,
        };
        self.waiting.is_empty()
            && self.topics.values().all(no_pending)
            && self.partitions.iter().all(PartitionQueue::is_empty)
    }

    /// Gives up every record whose deadline has passed. `unknown` is why topics cannot be looked up, `cause` knows why a
    /// broker cannot be reached.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        unknown: Option<&Error>,
        cause: impl Fn(BrokerId) -> Option<Error>,
    ) {
        let passed = |deadline: &Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        let mut freed = 0;
        for (topic, state) in &mut self.topics {
            if let TopicState::Unknown { pending, last_error } = state {
                pending.retain(|record| {
                    if passed(&record.deadline) {
                        freed += record.size;
                        record
                            .slot
                            .fail(SendError::not_written(gave_up(topic, last_error.as_ref().or(unknown))));
                    }
                    !passed(&record.deadline)
                });
            }
        }
        for queue in &mut self.partitions {
            let cause = queue.leader.and_then(&cause);
            freed += queue.expire(now, cause.as_ref());
        }
        let line = &mut self.line;
        self.waiting.retain(|record| {
            if passed(&record.deadline) {
                *line -= record.held();
                let doing = format!("sending to {}, given up at its deadline", record.topic);
                let error = Error::new(doing, ErrorKind::Full("the producer's memory"));
                record.slot.fail(SendError::not_written(error));
            }
            !passed(&record.deadline)
        });
        self.freed(freed);
        self.armed = self.next_deadline(now);
    }

    fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let pending = self.topics.values().flat_map(|state| match state {
            TopicState::Unknown { pending, .. } => pending.iter(),
            TopicState::Known { .. } => Default::default(),
        });
        let owned = pending.chain(&self.waiting).filter_map(|record| record.deadline);
        let queued = self.partitions.iter().filter_map(|queue| queue.next_deadline(now));
        owned.chain(queued).min()
    }

    /// Ends every record. Nothing is taken afterwards.
    pub(crate) fn abandon(&mut self, error: &Error) -> usize {
        self.closed.get_or_insert_with(|| error.clone());
        let mut ended = 0;
        let mut fail = |record: OwnedRecord| {
            ended += 1;
            record.slot.fail(SendError::not_written(error.clone()));
        };
        self.waiting.drain(..).for_each(&mut fail);
        self.line = 0;
        for state in self.topics.values_mut() {
            if let TopicState::Unknown { pending, .. } = state {
                pending.drain(..).for_each(&mut fail);
            }
        }
        for queue in &mut self.partitions {
            ended += queue.open.iter().map(|batch| batch.live() as usize).sum::<usize>();
            ended += queue.sealed.iter().map(|batch| batch.indices.len()).sum::<usize>();
            queue.abandon(error);
        }
        self.used = 0;
        ended
    }

    /// Fails what cannot be sent because no producer id is given out.
    pub(crate) fn refuse_unsent(&mut self, error: &Error) {
        let mut freed = 0;
        for queue in self.partitions.iter_mut().filter(|queue| queue.sequencer.needs_identity()) {
            freed += queue.refuse_open(error);
        }
        self.freed(freed);
    }
}
