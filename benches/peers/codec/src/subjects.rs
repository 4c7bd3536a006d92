//! What is measured: the same batch through each codec, every field of every record looked at.

use bytes::{Bytes, BytesMut};
use kafka_protocol::records as kp;
use krafka::__private::protocol as krafka_protocol;
use prosody_wire::batch::{
    self, BatchBuilder, BatchLimits, Batches, BufferPool, Compression, Compressor, Decompressor,
    ProducerStamp,
};
use rskafka::protocol::record as rs;
use rskafka::protocol::traits::{ReadType, WriteType};

/// Records in the batch.
pub const RECORDS: usize = 1000;
const VALUE: usize = 100;
const TIME: i64 = 1_700_000_000_000;

/// The records, and the batch they make.
pub struct Batch {
    pub keys: Vec<String>,
    pub values: Vec<Vec<u8>>,
    pub headers: usize,
    pub bytes: Bytes,
}

impl Batch {
    pub fn new(headers: usize) -> Batch {
        let keys: Vec<String> = (0..RECORDS).map(|n| format!("key-{:04}", n * 7 % 1000)).collect();
        let values = (0..RECORDS).map(|n| value(n)).collect();
        let mut batch = Batch { keys, values, headers, bytes: Bytes::new() };
        batch.bytes = batch.sealed(Compression::None);
        batch
    }

    fn sealed(&self, compression: Compression) -> Bytes {
        let mut builder = BatchBuilder::new(BufferPool::new(1 << 20), 128 << 10);
        for (n, (key, value)) in self.keys.iter().zip(&self.values).enumerate() {
            let headers = [(b"trace".as_slice(), Some(b"0123456789abcdef".as_slice())); 8];
            let headers = headers.into_iter().take(self.headers);
            builder.append(time(n), Some(key.as_bytes()), Some(value), headers).unwrap();
        }
        builder.seal(compression, &mut Compressor::new(), ProducerStamp::default()).unwrap().unwrap()
    }
}

fn time(n: usize) -> i64 {
    TIME + n as i64 / 10
}

/// JSON with some text that does not repeat, so that codecs have real work.
fn value(n: usize) -> Vec<u8> {
    let mut noise = n as u64 * 0x9e37_79b9_7f4a_7c15 + 1;
    let mut text = format!("{{\"id\":{n},\"type\":\"order.created\",\"note\":\"");
    while text.len() < VALUE - 2 {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        text.push(char::from(b'a' + (noise % 26) as u8));
    }
    text.push_str("\"}");
    text.into_bytes()
}

/// Reads a whole batch and returns a sum over all fields, so that nothing can be left out.
pub trait Decoder {
    fn name(&self) -> &'static str;
    fn decode(&mut self, batch: &Batch) -> u64;
}

/// Writes a whole batch and returns its length.
pub trait Encoder {
    fn name(&self) -> &'static str;
    fn encode(&mut self, batch: &Batch) -> u64;
}

pub const DECODERS: [fn() -> Box<dyn Decoder>; 4] = [
    || Box::new(Prosody { decompressor: Decompressor::new(BufferPool::new(16 << 20)) }),
    || Box::new(KafkaProtocol),
    || Box::new(RsKafka),
    || Box::new(Krafka),
];

pub const ENCODERS: [fn(&Batch) -> Box<dyn Encoder>; 4] = [
    |_| {
        let builder = BatchBuilder::new(BufferPool::new(16 << 20), 128 << 10);
        Box::new(ProsodyEncoder { builder, compressor: Compressor::new() })
    },
    |batch| {
        let records = kp::RecordBatchDecoder::decode(&mut batch.bytes.clone()).unwrap().records;
        Box::new(KafkaProtocolEncoder { records, buffer: BytesMut::new() })
    },
    |batch| {
        let batch = rs::RecordBatch::read(&mut std::io::Cursor::new(batch.bytes.to_vec())).unwrap();
        Box::new(RsKafkaEncoder { batch, buffer: Vec::new() })
    },
    |batch| {
        let batch = krafka_protocol::RecordBatch::decode(&mut batch.bytes.clone()).unwrap();
        Box::new(KrafkaEncoder { batch })
    },
];

