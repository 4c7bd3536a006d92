//! Who asks the store for a partition's timers, and tries again when it fails?

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prosody_base::{Clock, Doors, Rng};
use prosody_state::{KeyBatch, KeyImage, KeyStore, SegmentId, SegmentRow, StoreError, Time, Writer};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::durable::{STATEMENT_TIMEOUT, unanswered};

use super::due::{DueTimer, TimerEnd};
use super::index::{Index, Limits, Step};
use super::look::Looks;

/// Waits between attempts at a statement that failed.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));
/// What is to be read and deleted is gathered this long, so that it costs a statement and not one for each timer.
const GATHER: Duration = Duration::from_millis(100);
/// How often it is looked at what is to be read and trimmed.
const KEEP_EVERY: Duration = Duration::from_secs(30);
/// Longest sleep until a timer is due: the wall clock may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);

/// Whose timers these are.
pub(crate) struct TimersConfig {
    pub(crate) segment: SegmentId,
    /// This assignment.
    pub(crate) writer: Writer,
    /// Timers of handlers that may be out at once, and as many retries.
    pub(crate) max_uncommitted: usize,
    /// What the store said when the segment was acquired.
    pub(crate) row: SegmentRow,
    /// A former owner writes for this much longer at the most, unless its process stands still.
    pub(crate) late_for: Duration,
}

/// The partition is being given up: nothing is put any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draining;

/// How it goes, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimersHealth {
    /// Timers that are due: out, or waiting for room.
    pub(crate) due: usize,
    /// Timers kept in mind.
    pub(crate) resident: usize,
    /// When the first of them was due.
    pub(crate) oldest_due: Option<Time>,
    /// Why the store cannot be used just now.
    pub(crate) store_error: Option<String>,
}

/// The timers of one assigned partition.
pub(crate) struct Timers {
    store: Arc<dyn KeyStore>,
    segment: SegmentId,
    clock: Clock,
    rng: Rng,
    index: Mutex<Index>,
    /// Held while a due timer goes from the index to its key's queue: timers of one key must not overtake each other.
    turn: Mutex<()>,
    error: Mutex<Option<String>>,
    /// Something may be due.
    due: Notify,
    /// Something may be to be read, deleted or trimmed.
    keep: Notify,
    drained: Notify,
}

impl Timers {
    pub(crate) fn new(store: Arc<dyn KeyStore>, doors: &Doors, config: TimersConfig) -> Arc<Timers> {
        Timers::with_limits(store, doors, config, Limits::default())
    }

    pub(super) fn with_limits(
        store: Arc<dyn KeyStore>,
        doors: &Doors,
        config: TimersConfig,
        limits: Limits,
    ) -> Arc<Timers> {
        let TimersConfig { segment, writer, max_uncommitted, row, late_for } = config;
        let looks = Looks::new(doors.clock.unix_millis(), late_for);
        Arc::new(Timers {
            store,
            segment,
            clock: doors.clock.clone(),
            rng: doors.rng.fork(),
            index: Mutex::new(Index::new(row, writer, max_uncommitted, limits, looks)),
            turn: Mutex::default(),
            error: Mutex::new(None),
            due: Notify::new(),
            keep: Notify::new(),
            drained: Notify::new(),
        })
    }

    /// Offers timers when their second has begun, and keeps the index read ahead and trimmed, until
    /// [`drain`](Timers::drain). `offer` puts a timer in its key's queue; `false` means that nothing starts any more.
    pub(crate) async fn drive(self: Arc<Self>, offer: impl Fn(DueTimer) -> bool + Send) {
        tokio::select! {
            biased;
            () = self.hand_out(offer) => {}
            () = self.keep() => {}
        }
    }

    /// A key's record came from the store: its timers that are not kept in mind yet are taken up.
    pub(crate) fn loaded(&self, key: &Bytes, image: &KeyImage) {
        if !image.timers.is_empty() {
            self.change(|index| index.loaded(key, image));
        }
    }

    /// Before a batch is committed: chooses the slabs of its new timers and writes their rows, however long it takes.
    ///
    /// # Errors
    /// [`Draining`] when the store fails while the partition is being given up. The batch must not be committed then.
    pub(crate) async fn prepare(&self, key: &Bytes, batch: &mut KeyBatch) -> Result<(), Draining> {
        if batch.put_timers.is_empty() {
            return Ok(());
        }
        let rows = self.lock().place(key, batch, self.clock.unix_millis());
        let put = self.retried("scheduling timers", || self.store.slab_put(self.segment, &rows)).await;
        put.ok_or(Draining)
    }

    /// A batch is there.
    pub(crate) fn applied(&self, key: &Bytes, batch: &KeyBatch) {
        if !batch.put_timers.is_empty() || !batch.delete_timers.is_empty() {
            self.change(|index| index.applied(key, batch));
        }
    }

    /// A batch cannot be applied any more, and this is what was found instead.
    pub(crate) fn lost(&self, key: &Bytes, batch: &KeyBatch, found: &KeyImage) {
        self.change(|index| index.lost(key, batch, found));
    }

    /// An offered timer has ended. The next one takes its place at once, if one is due; `offer` as for
    /// [`drive`](Timers::drive).
    pub(crate) fn ended(&self, timer: &DueTimer, end: TimerEnd, offer: impl Fn(DueTimer) -> bool) {
        self.offer_after(|index| index.ended(timer, end), offer);
    }

