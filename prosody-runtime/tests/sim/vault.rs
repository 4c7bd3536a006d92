//! The store of runs in which events are set aside; all members share it: it outlives them, fails by the plan's luck while the storm lasts, and tells the history
//! which records it keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prosody_base::{Clock, Rng};
use prosody_state::{
    Committed, DeferredMessage, EventId, Fault, Faulty, Hook, KeyBatch, KeyImage, KeyStore, MemoryStore,
    SegmentFacts, SegmentId, SegmentRow, SlabPosition, SlabRow, StoreFuture, Writer,
};
use prosody_testkit::check::History;
use prosody_testkit::sim::PARTITIONS;

use crate::member::{GROUP, TOPIC};
use crate::timers::CLUSTER;

/// Share of statements that fail in some way during the storm, in a thousand.
const FAILING: u64 = 15;

/// See [`Vault::open`].
pub(crate) struct Vault {
    pub(crate) store: Arc<dyn KeyStore>,
    storm: Arc<AtomicBool>,
}

impl Vault {
    pub(crate) fn open(history: Arc<History>, clock: &Clock, rng: Rng) -> Vault {
        let segments = (0..PARTITIONS).map(|at| SegmentId::new(CLUSTER, GROUP, TOPIC, at)).collect();
        let told = Told { store: MemoryStore::new(clock.clone()), segments, history };
        let storm = Arc::new(AtomicBool::new(true));
        let lasts = Arc::clone(&storm);
        let hook: Hook = Arc::new(move |_| {
            if !lasts.load(Ordering::Relaxed) || rng.below(1_000) >= FAILING {
                return Fault::None;
            }
            let time = Duration::from_millis(rng.below(400));
            match rng.below(4) {
                0 => Fault::Fail,
                1 => Fault::ApplyThenTimeOut,
                2 => Fault::Delay(time),
                _ => Fault::ApplyThenDelay(time),
            }
        });
        Vault { store: Arc::new(Faulty::new(Arc::new(told), clock.clone(), hook)), storm }
    }

    /// Nothing fails from here on.
    pub(crate) fn heal(&self) {
        self.storm.store(false, Ordering::Relaxed);
    }
}

struct Told {
    store: MemoryStore,
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