#[inline]
fn sum(offset: i64, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> u64 {
    let len = |field: Option<&[u8]>| field.map_or(0, |field| field.len() as u64);
    (offset as u64).wrapping_add(timestamp as u64).wrapping_add(len(key)).wrapping_add(len(value))
}

struct Prosody {
    decompressor: Decompressor,
}

impl Decoder for Prosody {
    fn name(&self) -> &'static str {
        "prosody"
    }

    fn decode(&mut self, batch: &Batch) -> u64 {
        prosody(&mut self.decompressor, batch.bytes.clone())
    }
}

fn prosody(decompressor: &mut Decompressor, bytes: Bytes) -> u64 {
    let mut total = 0_u64;
    for raw in Batches::new(bytes, BatchLimits::default()) {
        let batch = raw.unwrap().open(decompressor).unwrap();
        for record in batch.records() {
            let record = record.unwrap();
            total =
                total.wrapping_add(sum(record.offset(), record.timestamp(), record.key(), record.value()));
            for header in record.headers() {
                total = total.wrapping_add((header.key.len() + header.value.map_or(0, <[u8]>::len)) as u64);
            }
        }
    }
    total
}

struct KafkaProtocol;

impl Decoder for KafkaProtocol {
    fn name(&self) -> &'static str {
        "kafka-protocol"
    }

    fn decode(&mut self, batch: &Batch) -> u64 {
        let set = kp::RecordBatchDecoder::decode(&mut batch.bytes.clone()).unwrap();
        let mut total = 0_u64;
        for record in &set.records {
            let (key, value) = (record.key.as_deref(), record.value.as_deref());
            total = total.wrapping_add(sum(record.offset, record.timestamp, key, value));
            for (key, value) in &record.headers {
                total = total.wrapping_add((key.len() + value.as_ref().map_or(0, Bytes::len)) as u64);
            }
        }
        total
    }
}

struct RsKafka;

impl Decoder for RsKafka {
    fn name(&self) -> &'static str {
        "rskafka"
    }

    fn decode(&mut self, batch: &Batch) -> u64 {
        let decoded = rs::RecordBatch::read(&mut std::io::Cursor::new(&batch.bytes)).unwrap();
        let rs::ControlBatchOrRecords::Records(records) = &decoded.records else { return 0 };
        let mut total = 0_u64;
        for record in records {
            let offset = decoded.base_offset + i64::from(record.offset_delta);
            let timestamp = decoded.first_timestamp + record.timestamp_delta;
            total =
                total.wrapping_add(sum(offset, timestamp, record.key.as_deref(), record.value.as_deref()));
            for header in &record.headers {
                total = total.wrapping_add((header.key.len() + header.value.len()) as u64);
            }
        }
        total
    }
}

struct Krafka;

impl Decoder for Krafka {
    fn name(&self) -> &'static str {
        "krafka"
    }

    fn decode(&mut self, batch: &Batch) -> u64 {
        let decoded = krafka_protocol::RecordBatch::decode(&mut batch.bytes.clone()).unwrap();
        let mut total = 0_u64;
        for record in &decoded.records {
            let offset = decoded.base_offset + i64::from(record.offset_delta);
            let timestamp = decoded.base_timestamp + record.timestamp_delta;
            total =
                total.wrapping_add(sum(offset, timestamp, record.key.as_deref(), record.value.as_deref()));
            for header in &record.headers {
                total = total
                    .wrapping_add((header.key.len() + header.value.as_ref().map_or(0, Bytes::len)) as u64);
            }
        }
        total
    }
}

struct ProsodyEncoder {
    builder: BatchBuilder,
    compressor: Compressor,
}

impl Encoder for ProsodyEncoder {
    fn name(&self) -> &'static str {
        "prosody"
    }

    fn encode(&mut self, batch: &Batch) -> u64 {
        for (n, (key, value)) in batch.keys.iter().zip(&batch.values).enumerate() {
            self.builder.append(time(n), Some(key.as_bytes()), Some(value), std::iter::empty()).unwrap();
        }
        let stamp = ProducerStamp::default();
        let sealed = self.builder.seal(Compression::None, &mut self.compressor, stamp).unwrap().unwrap();
        debug_assert_eq!(sealed, batch.bytes);
        sealed.len() as u64
    }
}

struct KafkaProtocolEncoder {
    records: Vec<kp::Record>,
    buffer: BytesMut,
}

