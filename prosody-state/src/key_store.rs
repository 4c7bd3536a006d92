//! What must a store be able to do? The one trait between the runtime and what outlives it.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::error::StoreError;
use crate::event_id::EventId;
use crate::key_batch::KeyBatch;
use crate::key_image::{DeferredMessage, KeyImage, Writer};
use crate::segment::{SegmentFacts, SegmentId, SegmentRow};
use crate::slab::{SlabPosition, SlabRow};

/// Longest key that can have a record.
pub const MAX_KEY_BYTES: usize = 32 * 1_024;

/// What a statement gives, later.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// What became of a conditional batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// All of it is there: [`KeyImage::apply`] gives the image.
    Applied,
    /// Nothing of it is there: another batch came first, and this is what it left.
    Lost(KeyImage),
}

/// Where key records, their timers' index and remembered event ids are.
///
/// A dropped future may have done its work, or do it later. Every statement may be repeated.
pub trait KeyStore: Send + Sync + 'static {
    /// Reads a segment's row, or creates it. Called when a partition is assigned, before its first event.
    fn acquire(&self, segment: SegmentId, facts: SegmentFacts) -> StoreFuture<'_, SegmentRow>;

    /// A key's record; the default image when there is none.
    fn load<'a>(&'a self, segment: SegmentId, key: &'a [u8]) -> StoreFuture<'a, KeyImage>;

    /// Deferred messages of a key with their numbers, ascending from `from` on, at most `limit`.
    fn deferred_messages<'a>(
        &'a self,
        segment: SegmentId,
        key: &'a [u8],
        from: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(u64, DeferredMessage)>>;

    /// Applies a batch if the record's version is `expected`, all of it or nothing. The first one of a segment marks it.
    fn commit<'a>(
        &'a self,
        segment: SegmentId,
        key: &'a [u8],
        expected: u64,
        writer: Writer,
        batch: &'a KeyBatch,
    ) -> StoreFuture<'a, Committed>;

    /// Puts rows into the timers' index.
    fn slab_put<'a>(&'a self, segment: SegmentId, rows: &'a [SlabRow]) -> StoreFuture<'a, ()>;

    /// Rows behind `after` up to the end of slab `until`, in order, at most `limit`. Fewer mean that there are no more.
    fn slab_load<'a>(
        &'a self,
        segment: SegmentId,
        after: &'a SlabPosition,
        until: u32,
        limit: usize,
    ) -> StoreFuture<'a, Vec<SlabRow>>;

    /// Deletes rows, whether they are there or not.
    fn slab_delete<'a>(&'a self, segment: SegmentId, rows: &'a [SlabPosition]) -> StoreFuture<'a, ()>;

    /// Deletes every slab before `watermark` and remembers that nothing is there. A lower one than before changes nothing.
    fn slab_trim(&self, segment: SegmentId, watermark: u32) -> StoreFuture<'_, ()>;

    /// Which of these events are remembered.
    fn seen<'a>(&'a self, ids: &'a [EventId]) -> StoreFuture<'a, Vec<bool>>;

    /// Remembers events for `ttl`.
    fn remember<'a>(&'a self, ids: &'a [EventId], ttl: Duration) -> StoreFuture<'a, ()>;
}

/// What is known of a batch whose answer never came, by what a read at the store's serial level found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It is there.
    Applied,
    /// It is not there, and may be sent again under the same version.
    SendAgain,
    /// Another writer was there.
    Conflict,
}

/// Judges a batch of `writer` that expected version `expected` and whose answer never came.
#[must_use]
pub fn resolve(expected: u64, writer: Writer, found: &KeyImage) -> Resolution {
    if found.version == expected {
        Resolution::SendAgain
    } else if found.version == expected + 1 && found.writer == writer {
        Resolution::Applied
    } else {
        Resolution::Conflict
    }
}
