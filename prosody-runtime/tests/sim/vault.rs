//! The store of a run. All members share it like the brokers; it outlives them, fails while the storm lasts, and tells
//! the history which records it keeps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prosody_base::{Clock, Instant, Rng};
use prosody_state::{
    Committed, DeferredMessage, EventId, Fault, Faulty, Hook, KeyBatch, KeyImage, KeyStore, MemoryStore,
    SegmentFacts, SegmentId, SegmentRow, SlabPosition, SlabRow, StoreFuture, Writer,
};
use prosody_testkit::check::History;
use prosody_testkit::sim::{PARTITIONS, StoreFault};

use crate::scene::{GROUP, TOPIC};

/// The cluster's id, which is part of a segment's name.
const CLUSTER: &str = "prosody-testkit";
/// Share of statements that fail in some way outside of the planned faults, in a thousand.
const FAILING: u64 = 15;
/// Longest a statement waits then, in milliseconds.
const SLOW: u64 = 400;
/// Longest a statement waits that a planned fault holds up, in milliseconds.
const SLOWER: u64 = 3_000;

/// A time in which the store fails.
struct Window {
    kind: &'static str,
    how: StoreFault,
    until: Instant,
    hits: u64,
}

pub(crate) struct Vault {
    pub(crate) store: Arc<dyn KeyStore>,
    memory: Arc<MemoryStore>,
    storm: Arc<AtomicBool>,
    windows: Arc<Mutex<Vec<Window>>>,
}

impl Vault {
    pub(crate) fn open(history: Arc<History>, clock: &Clock, rng: Rng, quiet: bool) -> Vault {
        let segments = (0..PARTITIONS).map(segment).collect();
        let memory = Arc::new(MemoryStore::new(clock.clone()));
        let told = Told { store: Arc::clone(&memory), segments, history };
        let storm = Arc::new(AtomicBool::new(!quiet));
        let windows = Arc::new(Mutex::new(Vec::new()));
        let hook: Hook = {
            let (lasts, windows, clock) = (Arc::clone(&storm), Arc::clone(&windows), clock.clone());
            Arc::new(move |_| planned(&windows, &clock, &rng).unwrap_or_else(|| unplanned(&lasts, &rng)))
        };
        Vault { store: Arc::new(Faulty::new(Arc::new(told), clock.clone(), hook)), memory, storm, windows }
    }

    /// The store fails from now on until then.
    pub(crate) fn fail(&self, kind: &'static str, how: StoreFault, until: Instant) {
        let window = Window { kind, how, until, hits: 0 };
        self.windows.lock().unwrap_or_else(PoisonError::into_inner).push(window);
    }

    /// Nothing fails from here on.
    pub(crate) fn heal(&self) {
        self.storm.store(false, Ordering::Relaxed);
    }

    /// The planned faults that a statement felt.
    pub(crate) fn struck(&self) -> Vec<&'static str> {
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.iter().filter(|window| window.hits > 0).map(|window| window.kind).collect()
    }

    /// Timers that have not fired, those of deferred messages among them.
    pub(crate) fn pending(&self) -> usize {
        self.memory.pending()
    }

    /// A key's record, as it is. A partition that nobody ever owned has none.
    pub(crate) async fn record(&self, partition: i32, key: &str) -> Option<KeyImage> {
        self.memory.load(segment(partition), key.as_bytes()).await.ok()
    }
}

fn segment(partition: i32) -> SegmentId {
    SegmentId::new(CLUSTER, GROUP, TOPIC, partition)
}

/// What becomes of a statement now, by the plan; `None`: nothing is planned.
fn planned(windows: &Mutex<Vec<Window>>, clock: &Clock, rng: &Rng) -> Option<Fault> {
    let now = clock.now();
    let mut windows = windows.lock().unwrap_or_else(PoisonError::into_inner);
    let window = windows.iter_mut().find(|window| now < window.until)?;
    if rng.below(2) == 0 {
        return Some(Fault::None);
    }
    window.hits += 1;
    let wait = Duration::from_millis(rng.below(SLOWER));
    Some(match window.how {
        StoreFault::Fail => Fault::Fail,
        StoreFault::LoseAnswer => Fault::ApplyThenTimeOut,
        StoreFault::Delay => Fault::Delay(wait),
        StoreFault::DelayAnswer => Fault::ApplyThenDelay(wait),
        StoreFault::Hang => Fault::Hang,
        StoreFault::HangAfter => Fault::ApplyThenHang,
    })
}

/// Some fail at any time.
fn unplanned(storm: &AtomicBool, rng: &Rng) -> Fault {
    if !storm.load(Ordering::Relaxed) || rng.below(1_000) >= FAILING {
        return Fault::None;
    }
    let time = Duration::from_millis(rng.below(SLOW));
    match rng.below(4) {
        0 => Fault::Fail,
        1 => Fault::ApplyThenTimeOut,
        2 => Fault::Delay(time),
        _ => Fault::ApplyThenDelay(time),
    }
}

struct Told {
    store: Arc<MemoryStore>,
    /// By partition.
    segments: Vec<SegmentId>,
    history: Arc<History>,
}

impl KeyStore for Told {
    fn commit<'a>(
        &'a self,
        segment: SegmentId,
        key: &'a [u8],
        expected: u64,
        writer: Writer,
        batch: &'a KeyBatch,
    ) -> StoreFuture<'a, Committed> {
        Box::pin(async move {
            let committed = self.store.commit(segment, key, expected, writer, batch).await?;
            let name = String::from_utf8_lossy(key);
            tracing::debug!(%segment, %name, expected, ?writer, ?batch, ?committed, "writes");
            if matches!(committed, Committed::Applied)
                && let Some(partition) = self.segments.iter().position(|known| *known == segment)
            {
                for entry in &batch.append_messages {
                    self.history.stored((i32::try_from(partition).expect("few"), entry.offset));
                }
            }
            Ok(committed)
        })
    }

    fn acquire(&self, segment: SegmentId, facts: SegmentFacts) -> StoreFuture<'_, SegmentRow> {
        self.store.acquire(segment, facts)
    }

    fn load<'a>(&'a self, segment: SegmentId, key: &'a [u8]) -> StoreFuture<'a, KeyImage> {
        self.store.load(segment, key)
    }

    fn deferred_messages<'a>(
        &'a self,
        segment: SegmentId,
        key: &'a [u8],
        from: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(u64, DeferredMessage)>> {
        self.store.deferred_messages(segment, key, from, limit)
    }

    fn slab_put<'a>(&'a self, segment: SegmentId, rows: &'a [SlabRow]) -> StoreFuture<'a, ()> {
        self.store.slab_put(segment, rows)
    }

    fn slab_load<'a>(
        &'a self,
        segment: SegmentId,
        after: &'a SlabPosition,
        until: u32,
        limit: usize,
    ) -> StoreFuture<'a, Vec<SlabRow>> {
        self.store.slab_load(segment, after, until, limit)
    }

    fn slab_delete<'a>(&'a self, segment: SegmentId, rows: &'a [SlabPosition]) -> StoreFuture<'a, ()> {
        self.store.slab_delete(segment, rows)
    }

    fn slab_trim(&self, segment: SegmentId, watermark: u32) -> StoreFuture<'_, ()> {
        self.store.slab_trim(segment, watermark)
    }

    fn seen<'a>(&'a self, ids: &'a [EventId]) -> StoreFuture<'a, Vec<bool>> {
        self.store.seen(ids)
    }

    fn remember<'a>(&'a self, ids: &'a [EventId], ttl: Duration) -> StoreFuture<'a, ()> {
        self.store.remember(ids, ttl)
    }
}
