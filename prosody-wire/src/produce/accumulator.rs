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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use prosody_base::{Instant, Rng};

use super::completion::{Completion, SendError, Sending, Slot};
use super::partitioner::{Partitioner, Sticky};
use super::queue::{OpenBatch, PartitionQueue, gave_up};
use super::sequencer::{BatchId, Identity};
use crate::batch::{BatchBuilder, BufferPool};
use crate::error::{Error, ErrorKind};
use crate::types::{BrokerId, Topic};

/// A record on its way in, borrowed from the caller.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRecord<'a> {
    /// The topic to write to.
    pub topic: &'a str,
    /// The partition; `None` lets the partitioner choose.
    pub partition: Option<i32>,
    /// The key; `None` is a null key.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a null value (a tombstone).
    pub value: Option<&'a [u8]>,
    /// Headers in order; keys may repeat.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// Milliseconds since 1970; `None` is the time of the call.
    pub timestamp: Option<i64>,
}

/// A record that owns its bytes, because it has no batch yet.
#[derive(Debug)]
pub(crate) struct OwnedRecord {
    pub(crate) topic: Topic,
    partition: Option<i32>,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Vec<u8>)>,
    timestamp: i64,
    deadline: Option<Instant>,
    size: usize,
    slot: Arc<Slot>,
}

