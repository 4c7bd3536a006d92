//! Which batch may an idempotent producer append next? One partition's memory of its producers (KIP-98, KIP-360).

use std::collections::{BTreeMap, VecDeque};

use super::batch::{Header, wrap_sequence};
use super::code;

/// Batches per producer whose repetition is answered with the offset of the first time.
const REMEMBERED_BATCHES: usize = 5;
/// Producers remembered per partition; the one that was quiet longest is forgotten first.
const REMEMBERED_PRODUCERS: usize = 10_000;

/// What a partition does with a producer it has no memory of whose first batch does not start at sequence 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownProducer {
    /// Answers UNKNOWN_PRODUCER_ID, as brokers before Kafka 2.5 did. Notices a client that lost its first batch.
    #[default]
    Refuse,
    /// Appends it, as brokers since Kafka 2.5 do.
    Accept,
}

/// The verdict on a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Append it.
    Append,
    /// It is in the log already, at this base offset.
    Duplicate {
        /// Base offset of the first time.
        base_offset: i64,
    },
    /// Answer this error code.
    Refuse(i16),
}

#[derive(Clone, Copy, Debug)]
struct Appended {
    first: i32,
    last: i32,
    base_offset: i64,
}

#[derive(Clone, Debug)]
struct Producer {
    epoch: i16,
    /// Oldest first, all of the current epoch.
    batches: VecDeque<Appended>,
    /// Sequence of the last record appended in this epoch.
    last: i32,
    used: u64,
}

/// The producers of one partition.
#[derive(Clone, Debug, Default)]
pub struct Sequences {
    producers: BTreeMap<i64, Producer>,
    clock: u64,
}

impl Sequences {
    /// Whether the batch may be appended now.
    #[must_use]
    pub fn check(&self, batch: &Header, unknown: UnknownProducer) -> Verdict {
        if batch.producer_id < 0 {
            return Verdict::Append;
        }
        if batch.producer_epoch < 0 || batch.base_sequence < 0 {
            return Verdict::Refuse(code::INVALID_RECORD);
        }
        let Some(known) = self.producers.get(&batch.producer_id) else {
            return match unknown {
                UnknownProducer::Refuse if batch.base_sequence != 0 => {
                    Verdict::Refuse(code::UNKNOWN_PRODUCER_ID)
                }
                _ => Verdict::Append,
            };
        };
        if batch.producer_epoch < known.epoch {
            return Verdict::Refuse(code::INVALID_PRODUCER_EPOCH);
        }
        if batch.producer_epoch > known.epoch {
            return match batch.base_sequence {
                0 => Verdict::Append,
                _ => Verdict::Refuse(code::OUT_OF_ORDER_SEQUENCE_NUMBER),
            };
        }
        let same = |old: &&Appended| old.first == batch.base_sequence && old.last == batch.last_sequence();
        if let Some(old) = known.batches.iter().find(same) {
            return Verdict::Duplicate { base_offset: old.base_offset };
        }
        if batch.base_sequence == wrap_sequence(known.last, 1) {
            Verdict::Append
        } else {
            Verdict::Refuse(code::OUT_OF_ORDER_SEQUENCE_NUMBER)
        }
    }

    /// Remembers a batch that was appended.
    pub fn appended(&mut self, batch: &Header, base_offset: i64) {
        if batch.producer_id < 0 {
            return;
        }
        self.clock += 1;
        let used = self.clock;
        if self.producers.len() >= REMEMBERED_PRODUCERS && !self.producers.contains_key(&batch.producer_id) {
            let oldest = self.producers.iter().min_by_key(|(_, producer)| producer.used).map(|(id, _)| *id);
            oldest.map(|id| self.producers.remove(&id));
        }
        let new = Appended { first: batch.base_sequence, last: batch.last_sequence(), base_offset };
        let producer = self.producers.entry(batch.producer_id).or_insert_with(|| Producer {
            epoch: batch.producer_epoch,
            batches: VecDeque::new(),
            last: new.last,
            used,
        });
        if producer.epoch != batch.producer_epoch {
            producer.epoch = batch.producer_epoch;
            producer.batches.clear();
        }
        if producer.batches.len() >= REMEMBERED_BATCHES {
            producer.batches.pop_front();
        }
        producer.batches.push_back(new);
        producer.last = new.last;
        producer.used = used;
    }

    /// A transaction marker ends what a producer wrote in its epoch: its next epoch starts at sequence 0.
    pub fn marked(&mut self, producer_id: i64, producer_epoch: i16) {
        if let Some(producer) = self.producers.get_mut(&producer_id) {
            producer.epoch = producer.epoch.max(producer_epoch);
        }
    }
}
