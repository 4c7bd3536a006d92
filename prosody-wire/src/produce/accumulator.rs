//! Where does a record wait between `send` and its request? In the batch of its partition, under one memory budget. Pure.
//!
//! ```text
//! send ─▶ memory free? ─no─▶ waiting, in order of arrival
//!             │ yes
//!             ▼
//!         topic known? ─no─▶ the topic's own queue, until metadata knows it
//!             │ yes
//!             ▼
//!         partition ─▶ its open batch ─▶ (the driver takes it) ─▶ sealed batch on the wire
//! ```

mod ends;
mod free;
mod topics;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use prosody_base::{Instant, Rng};

use super::completion::{Completion, SendError, Sending};
use super::partitioner::Partitioner;
use super::queue::{OpenBatch, PartitionQueue};
use super::record::{OutgoingRecord, OwnedRecord, headers};
use super::sequencer::{BatchId, Identity};
use crate::batch::{BatchBuilder, BufferPool};
use crate::error::{Error, ErrorKind};
use crate::types::Topic;

#[derive(Debug)]
pub(crate) enum TopicState {
    /// Metadata does not know it yet.
    Unknown { pending: VecDeque<OwnedRecord>, last_error: Option<Error> },
    /// One queue for each partition: places in [`Accumulator::partitions`], of which the first `count` exist now: a topic
    /// that was created anew may be smaller. `sticky` is the one that records without a key go to for now.
    Known { queues: Vec<usize>, count: usize, sticky: Option<i32> },
}

/// Everything between `send` and the wire.
#[derive(Debug)]
pub(crate) struct Accumulator {
    partitioner: Partitioner,
    batch_size: usize,
    memory: usize,
    used: usize,
    pool: BufferPool,
    rng: Rng,
    next_batch: u64,
    /// What a partition starts under.
    identity: Option<Identity>,
    topics: BTreeMap<Topic, TopicState>,
    pub(crate) partitions: Vec<PartitionQueue>,
    waiting: VecDeque<OwnedRecord>,
    /// Bytes of what waits for memory, and most of them.
    line: usize,
    line_limit: usize,
    /// Topics metadata has to be asked for.
    pub(crate) unknown: BTreeSet<Topic>,
    /// Why nothing is taken any more.
    pub(crate) closed: Option<Error>,
    /// The driver has something to do.
    pub(crate) attention: bool,
    /// The driver sleeps at most until then.
    pub(crate) armed: Option<Instant>,
}

/// Bounds of the accumulator, from the producer's configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) partitioner: Partitioner,
    pub(crate) batch_size: usize,
    pub(crate) memory: usize,
    pub(crate) line: usize,
}

impl Accumulator {
    pub(crate) fn new(bounds: Bounds, pool: BufferPool, rng: Rng) -> Accumulator {
        Accumulator {
            partitioner: bounds.partitioner,
            batch_size: bounds.batch_size,
            memory: bounds.memory,
            used: 0,
            pool,
            rng,
            next_batch: 0,
            identity: None,
            topics: BTreeMap::new(),
            partitions: Vec::new(),
            waiting: VecDeque::new(),
            line: 0,
            line_limit: bounds.line,
            unknown: BTreeSet::new(),
            closed: None,
            attention: false,
            armed: None,
        }
    }

    /// Takes a record. Its place in the order of its partition is decided here.
    #[inline]
    pub(crate) fn send(
        &mut self,
        record: &OutgoingRecord<'_>,
        now_ms: i64,
        deadline: Option<Instant>,
    ) -> Sending {
        if let Some(error) = &self.closed {
            return Sending::failed(SendError::not_written(error.clone()));
        }
        self.place(record, record.timestamp.unwrap_or(now_ms), deadline)
    }

