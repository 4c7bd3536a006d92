//! What was fetched and not read yet, and how much memory that is. The part the driver and the readers share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;
use prosody_base::{Instant, sabotaged};
use tokio::sync::Notify;

use super::FetchConfig;
use super::cursor::{Cursor, Moved, StartAt};
use super::plan::{FIRST_WINDOW, Held, expanded, is_full, share};
use super::wire::Aborted;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::types::{BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition};

/// Sizes of decompressed batches relative to compressed ones before anything was seen, in percent.
pub(crate) const FIRST_GUESS: usize = 200;

/// Names one opening of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReaderId(pub(crate) u64);

/// The records of one partition out of one response.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// When it came.
    pub(crate) at: Instant,
    pub(crate) from: Offset,
    pub(crate) records: Bytes,
    pub(crate) aborted: Vec<Aborted>,
}

#[derive(Debug)]
pub(crate) enum Queued {
    Records(Fetched),
    Moved(Moved),
    Failed(Error),
}

/// One open partition.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) tp: TopicPartition,
    pub(crate) cursor: Cursor,
    pub(crate) topic_id: Option<TopicId>,
    pub(crate) leader: Option<BrokerId>,
    pub(crate) leader_epoch: LeaderEpoch,
    /// The follower to read from, and until when (KIP-392).
    pub(crate) replica: Option<(BrokerId, Instant)>,
    /// No follower is read from before this.
    pub(crate) leader_alone_until: Option<Instant>,
    /// Since when it has none; the log was told of it once that lasts.
    pub(crate) leaderless: Option<Instant>,
    pub(crate) leaderless_told: bool,
    pub(crate) queue: VecDeque<Queued>,
    /// Compressed bytes in the queue.
    pub(crate) queued: usize,
    pub(crate) waker: Option<Waker>,
    pub(crate) held: Arc<AtomicUsize>,
    /// Size of its decompressed batches in percent of the compressed ones, lately.
    pub(crate) percent: usize,
    pub(crate) full: bool,
    /// Bytes it may hold, as of the last look.
    pub(crate) limit: usize,
    /// A request that is on its way asks for it.
    pub(crate) asked: bool,
    /// Where it begins is being looked up.
    pub(crate) resolving: bool,
    /// It was asked for beside the running long poll, and had nothing.
    pub(crate) looked: bool,
    pub(crate) retry_at: Option<Instant>,
    pub(crate) failures: u32,
    pub(crate) high_watermark: Option<Offset>,
    /// Where what can be read ends, as the last answer said: what an open transaction keeps back is not there yet.
    pub(crate) readable_end: Offset,
    /// Grows when a batch does not fit.
    pub(crate) max_bytes: usize,
    pub(crate) opened: Option<Instant>,
}

impl Part {
    /// What it holds at its expected size.
    pub(crate) fn bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed).saturating_add(expanded(self.queued, self.percent))
    }

    /// Its reader waits for the next records.
    pub(crate) fn waits(&self) -> bool {
        self.waker.is_some() && self.queue.is_empty()
    }

    /// Its next records are at the broker.
    pub(crate) fn is_behind(&self) -> bool {
        self.cursor.position().is_some_and(|position| position < self.readable_end)
    }

    /// Hands something to the reader.
    pub(crate) fn push(&mut self, item: Queued) {
        if let Queued::Records(fetched) = &item {
            self.queued += fetched.records.len();
        }
        self.queue.push_back(item);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Forgets what was fetched and not read.
    pub(crate) fn clear(&mut self) {
        self.queue.retain(|item| !matches!(item, Queued::Records(_)));
        self.queued = 0;
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) parts: BTreeMap<ReaderId, Part>,
    next: u64,
}

/// What the driver and the readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    pub(crate) config: FetchConfig,
    state: Mutex<State>,
    /// How much of the budget is in use, see `plan::wanted`.
    window: AtomicUsize,
    pub(crate) budget: Arc<Budget>,
}

impl Shared {
    pub(crate) fn new(cluster: Cluster, config: FetchConfig) -> Shared {
        let window = AtomicUsize::new(config.buffer_bytes.min(FIRST_WINDOW));
        Shared { cluster, config, state: Mutex::default(), window, budget: Arc::default() }
    }

