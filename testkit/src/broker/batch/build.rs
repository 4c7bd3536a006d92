//! How does a test make a batch?

use bytes::{BufMut, Bytes, BytesMut};

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
    pub records: &'a [KeyValue<'a>],
}

/// A key and a value; `None` for no key, and for a tombstone.
pub type KeyValue<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

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

pub(super) fn put_varint(out: &mut BytesMut, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.put_u8((rest as u8) | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}
