//! What does the reader of one partition hold? It checks and expands batches when they are asked for, on the caller's
//! thread, and leaves out what a reader must not see.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

use prosody_base::sabotaged;

use super::Fetcher;
use super::aborted::AbortedRecords;
use super::buffer::{Charge, Fetched, Part, PartCharge, Queued, ReaderId, Shared};
use crate::batch::{
    Batch, BatchError, BatchErrorKind, BatchLimits, Batches, ControlKind, Decompressor, RawBatch,
};
use crate::error::{DecodeError, Error, ErrorKind};
use crate::types::{IsolationLevel, Offset, TopicPartition};

/// What a partition brings.
#[derive(Debug)]
pub enum FetchItem {
    /// Records, or none: control batches, aborted transactions and what compaction removed arrive as batches without
    /// records, because they cover offsets too. Reading goes on at its last offset + 1.
    Batch(Batch),
    /// The position changed by itself: records were skipped or will be read again.
    Reset {
        /// The offset that would have been next.
        from: Offset,
        /// The offset that is next now.
        to: Offset,
        /// What happened, as the end of a sentence.
        why: &'static str,
    },
    /// The partition cannot be read: records are damaged, permission is missing. It is tried again after
    /// [`Limits::backoff_max`](crate::Limits::backoff_max), so the same error may come again.
    Failed(Error),
}

/// Reads one partition in offset order. Dropping it stops fetching at once.
#[derive(Debug)]
pub struct PartitionReader {
    /// Keeps the driver running.
    _fetcher: Fetcher,
    shared: Arc<Shared>,
    id: ReaderId,
    tp: TopicPartition,
    held: Arc<AtomicUsize>,
    limits: BatchLimits,
    decompressor: Decompressor,
    current: Option<Current>,
    /// The next offset, once something was read.
    position: Option<Offset>,
}

/// A response being read.
#[derive(Debug)]
struct Current {
    batches: Batches,
    from: Offset,
    aborted: AbortedRecords,
}

impl Drop for PartitionReader {
    fn drop(&mut self) {
        self.shared.close(self.id);
    }
}

impl PartitionReader {
    pub(super) fn new(
        fetcher: Fetcher,
        shared: Arc<Shared>,
        id: ReaderId,
        tp: TopicPartition,
        held: Arc<AtomicUsize>,
        decompressor: Decompressor,
    ) -> PartitionReader {
        let limits = shared.cluster.limits();
        let limits = BatchLimits {
            decompressed_bytes: limits.batch_bytes,
            headers_per_record: u32::try_from(limits.headers).unwrap_or(u32::MAX),
        };
        PartitionReader {
            _fetcher: fetcher,
            shared,
            id,
            tp,
            held,
            limits,
            decompressor,
            current: None,
            position: None,
        }
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> &TopicPartition {
        &self.tp
    }

    /// The offset behind the last record that exists, as the last response said; `None` before the first.
    #[must_use]
    pub fn high_watermark(&self) -> Option<Offset> {
        self.shared.state().parts.get(&self.id).and_then(|part| part.high_watermark)
    }

    /// Bytes of this partition that are held now: buffered (at their expected size) and in the hands of the reader.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.shared.state().parts.get(&self.id).map_or(0, Part::bytes)
    }

    /// Waits for the next item. Cancel safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> FetchItem {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next item if one is here already.
    pub fn try_next(&mut self) -> Option<FetchItem> {
        match self.poll_next(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(item) => Some(item),
            Poll::Pending => None,
        }
    }

