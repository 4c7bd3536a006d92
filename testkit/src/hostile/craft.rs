//! How are batches made that are wrong in one place only?
//!
//! Every field can be set to anything; lengths and checksums are right unless told otherwise, so that a decoder gets as
//! far as the field that is attacked. Written from the format's description, not from the client's encoder.

/// A v2 batch.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Base offset.
    pub base_offset: i64,
    /// Length field; `None` for the right one.
    pub length: Option<i32>,
    /// Format.
    pub magic: i8,
    /// Checksum; `None` for the right one.
    pub crc: Option<u32>,
    /// Attributes: compression, timestamp type, transactional, control.
    pub attributes: i16,
    /// Last offset delta.
    pub last_offset_delta: i32,
    /// Base timestamp.
    pub base_timestamp: i64,
    /// Record count.
    pub count: i32,
    /// The records section, compressed if the attributes say so.
    pub records: Vec<u8>,
}

impl Batch {
    /// One good record.
    #[must_use]
    pub fn good() -> Batch {
        Batch::of(&[Record::default()])
    }

    /// These records; as many offsets as records.
    #[must_use]
    pub fn of(records: &[Record]) -> Batch {
        Batch {
            base_offset: 100,
            length: None,
            magic: 2,
            crc: None,
            attributes: 0,
            last_offset_delta: records.len() as i32 - 1,
            base_timestamp: 1_000,
            count: records.len() as i32,
            records: records.iter().flat_map(Record::bytes).collect(),
        }
    }

    /// One record with this compressed section; `code` is the codec's number.
    #[must_use]
    pub fn compressed(code: i16, section: Vec<u8>) -> Batch {
        Batch { attributes: code, records: section, ..Batch::good() }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut covered = Vec::new();
        covered.extend_from_slice(&self.attributes.to_be_bytes());
        covered.extend_from_slice(&self.last_offset_delta.to_be_bytes());
        covered.extend_from_slice(&self.base_timestamp.to_be_bytes());
        covered.extend_from_slice(&self.base_timestamp.to_be_bytes());
        covered.extend_from_slice(&(-1_i64).to_be_bytes());
        covered.extend_from_slice(&(-1_i16).to_be_bytes());
        covered.extend_from_slice(&(-1_i32).to_be_bytes());
        covered.extend_from_slice(&self.count.to_be_bytes());
        covered.extend_from_slice(&self.records);
        let length = self.length.unwrap_or(9 + covered.len() as i32);
        let crc = self.crc.unwrap_or_else(|| crc32c_of(&covered));
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.base_offset.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&(-1_i32).to_be_bytes());
        bytes.push(self.magic as u8);
        bytes.extend_from_slice(&crc.to_be_bytes());
        bytes.extend_from_slice(&covered);
        bytes
    }
}

/// The checksum of v2 batches.
#[must_use]
pub fn crc32c_of(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// A v2 record. Numbers are what they claim; the parts are what is really there.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Record length; `None` for the right one.
    pub length: Option<i64>,
    /// Timestamp delta.
    pub timestamp_delta: i64,
    /// Offset delta.
    pub offset_delta: i64,
    /// Key length; `None` for a null key.
    pub key_length: Option<i64>,
    /// Value length; `None` for a null value.
    pub value_length: Option<i64>,
    /// Header count.
    pub header_count: i64,
    /// What follows the header count.
    pub headers: Vec<u8>,
}

impl Record {
    /// The bytes: no key or value is really there.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut body = vec![0];
        varint(&mut body, self.timestamp_delta);
        varint(&mut body, self.offset_delta);
        varint(&mut body, self.key_length.unwrap_or(-1));
        varint(&mut body, self.value_length.unwrap_or(-1));
        varint(&mut body, self.header_count);
        body.extend_from_slice(&self.headers);
        let mut bytes = Vec::new();
        varint(&mut bytes, self.length.unwrap_or(body.len() as i64));
        bytes.extend_from_slice(&body);
        bytes
    }
}

/// Appends a zig-zag number.
pub(super) fn varint(out: &mut Vec<u8>, value: i64) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

/// A message of magic 0 or 1.
#[derive(Clone, Debug)]
pub struct Message {
    /// Offset.
    pub offset: i64,
    /// Size field; `None` for the right one.
    pub size: Option<i32>,
    /// Checksum; `None` for the right one.
    pub crc: Option<u32>,
    /// Format: 0 or 1; 1 has a timestamp.
    pub magic: i8,
    /// Attributes: compression and, for magic 1, the timestamp type.
    pub attributes: i8,
    /// Key length.
    pub key_length: i32,
    /// Value length; `None` for the right one.
    pub value_length: Option<i32>,
    /// The value.
    pub value: Vec<u8>,
    /// Bytes after the value.
    pub trailing: Vec<u8>,
}

impl Message {
    /// A good message.
    #[must_use]
    pub fn good(magic: i8, offset: i64) -> Message {
        Message {
            offset,
            size: None,
            crc: None,
            magic,
            attributes: 0,
            key_length: -1,
            value_length: None,
            value: b"v".to_vec(),
            trailing: Vec::new(),
        }
    }

    /// A wrapper around a set that is compressed with gzip.
    #[must_use]
    pub fn wrapper(magic: i8, offset: i64, set: &[u8]) -> Message {
        Message { attributes: 1, value: super::bombs::gzip(set), ..Message::good(magic, offset) }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut covered = vec![self.magic as u8, self.attributes as u8];
        if self.magic != 0 {
            covered.extend_from_slice(&1_000_i64.to_be_bytes());
        }
        covered.extend_from_slice(&self.key_length.to_be_bytes());
        covered.extend_from_slice(&self.value_length.unwrap_or(self.value.len() as i32).to_be_bytes());
        covered.extend_from_slice(&self.value);
        covered.extend_from_slice(&self.trailing);
        let size = self.size.unwrap_or(4 + covered.len() as i32);
        let mut crc = flate2::Crc::new();
        crc.update(&covered);
        let crc = self.crc.unwrap_or(crc.sum());
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.offset.to_be_bytes());
        bytes.extend_from_slice(&size.to_be_bytes());
        bytes.extend_from_slice(&crc.to_be_bytes());
        bytes.extend_from_slice(&covered);
        bytes
    }
}
