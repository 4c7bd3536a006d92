//! What happens to an event, in which order? Read [`admit`] and then [`process`] from top to bottom.
//!
//! | file | question it answers |
//! |---|---|
//! | `filter.rs` | which records are no business of the handler? |
//! | `dedup.rs` | which events were finished lately? |
//! | `monopoly.rs` | does one key take all the time? |
//! | `attempt.rs` | how does one attempt at a handler run and end? |
//! | `verdict.rs` | what becomes of an event after an attempt, in which mode? |
//! | `defer.rs` | may a failed event be set aside, and for how long? |
//! | `failure.rs` | what does a record of the failure topic look like? |
//! | `retry.rs` | how long does a failed event wait? |

pub(crate) mod attempt;
pub(crate) mod dedup;
pub(crate) mod defer;
pub(crate) mod failure;
pub(crate) mod filter;
pub(crate) mod monopoly;
pub(crate) mod retry;
pub(crate) mod verdict;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prosody_base::{Clock, Rng, sabotaged};
use prosody_state::{EventId, EventScope, Firing, KeyImage, MAX_KEY_BYTES, TimerKind};
use prosody_wire::TopicPartition;
use prosody_wire::batch::RecordView;
use tracing::{error, warn};

use crate::context::{Attempt, Context};
use crate::durable::deferred::queue_of;
use crate::handler::{ErrorClass, Handler, HandlerError};
use crate::insight::Counters;
use crate::json;
use crate::partition::event::{Entry, Event, Position, Subject, What, timer_of};
use crate::partition::keys::Keyed;
use crate::partition::record::Record;
use crate::partition::runtime::Partition;
use crate::partition::window::Admitted;
use crate::schedule::gate::Gate;
use crate::schedule::routes::FailureTopic;
use crate::telemetry::Telemetry;
use crate::trace::Tracing;

use attempt::Outcome;
use dedup::Dedup;
use defer::{Deferral, FailureRate, MAX_ENTRIES};
use failure::Failure;
use filter::{Filter, Poison, Skip};
use monopoly::Monopoly;
use retry::Backoff;
use verdict::{End, Facts, Steps, Verdict};

/// The steps of one subscription, with what each needs.
pub(crate) struct Pipeline {
    pub(crate) filter: Filter,
    pub(crate) dedup: Arc<Dedup>,
    /// What the ids of events have in common.
    pub(crate) events: EventScope,
    pub(crate) steps: Steps,
    pub(crate) backoff: Backoff,
    pub(crate) deferral: Deferral,
    pub(crate) failure_rate: Mutex<FailureRate>,
    /// `None`: keys may take all the time.
    pub(crate) monopoly: Option<Monopoly>,
    pub(crate) failure_topic: Option<Arc<FailureTopic>>,
    pub(crate) timeout: Duration,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) counters: Arc<Counters>,
    pub(crate) telemetry: Option<Arc<Telemetry>>,
    pub(crate) tracing: Arc<Tracing>,
}

/// What becomes of an event, with what a failure topic needs to know.
pub(crate) struct Fate {
    pub(crate) verdict: Verdict,
    pub(crate) failure: Failure,
    /// What the store has to remember once the effects are there.
    pub(crate) event: Option<EventId>,
}

impl Fate {
    /// The handler did not run.
    fn plain(verdict: Verdict) -> Fate {
        Fate { verdict, failure: Failure::default(), event: None }
    }
}

