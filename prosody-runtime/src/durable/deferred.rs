//! How is an event set aside, and how does it come back? Its offset, or its time, goes into a queue of its key's record,
//! with one timer for the queue; when that fires, the first of the queue is read again and runs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prosody_base::sabotaged;
use prosody_state::{
    DeferredMessage, DeferredTimer, Firing, KeyBatch, KeyImage, Overlay, PutTimer, Queue, Time, TimerFacts,
    TimerId, TimerKind,
};
use tracing::warn;

use super::Durable;
use super::head::{HEAD, Head};
use super::images::Kept;
use super::settle::{Effects, Plan};
use crate::loader::{Found, Loaded};
use crate::partition::event::{Entry, Event, Retry, What};
use crate::partition::keys::hash;
use crate::partition::record::Record;
use crate::partition::runtime::Partition;
use crate::timers::TimerEnd;

/// Deferred messages read at once in search of void ones.
const VOID_PAGE: usize = 1_000;
/// Void ones that a partition remembers.
const MAX_VOID: usize = 10_000;

/// The queue that holds events of this kind back, and whose turn comes with timers of this kind.
pub(crate) fn queue_of(image: &KeyImage, kind: TimerKind) -> &Queue {
    match kind {
        TimerKind::DeferredMessage => &image.messages,
        TimerKind::Application | TimerKind::DeferredTimer => &image.timer_queue,
    }
}

/// Whether an event is a timer that brings something back which is not here yet.
pub(super) fn brings_back(event: &Event, image: &KeyImage) -> bool {
    match &event.what {
        What::Timer(due) => {
            event.is_retry() && image.holds(due.id, due.nonce) && queue_of(image, due.id.kind).count > 0
        }
        What::Message(..) | What::Retry(_) => false,
    }
}

impl Durable {
    /// Puts the first of the queue in the place of the timer that [`brings_back`] it.
    pub(super) async fn bring_back(&self, key: &Bytes, image: &KeyImage, event: &mut Event) {
        let What::Timer(due) = &event.what else { return };
        let found = match due.id.kind {
            TimerKind::DeferredMessage => self.first_message(key, image).await,
            TimerKind::DeferredTimer | TimerKind::Application => {
                let first = image.deferred_timers.first_key_value();
                first.map(|(number, timer)| {
                    let first = (TimerKind::DeferredTimer, timer.time.unix_millis());
                    self.waiting().update(hash(self.key_seed, key), image, Some(first));
                    (*number, Entry::Timer(timer.time))
                })
            }
        };
        // A queue that is empty although the record counts entries was emptied by another owner: the batch will say so.
        let Some((number, entry)) = found else { return };
        let retries = queue_of(image, due.id.kind).retries;
        event.what = What::Retry(Box::new(Retry { due: due.clone(), number, retries, entry }));
    }

    async fn first_message(&self, key: &Bytes, image: &KeyImage) -> Option<(u64, Entry)> {
        let known = self.images().get(self.number, key).and_then(|kept| kept.head.first());
        let (number, message) = match known {
            Some(first) => first,
            None => self.read_head(key, image).await?,
        };
        if self.void().remove(&(key.clone(), number)) && !sabotaged("defer-void") {
            return Some((number, Entry::Void(message.offset)));
        }
        let entry = self.read_again(key, message).await;
        if let Entry::Message(record) = &entry {
            let first = (TimerKind::DeferredMessage, record.timestamp);
            self.waiting().update(hash(self.key_seed, key), image, Some(first));
        }
        Some((number, entry))
    }

    /// The first of the queue; those behind it are kept, too.
    async fn read_head(&self, key: &Bytes, image: &KeyImage) -> Option<(u64, DeferredMessage)> {
        let mut tries = 0;
        let entries = loop {
            let reading = self.store.deferred_messages(self.segment, key, image.messages.head, HEAD);
            match self.answered(reading).await {
                Ok(entries) => break entries,
                Err(why) => {
                    self.wait_out("reading the deferred messages of a key", key, &mut tries, &why).await
                }
            }
        };
        let head = Head::read(entries, &image.messages);
        let first = head.first();
        let mut images = self.images();
        if let Some(kept) = images.take(self.number, key).filter(|kept| kept.image.version == image.version) {
            images.insert(self.number, Bytes::copy_from_slice(key), Kept { head, ..kept });
        }
        first
    }

    /// Somebody else wrote a key's record, of which we knew the deferred messages up to `known`. What it set aside and this
    /// assignment has processed is void: its writer had lost the partition. It leaves the queue unprocessed when its turn
    /// comes.
    pub(super) async fn find_void(&self, partition: &Partition, key: &Bytes, known: u64, found: &KeyImage) {
        let (mut from, mut tries) = (known.max(found.messages.head), 0);
        while from < found.messages.tail {
            let reading = self.store.deferred_messages(self.segment, key, from, VOID_PAGE);
            let page = match self.answered(reading).await {
                Ok(page) => page,
                Err(why) => {
                    self.wait_out("reading the deferred messages of a key", key, &mut tries, &why).await;
                    continue;
                }
            };
            let Some((last, _)) = page.last() else { return };
            from = last.saturating_add(1);
            let is_void =
                |one: &DeferredMessage| one.writer != self.writer && partition.finished_here(one.offset);
            let mut void = self.void();
            for (number, _) in page.iter().filter(|(_, one)| is_void(one)) {
                // Beyond the bound some are processed twice.
                if void.len() < MAX_VOID {
                    void.insert((key.clone(), *number));
                }
            }
        }
    }

