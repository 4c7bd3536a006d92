//! Which batch of a partition goes out next, under which producer epoch and sequence? Pure.
//!
//! The broker appends a batch of an idempotent producer only when its sequence follows the last one appended under the
//! same epoch, and remembers the last five batches. That gives once-only and order, as long as this side keeps
//! four rules:
//!
//! 1. A batch keeps its sequence until its fate is known. After a lost answer the *same* sequence is sent again.
//! 2. From the oldest batch without an answer to the newest there are at most five.
//! 3. After any failure the partition *drains*: nothing goes out until everything in flight has come back; then it is
//!    sent again in order.
//! 4. A batch that is given up leaves a gap. The gap is closed by a new epoch, which restarts sequences at 0
//!    (KIP-360; for a producer without transactions the epoch is the client's to raise, and the broker keeps it per partition, so
//!    no other partition notices). That is done only when every remaining batch is known not to be in the log: a
//!    batch with an unknown fate sent under a new epoch could be there twice.

use std::collections::VecDeque;

use prosody_base::sabotaged;

/// From the oldest batch of a partition without an answer to the newest: what a broker can recognise as duplicates.
pub(crate) const MAX_IN_FLIGHT: u64 = 5;

/// Names a batch inside its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BatchId(pub(crate) u64);

/// Producer id and epoch, as InitProducerId assigned them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

/// What a batch's header carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) identity: Identity,
    pub(crate) first: i32,
}

/// How a broker refused a batch. It did not append it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The same batch may be taken later or elsewhere.
    Later,
    /// OUT_OF_ORDER_SEQUENCE_NUMBER.
    OutOfOrder,
    /// The broker does not know this producer or epoch (any more).
    UnknownProducer,
    /// No retry helps.
    Never,
}

/// What happens to the batch an answer was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It waits for its next attempt.
    Retry,
    /// It is over, and the log does not hold it.
    NotWritten,
    /// It is over, and the log may hold it.
    Unknown,
}

#[derive(Clone, Debug)]
struct Entry {
    batch: BatchId,
    records: u32,
    first: i32,
    /// Counts the batches of an epoch.
    ordinal: u64,
    in_flight: bool,
    /// An earlier attempt got no answer, or one that leaves the effect open.
    maybe_written: bool,
    /// Its deadline passed: no further attempt.
    expired: bool,
}

/// The sequences of one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequencer {
    identity: Option<Identity>,
    next: i32,
    next_ordinal: u64,
    /// The broker acknowledged a batch of this epoch. Until then one batch goes alone: a broker without state for a
    /// producer takes *any* sequence, so a second batch could overtake a refused first one.
    established: bool,
    entries: VecDeque<Entry>,
    draining: bool,
    gap: Option<Gap>,
}

/// Why the sequence is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    /// A batch that is not in the log.
    NotWritten,
    /// A batch that may be in the log, or may still arrive there from a broken connection.
    Unknown,
}

impl Sequencer {
    /// Whether a producer id is needed before anything can be sent.
    pub(crate) fn needs_identity(&self) -> bool {
        self.identity.is_none()
    }

    /// Starts under a fresh producer id.
    pub(crate) fn adopt(&mut self, identity: Identity) {
        if self.identity.is_none() {
            self.renumber(identity);
        }
    }

    /// Nothing was sent for so long that the broker may have forgotten the producer: the next batch goes alone again.
    pub(crate) fn rested(&mut self) {
        if self.entries.is_empty() {
            self.established = false;
        }
    }

