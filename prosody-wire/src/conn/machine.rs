//! Which request does this response answer, what may be written now, and what has waited too long? Pure.
//!
//! ```text
//! enqueue ─▶ queued ──ready──▶ in flight ──received──▶ answer
//!              │                   │
//!              │ deadline          │ deadline
//!              ▼                   ▼
//!        this call fails      the connection ends: Kafka answers in order, so nothing behind can be trusted to come
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use prosody_base::{Instant, sabotaged};

use super::{Body, frame, login};
use crate::error::{DecodeError, Error, ErrorKind};
use crate::figures::Figures;
use crate::proto::ApiKey;

/// `W` is whoever waits for an answer.
#[derive(Debug)]
pub(super) struct Machine<W> {
    /// "broker 1 at kafka:9092", for errors.
    peer: String,
    client_id: String,
    in_flight_cap: usize,
    queue_cap: usize,
    throttle_cap: Duration,
    next_correlation: i32,
    queued: VecDeque<Queued<W>>,
    in_flight: VecDeque<InFlight<W>>,
    /// Nothing is written before this (KIP-219).
    throttled_until: Option<Instant>,
    /// No deadline of any call lies before this; recomputed only when it is reached.
    earliest: Option<Instant>,
    last_used: Instant,
    /// Only the messages of an exchange about who we are may be written.
    held: bool,
    /// We did not say who we are, and nothing was answered since.
    unknown: bool,
    closed: Option<Error>,
    /// When the first bytes of a long frame came that is being read.
    began: Option<Instant>,
    /// The least time from the writing of a request to the first bytes of its answer.
    distance: Duration,
    /// Where it counts.
    pub(super) figures: Arc<Figures>,
}

#[derive(Debug)]
struct Queued<W> {
    call: Call,
    body: Body,
    waiter: W,
    /// Lasts until the answer is here.
    span: tracing::Span,
}

#[derive(Debug)]
struct InFlight<W> {
    call: Call,
    correlation: i32,
    waiter: W,
    written: Instant,
    _span: tracing::Span,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    api: ApiKey,
    version: i16,
    deadline: Instant,
}

/// Bounds a machine keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) in_flight: usize,
    pub(super) queued: usize,
    pub(super) throttle: Duration,
}

/// A call that ended without an answer.
pub(super) type Failed<W> = (W, Error);

impl<W> Machine<W> {
    pub(super) fn new(peer: String, client_id: String, bounds: Bounds, now: Instant) -> Machine<W> {
        Machine {
            peer,
            client_id,
            in_flight_cap: bounds.in_flight,
            queue_cap: bounds.queued,
            throttle_cap: bounds.throttle,
            next_correlation: 0,
            queued: VecDeque::new(),
            in_flight: VecDeque::new(),
            throttled_until: None,
            earliest: None,
            last_used: now,
            held: false,
            unknown: false,
            closed: None,
            began: None,
            distance: Duration::MAX,
            figures: Arc::default(),
        }
    }

    /// Takes a request in call order. Hands the waiter back with the reason when it cannot.
    pub(super) fn enqueue(
        &mut self,
        api: ApiKey,
        version: i16,
        body: Body,
        now: Instant,
        timeout: Duration,
        waiter: W,
    ) -> Result<(), Failed<W>> {
        if let Some(cause) = &self.closed {
            let error = Error::new(self.doing(api, version), cause.kind().clone());
            return Err((waiter, error));
        }
        if self.queued.len() >= self.queue_cap {
            let kind = ErrorKind::Full("the bound of queued requests of one connection (Limits::queued)");
            return Err((waiter, Error::new(self.doing(api, version), kind)));
        }
        let deadline = now + if sabotaged("request-timeout") { timeout * 40 } else { timeout };
        self.earliest = Some(self.earliest.map_or(deadline, |known| known.min(deadline)));
        self.last_used = now;
        let span =
            tracing::debug_span!("request", api = ?api, version, peer = %self.peer, bytes = body.len());
        self.queued.push_back(Queued { call: Call { api, version, deadline }, body, waiter, span });
        Ok(())
    }

