//! What does a store know of a key, and what does a batch make of it? *Pure.*

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::key_batch::{DeleteTimer, KeyBatch};
use crate::time::Time;

/// Names one assignment of one client. Drawn at random, so that no two share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writer(pub u128);

/// What a timer is for. Kinds never share an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimerKind {
    /// A handler scheduled it.
    Application,
    /// It tries the head of the deferred messages again.
    DeferredMessage,
    /// It tries the head of the deferred timers again.
    DeferredTimer,
}

/// Which timer of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId {
    /// When it is due.
    pub time: Time,
    /// What it is for.
    pub kind: TimerKind,
}

impl TimerId {
    /// Before or at every other one.
    pub(crate) const FIRST: TimerId = TimerId { time: Time::from_seconds(0), kind: TimerKind::Application };

    /// A timer of a handler.
    #[must_use]
    pub fn application(time: Time) -> TimerId {
        TimerId { time, kind: TimerKind::Application }
    }
}

/// What is kept of a pending timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerFacts {
    /// Tells it from an earlier timer of the same id, whose row may still be in the index.
    pub nonce: u64,
    /// Where its row is in the index.
    pub slab: u32,
    /// The trace context of the event that scheduled it; empty when there was none.
    pub trace: Bytes,
}

/// The last message of a key that was done or deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// Its log, as [`SegmentRow::log`](crate::SegmentRow::log) says. A topic of the same name created later has another.
    pub log: [u8; 16],
    /// The leader epoch of its batch; what was written after a truncation has a greater one.
    pub leader_epoch: i32,
    /// Its offset.
    pub offset: i64,
    /// Hash of `IdempotenceVersion`; another one asks for everything to be processed again.
    pub idempotence: u64,
    /// When that was.
    pub time: Time,
}

/// A queue of deferred events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// No entry has a lower number.
    pub head: u64,
    /// The number of the next entry.
    pub tail: u64,
    /// How many entries there are.
    pub count: u32,
    /// How often the first one has been tried again.
    pub retries: u32,
}

/// A deferred message; its payload stays in Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeferredMessage {
    /// The leader epoch of its batch.
    pub leader_epoch: i32,
    /// Its offset.
    pub offset: i64,
    /// Who deferred it.
    pub writer: Writer,
}

/// A deferred application timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeferredTimer {
    /// When it was due.
    pub time: Time,
    /// As in [`TimerFacts`].
    pub trace: Bytes,
}

/// A key's record at one version. Version 0 is the record that is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyImage {
    /// How many batches made it.
    pub version: u64,
    /// Who wrote the last one.
    pub writer: Writer,
    /// The last message that is done.
    pub last: Option<Last>,
    /// Pending timers of all kinds.
    pub timers: BTreeMap<TimerId, TimerFacts>,
    /// The queue of deferred messages. Its entries are read with
    /// [`deferred_messages`](crate::KeyStore::deferred_messages): there may be 100,000.
    pub messages: Queue,
    /// The queue of deferred application timers.
    pub timer_queue: Queue,
    /// Its entries, by number.
    pub deferred_timers: BTreeMap<u64, DeferredTimer>,
}

impl KeyImage {
    /// Whether this very timer is pending. A row of the index that is not is void.
    #[must_use]
    pub fn holds(&self, id: TimerId, nonce: u64) -> bool {
        self.timers.get(&id).is_some_and(|facts| facts.nonce == nonce)
    }

    /// What deletes a pending timer.
    #[must_use]
    pub fn delete_timer(&self, id: TimerId) -> Option<DeleteTimer> {
        self.timers.get(&id).map(|facts| DeleteTimer { id, nonce: facts.nonce, slab: facts.slab })
    }

    /// Whether the record owns this message: it is done, or deferred. `message.time` is now; what the record says is
    /// believed for `trust`.
    #[must_use]
    pub fn is_done(&self, message: &Last, trust: Duration) -> bool {
        self.last.is_some_and(|last| {
            let age = Duration::from_secs(message.time.seconds().saturating_sub(last.time.seconds()).into());
            last.log == message.log
                && last.idempotence == message.idempotence
                && age <= trust
                && (message.leader_epoch, message.offset) <= (last.leader_epoch, last.offset)
        })
    }

    /// What an applied batch makes of it.
    pub fn apply(&mut self, batch: &KeyBatch, writer: Writer) {
        self.version += 1;
        self.writer = writer;
        self.last = batch.last.or(self.last);
        for deleted in &batch.delete_timers {
            if self.timers.get(&deleted.id).is_some_and(|facts| facts.nonce == deleted.nonce) {
                self.timers.remove(&deleted.id);
            }
        }
        self.timers.extend(batch.put_timers.iter().map(|put| (put.id, put.facts.clone())));
        for number in &batch.remove_messages {
            self.messages.remove(*number);
        }
        for _ in &batch.append_messages {
            self.messages.append();
        }
        for number in &batch.remove_timers {
            if self.deferred_timers.remove(number).is_some() {
                self.timer_queue.remove(*number);
            }
        }
        for entry in &batch.append_timers {
            let number = self.timer_queue.append();
            self.deferred_timers.insert(number, entry.clone());
        }
        self.messages.retries = batch.message_retries.unwrap_or(self.messages.retries);
        self.timer_queue.retries = batch.timer_retries.unwrap_or(self.timer_queue.retries);
    }
}

impl Queue {
    fn append(&mut self) -> u64 {
        let number = self.tail;
        self.tail += 1;
        self.count = self.count.saturating_add(1);
        number
    }

    /// An entry that is there is no more.
    fn remove(&mut self, number: u64) {
        self.count = self.count.saturating_sub(1);
        if number == self.head {
            self.head += 1;
        }
        if self.count == 0 {
            self.head = self.tail;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_done_by_its_position_in_one_log_under_one_version_and_for_a_time() {
        let time = Time::from_seconds;
        let last = Last { log: [1; 16], leader_epoch: 2, offset: 10, idempotence: 3, time: time(1_000) };
        let image = KeyImage { last: Some(last), ..KeyImage::default() };
        let is_done = |message: Last| image.is_done(&message, Duration::from_secs(60));
        let now = Last { time: time(1_060), ..last };
        assert!(is_done(now) && is_done(Last { offset: 9, ..now }));
        assert!(!is_done(Last { offset: 11, ..now }));
        // The epoch comes first: what was written after a truncation is new, whatever its offset.
        assert!(!is_done(Last { leader_epoch: 3, offset: 0, ..now }));
        assert!(is_done(Last { leader_epoch: 1, offset: 99, ..now }));
        assert!(!is_done(Last { log: [2; 16], ..now }), "a topic made again");
        assert!(!is_done(Last { idempotence: 4, ..now }), "another version");
        assert!(!is_done(Last { time: time(1_061), ..now }), "its time is over");
        assert!(is_done(Last { time: time(900), ..now }), "the clock was set back");
        assert!(!KeyImage::default().is_done(&now, Duration::MAX));
    }
}
