//! What waits to be sent to one partition? Batches that still grow, batches on the wire, and their sequences. Pure.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use prosody_base::Instant;

use super::completion::{BatchEnd, Completion, SendError, SendOutcome};
use super::sealed::{SealedBatch, plain, rewrite};
use super::sequencer::{BatchId, Sequence, Sequencer, Verdict};
use crate::batch::{BatchBuilder, BufferPool};
use crate::error::{Error, ErrorKind};
use crate::types::{BrokerId, Topic};

/// After this long without an acknowledgement the broker may have forgotten the producer (it does after a day).
const REST: Duration = Duration::from_secs(600);
/// Deadlines this close together count as one, the later: a batch keeps a few of them, not one per record.
const DEADLINE_STEP: Duration = Duration::from_millis(1);

/// When the records of a batch are given up: runs of equal deadlines in record order.
#[derive(Debug, Default)]
pub(crate) struct Deadlines(Vec<(u32, Option<Instant>)>);

impl Deadlines {
    /// Record `index`, higher than all before, ends at `deadline`.
    pub(crate) fn push(&mut self, index: u32, deadline: Option<Instant>) {
        let covered = match (self.0.last(), deadline) {
            (Some((_, Some(last))), Some(new)) => new <= *last && *last < new + DEADLINE_STEP,
            (Some((_, last)), new) => *last == new,
            (None, _) => false,
        };
        if !covered {
            self.0.push((index, deadline.map(|deadline| deadline + DEADLINE_STEP)));
        }
    }

    /// Takes off what is said of records from `index` on.
    pub(crate) fn split_off(&mut self, index: u32) -> Deadlines {
        let at = self.0.partition_point(|run| run.0 < index);
        let before = self.0.get(at.saturating_sub(1)).filter(|_| at > 0).map(|run| (index, run.1));
        let others = self.0.split_off(at);
        let is_inside = others.first().is_none_or(|run| run.0 > index);
        Deadlines(before.filter(|_| is_inside).into_iter().chain(others).collect())
    }

    /// The first deadline still ahead of `now`.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        self.0.iter().filter_map(|run| run.1).filter(|deadline| *deadline > now).min()
    }

    /// Whether every record's deadline has passed.
    pub(crate) fn all_passed(&self, now: Instant) -> bool {
        self.0.iter().all(|run| run.1.is_some_and(|deadline| deadline <= now))
    }

    /// The records, of `count`, whose deadline has passed.
    pub(crate) fn passed(&self, now: Instant, count: u32) -> impl Iterator<Item = u32> {
        let ends = self.0.iter().skip(1).map(|run| run.0).chain([count]);
        let runs = self.0.iter().zip(ends);
        runs.filter(move |(run, _)| run.1.is_some_and(|deadline| deadline <= now))
            .flat_map(|(run, end)| run.0..end)
    }
}

/// A batch that has no sequence yet.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    pub(crate) id: BatchId,
    pub(crate) builder: BatchBuilder,
    pub(crate) completion: Arc<Completion>,
    pub(crate) deadlines: Deadlines,
    /// Bytes of the memory budget it holds.
    pub(crate) charge: usize,
    /// Records that were ever in it.
    pub(crate) indices: u32,
    /// Records without a key go elsewhere now, so there is no reason to wait for more.
    pub(crate) is_left: bool,
    /// Records given up before it was sent.
    removed: BTreeSet<u32>,
}

impl OpenBatch {
    pub(crate) fn new(id: BatchId, builder: BatchBuilder, completion: Arc<Completion>) -> OpenBatch {
        let (deadlines, removed) = (Deadlines::default(), BTreeSet::new());
        OpenBatch { id, builder, completion, deadlines, charge: 0, indices: 0, is_left: false, removed }
    }

    /// Records that will be sent.
    pub(crate) fn live(&self) -> u32 {
        self.indices.saturating_sub(self.removed.len() as u32)
    }

    /// Gives up the records whose deadline has passed.
    fn expire(&mut self, now: Instant, error: impl Fn() -> Error) {
        for index in self.deadlines.passed(now, self.indices) {
            if self.removed.insert(index) {
                self.completion.end_early(index, SendError::not_written(error()), true);
            }
        }
    }

    /// Writes the batch anew without the records given up, and says how many there are. Rare: only after a deadline.
    ///
    /// # Errors
    /// When the batch this producer wrote cannot be read back, which is a defect of it.
    pub(crate) fn drop_removed(&mut self, pool: &BufferPool) -> Result<u32, Error> {
        if !self.removed.is_empty() {
            self.builder =
                rewrite(plain(&mut self.builder, pool)?, pool, |index| !self.removed.contains(&index))?;
        }
        Ok(self.builder.count())
    }
}