    /// [`PartitionReader::next`] for those who poll by hand.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<FetchItem> {
        loop {
            while let Some(current) = &mut self.current {
                match current.batches.next() {
                    Some(Ok(raw)) => {
                        if let Some(item) = self.batch(raw) {
                            return Poll::Ready(item);
                        }
                    }
                    Some(Err(error)) => return Poll::Ready(self.failed(&error)),
                    None => self.current = None,
                }
            }
            match self.take(cx) {
                Poll::Ready(Queued::Records(fetched)) => self.begin(fetched),
                Poll::Ready(Queued::Moved(moved)) => {
                    self.position = Some(moved.to);
                    return Poll::Ready(FetchItem::Reset { from: moved.from, to: moved.to, why: moved.why });
                }
                Poll::Ready(Queued::Failed(error)) => return Poll::Ready(FetchItem::Failed(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn take(&self, cx: &mut Context<'_>) -> Poll<Queued> {
        let mut state = self.shared.state();
        let count = state.parts.len();
        let Some(part) = state.parts.get_mut(&self.id) else {
            let doing = format!("reading {}", self.tp);
            let why = ErrorKind::Closed("the partition was opened again, or the fetcher is gone");
            return Poll::Ready(Queued::Failed(Error::new(doing, why)));
        };
        let Some(item) = part.queue.pop_front() else {
            match &mut part.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => {
                    part.waker = Some(cx.waker().clone());
                    // Now that it waits it may hold more.
                    if part.full {
                        self.shared.ring();
                    }
                }
            }
            return Poll::Pending;
        };
        if let Queued::Records(fetched) = &item {
            part.queued = part.queued.saturating_sub(fetched.records.len());
            self.shared.taken(part, self.shared.share(count));
        }
        Poll::Ready(item)
    }

    fn begin(&mut self, fetched: Fetched) {
        self.current = Some(Current {
            batches: Batches::new(fetched.records, self.limits),
            from: self.position.map_or(fetched.from, |position| position.max(fetched.from)),
            aborted: AbortedRecords::new(fetched.aborted),
        });
    }

    /// What one batch means to a reader; `None` when it lies below the position.
    fn batch(&mut self, raw: RawBatch) -> Option<FetchItem> {
        let current = self.current.as_mut()?;
        let (from, header) = (current.from, *raw.header());
        if header.last_offset < from && header.magic == 2 {
            return None;
        }
        let skipped =
            self.shared.config.isolation == IsolationLevel::ReadCommitted && current.aborted.holds(&header);
        let opened = if header.is_control {
            let opened = raw.clone().open(&mut self.decompressor);
            if let Ok(Some(ControlKind::Abort)) = opened.as_ref().map(Batch::control_kind) {
                current.aborted.ended(header.producer_id);
            }
            opened.map(|_| raw.into_gap())
        } else if skipped {
            Ok(raw.into_gap())
        } else {
            let compressed = raw.compressed_len();
            raw.open(&mut self.decompressor).map(|batch| self.count(batch, compressed))
        };
        let mut batch = match opened {
            Ok(batch) => batch,
            Err(error) => return Some(self.failed(&error)),
        };
        if batch.last_offset() < from {
            return None;
        }
        if !sabotaged("fetch-skip-below") {
            batch.skip_below(from);
        }
        self.position = Some(batch.last_offset().saturating_add(1));
        if let Some(current) = &mut self.current {
            current.from = batch.last_offset().saturating_add(1);
        }
        Some(FetchItem::Batch(batch))
    }

    /// Counts a batch until its last slice is dropped.
    fn count(&self, batch: Batch, compressed: usize) -> Batch {
        let bytes = batch.backing_len();
        let (half, is_view) = {
            let mut state = self.shared.state();
            let half = self.shared.share(state.parts.len()) / 2;
            if let Some(part) = state.parts.get_mut(&self.id)
                && compressed > 0
            {
                let percent = bytes.saturating_mul(100) / compressed;
                part.percent = (part.percent.saturating_mul(7) + percent.clamp(100, 10_000)) / 8;
            }
            (half, batch.is_view())
        };
        let part = PartCharge { held: Arc::clone(&self.held), bytes, half };
        // A view keeps its response alive, and that is counted already.
        let charge = Charge::new(&self.shared.budget, if is_view { 0 } else { bytes }, Some(part));
        batch.guarded(charge)
    }

    /// Damaged records: what is buffered is dropped and fetched again, later.
    fn failed(&mut self, error: &BatchError) -> FetchItem {
        let from = self.current.take().map(|current| current.from);
        let cluster = &self.shared.cluster;
        if let Some(from) = self.position.or(from)
            && let Some(part) = self.shared.state().parts.get_mut(&self.id)
        {
            part.clear();
            part.cursor.rewind(from);
            part.retry_at = Some(cluster.doors().clock.now() + cluster.limits().backoff_max);
        }
        if matches!(error.kind, BatchErrorKind::Crc { .. }) {
            cluster.refresh_soon("a fetched batch is damaged");
        }
        self.shared.ring();
        let doing = format!("reading {} at offset {}", self.tp, error.base_offset);
        FetchItem::Failed(Error::decode(doing, DecodeError::Records(error.to_string())))
    }
}
