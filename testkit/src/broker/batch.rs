//! What does a record batch say? A small reader of record batch v2 (KIP-98), written apart from the client's codec.
//!
//! Appending reads the header and checks the CRC; nothing looks at single records there. Decoding records, with all
//! four compressions, is for assertions and for offsets by timestamp. Gaps: magic 0 and 1 can be stored by tests
//! (`Cluster::append_raw`) but are not decoded.

use std::io::Read;

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes in front of what the CRC and the stored body cover: base offset, length, leader epoch.
pub const PREFIX: usize = 16;
/// Bytes of a batch before its records.
pub const HEADER: usize = 61;
/// Bytes of a batch that its length field does not count: base offset and the length itself.
const UNCOUNTED: usize = 12;
/// A decoded batch may not grow beyond this many bytes.
pub const DECODED_BYTES: usize = 256 * 1024 * 1024;

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

/// One decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its offset in the partition.
    pub offset: i64,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// `None` for no key.
    pub key: Option<Bytes>,
    /// `None` for a tombstone.
    pub value: Option<Bytes>,
    /// In order; names may repeat.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
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

/// Decodes every record of one whole batch, data and control alike.
///
/// # Errors
/// What does not add up.
pub fn records(batch: &Bytes) -> Result<Vec<Record>, BatchError> {
    let header = header(batch)?;
    check_crc(batch.get(..header.length).ok_or(BatchError::Length)?)?;
    let body = decompress(header.attributes & 0x07, batch.slice(HEADER..header.length))?;
    let mut records = Vec::new();
    let mut at = Reader { bytes: &body };
    for _ in 0..header.count {
        let length = at.length()?.ok_or(BatchError::Record)?;
        let mut record = Reader { bytes: at.take(length)? };
        let _attributes = record.i8()?;
        let delta = record.varint()?;
        let offset_delta = record.varint()?;
        let timestamp = if header.is_log_append_time() {
            header.max_timestamp
        } else {
            header.base_timestamp.wrapping_add(delta)
        };
        let key = record.field(&body)?;
        let value = record.field(&body)?;
        let mut headers = Vec::new();
        for _ in 0..record.varint()? {
            let name = record.field(&body)?.ok_or(BatchError::Record)?;
            headers.push((name, record.field(&body)?));
        }
        records.push(Record {
            offset: header.base_offset.wrapping_add(offset_delta),
            timestamp,
            key,
            value,
            headers,
        });
    }
    Ok(records)
}

/// What a test puts into a batch.
#[derive(Clone, Debug)]
pub struct NewBatch<'a> {
    /// Attributes without compression: the records are stored plain.
    pub attributes: i16,
    /// −1 without idempotence.
    pub producer_id: i64,
    /// −1 without idempotence.
    pub producer_epoch: i16,
    /// −1 without idempotence.
    pub base_sequence: i32,
    /// Milliseconds, the same for every record.
    pub timestamp: i64,
    /// Keys and values.
    pub records: &'a [(Option<&'a [u8]>, Option<&'a [u8]>)],
}

impl NewBatch<'_> {
    /// Encodes the batch with base offset 0, uncompressed.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut records = BytesMut::new();
        let mut one = BytesMut::new();
        for (delta, (key, value)) in (0i64..).zip(self.records) {
            one.clear();
            one.put_i8(0);
            put_varint(&mut one, 0);
            put_varint(&mut one, delta);
            for field in [key, value] {
                put_varint(&mut one, field.map_or(-1, |field| field.len() as i64));
                one.put_slice(field.unwrap_or_default());
            }
            put_varint(&mut one, 0);
            put_varint(&mut records, one.len() as i64);
            records.put_slice(&one);
        }
        let mut covered = BytesMut::new();
        covered.put_i16(self.attributes);
        covered.put_i32(i32::try_from(self.records.len()).unwrap_or(i32::MAX).saturating_sub(1));
        covered.put_i64(self.timestamp);
        covered.put_i64(self.timestamp);
        covered.put_i64(self.producer_id);
        covered.put_i16(self.producer_epoch);
        covered.put_i32(self.base_sequence);
        covered.put_i32(i32::try_from(self.records.len()).unwrap_or(i32::MAX));
        covered.put_slice(&records);
        let mut batch = BytesMut::new();
        batch.put_i64(0);
        batch.put_i32(i32::try_from(covered.len() + 9).unwrap_or(i32::MAX));
        batch.put_i32(0);
        batch.put_i8(2);
        batch.put_u32(crc32c::crc32c(&covered));
        batch.put_slice(&covered);
        batch.freeze()
    }
}

/// The same batch with the broker's time: attribute bit, largest timestamp and CRC are written anew.
#[must_use]
pub fn with_append_time(batch: &[u8], now_ms: i64) -> Bytes {
    let mut copy = BytesMut::from(batch);
    if let Some(attributes) = copy.get_mut(22) {
        *attributes |= 0x08;
    }
    if let Some(max_timestamp) = copy.get_mut(35..43) {
        max_timestamp.copy_from_slice(&now_ms.to_be_bytes());
    }
    let crc = crc32c::crc32c(copy.get(21..).unwrap_or_default());
    if let Some(stored) = copy.get_mut(17..21) {
        stored.copy_from_slice(&crc.to_be_bytes());
    }
    copy.freeze()
}

fn put_varint(out: &mut BytesMut, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.put_u8((rest as u8) | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

fn decompress(codec: i16, data: Bytes) -> Result<Bytes, BatchError> {
    let mut out = Vec::new();
    let cap = DECODED_BYTES as u64;
    let read = match codec {
        0 => return Ok(data),
        1 => flate2::read::GzDecoder::new(&data[..]).take(cap).read_to_end(&mut out),
        2 => return snappy(&data),
        3 => lz4_flex::frame::FrameDecoder::new(&data[..]).take(cap).read_to_end(&mut out),
        4 => zstd::stream::read::Decoder::new(&data[..])
            .and_then(|inner| inner.take(cap).read_to_end(&mut out)),
        _ => return Err(BatchError::Compression),
    };
    read.map_err(|_| BatchError::Compression)?;
    Ok(out.into())
}

/// Snappy as Java writes it (xerial: magic, two version numbers, then length-prefixed blocks), or one raw block.
fn snappy(data: &[u8]) -> Result<Bytes, BatchError> {
    const MAGIC: &[u8] = b"\x82SNAPPY\0";
    let block = |bytes: &[u8], out: &mut Vec<u8>| {
        let size = snap::raw::decompress_len(bytes).map_err(|_| BatchError::Compression)?;
        if size.saturating_add(out.len()) > DECODED_BYTES {
            return Err(BatchError::Compression);
        }
        let plain = snap::raw::Decoder::new().decompress_vec(bytes).map_err(|_| BatchError::Compression)?;
        out.extend_from_slice(&plain);
        Ok(())
    };
    let mut out = Vec::new();
    if !data.starts_with(MAGIC) {
        block(data, &mut out)?;
        return Ok(out.into());
    }
    let mut at = Reader { bytes: data };
    at.take(MAGIC.len() + 8)?;
    while !at.bytes.is_empty() {
        let length = usize::try_from(at.i32()?).map_err(|_| BatchError::Compression)?;
        block(at.take(length)?, &mut out)?;
    }
    Ok(out.into())
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
