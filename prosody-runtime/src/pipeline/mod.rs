//! What happens to a message, in which order? Read [`admit`] and then [`process`] from top to bottom.
//!
//! | file | question it answers |
//! |---|---|
//! | `filter.rs` | which records are no business of the handler? |
//! | `dedup.rs` | was a message of this key and id processed before? |
//! | `attempt.rs` | how does one attempt at a handler run and end? |
//! | `verdict.rs` | what becomes of an event after an attempt, in which mode? |
//! | `retry.rs` | how long does a failed event wait? |

pub(crate) mod attempt;
pub(crate) mod dedup;
pub(crate) mod filter;
pub(crate) mod retry;
pub(crate) mod verdict;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prosody_base::{Clock, Rng, sabotaged};
use prosody_wire::TopicPartition;
use prosody_wire::batch::RecordView;
use tracing::{error, warn};

use crate::context::{Attempt, Context};
use crate::handler::{ErrorClass, Handler, HandlerError};
use crate::insight::Counters;
use crate::json;
use crate::partition::record::{Event, Record};
use crate::schedule::gate::Gate;

use attempt::Outcome;
use dedup::{Dedup, Fingerprint};
use filter::{Filter, Skip};
use retry::Backoff;
use verdict::{End, Facts, Steps, Verdict};

/// The steps of one subscription, with what each needs.
pub(crate) struct Pipeline {
    pub(crate) filter: Filter,
    pub(crate) dedup: Arc<Dedup>,
    pub(crate) steps: Steps,
    pub(crate) backoff: Backoff,
    pub(crate) timeout: Duration,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) counters: Arc<Counters>,
}

/// Before a record enters its key's queue.
pub(crate) fn admit(
    pipeline: &Pipeline,
    tp: &TopicPartition,
    view: &RecordView<'_>,
    data: &Bytes,
    leader_epoch: i32,
) -> Option<Record> {
    let counters = &pipeline.counters;
    // Own messages, records that are no messages, types that are not wanted.
    match pipeline.filter.judge(view) {
        Ok(id) => {
            if view.value().is_none() {
                counters.tombstones.one();
            }
            return Some(Record::new(view, data, leader_epoch, id));
        }
        Err(Skip::Own) => counters.skipped_own.one(),
        Err(Skip::Type) => counters.skipped_type.one(),
        Err(Skip::Poison(why)) => poison(counters, tp, view.offset(), view.key().unwrap_or_default(), why),
    }
    None
}

/// At the head of its key's queue, with a permit: one attempt.
pub(crate) async fn process<H: Handler>(
    pipeline: &Pipeline,
    handler: &H,
    tp: &TopicPartition,
    event: &Event,
    attempt: &Arc<Attempt>,
    gate: &Arc<Gate>,
    is_running: impl Fn() -> bool,
) -> Verdict {
    // 1. Nothing starts once the partition is being given up.
    if !is_running() && !sabotaged("drain-starts-nothing") {
        return Verdict::Unfinished;
    }
    // 2. Duplicates are judged here and nowhere else: no other event of this key is out, so equal ids cannot both pass.
    let fingerprint = fingerprint(pipeline, tp, &event.record);
    if let Some(print) = fingerprint
        && pipeline.dedup.seen(print, pipeline.clock.now())
    {
        pipeline.counters.duplicates.one();
        return Verdict::Done;
    }
    // 3. The handler, with its timeout and its cancellation.
    let context = Context::new(Arc::clone(attempt));
    let message = event.record.message(&tp.topic, tp.partition);
    let (clock, counters) = (&pipeline.clock, &*pipeline.counters);
    let outcome = if message.is_tombstone() {
        attempt::run(|| handler.on_tombstone(context, message), attempt, gate, clock, counters).await
    } else {
        attempt::run(|| handler.on_message(context, message), attempt, gate, clock, counters).await
    };
    // 4. What its end means: the steps of the mode.
    let (end, why) = end_of(pipeline, tp, &event.record, outcome, attempt);
    let facts = Facts { end, attempts: event.failures.saturating_add(1), running: is_running() };
    let verdict = pipeline.steps.judge(facts, pipeline.backoff, || pipeline.rng.unit());
    tell(pipeline, tp, &event.record, facts.attempts, verdict, &why);
    // 5. A finished message's id is remembered before its key goes on.
    if (verdict.is_final() || sabotaged("dedup-after-done"))
        && let Some(print) = fingerprint
    {
        pipeline.dedup.remember(print, pipeline.clock.now());
    }
    verdict
}

/// How an attempt ended, counted, and why it failed.
fn end_of(
    pipeline: &Pipeline,
    tp: &TopicPartition,
    record: &Record,
    outcome: Outcome,
    attempt: &Attempt,
) -> (End, String) {
    let counters = &pipeline.counters;
    let error = match outcome {
        Outcome::Returned(Ok(())) => {
            counters.handled.one();
            return (End::Ok, String::new());
        }
        Outcome::Abandoned if attempt.is_occupied() => return (End::Occupied, String::new()),
        Outcome::Abandoned => return (End::Abandoned, String::new()),
        Outcome::Returned(Err(error)) => error,
        Outcome::Panicked(text) => {
            counters.panics.one();
            HandlerError::transient(format!("the handler panicked: {text}"))
        }
    };
    if error.is_unreadable() && record.payload().is_some_and(|payload| !json::is_valid(payload)) {
        poison(counters, tp, record.offset, record.key(), "its payload is not JSON");
        return (End::Poison, String::new());
    }
    match error.class() {
        ErrorClass::Transient => {
            counters.failed_attempts.one();
            (End::Transient, error.into_text())
        }
        ErrorClass::Permanent => {
            counters.permanent_errors.one();
            (End::Permanent, error.into_text())
        }
    }
}

/// One line for what did not end well.
fn tell(
    pipeline: &Pipeline,
    tp: &TopicPartition,
    record: &Record,
    attempts: u32,
    verdict: Verdict,
    why: &str,
) {
    let (topic, partition, offset) = (&*tp.topic, tp.partition, record.offset);
    let key = || String::from_utf8_lossy(record.key());
    match verdict {
        Verdict::GiveUp => {
            pipeline.counters.given_up.one();
            error!(
                topic,
                partition,
                offset,
                key = %key(),
                attempts,
                error = why,
                "a message is given up: its handler failed"
            );
        }
        Verdict::Retry(wait) => {
            let retry_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            warn!(
                topic,
                partition,
                offset,
                key = %key(),
                attempts,
                retry_in_ms,
                error = why,
                "a handler failed; its message is retried"
            );
        }
        Verdict::Done | Verdict::Unfinished | Verdict::LeftBehind => {}
    }
}

fn fingerprint(pipeline: &Pipeline, tp: &TopicPartition, record: &Record) -> Option<Fingerprint> {
    let (id, payload) = (record.id.as_ref()?, record.payload()?);
    Some(pipeline.dedup.fingerprint(&tp.topic, record.key(), &id.of(payload)))
}

/// A record that is no message never vanishes unseen: one line with its position, and a count.
fn poison(counters: &Counters, tp: &TopicPartition, offset: i64, key: &[u8], why: &str) {
    counters.poison.one();
    warn!(
        topic = &*tp.topic,
        partition = tp.partition,
        offset,
        key = %key.escape_ascii(),
        "a record is skipped because it is no message: {why}"
    );
}