/// One partition's part of the producer.
#[derive(Debug)]
pub(crate) struct PartitionQueue {
    pub(crate) topic: Topic,
    pub(crate) partition: i32,
    pub(crate) leader: Option<BrokerId>,
    /// The broker that has this partition's batches on the wire.
    pub(crate) sent_to: Option<BrokerId>,
    pub(crate) open: VecDeque<OpenBatch>,
    pub(crate) sealed: VecDeque<SealedBatch>,
    pub(crate) sequencer: Sequencer,
    /// Nothing is sent before this, after a failure.
    pub(crate) retry_at: Option<Instant>,
    pub(crate) failures: u32,
    pub(crate) last_error: Option<Error>,
    pub(crate) last_sent: Option<Instant>,
    /// Size of the last batch, the guess for the next.
    pub(crate) last_size: usize,
    /// The broker refused larger batches.
    pub(crate) largest: usize,
    /// Bytes of records without a key that come here before another partition is chosen for them.
    pub(crate) stay: usize,
}

impl PartitionQueue {
    pub(crate) fn new(topic: Topic, partition: i32) -> PartitionQueue {
        PartitionQueue {
            topic,
            partition,
            leader: None,
            sent_to: None,
            open: VecDeque::new(),
            sealed: VecDeque::new(),
            sequencer: Sequencer::default(),
            retry_at: None,
            failures: 0,
            last_error: None,
            last_sent: None,
            last_size: 0,
            largest: usize::MAX,
            stay: 0,
        }
    }

    /// Whether nothing waits and nothing is on the wire.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.sealed.is_empty()
    }

    /// Batches that nobody has acknowledged.
    pub(crate) fn load(&self) -> usize {
        self.open.len() + self.sealed.len()
    }

    /// Whether anything could be sent to `broker` now, were there a batch.
    fn may_send(&self, broker: BrokerId, now: Instant) -> bool {
        self.leader == Some(broker)
            && self.retry_at.is_none_or(|at| at <= now)
            // After a leader change, what the old leader has must come back first.
            && (self.sent_to.is_none_or(|to| to == broker) || self.sequencer.quiet())
    }

    /// The batch to send again to `broker`, if one is due.
    pub(crate) fn resend(&mut self, broker: BrokerId, now: Instant) -> Option<(BatchId, Sequence)> {
        if !self.may_send(broker, now) {
            return None;
        }
        let resend = self.sequencer.resend()?;
        self.sent_to = Some(broker);
        Some(resend)
    }

    /// The next new batch for `broker`, with its sequence. A batch that could still grow goes only while the partition
    /// is idle and `partial` allows it.
    pub(crate) fn take(
        &mut self,
        broker: BrokerId,
        now: Instant,
        batch_size: usize,
        partial: bool,
        pool: &BufferPool,
    ) -> Option<(OpenBatch, Sequence)> {
        if !self.may_send(broker, now) {
            return None;
        }
        if self.last_sent.is_none_or(|at| now.saturating_duration_since(at) > REST) {
            self.sequencer.rested();
        }
        loop {
            let full = self.open.len() > 1
                || self.open.front().is_some_and(|batch| {
                    batch.is_left || batch.builder.size() >= batch_size.min(self.largest)
                });
            let idle = self.sequencer.outstanding() == 0;
            if !(full || (idle && partial)) || !self.sequencer.can_take() {
                return None;
            }
            let mut batch = self.open.pop_front()?;
            let records = match batch.drop_removed(pool) {
                Ok(0) => continue,
                Ok(records) => records,
                Err(error) => {
                    batch.completion.finish(BatchEnd::Failed(SendError::not_written(error)));
                    continue;
                }
            };
            self.last_size = batch.builder.size();
            let sequence = self.sequencer.take(batch.id, records)?;
            self.sent_to = Some(broker);
            self.last_sent = Some(now);
            return Some((batch, sequence));
        }
    }

    /// The broker has the batch. Returns the memory it held.
    pub(crate) fn written(&mut self, id: BatchId, base: i64, append_time: Option<i64>) -> usize {
        self.sequencer.written(id);
        (self.failures, self.last_error, self.retry_at) = (0, None, None);
        self.end(id, BatchEnd::Written { base, append_time })
    }

    /// What the sequencer decided about a batch that failed with `error`. Returns the memory it gave back.
    pub(crate) fn judged(&mut self, id: BatchId, verdict: Verdict, error: Error, retry_at: Instant) -> usize {
        let outcome = match verdict {
            Verdict::Retry => {
                self.retry_at = Some(retry_at);
                self.last_error = Some(error);
                return 0;
            }
            Verdict::NotWritten => SendOutcome::NotWritten,
            Verdict::Unknown => SendOutcome::Unknown,
        };
        self.end(id, BatchEnd::Failed(SendError { error, outcome }))
    }

    fn end(&mut self, id: BatchId, end: BatchEnd) -> usize {
        let Some(at) = self.sealed.iter().position(|batch| batch.id == id) else { return 0 };
        let Some(batch) = self.sealed.remove(at) else { return 0 };
        batch.finish(end);
        batch.charge
    }

    /// Gives up every record whose deadline has passed. Returns the memory given back.
    pub(crate) fn expire(&mut self, now: Instant, cause: Option<&Error>) -> usize {
        let cause = self.last_error.clone().or_else(|| cause.cloned());
        let name = format!("{}-{}", self.topic, self.partition);
        let error = || gave_up(&name, cause.as_ref());
        let mut freed = 0;
        self.open.retain_mut(|batch| {
            batch.expire(now, error);
            let keep = batch.live() > 0;
            if !keep {
                freed += batch.charge;
            }
            keep
        });
        let mut over = Vec::new();
        for batch in &self.sealed {
            if batch.deadlines.all_passed(now) {
                over.push(batch.id);
                continue;
            }
            for index in batch.deadlines.passed(now, batch.indices.end) {
                // Its batch goes on for the others' sake, so it may well be written.
                let error = SendError { error: error(), outcome: SendOutcome::Unknown };
                batch.completion.end_early(index, error, false);
            }
        }
        for id in over {
            let verdict = self.sequencer.expire(id);
            let outcome = match verdict {
                Verdict::NotWritten => SendOutcome::NotWritten,
                Verdict::Retry | Verdict::Unknown => SendOutcome::Unknown,
            };
            let end = BatchEnd::Failed(SendError { error: error(), outcome });
            if self.sequencer.holds(id) {
                // Still on the wire: its senders know, its place in the sequence stays until the answer comes.
                if let Some(batch) = self.sealed.iter().find(|batch| batch.id == id) {
                    batch.finish(end);
                }
            } else {
                freed += self.end(id, end);
            }
        }
        freed
    }

    /// The next moment at which a record is given up.
    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let open = self.open.iter().map(|batch| &batch.deadlines);
        open.chain(self.sealed.iter().map(|batch| &batch.deadlines))
            .filter_map(|deadlines| deadlines.next(now))
            .min()
    }

    /// Ends everything: the producer stops. Returns the memory given back.
    pub(crate) fn abandon(&mut self, error: &Error) -> usize {
        let mut freed = 0;
        for batch in self.open.drain(..) {
            freed += batch.charge;
            batch.completion.finish(BatchEnd::Failed(SendError::not_written(error.clone())));
        }
        for batch in self.sealed.drain(..) {
            freed += batch.charge;
            let outcome = match self.sequencer.may_be_written(batch.id) {
                true => SendOutcome::Unknown,
                false => SendOutcome::NotWritten,
            };
            batch.finish(BatchEnd::Failed(SendError { error: error.clone(), outcome }));
        }
        freed
    }

    /// Fails what has not been sent, because nothing can be (no permission, no such topic). Returns the memory given
    /// back.
    pub(crate) fn refuse_open(&mut self, error: &Error) -> usize {
        let mut freed = 0;
        for batch in self.open.drain(..) {
            freed += batch.charge;
            batch.completion.finish(BatchEnd::Failed(SendError::not_written(error.clone())));
        }
        freed
    }
}

