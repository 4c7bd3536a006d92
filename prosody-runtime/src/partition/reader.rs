//! Who brings a partition's records in? One task: it waits for a batch, prepares its records while there is room for
//! them, and hands them over in chunks, so that the partition's lock is held for moves only.

use std::sync::Arc;
use std::time::Duration;

use prosody_base::Clock;
use prosody_wire::batch::Batch;
use prosody_wire::fetch::{FetchItem, PartitionReader};
use tracing::{error, warn};

use super::record::Record;
use super::runtime::Partition;
use crate::pipeline::{Pipeline, admit};

/// Wait after a failure of the fetcher that it does not retry by itself.
const PAUSE: Duration = Duration::from_secs(5);
/// Records prepared without letting other tasks of the thread run.
const STRIDE: usize = 256;

/// Reads until it is dropped.
pub(crate) async fn read(
    partition: Arc<Partition>,
    mut reader: PartitionReader,
    pipeline: Arc<Pipeline>,
    clock: Clock,
) {
    let mut chunk = Vec::with_capacity(STRIDE);
    loop {
        match reader.next().await {
            FetchItem::Batch(batch) => take(&partition, &batch, &pipeline, &mut chunk).await,
            FetchItem::Reset { from, to, why } => {
                warn!(partition = %partition.tp(), from, to, "reading goes on at another offset: {why}");
                partition.reset(to, -1);
            }
            FetchItem::Failed(why) => {
                error!(partition = %partition.tp(), "a partition cannot be read: {why}");
                clock.sleep(PAUSE).await;
            }
        }
    }
}

async fn take(partition: &Arc<Partition>, batch: &Batch, pipeline: &Pipeline, chunk: &mut Vec<Record>) {
    let leader_epoch = batch.header().leader_epoch;
    let (data, mut records) = (batch.data(), batch.records());
    loop {
        let room = partition.room().await;
        let mut position = None;
        for _ in 0..room {
            match records.next() {
                Some(Ok(view)) => {
                    position = Some(view.offset().saturating_add(1));
                    chunk.extend(admit(pipeline, &view, data, leader_epoch));
                }
                Some(Err(why)) => {
                    // The checksum was right, so the producer wrote it like this; nobody can ever read what follows.
                    error!(partition = %partition.tp(), "the rest of a batch cannot be read and is skipped: {why}");
                    pipeline.counters.poison.one();
                    position = None;
                    break;
                }
                None => {
                    position = None;
                    break;
                }
            }
        }
        // The batch's own end: compacted records at its tail have no successor to be seen from.
        let at = position.unwrap_or_else(|| batch.header().last_offset.saturating_add(1));
        let dropped = partition.push(chunk, at, leader_epoch);
        pipeline.counters.rewound.add(dropped.seen as u64);
        pipeline.counters.skipped_finished.add(dropped.finished as u64);
        if position.is_none() {
            return;
        }
    }
}