impl Encoder for KafkaProtocolEncoder {
    fn name(&self) -> &'static str {
        "kafka-protocol"
    }

    fn encode(&mut self, _: &Batch) -> u64 {
        self.buffer.clear();
        let options = kp::RecordEncodeOptions { version: 2, compression: kp::Compression::None };
        kp::RecordBatchEncoder::encode(&mut self.buffer, &self.records, &options).unwrap();
        self.buffer.len() as u64
    }
}

struct RsKafkaEncoder {
    batch: rs::RecordBatch,
    buffer: Vec<u8>,
}

impl Encoder for RsKafkaEncoder {
    fn name(&self) -> &'static str {
        "rskafka"
    }

    fn encode(&mut self, _: &Batch) -> u64 {
        self.buffer.clear();
        self.batch.write(&mut self.buffer).unwrap();
        self.buffer.len() as u64
    }
}

struct KrafkaEncoder {
    batch: krafka_protocol::RecordBatch,
}

impl Encoder for KrafkaEncoder {
    fn name(&self) -> &'static str {
        "krafka"
    }

    fn encode(&mut self, _: &Batch) -> u64 {
        self.batch.encode().unwrap().len() as u64
    }
}

/// Allocations per compressed batch of ours, once buffers and contexts exist.
pub fn compressed_allocations() -> Vec<(&'static str, f64)> {
    let batch = Batch::new(1);
    let mut counts = Vec::new();
    for codec in batch::Compression::ALL.into_iter().skip(1) {
        let bytes = batch.sealed(codec);
        let mut decompressor = Decompressor::new(BufferPool::new(16 << 20));
        (0..3).for_each(|_| drop(prosody(&mut decompressor, bytes.clone())));
        let before = crate::counting::allocations();
        (0..100).for_each(|_| drop(prosody(&mut decompressor, bytes.clone())));
        counts.push((codec.name(), (crate::counting::allocations() - before) as f64 / 100.0));
    }
    counts
}

/// What every codec must agree on: the records of a batch that ours wrote, and of one that each of them wrote.
#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::protocol::StrBytes;

    #[test]
    fn all_codecs_read_the_same_records_out_of_the_same_bytes() {
        for headers in [0, 3] {
            let batch = Batch::new(headers);
            let sums: Vec<u64> = DECODERS.iter().map(|make| make().decode(&batch)).collect();
            // kafka-protocol keeps one header of each key; the others must agree in full.
            let full: Vec<u64> = [0, 2, 3].iter().map(|index| sums[*index]).collect();
            assert!(full.iter().all(|sum| *sum == full[0]), "{sums:?}");
            assert!(headers > 0 || sums[1] == sums[0], "{sums:?}");
        }
    }

    #[test]
    fn what_the_others_write_is_read_back() {
        let batch = Batch::new(0);
        let mut buffer = BytesMut::new();
        let record = |n: usize, key: Option<&'static [u8]>, value: Option<&'static [u8]>| kp::Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: 0,
            producer_id: 5,
            producer_epoch: 1,
            timestamp_type: kp::TimestampType::Creation,
            offset: n as i64,
            sequence: n as i32,
            timestamp: time(n),
            key: key.map(Bytes::from_static),
            value: value.map(Bytes::from_static),
            headers: [(StrBytes::from_static_str("h"), None)].into_iter().collect(),
        };
        let records = [record(0, None, Some(b"")), record(1, Some(b"k"), None)];
        let options = kp::RecordEncodeOptions { version: 2, compression: kp::Compression::None };
        kp::RecordBatchEncoder::encode(&mut buffer, &records, &options).unwrap();
        let krafka =
            krafka_protocol::RecordBatch::decode(&mut batch.bytes.clone()).unwrap().encode().unwrap();
        assert_eq!(krafka, batch.bytes);

        let mut decompressor = Decompressor::new(BufferPool::new(0));
        let raw = Batches::new(buffer.freeze(), BatchLimits::default()).next().unwrap().unwrap();
        assert_eq!(raw.header().producer_id, 5);
        let opened = raw.open(&mut decompressor).unwrap();
        let read: Vec<_> = opened.records().map(Result::unwrap).collect();
        assert_eq!((read[0].key(), read[0].value()), (None, Some(b"".as_slice())));
        assert_eq!((read[1].key(), read[1].value()), (Some(b"k".as_slice()), None));
        assert!(read.iter().all(|r| r.headers().map(|h| h.value).eq([None])));
    }
}
