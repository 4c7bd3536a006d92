//! What happens to an event, in which order? Read [`admit`] and then [`process`] from top to bottom.
//!
//! | file | question it answers |
//! |---|---|
//! | `filter.rs` | which records are no business of the handler? |
//! | `dedup.rs` | was a message of this key and id processed before? |
//! | `attempt.rs` | how does one attempt at a handler run and end? |
//! | `verdict.rs` | what becomes of an event after an attempt, in which mode? |
//! | `failure.rs` | what does a record of the failure topic look like? |
//! | `retry.rs` | how long does a failed event wait? |

pub(crate) mod attempt;
pub(crate) mod dedup;
pub(crate) mod failure;
pub(crate) mod filter;
pub(crate) mod retry;
pub(crate) mod verdict;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prosody_base::{Clock, Rng, sabotaged};
use prosody_state::Firing;
use prosody_wire::TopicPartition;
use prosody_wire::batch::RecordView;
use tracing::{error, warn};

use crate::context::{Attempt, Context};
use crate::handler::{ErrorClass, Handler, HandlerError};
use crate::insight::Counters;
use crate::json;
use crate::partition::event::{Event, Position, What, timer_of};
use crate::partition::keys::Keyed;
use crate::partition::record::Record;
use crate::partition::runtime::Partition;
use crate::partition::window::Admitted;
use crate::schedule::gate::Gate;
use crate::schedule::routes::FailureTopic;
use crate::telemetry::Telemetry;

use attempt::Outcome;
use dedup::{Dedup, Fingerprint};
use failure::Failure;
use filter::{Filter, Poison, Skip};
use retry::Backoff;
use verdict::{End, Facts, Steps, Verdict};

/// The steps of one subscription, with what each needs.
pub(crate) struct Pipeline {
    pub(crate) filter: Filter,
    pub(crate) dedup: Arc<Dedup>,
    pub(crate) steps: Steps,
    pub(crate) backoff: Backoff,
    pub(crate) failure_topic: Option<Arc<FailureTopic>>,
    pub(crate) timeout: Duration,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) counters: Arc<Counters>,
    pub(crate) telemetry: Option<Arc<Telemetry>>,
}

/// What becomes of an event, with what a failure topic needs to know.
pub(crate) struct Fate {
    pub(crate) verdict: Verdict,
    pub(crate) failure: Failure,
}

/// Before a record enters its key's queue.
pub(crate) fn admit(
    pipeline: &Pipeline,
    view: &RecordView<'_>,
    data: &Bytes,
    leader_epoch: i32,
) -> Option<Record> {
    let counters = &pipeline.counters;
    match pipeline.filter.judge(view) {
        Ok(judged) => {
            if view.value().is_none() {
                counters.tombstones.one();
            }
            return Some(Record::new(view, data, leader_epoch, judged));
        }
        Err(Skip::Own) => counters.skipped_own.one(),
        Err(Skip::Type) => counters.skipped_type.one(),
    }
    None
}

/// At the head of its key's queue, with a permit: one attempt.
pub(crate) async fn process<H: Handler>(
    pipeline: &Pipeline,
    handler: &H,
    partition: &Partition,
    Admitted { event, root, .. }: &Admitted,
    attempt: &Arc<Attempt>,
    gate: &Arc<Gate>,
) -> Fate {
    let (tp, is_running) = (partition.tp(), || partition.is_running());
    let (clock, counters) = (&pipeline.clock, &*pipeline.counters);
    // 1. Nothing starts once the partition is being given up.
    if !is_running() && !sabotaged("drain-starts-nothing") {
        return Fate { verdict: Verdict::Unfinished, failure: Failure::default() };
    }
    let mut fingerprint = None;
    if let What::Message(_, record) = &event.what {
        // 2. A record that is no message goes past the handler.
        if let Some(poison) = record.poison {
            let facts = Facts { end: End::Poison, attempts: 0, running: true };
            return judge(pipeline, tp, event, facts, poison.why().to_owned());
        }
        // 3. Duplicates are judged here and nowhere else: no other event of this key is out, so equal ids cannot both
        // pass.
        fingerprint = self::fingerprint(pipeline, tp, record);
        if fingerprint.is_some_and(|print| pipeline.dedup.seen(print, clock.now())) {
            counters.duplicates.one();
            return Fate { verdict: Verdict::Done, failure: Failure::default() };
        }
    }
    // 4. What the key's record says is done, or is there no more, does not run.
    if let (Some(durable), Some(root)) = (partition.durable(), root) {
        match &event.what {
            What::Message(_, record) if durable.is_done(root, record) => {
                counters.skipped_done.one();
                remember(pipeline, tp, record);
                return Fate { verdict: Verdict::Done, failure: Failure::default() };
            }
            What::Timer(due) if !root.holds(due.id, due.nonce) && !sabotaged("timer-live") => {
                return Fate { verdict: Verdict::Done, failure: Failure::default() };
            }
            What::Message(..) => attempt.open(root, None, event.key()),
            What::Timer(due) => attempt.open(root, Some(Firing::Pending(due.id)), event.key()),
        }
    }
    // 5. The handler, with its timeout and its cancellation.
    let told = pipeline.telemetry.as_ref().map(|telemetry| (telemetry, telemetry.dispatched(tp, event)));
    let context = Context::new(Arc::clone(attempt));
    let outcome = match &event.what {
        What::Message(_, record) => {
            let message = record.message(&tp.topic, tp.partition);
            if message.is_tombstone() {
                attempt::run(|| handler.on_tombstone(context, message), attempt, gate, clock, counters).await
            } else {
                attempt::run(|| handler.on_message(context, message), attempt, gate, clock, counters).await
            }
        }
        What::Timer(due) => {
            let timer = timer_of(due);
            attempt::run(|| handler.on_timer(context, timer), attempt, gate, clock, counters).await
        }
    };
    // 6. What its end means: the steps of the mode.
    let (end, why) = end_of(counters, event, outcome, attempt);
    if let Some((telemetry, subject)) = told {
        telemetry.ended(subject, end, &why);
    }
    let facts = Facts { end, attempts: event.failures.saturating_add(1), running: is_running() };
    let fate = judge(pipeline, tp, event, facts, why);
    // 7. A finished message's id is remembered before its key goes on.
    if (fate.verdict.is_final() || sabotaged("dedup-after-done"))
        && let Some(print) = fingerprint
    {
        pipeline.dedup.remember(print, clock.now());
    }
    fate
}

