//! What do the records of a batch say? For assertions, and for offsets by timestamp.

use std::io::Read;

use bytes::Bytes;

use super::{BatchError, HEADER, Reader, check_crc, header};

/// A decoded batch may not grow beyond this many bytes.
pub const DECODED_BYTES: usize = 64 * 1024 * 1024;
/// Nor hold more records than this: each costs a decoder more memory than its seven bytes.
const RECORDS: usize = 1 << 20;
/// Bytes of the smallest record.
const SMALLEST: usize = 7;

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

/// Decodes every record of one whole batch, data and control alike.
///
/// # Errors
/// What does not add up.
pub fn records(batch: &Bytes) -> Result<Vec<Record>, BatchError> {
    let header = header(batch)?;
    check_crc(batch.get(..header.length).ok_or(BatchError::Length)?)?;
    let body = decompress(header.attributes & 0x07, batch.slice(HEADER..header.length))?;
    let possible = RECORDS.min(body.len() / SMALLEST);
    if usize::try_from(header.count).map_or(true, |count| count > possible) {
        return Err(BatchError::Count);
    }
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

fn decompress(codec: i16, data: Bytes) -> Result<Bytes, BatchError> {
    let mut out = Vec::new();
    // One byte more, so that what goes over the bound is noticed.
    let cap = DECODED_BYTES as u64 + 1;
    let read = match codec {
        0 => return Ok(data),
        1 => flate2::read::GzDecoder::new(&data[..]).take(cap).read_to_end(&mut out),
        2 => return snappy(&data),
        3 => lz4_flex::frame::FrameDecoder::new(&data[..]).take(cap).read_to_end(&mut out),
        4 => zstd::stream::read::Decoder::new(&data[..])
            .and_then(|inner| inner.take(cap).read_to_end(&mut out)),
        _ => return Err(BatchError::Compression),
    };
    match read {
        Ok(_) if out.len() <= DECODED_BYTES => Ok(out.into()),
        _ => Err(BatchError::Compression),
    }
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
