//! How do the effects of an event become durable? As one conditional batch, before its offset counts as done. The first
//! step is taken by the worker itself; what is not done then goes on without it, the key held.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use prosody_base::{Lane, sabotaged};
use prosody_state::{
    Committed, EventId, Firing, KeyBatch, KeyImage, Overlay, Resolution, Time, TimerId, TimerKind, resolve,
};
use tracing::warn;

use super::Durable;
use super::head::Head;
use super::images::Kept;
use crate::partition::event::{Event, What};
use crate::partition::keys::Keyed;
use crate::partition::runtime::Partition;
use crate::partition::window::{Admitted, Ending};
use crate::schedule::gate::{Gate, Ran};
use crate::telemetry::Happened;
use crate::timers::{DueTimer, TimerEnd};
use crate::trace::TraceContext;

/// How long a partition that is being given up waits for the store: shorter than any drain.
const LAST_BATCH: Duration = Duration::from_secs(5);

/// How an event was done.
pub(crate) enum Effects {
    /// Its handler succeeded, or need not run; what it asked for, and where it ran, for telemetry.
    Succeeded(Option<Box<Overlay>>, Option<TraceContext>),
    /// It failed and is not tried again: nothing it asked for counts.
    Failed,
    /// It is set aside for this long: nothing it asked for counts.
    Deferred(Duration),
}

/// An event that is done.
pub(crate) struct Ended {
    pub(crate) effects: Effects,
    /// What is remembered once the effects are there, so that it does not run again.
    pub(crate) event: Option<EventId>,
}

impl From<Effects> for Ended {
    /// Nothing is remembered.
    fn from(effects: Effects) -> Ended {
        Ended { effects, event: None }
    }
}

/// What is left to write of an event that is done.
pub(super) struct Plan {
    pub(super) batch: KeyBatch,
    pub(super) timer: Option<(Box<DueTimer>, TimerEnd)>,
    pub(super) failed: bool,
    /// The first of a queue of deferred events from now on, when it is known: of which queue, and when it came.
    pub(super) first: Option<(TimerKind, i64)>,
    /// The next of a queue of deferred events follows.
    pub(super) goes_on: bool,
}

/// What became of it.
enum Settled {
    Done,
    /// The timer that brought it back brings the next one.
    GoesOn,
    /// Somebody else wrote the key's record: it has to run again, on what is there now.
    Again,
    Unfinished,
}

/// Ends an event that is done: writes its effects if there are any, then finishes it. `scratch` and `ran` as in
/// [`Partition::finish`].
pub(crate) async fn end(
    gate: &Arc<Gate>,
    partition: Arc<Partition>,
    mut one: Admitted,
    Ended { effects, event }: Ended,
    scratch: &mut Vec<Admitted>,
    ran: &mut Option<Ran>,
) {
    let Some(durable) = partition.durable() else {
        return partition.finish(one.slot, one.event.ticket(), Ending::Done, scratch, ran);
    };
    let image = one.root.take().unwrap_or_else(|| Arc::clone(&durable.nothing));
    let here = if let Effects::Succeeded(_, here) = &effects { here.clone() } else { None };
    let plan = durable.plan(&partition, &one.event, &image, effects);
    if plan.is_none() && event.is_none() {
        return partition.finish(one.slot, one.event.ticket(), Ending::Done, scratch, ran);
    }
    let mut settling: Pin<Box<dyn Future<Output = Settled> + Send>> = {
        let (durable, partition, key) =
            (Arc::clone(durable), Arc::clone(&partition), Bytes::copy_from_slice(one.event.key()));
        let told = plan.as_ref().map(|plan| durable.changes(&one.event, &image, &plan.batch, here));
        let changes = told.unwrap_or_default();
        Box::pin(async move {
            let late = async {
                partition.draining().await;
                let clock = &durable.doors.clock;
                let _ = clock.until(clock.now() + LAST_BATCH, partition.cancelled()).await;
            };
            tokio::select! {
                biased;
                settled = settle(&durable, &partition, &key, image, plan, event) => {
                    if matches!(settled, Settled::Done | Settled::GoesOn) {
                        durable.tell(&key, changes);
                    }
                    settled
                }
                () = late => Settled::Unfinished,
            }
        })
    };
    match std::future::poll_fn(|cx| Poll::Ready(settling.as_mut().poll(cx))).await {
        Poll::Pending if sabotaged("settle-before-offset") => {
            durable.doors.spawner.spawn(Lane::Work, settling).detach();
            partition.finish(one.slot, one.event.ticket(), Ending::Done, scratch, ran);
        }
        Poll::Ready(settled) => conclude(&partition, one, settled, scratch, ran),
        Poll::Pending => {
            let (gate, spawner) = (Arc::clone(gate), durable.doors.spawner.clone());
            partition.copy_out(one.slot, &mut one.event);
            let rest = async move {
                let settled = settling.await;
                conclude(&partition, one, settled, &mut Vec::new(), &mut None);
                gate.rouse();
            };
            spawner.spawn(Lane::Work, rest).detach();
        }
    }
}

