//! How does a request reach one broker and its answer the caller? One connection.
//!
//! | file | question |
//! |---|---|
//! | `frame.rs` | how long is a frame, and is the peer a Kafka broker? (pure) |
//! | `machine.rs` | what answers what, what may be written, what is too late? (pure) |
//! | `driver.rs` | who moves the bytes? (two tasks) |
//! | `hello.rs` | which versions does the broker speak? |
//! | `login.rs` | who are we to the broker? |

mod driver;
mod frame;
mod hello;
mod login;
mod machine;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use prosody_base::{Clock, Doors, Instant, Task};
use tokio::sync::oneshot;

use crate::error::{DecodeError, Error, ErrorKind};
use crate::figures::Figures;
use crate::limits::Limits;
use crate::net::Stream;
use crate::proto::{ApiKey, Decodable, Encodable, Offered, Request, versions};
use crate::sasl::Login;
use driver::Shared;
use machine::{Bounds, Machine};

/// Longest request body, in bytes. Brokers refuse more than 100 MiB by default (`socket.request.max.bytes`).
const BODY_BYTES: usize = 256 << 20;

/// A request body: segments written with one vectored write, never joined. Record batches stay where they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    segments: Vec<Bytes>,
    len: usize,
}

impl Body {
    /// These segments, one after the other.
    pub(crate) fn new(segments: Vec<Bytes>) -> Body {
        let len = segments.iter().map(Bytes::len).sum();
        Body { segments, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn into_segments(self) -> Vec<Bytes> {
        self.segments
    }
}

/// One open connection. Cheap to clone; the socket closes when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    offered: Offered,
    clock: Clock,
    _tasks: Task<()>,
    /// Keeps the broker's session alive.
    session: OnceLock<Task<()>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let doing = self.shared.machine().peer().to_owned();
        self.shared.close(&Error::new(doing, ErrorKind::Closed("this client closed the connection")));
    }
}

impl Connection {
    /// Takes over an open stream to `peer` ("broker 1 at kafka:9092"), asks which versions it speaks and says who we are.
    ///
    /// # Errors
    /// When the peer does not answer in any way by `deadline`, with the step it was at, or refuses us.
    pub(crate) async fn open(
        stream: Box<dyn Stream>,
        peer: &str,
        client_id: &str,
        login: Option<&Arc<Login>>,
        limits: &Limits,
        doors: &Doors,
        deadline: Instant,
    ) -> Result<Connection, Error> {
        let bounds = Bounds { in_flight: limits.in_flight, queued: limits.queued, throttle: limits.throttle };
        let machine = Machine::new(peer.to_owned(), client_id.to_owned(), bounds, doors.clock.now());
        let shared = Arc::new(Shared::new(machine, limits.frame_bytes, doors.clock.clone()));
        let tasks = driver::start(&shared, stream, doors);
        let (clock, session) = (doors.clock.clone(), OnceLock::new());
        let mut handle = Handle { shared, offered: Offered::default(), clock, _tasks: tasks, session };
        handle.offered = hello::ask(&handle, deadline).await?;
        let Some(login) = login else {
            handle.shared.machine().stay_anonymous();
            return Ok(Connection(Arc::new(handle)));
        };
        let lifetime = login::log_in(&handle, login, deadline).await?;
        let handle = Arc::new(handle);
        if let Some(lifetime) = lifetime {
            let stay = login::stay(Arc::downgrade(&handle), Arc::clone(login), doors.clone(), lifetime);
            let _ = handle.session.set(doors.spawner.spawn(prosody_base::Lane::Io, stay));
        }
        Ok(Connection(handle))
    }

    /// The version both sides speak; `None` when there is none.
    pub(crate) fn version(&self, api: ApiKey) -> Option<i16> {
        self.0.offered.negotiate(api)
    }

    /// [`Connection::version`], or the error that shows both ranges.
    pub(crate) fn require(&self, api: ApiKey) -> Result<i16, Error> {
        self.version(api).ok_or_else(|| {
            let kind = ErrorKind::Unsupported {
                api: format!("{api:?}"),
                ours: versions::spoken(api).unwrap_or((0, -1)),
                theirs: self.0.offered.range(api),
            };
            Error::new(format!("{api:?} to {}", self.peer()), kind)
        })
    }

    /// Queues a request now, so that two calls made in order are written in order. The future resolves to the response
    /// body: header read, correlation checked, **guard not yet run**. Dropping it leaves the connection intact.
    ///
    /// A deadline that passes before the request was written ends only this call. After that the connection ends, and
    /// every open call with it: their outcome is unknown ([`Error::maybe_sent`]).
    pub(crate) fn call_raw(
        &self,
        api: ApiKey,
        version: i16,
        body: Body,
        timeout: Duration,
    ) -> ResponseFuture {
        self.0.send(api, version, body, timeout)
    }

    /// Sends a request and decodes its response, after the guard has bounded every count it claims. Honours the
    /// response's throttle time.
    pub(crate) async fn call<R: Request>(
        &self,
        request: &R,
        timeout: Duration,
    ) -> Result<R::Response, Error> {
        let version = self.require(R::API)?;
        self.call_version(request, version, timeout).await
    }