    /// Batches with a sequence and no final answer.
    pub(crate) fn outstanding(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing of this partition is on the wire.
    pub(crate) fn quiet(&self) -> bool {
        self.entries.iter().all(|entry| !entry.in_flight)
    }

    /// Whether a batch waits for another attempt.
    pub(crate) fn has_waiting(&self) -> bool {
        self.entries.iter().any(|entry| !entry.in_flight)
    }

    /// Whether a new batch may be given a sequence now.
    pub(crate) fn can_take(&self) -> bool {
        self.identity.is_some()
            && !self.draining
            && self.gap.is_none()
            && self.span() < self.window()
            && !self.has_waiting()
    }

    /// Gives a new batch its sequence; it counts as in flight. `None` unless [`Sequencer::can_take`].
    pub(crate) fn take(&mut self, batch: BatchId, records: u32) -> Option<Sequence> {
        let identity = self.identity.filter(|_| self.can_take())?;
        let first = self.next;
        self.next = advance(first, records);
        let ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        self.entries.push_back(Entry {
            batch,
            records,
            first,
            ordinal,
            in_flight: true,
            maybe_written: false,
            expired: false,
        });
        Some(Sequence { identity, first })
    }

    /// The next batch to send again, with the sequence it has now. It counts as in flight from here on.
    pub(crate) fn resend(&mut self) -> Option<(BatchId, Sequence)> {
        let quiet = self.quiet();
        if (self.draining || self.gap.is_some()) && !quiet && !sabotaged("produce-drain") {
            return None;
        }
        self.draining = false;
        if self.gap.is_some() {
            let identity = self.identity?;
            // Fates are found out one by one before anything is renumbered.
            let renumber_at_once = sabotaged("produce-renumber");
            if let Some(open) = self.entries.iter_mut().find(|entry| entry.maybe_written && !renumber_at_once)
            {
                open.in_flight = true;
                return Some((open.batch, Sequence { identity, first: open.first }));
            }
            match identity.epoch.checked_add(1) {
                Some(epoch) => self.renumber(Identity { epoch, ..identity }),
                None => self.identity = None,
            }
        }
        let identity = self.identity?;
        let (window, oldest) = (self.window(), self.entries.front()?.ordinal);
        let entry = self.entries.iter_mut().find(|entry| !entry.in_flight)?;
        // Batches that were split are more than were taken.
        if entry.ordinal.saturating_sub(oldest) >= window {
            return None;
        }
        entry.in_flight = true;
        Some((entry.batch, Sequence { identity, first: entry.first }))
    }

    /// The broker has the batch (DUPLICATE_SEQUENCE_NUMBER says so too).
    pub(crate) fn written(&mut self, batch: BatchId) {
        if let Some(index) = self.position(batch) {
            self.established = true;
            self.entries.remove(index);
        }
    }

    /// The broker answered that it did not append the batch.
    pub(crate) fn refused(&mut self, batch: BatchId, refusal: Refusal) -> Verdict {
        let head = self.entries.front().is_some_and(|entry| entry.batch == batch);
        let gap = self.gap;
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.batch == batch) else {
            return Verdict::NotWritten;
        };
        entry.in_flight = false;
        self.draining = true;
        let verdict = match refusal {
            Refusal::Never if entry.maybe_written => Verdict::Unknown,
            Refusal::Never => Verdict::NotWritten,
            // A batch given up earlier may still arrive from a broken connection, and this one right behind it.
            Refusal::OutOfOrder if entry.maybe_written && gap == Some(Gap::Unknown) => Verdict::Unknown,
            // The producer was forgotten with the log's old end, which may have held this batch.
            Refusal::UnknownProducer if entry.maybe_written => Verdict::Unknown,
            Refusal::OutOfOrder | Refusal::UnknownProducer => {
                // Behind an unfinished batch this is only the echo of that one's failure. An attempt that is still
                // under way on a broken connection may then succeed once that one is in the log.
                entry.maybe_written &= !head && gap.is_none();
                if head && gap.is_none() {
                    self.gap = Some(Gap::NotWritten);
                }
                Verdict::Retry
            }
            Refusal::Later => Verdict::Retry,
        };
        let (expired, unknown) = (entry.expired, entry.maybe_written);
        match verdict {
            Verdict::Retry if expired && unknown => self.give_up(batch, Verdict::Unknown),
            Verdict::Retry if expired => self.give_up(batch, Verdict::NotWritten),
            Verdict::Retry => Verdict::Retry,
            over => self.give_up(batch, over),
        }
    }

    /// The records of a batch that may be split. `None` for others: the log may hold it, its time is over, or it is one record.
    pub(crate) fn divisible(&self, batch: BatchId) -> Option<u32> {
        let entry = self.entries.iter().find(|entry| entry.batch == batch)?;
        (!entry.maybe_written && !entry.expired && entry.records > 1).then_some(entry.records)
    }