fn conclude(
    partition: &Arc<Partition>,
    mut one: Admitted,
    settled: Settled,
    scratch: &mut Vec<Admitted>,
    ran: &mut Option<Ran>,
) {
    let ending = match settled {
        // The next of its queue; or the same event again, if another owner wrote the record.
        Settled::GoesOn | Settled::Again => {
            (one.event, one.seen) = (one.event.without_entry(), None);
            return partition.resume(one);
        }
        Settled::Done => Ending::Done,
        Settled::Unfinished => Ending::Unfinished,
    };
    partition.finish(one.slot, one.event.ticket(), ending, scratch, ran);
}

async fn settle(
    durable: &Durable,
    partition: &Arc<Partition>,
    key: &Bytes,
    image: Arc<KeyImage>,
    plan: Option<Plan>,
    event: Option<EventId>,
) -> Settled {
    let settled = match plan {
        Some(plan) => write(durable, partition, key, image, plan).await,
        None => Settled::Done,
    };
    // After the batch: remembered first, the event would be lost by a crash in between.
    if let (Settled::Done | Settled::GoesOn, Some(event)) = (&settled, event) {
        durable.remember(key, event).await;
    }
    settled
}

async fn write(
    durable: &Durable,
    partition: &Arc<Partition>,
    key: &Bytes,
    mut image: Arc<KeyImage>,
    mut plan: Plan,
) -> Settled {
    loop {
        let known = image.messages.tail;
        let found = match durable.commit(key, image, &mut plan.batch, plan.first).await {
            Ok(None) => {
                if let Some((due, end)) = plan.timer {
                    durable.timers.ended(&due, end, |next| partition.fire(next));
                }
                return if plan.goes_on { Settled::GoesOn } else { Settled::Done };
            }
            Ok(Some(found)) => found,
            Err(Late) => return Settled::Unfinished,
        };
        durable.counters.conflicts.one();
        warn!(
            partition = %durable.tp,
            key = %String::from_utf8_lossy(key),
            "another owner of the partition wrote the record of a key; its event runs again once the group says that the \
             partition is ours"
        );
        durable.find_void(partition, key, known, &found).await;
        (durable.confirm)().await;
        // What failed for good does not run again for the sake of its timer.
        let timer = plan.timer.as_ref().filter(|_| plan.failed);
        let Some((due, _)) = timer else { return Settled::Again };
        match durable.plan_timer(partition, due.clone(), &found, Effects::Failed) {
            Some(again) => (image, plan) = (found, again),
            None => return Settled::Done,
        }
    }
}

/// The partition was given up meanwhile.
struct Late;

/// Timers that come and go with an event, for telemetry.
type Changes = Vec<(Happened, Time, Option<TraceContext>)>;

impl Durable {
    /// Which timers of handlers a batch schedules and cancels. What fires is neither.
    fn changes(
        &self,
        event: &Event,
        image: &KeyImage,
        batch: &KeyBatch,
        here: Option<TraceContext>,
    ) -> Changes {
        if self.pipeline.telemetry.is_none() {
            return Changes::new();
        }
        let application = |id: &TimerId| id.kind == TimerKind::Application;
        let (fired, number) = match &event.what {
            What::Message(..) => (None, None),
            What::Timer(due) => (Some(due.id), None),
            What::Retry(retry) => (None, Some(retry.number)),
        };
        let put = batch
            .put_timers
            .iter()
            .filter(|put| application(&put.id))
            .map(|put| (Happened::Scheduled, put.id.time, TraceContext::from_row(&put.facts.trace)));
        let ids = batch.delete_timers.iter().map(|deleted| deleted.id);
        let pending = ids.filter(|id| application(id) && Some(*id) != fired).map(|id| id.time);
        let numbers = batch.remove_timers.iter().filter(|removed| Some(**removed) != number);
        let deferred = numbers.filter_map(|number| Some(image.deferred_timers.get(number)?.time));
        let gone = pending.chain(deferred).map(|time| (Happened::Cancelled, time, here.clone()));
        put.chain(gone).collect()
    }

    fn tell(&self, key: &[u8], changes: Changes) {
        let Some(telemetry) = &self.pipeline.telemetry else { return };
        for (happened, time, trace) in changes {
            telemetry.timer(happened, (&self.tp, key), time, trace);
        }
    }