    #[inline]
    fn place(&mut self, record: &OutgoingRecord<'_>, timestamp: i64, deadline: Option<Instant>) -> Sending {
        let headers = headers(record.headers);
        let size = BatchBuilder::upper_bound(record.key, record.value, headers);
        if !self.waiting.is_empty() || self.used.saturating_add(size) > self.memory {
            return self.wait(record, timestamp, deadline, size);
        }
        self.used += size;
        match self.topics.get_mut(record.topic) {
            Some(TopicState::Known { queues, count, sticky }) => {
                let queues = queues.get(..*count).unwrap_or(queues);
                let count = i32::try_from(queues.len()).unwrap_or(i32::MAX);
                let chosen = record.partition.or_else(|| self.partitioner.partition(record.key, count));
                let partition = chosen.unwrap_or_else(|| {
                    let sizes = (size, self.batch_size);
                    let (partition, is_new) =
                        free::partition(sticky, queues, &mut self.partitions, sizes, &self.rng);
                    // The batch that is left behind may go.
                    self.attention |= is_new;
                    partition
                });
                let place =
                    usize::try_from(partition).ok().and_then(|partition| queues.get(partition)).copied();
                let is_free = chosen.is_none();
                match place {
                    Some(place) => match self.append(place, record, timestamp, deadline, (size, is_free)) {
                        Ok((completion, index)) => Sending::batch(completion, index, timestamp),
                        Err(error) => {
                            self.used -= size;
                            Sending::failed(error)
                        }
                    },
                    None => {
                        self.used -= size;
                        Sending::failed(no_partition(record.topic, partition, count))
                    }
                }
            }
            _ => {
                let owned = OwnedRecord::new(record, timestamp, deadline, size);
                let sending = Sending::slot(Arc::clone(&owned.slot), timestamp);
                self.queue_unknown(owned);
                sending
            }
        }
    }

    #[cold]
    fn wait(
        &mut self,
        record: &OutgoingRecord<'_>,
        timestamp: i64,
        deadline: Option<Instant>,
        size: usize,
    ) -> Sending {
        if size > self.memory {
            let doing = format!("sending a record of about {size} bytes to {}", record.topic);
            return Sending::failed(SendError::not_written(Error::new(
                doing,
                ErrorKind::Full("the producer's memory, which the record alone exceeds,"),
            )));
        }
        let owned = OwnedRecord::new(record, timestamp, deadline, size);
        if self.line.saturating_add(owned.held()) > self.line_limit {
            let doing = format!("sending to {} faster than the brokers take it", record.topic);
            return Sending::failed(SendError::not_written(Error::new(
                doing,
                ErrorKind::Full("the producer's memory and the line of records that wait for it"),
            )));
        }
        self.line += owned.held();
        let sending = Sending::slot(Arc::clone(&owned.slot), timestamp);
        self.arm(deadline);
        self.waiting.push_back(owned);
        sending
    }

    fn queue_unknown(&mut self, record: OwnedRecord) {
        self.arm(record.deadline);
        let topic = Arc::clone(&record.topic);
        match self.topics.get_mut(&topic) {
            Some(TopicState::Unknown { pending, .. }) => pending.push_back(record),
            _ => {
                let pending = VecDeque::from([record]);
                self.topics.insert(Arc::clone(&topic), TopicState::Unknown { pending, last_error: None });
                self.unknown.insert(topic);
                self.attention = true;
            }
        }
    }

