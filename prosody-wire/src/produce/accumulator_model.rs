//! Do records leave in the order they came, and is memory given back? A model of sends, requests and answers.

use super::*;
use crate::batch::{BatchLimits, Batches, Compression, Compressor, Decompressor};
use crate::produce::sealed::SealedBatch;
use crate::types::BrokerId;
use proptest::prelude::*;
use std::future::Future;

const BROKER: BrokerId = BrokerId(1);

#[derive(Clone, Debug)]
enum Op {
    Send {
        topic: u8,
        /// 3 is any.
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
        8 => (0u8..2, 0u8..4, 0usize..150)
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
        let bounds =
            Bounds { partitioner: Partitioner::default(), batch_size: 400, memory: 1_500, line: 1 << 20 };
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
                    partition: Some(place.1).filter(|partition| *partition < 3),
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
                self.accumulator.topic_known(&topic, std::iter::repeat_n(Some(BROKER), 3));
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
                let value = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.expect("set")).into_owned();
                log.extend(read.records().map(|record| value(record.expect("own record").value())));
            }
            let OpenBatch { id, completion, deadlines, charge, indices, .. } = batch;
            queue.sealed.push_back(SealedBatch {
                id,
                bytes,
                sequence: Some(sequence),
                indices: 0..indices,
                is_part: false,
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
        for (mut place, value, mut sending) in world.sends {
            let end = std::pin::Pin::new(&mut sending).poll(&mut context);
            let std::task::Poll::Ready(Ok(delivery)) = end else { panic!("{end:?}") };
            prop_assert!(place.1 == delivery.partition || place.1 == 3);
            place.1 = delivery.partition;
            let offset = next.entry(place.clone()).or_default();
            prop_assert_eq!(delivery.offset, *offset);
            prop_assert_eq!(&world.logs[&place][*offset as usize], &value);
            *offset += 1;
        }
    }
}
