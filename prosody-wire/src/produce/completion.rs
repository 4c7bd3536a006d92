//! How does a sender learn what became of its record? One shared completion per batch: a record is an index into it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::Error;
use crate::types::{Offset, Topic};

/// An acknowledged record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The topic it is in.
    pub topic: Topic,
    /// The partition it is in.
    pub partition: i32,
    /// Its offset. −1 in one rare case: the broker recognised a batch sent again as a duplicate but no longer knows its
    /// offsets (DUPLICATE_SEQUENCE_NUMBER).
    pub offset: Offset,
    /// Milliseconds since 1970: the record's own, or the broker's where the topic uses LogAppendTime.
    pub timestamp: i64,
}

/// Whether a record that was not acknowledged can be in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// It is not in the log and will not get there.
    NotWritten,
    /// It may be in the log.
    Unknown,
}

/// A record that was not acknowledged.
#[derive(Clone, Debug)]
pub struct SendError {
    /// What happened last.
    pub error: Error,
    /// Whether the log can hold the record.
    pub outcome: SendOutcome,
}

impl SendError {
    pub(crate) fn not_written(error: Error) -> SendError {
        SendError { error, outcome: SendOutcome::NotWritten }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            SendOutcome::NotWritten => "the record was not written",
            SendOutcome::Unknown => "the record may have been written",
        };
        write!(f, "{}; {outcome}", self.error)
    }
}

impl std::error::Error for SendError {}

/// What became of a batch.
#[derive(Debug)]
pub(crate) enum BatchEnd {
    /// In the log from this offset on; −1 when the broker no longer knows. The time is the broker's, if it set one.
    Written { base: Offset, append_time: Option<i64> },
    /// Not acknowledged.
    Failed(SendError),
}

/// The shared end of one batch.
#[derive(Debug)]
pub(crate) struct Completion {
    topic: Topic,
    partition: i32,
    end: OnceLock<BatchEnd>,
    /// Some records ended before their batch did, or a part of it has.
    has_early: AtomicBool,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    wakers: Vec<Option<Waker>>,
    early: BTreeMap<u32, SendError>,
    /// Early ends that are not in the batch any more, so that later records have lower offsets.
    removed: Vec<u32>,
    /// How parts of the batch ended that were sent by themselves.
    parts: Vec<(Range<u32>, BatchEnd)>,
}

impl Completion {
    pub(crate) fn new(topic: Topic, partition: i32) -> Arc<Completion> {
        Arc::new(Completion {
            topic,
            partition,
            end: OnceLock::new(),
            has_early: AtomicBool::new(false),
            open: Mutex::default(),
        })
    }

