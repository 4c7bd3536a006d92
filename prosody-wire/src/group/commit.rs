//! Which offsets are committed when, and what does each failure mean for the caller?
//!
//! One OffsetCommit is in flight; what arrives meanwhile is merged into the next, the newest offset of a partition
//! winning. So an older offset is never sent after a newer one, also not when it is retried. A request whose connection
//! broke may still be carried out after the newer one of the next connection, and nothing takes it back: such requests
//! are counted, for the caller to commit again. Whether a partition is still ours is asked when the order arrives *and*
//! when it is sent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prosody_base::{Clock, Instant, sabotaged};
use tokio::sync::{mpsc, oneshot};

use super::calls::Identity;
pub use super::codec::CommitOffset;
use super::event::AssignmentEpoch;
use super::remedy::Remedy;
use crate::error::{DecodeError, Error, ErrorKind};
use crate::proto::ErrorCode;
use crate::types::TopicPartition;

/// Commits waiting to be looked at by the driver; one more waits in its caller.
pub(crate) const COMMIT_QUEUE: usize = 256;
/// Commits merged into one request at most; more wait for the next.
const MERGED: usize = 4_096;

/// Why offsets were not committed.
#[derive(Clone, Debug)]
pub enum CommitError {
    /// These partitions are not ours, or were lost and given back since the epoch of the commit. Refused without asking
    /// the broker; the other partitions of the same commit, if any, are committed.
    NotOwned(Vec<TopicPartition>),
    /// The metadata text of these partitions is longer than the broker accepts. The others are committed; the same
    /// offsets with a shorter text will be.
    MetadataTooLarge(Vec<TopicPartition>),
    /// The coordinator no longer counts us a member: what we held is lost, and the member joins again.
    Fenced(Error),
    /// The deadline came first; the error is the last thing that went wrong. The offsets may be committed.
    TimedOut(Error),
    /// The broker refuses, and would again: not allowed, for example.
    Refused(Error),
    /// The member has left.
    Closed,
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |partitions: &[TopicPartition]| {
            let names: Vec<String> = partitions.iter().take(8).map(ToString::to_string).collect();
            format!("{}{}", names.join(", "), if partitions.len() > 8 { ", …" } else { "" })
        };
        match self {
            CommitError::NotOwned(partitions) => {
                write!(f, "not committed, because not assigned to this member any more: {}", list(partitions))
            }
            CommitError::MetadataTooLarge(partitions) => write!(
                f,
                "not committed, because the broker finds the metadata too long: {}",
                list(partitions)
            ),
            CommitError::Fenced(why) => {
                write!(f, "not committed, because the group went on without this member: {why}")
            }
            CommitError::TimedOut(why) => write!(f, "perhaps not committed in time: {why}"),
            CommitError::Refused(why) => write!(f, "not committed: {why}"),
            CommitError::Closed => f.write_str("not committed, because this member has left the group"),
        }
    }
}

impl std::error::Error for CommitError {}

/// Commits offsets of one group member. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Committer {
    pub(crate) orders: mpsc::Sender<Order>,
    pub(crate) clock: Clock,
    pub(crate) timeout: Duration,
    pub(crate) unanswered: Arc<AtomicU64>,
}

impl Committer {
    /// Commits `offsets`, which belong to assignments up to `epoch`: the epoch of the [`Assigned`] event that brought
    /// the partition, or a later one the caller has acted on. Partitions that are being revoked can be committed until
    /// their acknowledgement. Retries what a retry helps, up to
    /// [`GroupConfig::commit_timeout`](super::GroupConfig::commit_timeout).
    ///
    /// # Errors
    /// See [`CommitError`]. Dropping the future does not undo the commit.
    ///
    /// [`Assigned`]: super::GroupEvent::Assigned
    pub async fn commit(
        &self,
        epoch: AssignmentEpoch,
        offsets: Vec<CommitOffset>,
    ) -> Result<(), CommitError> {
        if offsets.is_empty() {
            return Ok(());
        }
        let (reply, heard) = oneshot::channel();
        let timeout = if sabotaged("commit-deadline") { self.timeout * 2 } else { self.timeout };
        let deadline = self.clock.now() + timeout;
        let order = Order {
            epoch,
            offsets,
            not_owned: Vec::new(),
            too_large: Vec::new(),
            deadline,
            last: None,
            reply: Some(reply),
        };
        let full = || Error::new("committing offsets", ErrorKind::Full("the queue of commits"));
        match self.clock.until(deadline, self.orders.send(order)).await {
            Ok(Ok(())) => heard.await.unwrap_or(Err(CommitError::Closed)),
            Ok(Err(_)) => Err(CommitError::Closed),
            Err(_) => Err(CommitError::TimedOut(full())),
        }
    }

