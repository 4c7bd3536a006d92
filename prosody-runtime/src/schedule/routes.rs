//! Which events wait until the failure topic has them? Each in a task of its own, without a permit; its key waits with
//! it. Only the write is repeated, never the handler, and nothing is finished before a broker has acknowledged it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Lane, Spawner, sabotaged};
use prosody_wire::produce::{OutgoingRecord, Producer};
use tracing::{error, warn};

use super::gate::Gate;
use crate::durable::settle::{self, Effects};
use crate::partition::event::{Event, Position};
use crate::partition::keys::Keyed;
use crate::partition::runtime::Partition;
use crate::partition::window::{Admitted, Ending};
use crate::pipeline::Pipeline;
use crate::pipeline::failure::{Failure, Routed};
use crate::pipeline::retry::Backoff;
use crate::trace::{self, TraceContext};

/// Waits between writes that failed for a reason the producer does not retry by itself.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(10) };
/// How long a partition that is being given up waits for a write: longer than a leader needs to move, and shorter than
/// any drain.
const LAST_WRITE: Duration = Duration::from_secs(5);
/// A write without an answer is mentioned this often.
const MENTION: Duration = Duration::from_secs(30);

/// Where failed events go.
pub(crate) struct FailureTopic {
    pub(crate) name: Arc<str>,
    pub(crate) group_id: Arc<str>,
    pub(crate) source_system: Arc<str>,
    /// Of its own: what cannot be written there must not fill the memory for what the application sends.
    pub(crate) producer: Producer,
    pub(crate) spawner: Spawner,
}

/// Writes an event to the failure topic, however often that takes, and then finishes it. `trace` is where its handler
/// ran, if it did.
pub(crate) fn write(
    pipeline: &Arc<Pipeline>,
    topic: &Arc<FailureTopic>,
    gate: &Arc<Gate>,
    partition: Arc<Partition>,
    mut one: Admitted,
    (failure, trace): (Failure, Option<TraceContext>),
) {
    let trace = trace.or_else(|| trace::origin(&one.event, one.root.as_deref()));
    partition.copy_out(one.slot, &mut one.event);
    let (pipeline, gate, spawner) = (Arc::clone(pipeline), Arc::clone(gate), topic.spawner.clone());
    let topic = Arc::clone(topic);
    let writing = async move {
        let clock = &pipeline.clock;
        let written = {
            let too_late = async {
                partition.draining().await;
                let _ = clock.until(clock.now() + LAST_WRITE, partition.cancelled()).await;
            };
            tokio::select! {
                biased;
                () = deliver(&pipeline, &topic, &partition, &one.event, (&failure, trace.clone())) => true,
                () = too_late => false,
            }
        };
        if written {
            pipeline.counters.routed.one();
            if matches!(one.event.position(), Position::Due(_)) {
                pipeline.counters.timers_routed.one();
            }
            // Its id is not remembered: it has to run when somebody sends it back.
            settle::end(&gate, partition, one, Effects::Failed.into(), &mut Vec::new(), &mut None).await;
        } else {
            partition.finish(one.slot, one.event.ticket(), Ending::Unfinished, &mut Vec::new(), &mut None);
        }
        gate.rouse();
    };
    spawner.spawn(Lane::Work, writing).detach();
}

/// Ends when the record is in the topic.
async fn deliver(
    pipeline: &Pipeline,
    topic: &FailureTopic,
    partition: &Partition,
    event: &Event,
    (failure, trace): (&Failure, Option<TraceContext>),
) {
    let (clock, tp, position) = (&pipeline.clock, partition.tp(), event.position());
    let names = (&*topic.group_id, &*topic.source_system);
    let (trace, span) = pipeline.tracing.sending(&topic.name, Some(event.key()), trace);
    let routed = Routed::new(names, trace.as_ref(), tp, event, failure);
    let headers = routed.headers();
    let mut tries = 0u32;
    loop {
        let outgoing = OutgoingRecord {
            topic: &topic.name,
            partition: None,
            key: routed.key(),
            value: routed.value(),
            headers: &headers,
            timestamp: None,
        };
        let mut sending = pin!(topic.producer.send(outgoing, None));
        if sabotaged("route-acknowledged") {
            return;
        }
        let sent = loop {
            match clock.until(clock.now() + MENTION, sending.as_mut()).await {
                Ok(sent) => break sent,
                Err(_) => warn!(
                    topic = &*tp.topic,
                    partition = tp.partition,
                    at = %position,
                    failure_topic = &*topic.name,
                    "the failure topic has not acknowledged an event for {} s; its key waits",
                    MENTION.as_secs()
                ),
            }
        };
        let why = match sent {
            Ok(delivery) => return span.delivered(delivery.partition, delivery.offset),
            Err(why) => why,
        };
        tries = tries.saturating_add(1);
        pipeline.counters.failed_routes.one();
        let wait = AGAIN.wait(tries, pipeline.rng.unit());
        error!(
            topic = &*tp.topic,
            partition = tp.partition,
            at = %position,
            failure_topic = &*topic.name,
            tries,
            retry_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "an event cannot be written to the failure topic; the write is repeated and its key waits: {why}"
        );
        clock.sleep(wait).await;
    }
}
