//! Which spans are there, and who is whose child? Without an exporter there are none, and contexts are passed on as they
//! came.

use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Clock, Doors, Instant, Lane, Rng};
use prosody_state::KeyImage;
use prosody_wire::{Connector, EndpointError, HttpEndpoint, TlsOptions, TopicPartition};
use tokio::sync::{mpsc, oneshot};

use super::export::{Exporter, Work};
use super::sampler::Sampler;
use super::settings::Settings;
use super::span::{Common, Kind, Span, Value};
use super::{Lineage, TraceContext, origin};
use crate::config::SpanRelation;
use crate::context::Attempt;
use crate::insight::Counters;
use crate::partition::event::{Event, Subject};
use crate::partition::keys::Keyed;
use crate::pipeline::verdict::End;

/// How events are traced.
pub(crate) struct Tracing {
    /// `None` without an exporter.
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) messages: SpanRelation,
    pub(crate) timers: SpanRelation,
}

/// Makes spans of one client.
pub(crate) struct Tracer {
    queue: mpsc::Sender<Work>,
    sampler: Sampler,
    common: Common,
    clock: Clock,
    rng: Rng,
    birth: Instant,
    counters: Arc<Counters>,
}

impl Tracer {
    /// Starts the task that sends; it ends when the last clone of the result is gone.
    pub(crate) fn start(
        settings: Settings,
        common: Common,
        tcp: Arc<dyn Connector>,
        doors: &Doors,
        counters: &Arc<Counters>,
    ) -> Result<Arc<Tracer>, EndpointError> {
        let tls = TlsOptions { authorities: settings.authorities.clone(), ..TlsOptions::default() };
        let endpoint = HttpEndpoint::new(&settings.endpoint, tcp, tls)?;
        let (queue, waiting) = mpsc::channel(settings.queue);
        let (sampler, clock, rng) = (settings.sampler, doors.clock.clone(), doors.rng.fork());
        let resource = resource(&settings, &common);
        let counted = Arc::clone(counters);
        let exporter = Exporter::new(settings, endpoint, resource, (clock.clone(), rng.fork()), counted);
        doors.spawner.spawn(Lane::Io, exporter.drive(waiting)).detach();
        let (birth, counters) = (clock.now(), Arc::clone(counters));
        Ok(Arc::new(Tracer { queue, sampler, common, clock, rng, birth, counters }))
    }

    /// Milliseconds since some start, for [`begin`](Tracing::begin) to know how long a message waited.
    pub(crate) fn millis(&self) -> u32 {
        // Only differences count, so it may wrap.
        self.clock.now().saturating_duration_since(self.birth).as_millis() as u32
    }

    /// Sends what waits, until `deadline`.
    pub(crate) async fn flush(&self, deadline: Instant) {
        let (say, heard) = oneshot::channel();
        let flushed = async {
            if self.queue.send(Work::Flush(say)).await.is_ok() {
                let _ = heard.await;
            }
        };
        let _ = self.clock.until(deadline, flushed).await;
    }

    /// A span that has begun; `None` when its trace is not recorded. Its context is there all the same.
    fn open(
        &self,
        cause: Option<&TraceContext>,
        relation: SpanRelation,
        kind: Kind,
        name: &str,
    ) -> (TraceContext, Option<Box<Span>>) {
        let baggage = cause.map(TraceContext::baggage_alone);
        let cause = cause.filter(|cause| cause.is_traced());
        let parent = cause.filter(|_| relation == SpanRelation::Child);
        let span_id = self.id();
        let context = match parent {
            Some(parent) => {
                let id = parent.trace_id();
                let sampled = self.sampler.samples(Some(parent.is_sampled()), id);
                parent.in_span(id, span_id, parent.flags() & 2 | u8::from(sampled))
            }
            None => {
                let id = (u128::from(self.rng.next_u64()) << 64 | u128::from(self.rng.next_u64())).max(1);
                let id = id.to_be_bytes();
                baggage.unwrap_or_default().in_span(id, span_id, u8::from(self.sampler.samples(None, id)))
            }
        };
        if !context.is_sampled() {
            return (context, None);
        }
        let start = self.clock.unix_nanos();
        let span = Span {
            parent: parent.map(TraceContext::span_id),
            link: cause.filter(|_| parent.is_none()).cloned(),
            name: name.to_owned(),
            kind,
            start,
            end: start,
            attributes: Vec::with_capacity(12),
            failed: None,
            context: context.clone(),
        };
        (context, Some(Box::new(span)))
    }

    fn close(&self, mut span: Box<Span>) {
        span.end = span.end.max(self.clock.unix_nanos());
        self.put(span);
    }

    fn put(&self, span: Box<Span>) {
        if self.queue.try_send(Work::Span(span)).is_err() {
            self.counters.spans_dropped.one();
        }
    }

    fn id(&self) -> [u8; 8] {
        self.rng.next_u64().max(1).to_be_bytes()
    }

    /// How long a message was here before its handler started, as a span beside the handler's in the sender's trace.
    fn received(&self, tp: &TopicPartition, origin: &TraceContext, since: u32, (key, offset): (&[u8], i64)) {
        let name = format!("receive {}", tp.topic);
        let (_, span) = self.open(Some(origin), SpanRelation::Child, Kind::Client, &name);
        if let Some(mut span) = span {
            let waited = Duration::from_millis(self.millis().wrapping_sub(since).into());
            let nanos = u64::try_from(waited.as_nanos()).unwrap_or(0);
            span.start = span.start.saturating_sub(nanos);
            span.messaging("receive", &tp.topic, &self.common);
            span.partition(tp.partition);
            span.offset(offset);
            span.key(key);
            self.put(span);
        }
    }
}