    /// Nothing is offered, read or trimmed from here on, and what fails is not tried again.
    pub(crate) fn drain(&self) {
        self.lock().drain();
        self.due.notify_one();
        self.keep.notify_one();
        self.drained.notify_waiters();
    }

    /// How it goes.
    pub(crate) fn health(&self) -> TimersHealth {
        let (resident, due, oldest_due) = self.lock().sizes(self.clock.unix_millis());
        TimersHealth { due, resident, oldest_due, store_error: self.error().clone() }
    }

    async fn hand_out(&self, offer: impl Fn(DueTimer) -> bool) {
        loop {
            while self.offer_after(|_| {}, &offer) {}
            let next = {
                let index = self.lock();
                if index.is_draining() {
                    return;
                }
                index.next_due()
            };
            let sleep = async {
                match next {
                    Some(time) => {
                        self.clock.sleep(self.until(time.unix_millis()).min(LONGEST_SLEEP)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.due.notified() => {}
                () = sleep => {}
            }
        }
    }

    /// Changes the index and offers its next timer, if one is due.
    fn offer_after(&self, change: impl FnOnce(&mut Index), offer: impl Fn(DueTimer) -> bool) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.unix_millis();
        let next = self.change(|index| {
            change(index);
            index.offer(now)
        });
        let Some(timer) = next else { return false };
        // Without the lock: the partition has one of its own.
        if !offer(timer.clone()) {
            self.lock().ended(&timer, TimerEnd::Kept);
        }
        true
    }

    async fn keep(&self) {
        loop {
            let step = {
                let mut index = self.lock();
                if index.is_draining() {
                    return;
                }
                index.next_step(self.clock.unix_millis())
            };
            match step {
                Some(Step::Read { after, until, limit }) => {
                    let read = || self.store.slab_load(self.segment, &after, until, limit);
                    let rows = self.retried("reading timers", read).await;
                    self.lock().read(rows, until, limit);
                    self.due.notify_one();
                }
                Some(Step::Look { after, until, limit }) => {
                    let look = || self.store.slab_load(self.segment, &after, until, limit);
                    let rows = self.retried("reading timers", look).await;
                    self.lock().looked(rows, limit);
                    self.due.notify_one();
                }
                Some(Step::Delete(rows)) => {
                    // Best effort: a row that stays is void, and goes with its slab.
                    let deadline = self.clock.now() + STATEMENT_TIMEOUT;
                    let _ = self.clock.until(deadline, self.store.slab_delete(self.segment, &rows)).await;
                }
                Some(Step::Trim(watermark)) => {
                    let trim = || self.store.slab_trim(self.segment, watermark);
                    let _ = self.retried("trimming timers", trim).await;
                }
                None => {
                    // What a look finds may be overdue: it is not put off to the next round.
                    let look = self.lock().next_look();
                    let look = look.map_or(KEEP_EVERY, |at| self.until(at));
                    tokio::select! {
                        biased;
                        () = self.keep.notified() => self.clock.sleep(GATHER).await,
                        () = self.clock.sleep(look.min(KEEP_EVERY)) => {}
                    }
                }
            }
        }
    }

    /// How long it is to a time in milliseconds since the epoch.
    fn until(&self, at: i64) -> Duration {
        let wait = at.saturating_sub(self.clock.unix_millis());
        Duration::from_millis(u64::try_from(wait).unwrap_or(0))
    }

    /// Runs a statement until it succeeds; `None` when it failed and the partition is being given up.
    async fn retried<F, T>(&self, doing: &str, statement: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut attempt = 0;
        loop {
            let mut drained = std::pin::pin!(self.drained.notified());
            drained.as_mut().enable();
            let deadline = self.clock.now() + STATEMENT_TIMEOUT;
            let why = match self.clock.until(deadline, statement()).await {
                Ok(Ok(result)) => {
                    if self.error().take().is_some() {
                        info!(segment = %self.segment, "{doing} works again");
                    }
                    return Some(result);
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => unanswered().to_string(),
            };
            if attempt == 0 {
                warn!(segment = %self.segment, "{doing} failed and is tried again until it works: {why}");
            }
            *self.error() = Some(format!("{doing}: {why}"));
            if self.lock().is_draining() {
                return None;
            }
            let wait = self.rng.backoff(BACKOFF.0, BACKOFF.1, attempt);
            attempt = attempt.saturating_add(1);
            tokio::select! {
                biased;
                () = drained => {}
                () = self.clock.sleep(wait) => {}
            }
        }
    }

    /// Changes the index, and wakes whoever has something to do because of it.
    fn change<T>(&self, change: impl FnOnce(&mut Index) -> T) -> T {
        let (changed, is_sooner, is_less) = {
            let mut index = self.lock();
            let (due, rows) = (index.next_due(), index.rows_kept());
            let changed = change(&mut index);
            let is_sooner = index.next_due().is_some_and(|next| due.is_none_or(|due| next < due));
            (changed, is_sooner, index.rows_kept() < rows || index.has_doomed())
        };
        if is_sooner {
            self.due.notify_one();
        }
        if is_less {
            self.keep.notify_one();
        }
        changed
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self) -> MutexGuard<'_, Option<String>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
