//! A naive log beside the broker's: what an answer says of an offset must be true of it.

use bytes::Bytes;
use proptest::prelude::*;
use prosody_testkit::broker::UnknownProducer;
use prosody_testkit::broker::batch::{NewBatch, header};
use prosody_testkit::broker::storage::{Log, Segments};

use super::judge::{Judged, judge};
use crate::batch::{BatchLimits, BufferPool, Decompressor};
use crate::fetch::wire::{Aborted, PartitionData, TopicRef};
use crate::proto::ErrorCode;
use crate::types::IsolationLevel;

/// What happens to the log.
#[derive(Clone, Debug)]
enum Op {
    /// Records of these keys by nobody (0) or by a transactional producer.
    Append {
        producer: i64,
        keys: Vec<u8>,
    },
    /// The producer's transaction ends.
    End {
        producer: i64,
        commit: bool,
    },
    Compact,
}

/// What became of the record at an offset.
#[derive(Clone, Debug, PartialEq)]
enum Truth {
    Marker,
    Record { key: u8, producer: i64, aborted: bool },
    Compacted,
}

#[derive(Default)]
struct Naive {
    truth: Vec<Truth>,
    /// First offset of each open transaction.
    open: Vec<(i64, usize)>,
}

impl Naive {
    fn is_open(&self, offset: usize) -> bool {
        let Some(Truth::Record { producer, .. }) = self.truth.get(offset) else { return false };
        self.open.iter().any(|(open, first)| open == producer && offset >= *first)
    }
}

fn build(ops: &[Op]) -> (Log, Naive) {
    let (mut log, mut naive) = (Log::new("t[0]".to_owned(), 1 << 20), Naive::default());
    let mut sequences = [0i32; 3];
    for op in ops {
        match op {
            Op::Append { producer, keys } => {
                let keys_text: Vec<[u8; 1]> = keys.iter().map(|key| [b'a' + key]).collect();
                let records: Vec<_> =
                    keys_text.iter().map(|key| (Some(&key[..]), Some(&b"value"[..]))).collect();
                let transactional = *producer > 0;
                let batch = NewBatch {
                    attributes: if transactional { 0x10 } else { 0 },
                    producer_id: if transactional { *producer } else { -1 },
                    producer_epoch: if transactional { 0 } else { -1 },
                    base_sequence: if transactional { sequences[*producer as usize] } else { -1 },
                    timestamp: 0,
                    records: &records,
                }
                .encode();
                log.append(&batch, &header(&batch).expect("ours"), 0, UnknownProducer::Accept)
                    .expect("appended");
                sequences[*producer as usize] += i32::try_from(keys.len()).expect("few");
                if transactional && !naive.open.iter().any(|(open, _)| open == producer) {
                    naive.open.push((*producer, naive.truth.len()));
                }
                let record = |key: &u8| Truth::Record { key: *key, producer: *producer, aborted: false };
                naive.truth.extend(keys.iter().map(record));
            }
            Op::End { producer, commit } => {
                let key = [0, 0, 0, u8::from(*commit)];
                let marker = NewBatch {
                    attributes: 0x30,
                    producer_id: *producer,
                    producer_epoch: 0,
                    base_sequence: -1,
                    timestamp: 0,
                    records: &[(Some(&key), Some(&[0; 6]))],
                }
                .encode();
                log.end_transaction(&marker, &header(&marker).expect("ours"), 0, *commit);
                if let Some(at) = naive.open.iter().position(|(open, _)| open == producer) {
                    let (_, first) = naive.open.remove(at);
                    for truth in naive.truth.iter_mut().skip(first) {
                        if let Truth::Record { producer: of, aborted, .. } = truth
                            && of == producer
                        {
                            *aborted |= !commit;
                        }
                    }
                }
                naive.truth.push(Truth::Marker);
            }
            Op::Compact => {
                log.compact();
                let left: Vec<i64> = log.records().iter().map(|record| record.offset).collect();
                for (offset, truth) in (0i64..).zip(naive.truth.iter_mut()) {
                    if matches!(truth, Truth::Record { .. }) && !left.contains(&offset) {
                        *truth = Truth::Compacted;
                    }
                }
            }
        }
    }
    (log, naive)
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let append = (0i64..3, proptest::collection::vec(0u8..5, 1..4))
        .prop_map(|(producer, keys)| Op::Append { producer, keys });
    let end = (1i64..3, any::<bool>()).prop_map(|(producer, commit)| Op::End { producer, commit });
    proptest::collection::vec(prop_oneof![8 => append, 8 => end, 1 => Just(Op::Compact)], 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_said_of_an_offset_is_true(
        ops in ops(),
        first in 0i64..40,
        more in 0i64..16,
        max_bytes in 1usize..1_200,
        cut in 0usize..80,
        committed: bool,
    ) {
        let (log, naive) = build(&ops);
        let ends = log.ends();
        let first = first % (ends.end + 1);
        let last = first + more;
        let limit = if committed { ends.stable } else { ends.end };
        let run = log.run(first, limit, max_bytes, true);
        let mut out = Segments::default();
        log.write(run, &mut out);
        let mut bytes: Vec<u8> = out.finish().concat();
        bytes.truncate(bytes.len().saturating_sub(cut));
        let aborted = log.aborted(first, run).into_iter();
        let data = PartitionData {
            topic: TopicRef::Name("t".into()),
            partition: 0,
            error: ErrorCode::NONE,
            high_watermark: ends.end,
            last_stable: ends.stable,
            aborted: aborted.map(|a| Aborted { producer_id: a.producer_id, first_offset: a.first_offset }).collect(),
            records: Bytes::from(bytes.clone()),
            diverging: None,
            leader: None,
            preferred: None,
        };
        let isolation = if committed { IsolationLevel::ReadCommitted } else { IsolationLevel::ReadUncommitted };
        let mut decompressor = Decompressor::new(BufferPool::new(0));
        match judge(data, (first, last), isolation, BatchLimits::default(), &mut decompressor) {
            Judged::Decided(answer) => {
                prop_assert!(first < answer.next && answer.next <= last + 1, "{answer:?}");
                let found: Vec<i64> = answer.records.iter().map(|found| found.record.offset()).collect();
                prop_assert!(found.is_sorted(), "{found:?}");
                let visible = |offset: i64| {
                    let truth = naive.truth.get(usize::try_from(offset).expect("from 0")).expect("in the log");
                    matches!(truth, Truth::Record { aborted, .. } if !(*aborted && committed))
                };
                let expected: Vec<i64> = (first..answer.next).filter(|offset| visible(*offset)).collect();
                prop_assert_eq!(&found, &expected, "gone or found what is not");
                for record in &answer.records {
                    let offset = usize::try_from(record.record.offset()).expect("from 0");
                    prop_assert!(!(committed && naive.is_open(offset)), "an open transaction is not read");
                    let Truth::Record { key, .. } = &naive.truth[offset] else { panic!("visible") };
                    prop_assert_eq!(record.record.key(), Some(&[b'a' + key][..]));
                }
            }
            Judged::Pending(why) => {
                let behind = first >= limit;
                let nothing = bytes.is_empty() || run.bytes == 0 || cut > 0;
                prop_assert!(behind || nothing, "{why}");
                if first >= ends.end {
                    prop_assert!(why.contains("ends at"), "{}", why);
                } else if behind && committed {
                    prop_assert!(why.contains("transaction"), "{}", why);
                }
            }
            Judged::TooLarge => prop_assert!(cut > 0),
            Judged::Damaged(why) => prop_assert!(false, "{why}"),
        }
    }
}
