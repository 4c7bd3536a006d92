//! How are bytes compressed and, within a limit, expanded?
//!
//! Output goes straight into the buffer the records will be read from. Contexts live as long as the [`Compressor`] or
//! [`Decompressor`] and are made when a codec is first used, so keep one of each per task.

mod gzip;
mod lz4;
mod snappy;
mod zstandard;

use super::buffer::{Buffer, BufferPool};
use super::error::DecompressError;
use bytes::Bytes;
use std::io;

/// The codecs of the Kafka protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compression {
    /// Stored as they are.
    None,
    /// DEFLATE in a gzip envelope.
    Gzip,
    /// Snappy blocks in the framing of the Java library (xerial).
    Snappy,
    /// LZ4 frames. The default: cheap for both sides.
    #[default]
    Lz4,
    /// Zstandard frames (KIP-110; brokers since 2.1).
    Zstd,
}

impl Compression {
    /// Every codec, in the order of their codes.
    pub const ALL: [Compression; 5] =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    /// The number in the attributes of a batch.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The codec with this number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Compression> {
        Compression::ALL.get(usize::from(code)).copied()
    }

    /// The name brokers and configurations use: `none`, `gzip`, `snappy`, `lz4`, `zstd`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Compresses the records of batches.
#[derive(Debug, Default)]
pub struct Compressor {
    gzip: Option<gzip::Encoder>,
    snappy: Option<snappy::Encoder>,
    zstd: Option<zstandard::Encoder>,
}

impl Compressor {
    /// No context is made yet.
    #[must_use]
    pub fn new() -> Compressor {
        Compressor::default()
    }

    /// Appends `plain`, compressed, to `out`.
    ///
    /// # Errors
    /// When the codec fails, which only lack of memory explains.
    pub fn compress(&mut self, codec: Compression, plain: &[u8], out: &mut Buffer) -> io::Result<()> {
        match codec {
            Compression::None => {
                out.extend(plain);
                Ok(())
            }
            Compression::Gzip => self.gzip.get_or_insert_with(gzip::Encoder::new).compress(plain, out),
            Compression::Snappy => self.snappy.get_or_insert_with(snappy::Encoder::new).compress(plain, out),
            Compression::Lz4 => lz4::compress(plain, out),
            Compression::Zstd => match &mut self.zstd {
                Some(encoder) => encoder.compress(plain, out),
                none => none.insert(zstandard::Encoder::new()?).compress(plain, out),
            },
        }
    }
}

/// Expands the records of batches into buffers of a pool.
#[derive(Debug)]
pub struct Decompressor {
    pool: BufferPool,
    gzip: Option<gzip::Decoder>,
    zstd: Option<zstandard::Decoder>,
    /// Output bytes per 16 input bytes that the last batch of each codec came to: the next buffer fits at once.
    ratios: [usize; Compression::ALL.len()],
}

impl Decompressor {
    /// A decompressor whose output lives in `pool`. No context is made yet.
    #[must_use]
    pub fn new(pool: BufferPool) -> Decompressor {
        const FOURFOLD: usize = 64;
        Decompressor { pool, gzip: None, zstd: None, ratios: [FOURFOLD; Compression::ALL.len()] }
    }

    /// The pool its output lives in.
    #[must_use]
    pub fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// The expanded bytes, at most `limit` of them.
    ///
    /// # Errors
    /// When the data is damaged or would expand further; no more than about twice `limit` is ever allocated.
    pub fn decompress(
        &mut self,
        codec: Compression,
        compressed: &[u8],
        limit: usize,
    ) -> Result<Bytes, DecompressError> {
        self.expand(codec, compressed, limit).map(|(bytes, _)| bytes)
    }

    /// The expanded bytes and the memory that holds them.
    pub(super) fn expand(
        &mut self,
        codec: Compression,
        compressed: &[u8],
        limit: usize,
    ) -> Result<(Bytes, usize), DecompressError> {
        let ratio = self.ratios.get(usize::from(codec.code())).copied().unwrap_or(16);
        let guess = (compressed.len().saturating_mul(ratio) / 16).min(limit);
        let mut out = self.pool.take(guess);
        let mut output = Output { buffer: &mut out, limit };
        match codec {
            Compression::None => output.extend(compressed)?,
            Compression::Gzip => {
                self.gzip.get_or_insert_with(gzip::Decoder::new).decompress(compressed, &mut output)?;
            }
            Compression::Snappy => snappy::decompress(compressed, &mut output)?,
            Compression::Lz4 => lz4::decompress(compressed, &mut output)?,
            Compression::Zstd => {
                self.zstd.get_or_insert_with(zstandard::Decoder::new).decompress(compressed, &mut output)?;
            }
        }
        if let Some(ratio) = self.ratios.get_mut(usize::from(codec.code())) {
            // An eighth more, because batches of one topic are alike but not equal.
            let seen = out.len().saturating_mul(18).div_ceil(compressed.len().max(1));
            *ratio = seen.clamp(16, 1024);
        }
        out.trim();
        let capacity = out.capacity();
        Ok((out.freeze(), capacity))
    }
}

/// A buffer that refuses to grow beyond a limit.
pub(super) struct Output<'a> {
    buffer: &'a mut Buffer,
    limit: usize,
}

impl Output<'_> {
    /// Bytes that may still be written.
    fn allowance(&self) -> usize {
        self.limit.saturating_sub(self.buffer.len())
    }

    fn too_large(&self) -> DecompressError {
        DecompressError::TooLarge { limit: self.limit }
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), DecompressError> {
        if bytes.len() > self.allowance() {
            return Err(self.too_large());
        }
        self.buffer.extend(bytes);
        Ok(())
    }

    /// Room for `len` bytes or for what the limit allows, whichever is less: the written bytes and that room.
    fn room(&mut self, len: usize) -> (&[u8], &mut [u8]) {
        let len = len.min(self.allowance());
        self.buffer.reserve(len);
        let (written, spare) = self.buffer.parts();
        (written, spare.get_mut(..len).unwrap_or_default())
    }

    /// All the room there is without growing, within the limit; never empty unless the limit is reached.
    fn spare(&mut self) -> &mut [u8] {
        if self.buffer.spare().is_empty() {
            self.buffer.reserve(1);
        }
        let allowance = self.allowance();
        let spare = self.buffer.spare();
        let len = spare.len().min(allowance);
        spare.get_mut(..len).unwrap_or_default()
    }
}