    /// Moves what may be written now into `out`, in order. `true` when something was moved.
    pub(super) fn ready(&mut self, now: Instant, out: &mut VecDeque<Bytes>) -> bool {
        if self.throttled_until.is_some_and(|until| now < until) {
            return false;
        }
        self.throttled_until = None;
        let before = out.len();
        while self.in_flight.len() < self.in_flight_cap {
            let Some(Queued { call, body, waiter, span }) = self.next() else { break };
            let correlation = self.next_correlation;
            self.next_correlation = self.next_correlation.checked_add(1).unwrap_or(0);
            // Body::new bounded the length, so a head always fits; a frame without a head must not be written.
            if let Some(head) = frame::head(call.api, call.version, correlation, &self.client_id, body.len())
            {
                self.figures.sent_bytes.add((head.len() + body.len()) as u64);
                out.push_back(head);
                out.extend(body.into_segments());
            }
            self.in_flight.push_back(InFlight { call, correlation, waiter, written: now, _span: span });
        }
        out.len() > before
    }

    fn next(&mut self) -> Option<Queued<W>> {
        if !self.held {
            return self.queued.pop_front();
        }
        let at = self.queued.iter().position(|queued| login::APIS.contains(&queued.call.api))?;
        self.queued.remove(at)
    }

    /// Holds back everything but SaslHandshake and SaslAuthenticate, or lets it go.
    pub(super) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Notes that the broker does not know who we are: it may refuse the first request that needs it to.
    pub(super) fn stay_anonymous(&mut self) {
        self.unknown = true;
    }

