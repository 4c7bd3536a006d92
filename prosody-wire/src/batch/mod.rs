//! Record batches: how records lie in a fetch response and in a produce request.
//!
//! ```text
//! fetch response ── Batches ──▶ RawBatch ── open ──▶ Batch ── records ──▶ RecordView ── headers ──▶ HeaderView
//!  (one Bytes)      bounds,      header,     expand    one Bytes, shared     ranges into it        decoded on access
//!                   checksum     no copy     once      by all its records    no allocation         no allocation
//!
//! BatchBuilder ── append… ──▶ one growing buffer ── seal ──▶ Bytes   (header patched, compressed, checksummed)
//! ```
//!
//! Everything that comes from a peer is checked: counts and lengths against the bytes that are there, offsets and
//! timestamps against overflow, compressed data against an output limit. Nothing here awaits, logs or reads a clock.
//!
//! | file | question it answers |
//! |---|---|
//! | `header.rs` | what does the header of a batch say? |
//! | `decode.rs` | where does the next batch begin, and may it be believed? |
//! | `iter.rs` | what are the records of a batch? |
//! | `record.rs` | what is one record, and how does it outlive the batch? |
//! | `legacy.rs` | how are magic 0 and 1 messages read? |
//! | `encode.rs` | how is a batch written? |
//! | `compress/` | how are bytes compressed and, within a limit, expanded? |
//! | `buffer.rs` | where does the memory come from, and how is it counted? |
//! | `varint.rs`, `error.rs` | numbers; what can be wrong |

mod buffer;
mod compress;
mod decode;
mod encode;
mod error;
mod header;
mod iter;
mod legacy;
mod record;
mod varint;

pub use buffer::{Buffer, BufferPool};
pub use compress::{Compression, Compressor, Decompressor};
pub use decode::{Batch, Batches, RawBatch};
pub use encode::{BatchBuilder, BatchFull, ProducerStamp, restamp};
pub use error::{BatchError, BatchErrorKind, DecompressError, MessageError, RecordError};
pub use header::{BatchHeader, HEADER_BYTES, TimestampKind};
pub use iter::Records;
pub use record::{ControlKind, HeaderView, Headers, Record, RecordSpan, RecordView};

/// What one batch may make us hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Bytes a batch may expand to. Default 64 MiB.
    pub decompressed_bytes: usize,
    /// Headers one record may carry. Default 4,096.
    pub headers_per_record: u32,
}

impl Default for BatchLimits {
    fn default() -> BatchLimits {
        BatchLimits { decompressed_bytes: 64 << 20, headers_per_record: 4096 }
    }
}

#[cfg(test)]
mod tests;