    /// [`Connection::call`] in a version the caller chose.
    pub(crate) async fn call_version<R: Request>(
        &self,
        request: &R,
        version: i16,
        timeout: Duration,
    ) -> Result<R::Response, Error> {
        let doing = || format!("{:?} v{version} to {}", R::API, self.peer());
        let body = encode(request, version).map_err(|why| Error::new(doing(), ErrorKind::Encode(why)))?;
        let mut answer = self.call_raw(R::API, version, body, timeout).await?;
        // The broker did answer, but what it did is as unknown as if it had not.
        let unread = |why| Error::decode(doing(), why).with_sent(true);
        let response = decode::<R>(version, &mut answer).map_err(unread)?;
        self.throttle(R::throttle(&response));
        Ok(response)
    }

    /// Writes nothing for `duration`: what a response's `throttle_time_ms` asks (KIP-219).
    pub(crate) fn throttle(&self, duration: Duration) {
        if !duration.is_zero() {
            self.0.shared.machine().throttle(self.0.clock.now(), duration);
        }
    }

    /// Counts there from now on.
    pub(crate) fn count_in(&self, figures: Arc<Figures>) {
        self.0.shared.machine().figures = figures;
    }

    /// How many requests are written and not answered, if it counts in these figures.
    pub(crate) fn in_flight(&self, figures: &Arc<Figures>) -> Option<usize> {
        let machine = self.0.shared.machine();
        let open = machine.closed().is_none() && Arc::ptr_eq(&machine.figures, figures);
        open.then(|| machine.in_flight())
    }

    /// How far the broker is: the least time from the writing of a request to the first bytes of its answer, since this
    /// connection was opened. What is above it is waiting, for records or for a busy broker.
    pub(crate) fn distance(&self) -> Duration {
        self.0.shared.machine().distance()
    }

    /// Why this connection ended; `None` while it is open.
    pub(crate) fn closed(&self) -> Option<Error> {
        self.0.shared.machine().closed().cloned()
    }

    /// Ends the connection and every open call.
    pub(crate) fn close(&self, why: &'static str) {
        let doing = self.peer();
        self.0.shared.close(&Error::new(doing, ErrorKind::Closed(why)));
    }

    /// Whether a request of these APIs waits for its answer here.
    pub(crate) fn has_open(&self, apis: &[ApiKey]) -> bool {
        self.0.shared.machine().has_open(apis)
    }

    /// Since when nothing was asked; `None` while something is open.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.0.shared.machine().idle_since()
    }

    /// "broker 1 at kafka:9092".
    pub(crate) fn peer(&self) -> String {
        self.0.shared.machine().peer().to_owned()
    }
}

impl Handle {
    fn send(&self, api: ApiKey, version: i16, body: Body, timeout: Duration) -> ResponseFuture {
        if body.len() > BODY_BYTES {
            let doing = format!("{api:?} v{version} to {}", self.shared.machine().peer());
            let why = format!("{} bytes are over the limit of {BODY_BYTES}", body.len());
            return ResponseFuture(State::Failed(Some(Error::new(doing, ErrorKind::Encode(why)))));
        }
        let (answer, waiting) = oneshot::channel();
        let queued = self.shared.machine().enqueue(api, version, body, self.clock.now(), timeout, answer);
        match queued {
            Ok(()) => {
                self.shared.ring();
                ResponseFuture(State::Waiting(waiting))
            }
            Err((_, error)) => ResponseFuture(State::Failed(Some(error))),
        }
    }
}

/// The answer to one request. Dropping it changes nothing for the connection.
#[derive(Debug)]
#[must_use = "a request is sent at once, but its answer is only seen by awaiting it"]
pub(crate) struct ResponseFuture(State);

#[derive(Debug)]
enum State {
    Waiting(oneshot::Receiver<Result<Bytes, Error>>),
    Failed(Option<Error>),
}

impl Future for ResponseFuture {
    type Output = Result<Bytes, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let gone = || Error::new("a request", ErrorKind::Closed("the connection is gone"));
        match &mut self.0 {
            State::Waiting(answer) => {
                Pin::new(answer).poll(cx).map(|end| end.unwrap_or_else(|_| Err(gone())))
            }
            State::Failed(error) => Poll::Ready(Err(error.take().unwrap_or_else(gone))),
        }
    }
}

/// Reads the body of an ApiVersions response, without the guard: its layout cannot be trusted.
#[cfg(feature = "internals")]
pub(crate) fn hello(body: Bytes, version: i16) -> Result<(), DecodeError> {
    hello::decode(body, version).map(|_| ())
}

/// Reads the body of a response, after the guard has looked at it.
pub(crate) fn decode<R: Request>(version: i16, body: &mut Bytes) -> Result<R::Response, DecodeError> {
    prosody_base::guard::check_response(R::API as i16, version, body).map_err(DecodeError::Guard)?;
    R::Response::decode(body, version).map_err(|why| DecodeError::Body(format!("{why:#}")))
}

/// Writes a message down.
pub(crate) fn encode<M: Encodable>(message: &M, version: i16) -> Result<Body, String> {
    let size = message.compute_size(version).map_err(|why| format!("{why:#}"))?;
    let mut body = BytesMut::with_capacity(size);
    message.encode(&mut body, version).map_err(|why| format!("{why:#}"))?;
    Ok(Body::new(vec![body.freeze()]))
}
