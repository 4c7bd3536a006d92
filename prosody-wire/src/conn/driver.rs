//! Who moves the bytes of one connection? The two tasks that own its socket.
//!
//! The reader hands every frame to the machine and completes the waiting call. The writer drains all frames that are
//! ready into one vectored write and keeps the time: it alone ends calls that waited too long.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prosody_base::{Clock, Doors, Instant, Lane, Task};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, oneshot};

use super::frame::{self, LENGTH_BYTES};
use super::machine::Machine;
use crate::error::{Error, ErrorKind};
use crate::net::Stream;

/// Bytes asked for while no frame is open. Small frames are slices of this buffer; of a longer frame at most this much
/// is copied, the rest is read straight into a buffer of the frame's own size.
const READ_CHUNK: usize = 8 * 1024;
/// Segments of one vectored write. More wait for the next one.
const SEGMENTS_PER_WRITE: usize = 64;

type Answer = oneshot::Sender<Result<Bytes, Error>>;

/// What callers, reader and writer share.
#[derive(Debug)]
pub(super) struct Shared {
    machine: Mutex<Machine<Answer>>,
    /// Rung when the writer has something to write or to watch.
    work: Notify,
    frame_limit: usize,
    clock: Clock,
}

impl Shared {
    pub(super) fn new(machine: Machine<Answer>, frame_limit: usize, clock: Clock) -> Shared {
        Shared { machine: Mutex::new(machine), work: Notify::new(), frame_limit, clock }
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Machine<Answer>> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ring(&self) {
        self.work.notify_one();
    }

    /// Fails every open call with `cause` and every later one too.
    pub(super) fn close(&self, cause: &Error) {
        let failed = self.machine().close(cause);
        self.ring();
        for (waiter, error) in failed {
            let _ = waiter.send(Err(error));
        }
    }

    fn ended(&self) -> Error {
        let machine = self.machine();
        let doing = format!("connection to {}", machine.peer());
        Error::new(doing, ErrorKind::Closed(machine.why_ended()))
    }

    fn broken(&self, cause: io::Error) -> Error {
        let machine = self.machine();
        Error::io(format!("connection to {}", machine.peer()), cause)
    }
}

/// Starts both tasks on the I/O lane. The writer owns the reader, so that whatever ends one ends the other and closes
/// the socket; dropping the returned task does too.
pub(super) fn start(shared: &Arc<Shared>, stream: Box<dyn Stream>, doors: &Doors) -> Task<()> {
    let (from_peer, to_peer) = tokio::io::split(stream);
    let reader = doors.spawner.spawn(Lane::Io, read(Arc::clone(shared), from_peer));
    let writer = write(Arc::clone(shared), to_peer, doors.clock.clone(), reader);
    doors.spawner.spawn(Lane::Io, writer)
}

async fn read(shared: Arc<Shared>, mut from_peer: ReadHalf<Box<dyn Stream>>) {
    let Err(cause) = read_until_broken(&shared, &mut from_peer).await;
    shared.close(&cause);
}

async fn read_until_broken(
    shared: &Shared,
    from_peer: &mut ReadHalf<Box<dyn Stream>>,
) -> Result<Infallible, Error> {
    let mut buffer = BytesMut::with_capacity(READ_CHUNK);
    loop {
        while let Some(prefix) = buffer.first_chunk::<LENGTH_BYTES>() {
            let length = frame::length(*prefix, shared.frame_limit)
                .map_err(|cause| Error::decode(format!("reading from {}", shared.machine().peer()), cause))?;
            if buffer.len() >= LENGTH_BYTES + length {
                buffer.advance(LENGTH_BYTES);
                deliver(shared, buffer.split_to(length).freeze())?;
            } else if length > READ_CHUNK {
                buffer.advance(LENGTH_BYTES);
                shared.machine().began(shared.clock.now());
                let mut frame = BytesMut::with_capacity(length);
                frame.put(buffer.split());
                while frame.len() < length {
                    let missing = length - frame.len();
                    let mut rest = (&mut frame).limit(missing);
                    fill(shared, from_peer, &mut rest).await?;
                }
                deliver(shared, frame.freeze())?;
            } else {
                break;
            }
        }
        buffer.reserve(READ_CHUNK);
        fill(shared, from_peer, &mut buffer).await?;
    }
}

/// Reads what there is; an end of the stream is an error here, because only we end connections in peace.
async fn fill<B: BufMut>(
    shared: &Shared,
    from_peer: &mut ReadHalf<Box<dyn Stream>>,
    buffer: &mut B,
) -> Result<(), Error> {
    match from_peer.read_buf(buffer).await {
        Ok(0) => Err(shared.ended()),
        Ok(_) => Ok(()),
        // A TLS peer that goes without saying goodbye; brokers do.
        Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => Err(shared.ended()),
        Err(cause) => Err(shared.broken(cause)),
    }
}

fn deliver(shared: &Shared, frame: Bytes) -> Result<(), Error> {
    let (waiter, body, more) = {
        let mut machine = shared.machine();
        let (waiter, body) = machine.received(frame, shared.clock.now())?;
        (waiter, body, machine.has_queued())
    };
    if more {
        shared.ring(); // the in-flight cap may have held frames back
    }
    // A caller that went away is no error: its answer is simply dropped.
    let _ = waiter.send(Ok(body));
    Ok(())
}

async fn write(
    shared: Arc<Shared>,
    mut to_peer: WriteHalf<Box<dyn Stream>>,
    clock: Clock,
    _reader: Task<()>,
) {
    let mut segments = VecDeque::new();
    let mut unflushed = false;
    let mut alarm: Option<Alarm> = None;
    loop {
        let (wake_at, closed) = {
            let now = clock.now();
            let mut machine = shared.machine();
            if segments.is_empty() {
                machine.ready(now, &mut segments);
            }
            (machine.wake_at(now), machine.closed().is_some())
        };
        if closed {
            let _ = to_peer.shutdown().await;
            return;
        }
        // The alarm is only moved forward: an early ring costs one look at the machine, a re-armed timer one per call.
        if let Some(at) = wake_at
            && alarm.as_ref().is_none_or(|armed| at < armed.at)
        {
            let clock = clock.clone();
            alarm = Some(Alarm { at, sleep: Box::pin(async move { clock.sleep_until(at).await }) });
        }
        let idle = segments.is_empty() && !unflushed;
        tokio::select! {
            biased;
            written = write_some(&mut to_peer, &mut segments, &mut unflushed), if !idle => {
                if let Err(cause) = written {
                    shared.close(&shared.broken(cause));
                }
            }
            // While a write waits, this notices a connection that ended meanwhile.
            () = shared.work.notified() => {}
            () = ring(&mut alarm), if alarm.is_some() => {
                alarm = None;
                expire(&shared, clock.now());
            }
        }
    }
}

/// A timer of the writer.
struct Alarm {
    at: Instant,
    sleep: Pin<Box<dyn Future<Output = ()> + Send>>,
}

async fn ring(alarm: &mut Option<Alarm>) {
    match alarm {
        Some(armed) => armed.sleep.as_mut().await,
        None => std::future::pending().await,
    }
}

fn expire(shared: &Shared, now: Instant) {
    let expired = shared.machine().expire(now);
    match expired {
        Ok(failed) => {
            for (waiter, error) in failed {
                let _ = waiter.send(Err(error));
            }
        }
        Err(cause) => shared.close(&cause),
    }
}

/// One vectored write of what is at the front of `segments`; drops what was taken. After the last one it flushes: TLS
/// holds back what its socket did not take, and nothing else would ever write it.
async fn write_some(
    to_peer: &mut WriteHalf<Box<dyn Stream>>,
    segments: &mut VecDeque<Bytes>,
    unflushed: &mut bool,
) -> io::Result<()> {
    if !segments.is_empty() {
        write_once(to_peer, segments).await?;
        *unflushed = true;
    }
    if segments.is_empty() {
        to_peer.flush().await?;
        *unflushed = false;
    }
    Ok(())
}

async fn write_once(
    to_peer: &mut WriteHalf<Box<dyn Stream>>,
    segments: &mut VecDeque<Bytes>,
) -> io::Result<()> {
    let mut taken = {
        let mut slices = [IoSlice::new(&[]); SEGMENTS_PER_WRITE];
        let mut used = 0;
        for (slice, segment) in slices.iter_mut().zip(segments.iter()) {
            *slice = IoSlice::new(segment);
            used += 1;
        }
        let slices = slices.get(..used).unwrap_or(&[]);
        poll_fn(|cx| Pin::new(&mut *to_peer).poll_write_vectored(cx, slices)).await?
    };
    if taken == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    }
    while let Some(front) = segments.front_mut() {
        if taken < front.len() {
            front.advance(taken);
            break;
        }
        taken -= front.len();
        segments.pop_front();
    }
    Ok(())
}