    /// What to say when the peer ends the connection.
    pub(super) fn why_ended(&self) -> &'static str {
        if self.unknown && !self.in_flight.is_empty() {
            "the broker closed the connection instead of answering its first request; perhaps this listener asks who \
             its clients are (SASL), or for TLS"
        } else {
            "the broker closed the connection"
        }
    }

    /// The first bytes of a long frame are here.
    pub(super) fn began(&mut self, now: Instant) {
        self.began = Some(now);
    }

    /// The least time from the writing of a request to the first bytes of its answer; as long as possible before any.
    pub(super) fn distance(&self) -> Duration {
        self.distance
    }

    /// A whole frame without its length field. Returns whom it answers and the body.
    ///
    /// # Errors
    /// When it answers nothing that is open: the stream cannot be trusted any more.
    pub(super) fn received(&mut self, mut frame: Bytes, now: Instant) -> Result<(W, Bytes), Error> {
        self.figures.received_bytes.add((frame.len() + frame::LENGTH_BYTES) as u64);
        let got = frame
            .try_get_i32()
            .map_err(|_| self.broken(DecodeError::Body("a frame without a header".into())))?;
        let expected = self.in_flight.front().map(|oldest| oldest.correlation);
        if expected != Some(got) {
            return Err(self.broken(DecodeError::Correlation { expected, got }));
        }
        let Some(oldest) = self.in_flight.pop_front() else {
            return Err(self.broken(DecodeError::Correlation { expected, got }));
        };
        self.figures.answered(oldest.call.api, now.saturating_duration_since(oldest.written));
        let began = self.began.take().unwrap_or(now);
        self.distance = self.distance.min(began.saturating_duration_since(oldest.written));
        self.unknown = false;
        // ApiVersions answers with header v0 in every version, so that a client that guessed wrong can read it.
        if oldest.call.api.response_header_version(oldest.call.version) >= 1 {
            skip_tagged_fields(&mut frame).map_err(|cause| self.broken(cause))?;
        }
        if self.in_flight.is_empty() && self.queued.is_empty() {
            self.earliest = None;
        }
        Ok((oldest.waiter, frame))
    }

    /// Ends queued calls whose deadline has passed; `Err` when a written one is among them.
    pub(super) fn expire(&mut self, now: Instant) -> Result<Vec<Failed<W>>, Error> {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return Ok(Vec::new());
        }
        if let Some(late) = self.in_flight.iter().find(|open| open.call.deadline <= now) {
            return Err(Error::new(self.doing(late.call.api, late.call.version), ErrorKind::Timeout));
        }
        let (late, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.queued).into_iter().partition(|call| call.call.deadline <= now);
        self.queued = kept;
        self.earliest = self
            .in_flight
            .iter()
            .map(|open| open.call.deadline)
            .chain(self.queued.iter().map(|call| call.call.deadline))
            .min();
        Ok(late
            .into_iter()
            .map(|call| {
                let doing = self.doing(call.call.api, call.call.version);
                (call.waiter, Error::new(doing, ErrorKind::Timeout))
            })
            .collect())
    }

    /// When [`Machine::expire`] or [`Machine::ready`] has to be asked next although nothing happened.
    pub(super) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let throttle = self.throttled_until.filter(|until| *until > now && !self.queued.is_empty());
        match (self.earliest, throttle) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Writes nothing for `duration` from now on, as the broker asked.
    pub(super) fn throttle(&mut self, now: Instant, duration: Duration) {
        let duration = duration.min(self.throttle_cap);
        self.figures.throttled(duration);
        let until = now + duration;
        self.throttled_until = Some(self.throttled_until.map_or(until, |known| known.max(until)));
    }

    /// Ends every call. Only the first cause counts; later calls fail with it at once.
    pub(super) fn close(&mut self, cause: &Error) -> Vec<Failed<W>> {
        if self.closed.is_none() {
            self.closed = Some(cause.clone());
        }
        let mut failed = Vec::with_capacity(self.in_flight.len() + self.queued.len());
        for open in std::mem::take(&mut self.in_flight) {
            let doing = self.doing(open.call.api, open.call.version);
            failed.push((open.waiter, Error::new(doing, cause.kind().clone()).with_sent(true)));
        }
        for call in std::mem::take(&mut self.queued) {
            let doing = self.doing(call.call.api, call.call.version);
            failed.push((call.waiter, Error::new(doing, cause.kind().clone())));
        }
        self.earliest = None;
        failed
    }

    pub(super) fn closed(&self) -> Option<&Error> {
        self.closed.as_ref()
    }

    /// Whether any request of these APIs is written or queued.
    pub(super) fn has_open(&self, apis: &[ApiKey]) -> bool {
        self.in_flight.iter().any(|open| apis.contains(&open.call.api))
            || self.queued.iter().any(|call| apis.contains(&call.call.api))
    }

    /// Requests that are written and not answered.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether a request waits to be written.
    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Since when nothing was asked; `None` while something is open.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.in_flight.is_empty() && self.queued.is_empty()).then_some(self.last_used)
    }

    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    fn doing(&self, api: ApiKey, version: i16) -> String {
        format!("{api:?} v{version} to {}", self.peer)
    }

    fn broken(&self, cause: DecodeError) -> Error {
        Error::decode(format!("reading from {}", self.peer), cause)
    }
}

/// Tagged fields of a response header: read over, never interpreted.
fn skip_tagged_fields(frame: &mut Bytes) -> Result<(), DecodeError> {
    let broken = || DecodeError::Body("the tagged fields of a response header do not fit the frame".into());
    for _ in 0..varint(frame).ok_or_else(broken)? {
        varint(frame).ok_or_else(broken)?;
        let size = varint(frame).and_then(|size| usize::try_from(size).ok()).ok_or_else(broken)?;
        if size > frame.remaining() {
            return Err(broken());
        }
        frame.advance(size);
    }
    Ok(())
}

fn varint(frame: &mut Bytes) -> Option<u32> {
    let mut value = 0;
    for shift in [0, 7, 14, 21, 28] {
        let byte = frame.try_get_u8().ok()?;
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
