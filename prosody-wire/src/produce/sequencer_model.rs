//! Does the sequencer keep once-only and order against a broker that refuses, forgets, answers late and loses
//! connections? A model of one partition, driven by random operations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::sequencer::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A new batch of 1 to 4 records, when the window allows it.
    Take(u8),
    Resend,
    /// The broker works on the oldest request of the live connection.
    Serve(Answer),
    /// The broker works on the oldest request of a connection the client gave up.
    ServeZombie,
    /// The client reads the oldest answer.
    Deliver,
    /// The connection breaks: what was written may still be worked on.
    Cut,
    /// A request fails before a byte of it was written.
    Unsent,
    Expire(u8),
    /// The broker forgets the producer after a long rest; only while nothing is outstanding.
    Forget,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Normal,
    Later,
    Never,
    /// Appended, but the answer leaves it open (REQUEST_TIMED_OUT).
    AppendedUnclear,
    /// MESSAGE_TOO_LARGE.
    TooLarge,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (1u8..5).prop_map(Op::Take),
        6 => Just(Op::Resend),
        8 => Just(Op::Serve(Answer::Normal)),
        2 => Just(Op::Serve(Answer::Later)),
        1 => Just(Op::Serve(Answer::Never)),
        1 => Just(Op::Serve(Answer::AppendedUnclear)),
        1 => Just(Op::Serve(Answer::TooLarge)),
        2 => Just(Op::ServeZombie),
        8 => Just(Op::Deliver),
        1 => Just(Op::Cut),
        1 => Just(Op::Unsent),
        1 => any::<u8>().prop_map(Op::Expire),
        1 => Just(Op::Forget),
    ];
    proptest::collection::vec(op, 0..120)
}

/// A batch has so many names, of which it uses one for each part it is split into.
const NAMES: u64 = 16;

#[derive(Clone, Copy, Debug)]
struct Request {
    batch: BatchId,
    sequence: Sequence,
    records: u32,
}

#[derive(Clone, Copy, Debug)]
enum Reply {
    Written,
    Refused(Refusal),
    Unclear,
    TooLarge,
}

/// What the broker knows of the producer in this partition.
#[derive(Debug)]
struct Known {
    epoch: i16,
    last: i32,
    recent: VecDeque<(i16, i32)>,
}

#[derive(Default)]
struct World {
    client: Sequencer,
    old_broker: bool,
    known: Option<Known>,
    log: Vec<BatchId>,
    wire: VecDeque<Request>,
    answers: VecDeque<(Request, Reply)>,
    zombies: VecDeque<Request>,
    records: BTreeMap<BatchId, u32>,
    told: BTreeMap<BatchId, &'static str>,
    expired: BTreeSet<BatchId>,
}

impl World {
    fn append(&mut self, request: Request) -> Reply {
        let Sequence { identity, first } = request.sequence;
        if let Some(known) = &self.known {
            if known.recent.contains(&(identity.epoch, first)) {
                return Reply::Written;
            }
            if identity.epoch < known.epoch {
                return Reply::Refused(Refusal::UnknownProducer);
            }
            let expected = if identity.epoch > known.epoch { 0 } else { known.last + 1 };
            if first != expected {
                return Reply::Refused(Refusal::OutOfOrder);
            }
        } else if self.old_broker && first != 0 {
            return Reply::Refused(Refusal::UnknownProducer);
        }
        let known = self.known.get_or_insert(Known { epoch: 0, last: -1, recent: VecDeque::new() });
        if identity.epoch != known.epoch {
            known.recent.clear();
        }
        known.epoch = identity.epoch;
        known.last = first + request.records as i32 - 1;
        known.recent.push_back((identity.epoch, first));
        if known.recent.len() as u64 > MAX_IN_FLIGHT {
            known.recent.pop_front();
        }
        self.log.push(request.batch);
        Reply::Written
    }

    fn send(&mut self, batch: BatchId, sequence: Sequence) {
        let records = self.records[&batch];
        self.wire.push_back(Request { batch, sequence, records });
    }