#[derive(Debug)]
pub(crate) enum TopicState {
    /// Metadata does not know it yet.
    Unknown { pending: VecDeque<OwnedRecord>, last_error: Option<Error> },
    /// One queue for each partition: places in [`Accumulator::partitions`].
    Known { queues: Vec<usize>, sticky: Sticky },
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
            Some(TopicState::Known { queues, sticky }) => {
                let count = i32::try_from(queues.len()).unwrap_or(i32::MAX);
                let rng = &self.rng;
                let partition = record
                    .partition
                    .or_else(|| self.partitioner.partition(record.key, count))
                    .unwrap_or_else(|| sticky.partition(count, || rng.next_u64()));
                let place =
                    usize::try_from(partition).ok().and_then(|partition| queues.get(partition)).copied();
                match place {
                    Some(place) => match self.append(place, record, timestamp, deadline, size) {
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

    /// Puts a record into the open batch of a partition.
    #[inline]
    fn append(
        &mut self,
        place: usize,
        record: &OutgoingRecord<'_>,
        timestamp: i64,
        deadline: Option<Instant>,
        size: usize,
    ) -> Result<(Arc<Completion>, u32), SendError> {
        let Some(queue) = self.partitions.get_mut(place) else {
            return Err(no_partition(record.topic, -1, 0));
        };
        let fits = queue.open.back().is_some_and(|batch| batch.builder.size() + size <= self.batch_size);
        if !fits {
            let room = queue.last_size.max(size).min(self.batch_size.max(size));
            let completion = Completion::new(Arc::clone(&queue.topic), queue.partition);
            let builder = BatchBuilder::new(self.pool.clone(), room);
            queue.open.push_back(OpenBatch::new(BatchId(self.next_batch), builder, completion));
            self.next_batch += 1;
            self.attention |= queue.sequencer.outstanding() == 0 || queue.open.len() > 1;
            if queue.open.len() > 1
                && let Some(TopicState::Known { sticky, .. }) = self.topics.get_mut(&queue.topic)
            {
                sticky.moved_on(queue.partition);
            }
        }
        let Some(batch) = queue.open.back_mut() else {
            return Err(no_partition(record.topic, queue.partition, 0));
        };
        batch.builder.append(timestamp, record.key, record.value, headers(record.headers)).map_err(
            |why| {
                let doing = format!("sending to {}-{}", queue.topic, queue.partition);
                SendError::not_written(Error::new(doing, ErrorKind::Encode(why.to_string())))
            },
        )?;
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

    /// Metadata answered: the topic has this many partitions. Records that waited for it find their batches.
    pub(crate) fn topic_known(&mut self, topic: &Topic, count: usize) {
        let pending = match self.topics.get_mut(topic) {
            None => return,
            Some(TopicState::Unknown { pending, .. }) => std::mem::take(pending),
            Some(TopicState::Known { queues, .. }) if queues.len() >= count => return,
            Some(TopicState::Known { .. }) => VecDeque::new(),
        };
        let mut grown = match self.topics.remove(topic) {
            Some(TopicState::Known { queues, .. }) => queues,
            _ => Vec::new(),
        };
        for partition in grown.len()..count {
            grown.push(self.partitions.len());
            let partition = i32::try_from(partition).unwrap_or(i32::MAX);
            let mut queue = PartitionQueue::new(Arc::clone(topic), partition);
            if let Some(identity) = self.identity {
                queue.sequencer.adopt(identity);
            }
            self.partitions.push(queue);
        }
        let known = TopicState::Known { queues: grown, sticky: Sticky::default() };
        self.topics.insert(Arc::clone(topic), known);
        self.unknown.remove(topic);
        for record in pending {
            self.used -= record.size;
            self.admit(record);
        }
    }

    /// The topic cannot be written to: what waited for it fails, and later records ask again.
    pub(crate) fn topic_refused(&mut self, topic: &Topic, error: &Error) {
        if matches!(self.topics.get(topic), Some(TopicState::Unknown { .. }))
            && let Some(TopicState::Unknown { pending, .. }) = self.topics.remove(topic)
        {
            self.unknown.remove(topic);
            for record in pending {
                self.used -= record.size;
                record.slot.fail(SendError::not_written(error.clone()));
            }
            self.admit_waiting();
        }
    }

    /// Remembers why a topic is still not known.
    pub(crate) fn topic_late(&mut self, topic: &Topic, error: Error) {
        if let Some(TopicState::Unknown { last_error, .. }) = self.topics.get_mut(topic) {
            *last_error = Some(error);
        }
    }

    /// Sends a record that waited; its slot learns where it went.
    fn admit(&mut self, record: OwnedRecord) {
        let slot = Arc::clone(&record.slot);
        let borrowed: Vec<(&str, &[u8])> =
            record.headers.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect();
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
            self.admit(record);
        }
    }

    /// Sets the leaders of a topic's partitions, in partition order.
    pub(crate) fn leaders(&mut self, topic: &Topic, leaders: impl Iterator<Item = Option<BrokerId>>) {
        if let Some(TopicState::Known { queues, .. }) = self.topics.get(topic) {
            for (place, leader) in queues.iter().zip(leaders) {
                if let Some(queue) = self.partitions.get_mut(*place)
                    && queue.leader != leader
                {
                    queue.leader = leader;
                    // A new leader owes no wait for what the old one said.
                    queue.retry_at = None;
                }
            }
        }
    }

    /// Topics with queues.
    pub(crate) fn known_topics(&self) -> BTreeSet<Topic> {
        self.partitions.iter().map(|queue| Arc::clone(&queue.topic)).collect()
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
        self.waiting.retain(|record| {
            if passed(&record.deadline) {
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
        for state in self.topics.values_mut() {
            if let TopicState::Unknown { pending, .. } = state {
                pending.drain(..).for_each(&mut fail);
            }
        }
        for queue in &mut self.partitions {
            ended += queue.open.iter().map(|batch| batch.live() as usize).sum::<usize>();
            ended += queue.sealed.iter().map(|batch| batch.indices as usize).sum::<usize>();
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

    /// Bytes of the budget in use.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

impl OwnedRecord {
    fn new(
        record: &OutgoingRecord<'_>,
        timestamp: i64,
        deadline: Option<Instant>,
        size: usize,
    ) -> OwnedRecord {
        OwnedRecord {
            topic: Topic::from(record.topic),
            partition: record.partition,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec())).collect(),
            timestamp,
            deadline,
            size,
            slot: Arc::default(),
        }
    }
}

fn headers<'a>(
    headers: &'a [(&'a str, &'a [u8])],
) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone {
    headers.iter().map(|(key, value)| (key.as_bytes(), Some(*value)))
}

#[cold]
fn no_partition(topic: &str, partition: i32, count: i32) -> SendError {
    let why = format!("the topic has {count} partitions");
    SendError::not_written(Error::new(format!("sending to {topic}-{partition}"), ErrorKind::Config(why)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchLimits, Batches, Compression, Compressor, Decompressor};
    use crate::produce::queue::SealedBatch;
    use proptest::prelude::*;
    use std::future::Future;

    const BROKER: BrokerId = BrokerId(1);

    #[derive(Clone, Debug)]
    enum Op {
        Send {
            topic: u8,
            partition: u8,
            size: usize,
        },
        /// The driver sends what it may of every partition.
        Pump {
            partial: bool,
        },
        /// The broker acknowledges the oldest batch on the wire.
        Acknowledge,
        Learn {
            topic: u8,
        },
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            8 => (0u8..2, 0u8..3, 0usize..150)
                .prop_map(|(topic, partition, size)| Op::Send { topic, partition, size }),
            4 => any::<bool>().prop_map(|partial| Op::Pump { partial }),
            3 => Just(Op::Acknowledge),
            1 => (0u8..2).prop_map(|topic| Op::Learn { topic }),
        ];
        proptest::collection::vec(op, 0..150)
    }

    #[derive(Debug)]
    struct World {
        accumulator: Accumulator,
        pool: BufferPool,
        now: Instant,
        wire: VecDeque<(usize, BatchId, i64)>,
        logs: BTreeMap<(String, i32), Vec<String>>,
        sends: Vec<((String, i32), String, Sending)>,
    }

    impl World {
        fn new() -> World {
            let pool = BufferPool::new(1 << 20);
            let bounds = Bounds { partitioner: Partitioner::default(), batch_size: 400, memory: 1_500 };
            let mut accumulator = Accumulator::new(bounds, pool.clone(), prosody_base::Rng::seeded(1));
            accumulator.adopt(Identity { id: 1, epoch: 0 });
            let now = prosody_base::Clock::system().now();
            World { accumulator, pool, now, wire: VecDeque::new(), logs: BTreeMap::new(), sends: Vec::new() }
        }

        fn run(&mut self, op: Op) {
            match op {
                Op::Send { topic, partition, size } => {
                    let place = (format!("t{topic}"), i32::from(partition));
                    let value = format!("{}{}", self.sends.len(), "x".repeat(size));
                    let record = OutgoingRecord {
                        topic: &place.0,
                        partition: Some(place.1),
                        key: None,
                        value: Some(value.as_bytes()),
                        headers: &[],
                        timestamp: Some(5),
                    };
                    let sending = self.accumulator.send(&record, 0, None);
                    self.sends.push((place, value, sending));
                }
                Op::Learn { topic } => {
                    let topic = Topic::from(format!("t{topic}"));
                    self.accumulator.topic_known(&topic, 3);
                    self.accumulator.leaders(&topic, std::iter::repeat_n(Some(BROKER), 3));
                }
                Op::Pump { partial } => self.pump(partial),
                Op::Acknowledge => {
                    if let Some((place, id, base)) = self.wire.pop_front() {
                        let freed = self.accumulator.partitions[place].written(id, base, None);
                        self.accumulator.freed(freed);
                    }
                }
            }
            assert!(self.accumulator.used() <= 1_500, "the budget holds");
        }

        fn pump(&mut self, partial: bool) {
            for place in 0..self.accumulator.partitions.len() {
                let queue = &mut self.accumulator.partitions[place];
                assert_eq!(queue.resend(BROKER, self.now), None, "nothing failed");
                let idle = queue.sequencer.outstanding() == 0;
                let waits = !queue.open.is_empty();
                let taken = queue.take(BROKER, self.now, 400, partial, &self.pool);
                assert!(taken.is_some() || !(idle && waits && partial), "an idle partition never lingers");
                let Some((mut batch, sequence)) = taken else { continue };
                assert!(batch.builder.size() <= 400 + 61 || batch.indices == 1, "batches keep their size");
                let stamp = Default::default();
                let sealed = batch.builder.seal(Compression::None, &mut Compressor::new(), stamp);
                let bytes = sealed.expect("memory").expect("not empty");
                let log = self.logs.entry((queue.topic.to_string(), queue.partition)).or_default();
                let base = log.len() as i64;
                let mut decompressor = Decompressor::new(self.pool.clone());
                for raw in Batches::new(bytes.clone(), BatchLimits::default()) {
                    let read = raw.expect("own batch").open(&mut decompressor).expect("own batch");
                    let value =
                        |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.expect("set")).into_owned();
                    log.extend(read.records().map(|record| value(record.expect("own record").value())));
                }
                let OpenBatch { id, completion, deadlines, charge, indices, .. } = batch;
                queue.sealed.push_back(SealedBatch {
                    id,
                    bytes,
                    sequence,
                    indices,
                    completion,
                    deadlines,
                    charge,
                });
                self.wire.push_back((place, id, base));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn records_leave_in_the_order_they_came_and_memory_is_given_back(ops in ops()) {
            let mut world = World::new();
            for op in ops {
                world.run(op);
            }
            for topic in 0..2 {
                world.run(Op::Learn { topic });
            }
            for _ in 0..1_000 {
                world.run(Op::Pump { partial: true });
                world.run(Op::Acknowledge);
            }
            prop_assert!(world.accumulator.is_idle());
            prop_assert_eq!(world.accumulator.used(), 0);
            let mut next: BTreeMap<(String, i32), i64> = BTreeMap::new();
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            for (place, value, mut sending) in world.sends {
                let offset = next.entry(place.clone()).or_default();
                let end = std::pin::Pin::new(&mut sending).poll(&mut context);
                let std::task::Poll::Ready(Ok(delivery)) = end else { panic!("{end:?}") };
                prop_assert_eq!(delivery.offset, *offset);
                prop_assert_eq!(&world.logs[&place][*offset as usize], &value);
                *offset += 1;
            }
        }
    }
}