impl Tracing {
    /// See [`Tracer::millis`].
    pub(crate) fn now(&self) -> u32 {
        self.tracer.as_ref().map_or(0, |tracer| tracer.millis())
    }

    /// A handler is about to run: where in which trace, and its span if that is recorded. Nothing when nobody traces.
    pub(crate) fn begin(
        &self,
        tp: &TopicPartition,
        event: &Event,
        root: Option<&KeyImage>,
    ) -> (Option<Lineage>, Option<Box<Span>>) {
        let origin = origin(event, root);
        let timer = matches!(event.subject(), Subject::Timer(_));
        let relation = if timer { self.timers } else { self.messages };
        let Some(tracer) = &self.tracer else {
            // Nobody records what a link would say, so the trace goes on as it is.
            let lineage =
                origin.map(|origin| Lineage { here: origin.clone(), origin: Some(origin), relation });
            return (lineage, None);
        };
        let name = if timer { "timer".to_owned() } else { format!("process {}", tp.topic) };
        if let (Subject::Message(record), Some(origin), 0) = (event.subject(), &origin, event.failures)
            && origin.is_traced()
        {
            tracer.received(tp, origin, record.received, (record.key(), record.offset));
        }
        let (here, mut span) = tracer.open(origin.as_ref(), relation, Kind::Consumer, &name);
        if let Some(span) = &mut span {
            span.messaging("process", &tp.topic, &tracer.common);
            span.partition(tp.partition);
            span.key(event.key());
            match event.subject() {
                Subject::Message(record) => {
                    span.offset(record.offset);
                    if record.payload().is_none() {
                        span.say("messaging.kafka.message.tombstone", Value::Flag(true));
                    }
                }
                Subject::Timer(time) => {
                    span.say("prosody.timer.scheduled_time", Value::Int(time.seconds().into()));
                }
                Subject::Nothing => {}
            }
            let first = event.failures == 0 && !event.is_retry();
            span.say("prosody.demand_type", Value::Word(if first { "normal" } else { "failure" }));
        }
        (Some(Lineage { here, origin, relation }), span)
    }

    /// A handler has ended.
    pub(crate) fn end(&self, span: Option<Box<Span>>, attempt: &Attempt, end: End, why: &str) {
        let (Some(tracer), Some(mut span)) = (&self.tracer, span) else { return };
        if attempt.place.is_recorded() {
            return;
        }
        if let Some(here) = attempt.place.here() {
            span.context = here;
        }
        match end {
            End::Ok => {}
            End::Transient => span.fail("transient", why),
            End::Permanent | End::Poison => span.fail("permanent", why),
            End::Abandoned | End::Occupied => {
                span.fail("terminal", "the partition was given up before the handler ended");
            }
        }
        tracer.close(span);
    }

    /// A record is about to be sent on behalf of `cause`: what its headers say, and its span.
    pub(crate) fn sending(
        &self,
        topic: &Arc<str>,
        key: Option<&[u8]>,
        cause: Option<TraceContext>,
    ) -> (Option<TraceContext>, Sending) {
        let Some(tracer) = &self.tracer else { return (cause, Sending(None)) };
        let name = format!("send {topic}");
        let (context, mut span) = tracer.open(cause.as_ref(), SpanRelation::Child, Kind::Producer, &name);
        if let Some(span) = &mut span {
            span.messaging("send", topic, &tracer.common);
            if let Some(key) = key {
                span.key(key);
            }
        }
        (Some(context), Sending(span.map(|span| (Arc::clone(tracer), span))))
    }
}

/// The span of a record that is being sent.
#[must_use]
pub(crate) struct Sending(Option<(Arc<Tracer>, Box<Span>)>);

impl Sending {
    /// It is there.
    pub(crate) fn delivered(mut self, partition: i32, offset: i64) {
        if let Some((_, span)) = &mut self.0 {
            span.partition(partition);
            span.offset(offset);
        }
    }

    /// It could not be sent, or nobody knows.
    pub(crate) fn failed(mut self, kind: &str, why: &str) {
        if let Some((_, span)) = &mut self.0 {
            span.fail(kind, why);
        }
    }
}

/// Also when nobody waits for the end: the record may be there all the same.
impl Drop for Sending {
    fn drop(&mut self) {
        if let Some((tracer, span)) = self.0.take() {
            tracer.close(span);
        }
    }
}

/// What says whose spans these are. A service without a name has that of its messages' source.
fn resource(settings: &Settings, common: &Common) -> Vec<(String, String)> {
    let mut resource = settings.resource.clone();
    if settings.service.is_some() {
        resource.retain(|(name, _)| name != "service.name");
    }
    if !resource.iter().any(|(name, _)| name == "service.name") {
        let service = settings.service.as_deref().unwrap_or(&common.client_id);
        resource.push(("service.name".to_owned(), service.to_owned()));
    }
    for (name, value) in [
        ("telemetry.sdk.name", "prosody"),
        ("telemetry.sdk.language", "rust"),
        ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ] {
        resource.push((name.to_owned(), value.to_owned()));
    }
    resource
}
