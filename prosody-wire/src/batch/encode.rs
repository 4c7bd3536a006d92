//! How is a batch written?

use super::buffer::{Buffer, BufferPool};
use super::compress::{Compression, Compressor};
use super::decode::checksum;
use super::header::{HEADER_BYTES, PREFIX_BYTES, attributes};
use super::varint::{varint_len, zigzag};
use bytes::Bytes;

/// Who sends a batch. The default is a producer without idempotence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerStamp {
    /// Producer id, −1 for none.
    pub id: i64,
    /// Its epoch, −1 for none.
    pub epoch: i16,
    /// Sequence number of the batch's first record, −1 for none.
    pub base_sequence: i32,
    /// Whether the batch is part of a transaction.
    pub is_transactional: bool,
}

impl Default for ProducerStamp {
    fn default() -> ProducerStamp {
        ProducerStamp { id: -1, epoch: -1, base_sequence: -1, is_transactional: false }
    }
}

/// The record cannot be part of this batch: lengths and offsets of a batch are 32-bit numbers, and timestamps differ by
/// at most 63 bits. An empty batch takes every record below 2 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFull;

impl std::fmt::Display for BatchFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the record does not fit the numbers of its batch")
    }
}

impl std::error::Error for BatchFull {}

/// Writes records straight into the batch they will be sent in. [`BatchBuilder::seal`] completes the header and leaves
/// the builder empty for the next batch.
///
/// The memory comes from a pool and goes back there once the sealed bytes were sent and dropped.
#[derive(Debug)]
pub struct BatchBuilder {
    pool: BufferPool,
    buffer: Buffer,
    /// Room asked for when the next batch begins.
    room: usize,
    count: u32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchBuilder {
    /// An empty builder; `room` is the batch size it makes room for at once.
    #[must_use]
    pub fn new(pool: BufferPool, room: usize) -> BatchBuilder {
        let buffer = pool.empty();
        BatchBuilder { pool, buffer, room, count: 0, base_timestamp: 0, max_timestamp: 0 }
    }

    /// Records so far.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the batch so far, uncompressed, header included.
    #[must_use]
    pub fn size(&self) -> usize {
        self.buffer.len().max(HEADER_BYTES)
    }

    /// The highest timestamp so far.
    #[must_use]
    pub fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    /// The most bytes a record of these parts can add to a batch.
    #[must_use]
    pub fn upper_bound<'h>(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)>,
    ) -> usize {
        // Length, attributes, timestamp, offset, key length, value length, header count at their longest.
        const FIXED: usize = 5 + 1 + 10 + 5 + 5 + 5 + 5;
        let start = FIXED + key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
        headers.fold(start, |sum, (key, value)| sum + 10 + key.len() + value.map_or(0, <[u8]>::len))
    }