    fn plan(
        &self,
        partition: &Arc<Partition>,
        event: &Event,
        image: &Arc<KeyImage>,
        effects: Effects,
    ) -> Option<Plan> {
        match (&event.what, effects) {
            (What::Message(..), Effects::Deferred(wait)) => self.plan_defer(event, image, wait),
            (What::Timer(due), Effects::Deferred(wait)) if image.holds(due.id, due.nonce) => {
                self.plan_defer(event, image, wait)
            }
            (What::Message(_, record), Effects::Succeeded(Some(overlay), _)) => {
                let mut batch = overlay.into_batch(|| self.doors.rng.next_u64());
                if batch.is_empty() {
                    return None;
                }
                batch.last = Some(self.last(record));
                Some(Plan { batch, timer: None, failed: false, first: None, goes_on: false })
            }
            (What::Message(..), _) => None,
            (What::Timer(due), effects) => self.plan_timer(partition, due.clone(), image, effects),
            (What::Retry(retry), effects) => match self.plan_retry(retry, image, effects) {
                Some(plan) => Some(plan),
                None => self.plan_timer(partition, retry.due.clone(), image, Effects::Failed),
            },
        }
    }

    fn plan_timer(
        &self,
        partition: &Arc<Partition>,
        due: Box<DueTimer>,
        image: &Arc<KeyImage>,
        effects: Effects,
    ) -> Option<Plan> {
        let failed = matches!(effects, Effects::Failed);
        if !image.holds(due.id, due.nonce) {
            if due.writer == self.writer {
                self.timers.ended(&due, TimerEnd::Void, |next| partition.fire(next));
                return None;
            }
            // Its writer may be about to commit it: not any more after this batch.
            return Some(Plan {
                batch: KeyBatch::default(),
                timer: Some((due, TimerEnd::Void)),
                failed: false,
                first: None,
                goes_on: false,
            });
        }
        let fresh = || Box::new(Overlay::new(Arc::clone(image), Some(Firing::Pending(due.id))));
        let batch = match effects {
            Effects::Succeeded(overlay, _) => {
                overlay.unwrap_or_else(fresh).into_batch(|| self.doors.rng.next_u64())
            }
            Effects::Failed | Effects::Deferred(_) => fresh().discard(),
        };
        Some(Plan { batch, timer: Some((due, TimerEnd::Fired)), failed, first: None, goes_on: false })
    }

    /// Remembers an event whose effects are there, however often that takes.
    async fn remember(&self, key: &Bytes, event: EventId) {
        let mut tries = 0;
        while let Err(why) = self.answered(self.store.remember(&[event], self.trust)).await {
            self.wait_out("remembering an event", key, &mut tries, &why).await;
        }
        self.pipeline.dedup.remember(event, self.doors.clock.now());
    }

    /// Writes a batch over `image`, however often that takes. What another owner wrote, if one did.
    async fn commit(
        &self,
        key: &Bytes,
        image: Arc<KeyImage>,
        batch: &mut KeyBatch,
        first: Option<(TimerKind, i64)>,
    ) -> Result<Option<Arc<KeyImage>>, Late> {
        if !batch.put_timers.is_empty() {
            self.timers.prepare(key, batch).await.map_err(|_| Late)?;
        }
        let (expected, mut tries) = (image.version, 0);
        loop {
            let writing = self.store.commit(self.segment, key, expected, self.writer, batch);
            let found = match self.answered(writing).await {
                Ok(Committed::Applied) => break,
                Ok(Committed::Lost(found)) => found,
                Err(why) => {
                    self.wait_out("writing the record of a key", key, &mut tries, &why).await;
                    continue;
                }
            };
            // An earlier try of ours may be what came first.
            if resolve(expected, self.writer, &found) == Resolution::Applied || sabotaged("commit-lost") {
                break;
            }
            // Whoever came first may have written records of other keys, too: none is known to be absent any more.
            self.marked.store(true, Ordering::Release);
            self.timers.lost(key, batch, &found);
            let found = Arc::new(found);
            self.keep(key, Kept { image: Arc::clone(&found), head: Head::default() }, None);
            return Ok(Some(found));
        }
        self.timers.applied(key, batch);
        self.images().change(self.number, key, image, |Kept { image, head }| {
            head.applied(&image.messages, batch);
            Arc::make_mut(image).apply(batch, self.writer);
            self.waiting().update(super::hash(self.key_seed, key), image, first);
        });
        self.marked.store(true, Ordering::Release);
        Ok(None)
    }
}
