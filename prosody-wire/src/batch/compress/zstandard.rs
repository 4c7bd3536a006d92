//! How does a Zstandard frame become bytes, and bytes a Zstandard frame?

use super::Output;
use crate::batch::buffer::Buffer;
use crate::batch::error::DecompressError;
use std::io;
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx};

/// The level Kafka uses when none is configured.
const LEVEL: i32 = 3;

/// Expands in one piece, straight into the output: no window of the frame's choosing is ever allocated.
pub(super) struct Decoder {
    context: Option<DCtx<'static>>,
}

impl Decoder {
    pub(super) fn new() -> Decoder {
        Decoder { context: DCtx::try_create() }
    }

    pub(super) fn decompress(
        &mut self,
        input: &[u8],
        output: &mut Output<'_>,
    ) -> Result<(), DecompressError> {
        const NOT_A_FRAME: DecompressError = DecompressError::Malformed("it is not a zstd frame");
        let context =
            self.context.as_mut().ok_or(DecompressError::Malformed("no memory for a zstd context"))?;
        // Only a hint: it is the first frame's claim. The Java client writes none.
        let claimed = zstd_safe::get_frame_content_size(input).map_err(|_| NOT_A_FRAME)?;
        if claimed.is_some_and(|claimed| claimed > output.allowance() as u64) {
            return Err(output.too_large());
        }
        // A claim far above the input is not believed beforehand; growing costs at most the work again.
        let mut room = (claimed.unwrap_or(0) as usize).min(input.len().saturating_mul(64).max(1024));
        loop {
            let allowance = output.allowance();
            room = room.max(output.buffer.capacity() - output.buffer.len()).min(allowance);
            let (_, spare) = output.room(room);
            match context.decompress(spare, input) {
                Ok(len) => {
                    output.buffer.advance(len);
                    return Ok(());
                }
                Err(code) if is_too_small(code) => {
                    if room == allowance {
                        return Err(output.too_large());
                    }
                    room = room.saturating_mul(2).max(1024);
                }
                Err(_) => return Err(DecompressError::Malformed("its zstd frame is damaged")),
            }
        }
    }
}

/// The library's stable name for "the output buffer was too small".
fn is_too_small(code: usize) -> bool {
    zstd_safe::get_error_name(code) == "Destination buffer is too small"
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("zstandard::Decoder")
    }
}

pub(super) struct Encoder {
    context: CCtx<'static>,
}

impl Encoder {
    pub(super) fn new() -> io::Result<Encoder> {
        let mut context =
            CCtx::try_create().ok_or_else(|| io::Error::other("no memory for a zstd context"))?;
        context.set_parameter(CParameter::CompressionLevel(LEVEL)).map_err(failed)?;
        Ok(Encoder { context })
    }

    pub(super) fn compress(&mut self, plain: &[u8], out: &mut Buffer) -> io::Result<()> {
        out.reserve(zstd_safe::compress_bound(plain.len()));
        let len = self.context.compress2(out.spare(), plain).map_err(failed)?;
        out.advance(len);
        Ok(())
    }
}

fn failed(code: usize) -> io::Error {
    io::Error::other(zstd_safe::get_error_name(code))
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("zstandard::Encoder")
    }
}
