//! What is a batch once it has its bytes? It ends as a whole, or goes on as two because the broker takes no batch that large.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::completion::{BatchEnd, Completion};
use super::queue::{Deadlines, PartitionQueue};
use super::sequencer::{BatchId, Sequence};
use crate::batch::{
    BatchBuilder, BatchLimits, Batches, BufferPool, Compression, Compressor, Decompressor, ProducerStamp,
};
use crate::error::{Error, ErrorKind};

/// However large the batches are that a broker refuses, those of several records are not made smaller than this.
const SMALLEST: usize = 1 << 10;

/// A batch that has a sequence and no final answer.
#[derive(Debug)]
pub(crate) struct SealedBatch {
    pub(crate) id: BatchId,
    pub(crate) bytes: Bytes,
    /// What its bytes are stamped with.
    pub(crate) sequence: Option<Sequence>,
    /// Records that were ever in it, those given up before it was sent included.
    pub(crate) indices: Range<u32>,
    /// Other records of its completion are in another batch.
    pub(crate) is_part: bool,
    pub(crate) completion: Arc<Completion>,
    pub(crate) deadlines: Deadlines,
    pub(crate) charge: usize,
}

impl SealedBatch {
    pub(crate) fn finish(&self, end: BatchEnd) {
        if self.is_part {
            self.completion.finish_part(self.indices.clone(), end);
        } else {
            self.completion.finish(end);
        }
    }
}

impl PartitionQueue {
    /// The broker refused a batch because it is too large (KIP-126): its records go on in two, the second one called `rest`,
    /// and later batches are smaller. `false` when it cannot be split: it is one record, or its fate is open.
    ///
    /// # Errors
    /// When the batch this producer wrote cannot be written again. Then it has not been split.
    pub(crate) fn split(
        &mut self,
        id: BatchId,
        rest: BatchId,
        pool: &BufferPool,
        (compression, compressor): (Compression, &mut Compressor),
    ) -> Result<bool, Error> {
        let Some(middle) = self.sequencer.divisible(id).map(|records| records / 2) else { return Ok(false) };
        let Some(at) = self.sealed.iter().position(|batch| batch.id == id) else { return Ok(false) };
        let Some(batch) = self.sealed.get(at) else { return Ok(false) };
        let mut half = |keep: &dyn Fn(u32) -> bool| {
            let mut half = rewrite(batch.bytes.clone(), pool, keep)?;
            let size = half.size();
            let bytes = half.seal(compression, compressor, ProducerStamp::default());
            Ok::<_, Error>((bytes.map_err(|why| broken(&why))?.unwrap_or_default(), size))
        };
        let (first, size) = half(&|index| index < middle)?;
        let (second, _) = half(&|index| index >= middle)?;
        if !self.sequencer.split(id, middle, rest) {
            return Ok(false);
        }
        self.largest = self.largest.min(size.max(SMALLEST));
        let Some(batch) = self.sealed.get_mut(at) else { return Ok(false) };
        let end = batch.completion.behind(batch.indices.clone(), middle);
        let other = SealedBatch {
            id: rest,
            bytes: second,
            sequence: None,
            indices: end..batch.indices.end,
            is_part: true,
            completion: Arc::clone(&batch.completion),
            deadlines: batch.deadlines.split_off(end),
            charge: batch.charge / 2,
        };
        batch.charge -= other.charge;
        (batch.bytes, batch.sequence, batch.is_part) = (first, None, true);
        batch.indices.end = end;
        self.sealed.insert(at + 1, other);
        Ok(true)
    }
}

/// The bytes of a batch that is not sealed yet.
///
/// # Errors
/// None that anything but a defect explains.
pub(crate) fn plain(builder: &mut BatchBuilder, pool: &BufferPool) -> Result<Bytes, Error> {
    let mut all = std::mem::replace(builder, BatchBuilder::new(pool.clone(), 0));
    let bytes = all.seal(Compression::None, &mut Compressor::new(), ProducerStamp::default());
    Ok(bytes.map_err(|why| broken(&why))?.unwrap_or_default())
}

/// The chosen records of a batch that this producer wrote.
///
/// # Errors
/// When it cannot be read back, which is a defect of it.
pub(crate) fn rewrite(
    bytes: Bytes,
    pool: &BufferPool,
    keep: impl Fn(u32) -> bool,
) -> Result<BatchBuilder, Error> {
    let mut fresh = BatchBuilder::new(pool.clone(), bytes.len());
    let limits = BatchLimits { headers_per_record: u32::MAX, decompressed_bytes: usize::MAX };
    let mut decompressor = Decompressor::new(pool.clone());
    let mut index = 0;
    for raw in Batches::new(bytes, limits) {
        let batch = raw.and_then(|raw| raw.open(&mut decompressor)).map_err(|why| broken(&why))?;
        for record in batch.records() {
            let record = record.map_err(|why| broken(&why))?;
            if keep(index) {
                let headers = record.headers().map(|header| (header.key, header.value));
                fresh
                    .append(record.timestamp(), record.key(), record.value(), headers)
                    .map_err(|why| broken(&why))?;
            }
            index += 1;
        }
    }
    Ok(fresh)
}

fn broken(why: &dyn std::fmt::Display) -> Error {
    Error::new("writing a batch again", ErrorKind::Encode(why.to_string()))
}