impl Pipeline {
    fn failure_rate(&self) -> std::sync::MutexGuard<'_, FailureRate> {
        self.failure_rate.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
            let received = pipeline.tracing.now();
            return Some(Record::new(view, data, (leader_epoch, received), judged));
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
    Admitted { event, root, seen, .. }: &Admitted,
    attempt: &Arc<Attempt>,
    gate: &Arc<Gate>,
) -> Fate {
    let (tp, is_running) = (partition.tp(), || partition.is_running());
    let (clock, counters) = (&pipeline.clock, &*pipeline.counters);
    // 1. Nothing starts once the partition is being given up.
    if !is_running() && !sabotaged("drain-starts-nothing") {
        return Fate::plain(Verdict::Unfinished);
    }
    // 2. A deferred message that is void or cannot be had any more is passed over; one that could not be read comes back
    // later.
    if let What::Retry(retry) = &event.what {
        match (&retry.entry, partition.durable()) {
            (Entry::Gone(offset, why), Some(durable)) => {
                durable.tell_gone(event.key(), *offset, why);
                return Fate::plain(Verdict::Done);
            }
            (Entry::Void(_), _) => return Fate::plain(Verdict::Done),
            (Entry::Unread(_, why), _) => {
                warn!(partition = %tp, "a deferred message waits again: {why}");
                return Fate::plain(Verdict::Defer);
            }
            _ => {}
        }
    }
    let mut id = None;
    if let Subject::Message(record) = event.subject() {
        // 3. A record that is no message goes past the handler.
        if let Some(poison) = record.poison {
            let facts =
                Facts { end: End::Poison, attempts: 0, running: true, may_defer: false, deferred: None };
            return judge(pipeline, tp, event, facts, poison.why().to_owned());
        }
        // 4. Duplicates are judged here and nowhere else: no other event of this key is out, so equal ids cannot both
        // pass. The store was asked when the event got here.
        id = event_id(pipeline, tp, record);
        if id.is_some_and(|id| pipeline.dedup.seen(id, clock.now())) || *seen == Some(true) {
            counters.duplicates.one();
            return Fate::plain(Verdict::Done);
        }
    }
    // 5. What the key's record says is done, or is there no more, does not run; nor does what stands behind deferred events.
    if let (Some(durable), Some(root)) = (partition.durable(), root) {
        match &event.what {
            What::Message(_, record) if durable.is_done(root, record) => {
                counters.skipped_done.one();
                // It may be one of the deferred ones, which have yet to run: remembered, they would be duplicates.
                let ran = root.messages.count == 0 || sabotaged("defer-forgets");
                return Fate { event: id.filter(|_| ran), ..Fate::plain(Verdict::Done) };
            }
            What::Timer(due) if !root.holds(due.id, due.nonce) && !sabotaged("timer-live") => {
                return Fate::plain(Verdict::Done);
            }
            // A queue that was emptied by others: only its timer is left.
            What::Timer(due) if due.id.kind != TimerKind::Application => return Fate::plain(Verdict::Done),
            _ => {}
        }
        if let Some(entries) = held_back(event, root) {
            if entries < MAX_ENTRIES {
                return Fate::plain(Verdict::Defer);
            }
            let wait = pipeline.backoff.wait(event.failures.saturating_add(1), pipeline.rng.unit());
            return Fate::plain(Verdict::Retry(wait));
        }
        let firing = match &event.what {
            What::Timer(due) => Some(Firing::Pending(due.id)),
            What::Retry(retry) if matches!(retry.entry, Entry::Timer(_)) => {
                Some(Firing::Deferred(retry.number))
            }
            What::Message(..) | What::Retry(_) => None,
        };
        attempt.open(root, firing, event.key());
    }
    // 6. A key that takes nearly all the time gives it to others.
    if let Some(monopoly) = &pipeline.monopoly
        && monopoly.is_exceeded(|| partition.key_name(event.key()), clock.now())
    {
        counters.monopolies.one();
        let why = "its key took more than MonopolizationThreshold of the execution time".to_owned();
        let facts = facts(pipeline, partition, event, End::Transient);
        return judge(pipeline, tp, event, facts, why);
    }
    // 7. The handler, with its timeout and its cancellation, in the trace of what caused the event.
    let (lineage, span) = pipeline.tracing.begin(tp, event, root.as_deref());
    let trace = lineage.map(|lineage| attempt.place.begin(lineage));
    let trace = trace.as_ref();
    let told =
        pipeline.telemetry.as_ref().map(|telemetry| (telemetry, telemetry.dispatched(tp, event, trace)));
    let context = Context::new(Arc::clone(attempt));
    let outcome = match event.subject() {
        Subject::Message(record) => {
            let message = record.message(&tp.topic, tp.partition);
            if message.is_tombstone() {
                attempt::run(|| handler.on_tombstone(context, message), attempt, trace, gate, clock, counters)
                    .await
            } else {
                attempt::run(|| handler.on_message(context, message), attempt, trace, gate, clock, counters)
                    .await
            }
        }
        Subject::Timer(time) => {
            let timer = timer_of(event.key(), time);
            attempt::run(|| handler.on_timer(context, timer), attempt, trace, gate, clock, counters).await
        }
        Subject::Nothing => Outcome::Abandoned,
    };
    // 8. What its end means: the steps of the mode.
    let (end, why) = end_of(counters, event, outcome, attempt);
    pipeline.tracing.end(span, attempt, end, &why);
    if let Some((telemetry, subject)) = told {
        telemetry.ended(subject.at(attempt.place.here()), end, &why);
    }
    if partition.durable().is_some() && event.failures == 0 && event.deferred().is_none() && is_running() {
        note(pipeline, end);
    }
    let facts = facts(pipeline, partition, event, end);
    let mut fate = judge(pipeline, tp, event, facts, why);
    // 9. A finished message's id is remembered before its key goes on, with a store once its effects are there. What
    // may be sent again to run after all is not: what failed for a reason that may pass, or is in the failure topic.
    let ended = matches!((fate.verdict, end), (Verdict::Done, _) | (Verdict::GiveUp, End::Permanent));
    match id {
        Some(id) if sabotaged("dedup-after-done") || (ended && partition.durable().is_none()) => {
            pipeline.dedup.remember(id, clock.now());
        }
        _ => fate.event = id.filter(|_| ended),
    }
    fate
}

