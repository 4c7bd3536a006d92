//! What does the header of a batch say?

use super::varint::Cursor;
use super::{BatchErrorKind, Compression};

/// Bytes of a v2 header, from the base offset to the record count.
pub const HEADER_BYTES: usize = 61;
/// Base offset and length: what is needed to find the end of a batch.
pub(crate) const PREFIX_BYTES: usize = 12;
/// Where the bytes begin that the CRC32C of a v2 batch covers (the attributes).
pub(crate) const CRC_START: usize = 21;

const COMPRESSION_MASK: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

/// Who gave the records their timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampKind {
    /// The producer (`CreateTime`).
    Create,
    /// The broker when it appended the batch (`LogAppendTime`): one time for the whole batch.
    LogAppend,
}

/// The header of a batch. For magic 0 and 1 the fields that format lacks have the values a v2 batch would use for
/// "none" (−1, `false`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record the batch had when it was written; compaction may have removed it. Of a compressed
    /// magic 0 or 1 wrapper that was not opened yet: the offset of its last message.
    pub base_offset: i64,
    /// The last offset the batch covers, also when it holds no records any more. The next offset to read is one above;
    /// it is always below `i64::MAX`.
    pub last_offset: i64,
    /// Epoch of the leader that appended it, −1 when unknown.
    pub leader_epoch: i32,
    /// Record format: 0, 1 or 2.
    pub magic: i8,
    /// How the records are compressed.
    pub compression: Compression,
    /// Who set the timestamps.
    pub timestamp_kind: TimestampKind,
    /// Part of a transaction, which may have been aborted.
    pub is_transactional: bool,
    /// Holds a marker of the transaction protocol, no data.
    pub is_control: bool,
    /// Milliseconds since 1970 that record timestamps are relative to.
    pub base_timestamp: i64,
    /// The highest timestamp, in milliseconds since 1970; with [`TimestampKind::LogAppend`] that of every record.
    pub max_timestamp: i64,
    /// Producer id of an idempotent producer, −1 for none.
    pub producer_id: i64,
    /// Its epoch, −1 for none.
    pub producer_epoch: i16,
    /// Sequence number of the first record, −1 for none.
    pub base_sequence: i32,
    /// Records in the batch. Of a compressed magic 0 or 1 wrapper that was not opened yet: 0.
    pub record_count: u32,
}

impl BatchHeader {
    /// Reads everything after the length and the magic of a v2 batch. `cursor` stands behind the CRC.
    pub(crate) fn read_v2(
        base_offset: i64,
        leader_epoch: i32,
        cursor: &mut Cursor<'_>,
    ) -> Result<BatchHeader, BatchErrorKind> {
        let fields = (|| {
            Some((
                cursor.i16()?,
                cursor.i32()?,
                cursor.i64()?,
                cursor.i64()?,
                cursor.i64()?,
                cursor.i16()?,
                cursor.i32()?,
                cursor.i32()?,
            ))
        })();
        // The caller has checked the length, so this arm is for the reader's peace of mind only.
        let Some((attributes, delta, base_timestamp, max_timestamp, producer_id, epoch, sequence, count)) =
            fields
        else {
            return Err(BatchErrorKind::Length { length: 0 });
        };
        if delta < 0 {
            return Err(BatchErrorKind::LastOffsetDelta(delta));
        }
        let last_offset = checked_last(base_offset, delta.into())?;
        let record_count = u32::try_from(count).map_err(|_| BatchErrorKind::RecordCount(count))?;
        if i64::from(record_count) > i64::from(delta) + 1 {
            return Err(BatchErrorKind::RecordsForOffsets { count: record_count, last_offset_delta: delta });
        }
        Ok(BatchHeader {
            base_offset,
            last_offset,
            leader_epoch,
            magic: 2,
            compression: compression(attributes)?,
            timestamp_kind: timestamp_kind(attributes),
            is_transactional: attributes & TRANSACTIONAL != 0,
            is_control: attributes & CONTROL != 0,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch: epoch,
            base_sequence: sequence,
            record_count,
        })
    }
}

impl BatchHeader {
    /// The timestamp of every record, when the broker set it.
    #[must_use]
    pub fn log_append_time(&self) -> Option<i64> {
        match self.timestamp_kind {
            TimestampKind::Create => None,
            TimestampKind::LogAppend => Some(self.max_timestamp),
        }
    }
}

/// `base + delta`, leaving room for the offset after it.
pub(crate) fn checked_last(base_offset: i64, delta: i64) -> Result<i64, BatchErrorKind> {
    if base_offset < 0 {
        return Err(BatchErrorKind::BaseOffset);
    }
    base_offset.checked_add(delta).filter(|last| *last < i64::MAX).ok_or(BatchErrorKind::OffsetOverflow)
}

pub(crate) fn compression(attributes: i16) -> Result<Compression, BatchErrorKind> {
    let code = (attributes & COMPRESSION_MASK) as u8;
    Compression::from_code(code).ok_or(BatchErrorKind::Codec(code))
}

pub(crate) fn timestamp_kind(attributes: i16) -> TimestampKind {
    if attributes & LOG_APPEND_TIME == 0 { TimestampKind::Create } else { TimestampKind::LogAppend }
}

/// The attributes of a batch a producer writes.
pub(crate) fn attributes(compression: Compression, is_transactional: bool) -> i16 {
    i16::from(compression.code()) | if is_transactional { TRANSACTIONAL } else { 0 }
}
