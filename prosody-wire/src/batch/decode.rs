//! Where does the next batch begin, and may it be believed?

use super::header::{self, BatchHeader, CRC_START, HEADER_BYTES, PREFIX_BYTES};
use super::iter::{Layout, Records, Rules};
use super::record::ControlKind;
use super::varint::Cursor;
use super::{BatchError, BatchErrorKind, BatchLimits, Compression, Decompressor, legacy};
use bytes::Bytes;

/// The fewest bytes a v2 record takes: one for each of its seven fields.
const SMALLEST_RECORD: usize = 7;

/// The batches of one partition's `records` field, in order.
///
/// A broker cuts its answer at a byte limit, so the last batch may be incomplete: it ends the iteration quietly, and
/// [`Batches::truncated`] says how much of it there was. An error ends the iteration too.
#[derive(Clone, Debug)]
pub struct Batches {
    rest: Bytes,
    limits: BatchLimits,
    done: bool,
}

impl Batches {
    /// Nothing is read or copied yet.
    #[must_use]
    pub fn new(records: Bytes, limits: BatchLimits) -> Batches {
        Batches { rest: records, limits, done: false }
    }

    /// Once the iteration has ended: bytes of a batch that was cut off. When there was no complete batch before it, the
    /// fetch limit was smaller than the batch.
    #[must_use]
    pub fn truncated(&self) -> usize {
        self.rest.len()
    }

    fn read(&mut self) -> Option<Result<RawBatch, BatchError>> {
        let mut cursor = Cursor::new(&self.rest);
        let base_offset = cursor.i64()?;
        let length = cursor.i32()?;
        let failed = |kind| Some(Err(BatchError { base_offset, kind }));
        if length < legacy::SMALLEST_V0 {
            return failed(BatchErrorKind::Length { length });
        }
        let total = PREFIX_BYTES.saturating_add(usize::try_from(length).ok()?);
        if total > self.rest.len() {
            return None;
        }
        // Leader epoch, or the CRC of an older format.
        let (leader_epoch, magic) = (cursor.i32()?, cursor.i8()?);
        let smallest = match magic {
            0 => legacy::SMALLEST_V0,
            1 => legacy::SMALLEST_V1,
            2 => (HEADER_BYTES - PREFIX_BYTES) as i32,
            other => return failed(BatchErrorKind::Magic(other)),
        };
        if length < smallest {
            return failed(BatchErrorKind::Length { length });
        }
        let entry = self.rest.split_to(total);
        let raw = match magic {
            2 => RawBatch::v2(entry, base_offset, leader_epoch, self.limits),
            _ => RawBatch::legacy(entry, magic, leader_epoch as u32, self.limits),
        };
        Some(raw.map_err(|kind| BatchError { base_offset, kind }))
    }
}

impl Iterator for Batches {
    type Item = Result<RawBatch, BatchError>;

