//! What is in a partition? The log: whole batches in offset order, never their single records.

mod compact;
mod keep;
mod segments;

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};

use super::batch::{self, BatchError, Header, PREFIX, Record};
use super::sequences::{Sequences, UnknownProducer, Verdict};
pub use keep::{Keep, Wants};
pub use segments::Segments;

/// Batches shorter than this are copied, into the log and into responses; longer ones are referenced.
const COPY_BELOW: usize = 1_024;

/// A stored batch. Its first 16 bytes, which an append changes and no CRC covers, are kept as fields.
#[derive(Clone, Debug)]
struct Stored {
    base_offset: i64,
    last_offset: i64,
    leader_epoch: i32,
    max_timestamp: i64,
    /// The batch behind its prefix, or all of it when `raw`.
    body: Bytes,
    raw: bool,
}

impl Stored {
    fn len(&self) -> usize {
        if self.raw { self.body.len() } else { self.body.len() + PREFIX }
    }

    fn prefix(&self) -> [u8; PREFIX] {
        let mut prefix = [0; PREFIX];
        let length = i32::try_from(self.body.len() + 4).unwrap_or(i32::MAX);
        let mut out = &mut prefix[..];
        out.put_i64(self.base_offset);
        out.put_i32(length);
        out.put_i32(self.leader_epoch);
        prefix
    }

    fn whole(&self) -> Bytes {
        if self.raw {
            return self.body.clone();
        }
        let mut whole = BytesMut::with_capacity(self.len());
        whole.put_slice(&self.prefix());
        whole.put_slice(&self.body);
        whole.freeze()
    }
}

/// The bytes of a batch behind its prefix. Small ones are copied: they would keep a whole read buffer alive.
fn kept(batch: &Bytes) -> Bytes {
    let body = batch.slice(PREFIX.min(batch.len())..);
    if body.len() < COPY_BELOW { Bytes::copy_from_slice(&body) } else { body }
}

/// Where a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Offset of the oldest record kept.
    pub start: i64,
    /// Offset of the next append; also the high watermark, for every append reaches all replicas at once.
    pub end: i64,
    /// Offset of the first record of the oldest open transaction, or `end`.
    pub stable: i64,
}

/// A transaction that ended in an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted {
    /// Who wrote it.
    pub producer_id: i64,
    /// Its first record.
    pub first_offset: i64,
    /// Its abort marker.
    pub last_offset: i64,
}

/// What came of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the batch's first record, of the first time when it is a duplicate.
    pub base_offset: i64,
    /// Whether it was in the log already.
    pub duplicate: bool,
}

/// A run of whole batches that a fetch may return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    first: usize,
    count: usize,
    /// Bytes of the run.
    pub bytes: usize,
}

/// One partition's log.
#[derive(Debug)]
pub struct Log {
    name: String,
    start: i64,
    end: i64,
    batches: VecDeque<Stored>,
    bytes: usize,
    cap: usize,
    full: bool,
    topic: [u8; 16],
    partition: i32,
    keep: Keep,
    /// Leader epochs and the offset each began at, rising in both.
    epochs: Vec<(i32, i64)>,
    sequences: Sequences,
    /// Open transactions: producer → first offset.
    open: BTreeMap<i64, i64>,
    aborted: Vec<Aborted>,
}

impl Log {
    /// An empty log that keeps at most `cap` bytes; `name` is for people.
    pub fn new(name: String, cap: usize) -> Log {
        Log {
            name,
            start: 0,
            end: 0,
            batches: VecDeque::new(),
            bytes: 0,
            cap,
            full: false,
            topic: [0; 16],
            partition: 0,
            keep: Keep::default(),
            epochs: vec![(0, 0)],
            sequences: Sequences::default(),
            open: BTreeMap::new(),
            aborted: Vec::new(),
        }
    }

    /// Keeps beyond its bytes what is wanted of it, as the log of this partition.
    #[must_use]
    pub fn keeping(self, topic: [u8; 16], partition: i32, keep: Keep) -> Log {
        Log { topic, partition, keep, ..self }
    }

    /// Its bounds.
    #[must_use]
    pub fn ends(&self) -> LogEnd {
        LogEnd {
            start: self.start,
            end: self.end,
            stable: self.open.values().min().copied().unwrap_or(self.end),
        }
    }

