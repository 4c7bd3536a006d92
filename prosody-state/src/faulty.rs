//! How does a store fail in a test? Around any store; no product path goes through it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prosody_base::Clock;

use crate::error::{Category, StoreError};
use crate::event_id::EventId;
use crate::key_batch::KeyBatch;
use crate::key_image::{DeferredMessage, KeyImage, Writer};
use crate::key_store::{Committed, KeyStore, StoreFuture};
use crate::segment::{SegmentFacts, SegmentId, SegmentRow};
use crate::slab::{SlabPosition, SlabRow};

/// A statement that is about to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The method of [`KeyStore`].
    pub name: &'static str,
    /// How many came before it.
    pub number: u64,
}

/// What becomes of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It runs.
    None,
    /// It does not run, and an error says so.
    Fail,
    /// It does not run, and an error says that it never will.
    Refuse,
    /// It runs, but no answer comes in time.
    ApplyThenTimeOut,
    /// It waits before it runs.
    Delay(Duration),
    /// It runs, and its answer waits.
    ApplyThenDelay(Duration),
    /// It does not run, and no answer ever comes: for tests that drop what waits, as a crash does.
    Hang,
    /// It runs, and no answer ever comes.
    ApplyThenHang,
}

/// Decides the fault of each statement.
pub type Hook = Arc<dyn Fn(Statement) -> Fault + Send + Sync>;

/// A store whose statements fail as a hook says.
#[derive(Clone)]
pub struct Faulty {
    store: Arc<dyn KeyStore>,
    clock: Clock,
    hook: Hook,
    number: Arc<AtomicU64>,
}

impl Faulty {
    /// `store`, with faults.
    #[must_use]
    pub fn new(store: Arc<dyn KeyStore>, clock: Clock, hook: Hook) -> Faulty {
        Faulty { store, clock, hook, number: Arc::default() }
    }

    fn run<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        statement: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let number = self.number.fetch_add(1, Ordering::Relaxed);
            match (self.hook)(Statement { name, number }) {
                Fault::None => statement.await,
                Fault::Fail => {
                    Err(StoreError::new(Category::Transient, format!("{name} failed: the test said so")))
                }
                Fault::Refuse => {
                    Err(StoreError::new(Category::Permanent, format!("{name} is refused: the test said so")))
                }
                Fault::ApplyThenTimeOut => {
                    statement.await?;
                    Err(StoreError::timed_out(format!("{name} had no answer: the test said so")))
                }
                Fault::Delay(time) => {
                    self.clock.sleep(time).await;
                    statement.await
                }
                Fault::ApplyThenDelay(time) => {
                    let answer = statement.await;
                    self.clock.sleep(time).await;
                    answer
                }
                Fault::Hang => std::future::pending().await,
                Fault::ApplyThenHang => {
                    let _ = statement.await;
                    std::future::pending().await
                }
            }
        })
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("statements", &self.number).finish_non_exhaustive()
    }
}

impl KeyStore for Faulty {
    fn acquire(&self, segment: SegmentId, facts: SegmentFacts) -> StoreFuture<'_, SegmentRow> {
        self.run("acquire", self.store.acquire(segment, facts))
    }

    fn load<'a>(&'a self, segment: SegmentId, key: &'a [u8]) -> StoreFuture<'a, KeyImage> {
        self.run("load", self.store.load(segment, key))
    }

    fn deferred_messages<'a>(
        &'a self,
        segment: SegmentId,
        key: &'a [u8],
        from: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(u64, DeferredMessage)>> {
        self.run("deferred_messages", self.store.deferred_messages(segment, key, from, limit))
    }

    fn commit<'a>(
        &'a self,
        segment: SegmentId,
        key: &'a [u8],
        expected: u64,
        writer: Writer,
        batch: &'a KeyBatch,
    ) -> StoreFuture<'a, Committed> {
        self.run("commit", self.store.commit(segment, key, expected, writer, batch))
    }

    fn slab_put<'a>(&'a self, segment: SegmentId, rows: &'a [SlabRow]) -> StoreFuture<'a, ()> {
        self.run("slab_put", self.store.slab_put(segment, rows))
    }

    fn slab_load<'a>(
        &'a self,
        segment: SegmentId,
        after: &'a SlabPosition,
        until: u32,
        limit: usize,
    ) -> StoreFuture<'a, Vec<SlabRow>> {
        self.run("slab_load", self.store.slab_load(segment, after, until, limit))
    }

    fn slab_delete<'a>(&'a self, segment: SegmentId, rows: &'a [SlabPosition]) -> StoreFuture<'a, ()> {
        self.run("slab_delete", self.store.slab_delete(segment, rows))
    }

    fn slab_trim(&self, segment: SegmentId, watermark: u32) -> StoreFuture<'_, ()> {
        self.run("slab_trim", self.store.slab_trim(segment, watermark))
    }

    fn seen<'a>(&'a self, ids: &'a [EventId]) -> StoreFuture<'a, Vec<bool>> {
        self.run("seen", self.store.seen(ids))
    }

    fn remember<'a>(&'a self, ids: &'a [EventId], ttl: Duration) -> StoreFuture<'a, ()> {
        self.run("remember", self.store.remember(ids, ttl))
    }
}
