//! The store of tests and of mock mode: everything in this process, every answer at once, the same order every time.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prosody_base::{Clock, sabotaged};

use crate::error::{Category, StoreError};
use crate::event_id::EventId;
use crate::key_batch::KeyBatch;
use crate::key_image::{DeferredMessage, KeyImage, Writer};
use crate::key_store::{Committed, KeyStore, MAX_KEY_BYTES, StoreFuture};
use crate::remembered::Remembered;
use crate::segment::{SegmentFacts, SegmentId, SegmentRow};
use crate::slab::{SlabPosition, SlabRow};

/// Most bytes of keys and trace contexts that records and rows hold together.
const MAX_BYTES: usize = 1 << 30;

/// A store that lasts as long as its process. Share it to play a restart.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
    tables: Mutex<Tables>,
    remembered: Remembered,
}

#[derive(Debug, Default)]
struct Tables {
    segments: BTreeMap<SegmentId, Segment>,
    /// Roughly what the rows of the index and the keys of records take.
    bytes: usize,
}

#[derive(Debug)]
struct Segment {
    row: SegmentRow,
    partition: i32,
    /// Offsets of the deferred messages of all its keys, and how many name each.
    deferred: BTreeMap<i64, usize>,
    keys: BTreeMap<Vec<u8>, Record>,
    slabs: BTreeMap<SlabPosition, SlabRow>,
}

#[derive(Debug, Default)]
struct Record {
    image: KeyImage,
    messages: BTreeMap<u64, DeferredMessage>,
}

impl MemoryStore {
    /// An empty store. The clock ends what is remembered for a time.
    #[must_use]
    pub fn new(clock: Clock) -> MemoryStore {
        MemoryStore { clock, tables: Mutex::default(), remembered: Remembered::default() }
    }

    /// Records that hold anything, rows of the timers' index and remembered events.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize, usize) {
        let tables = self.lock();
        let keys = tables.segments.values().map(|segment| segment.keys.len()).sum();
        let rows = tables.segments.values().map(|segment| segment.slabs.len()).sum();
        (keys, rows, self.remembered.len())
    }

    /// Timers of all kinds that are pending, over all records.
    #[must_use]
    pub fn pending(&self) -> usize {
        let tables = self.lock();
        let records = tables.segments.values().flat_map(|segment| segment.keys.values());
        records.map(|record| record.image.timers.len() + record.image.deferred_timers.len()).sum()
    }

    /// Whether any deferred message has one of these offsets of a topic's partition: its record is only in the log.
    #[must_use]
    pub fn wants(&self, topic: &[u8; 16], partition: i32, offsets: RangeInclusive<i64>) -> bool {
        let tables = self.lock();
        let mut segments = tables.segments.values();
        segments.any(|segment| {
            (segment.row.topic, segment.partition) == (*topic, partition)
                && segment.deferred.range(offsets.clone()).next().is_some()
        })
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a statement at once; its future is ready when it is polled first.
    fn now<'a, T: Send>(
        &'a self,
        statement: impl FnOnce(&mut Tables) -> Result<T, StoreError> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        // Not before it is polled: a statement that nobody waits for does not happen.
        Box::pin(async move { statement(&mut self.lock()) })
    }
}

impl Tables {
    /// The segment, as its owner acquired it.
    fn segment(&mut self, id: SegmentId) -> Result<&mut Segment, StoreError> {
        self.segments.get_mut(&id).ok_or_else(|| {
            StoreError::new(Category::Terminal, format!("segment {id} is used before it was acquired"))
        })
    }

    /// Counts bytes in, unless there is no room for them.
    fn take(&mut self, bytes: usize) -> Result<(), StoreError> {
        if self.bytes.saturating_add(bytes) > MAX_BYTES {
            let text = format!("the memory store is full: it holds {} of {MAX_BYTES} bytes", self.bytes);
            return Err(StoreError::new(Category::Transient, text));
        }
        self.bytes += bytes;
        Ok(())
    }
}

fn check(key: &[u8]) -> Result<(), StoreError> {
    if key.len() <= MAX_KEY_BYTES {
        return Ok(());
    }
    let text = format!("a key of {} bytes has no record: the limit is {MAX_KEY_BYTES}", key.len());
    Err(StoreError::new(Category::Permanent, text))
}

fn size(row: &SlabRow) -> usize {
    size_of::<SlabRow>() * 2 + row.at.key.len() + row.trace.len()
}

