//! How does Snappy data, with or without the Java library's framing, become bytes, and bytes Snappy data?

use super::Output;
use crate::batch::buffer::Buffer;
use crate::batch::error::DecompressError;
use crate::batch::varint::Cursor;
use std::io;

/// The framing of `snappy-java` (xerial): this magic, two versions, then blocks with a big-endian length each.
const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const VERSION: u32 = 1;
/// The block size of the Java library.
const BLOCK: usize = 32 << 10;

/// The Java client frames its blocks; other clients send one bare block. Both are read.
pub(super) fn decompress(input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    let mut cursor = Cursor::new(input);
    if !input.starts_with(&MAGIC) {
        return expand(input, output);
    }
    cursor.take(MAGIC.len());
    // Version and oldest compatible version; the format never changed.
    let versions = cursor.u32().and_then(|_| cursor.u32());
    versions.ok_or(DecompressError::Malformed("its snappy header is cut off"))?;
    while !cursor.is_empty() {
        let block = cursor.u32().and_then(|len| cursor.take(len as usize));
        expand(block.ok_or(DecompressError::Malformed("a snappy block is cut off"))?, output)?;
    }
    Ok(())
}

fn expand(block: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    const DAMAGED: DecompressError = DecompressError::Malformed("a snappy block is damaged");
    let claimed = snap::raw::decompress_len(block).map_err(|_| DAMAGED)?;
    if claimed > output.allowance() {
        return Err(output.too_large());
    }
    // A copy of two or three bytes yields 64 at most, so a longer claim is false; it must not cost memory first.
    if claimed / 32 > block.len() {
        return Err(DecompressError::Malformed("a snappy block claims more than it can hold"));
    }
    let (_, room) = output.room(claimed);
    let len = snap::raw::Decoder::new().decompress(block, room).map_err(|_| DAMAGED)?;
    output.buffer.advance(len);
    Ok(())
}

/// Writes framed blocks; the hash table is reused.
pub(super) struct Encoder {
    raw: snap::raw::Encoder,
}

impl Encoder {
    pub(super) fn new() -> Encoder {
        Encoder { raw: snap::raw::Encoder::new() }
    }

    pub(super) fn compress(&mut self, plain: &[u8], out: &mut Buffer) -> io::Result<()> {
        out.extend(&MAGIC);
        out.extend(&VERSION.to_be_bytes());
        out.extend(&VERSION.to_be_bytes());
        for chunk in plain.chunks(BLOCK) {
            out.reserve(4 + snap::raw::max_compress_len(chunk.len()));
            let size_at = out.len();
            out.extend(&[0; 4]);
            let len = self.raw.compress(chunk, out.spare()).map_err(io::Error::other)?;
            out.advance(len);
            if let Some(place) = out.written_mut().get_mut(size_at..size_at + 4) {
                place.copy_from_slice(&(len as u32).to_be_bytes());
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("snappy::Encoder")
    }
}
