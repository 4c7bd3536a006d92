//! What does a record batch say? A small reader of record batch v2 (KIP-98), written apart from the client's codec.
//!
//! Appending reads the header and checks the CRC; nothing looks at single records there. Decoding records, with all
//! four compressions, is for assertions and for offsets by timestamp. Gaps: magic 0 and 1 can be stored by tests
//! (`Cluster::append_raw`) but are not decoded.

mod build;
mod compact;
mod records;

use bytes::Bytes;

pub use self::build::{KeyValue, NewBatch, with_append_time};
pub use self::compact::without;
pub use self::records::{DECODED_BYTES, Record, records};

/// Bytes in front of what the CRC and the stored body cover: base offset, length, leader epoch.
pub const PREFIX: usize = 16;
/// Bytes of a batch before its records.
pub const HEADER: usize = 61;
/// Bytes of a batch that its length field does not count: base offset and the length itself.
const UNCOUNTED: usize = 12;

/// Why a batch is not accepted or cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchError {
    /// Fewer bytes than the header or its length field needs, or bytes behind the batch.
    Length,
    /// Not magic 2.
    Magic(i8),
    /// The CRC32C does not match.
    Crc,
    /// Record count and last offset delta disagree, or a count is negative.
    Count,
    /// An unknown compression, or compressed data that does not decompress.
    Compression,
    /// A record's own lengths do not add up.
    Record,
}

/// The fields of a batch header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Bytes of the whole batch.
    pub length: usize,
    /// Leader epoch of the append.
    pub leader_epoch: i32,
    /// Format; always 2 here.
    pub magic: i8,
    /// Compression (bits 0–2), timestamp type (3), transactional (4), control (5), delete horizon (6).
    pub attributes: i16,
    /// Offset of the last record minus the base offset.
    pub last_offset_delta: i32,
    /// Milliseconds of the first record, or of the delete horizon.
    pub base_timestamp: i64,
    /// The largest timestamp of the batch.
    pub max_timestamp: i64,
    /// −1 without idempotence.
    pub producer_id: i64,
    /// −1 without idempotence.
    pub producer_epoch: i16,
    /// −1 without idempotence.
    pub base_sequence: i32,
    /// Records in the batch.
    pub count: i32,
}

impl Header {
    /// Written in a transaction (KIP-98).
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    /// Holds a transaction marker instead of data.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }

    /// Timestamps are the broker's.
    #[must_use]
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & 0x08 != 0
    }

    /// Sequence number of the last record; sequences wrap after `i32::MAX` to 0.
    #[must_use]
    pub fn last_sequence(&self) -> i32 {
        wrap_sequence(self.base_sequence, self.last_offset_delta)
    }
}

/// `sequence + delta`, wrapping after `i32::MAX` to 0.
#[must_use]
pub fn wrap_sequence(sequence: i32, delta: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(delta);
    i32::try_from(sum & i64::from(i32::MAX)).unwrap_or(0)
}

/// Reads the header of the batch at the start of `bytes`.
///
/// # Errors
/// [`BatchError::Length`] or [`BatchError::Magic`].
pub fn header(bytes: &[u8]) -> Result<Header, BatchError> {
    let mut at = Reader { bytes };
    let base_offset = at.i64()?;
    let length = usize::try_from(at.i32()?).map_err(|_| BatchError::Length)?;
    let leader_epoch = at.i32()?;
    let magic = at.i8()?;
    if magic != 2 {
        return Err(BatchError::Magic(magic));
    }
    let _crc = at.i32()?;
    let header = Header {
        base_offset,
        length: length.checked_add(UNCOUNTED).ok_or(BatchError::Length)?,
        leader_epoch,
        magic,
        attributes: at.i16()?,
        last_offset_delta: at.i32()?,
        base_timestamp: at.i64()?,
        max_timestamp: at.i64()?,
        producer_id: at.i64()?,
        producer_epoch: at.i16()?,
        base_sequence: at.i32()?,
        count: at.i32()?,
    };
    if header.length < HEADER || header.length > bytes.len() {
        return Err(BatchError::Length);
    }
    if header.last_offset_delta < 0 || header.count < 0 {
        return Err(BatchError::Count);
    }
    Ok(header)
}

/// Checks the one batch a produce request may carry for a partition: header, no trailing bytes, CRC, count.
///
/// # Errors
/// Which check failed.
pub fn check_produced(bytes: &[u8]) -> Result<Header, BatchError> {
    let header = header(bytes)?;
    if header.length != bytes.len() {
        return Err(BatchError::Length);
    }
    if header.count == 0 || header.count.checked_sub(1) != Some(header.last_offset_delta) {
        return Err(BatchError::Count);
    }
    check_crc(bytes)?;
    Ok(header)
}

/// Compares the CRC32C of a whole batch.
///
/// # Errors
/// [`BatchError::Crc`], or [`BatchError::Length`] for fewer bytes than a header.
pub fn check_crc(batch: &[u8]) -> Result<(), BatchError> {
    let stored = batch.get(17..21).and_then(|crc| crc.try_into().ok()).map(u32::from_be_bytes);
    let covered = batch.get(21..).ok_or(BatchError::Length)?;
    if stored == Some(crc32c::crc32c(covered)) { Ok(()) } else { Err(BatchError::Crc) }
}

/// A position in bytes that a peer wrote.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], BatchError> {
        let (head, rest) = self.bytes.split_at_checked(count).ok_or(BatchError::Length)?;
        self.bytes = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BatchError> {
        self.take(N)?.try_into().map_err(|_| BatchError::Length)
    }

    fn i8(&mut self) -> Result<i8, BatchError> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    fn i16(&mut self) -> Result<i16, BatchError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    fn i32(&mut self) -> Result<i32, BatchError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64, BatchError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn varint(&mut self) -> Result<i64, BatchError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(BatchError::Record)
    }

    /// A length: −1 is none.
    fn length(&mut self) -> Result<Option<usize>, BatchError> {
        match self.varint()? {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| BatchError::Record),
        }
    }

    /// A field as a slice of `whole`, which holds these bytes.
    fn field(&mut self, whole: &Bytes) -> Result<Option<Bytes>, BatchError> {
        let Some(length) = self.length()? else { return Ok(None) };
        Ok(Some(whole.slice_ref(self.take(length)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read_back_and_every_changed_byte_behind_the_prefix_is_noticed() {
        let batch = NewBatch {
            attributes: 0,
            producer_id: 7,
            producer_epoch: 1,
            base_sequence: i32::MAX,
            timestamp: 1_000,
            records: &[(Some(b"k"), Some(b"v")), (None, None)],
        }
        .encode();
        let header = check_produced(&batch).expect("own batch");
        assert_eq!((header.length, header.count, header.producer_id), (batch.len(), 2, 7));
        assert_eq!(header.last_sequence(), 0, "sequences wrap to 0");
        let read = records(&batch).expect("own batch");
        assert_eq!(read[0].key.as_deref(), Some(&b"k"[..]));
        assert_eq!((read[1].offset, read[1].value.is_none()), (1, true));
        for at in PREFIX..batch.len() {
            let mut bad = batch.to_vec();
            bad[at] ^= 0x40;
            assert!(check_produced(&bad).is_err(), "byte {at}");
        }
        assert!(check_produced(&batch[..batch.len() - 1]).is_err());
        let timed = with_append_time(&batch, 5_000);
        assert!(records(&timed).expect("crc is new").iter().all(|record| record.timestamp == 5_000));
    }
}