impl KeyStore for MemoryStore {
    fn acquire(&self, segment: SegmentId, facts: SegmentFacts) -> StoreFuture<'_, SegmentRow> {
        self.now(move |tables| {
            let slab_seconds = facts.slab_seconds.max(1);
            let known = tables.segments.entry(segment).or_insert_with(|| Segment {
                row: SegmentRow {
                    marked: false,
                    topic: facts.topic,
                    partitions: facts.partitions,
                    committed: facts.committed,
                    incarnation: 0,
                    slab_seconds,
                    watermark: facts.now.slab(slab_seconds),
                },
                partition: facts.partition,
                deferred: BTreeMap::new(),
                keys: BTreeMap::new(),
                slabs: BTreeMap::new(),
            });
            let acquired = known.row.acquired(&facts);
            Ok(std::mem::replace(&mut known.row, acquired))
        })
    }

    fn load<'a>(&'a self, segment: SegmentId, key: &'a [u8]) -> StoreFuture<'a, KeyImage> {
        self.now(move |tables| {
            check(key)?;
            Ok(tables.segment(segment)?.keys.get(key).map(|record| record.image.clone()).unwrap_or_default())
        })
    }

    fn deferred_messages<'a>(
        &'a self,
        segment: SegmentId,
        key: &'a [u8],
        from: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(u64, DeferredMessage)>> {
        self.now(move |tables| {
            let record = tables.segment(segment)?.keys.get(key);
            let entries = record.into_iter().flat_map(|record| record.messages.range(from..));
            Ok(entries.take(limit).map(|(number, entry)| (*number, *entry)).collect())
        })
    }

    fn commit<'a>(
        &'a self,
        segment: SegmentId,
        key: &'a [u8],
        expected: u64,
        writer: Writer,
        batch: &'a KeyBatch,
    ) -> StoreFuture<'a, Committed> {
        self.now(move |tables| {
            check(key)?;
            if expected == 0 && !tables.segment(segment)?.keys.contains_key(key) {
                tables.take(key.len() + size_of::<Record>())?;
            }
            let owner = tables.segment(segment)?;
            let known = owner.keys.get_mut(key);
            let version = known.as_ref().map_or(0, |record| record.image.version);
            if version != expected && !sabotaged("state-version") {
                return Ok(Committed::Lost(known.map(|record| record.image.clone()).unwrap_or_default()));
            }
            owner.row.marked = true;
            let record = match known {
                Some(record) => record,
                None => owner.keys.entry(key.to_vec()).or_default(),
            };
            for number in &batch.remove_messages {
                if let Some(entry) = record.messages.remove(number) {
                    let left = owner.deferred.entry(entry.offset).or_default();
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        owner.deferred.remove(&entry.offset);
                    }
                }
            }
            for (number, entry) in (record.image.messages.tail..).zip(&batch.append_messages) {
                record.messages.insert(number, *entry);
                *owner.deferred.entry(entry.offset).or_default() += 1;
            }
            record.image.apply(batch, writer);
            Ok(Committed::Applied)
        })
    }

    fn slab_put<'a>(&'a self, segment: SegmentId, rows: &'a [SlabRow]) -> StoreFuture<'a, ()> {
        self.now(move |tables| {
            tables.segment(segment)?;
            for row in rows {
                tables.take(size(row))?;
                if let Some(old) = tables.segment(segment)?.slabs.insert(row.at.clone(), row.clone()) {
                    tables.bytes = tables.bytes.saturating_sub(size(&old));
                }
            }
            Ok(())
        })
    }

    fn slab_load<'a>(
        &'a self,
        segment: SegmentId,
        after: &'a SlabPosition,
        until: u32,
        limit: usize,
    ) -> StoreFuture<'a, Vec<SlabRow>> {
        self.now(move |tables| {
            let rows =
                tables.segment(segment)?.slabs.range((Bound::Excluded(after.clone()), Bound::Unbounded));
            let rows = rows.map(|(_, row)| row).take_while(|row| row.at.slab <= until);
            Ok(rows.take(limit).cloned().collect())
        })
    }

    fn slab_delete<'a>(&'a self, segment: SegmentId, rows: &'a [SlabPosition]) -> StoreFuture<'a, ()> {
        self.now(move |tables| {
            for at in rows {
                if let Some(row) = tables.segment(segment)?.slabs.remove(at) {
                    tables.bytes = tables.bytes.saturating_sub(size(&row));
                }
            }
            Ok(())
        })
    }

    fn slab_trim(&self, segment: SegmentId, watermark: u32) -> StoreFuture<'_, ()> {
        self.now(move |tables| {
            let owner = tables.segment(segment)?;
            owner.row.watermark = owner.row.watermark.max(watermark);
            let kept = owner.slabs.split_off(&SlabPosition::start_of(owner.row.watermark));
            let trimmed: usize = std::mem::replace(&mut owner.slabs, kept).values().map(size).sum();
            tables.bytes = tables.bytes.saturating_sub(trimmed);
            Ok(())
        })
    }

    fn seen<'a>(&'a self, ids: &'a [EventId]) -> StoreFuture<'a, Vec<bool>> {
        Box::pin(async move {
            let now = self.clock.now();
            Ok(ids.iter().map(|id| self.remembered.contains(*id, now)).collect())
        })
    }

    fn remember<'a>(&'a self, ids: &'a [EventId], ttl: Duration) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let until = self.clock.now() + ttl;
            ids.iter().for_each(|id| self.remembered.insert(*id, until));
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;
    use std::sync::Arc;

    fn store() -> Arc<dyn KeyStore> {
        Arc::new(MemoryStore::new(Clock::simulated()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_forgotten_after_its_time_and_a_second_time_prolongs_it() {
        let clock = Clock::simulated();
        let store = MemoryStore::new(clock.clone());
        let ids = [EventId(1), EventId(2)];
        let minute = Duration::from_secs(60);
        store.remember(&ids, minute).await.unwrap();
        clock.sleep(minute / 2).await;
        store.remember(&ids[1..], minute).await.unwrap();
        assert_eq!(store.seen(&ids).await.unwrap(), [true, true]);
        clock.sleep(minute / 2).await;
        assert_eq!(store.seen(&ids).await.unwrap(), [false, true]);
        assert_eq!(store.sizes(), (0, 0, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn any_statements_do_what_a_naive_model_does() {
        suite::any_statements(store(), 2_000).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_crash_at_any_statement_changes_nothing_about_the_end() {
        suite::crash_anywhere(store(), &Clock::simulated()).await;
    }

    /// Elsewhere: the old owner of a partition wrote state, because a slow handler had survived the loss of it. Here every
    /// interleaving of both is played.
    #[tokio::test(start_paused = true)]
    async fn of_two_owners_only_the_later_one_writes() {
        suite::two_owners(store()).await;
    }
}
