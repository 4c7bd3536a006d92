//! Who tells the telemetry topic what happens? Whoever has something to tell puts it in a queue and goes on; one task
//! sends what is there. What does not fit into the queue is dropped and counted, so a slow broker slows nobody.

pub(crate) mod event;

use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Clock, Doors, Lane};
use prosody_state::Time;
use prosody_wire::TopicPartition;
use prosody_wire::produce::{OutgoingRecord, Producer, ProducerConfig};
use tokio::sync::mpsc;
use tracing::warn;

use crate::insight::Counters;
use crate::partition::event::Event;
use crate::pipeline::filter::SOURCE_SYSTEM;
use crate::pipeline::verdict::End;
use crate::trace::TraceContext;

pub(crate) use event::Happened;
use event::{Subject, Told};

/// Events that wait to be sent; one more is dropped.
const QUEUE: usize = 4_096;
/// Events that are sent together.
const TOGETHER: usize = 256;
/// An event that no broker acknowledged for this long is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Failures between two log lines about them.
const MENTION: u64 = 10_000;

/// The way to the telemetry topic.
pub(crate) struct Telemetry {
    queue: mpsc::Sender<Told>,
    clock: Clock,
    counters: Arc<Counters>,
}

impl Telemetry {
    /// Starts the task that sends; it ends when the last clone of the result is gone.
    pub(crate) fn start(
        topic: Arc<str>,
        source: Arc<str>,
        (wire, producer): (&prosody_wire::Client, ProducerConfig),
        doors: &Doors,
        counters: &Arc<Counters>,
    ) -> Arc<Telemetry> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (clock, counters) = (doors.clock.clone(), Arc::clone(counters));
        let sends = Sends {
            topic,
            source,
            hostname: hostname(),
            producer: Producer::new(wire, producer),
            clock: clock.clone(),
            counters: Arc::clone(&counters),
        };
        doors.spawner.spawn(Lane::Io, sends.drive(waiting)).detach();
        Arc::new(Telemetry { queue, clock, counters })
    }

    /// A handler is about to run. Returns whom to name when it has ended.
    pub(crate) fn dispatched(
        &self,
        tp: &TopicPartition,
        event: &Event,
        trace: Option<&TraceContext>,
    ) -> Subject {
        let subject = Subject::of(tp, event, trace);
        self.tell(Happened::Dispatched, subject.clone(), None);
        subject
    }

    /// A handler has ended.
    pub(crate) fn ended(&self, subject: Subject, end: End, why: &str) {
        let happened = match end {
            End::Ok => Happened::Succeeded,
            End::Transient => Happened::Failed("transient"),
            End::Permanent | End::Poison => Happened::Failed("permanent"),
            End::Abandoned | End::Occupied => Happened::Failed("terminal"),
        };
        let exception = (!why.is_empty()).then(|| why.to_owned());
        self.tell(happened, subject, exception);
    }

    /// A message was sent and acknowledged.
    pub(crate) fn sent(
        &self,
        (topic, partition, offset): (Arc<str>, i32, i64),
        key: String,
        trace: Option<TraceContext>,
    ) {
        let position = event::Position::Offset(offset);
        let subject = Subject { topic, partition, position, key, first: None, trace };
        self.tell(Happened::Sent, subject, None);
    }

    /// A handler that succeeded has scheduled or cancelled a timer of its key.
    pub(crate) fn timer(
        &self,
        happened: Happened,
        (tp, key): (&TopicPartition, &[u8]),
        time: Time,
        trace: Option<TraceContext>,
    ) {
        let subject = Subject {
            topic: Arc::clone(&tp.topic),
            partition: tp.partition,
            position: event::Position::Timer { seconds: time.seconds(), deferred: false },
            key: String::from_utf8_lossy(key).into_owned(),
            first: None,
            trace,
        };
        self.tell(happened, subject, None);
    }

    fn tell(&self, happened: Happened, subject: Subject, exception: Option<String>) {
        let told = Told { at: self.clock.unix_millis(), happened, subject, exception };
        if self.queue.try_send(told).is_err() {
            self.counters.telemetry_dropped.one();
        }
    }
}

/// What the task needs.
struct Sends {
    topic: Arc<str>,
    source: Arc<str>,
    hostname: Option<String>,
    producer: Producer,
    clock: Clock,
    counters: Arc<Counters>,
}

impl Sends {
    async fn drive(self, mut waiting: mpsc::Receiver<Told>) {
        let mut together = Vec::with_capacity(TOGETHER);
        let mut failed = 0u64;
        while waiting.recv_many(&mut together, TOGETHER).await > 0 {
            let deadline = self.clock.now() + PATIENCE;
            let sendings: Vec<_> = together.drain(..).map(|told| self.send(&told, deadline)).collect();
            for sending in sendings {
                match sending.await {
                    Ok(_) => self.counters.telemetry_sent.one(),
                    Err(why) => {
                        self.counters.telemetry_failed.one();
                        if failed.is_multiple_of(MENTION) {
                            let topic = &*self.topic;
                            warn!(topic, failed, "telemetry events are lost: they cannot be sent: {why}");
                        }
                        failed += 1;
                    }
                }
            }
        }
    }

    fn send(&self, told: &Told, deadline: prosody_base::Instant) -> prosody_wire::produce::Sending {
        let value = told.json(&self.source, self.hostname.as_deref());
        let record = OutgoingRecord {
            topic: &self.topic,
            partition: None,
            key: Some(told.subject.key.as_bytes()),
            value: Some(value.as_bytes()),
            headers: &[(SOURCE_SYSTEM.as_bytes(), Some(self.source.as_bytes()))],
            timestamp: Some(told.at),
        };
        self.producer.send(record, Some(deadline))
    }
}

/// The machine's name, where the kernel tells it.
fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}