    /// Puts a record of at most so many bytes into the open batch of a partition, whose stay it uses up if the partition was
    /// free to choose.
    #[inline]
    fn append(
        &mut self,
        place: usize,
        record: &OutgoingRecord<'_>,
        timestamp: i64,
        deadline: Option<Instant>,
        (size, is_free): (usize, bool),
    ) -> Result<(Arc<Completion>, u32), SendError> {
        let Some(queue) = self.partitions.get_mut(place) else {
            return Err(no_partition(record.topic, -1, 0));
        };
        let largest = self.batch_size.min(queue.largest);
        let fits = queue.open.back().is_some_and(|batch| batch.builder.size() + size <= largest);
        if !fits {
            let room = queue.last_size.max(size).min(largest.max(size));
            let completion = Completion::new(Arc::clone(&queue.topic), queue.partition);
            let builder = BatchBuilder::new(self.pool.clone(), room);
            queue.open.push_back(OpenBatch::new(BatchId(self.next_batch), builder, completion));
            self.next_batch += 1;
            self.attention |= queue.sequencer.outstanding() == 0 || queue.open.len() > 1;
        }
        let Some(batch) = queue.open.back_mut() else {
            return Err(no_partition(record.topic, queue.partition, 0));
        };
        let before = batch.builder.size();
        batch.builder.append(timestamp, record.key, record.value, headers(record.headers)).map_err(
            |why| {
                let doing = format!("sending to {}-{}", queue.topic, queue.partition);
                SendError::not_written(Error::new(doing, ErrorKind::Encode(why.to_string())))
            },
        )?;
        if is_free {
            queue.stay = queue.stay.saturating_sub(batch.builder.size() - before);
        }
        let index = batch.indices;
        batch.indices += 1;
        batch.charge += size;
        batch.deadlines.push(index, deadline);
        let completion = Arc::clone(&batch.completion);
        self.arm(deadline);
        Ok((completion, index))
    }

    /// The driver must not sleep past this deadline.
    #[inline]
    fn arm(&mut self, deadline: Option<Instant>) {
        if let Some(deadline) = deadline
            && self.armed.is_none_or(|armed| deadline < armed)
        {
            self.armed = Some(deadline);
            self.attention = true;
        }
    }

    /// Sends a record that waited; its slot learns where it went.
    fn admit(&mut self, record: OwnedRecord) {
        let slot = Arc::clone(&record.slot);
        let borrowed: Vec<(&[u8], Option<&[u8]>)> =
            record.headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
        let view = OutgoingRecord {
            topic: &record.topic,
            partition: record.partition,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &borrowed,
            timestamp: Some(record.timestamp),
        };
        if !matches!(self.topics.get(&record.topic), Some(TopicState::Known { .. })) {
            self.used += record.size;
            self.queue_unknown(record);
            return;
        }
        // Known and within the memory, so it finds its place at once.
        let waiting = std::mem::take(&mut self.waiting);
        let sending = self.place(&view, record.timestamp, record.deadline);
        self.waiting = waiting;
        sending.settle(&slot);
    }

    /// The name of one more batch.
    pub(crate) fn name_batch(&mut self) -> BatchId {
        self.next_batch += 1;
        BatchId(self.next_batch - 1)
    }

    /// Memory came back.
    pub(crate) fn freed(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
        if bytes > 0 {
            self.admit_waiting();
        }
    }

    fn admit_waiting(&mut self) {
        while let Some(first) = self.waiting.front()
            && self.used.saturating_add(first.size) <= self.memory
            && let Some(record) = self.waiting.pop_front()
        {
            self.line -= record.held();
            self.admit(record);
        }
    }

    /// Whether a producer id is needed to go on.
    pub(crate) fn needs_identity(&self) -> bool {
        (self.identity.is_none() && !self.unknown.is_empty())
            || self.partitions.iter().any(|queue| !queue.is_empty() && queue.sequencer.needs_identity())
    }

    /// Every partition without an identity starts under this one.
    pub(crate) fn adopt(&mut self, identity: Identity) {
        self.identity = Some(identity);
        self.partitions.iter_mut().for_each(|queue| queue.sequencer.adopt(identity));
    }

    /// Bytes of the budget in use.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

#[cold]
fn no_partition(topic: &str, partition: i32, count: i32) -> SendError {
    let why = format!("the topic has {count} partitions");
    SendError::not_written(Error::new(format!("sending to {topic}-{partition}"), ErrorKind::Config(why)))
}

#[cfg(test)]
#[path = "accumulator_model.rs"]
mod model;