    /// Requests so far that may have reached the coordinator and were not answered. It may carry each of them out at any
    /// time, after newer ones too that came by another connection, until the member's generation or epoch is another:
    /// what this member committed since may then be older than [`Committer::commit`] said.
    #[must_use]
    pub fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }
}

/// One call of [`Committer::commit`].
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) epoch: AssignmentEpoch,
    /// What is still to be committed.
    pub(crate) offsets: Vec<CommitOffset>,
    pub(crate) not_owned: Vec<TopicPartition>,
    pub(crate) too_large: Vec<TopicPartition>,
    pub(crate) deadline: Instant,
    pub(crate) last: Option<Error>,
    /// `None` once the caller has its answer.
    pub(crate) reply: Option<oneshot::Sender<Result<(), CommitError>>>,
}

impl Order {
    fn end(mut self) {
        let result = if !self.not_owned.is_empty() {
            Err(CommitError::NotOwned(std::mem::take(&mut self.not_owned)))
        } else if !self.too_large.is_empty() {
            Err(CommitError::MetadataTooLarge(std::mem::take(&mut self.too_large)))
        } else {
            Ok(())
        };
        self.answer(result);
    }

    fn answer(&mut self, result: Result<(), CommitError>) {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(result);
        }
    }

    fn drop_unowned(&mut self, owned_since: &impl Fn(&TopicPartition) -> Option<AssignmentEpoch>) {
        let (epoch, not_owned) = (self.epoch, &mut self.not_owned);
        self.offsets.retain(|one| {
            let owned =
                sabotaged("group-commit-epoch") || owned_since(&one.tp).is_some_and(|since| since <= epoch);
            if !owned {
                not_owned.push(one.tp.clone());
            }
            owned
        });
    }
}

/// Orders of one member, in the order of their calls.
#[derive(Debug)]
pub(crate) struct CommitQueue {
    waiting: Vec<Order>,
    in_flight: Option<(Identity, Vec<Order>)>,
    retry_at: Option<Instant>,
    failures: u32,
    /// See [`Committer::unanswered`].
    unanswered: Arc<AtomicU64>,
}

impl CommitQueue {
    pub(crate) fn new(unanswered: Arc<AtomicU64>) -> CommitQueue {
        CommitQueue { waiting: Vec::new(), in_flight: None, retry_at: None, failures: 0, unanswered }
    }

