//! What can be wrong with a record batch, and how is it said?

use super::Compression;

/// A batch that cannot be read. Nothing in it was delivered.
///
/// The bytes came through a checksum in most cases, so another fetch of the same batch usually fails the same way;
/// only [`BatchErrorKind::Crc`] may be damage on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchError {
    /// The offset the batch claims to start at (for magic 0 and 1: the offset of the outer message).
    pub base_offset: i64,
    /// What is wrong.
    pub kind: BatchErrorKind,
}

/// The ways in which a batch can be wrong. Each is a check that a peer can run into.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchErrorKind {
    /// The length field is too small to hold the rest of the header.
    Length {
        /// What it says.
        length: i32,
    },
    /// A record format that does not exist.
    Magic(i8),
    /// The checksum over the batch differs from the one it carries.
    Crc {
        /// Over the bytes received.
        computed: u32,
        /// As stored in the header.
        stored: u32,
    },
    /// A compression code that does not exist.
    Codec(u8),
    /// The base offset is negative.
    BaseOffset,
    /// The last offset delta is negative.
    LastOffsetDelta(i32),
    /// The last offset does not fit into 63 bits.
    OffsetOverflow,
    /// The record count is negative.
    RecordCount(i32),
    /// More records than the bytes can hold.
    RecordsForBytes {
        /// Records claimed.
        count: u32,
        /// Bytes of the records section, decompressed.
        bytes: usize,
    },
    /// More records than offsets.
    RecordsForOffsets {
        /// Records claimed.
        count: u32,
        /// The last offset delta.
        last_offset_delta: i32,
    },
    /// Decompression failed.
    Decompress {
        /// The codec.
        codec: Compression,
        /// What it found.
        why: DecompressError,
    },
    /// Bytes follow the last record.
    TrailingBytes(usize),
    /// One record is wrong.
    Record {
        /// Which, counted from 0.
        index: u32,
        /// What is wrong with it.
        why: RecordError,
    },
    /// One message of a magic 0 or 1 set is wrong.
    Message {
        /// Which, counted from 0 inside the wrapper.
        index: u32,
        /// What is wrong with it.
        why: MessageError,
    },
}

/// What can be wrong with one record of a v2 batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// A number is cut off or too long for its type.
    Number,
    /// The record length is negative.
    Length(i32),
    /// The record runs past the end of the batch.
    Truncated,
    /// The timestamp does not fit into 64 bits.
    Timestamp,
    /// The offset delta is negative or beyond the batch's last offset.
    OffsetDelta(i32),
    /// The offset is not above the one before it.
    OffsetOrder(i32),
    /// The key length is below −1 or runs past the record.
    KeyLength(i32),
    /// The value length is below −1 or runs past the record.
    ValueLength(i32),
    /// The header count is negative.
    HeaderCount(i32),
    /// More headers than the limit or than the record has room for.
    TooManyHeaders(i32),
    /// A header key length is negative or runs past the record.
    HeaderKeyLength(i32),
    /// A header value length is below −1 or runs past the record.
    HeaderValueLength(i32),
    /// The record is longer than its fields.
    TrailingBytes(usize),
}

/// What can be wrong with one message of magic 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageError {
    /// A field is cut off.
    Truncated,
    /// The size field is too small for a message, or runs past the set.
    Size(i32),
    /// The key length is below −1 or runs past the message.
    KeyLength(i32),
    /// The value length is below −1 or runs past the message.
    ValueLength(i32),
    /// The message is longer than its fields.
    TrailingBytes(usize),
    /// A message inside a wrapper has another format than the wrapper.
    MixedMagic(i8),
    /// A wrapper inside a wrapper.
    Nested,
    /// A compressed wrapper without a value, or with no message inside.
    Empty,
    /// The offset is not above the one before it, or does not fit.
    Offset,
}

/// Why compressed bytes could not be expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecompressError {
    /// They expand to more than this many bytes.
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// They do not follow their format.
    Malformed(&'static str),
}

impl std::fmt::Display for BatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "record batch at offset {}: {}", self.base_offset, self.kind)
    }
}

