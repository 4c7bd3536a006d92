//! How does a gzip stream become bytes, and bytes a gzip stream (RFC 1952)?
//!
//! The envelope is ours so that the DEFLATE state can be reset and used again.

use super::Output;
use crate::batch::buffer::Buffer;
use crate::batch::error::DecompressError;
use crate::batch::varint::Cursor;
use flate2::{Compress, Compression as Level, Crc, Decompress, FlushCompress, FlushDecompress, Status};
use std::io;

const MAGIC: [u8; 2] = [0x1f, 0x8b];
const DEFLATE: u8 = 8;
const HAS_HEADER_CRC: u8 = 0x02;
const HAS_EXTRA: u8 = 0x04;
const HAS_NAME: u8 = 0x08;
const HAS_COMMENT: u8 = 0x10;
const CUT_OFF: DecompressError = DecompressError::Malformed("its gzip stream is cut off");

#[derive(Debug)]
pub(super) struct Decoder {
    inflate: Decompress,
}

impl Decoder {
    pub(super) fn new() -> Decoder {
        Decoder { inflate: Decompress::new(false) }
    }

    /// Expands all members of the stream. The batch's checksum has covered them, so their CRC-32 is not computed again;
    /// their length is compared.
    pub(super) fn decompress(
        &mut self,
        input: &[u8],
        output: &mut Output<'_>,
    ) -> Result<(), DecompressError> {
        let mut cursor = Cursor::new(input);
        if cursor.is_empty() {
            return Err(CUT_OFF);
        }
        while !cursor.is_empty() {
            skip_header(&mut cursor)?;
            let start = output.buffer.len();
            self.inflate(&mut cursor, output)?;
            let _crc = cursor.u32().ok_or(CUT_OFF)?;
            let len = cursor.array().map(u32::from_le_bytes).ok_or(CUT_OFF)?;
            if len != (output.buffer.len() - start) as u32 {
                return Err(DecompressError::Malformed("its gzip length is wrong"));
            }
        }
        Ok(())
    }

    fn inflate(&mut self, cursor: &mut Cursor<'_>, output: &mut Output<'_>) -> Result<(), DecompressError> {
        const DAMAGED: DecompressError = DecompressError::Malformed("its DEFLATE data is damaged");
        self.inflate.reset(false);
        loop {
            let (read_before, wrote_before) = (self.inflate.total_in(), self.inflate.total_out());
            let spare = output.spare();
            let is_full = spare.is_empty();
            let status = self.inflate.decompress(cursor.rest(), spare, FlushDecompress::None);
            let read = (self.inflate.total_in() - read_before) as usize;
            let wrote = (self.inflate.total_out() - wrote_before) as usize;
            output.buffer.advance(wrote);
            cursor.take(read).ok_or(DAMAGED)?;
            match status.map_err(|_| DAMAGED)? {
                Status::StreamEnd => return Ok(()),
                _ if read > 0 || wrote > 0 => {}
                // Without progress: the output is full, or the input has ended too early.
                _ if is_full => return Err(output.too_large()),
                _ => return Err(CUT_OFF),
            }
        }
    }
}

fn skip_header(cursor: &mut Cursor<'_>) -> Result<(), DecompressError> {
    let [m0, m1, method, flags, ..] = cursor.array::<10>().ok_or(CUT_OFF)?;
    if [m0, m1] != MAGIC || method != DEFLATE {
        return Err(DecompressError::Malformed("it is not a gzip stream"));
    }
    if flags & HAS_EXTRA != 0 {
        let len = cursor.array().map(u16::from_le_bytes).ok_or(CUT_OFF)?;
        cursor.take(len.into()).ok_or(CUT_OFF)?;
    }
    for field in [HAS_NAME, HAS_COMMENT] {
        if flags & field != 0 {
            let len = cursor.rest().iter().position(|byte| *byte == 0).ok_or(CUT_OFF)?;
            cursor.take(len + 1).ok_or(CUT_OFF)?;
        }
    }
    if flags & HAS_HEADER_CRC != 0 {
        cursor.take(2).ok_or(CUT_OFF)?;
    }
    Ok(())
}

#[derive(Debug)]
pub(super) struct Encoder {
    deflate: Compress,
}

impl Encoder {
    pub(super) fn new() -> Encoder {
        Encoder { deflate: Compress::new(Level::default(), false) }
    }

    pub(super) fn compress(&mut self, plain: &[u8], out: &mut Buffer) -> io::Result<()> {
        const UNKNOWN_SYSTEM: u8 = 255;
        out.extend(&[MAGIC[0], MAGIC[1], DEFLATE, 0, 0, 0, 0, 0, 0, UNKNOWN_SYSTEM]);
        self.deflate.reset();
        let mut rest = Cursor::new(plain);
        loop {
            out.reserve(1024);
            let (read_before, wrote_before) = (self.deflate.total_in(), self.deflate.total_out());
            let status = self.deflate.compress(rest.rest(), out.spare(), FlushCompress::Finish)?;
            rest.take((self.deflate.total_in() - read_before) as usize);
            out.advance((self.deflate.total_out() - wrote_before) as usize);
            if status == Status::StreamEnd {
                break;
            }
        }
        let mut crc = Crc::new();
        crc.update(plain);
        out.extend(&crc.sum().to_le_bytes());
        out.extend(&(plain.len() as u32).to_le_bytes());
        Ok(())
    }
}
