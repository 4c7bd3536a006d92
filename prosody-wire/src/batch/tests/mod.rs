//! What must hold for every batch, whoever wrote it.

mod golden;
mod round_trip;

use super::*;
use bytes::Bytes;

/// A record as plain values, to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) offset: i64,
    pub(super) timestamp: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

pub(super) fn decompressor() -> Decompressor {
    Decompressor::new(BufferPool::new(16 << 20))
}

/// All records of all batches in `bytes`.
pub(super) fn read_all(bytes: Bytes) -> Result<Vec<Plain>, BatchError> {
    let mut decompressor = decompressor();
    let mut plain = Vec::new();
    for raw in Batches::new(bytes, BatchLimits::default()) {
        let batch = raw?.open(&mut decompressor)?;
        for record in batch.records() {
            plain.push(to_plain(&record?));
        }
    }
    Ok(plain)
}

pub(super) fn to_plain(record: &RecordView<'_>) -> Plain {
    Plain {
        offset: record.offset(),
        timestamp: record.timestamp(),
        key: record.key().map(<[u8]>::to_vec),
        value: record.value().map(<[u8]>::to_vec),
        headers: record.headers().map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec))).collect(),
    }
}

pub(super) fn append(builder: &mut BatchBuilder, record: &Plain) -> u32 {
    let headers = record.headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
    builder.append(record.timestamp, record.key.as_deref(), record.value.as_deref(), headers).unwrap()
}

/// The records as one sealed batch, offsets counted from 0.
pub(super) fn write(records: &[Plain], compression: Compression) -> Bytes {
    let mut builder = BatchBuilder::new(BufferPool::new(1 << 20), 1024);
    records.iter().for_each(|record| {
        append(&mut builder, record);
    });
    builder.seal(compression, &mut Compressor::new(), ProducerStamp::default()).unwrap().unwrap()
}