    /// Ends one record before its batch. `removed`: the batch will be sent without it.
    pub(crate) fn end_early(&self, index: u32, error: SendError, removed: bool) {
        let waker = {
            let mut open = self.open();
            open.early.entry(index).or_insert(error);
            if removed {
                open.removed.push(index);
                open.removed.sort_unstable();
            }
            self.has_early.store(true, Ordering::Release);
            open.wakers.get_mut(index as usize).and_then(Option::take)
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the batch; the first end counts.
    pub(crate) fn finish(&self, end: BatchEnd) {
        if self.end.set(end).is_err() {
            return;
        }
        let wakers = std::mem::take(&mut self.open().wakers);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Ends a part of the batch, which was split; the first end counts.
    pub(crate) fn finish_part(&self, part: Range<u32>, end: BatchEnd) {
        let wakers: Vec<Waker> = {
            let mut open = self.open();
            if open.part(part.start).is_some() {
                return;
            }
            open.parts.push((part.clone(), end));
            self.has_early.store(true, Ordering::Release);
            let (from, count) = (part.start as usize, part.len());
            open.wakers.iter_mut().skip(from).take(count).filter_map(Option::take).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The record behind the first `count` that are still in this part of the batch.
    pub(crate) fn behind(&self, part: Range<u32>, count: u32) -> u32 {
        let open = self.open();
        let in_it = part.clone().filter(|index| !open.removed.contains(index));
        in_it.skip(count as usize).min().unwrap_or(part.end)
    }

    fn poll(&self, index: u32, timestamp: i64, cx: &mut Context<'_>) -> Poll<Result<Delivery, SendError>> {
        if let Some(end) = self.end.get() {
            return Poll::Ready(self.result(end, index, timestamp));
        }
        let mut open = self.open();
        if let Some((part, end)) = open.part(index) {
            return Poll::Ready(self.result_in(&open, part.start, end, index, timestamp));
        }
        if let Some(error) = open.early.get(&index) {
            return Poll::Ready(Err(error.clone()));
        }
        let at = index as usize;
        if open.wakers.len() <= at {
            open.wakers.resize(at + 1, None);
        }
        if let Some(place) = open.wakers.get_mut(at) {
            match place {
                Some(known) => known.clone_from(cx.waker()),
                None => *place = Some(cx.waker().clone()),
            }
        }
        drop(open);
        // `finish` may have taken the wakers between the look above and this one's registration.
        match self.end.get() {
            Some(end) => Poll::Ready(self.result(end, index, timestamp)),
            None => Poll::Pending,
        }
    }

    fn result(&self, end: &BatchEnd, index: u32, timestamp: i64) -> Result<Delivery, SendError> {
        if !self.has_early.load(Ordering::Acquire) {
            return self.result_in(&Open::default(), 0, end, index, timestamp);
        }
        let open = self.open();
        let (first, end) = open.part(index).map_or((0, end), |(part, end)| (part.start, end));
        self.result_in(&open, first, end, index, timestamp)
    }

    /// What became of a record of a batch, or a part of one, that begins with record `first`.
    fn result_in(
        &self,
        open: &Open,
        first: u32,
        end: &BatchEnd,
        index: u32,
        timestamp: i64,
    ) -> Result<Delivery, SendError> {
        let written = matches!(end, BatchEnd::Written { .. });
        if let Some(error) = open.early.get(&index)
            && !(written && error.outcome == SendOutcome::Unknown)
        {
            return Err(error.clone());
        }
        let missing = open.removed.iter().filter(|removed| (first..index).contains(removed)).count();
        match end {
            BatchEnd::Written { base, append_time } => Ok(Delivery {
                topic: Arc::clone(&self.topic),
                partition: self.partition,
                offset: match base {
                    -1 => -1,
                    base => base.saturating_add(i64::from(index - first)).saturating_sub(missing as i64),
                },
                timestamp: append_time.unwrap_or(timestamp),
            }),
            BatchEnd::Failed(error) => Err(error.clone()),
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// The part that a record is in, if that has ended by itself.
    fn part(&self, index: u32) -> Option<&(Range<u32>, BatchEnd)> {
        self.parts.iter().find(|(part, _)| part.contains(&index))
    }
}

/// A record that found no place in a batch yet: its topic is not known, or memory is full.
#[derive(Debug, Default)]
pub(crate) struct Slot(Mutex<SlotState>);

#[derive(Debug)]
enum SlotState {
    Waiting(Option<Waker>),
    Placed(Arc<Completion>, u32),
    Failed(SendError),
}

impl Default for SlotState {
    fn default() -> SlotState {
        SlotState::Waiting(None)
    }
}

impl Slot {
    pub(crate) fn place(&self, completion: Arc<Completion>, index: u32) {
        self.become_(SlotState::Placed(completion, index));
    }

    pub(crate) fn fail(&self, error: SendError) {
        self.become_(SlotState::Failed(error));
    }

    fn become_(&self, state: SlotState) {
        let before = std::mem::replace(&mut *self.state(), state);
        if let SlotState::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resolves when a record's fate is known. Dropping it changes nothing: the record is sent all the same.
#[derive(Debug)]
#[must_use = "the record is on its way, but only awaiting it tells whether it arrived"]
pub struct Sending {
    timestamp: i64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Batch(Arc<Completion>, u32),
    Slot(Arc<Slot>),
    Failed(SendError),
}

impl Sending {
    pub(crate) fn batch(completion: Arc<Completion>, index: u32, timestamp: i64) -> Sending {
        Sending { timestamp, place: Place::Batch(completion, index) }
    }

    pub(crate) fn slot(slot: Arc<Slot>, timestamp: i64) -> Sending {
        Sending { timestamp, place: Place::Slot(slot) }
    }

    /// Tells a slot where its record went.
    pub(crate) fn settle(self, slot: &Slot) {
        match self.place {
            Place::Batch(completion, index) => slot.place(completion, index),
            Place::Failed(error) => slot.fail(error),
            // A record is only sent from a slot once it can have a batch.
            Place::Slot(_) => slot.fail(SendError::not_written(Error::new(
                "sending",
                crate::error::ErrorKind::Full("the producer's memory"),
            ))),
        }
    }

    pub(crate) fn failed(error: SendError) -> Sending {
        Sending { timestamp: -1, place: Place::Failed(error) }
    }
}

impl Future for Sending {
    type Output = Result<Delivery, SendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let placed = match &self.place {
                Place::Batch(completion, index) => return completion.poll(*index, self.timestamp, cx),
                Place::Failed(error) => return Poll::Ready(Err(error.clone())),
                Place::Slot(slot) => match &mut *slot.state() {
                    SlotState::Waiting(waker) => {
                        *waker = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                    SlotState::Placed(completion, index) => Place::Batch(Arc::clone(completion), *index),
                    SlotState::Failed(error) => Place::Failed(error.clone()),
                },
            };
            self.place = placed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn poll(sending: &mut Sending) -> Poll<Result<Delivery, SendError>> {
        Pin::new(sending).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn records_removed_before_the_batch_was_sent_shift_the_offsets_of_later_ones() {
        let completion = Completion::new("t".into(), 3);
        let mut sends: Vec<Sending> =
            (0..4).map(|index| Sending::batch(Arc::clone(&completion), index, 7)).collect();
        assert!(sends.iter_mut().all(|send| poll(send).is_pending()));
        let late = || Error::new("sending", ErrorKind::Timeout);
        completion.end_early(1, SendError::not_written(late()), true);
        assert!(matches!(poll(&mut sends[1]), Poll::Ready(Err(_))));
        completion.end_early(3, SendError { error: late(), outcome: SendOutcome::Unknown }, false);
        completion.finish(BatchEnd::Written { base: 100, append_time: None });
        completion.finish(BatchEnd::Failed(SendError::not_written(late())));
        let offsets: Vec<Option<i64>> = sends
            .iter_mut()
            .map(|send| match poll(send) {
                Poll::Ready(Ok(delivery)) => Some(delivery.offset),
                Poll::Ready(Err(error)) => {
                    assert_eq!(error.outcome, SendOutcome::NotWritten);
                    None
                }
                Poll::Pending => panic!("the batch has ended"),
            })
            .collect();
        assert_eq!(offsets, [Some(100), None, Some(101), Some(102)]);
    }

    #[test]
    fn a_record_without_a_place_follows_its_batch_once_it_has_one() {
        let slot = Arc::new(Slot::default());
        let mut send = Sending::slot(Arc::clone(&slot), 7);
        assert!(poll(&mut send).is_pending());
        let completion = Completion::new("t".into(), 0);
        slot.place(Arc::clone(&completion), 2);
        assert!(poll(&mut send).is_pending());
        completion.finish(BatchEnd::Written { base: 40, append_time: Some(9) });
        let expected = Delivery { topic: "t".into(), partition: 0, offset: 42, timestamp: 9 };
        assert!(matches!(poll(&mut send), Poll::Ready(Ok(delivery)) if delivery == expected));
    }
}