/// The error of a record whose deadline passed.
pub(crate) fn gave_up(place: &str, cause: Option<&Error>) -> Error {
    let doing = format!("sending to {place}, given up at its deadline");
    match cause {
        Some(cause) => cause.clone().during(&doing),
        None => Error::new(doing, ErrorKind::Timeout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn deadlines_are_kept_as_runs_and_never_early() {
        let start = prosody_base::Clock::system().now();
        let mut deadlines = Deadlines::default();
        let at = |micros| Some(start + Duration::from_micros(micros));
        for (index, deadline) in
            [at(10_000), at(10_400), at(10_999), at(12_000), None, None, at(5_000)].into_iter().enumerate()
        {
            deadlines.push(index as u32, deadline);
        }
        assert_eq!(deadlines.0.len(), 4, "{deadlines:?}");
        assert_eq!(deadlines.passed(start + Duration::from_millis(10), 7).collect::<Vec<_>>(), [6]);
        assert_eq!(deadlines.passed(start + Duration::from_millis(11), 7).collect::<Vec<_>>(), [0, 1, 2, 6]);
        assert_eq!(
            deadlines.passed(start + Duration::from_secs(99), 7).collect::<Vec<_>>(),
            [0, 1, 2, 3, 6],
            "a record without a deadline never passes"
        );
        assert!(!deadlines.all_passed(start + Duration::from_secs(99)));
        assert_eq!(deadlines.next(start + Duration::from_millis(6)), at(11_000));
    }
}