impl std::error::Error for BatchError {}

impl std::fmt::Display for BatchErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BatchErrorKind::Length { length } => {
                write!(f, "its length field says {length}, too little for a header")
            }
            BatchErrorKind::Magic(magic) => write!(f, "record format (magic) {magic} does not exist"),
            BatchErrorKind::Crc { computed, stored } => {
                write!(f, "the checksum of its bytes is {computed:#010x}, the one it carries {stored:#010x}")
            }
            BatchErrorKind::Codec(code) => write!(f, "compression code {code} does not exist"),
            BatchErrorKind::BaseOffset => f.write_str("the base offset is negative"),
            BatchErrorKind::LastOffsetDelta(delta) => {
                write!(f, "the last offset delta {delta} is negative")
            }
            BatchErrorKind::OffsetOverflow => f.write_str("its last offset does not fit into 63 bits"),
            BatchErrorKind::RecordCount(count) => write!(f, "the record count {count} is negative"),
            BatchErrorKind::RecordsForBytes { count, bytes } => {
                write!(f, "{count} records cannot fit into {bytes} bytes")
            }
            BatchErrorKind::RecordsForOffsets { count, last_offset_delta } => {
                write!(f, "{count} records do not fit a last offset delta of {last_offset_delta}")
            }
            BatchErrorKind::Decompress { codec, why } => write!(f, "{codec} data {why}"),
            BatchErrorKind::TrailingBytes(bytes) => write!(f, "{bytes} bytes follow its last record"),
            BatchErrorKind::Record { index, why } => write!(f, "record {index} {why}"),
            BatchErrorKind::Message { index, why } => write!(f, "message {index} {why}"),
        }
    }
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecordError::Number => f.write_str("has a number that is cut off or too long for its type"),
            RecordError::Length(length) => write!(f, "has the negative length {length}"),
            RecordError::Truncated => f.write_str("runs past the end of the batch"),
            RecordError::Timestamp => f.write_str("has a timestamp that does not fit into 64 bits"),
            RecordError::OffsetDelta(delta) => write!(f, "has offset delta {delta}, outside its batch"),
            RecordError::OffsetOrder(delta) => {
                write!(f, "has offset delta {delta}, not above the one before")
            }
            RecordError::KeyLength(length) => write!(f, "has key length {length}, outside the record"),
            RecordError::ValueLength(length) => write!(f, "has value length {length}, outside the record"),
            RecordError::HeaderCount(count) => write!(f, "has the negative header count {count}"),
            RecordError::TooManyHeaders(count) => write!(f, "claims {count} headers, more than are allowed"),
            RecordError::HeaderKeyLength(length) => {
                write!(f, "has header key length {length}, outside the record")
            }
            RecordError::HeaderValueLength(length) => {
                write!(f, "has header value length {length}, outside the record")
            }
            RecordError::TrailingBytes(bytes) => write!(f, "has {bytes} bytes after its last field"),
        }
    }
}

impl std::fmt::Display for MessageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MessageError::Truncated => f.write_str("is cut off"),
            MessageError::Size(size) => write!(f, "has size {size}, outside its set"),
            MessageError::KeyLength(length) => write!(f, "has key length {length}, outside the message"),
            MessageError::ValueLength(length) => write!(f, "has value length {length}, outside the message"),
            MessageError::TrailingBytes(bytes) => write!(f, "has {bytes} bytes after its last field"),
            MessageError::MixedMagic(magic) => write!(f, "has format {magic}, unlike its wrapper"),
            MessageError::Nested => f.write_str("is compressed inside a compressed message"),
            MessageError::Empty => f.write_str("is a compressed wrapper with nothing inside"),
            MessageError::Offset => {
                f.write_str("has an offset that is not above the one before, or does not fit")
            }
        }
    }
}

impl std::fmt::Display for DecompressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DecompressError::TooLarge { limit } => {
                write!(f, "expands to more than the limit of {limit} bytes")
            }
            DecompressError::Malformed(what) => write!(f, "is damaged: {what}"),
        }
    }
}

impl std::error::Error for DecompressError {}