    /// Whether another order may be added.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < MERGED
    }

    /// Whether every caller has its answer.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_none()
    }

    /// Takes an order, without the partitions that are not owned in its epoch.
    pub(crate) fn add(
        &mut self,
        mut order: Order,
        owned_since: impl Fn(&TopicPartition) -> Option<AssignmentEpoch>,
    ) {
        order.drop_unowned(&owned_since);
        if order.offsets.is_empty() {
            order.end();
        } else {
            self.waiting.push(order);
        }
    }

    /// Answers callers whose time is up. Their offsets may still be in flight.
    pub(crate) fn expire(&mut self, now: Instant) {
        for order in self.waiting.iter_mut().chain(self.in_flight.iter_mut().flat_map(|(_, orders)| orders)) {
            if order.deadline <= now {
                let none = || Error::new("committing offsets", ErrorKind::Timeout);
                let last = order.last.clone().unwrap_or_else(none);
                order.answer(Err(CommitError::TimedOut(last)));
            }
        }
        self.waiting.retain(|order| order.reply.is_some());
        if self.is_idle() {
            // What comes next did not fail yet.
            (self.retry_at, self.failures) = (None, 0);
        }
    }

    /// When [`CommitQueue::expire`] or [`CommitQueue::next`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let in_flight = self.in_flight.iter().flat_map(|(_, orders)| orders);
        let open = self.waiting.iter().chain(in_flight).filter(|order| order.reply.is_some());
        let retry = self.retry_at.filter(|_| self.in_flight.is_none() && !self.waiting.is_empty());
        open.map(|order| order.deadline).chain(retry).min()
    }

    /// What to send now, as whom: everything that waits, merged.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        sender: Option<Identity>,
        owned_since: impl Fn(&TopicPartition) -> Option<AssignmentEpoch>,
    ) -> Option<(Identity, Vec<CommitOffset>)> {
        if self.in_flight.is_some() || self.waiting.is_empty() {
            return None;
        }
        for mut order in std::mem::take(&mut self.waiting) {
            order.drop_unowned(&owned_since);
            if order.offsets.is_empty() {
                order.end();
            } else {
                self.waiting.push(order);
            }
        }
        self.retry_at = self.retry_at.filter(|at| *at > now);
        if self.waiting.is_empty() || self.retry_at.is_some() {
            return None;
        }
        // Without one the commits wait for whatever brings one, not for a time.
        let sender = sender?;
        let orders = std::mem::take(&mut self.waiting);
        let offsets = orders.iter().flat_map(|order| &order.offsets);
        let merged: BTreeMap<&TopicPartition, &CommitOffset> = offsets.map(|one| (&one.tp, one)).collect();
        let merged = merged.into_values().cloned().collect();
        self.in_flight = Some((sender.clone(), orders));
        Some((sender, merged))
    }

    /// The answer to what [`CommitQueue::next`] gave. `is_over` tells the member of each error and says whether the
    /// sender's membership ended with it; `backoff` gives the wait after so many failures.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        result: Result<BTreeMap<TopicPartition, ErrorCode>, Error>,
        doing: &str,
        mut is_over: impl FnMut(&Error, &Identity) -> bool,
        backoff: impl Fn(u32) -> Duration,
    ) {
        let Some((sender, orders)) = self.in_flight.take() else { return };
        let mut verdicts: BTreeMap<ErrorCode, (Error, bool)> = BTreeMap::new();
        let mut whole = None;
        let codes = match result {
            Ok(codes) => codes,
            Err(why) => {
                if why.maybe_sent() {
                    self.unanswered.fetch_add(1, Ordering::Relaxed);
                }
                let over = is_over(&why, &sender);
                whole = Some((why, over));
                BTreeMap::new()
            }
        };
        let mut again = Vec::new();
        for mut order in orders {
            let mut retry = Vec::new();
            let mut ended = None;
            for one in std::mem::take(&mut order.offsets) {
                let (why, over) = match (&whole, codes.get(&one.tp)) {
                    (Some(whole), _) => whole.clone(),
                    (None, Some(&ErrorCode::NONE)) => continue,
                    (None, Some(&ErrorCode::OFFSET_METADATA_TOO_LARGE)) => {
                        order.too_large.push(one.tp);
                        continue;
                    }
                    (None, Some(code)) => verdicts
                        .entry(*code)
                        .or_insert_with(|| {
                            let why = Error::broker(format!("{doing} ({})", one.tp), *code);
                            let over = is_over(&why, &sender);
                            (why, over)
                        })
                        .clone(),
                    (None, None) => {
                        let missing = format!("the answer leaves {} out", one.tp);
                        (Error::decode(doing, DecodeError::Body(missing)), false)
                    }
                };
                match Remedy::of(&why) {
                    Remedy::Report => ended = Some(CommitError::Refused(why)),
                    Remedy::Join if sabotaged("commit-overlap") => ended = Some(CommitError::Refused(why)),
                    _ if over => ended = Some(CommitError::Fenced(why)),
                    _ => {
                        order.last = Some(why);
                        retry.push(one);
                    }
                }
            }
            if let Some(ended) = ended {
                order.answer(Err(ended));
            }
            if retry.is_empty() {
                order.end();
            } else if order.reply.is_some() {
                order.offsets = retry;
                again.push(order);
            }
        }
        if again.is_empty() {
            self.failures = 0;
        } else {
            self.failures = self.failures.saturating_add(1);
            self.retry_at = Some(now + backoff(self.failures));
            again.append(&mut self.waiting);
            self.waiting = again;
        }
    }

    /// Answers everybody: the member is over.
    pub(crate) fn close(&mut self) {
        let in_flight = self.in_flight.take().into_iter().flat_map(|(_, orders)| orders);
        for mut order in self.waiting.drain(..).chain(in_flight) {
            order.answer(Err(CommitError::Closed));
        }
    }
}
