//! Who brings spans to a collector? Whoever has one puts it in a queue and goes on; one task sends what is there, in
//! batches. What does not fit into the queue is dropped and counted, so a slow collector slows nobody, and one that lies
//! or is not there costs spans and nothing else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use prosody_base::{Clock, Instant, Rng};
use prosody_wire::{HttpConnection, HttpEndpoint, HttpError};
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use super::otlp::{self, Resource};
use super::settings::{Protocol, Settings};
use super::span::Span;
use crate::insight::Counters;

/// Waits before a batch is sent again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// Lost batches between two log lines about them.
const MENTION: u64 = 100;
/// Longest text of a collector that is repeated in a log line.
const SAID_CHARS: usize = 200;
/// A connection that was idle for longer is not used again: who knows what its other end thinks of it.
const IDLE: Duration = Duration::from_secs(30);

/// What the task is given.
#[derive(Debug)]
pub(super) enum Work {
    Span(Box<Span>),
    /// Answered once everything before it was sent, or given up.
    Flush(oneshot::Sender<()>),
}

/// What the task needs.
#[derive(Debug)]
pub(super) struct Exporter {
    endpoint: HttpEndpoint,
    protocol: Protocol,
    headers: Vec<(HeaderName, HeaderValue)>,
    timeout: Duration,
    delay: Duration,
    batch: usize,
    resource: Resource,
    clock: Clock,
    rng: Rng,
    counters: Arc<Counters>,
    kept: Option<(HttpConnection, Instant)>,
    lost: u64,
}

impl Exporter {
    pub(super) fn new(
        settings: Settings,
        endpoint: HttpEndpoint,
        resource: Resource,
        (clock, rng): (Clock, Rng),
        counters: Arc<Counters>,
    ) -> Exporter {
        let content = match settings.protocol {
            Protocol::Protobuf => "application/x-protobuf",
            Protocol::Json => "application/json",
        };
        let mut headers = settings.headers;
        headers.retain(|(name, _)| *name != header::CONTENT_TYPE);
        headers.push((header::CONTENT_TYPE, HeaderValue::from_static(content)));
        let Settings { protocol, timeout, delay, batch, .. } = settings;
        Exporter {
            endpoint,
            protocol,
            headers,
            timeout,
            delay,
            batch,
            resource,
            clock,
            rng,
            counters,
            kept: None,
            lost: 0,
        }
    }

    /// Sends until the last sender is gone.
    pub(super) async fn drive(mut self, mut waiting: mpsc::Receiver<Work>) {
        let mut open = true;
        while open {
            let (mut spans, mut flushed) = (Vec::new(), None);
            let mut until = None;
            while spans.len() < self.batch && flushed.is_none() {
                let next = match until {
                    None => waiting.recv().await,
                    Some(until) => match self.clock.until(until, waiting.recv()).await {
                        Ok(next) => next,
                        Err(_) => break,
                    },
                };
                match next {
                    Some(Work::Span(span)) => {
                        spans.push(span);
                        until = until.or_else(|| Some(self.clock.now() + self.delay));
                    }
                    Some(Work::Flush(say)) => flushed = Some(say),
                    None => {
                        open = false;
                        break;
                    }
                }
            }
            if !spans.is_empty() {
                self.export(&spans).await;
            }
            if let Some(say) = flushed {
                let _ = say.send(());
            }
        }
    }

    async fn export(&mut self, spans: &[Box<Span>]) {
        let body = Bytes::from(match self.protocol {
            Protocol::Protobuf => otlp::protobuf(&self.resource, spans),
            Protocol::Json => otlp::json(&self.resource, spans),
        });
        let deadline = self.clock.now() + self.timeout;
        match self.send(&body, deadline).await {
            Ok(()) => {
                self.counters.spans_sent.add(spans.len() as u64);
                if std::mem::take(&mut self.lost) > 0 {
                    info!(collector = self.endpoint.shown(), "spans reach the collector again");
                }
            }
            Err(why) => {
                self.counters.spans_failed.add(spans.len() as u64);
                if self.lost.is_multiple_of(MENTION) {
                    let (collector, lost) = (self.endpoint.shown(), spans.len());
                    warn!(collector, lost, "spans are lost: the collector does not take them: {why}");
                }
                self.lost += 1;
            }
        }
    }

    /// Sends a batch, again where that can help, until it is there or its time is up.
    async fn send(&mut self, body: &Bytes, deadline: Instant) -> Result<(), String> {
        let mut tries = 0;
        loop {
            let clock = self.clock.clone();
            let asked = clock.until(deadline, self.ask(body)).await;
            let Ok(asked) = asked else {
                self.kept = None;
                return Err(format!("no answer within {:?}", self.timeout));
            };
            let (why, retriable, least) = match asked {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            let wait = self.rng.backoff(AGAIN.0, AGAIN.1, tries).max(Duration::from_secs(least));
            tries += 1;
            // A collector may ask for a wait that no clock can add up.
            if !retriable || wait >= deadline.saturating_duration_since(self.clock.now()) {
                return Err(why);
            }
            self.clock.sleep(wait).await;
        }
    }

    /// One request, or two when the connection of the last one turns out to be dead.
    async fn ask(&mut self, body: &Bytes) -> Result<(), (String, bool, u64)> {
        let broken = |why: HttpError| (why.why, why.retriable, 0);
        let now = self.clock.now();
        let kept = self.kept.take().filter(|(kept, since)| kept.is_open() && now < *since + IDLE);
        let mut answer = None;
        if let Some((mut connection, _)) = kept
            && let Ok(got) = self.endpoint.post(&mut connection, &self.headers, body.clone()).await
        {
            answer = Some((got, connection));
        }
        let (answer, connection) = match answer {
            Some(answer) => answer,
            None => {
                let mut connection = self.endpoint.connect().await.map_err(broken)?;
                let got = self.endpoint.post(&mut connection, &self.headers, body.clone()).await;
                (got.map_err(broken)?, connection)
            }
        };
        self.kept = Some((connection, self.clock.now()));
        if (200..300).contains(&answer.status) {
            return Ok(());
        }
        let said: String = String::from_utf8_lossy(&answer.body)
            .chars()
            .filter(|character| !character.is_control())
            .take(SAID_CHARS)
            .collect();
        // The statuses after which OTLP asks clients to try again.
        let retriable = [429, 502, 503, 504].contains(&answer.status);
        Err((format!("HTTP {}: {said}", answer.status), retriable, answer.retry_after.unwrap_or(0)))
    }
}
