//! Which transactions are open, and how do they end? (KIP-98, without KIP-890's second version)
//!
//! What a transaction wrote is in the logs at once; a marker at its end says whether it counts. Gaps: no timeout ends a
//! transaction, offsets take no part in one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use super::batch::{self, NewBatch};
use super::topics::lock;
use super::{Shared, code};

/// Transactional ids remembered.
const IDS: usize = 10_000;
/// Partitions of one transaction.
const PARTITIONS: usize = 10_000;

/// Every transactional id.
pub(crate) type Transactions = Mutex<BTreeMap<String, Transaction>>;

/// What a coordinator knows of a transactional id.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    /// Producer id and epoch.
    producer: (i64, i16),
    partitions: BTreeSet<(String, i32)>,
    /// How the last one ended, for a producer that asks again.
    ended: Option<bool>,
}

impl Shared {
    /// Gives a transactional id its producer id and next epoch; who had them before is fenced, and what is open is aborted.
    /// `claimed` is what the producer believes to have.
    pub(crate) fn begin(
        &self,
        id: &str,
        claimed: Option<(i64, i16)>,
        new: impl FnOnce() -> i64,
    ) -> Result<(i64, i16), i16> {
        let (next, open) = {
            let mut known = lock(&self.transactions);
            if known.len() >= IDS && !known.contains_key(id) {
                return Err(code::COORDINATOR_NOT_AVAILABLE);
            }
            let old = known.remove(id);
            let (next, open) = match old {
                None => ((new(), 0), None),
                Some(old) if claimed.is_some_and(|claimed| claimed != old.producer) => {
                    known.insert(id.to_owned(), old);
                    return Err(code::PRODUCER_FENCED);
                }
                Some(old) => {
                    let (producer, epoch) = old.producer;
                    let next = if epoch >= i16::MAX - 1 { (new(), 0) } else { (producer, epoch + 1) };
                    (next, Some(old))
                }
            };
            known.insert(
                id.to_owned(),
                Transaction { producer: next, partitions: BTreeSet::new(), ended: None },
            );
            (next, open)
        };
        if let Some(Transaction { producer: (producer, epoch), partitions, .. }) = open {
            // The marker has the new epoch, so that nothing of the old one can come behind it.
            let epoch = if next.0 == producer { next.1 } else { epoch };
            for (topic, partition) in partitions {
                self.mark(&topic, partition, (producer, epoch), false);
            }
        }
        Ok(next)
    }

    /// Takes partitions into the transaction of a producer.
    pub(crate) fn join_transaction(
        &self,
        id: &str,
        producer: (i64, i16),
        partitions: impl IntoIterator<Item = (String, i32)>,
    ) -> Result<(), i16> {
        let mut known = lock(&self.transactions);
        let transaction = of(&mut known, id, producer)?;
        transaction.partitions.extend(partitions.into_iter().take(PARTITIONS));
        while transaction.partitions.len() > PARTITIONS {
            transaction.partitions.pop_last();
        }
        transaction.ended = None;
        Ok(())
    }

    /// Ends the transaction of a producer: a marker in every partition of it.
    pub(crate) fn end(&self, id: &str, producer: (i64, i16), commit: bool) -> Result<(), i16> {
        let partitions = {
            let mut known = lock(&self.transactions);
            let transaction = of(&mut known, id, producer)?;
            match transaction.ended {
                // The answer got lost: the producer asks again.
                Some(ended) if ended == commit => return Ok(()),
                Some(_) => return Err(code::INVALID_TXN_STATE),
                None if transaction.partitions.is_empty() => return Err(code::INVALID_TXN_STATE),
                None => {}
            }
            transaction.ended = Some(commit);
            std::mem::take(&mut transaction.partitions)
        };
        for (topic, partition) in partitions {
            self.mark(&topic, partition, producer, commit);
        }
        Ok(())
    }

    /// Whether a producer with this transactional id, or none, may write to a partition.
    pub(crate) fn may_write(&self, id: Option<&str>, topic: &str, partition: i32) -> bool {
        let Some(id) = id else { return true };
        let known = lock(&self.transactions);
        let partition = (topic.to_owned(), partition);
        known.get(id).is_some_and(|transaction| transaction.partitions.contains(&partition))
    }

    /// Writes a marker; `false` when there is no such partition.
    pub(crate) fn mark(&self, topic: &str, partition: i32, producer: (i64, i16), commit: bool) -> bool {
        // Key of a marker: version 0, type 0 for abort or 1 for commit. Value: version 0, coordinator epoch 0.
        let key = [0, 0, 0, u8::from(commit)];
        let marker = NewBatch {
            attributes: 0x30,
            producer_id: producer.0,
            producer_epoch: producer.1,
            base_sequence: -1,
            timestamp: self.doors.clock.unix_millis(),
            records: &[(Some(&key), Some(&[0; 6]))],
        }
        .encode();
        let Ok(header) = batch::header(&marker) else { return false };
        let Some(partition) = self.topic(topic).and_then(|topic| topic.partition(partition)) else {
            return false;
        };
        let mut inner = partition.lock();
        let epoch = inner.epoch;
        inner.log.end_transaction(&marker, &header, epoch, commit);
        inner.wake();
        true
    }
}

fn of<'a>(
    known: &'a mut BTreeMap<String, Transaction>,
    id: &str,
    producer: (i64, i16),
) -> Result<&'a mut Transaction, i16> {
    let transaction = known.get_mut(id).ok_or(code::INVALID_PRODUCER_ID_MAPPING)?;
    match transaction.producer {
        known if known == producer => Ok(transaction),
        (known, _) if known != producer.0 => Err(code::INVALID_PRODUCER_ID_MAPPING),
        _ => Err(code::PRODUCER_FENCED),
    }
}