/// How many deferred events an event has to stand behind; `None`: it is free to run.
fn held_back(event: &Event, root: &KeyImage) -> Option<u32> {
    let kind = match &event.what {
        What::Message(..) => TimerKind::DeferredMessage,
        What::Timer(_) => TimerKind::DeferredTimer,
        What::Retry(_) => return None,
    };
    let entries = queue_of(root, kind).count;
    (entries > 0 && !sabotaged("defer-holds-back")).then_some(entries)
}

/// What the verdict depends on.
fn facts(pipeline: &Pipeline, partition: &Partition, event: &Event, end: End) -> Facts {
    let deferred = event.deferred();
    let before = deferred.map_or(0, |tried| tried.saturating_add(1));
    // A key that is too long for a record cannot have deferred events.
    let stored = partition.durable().is_some() && event.key().len() <= MAX_KEY_BYTES;
    let may_defer = end == End::Transient
        && stored
        && pipeline.deferral.enabled
        && pipeline.failure_rate().allows(pipeline.clock.now());
    Facts {
        end,
        attempts: event.failures.saturating_add(1).saturating_add(before),
        running: partition.is_running(),
        may_defer,
        deferred,
    }
}

/// The first run of an event ended. What is refused for good says nothing about an outage.
fn note(pipeline: &Pipeline, end: End) {
    if matches!(end, End::Ok | End::Transient | End::Permanent) {
        pipeline.failure_rate().ended(end == End::Transient, pipeline.clock.now());
    }
}

/// How an attempt ended, counted, and why it failed.
fn end_of(counters: &Counters, event: &Event, outcome: Outcome, attempt: &Attempt) -> (End, String) {
    let error = match outcome {
        Outcome::Returned(Ok(())) => {
            match event.subject() {
                Subject::Message(_) => counters.handled.one(),
                Subject::Timer(_) => counters.timers_handled.one(),
                Subject::Nothing => {}
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
    if let Subject::Message(record) = event.subject()
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
    let (topic, partition) = (&*tp.topic, tp.partition);
    let (offset, timer) = match event.position() {
        Position::Offset(offset) => (Some(offset), None),
        Position::Due(time) => (None, Some(time)),
    };
    if poison {
        pipeline.counters.poison.one();
    } else if verdict == Verdict::GiveUp {
        pipeline.counters.given_up.one();
        if timer.is_some() {
            pipeline.counters.timers_given_up.one();
        }
    }
    let what = if timer.is_some() { "a timer" } else { "a message" };
    let key = || match event.subject() {
        Subject::Message(record) if record.written_key().is_none() => "(none)".to_owned(),
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
        Verdict::Defer => warn!(
            topic, partition, offset, timer, key = %key(), attempts, error = why,
            "a handler failed; {what} is set aside and tried again later"
        ),
        Verdict::Done | Verdict::Unfinished | Verdict::LeftBehind => {}
    }
    Fate { verdict, failure: Failure { poison, error: why, attempts }, event: None }
}

/// The event that a message is, when its payload has an `id`.
pub(crate) fn event_id(pipeline: &Pipeline, tp: &TopicPartition, record: &Record) -> Option<EventId> {
    let (id, payload) = (record.id.as_ref()?, record.payload()?);
    Some(pipeline.events.event(&tp.topic, tp.partition, record.key(), &id.of(payload)))
}