/// Remembers the id of a message that was finished elsewhere than in [`process`].
pub(crate) fn remember(pipeline: &Pipeline, tp: &TopicPartition, record: &Record) {
    if let Some(print) = fingerprint(pipeline, tp, record) {
        pipeline.dedup.remember(print, pipeline.clock.now());
    }
}

/// How an attempt ended, counted, and why it failed.
fn end_of(counters: &Counters, event: &Event, outcome: Outcome, attempt: &Attempt) -> (End, String) {
    let error = match outcome {
        Outcome::Returned(Ok(())) => {
            match &event.what {
                What::Message(..) => counters.handled.one(),
                What::Timer(_) => counters.timers_handled.one(),
            }
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
    if let What::Message(_, record) = &event.what
        && error.is_unreadable()
        && record.payload().is_some_and(|payload| !json::is_valid(payload))
    {
        return (End::Poison, Poison::Payload.why().to_owned());
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

/// The verdict, and one line for what did not end well.
fn judge(pipeline: &Pipeline, tp: &TopicPartition, event: &Event, facts: Facts, why: String) -> Fate {
    let verdict = pipeline.steps.judge(facts, pipeline.backoff, || pipeline.rng.unit());
    let attempts = facts.attempts;
    let poison = facts.end == End::Poison;
    if poison {
        pipeline.counters.poison.one();
    } else if verdict == Verdict::GiveUp {
        pipeline.counters.given_up.one();
    }
    let (topic, partition) = (&*tp.topic, tp.partition);
    let (offset, timer) = match event.position() {
        Position::Offset(offset) => (Some(offset), None),
        Position::Due(time) => (None, Some(time)),
    };
    let what = if timer.is_some() { "a timer" } else { "a message" };
    let key = || match &event.what {
        What::Message(_, record) if record.written_key().is_none() => "(none)".to_owned(),
        _ => match std::str::from_utf8(event.key()) {
            Ok(text) => text.to_owned(),
            Err(_) => event.key().escape_ascii().to_string(),
        },
    };
    match verdict {
        Verdict::GiveUp if poison => {
            warn!(topic, partition, offset, key = %key(), "a record is skipped because it is no message: {why}");
        }
        Verdict::Route if poison => warn!(
            topic, partition, offset, key = %key(),
            "a record goes to the failure topic because it is no message: {why}"
        ),
        Verdict::GiveUp => error!(
            topic, partition, offset, timer, key = %key(), attempts, error = why,
            "{what} is given up: its handler failed"
        ),
        Verdict::Route => error!(
            topic, partition, offset, timer, key = %key(), attempts, error = why,
            "{what} goes to the failure topic: its handler failed"
        ),
        Verdict::Retry(wait) => warn!(
            topic, partition, offset, timer, key = %key(), attempts, error = why,
            retry_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "a handler failed; {what} is retried"
        ),
        Verdict::Done | Verdict::Unfinished | Verdict::LeftBehind => {}
    }
    Fate { verdict, failure: Failure { poison, error: why, attempts } }
}

fn fingerprint(pipeline: &Pipeline, tp: &TopicPartition, record: &Record) -> Option<Fingerprint> {
    let (id, payload) = (record.id.as_ref()?, record.payload()?);
    Some(pipeline.dedup.fingerprint(&tp.topic, record.key(), &id.of(payload)))
}
