//! What happens to a message, in which order? Read [`admit`] and then [`process`] from top to bottom.
//!
//! | file | question it answers |
//! |---|---|
//! | `filter.rs` | which records are no business of the handler? |
//! | `dedup.rs` | was a message of this key and id processed before? |
//! | `attempt.rs` | how does one attempt at a handler run and end? |
//! | `retry.rs` | how long does a failed event wait? |

pub(crate) mod attempt;
pub(crate) mod dedup;
pub(crate) mod filter;
pub(crate) mod retry;

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

/// The steps of one subscription, with what each needs.
pub(crate) struct Pipeline {
    pub(crate) filter: Filter,
    pub(crate) dedup: Arc<Dedup>,
    pub(crate) backoff: Backoff,
    pub(crate) timeout: Duration,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) counters: Arc<Counters>,
}

/// What becomes of an event after an attempt.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It is finished: its offset counts as done.
    Done,
    /// It runs again after this wait; its key waits with it.
    Retry(Duration),
    /// It must run again elsewhere: its offset stays uncommitted.
    Unfinished,
    /// As [`Unfinished`](Verdict::Unfinished), but the handler runs on outside Rust and keeps its key and permit.
    LeftBehind,
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
    // 4. What its end means.
    let verdict = judge(pipeline, tp, event, outcome, attempt, is_running());
    // 5. A finished message's id is remembered before its key goes on.
    if (verdict == Verdict::Done || sabotaged("dedup-after-done"))
        && let Some(print) = fingerprint
    {
        pipeline.dedup.remember(print, pipeline.clock.now());
    }
    verdict
}

fn judge(
    pipeline: &Pipeline,
    tp: &TopicPartition,
    event: &Event,
    outcome: Outcome,
    attempt: &Arc<Attempt>,
    running: bool,
) -> Verdict {
    let (counters, record) = (&pipeline.counters, &event.record);
    let error = match outcome {
        Outcome::Returned(Ok(())) => {
            counters.handled.one();
            return Verdict::Done;
        }
        Outcome::Abandoned if attempt.is_occupied() => return Verdict::LeftBehind,
        Outcome::Abandoned => return Verdict::Unfinished,
        Outcome::Returned(Err(error)) => error,
        Outcome::Panicked(text) => {
            counters.panics.one();
            HandlerError::transient(format!("the handler panicked: {text}"))
        }
    };
    if error.is_unreadable() && record.payload().is_some_and(|payload| !json::is_valid(payload)) {
        poison(counters, tp, record.offset, record.key(), "its payload is not JSON");
        return Verdict::Done;
    }
    if error.class() == ErrorClass::Permanent {
        counters.permanent_errors.one();
        error!(
            topic = &*tp.topic,
            partition = tp.partition,
            offset = record.offset,
            key = %String::from_utf8_lossy(record.key()),
            error = error.text(),
            "a message is given up: its handler failed for a permanent reason"
        );
        return Verdict::Done;
    }
    counters.failed_attempts.one();
    if sabotaged("transient-is-not-done") {
        return Verdict::Done;
    }
    if !running {
        return Verdict::Unfinished;
    }
    let attempts = event.failures.saturating_add(1);
    let wait = pipeline.backoff.wait(attempts, pipeline.rng.unit());
    warn!(
        topic = &*tp.topic,
        partition = tp.partition,
        offset = record.offset,
        key = %String::from_utf8_lossy(record.key()),
        attempts,
        retry_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        error = error.text(),
        "a handler failed; its message is retried"
    );
    Verdict::Retry(wait)
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