    fn tell(&mut self, batch: BatchId, what: &'static str) {
        if let Some(before) = self.told.insert(batch, what) {
            assert!(self.expired.contains(&batch), "{batch:?} was told {before}, then {what}");
            self.told.insert(batch, before);
        }
    }

    fn judge(&mut self, batch: BatchId, verdict: Verdict) {
        match verdict {
            Verdict::Retry => {}
            Verdict::NotWritten => self.tell(batch, "not written"),
            Verdict::Unknown => self.tell(batch, "unknown"),
        }
    }

    fn serve(&mut self, answer: Answer) {
        let Some(request) = self.wire.pop_front() else { return };
        let reply = match answer {
            Answer::Normal => self.append(request),
            Answer::Later => Reply::Refused(Refusal::Later),
            Answer::Never => Reply::Refused(Refusal::Never),
            Answer::TooLarge => Reply::TooLarge,
            Answer::AppendedUnclear => match self.append(request) {
                Reply::Written => Reply::Unclear,
                refused => refused,
            },
        };
        self.answers.push_back((request, reply));
    }

    fn deliver(&mut self) {
        let Some((request, reply)) = self.answers.pop_front() else { return };
        let verdict = match reply {
            Reply::Written => {
                self.client.written(request.batch);
                self.tell(request.batch, "written");
                return;
            }
            Reply::Refused(refusal) => self.client.refused(request.batch, refusal),
            Reply::Unclear => self.client.lost(request.batch),
            Reply::TooLarge => {
                let (id, first) = (request.batch, request.records / 2);
                // Between it and the next one.
                let rest = BatchId(id.0 + NAMES / 4 * u64::from(first));
                if self.client.split(id, first, rest) {
                    self.records.insert(id, first);
                    self.records.insert(rest, request.records - first);
                    return;
                }
                self.client.refused(id, Refusal::Never)
            }
        };
        self.judge(request.batch, verdict);
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Take(records) => {
                let batch = BatchId(NAMES * self.records.len() as u64);
                if let Some(sequence) = self.client.take(batch, u32::from(records)) {
                    self.records.insert(batch, u32::from(records));
                    self.send(batch, sequence);
                }
            }
            Op::Resend => {
                if self.client.needs_identity() {
                    self.client.adopt(Identity { id: 1, epoch: 0 });
                }
                if let Some((batch, sequence)) = self.client.resend() {
                    self.send(batch, sequence);
                }
            }
            Op::Serve(answer) => self.serve(answer),
            Op::ServeZombie => {
                if let Some(request) = self.zombies.pop_front() {
                    self.append(request);
                }
            }
            Op::Deliver => self.deliver(),
            Op::Cut => {
                let lost: Vec<Request> = self.answers.drain(..).map(|(request, _)| request).collect();
                let unread: Vec<Request> = self.wire.drain(..).collect();
                self.zombies.extend(&unread);
                for request in lost.into_iter().chain(unread) {
                    let verdict = self.client.lost(request.batch);
                    self.judge(request.batch, verdict);
                }
            }
            Op::Unsent => {
                if let Some(request) = self.wire.pop_back() {
                    let verdict = self.client.unsent(request.batch);
                    self.judge(request.batch, verdict);
                }
            }
            Op::Expire(which) => {
                let open: Vec<BatchId> =
                    self.records.keys().filter(|batch| !self.told.contains_key(batch)).copied().collect();
                if let Some(batch) = open.get(usize::from(which) % open.len().max(1)) {
                    self.expired.insert(*batch);
                    let verdict = self.client.expire(*batch);
                    assert_ne!(verdict, Verdict::Retry);
                    self.judge(*batch, verdict);
                }
            }
            Op::Forget => {
                if self.client.outstanding() == 0 && self.zombies.is_empty() {
                    self.client.rested();
                    self.known = None;
                }
            }
        }
        let parts = 4;
        assert!(self.client.outstanding() as u64 <= MAX_IN_FLIGHT * parts);
        assert!((self.wire.len() + self.answers.len()) as u64 <= MAX_IN_FLIGHT);
    }

    fn settle(&mut self) {
        for _ in 0..200 {
            self.run(Op::ServeZombie);
            self.run(Op::Resend);
            self.run(Op::Serve(Answer::Normal));
            self.run(Op::Deliver);
        }
        assert_eq!(self.client.outstanding(), 0, "every batch ends once the broker answers");
        let before = self.log.len();
        self.run(Op::Resend);
        self.run(Op::Take(1));
        for _ in 0..4 {
            self.run(Op::Serve(Answer::Normal));
            self.run(Op::Deliver);
            self.run(Op::Resend);
        }
        assert_eq!(self.log.len(), before + 1, "a new batch goes through afterwards");
    }

    fn check(&self) {
        let mut sorted = self.log.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted, self.log, "once each, in the order they were taken");
        for batch in self.records.keys() {
            let told = self.told.get(batch).copied();
            let held = self.log.contains(batch);
            assert!(
                matches!(
                    (told, held),
                    (Some("written"), true) | (Some("not written"), false) | (Some("unknown"), _)
                ),
                "{batch:?} was told {told:?}, the log holds it: {held}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Batches were reordered or doubled when one of them was refused as out of order and all that were in flight got a new
    /// epoch. Here the fate of each is found out before anything is renumbered.
    #[test]
    fn no_batch_is_lost_doubled_or_reordered(ops in ops(), old_broker in any::<bool>()) {
        let mut world = World { old_broker, ..World::default() };
        world.run(Op::Resend);
        for op in ops {
            world.run(op);
        }
        world.settle();
        world.check();
    }
}

#[test]
fn sequences_wrap_after_the_largest() {
    let mut client = Sequencer::default();
    client.adopt(Identity { id: 7, epoch: 3 });
    assert_eq!(client.take(BatchId(0), u32::try_from(i32::MAX).expect("fits")).expect("free").first, 0);
    client.written(BatchId(0));
    assert_eq!(client.take(BatchId(1), 2).expect("free").first, i32::MAX);
    client.written(BatchId(1));
    assert_eq!(client.take(BatchId(2), 1).expect("free").first, 1);
}

#[test]
fn an_epoch_that_cannot_grow_asks_for_a_new_producer_id() {
    let mut client = Sequencer::default();
    client.adopt(Identity { id: 7, epoch: i16::MAX });
    client.take(BatchId(0), 1).expect("free");
    assert_eq!(client.refused(BatchId(0), Refusal::UnknownProducer), Verdict::Retry);
    assert_eq!(client.resend(), None);
    assert!(client.needs_identity());
    client.adopt(Identity { id: 8, epoch: 0 });
    let again = Sequence { identity: Identity { id: 8, epoch: 0 }, first: 0 };
    assert_eq!(client.resend(), Some((BatchId(0), again)));
}

/// A broker knows the last five batches again. A sixth that is on its way could have the answer to the first one lost, and
/// that one sent again would be refused as out of order, or be in the log twice.
#[test]
fn parts_of_batches_stay_within_what_a_broker_recognises() {
    let mut client = Sequencer::default();
    client.adopt(Identity { id: 7, epoch: 3 });
    client.take(BatchId(0), 4).expect("free");
    client.written(BatchId(0));
    for batch in 1..=MAX_IN_FLIGHT {
        client.take(BatchId(batch), 4).expect("free");
    }
    assert!(client.split(BatchId(1), 2, BatchId(10)));
    for batch in 2..=MAX_IN_FLIGHT {
        assert_eq!(client.refused(BatchId(batch), Refusal::OutOfOrder), Verdict::Retry);
    }
    let sent: Vec<u64> = std::iter::from_fn(|| client.resend()).map(|(batch, _)| batch.0).collect();
    assert_eq!(sent, [1, 10, 2, 3, 4]);
    client.written(BatchId(1));
    let (batch, sequence) = client.resend().expect("one more");
    assert_eq!((batch, sequence.first), (BatchId(5), 20));
    assert!(!client.split(BatchId(10), 2, BatchId(11)), "two records are split after the first");
    assert!(client.split(BatchId(10), 1, BatchId(11)));
}
