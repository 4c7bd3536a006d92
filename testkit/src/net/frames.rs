//! Where does a request end? Frames out of a byte stream, bounded, without copying their bytes.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes read at a time.
const READ: usize = 64 * 1024;
/// Room that is worth a read of its own; with less the buffer is replaced.
const SPARE: usize = 4 * 1024;
/// A frame announced larger than this gets its memory as its bytes arrive, not before.
const TRUSTED: usize = 1 << 20;

/// The received bytes of one connection.
#[derive(Debug)]
pub(super) struct Frames {
    buffer: BytesMut,
    limit: usize,
}

impl Frames {
    /// Frames of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Frames {
        Frames { buffer: BytesMut::new(), limit }
    }

    /// The next frame if all of it has arrived.
    ///
    /// # Errors
    /// `InvalidData` for a length that no request has.
    pub(super) fn buffered(&mut self) -> io::Result<Option<Bytes>> {
        let Some(length) = self.length()? else { return Ok(None) };
        if self.buffer.len() < 4 + length {
            return Ok(None);
        }
        self.buffer.advance(4);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Reads more bytes; `false` at the end of the stream.
    pub(super) async fn fill<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> io::Result<bool> {
        let missing = match self.length()? {
            Some(length) => {
                (4 + length).saturating_sub(self.buffer.len()).min(self.buffer.len().max(TRUSTED))
            }
            None => 0,
        };
        if self.buffer.capacity() - self.buffer.len() < missing.max(SPARE) {
            self.buffer.reserve(missing.max(READ));
        }
        Ok(stream.read_buf(&mut self.buffer).await? > 0)
    }

    fn length(&self) -> io::Result<Option<usize>> {
        let Some(length) = self.buffer.get(..4).and_then(|length| length.try_into().ok()) else {
            return Ok(None);
        };
        let (claimed, limit) = (i32::from_be_bytes(length), self.limit);
        match usize::try_from(claimed) {
            Ok(length) if length <= limit => Ok(Some(length)),
            _ => {
                let why = format!("a frame of {claimed} bytes; the limit is {limit}");
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
        }
    }
}
