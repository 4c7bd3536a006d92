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
        if let Some(producer) = self.producers.get_mut(&producer_id)
            && producer.epoch < producer_epoch
        {
            producer.epoch = producer_epoch;
            producer.batches.clear();
            producer.last = -1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch(epoch: i16, base_sequence: i32, count: i32) -> Header {
        Header {
            base_offset: 0,
            length: 0,
            leader_epoch: 0,
            magic: 2,
            attributes: 0,
            last_offset_delta: count - 1,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id: 7,
            producer_epoch: epoch,
            base_sequence,
            count,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Compared with a log that remembers everything: what is appended is gapless and new, per epoch, and the last
        /// five batches are recognized.
        #[test]
        fn the_log_stays_gapless(start in prop_oneof![Just(0i32), Just(i32::MAX - 20)], tries in prop::collection::vec((0i16..3, 0usize..12, 1i32..4), 1..80)) {
            let mut sequences = Sequences::default();
            let mut log: Vec<(i16, i32, i32, i64)> = Vec::new();
            let first = batch(0, start, 1);
            prop_assert_eq!(sequences.check(&first, UnknownProducer::Accept), Verdict::Append);
            sequences.appended(&first, 0);
            log.push((0, start, start, 0));
            for (epoch, back, count) in tries {
                let newest = *log.last().expect("begun");
                // `back` 0 is the batch that is due, 1..=9 repeats an old one, more is something else.
                let tried = match back {
                    0 if epoch == newest.0 => batch(epoch, wrap_sequence(newest.2, 1), count),
                    0 => batch(epoch, 0, count),
                    1..=9 if back <= log.len() => {
                        let old = log[log.len() - back];
                        batch(old.0, old.1, wrap_sequence(old.2, 1).wrapping_sub(old.1).rem_euclid(i32::MAX).clamp(1, 3))
                    }
                    _ => batch(epoch, wrap_sequence(newest.2, 2), count),
                };
                let (epoch, base, last) = (tried.producer_epoch, tried.base_sequence, tried.last_sequence());
                let of_epoch: Vec<_> = log.iter().rev().take_while(|old| old.0 == newest.0).take(5).collect();
                let known = of_epoch.iter().find(|old| (old.0, old.1, old.2) == (epoch, base, last));
                let expected = match known {
                    Some(old) => Verdict::Duplicate { base_offset: old.3 },
                    None if epoch < newest.0 => Verdict::Refuse(code::INVALID_PRODUCER_EPOCH),
                    None if epoch > newest.0 && base == 0 => Verdict::Append,
                    None if epoch == newest.0 && base == wrap_sequence(newest.2, 1) => Verdict::Append,
                    None => Verdict::Refuse(code::OUT_OF_ORDER_SEQUENCE_NUMBER),
                };
                prop_assert_eq!(sequences.check(&tried, UnknownProducer::Refuse), expected);
                if expected == Verdict::Append {
                    let offset = log.len() as i64;
                    sequences.appended(&tried, offset);
                    log.push((epoch, base, last, offset));
                }
            }
        }
    }

    #[test]
    fn a_producer_without_a_past_starts_at_zero_unless_the_cluster_is_newer() {
        let sequences = Sequences::default();
        let late = batch(0, 5, 1);
        assert_eq!(
            sequences.check(&late, UnknownProducer::Refuse),
            Verdict::Refuse(code::UNKNOWN_PRODUCER_ID)
        );
        assert_eq!(sequences.check(&late, UnknownProducer::Accept), Verdict::Append);
        assert_eq!(sequences.check(&batch(0, 0, 1), UnknownProducer::Refuse), Verdict::Append);
    }
}