    /// Only the record that was set aside runs: one of another key or leader epoch took its place in a log that lost it.
    async fn read_again(&self, key: &[u8], message: DeferredMessage) -> Entry {
        let offset = message.offset;
        let found = match self.loader.load(&self.place, offset, message.leader_epoch).await {
            Ok(Loaded::Found(found)) => found,
            Ok(Loaded::Gone(gone)) => return Entry::Gone(offset, gone.to_string()),
            Err(why) if sabotaged("defer-unread") => return Entry::Gone(offset, why.to_string()),
            Err(why) => return Entry::Unread(offset, why.to_string()),
        };
        if found.leader_epoch != message.leader_epoch || found.record.key() != Some(key) {
            let why = "another record is in its place: the log was truncated after a leader change";
            return Entry::Gone(offset, why.to_owned());
        }
        let view = found.record.view();
        match self.pipeline.filter.judge(&view) {
            Ok(judged) => {
                let came = (found.leader_epoch, self.pipeline.tracing.now());
                Entry::Message(Record::new(&view, found.record.data(), came, judged))
            }
            Err(_) => Entry::Gone(offset, "it is filtered out now".to_owned()),
        }
    }

    /// What sets a message or a timer aside that is not deferred yet.
    pub(super) fn plan_defer(&self, event: &Event, image: &Arc<KeyImage>, wait: Duration) -> Option<Plan> {
        let (mut batch, kind, timer, came) = match &event.what {
            What::Message(_, record) => {
                let (leader_epoch, offset) = (record.leader_epoch, record.offset);
                let entry = DeferredMessage { leader_epoch, offset, writer: self.writer };
                self.loader.keep(&self.place, Found { record: Arc::new(record.kept()), leader_epoch });
                let last = Some(self.last(record));
                let batch = KeyBatch { append_messages: vec![entry], last, ..KeyBatch::default() };
                (batch, TimerKind::DeferredMessage, None, record.timestamp)
            }
            What::Timer(due) => {
                let trace = image.timers.get(&due.id).map(|facts| facts.trace.clone()).unwrap_or_default();
                let mut batch = Overlay::new(Arc::clone(image), Some(Firing::Pending(due.id))).discard();
                batch.append_timers.push(DeferredTimer { time: due.id.time, trace });
                let ended = Some((due.clone(), TimerEnd::Fired));
                (batch, TimerKind::DeferredTimer, ended, due.id.time.unix_millis())
            }
            What::Retry(_) => return None,
        };
        let is_first = queue_of(image, kind).count == 0;
        if is_first {
            self.arm(&mut batch, kind, wait, 0);
        }
        let first = is_first.then_some((kind, came));
        Some(Plan { batch, timer, failed: false, first, goes_on: false })
    }

    /// What the end of a deferred event changes. `None`: its timer is there no more.
    pub(super) fn plan_retry(&self, retry: &Retry, image: &Arc<KeyImage>, effects: Effects) -> Option<Plan> {
        let (due, kind) = (&retry.due, retry.due.id.kind);
        let deleted = image.delete_timer(due.id).filter(|deleted| deleted.nonce == due.nonce)?;
        let ended = || Some((due.clone(), TimerEnd::Fired));
        let mut batch = match effects {
            Effects::Deferred(wait) => {
                let mut batch = KeyBatch { delete_timers: vec![deleted], ..KeyBatch::default() };
                self.arm(&mut batch, kind, wait, retry.retries.saturating_add(1));
                return Some(Plan { batch, timer: ended(), failed: false, first: None, goes_on: false });
            }
            Effects::Succeeded(Some(overlay), _) => overlay.into_batch(|| self.doors.rng.next_u64()),
            Effects::Succeeded(None, _) | Effects::Failed => KeyBatch::default(),
        };
        let (removed, tries) = match kind {
            TimerKind::DeferredMessage => {
                self.loader.let_go(&self.place, retry.offset());
                (&mut batch.remove_messages, &mut batch.message_retries)
            }
            TimerKind::DeferredTimer | TimerKind::Application => {
                (&mut batch.remove_timers, &mut batch.timer_retries)
            }
        };
        if !removed.contains(&retry.number) {
            removed.push(retry.number);
        }
        *tries = Some(0);
        let left = (queue_of(image, kind).count as usize).saturating_sub(removed.len());
        let goes_on = left > 0;
        if !goes_on || sabotaged("defer-keeps-timer") {
            batch.delete_timers.push(deleted);
        }
        let timer = if goes_on { None } else { ended() };
        Some(Plan { batch, timer, failed: false, first: None, goes_on })
    }

    /// A timer for the first of a queue.
    fn arm(&self, batch: &mut KeyBatch, kind: TimerKind, wait: Duration, retries: u32) {
        let time = Time::after(self.doors.clock.unix_millis(), wait);
        let facts = TimerFacts { nonce: self.doors.rng.next_u64(), slab: 0, trace: Bytes::new() };
        batch.put_timers.push(PutTimer { id: TimerId { time, kind }, facts });
        match kind {
            TimerKind::DeferredMessage => batch.message_retries = Some(retries),
            TimerKind::DeferredTimer | TimerKind::Application => batch.timer_retries = Some(retries),
        }
    }

    /// One line for a deferred message that will not run.
    pub(crate) fn tell_gone(&self, key: &[u8], offset: i64, why: &str) {
        self.counters.deferred_gone.one();
        warn!(
            topic = &*self.tp.topic,
            partition = self.tp.partition,
            offset,
            key = %String::from_utf8_lossy(key),
            "a deferred message is skipped, because it cannot be had any more: {why}"
        );
    }
}

impl Retry {
    /// Of a deferred message; 0 of a timer.
    fn offset(&self) -> i64 {
        match &self.entry {
            Entry::Message(record) => record.offset,
            Entry::Gone(offset, _) | Entry::Unread(offset, _) | Entry::Void(offset) => *offset,
            Entry::Timer(_) => 0,
        }
    }
}