    /// Bytes, decompressed, that may be held now.
    pub(crate) fn window(&self) -> usize {
        self.window.load(Ordering::Relaxed)
    }

    pub(crate) fn set_window(&self, bytes: usize) {
        let least = self.config.buffer_bytes.min(FIRST_WINDOW);
        self.window.store(bytes.clamp(least, self.config.buffer_bytes), Ordering::Relaxed);
    }

    /// The share of each of `parts`.
    pub(crate) fn share(&self, parts: usize) -> usize {
        share(self.window(), parts, self.config.max_partition_bytes)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ring(&self) {
        self.budget.wake.notify_one();
    }

    /// Opens a partition. Another reader of it ends.
    pub(crate) fn open(&self, tp: TopicPartition, start: StartAt) -> (ReaderId, Arc<AtomicUsize>) {
        let mut held = Arc::new(AtomicUsize::new(0));
        let id = {
            let mut state = self.state();
            state.next += 1;
            let id = ReaderId(state.next);
            let replaced: Vec<ReaderId> =
                state.parts.iter().filter(|(_, part)| part.tp == tp).map(|(id, _)| *id).collect();
            for old in replaced.iter().filter_map(|old| state.parts.remove(old)) {
                if sabotaged("pause-ends") {
                    held = old.held;
                }
                if let Some(waker) = old.waker {
                    waker.wake();
                }
            }
            let part = Part {
                tp,
                cursor: Cursor::new(start),
                topic_id: None,
                leader: None,
                leader_epoch: -1,
                replica: None,
                leader_alone_until: None,
                leaderless: None,
                leaderless_told: false,
                queue: VecDeque::new(),
                queued: 0,
                waker: None,
                held: Arc::clone(&held),
                percent: FIRST_GUESS,
                full: false,
                limit: 0,
                asked: false,
                resolving: false,
                looked: false,
                retry_at: None,
                failures: 0,
                high_watermark: None,
                readable_end: 0,
                max_bytes: self.config.max_partition_bytes,
                opened: None,
            };
            state.parts.insert(id, part);
            id
        };
        self.ring();
        (id, held)
    }

    /// Stops fetching a partition at once.
    pub(crate) fn close(&self, id: ReaderId) {
        let closed = self.state().parts.remove(&id);
        drop(closed);
        self.ring();
    }

    /// Whether the driver should look again, now that a reader took something.
    pub(crate) fn taken(&self, part: &Part, share: usize) {
        if part.full && !is_full(Held { bytes: part.bytes(), full: true }, share) {
            self.ring();
        }
    }
}

/// Memory held by everything fetched, until its last slice is dropped.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    held: AtomicUsize,
    pub(crate) wake: Notify,
    /// The driver waits for memory.
    pub(crate) starved: std::sync::atomic::AtomicBool,
}

impl Budget {
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// A part of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    /// Bytes of the budget.
    bytes: usize,
    part: Option<PartCharge>,
}

/// A part of one partition's share.
#[derive(Debug)]
pub(crate) struct PartCharge {
    pub(crate) held: Arc<AtomicUsize>,
    pub(crate) bytes: usize,
    /// Holding no more than this, the partition is fetched again.
    pub(crate) half: usize,
}

impl Charge {
    pub(crate) fn new(budget: &Arc<Budget>, bytes: usize, part: Option<PartCharge>) -> Charge {
        budget.held.fetch_add(bytes, Ordering::Relaxed);
        if let Some(part) = &part {
            part.held.fetch_add(part.bytes, Ordering::Relaxed);
        }
        Charge { budget: Arc::clone(budget), bytes, part }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
        let halved = self.part.as_ref().is_some_and(|part| {
            let before = part.held.fetch_sub(part.bytes, Ordering::Relaxed);
            before > part.half && before.saturating_sub(part.bytes) <= part.half
        });
        if halved || self.budget.starved.load(Ordering::Relaxed) {
            self.budget.wake.notify_one();
        }
    }
}

/// A response that counts against the budget until its last slice is dropped.
pub(crate) struct Counted {
    pub(crate) body: Bytes,
    pub(crate) _charge: Charge,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}