    /// Bytes kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks a batch against its producer's sequence and appends it; the batch's header must describe `bytes`.
    ///
    /// # Errors
    /// The error code to answer.
    pub fn append(
        &mut self,
        bytes: &Bytes,
        header: &Header,
        leader_epoch: i32,
        unknown: UnknownProducer,
    ) -> Result<Appended, i16> {
        match self.sequences.check(header, unknown) {
            Verdict::Duplicate { base_offset } => return Ok(Appended { base_offset, duplicate: true }),
            Verdict::Refuse(code) => return Err(code),
            Verdict::Append => {}
        }
        let base_offset = self.end;
        self.sequences.appended(header, base_offset);
        if header.is_transactional() && !header.is_control() {
            self.open.entry(header.producer_id).or_insert(base_offset);
        }
        self.push(Stored {
            base_offset,
            last_offset: base_offset + i64::from(header.last_offset_delta),
            leader_epoch,
            max_timestamp: header.max_timestamp,
            body: kept(bytes),
            raw: false,
        });
        Ok(Appended { base_offset, duplicate: false })
    }

    /// Stores `bytes` as they are, unchecked, as the records `end ..= last_offset`: for tests of readers.
    pub fn append_raw(&mut self, bytes: Bytes, last_offset: i64, leader_epoch: i32) {
        let base_offset = self.end;
        let last_offset = last_offset.max(base_offset);
        self.push(Stored {
            base_offset,
            last_offset,
            leader_epoch,
            max_timestamp: -1,
            body: bytes,
            raw: true,
        });
    }

    /// Ends a transaction with a marker batch.
    pub fn end_transaction(&mut self, marker: &Bytes, header: &Header, leader_epoch: i32, commit: bool) {
        let base_offset = self.end;
        if let Some(first_offset) = self.open.remove(&header.producer_id)
            && !commit
        {
            let producer_id = header.producer_id;
            self.aborted.push(Aborted { producer_id, first_offset, last_offset: base_offset });
        }
        self.sequences.marked(header.producer_id, header.producer_epoch);
        self.push(Stored {
            base_offset,
            last_offset: base_offset,
            leader_epoch,
            max_timestamp: header.max_timestamp,
            body: marker.slice(PREFIX..),
            raw: false,
        });
    }