    /// Adds a record and returns its offset within the batch. `headers` is walked twice: the record begins with its
    /// own length.
    ///
    /// # Errors
    /// When the batch would no longer fit the format's 32-bit numbers. The batch is as it was before.
    #[inline]
    pub fn append<'h, H>(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: H,
    ) -> Result<u32, BatchFull>
    where
        H: Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone,
    {
        let base_timestamp = if self.count == 0 { timestamp } else { self.base_timestamp };
        let timestamp_delta = timestamp.checked_sub(base_timestamp).ok_or(BatchFull)?;
        let delta = i64::from(self.count);
        let (header_count, header_bytes) =
            headers.clone().fold((0_i64, 0_usize), |(count, bytes), (key, value)| {
                (count + 1, bytes + len_prefixed(Some(key)) + len_prefixed(value))
            });
        let length = 1
            + varint_len(timestamp_delta)
            + varint_len(delta)
            + len_prefixed(key)
            + len_prefixed(value)
            + varint_len(header_count)
            + header_bytes;
        if self.size().saturating_add(length).saturating_add(5) > i32::MAX as usize
            || delta >= i64::from(i32::MAX)
        {
            return Err(BatchFull);
        }

        if self.count == 0 {
            self.start(timestamp);
        }
        let mut out = Writer { out: self.buffer.extend_with(varint_len(length as i64) + length) };
        out.varint(length as i64);
        out.byte(0);
        out.varint(timestamp_delta);
        out.varint(delta);
        out.field(key);
        out.field(value);
        out.varint(header_count);
        for (key, value) in headers {
            out.field(Some(key));
            out.field(value);
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let offset = self.count;
        self.count += 1;
        Ok(offset)
    }

    #[cold]
    fn start(&mut self, timestamp: i64) {
        self.buffer = self.pool.take(self.room.max(HEADER_BYTES));
        self.buffer.extend(&[0; HEADER_BYTES]);
        self.base_timestamp = timestamp;
        self.max_timestamp = timestamp;
    }

    /// Forgets the records; the memory goes back to the pool, so an idle builder holds none.
    pub fn clear(&mut self) {
        self.buffer = self.pool.empty();
        self.count = 0;
        self.base_timestamp = 0;
        self.max_timestamp = 0;
    }

    /// The finished batch, or `None` when there is nothing in it. Data that does not shrink is sent uncompressed.
    ///
    /// # Errors
    /// When the codec fails, which only lack of memory explains; the records stay in the builder.
    pub fn seal(
        &mut self,
        compression: Compression,
        compressor: &mut Compressor,
        stamp: ProducerStamp,
    ) -> std::io::Result<Option<Bytes>> {
        if self.count == 0 {
            return Ok(None);
        }
        let plain = self.buffer.written().get(HEADER_BYTES..).unwrap_or_default();
        let compressed = match compression {
            Compression::None => None,
            codec => {
                let mut out = self.pool.take(HEADER_BYTES + plain.len() / 2);
                out.extend(&[0; HEADER_BYTES]);
                compressor.compress(codec, plain, &mut out)?;
                Some(out).filter(|out| out.len() < self.buffer.len())
            }
        };
        let (mut sealed, compression) = match compressed {
            Some(out) => (out, compression),
            None => (std::mem::replace(&mut self.buffer, self.pool.empty()), Compression::None),
        };
        self.write_header(sealed.written_mut(), compression, stamp);
        self.clear();
        Ok(Some(sealed.freeze()))
    }

    fn write_header(&self, batch: &mut [u8], compression: Compression, stamp: ProducerStamp) {
        // `append` kept all of these below 2 GiB.
        let length = batch.len().saturating_sub(PREFIX_BYTES) as i32;
        let last_delta = self.count.saturating_sub(1) as i32;
        let mut header = Header { batch, at: 0 };
        header.put(0_i64.to_be_bytes());
        header.put(length.to_be_bytes());
        // The leader epoch is the broker's to fill in.
        header.put((-1_i32).to_be_bytes());
        header.put([2]);
        header.put([0; 4]);
        header.put(attributes(compression, stamp.is_transactional).to_be_bytes());
        header.put(last_delta.to_be_bytes());
        header.put(self.base_timestamp.to_be_bytes());
        header.put(self.max_timestamp.to_be_bytes());
        header.put(stamp.id.to_be_bytes());
        header.put(stamp.epoch.to_be_bytes());
        header.put(stamp.base_sequence.to_be_bytes());
        header.put((self.count as i32).to_be_bytes());
        finish(batch);
    }
}

/// A copy of a sealed batch with another producer stamp: what a producer needs after its epoch was bumped. `None` when
/// `batch` is no v2 batch.
#[must_use]
pub fn restamp(batch: &[u8], pool: &BufferPool, stamp: ProducerStamp) -> Option<Bytes> {
    const PRODUCER_AT: usize = 43;
    if batch.len() < HEADER_BYTES || batch.get(16) != Some(&2) {
        return None;
    }
    let mut copy = pool.take(batch.len());
    copy.extend(batch);
    let mut header = Header { batch: copy.written_mut(), at: PRODUCER_AT };
    header.put(stamp.id.to_be_bytes());
    header.put(stamp.epoch.to_be_bytes());
    header.put(stamp.base_sequence.to_be_bytes());
    finish(copy.written_mut());
    Some(copy.freeze())
}

/// Writes the checksum, last.
fn finish(batch: &mut [u8]) {
    const CRC_AT: usize = 17;
    let crc = checksum(batch);
    Header { batch, at: CRC_AT }.put(crc.to_be_bytes());
}

/// Writes into room whose length was computed before. Headers that differ between the two walks over them are cut off,
/// never written elsewhere.
struct Writer<'a> {
    out: &'a mut [u8],
}

impl Writer<'_> {
    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        if let Some((first, rest)) = std::mem::take(&mut self.out).split_first_mut() {
            *first = byte;
            self.out = rest;
        }
    }

    #[inline(always)]
    fn varint(&mut self, value: i64) {
        let mut raw = zigzag(value);
        while raw >= 0x80 {
            self.byte(raw as u8 | 0x80);
            raw >>= 7;
        }
        self.byte(raw as u8);
    }

    #[inline(always)]
    fn field(&mut self, field: Option<&[u8]>) {
        let Some(field) = field else { return self.varint(-1) };
        self.varint(field.len() as i64);
        if let Some((room, rest)) = std::mem::take(&mut self.out).split_at_mut_checked(field.len()) {
            room.copy_from_slice(field);
            self.out = rest;
        }
    }
}

/// Fixed-width fields one after the other.
struct Header<'a> {
    batch: &'a mut [u8],
    at: usize,
}

impl Header<'_> {
    fn put<const N: usize>(&mut self, field: [u8; N]) {
        if let Some(place) = self.batch.get_mut(self.at..self.at + N) {
            place.copy_from_slice(&field);
        }
        self.at += N;
    }
}

#[inline]
fn len_prefixed(field: Option<&[u8]>) -> usize {
    match field {
        None => varint_len(-1),
        Some(field) => varint_len(field.len() as i64) + field.len(),
    }
}