    /// The broker refused the batch because it is too large: it goes on as two, `batch` with the first `records` and `rest`
    /// with the others. What is behind keeps its sequences, since the two take the place of the one. `false` unless it is
    /// [divisible](Sequencer::divisible) there.
    pub(crate) fn split(&mut self, batch: BatchId, records: u32, rest: BatchId) -> bool {
        if !self.divisible(batch).is_some_and(|all| (1..all).contains(&records)) {
            return false;
        }
        let Some(index) = self.position(batch) else { return false };
        let Some(entry) = self.entries.get_mut(index) else { return false };
        entry.in_flight = false;
        let first = advance(entry.first, records);
        let other = Entry { batch: rest, records: entry.records - records, first, ..entry.clone() };
        entry.records = records;
        self.draining = true;
        self.entries.insert(index + 1, other);
        self.entries.iter_mut().skip(index + 1).for_each(|entry| entry.ordinal += 1);
        self.next_ordinal += 1;
        true
    }

    /// No answer came, or one that leaves the effect open (REQUEST_TIMED_OUT).
    pub(crate) fn lost(&mut self, batch: BatchId) -> Verdict {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.batch == batch) else {
            return Verdict::Unknown;
        };
        entry.in_flight = false;
        entry.maybe_written = !sabotaged("produce-lost-answer");
        self.draining = true;
        if entry.expired {
            return self.give_up(batch, Verdict::Unknown);
        }
        if sabotaged("produce-same-sequence") {
            entry.maybe_written = false;
            self.gap = Some(Gap::NotWritten);
        }
        Verdict::Retry
    }

    /// The request was never written to a socket: as if the attempt had not been made.
    pub(crate) fn unsent(&mut self, batch: BatchId) -> Verdict {
        self.refused(batch, Refusal::Later)
    }

    /// The batch's last deadline passed: no further attempt is made. What its senders are told now; a batch in flight
    /// leaves the sequence when its answer comes.
    pub(crate) fn expire(&mut self, batch: BatchId) -> Verdict {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.batch == batch) else {
            return Verdict::NotWritten;
        };
        entry.expired = true;
        match (entry.in_flight, entry.maybe_written) {
            (true, _) if sabotaged("produce-unknown-outcome") => Verdict::NotWritten,
            (true, _) => Verdict::Unknown,
            (false, true) => self.give_up(batch, Verdict::Unknown),
            (false, false) => self.give_up(batch, Verdict::NotWritten),
        }
    }

    /// Whether the batch has its place in the sequence.
    pub(crate) fn holds(&self, batch: BatchId) -> bool {
        self.position(batch).is_some()
    }

    /// Whether the log can hold the batch: it is on the wire, or an attempt was left open.
    pub(crate) fn may_be_written(&self, batch: BatchId) -> bool {
        self.entries.iter().any(|entry| entry.batch == batch && (entry.in_flight || entry.maybe_written))
    }

    fn give_up(&mut self, batch: BatchId, verdict: Verdict) -> Verdict {
        if let Some(index) = self.position(batch)
            && let Some(entry) = self.entries.remove(index)
        {
            let last = index == self.entries.len();
            if verdict == Verdict::Unknown {
                self.gap = Some(Gap::Unknown);
            } else if last && self.gap.is_none() {
                // Nobody behind it: the next batch takes its place.
                self.next = entry.first;
                self.next_ordinal = entry.ordinal;
            } else if self.gap.is_none() {
                self.gap = Some(Gap::NotWritten);
            }
        }
        verdict
    }

    fn renumber(&mut self, identity: Identity) {
        self.identity = Some(identity);
        self.established = false;
        self.gap = None;
        (self.next, self.next_ordinal) = (0, 0);
        for entry in &mut self.entries {
            (entry.first, entry.ordinal) = (self.next, self.next_ordinal);
            self.next = advance(self.next, entry.records);
            self.next_ordinal += 1;
        }
    }

    fn window(&self) -> u64 {
        if self.established { MAX_IN_FLIGHT } else { 1 }
    }

    /// Batches sent since the oldest one without an answer, that one included. Answered ones between count too: they
    /// take places in the broker's memory of five, and it must still know the oldest.
    fn span(&self) -> u64 {
        self.entries.front().map_or(0, |oldest| self.next_ordinal.saturating_sub(oldest.ordinal))
    }

    fn position(&self, batch: BatchId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.batch == batch)
    }
}

/// Sequences run from 0 to `i32::MAX` and start again at 0.
fn advance(first: i32, records: u32) -> i32 {
    let next = (i64::from(first) + i64::from(records)) % (i64::from(i32::MAX) + 1);
    i32::try_from(next).unwrap_or(0)
}
