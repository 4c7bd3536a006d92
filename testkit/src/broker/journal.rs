//! What was asked of the cluster, and what was done with it? A bounded list of requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use prosody_base::Instant;

use super::ApiKey;
use super::topics::lock;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is being served: a long poll, a join, a delay. Stays so when the broker is stopped meanwhile.
    Pending,
    /// It was served and answered.
    Answered,
    /// It was served and wants no answer (acks = 0).
    NoAnswer,
    /// Its version is not served; answered in the oldest format, or the connection was closed.
    UnsupportedVersion,
    /// It could not be decoded; the connection was closed.
    Undecodable,
    /// A rule answered with an error, wholly or for some partitions.
    Refused,
    /// A rule closed the connection before it had any effect.
    CutBefore,
    /// A rule closed the connection, or kept silent, after it had its effect.
    CutAfter,
    /// A rule swallowed it: no effect, no answer.
    Hung,
    /// A rule spoiled the bytes of the answer; the request had its effect.
    Spoiled,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Rises by one per request of the cluster.
    pub sequence: u64,
    /// When it was read.
    pub at: Instant,
    /// The broker it reached.
    pub broker: i32,
    /// The connection it came on, unique within the cluster.
    pub connection: u64,
    /// The client's name for itself.
    pub client_id: Arc<str>,
    /// The API.
    pub api: ApiKey,
    /// Its version.
    pub version: i16,
    /// Correlation id.
    pub correlation: i32,
    /// What became of it.
    pub outcome: Outcome,
    /// The first error code of the answer, 0 without one.
    pub error: i16,
    /// The rule that took it over, if any.
    pub rule: Option<u64>,
    /// Whether a rule changed the answer, its time, or cut the connection.
    pub changed: bool,
}

/// The newest requests of a cluster.
#[derive(Debug)]
pub(crate) struct Journal {
    inner: Mutex<Inner>,
    bound: usize,
}

#[derive(Debug, Default)]
struct Inner {
    entries: VecDeque<Entry>,
    next: u64,
    refusals: VecDeque<String>,
}

/// Refusals that are kept.
const REFUSALS: usize = 256;

impl Journal {
    pub(crate) fn new(bound: usize) -> Journal {
        Journal { inner: Mutex::default(), bound: bound.max(1) }
    }

    /// Adds an entry and returns its sequence.
    pub(crate) fn open(&self, mut entry: Entry) -> u64 {
        let mut inner = lock(&self.inner);
        entry.sequence = inner.next;
        inner.next += 1;
        if inner.entries.len() >= self.bound {
            inner.entries.pop_front();
        }
        inner.entries.push_back(entry);
        inner.next - 1
    }

    /// Changes an entry that may have left the journal since.
    pub(crate) fn update(&self, sequence: u64, change: impl FnOnce(&mut Entry)) {
        let mut inner = lock(&self.inner);
        let first = inner.entries.front().map_or(0, |entry| entry.sequence);
        let at = sequence.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        if let Some(entry) = at.and_then(|at| inner.entries.get_mut(at)) {
            change(entry);
        }
    }

    /// Notes why a connection is closed.
    pub(crate) fn refuse(&self, why: String) {
        let mut inner = lock(&self.inner);
        if inner.refusals.len() >= REFUSALS {
            inner.refusals.pop_front();
        }
        inner.refusals.push_back(why);
    }

    pub(crate) fn refusals(&self) -> Vec<String> {
        lock(&self.inner).refusals.iter().cloned().collect()
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        lock(&self.inner).entries.iter().cloned().collect()
    }

    pub(crate) fn clear(&self) {
        lock(&self.inner).entries.clear();
    }

    /// Requests since the cluster started, kept or not.
    pub(crate) fn total(&self) -> u64 {
        lock(&self.inner).next
    }
}