    fn push(&mut self, stored: Stored) {
        if self.epochs.last().is_none_or(|(epoch, _)| *epoch < stored.leader_epoch) {
            self.epochs.push((stored.leader_epoch, stored.base_offset));
        }
        self.end = stored.last_offset + 1;
        self.bytes += stored.len();
        self.batches.push_back(stored);
        while self.bytes > self.cap && self.batches.len() > 1 {
            if !std::mem::replace(&mut self.full, true) {
                tracing::warn!(log = %self.name, bytes = self.cap, "a log is full: its oldest records go");
            }
            let wanted = |stored: &Stored| {
                self.keep.wants(&self.topic, self.partition, stored.base_offset..=stored.last_offset)
            };
            match self.batches.range(..self.batches.len() - 1).position(|stored| !wanted(stored)) {
                Some(0) => self.drop_oldest(),
                // Behind what is wanted the log has a gap, as compaction leaves one.
                Some(at) => self.bytes -= self.batches.remove(at).map_or(0, |stored| stored.len()),
                None => return,
            }
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.batches.pop_front() {
            self.bytes -= oldest.len();
            self.start = self.start.max(oldest.last_offset + 1);
            self.aborted.retain(|aborted| aborted.last_offset >= self.start);
        }
    }

    /// Removes records below `offset`, which lies within the log. A batch that straddles it stays whole.
    pub fn delete_before(&mut self, offset: i64) {
        self.start = self.start.max(offset.min(self.end));
        while self.batches.front().is_some_and(|oldest| oldest.last_offset < self.start) {
            self.drop_oldest();
        }
    }

    /// Batches that reach to `offset` or beyond are gone, and what was known of their producers.
    pub fn truncate(&mut self, offset: i64) {
        while self.batches.back().is_some_and(|newest| newest.last_offset >= offset) {
            let Some(newest) = self.batches.pop_back() else { break };
            self.bytes -= newest.len();
            self.end = newest.base_offset.max(self.start);
        }
        self.sequences = Sequences::default();
        self.epochs.retain(|(_, start)| *start <= self.end);
        self.open.retain(|_, first| *first < self.end);
        self.aborted.retain(|aborted| aborted.last_offset < self.end);
    }

    /// A leader of a new epoch took over at the end of the log.
    pub fn lead(&mut self, epoch: i32) {
        if self.epochs.last().is_some_and(|(_, start)| *start == self.end) {
            self.epochs.pop();
        }
        self.epochs.push((epoch, self.end));
    }

    /// The largest epoch not above `epoch`, and the offset after its last record (KIP-320); (−1, −1) when the log has not
    /// reached that epoch, and the start of the log when it begins with a later one.
    #[must_use]
    pub fn epoch_end(&self, epoch: i32) -> (i32, i64) {
        let next = self.epochs.partition_point(|(known, _)| *known <= epoch);
        let found = next.checked_sub(1).and_then(|at| self.epochs.get(at)).map_or(epoch, |(found, _)| *found);
        match self.epochs.get(next) {
            Some((_, start)) => (found, *start),
            None if found == epoch && !self.epochs.is_empty() => (epoch, self.end),
            None => (-1, -1),
        }
    }

    /// Leader epoch of the record at `offset`, or of the end of the log.
    #[must_use]
    pub fn epoch_at(&self, offset: i64) -> i32 {
        let next = self.epochs.partition_point(|(_, start)| *start <= offset);
        next.checked_sub(1).and_then(|at| self.epochs.get(at)).map_or(-1, |(epoch, _)| *epoch)
    }

    /// Whole batches from the one that holds `offset`, below `limit`, at most `max_bytes`; the first one is returned
    /// whatever its size when `at_least_one`.
    #[must_use]
    pub fn run(&self, offset: i64, limit: i64, max_bytes: usize, at_least_one: bool) -> Run {
        let first = self.batches.partition_point(|stored| stored.last_offset < offset);
        let mut run = Run { first, count: 0, bytes: 0 };
        for stored in self.batches.range(first..) {
            let fits = run.bytes + stored.len() <= max_bytes || (run.count == 0 && at_least_one);
            if stored.base_offset >= limit || !fits {
                break;
            }
            run.count += 1;
            run.bytes += stored.len();
        }
        run
    }

    /// Writes the batches of a run taken from this log under the same lock.
    pub fn write(&self, run: Run, out: &mut Segments) {
        for stored in self.batches.iter().skip(run.first).take(run.count) {
            if !stored.raw {
                out.open().put_slice(&stored.prefix());
            }
            if stored.len() < COPY_BELOW {
                out.open().put_slice(&stored.body);
            } else {
                out.push(stored.body.clone());
            }
        }
    }

    /// Aborted transactions that overlap a run that starts at `offset`.
    #[must_use]
    pub fn aborted(&self, offset: i64, run: Run) -> Vec<Aborted> {
        let last = run.count.checked_sub(1).and_then(|more| self.batches.get(run.first + more));
        let Some(last) = last.map(|stored| stored.last_offset) else { return Vec::new() };
        let overlaps = |aborted: &&Aborted| aborted.last_offset >= offset && aborted.first_offset <= last;
        self.aborted.iter().filter(overlaps).copied().collect()
    }

    /// The first record whose timestamp is not below `timestamp`: (offset, timestamp). Appending does not look inside.
    /// # Errors
    /// When a batch on the way cannot be decoded.
    pub fn at_timestamp(&self, timestamp: i64) -> Result<Option<(i64, i64)>, BatchError> {
        for stored in self.batches.iter().filter(|stored| stored.max_timestamp >= timestamp) {
            let records = batch::records(&stored.whole())?;
            let found = |record: &&Record| record.timestamp >= timestamp && record.offset >= self.start;
            if let Some(record) = records.iter().find(found) {
                return Ok(Some((record.offset, record.timestamp)));
            }
        }
        Ok(None)
    }

    /// The record with the largest timestamp, the first of several: (offset, timestamp).
    /// # Errors
    /// As [`Log::at_timestamp`].
    pub fn at_max_timestamp(&self) -> Result<Option<(i64, i64)>, BatchError> {
        let largest = self.batches.iter().map(|stored| stored.max_timestamp).max();
        largest.map_or(Ok(None), |largest| self.at_timestamp(largest))
    }

    /// Every data record that can still be read; what cannot be decoded is left out.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let mut all = Vec::new();
        for stored in &self.batches {
            let whole = stored.whole();
            if batch::header(&whole).is_ok_and(|header| !header.is_control()) {
                let records = batch::records(&whole).unwrap_or_default();
                all.extend(records.into_iter().filter(|record| record.offset >= self.start));
            }
        }
        all
    }

    /// Every batch kept, as a reader receives it.
    #[must_use]
    pub fn batches(&self) -> Vec<Bytes> {
        self.batches.iter().map(Stored::whole).collect()
    }
}