    fn next(&mut self) -> Option<Result<RawBatch, BatchError>> {
        if self.done {
            return None;
        }
        let next = self.read();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

impl std::iter::FusedIterator for Batches {}

/// A batch with a checked header and checksum whose records are still as they came: perhaps compressed.
///
/// Batches a reader does not need (below its position, aborted, control) are dropped at this point at no further cost.
#[derive(Clone, Debug)]
pub struct RawBatch {
    header: BatchHeader,
    body: Bytes,
    limits: BatchLimits,
}

impl RawBatch {
    fn v2(
        mut entry: Bytes,
        base_offset: i64,
        leader_epoch: i32,
        limits: BatchLimits,
    ) -> Result<RawBatch, BatchErrorKind> {
        let covered = entry.get(CRC_START..).unwrap_or_default();
        let mut cursor = Cursor::new(entry.get(CRC_START - 4..).unwrap_or_default());
        let stored = cursor.u32().unwrap_or_default();
        let computed = crc32c::crc32c(covered);
        if computed != stored {
            return Err(BatchErrorKind::Crc { computed, stored });
        }
        let header = BatchHeader::read_v2(base_offset, leader_epoch, &mut cursor)?;
        let body = entry.split_off(HEADER_BYTES);
        Ok(RawBatch { header, body, limits })
    }

    fn legacy(entry: Bytes, magic: i8, stored: u32, limits: BatchLimits) -> Result<RawBatch, BatchErrorKind> {
        // The bytes that are the leader epoch of a v2 batch are the CRC-32 of an older message.
        let mut crc = flate2::Crc::new();
        crc.update(entry.get(legacy::CRC_START..).unwrap_or_default());
        if crc.sum() != stored {
            return Err(BatchErrorKind::Crc { computed: crc.sum(), stored });
        }
        let (header, wrapped) = legacy::read_outer(&entry, magic)?;
        let body = match wrapped {
            Some(value) => entry.slice_ref(value),
            None => entry,
        };
        Ok(RawBatch { header, body, limits })
    }

    /// What the header says.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Bytes of the records section as received.
    #[must_use]
    pub fn compressed_len(&self) -> usize {
        self.body.len()
    }

    /// Expands the records, once, into memory of the decompressor's pool; an uncompressed batch stays where it is.
    ///
    /// # Errors
    /// When the data does not expand within the limit or cannot hold as many records as the header claims.
    pub fn open(self, decompressor: &mut Decompressor) -> Result<Batch, BatchError> {
        let base_offset = self.header.base_offset;
        self.open_inner(decompressor).map_err(|kind| BatchError { base_offset, kind })
    }

    fn open_inner(self, decompressor: &mut Decompressor) -> Result<Batch, BatchErrorKind> {
        let RawBatch { mut header, body, limits } = self;
        let codec = header.compression;
        let (data, backing_len) = match codec {
            Compression::None => {
                let len = body.len();
                (body, len)
            }
            _ => decompressor
                .expand(codec, &body, limits.decompressed_bytes)
                .map_err(|why| BatchErrorKind::Decompress { codec, why })?,
        };
        let layout = match header.magic {
            2 => {
                if header.record_count as usize > data.len() / SMALLEST_RECORD {
                    let (count, bytes) = (header.record_count, data.len());
                    return Err(BatchErrorKind::RecordsForBytes { count, bytes });
                }
                Layout::V2(Rules {
                    base_timestamp: header.log_append_time().unwrap_or(header.base_timestamp),
                    timestamp_mask: if header.log_append_time().is_some() { 0 } else { -1 },
                    // The header was read from an `i32` delta, so the difference is one.
                    last_offset_delta: (header.last_offset - header.base_offset) as i32,
                    headers_per_record: limits.headers_per_record,
                })
            }
            magic if codec == Compression::None => {
                let log_append_time = header.log_append_time();
                Layout::Legacy(legacy::Shift { offset: 0, magic, log_append_time })
            }
            _ => Layout::Legacy(legacy::open_wrapper(&mut header, &data)?),
        };
        let is_view = codec == Compression::None;
        Ok(Batch { header, data, layout, backing_len, is_view, from: i64::MIN })
    }

    /// The batch without its records, for a reader to whom they do not count: it still covers its offsets.
    #[must_use]
    pub fn into_gap(self) -> Batch {
        let mut header = self.header;
        header.record_count = 0;
        let layout = Layout::V2(Rules::default());
        Batch { header, data: Bytes::new(), layout, backing_len: 0, is_view: false, from: i64::MIN }
    }
}

/// A batch whose records can be read.
///
/// Cloning it shares the bytes. They are one [`Bytes`]: a slice of the fetch response when the batch came uncompressed,
/// else a buffer of the decompressor's pool, which returns there when the last clone or slice is dropped.
#[derive(Clone, Debug)]
pub struct Batch {
    header: BatchHeader,
    data: Bytes,
    layout: Layout,
    backing_len: usize,
    is_view: bool,
    /// Records below this offset are passed over.
    from: i64,
}

impl Batch {
    /// Passes over the records below `offset`: a fetch answers with whole batches, so its first one can begin before
    /// the offset that was asked for. [`Batch::record_count`] still counts them.
    pub fn skip_below(&mut self, offset: i64) {
        self.from = offset;
    }

    /// Keeps `guard` until the last clone and slice of the records is dropped: how a budget counts them.
    #[must_use]
    pub fn guarded(mut self, guard: impl Send + 'static) -> Batch {
        struct Guarded<G> {
            data: Bytes,
            _guard: G,
        }
        impl<G> AsRef<[u8]> for Guarded<G> {
            fn as_ref(&self) -> &[u8] {
                &self.data
            }
        }
        self.data = Bytes::from_owner(Guarded { data: self.data, _guard: guard });
        self
    }

    /// What the header says.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The first offset it covers.
    #[must_use]
    pub fn base_offset(&self) -> i64 {
        self.header.base_offset
    }

    /// The last offset it covers, whether or not a record with it is still there. Reading goes on one above.
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.header.last_offset
    }

    /// Whether it holds a transaction marker instead of data.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.header.is_control
    }

    /// What the marker of a control batch says; `None` for data and for a control batch whose record was compacted
    /// away or cannot be read.
    #[must_use]
    pub fn control_kind(&self) -> Option<ControlKind> {
        if !self.header.is_control {
            return None;
        }
        self.records().next()?.ok()?.key().and_then(ControlKind::of)
    }

    /// Records it holds; compaction can have left none.
    #[must_use]
    pub fn record_count(&self) -> u32 {
        self.header.record_count
    }

    /// The records, read while iterating.
    #[must_use]
    #[inline]
    pub fn records(&self) -> Records<'_> {
        let (base, count) = (self.header.base_offset, self.header.record_count);
        let records = Records::new(&self.data, self.layout, base, count);
        if self.from > base { records.starting_at(self.from) } else { records }
    }

    /// The bytes all records lie in.
    #[must_use]
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Bytes of memory this batch keeps alive: the whole buffer it was expanded into, or the part of the fetch response
    /// it is a view of (see [`Batch::is_view`]).
    #[must_use]
    pub fn backing_len(&self) -> usize {
        self.backing_len
    }

    /// Whether the records are a view of the fetch response, so that they keep that response alive.
    #[must_use]
    pub fn is_view(&self) -> bool {
        self.is_view
    }
}

/// The checksum of a v2 batch, whose header must be complete.
pub(super) fn checksum(batch: &[u8]) -> u32 {
    crc32c::crc32c(batch.get(header::CRC_START..).unwrap_or_default())
}
