//! How does an LZ4 frame become bytes, and bytes an LZ4 frame?
//!
//! Blocks are expanded straight into the output, so no decoder state is kept between them and earlier output serves as
//! the dictionary of linked blocks.

use super::Output;
use crate::batch::buffer::Buffer;
use crate::batch::error::DecompressError;
use crate::batch::varint::Cursor;
use lz4_flex::block;
use std::io;

const MAGIC: u32 = 0x184d_2204;
const SKIPPABLE: std::ops::RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;
/// Linked blocks refer back this far at most.
const WINDOW: usize = 64 * 1024;
/// Set in a block's size when its bytes are stored as they are.
const STORED: u32 = 1 << 31;
/// An LZ4 block expands its input by less than this factor.
const MOST_PER_BYTE: usize = 255;

const HAS_DICTIONARY: u8 = 0x01;
const HAS_CONTENT_CHECKSUM: u8 = 0x04;
const HAS_CONTENT_SIZE: u8 = 0x08;
const HAS_BLOCK_CHECKSUMS: u8 = 0x10;
const IS_INDEPENDENT: u8 = 0x20;

/// Expands all frames in `input`.
///
/// The checksums of the frame format are not compared: the batch's own has covered these bytes, and producers before
/// Kafka 0.10 computed the one of the frame header over the wrong bytes (KAFKA-3160), which therefore must be readable.
pub(super) fn decompress(input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    let mut cursor = Cursor::new(input);
    if cursor.is_empty() {
        return Err(CUT_OFF);
    }
    while !cursor.is_empty() {
        let magic = le32(&mut cursor)?;
        if SKIPPABLE.contains(&magic) {
            let len = le32(&mut cursor)?;
            cursor.take(len as usize).ok_or(CUT_OFF)?;
        } else if magic == MAGIC {
            frame(&mut cursor, output)?;
        } else {
            return Err(DecompressError::Malformed("it is not an LZ4 frame"));
        }
    }
    Ok(())
}

const CUT_OFF: DecompressError = DecompressError::Malformed("it is cut off");

fn le32(cursor: &mut Cursor<'_>) -> Result<u32, DecompressError> {
    cursor.array().map(u32::from_le_bytes).ok_or(CUT_OFF)
}

fn frame(cursor: &mut Cursor<'_>, output: &mut Output<'_>) -> Result<(), DecompressError> {
    let flags = cursor.u8().ok_or(CUT_OFF)?;
    let block_code = cursor.u8().ok_or(CUT_OFF)?;
    if flags >> 6 != 1 {
        return Err(DecompressError::Malformed("its LZ4 frame version is unknown"));
    }
    if flags & HAS_DICTIONARY != 0 {
        return Err(DecompressError::Malformed("it needs an LZ4 dictionary"));
    }
    let block_max =
        block_max(block_code).ok_or(DecompressError::Malformed("its LZ4 block size is unknown"))?;
    if flags & HAS_CONTENT_SIZE != 0 {
        let size = cursor.array().map(u64::from_le_bytes).ok_or(CUT_OFF)?;
        if size > output.allowance() as u64 {
            return Err(output.too_large());
        }
    }
    // The header checksum.
    cursor.u8().ok_or(CUT_OFF)?;
    let start = output.buffer.len();
    loop {
        let size = le32(cursor)?;
        if size == 0 {
            break;
        }
        let len = (size & !STORED) as usize;
        if len > block_max {
            return Err(DecompressError::Malformed("an LZ4 block is larger than its frame allows"));
        }
        let bytes = cursor.take(len).ok_or(CUT_OFF)?;
        if size & STORED != 0 {
            output.extend(bytes)?;
        } else {
            let linked_from = (flags & IS_INDEPENDENT == 0).then_some(start);
            expand(bytes, block_max, linked_from, output)?;
        }
        if flags & HAS_BLOCK_CHECKSUMS != 0 {
            le32(cursor)?;
        }
    }
    if flags & HAS_CONTENT_CHECKSUM != 0 {
        le32(cursor)?;
    }
    Ok(())
}

fn expand(
    bytes: &[u8],
    block_max: usize,
    linked_from: Option<usize>,
    output: &mut Output<'_>,
) -> Result<(), DecompressError> {
    let most = block_max.min(bytes.len().saturating_mul(MOST_PER_BYTE));
    let (written, room) = output.room(most);
    let limited = room.len() < most;
    let expanded = match linked_from {
        Some(start) => {
            let from = start.max(written.len().saturating_sub(WINDOW));
            block::decompress_into_with_dict(bytes, room, written.get(from..).unwrap_or_default())
        }
        None => block::decompress_into(bytes, room),
    };
    match expanded {
        Ok(len) => {
            output.buffer.advance(len);
            Ok(())
        }
        Err(block::DecompressError::OutputTooSmall { .. }) if limited => Err(output.too_large()),
        Err(_) => Err(DecompressError::Malformed("an LZ4 block is damaged")),
    }
}

fn block_max(code: u8) -> Option<usize> {
    match code {
        0x40 => Some(64 << 10),
        0x50 => Some(256 << 10),
        0x60 => Some(1 << 20),
        0x70 => Some(4 << 20),
        _ => None,
    }
}

/// Appends `plain` as one frame of independent blocks of at most 64 KiB, the size every consumer's buffers expect.
pub(super) fn compress(plain: &[u8], out: &mut Buffer) -> io::Result<()> {
    const BLOCK: usize = 64 << 10;
    const FLAGS: u8 = 0x40 | IS_INDEPENDENT;
    const BLOCK_CODE: u8 = 0x40;
    /// The second byte of the xxHash32 of the two bytes above.
    const HEADER_CHECKSUM: u8 = 0x82;

    out.extend(&MAGIC.to_le_bytes());
    out.extend(&[FLAGS, BLOCK_CODE, HEADER_CHECKSUM]);
    for chunk in plain.chunks(BLOCK) {
        out.reserve(4 + block::get_maximum_output_size(chunk.len()));
        let size_at = out.len();
        out.extend(&[0; 4]);
        let len = block::compress_into(chunk, out.spare()).map_err(io::Error::other)?;
        let size = if len < chunk.len() {
            out.advance(len);
            len as u32
        } else {
            out.extend(chunk);
            chunk.len() as u32 | STORED
        };
        if let Some(place) = out.written_mut().get_mut(size_at..size_at + 4) {
            place.copy_from_slice(&size.to_le_bytes());
        }
    }
    out.extend(&0_u32.to_le_bytes());
    Ok(())
}
