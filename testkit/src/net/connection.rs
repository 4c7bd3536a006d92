//! How is one connection served? Requests one after another, answers in their order, as Kafka does.
//!
//! Answers of requests that arrived together leave in one write; nothing is held back while a request waits.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::frames::Frames;
use crate::broker::{Call, Fate, Then, serve_frame};

/// Parts handed to the operating system in one write.
const PARTS: usize = 64;
/// Answers are written at the latest when this many bytes wait.
const HELD_BACK: usize = 256 * 1024;

/// Serves requests until the connection ends, by either side.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut call: Call, mut stream: S) {
    match run(&mut call, &mut stream).await {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => call.refuse(error.to_string()),
        Err(error) => tracing::debug!(broker = call.broker, peer = call.peer, %error, "a connection ended"),
        Ok(()) => {}
    }
}

async fn run<S: AsyncRead + AsyncWrite + Unpin>(call: &mut Call, stream: &mut S) -> io::Result<()> {
    let mut frames = Frames::new(call.shared.limits().frame_bytes);
    let mut out = Out::default();
    let mut is_mute = false;
    loop {
        let Some(frame) = frames.buffered()? else {
            out.flush(call, stream).await?;
            if frames.fill(stream).await? {
                continue;
            }
            return Ok(());
        };
        let Fate { write, then } = {
            let mut served = pin!(serve_frame(call, frame));
            match once(served.as_mut()).await {
                Some(fate) => fate,
                None if out.parts.is_empty() => served.await,
                None => {
                    out.write(stream).await?;
                    served.await
                }
            }
        };
        if !is_mute {
            out.push(write);
        }
        if then != Then::Continue || out.bytes >= HELD_BACK {
            out.flush(call, stream).await?;
        }
        match then {
            Then::Continue => {}
            Then::Mute => is_mute = true,
            Then::Close => return Ok(()),
            Then::HalfClose => {
                stream.shutdown().await?;
                return swallow(stream).await;
            }
            Then::Swallow => return swallow(stream).await,
        }
    }
}

/// Polls a future once.
async fn once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Reads into nothing until the peer closes.
async fn swallow<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<()> {
    let mut nothing = [0u8; 4_096];
    while stream.read(&mut nothing).await? > 0 {}
    Ok(())
}

/// Bytes that wait to be written.
#[derive(Debug, Default)]
struct Out {
    parts: VecDeque<Bytes>,
    bytes: usize,
}

impl Out {
    fn push(&mut self, parts: Vec<Bytes>) {
        for part in parts {
            if !part.is_empty() {
                self.bytes += part.len();
                self.parts.push_back(part);
            }
        }
    }

    /// Writes everything within the time a peer has to read it.
    async fn flush<S: AsyncWrite + Unpin>(&mut self, call: &Call, stream: &mut S) -> io::Result<()> {
        if self.parts.is_empty() {
            return Ok(());
        }
        let clock = &call.shared.doors.clock;
        let deadline = clock.now() + call.shared.limits().write_time;
        match clock.until(deadline, self.write(stream)).await {
            Ok(written) => written,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read its answers")),
        }
    }

    async fn write<S: AsyncWrite + Unpin>(&mut self, stream: &mut S) -> io::Result<()> {
        while !self.parts.is_empty() {
            let slices: Vec<IoSlice<'_>> =
                self.parts.iter().take(PARTS).map(|part| IoSlice::new(part)).collect();
            let mut written = stream.write_vectored(&slices).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.bytes -= written;
            while let Some(part) = self.parts.front_mut() {
                let taken = written.min(part.len());
                part.advance(taken);
                written -= taken;
                if !part.is_empty() {
                    break;
                }
                self.parts.pop_front();
            }
        }
        stream.flush().await
    }
}
