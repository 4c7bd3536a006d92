//! What of a partition's keys outlives the process?
//!
//! ```text
//! key queue ──▶ root known? ──▶ gate ──▶ handler ──▶ effects? ──▶ offset
//!                  │ no: load.rs   ▲        │ timer     │ yes: settle.rs: one conditional batch
//!                  └───────────────┘        │ calls     │
//!                                       an overlay  ────┘
//! ```
//!
//! Neither stage holds a permit; the key is held all the time. A store error is never the outcome of an event: the stage
//! waits and tries again until it succeeds or the partition is given up.
//!
//! | file | question it answers |
//! |---|---|
//! | `images.rs` | which keys' records are in memory? |
//! | `head.rs` | which deferred messages of a key come first? |
//! | `waiting.rs` | which keys have deferred events, and since when? |
//! | `load.rs` | how does an event get the record of its key before it starts? |
//! | `deferred.rs` | how is an event set aside, and how does it come back? |
//! | `settle.rs` | how do the effects of an event become durable? |

pub(crate) mod deferred;
mod head;
pub(crate) mod images;
pub(crate) mod load;
pub(crate) mod settle;
mod waiting;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prosody_base::{Doors, sabotaged};
use prosody_state::{
    Category, KeyImage, KeyStore, Last, MAX_KEY_BYTES, SegmentId, SegmentRow, StoreError, StoreFuture, Time,
    TimerKind, Writer,
};
use prosody_wire::{TopicId, TopicPartition};
use tracing::{error, warn};

use crate::insight::Counters;
use crate::loader::{Loader, Place};
use crate::partition::keys::hash;
use crate::partition::record::Record;
use crate::pipeline::Pipeline;
use crate::pipeline::retry::Backoff;
use crate::timers::{Timers, TimersConfig, TimersHealth};

use images::{Images, Kept};
use waiting::Waiting;

/// Waits between attempts at a statement the store refused.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(50), max: Duration::from_secs(10) };

/// Longest wait for the answer to a statement.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// How it goes with timers, deferred events and the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    pub(crate) timers: TimersHealth,
    /// For how long the first of the due timers has been due.
    pub(crate) overdue: Option<Duration>,
    pub(crate) deferred_keys: usize,
    /// How old the oldest of the first deferred events of each key is.
    pub(crate) oldest_deferred: Option<Duration>,
}

/// Resolves once the group has said, asked after the call, that the partition is still ours.
pub(crate) type Confirm = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What an assignment needs to know of its segment.
pub(crate) struct Owned {
    pub(crate) segment: SegmentId,
    pub(crate) row: SegmentRow,
    /// The topic's id; all zero when brokers have none.
    pub(crate) topic: [u8; 16],
    /// As [`SegmentRow::log`] says.
    pub(crate) log: [u8; 16],
    pub(crate) max_uncommitted: usize,
    /// A former owner writes for this much longer at the most.
    pub(crate) late_for: Duration,
    pub(crate) idempotence_version: String,
    pub(crate) idempotence_ttl: Duration,
    /// The number of the assignment.
    pub(crate) number: u64,
    /// Records in memory, of all partitions.
    pub(crate) images: Arc<Mutex<Images>>,
    /// Reads what was set aside.
    pub(crate) loader: Loader,
    pub(crate) pipeline: Arc<Pipeline>,
}

/// The durable side of one partition during one assignment.
pub(crate) struct Durable {
    store: Arc<dyn KeyStore>,
    doors: Doors,
    counters: Arc<Counters>,
    tp: TopicPartition,
    segment: SegmentId,
    writer: Writer,
    timers: Arc<Timers>,
    log: [u8; 16],
    idempotence: u64,
    trust: Duration,
    /// Keys may have records. As long as none has, none is looked for.
    marked: AtomicBool,
    number: u64,
    images: Arc<Mutex<Images>>,
    waiting: Mutex<Waiting>,
    /// Makes the hashes of keys differ from those of other processes.
    key_seed: u64,
    /// Deferred messages that are not to be processed, by key and number.
    void: Mutex<BTreeSet<(Bytes, u64)>>,
    /// Why a statement that is tried again failed; for people.
    trouble: Mutex<Option<String>>,
    /// The record that is not there.
    nothing: Arc<KeyImage>,
    loader: Loader,
    place: Place,
    pipeline: Arc<Pipeline>,
    confirm: Confirm,
}

impl Durable {
    pub(crate) fn new(
        store: Arc<dyn KeyStore>,
        doors: Doors,
        counters: Arc<Counters>,
        tp: TopicPartition,
        owned: Owned,
        confirm: Confirm,
    ) -> Arc<Durable> {
        let key_seed = doors.rng.next_u64();
        let writer = Writer(u128::from(doors.rng.next_u64()) << 64 | u128::from(doors.rng.next_u64()));
        let Owned { segment, row, topic, log, max_uncommitted, late_for, .. } = owned;
        let marked = AtomicBool::new(row.marked);
        let place = Place { partition: tp.clone(), topic_id: TopicId::known(topic) };
        let timers = Timers::new(
            Arc::clone(&store),
            &doors,
            TimersConfig { segment, writer, max_uncommitted, row, late_for },
        );
        Arc::new(Durable {
            store,
            doors,
            counters,
            tp,
            segment,
            writer,
            timers,
            log,
            idempotence: fnv(owned.idempotence_version.as_bytes()),
            trust: owned.idempotence_ttl,
            marked,
            number: owned.number,
            images: owned.images,
            waiting: Mutex::default(),
            key_seed,
            void: Mutex::default(),
            trouble: Mutex::default(),
            nothing: Arc::default(),
            loader: owned.loader,
            place,
            pipeline: owned.pipeline,
            confirm,
        })
    }

    pub(crate) fn timers(&self) -> &Arc<Timers> {
        &self.timers
    }

    /// How it goes with timers and store.
    pub(crate) fn health(&self) -> Health {
        let mut timers = self.timers.health();
        timers.store_error = timers.store_error.or_else(|| self.trouble().clone());
        let now = self.doors.clock.unix_millis();
        let since = |then: i64| Duration::from_millis(u64::try_from(now.saturating_sub(then)).unwrap_or(0));
        let (deferred_keys, oldest) = self.waiting().sum();
        let overdue = timers.oldest_due.map(|time| since(time.unix_millis()));
        Health { timers, overdue, deferred_keys, oldest_deferred: oldest.map(since) }
    }

    /// The record of a key, unless the store has to be asked.
    pub(crate) fn known(&self, key: &[u8]) -> Option<Arc<KeyImage>> {
        // A key that is too long for a record has none, and its handlers cannot make one.
        if !self.marked.load(Ordering::Acquire) || key.len() > MAX_KEY_BYTES || sabotaged("root-known") {
            return Some(Arc::clone(&self.nothing));
        }
        self.images().get(self.number, key).map(|kept| Arc::clone(&kept.image))
    }

    /// Whether the key's record says that a message is done. What the record says wins over what the group committed:
    /// the batch came first.
    pub(crate) fn is_done(&self, image: &KeyImage, record: &Record) -> bool {
        image.last.is_some() && image.is_done(&self.last(record), self.trust) && !sabotaged("skip-done")
    }

    /// What a batch says about the message it belongs to.
    fn last(&self, record: &Record) -> Last {
        Last {
            log: self.log,
            leader_epoch: record.leader_epoch,
            offset: record.offset,
            idempotence: self.idempotence,
            time: Time::floor(self.doors.clock.unix_millis()),
        }
    }

    /// Keeps what is known of a key now. `first` as in [`Waiting::update`].
    fn keep(&self, key: &Bytes, kept: Kept, first: Option<(TimerKind, i64)>) {
        self.waiting().update(hash(self.key_seed, key), &kept.image, first);
        self.images().insert(self.number, Bytes::copy_from_slice(key), kept);
    }

    /// The answer to a statement; none in time is an error, too.
    async fn answered<T>(&self, statement: StoreFuture<'_, T>) -> Result<T, StoreError> {
        let clock = &self.doors.clock;
        let answered = clock.until(clock.now() + STATEMENT_TIMEOUT, statement).await;
        let answer = answered.unwrap_or_else(|_| Err(unanswered()));
        *self.trouble() = answer.as_ref().err().map(ToString::to_string);
        answer
    }

    /// Says that a statement failed, and waits before the next attempt.
    async fn wait_out(&self, doing: &str, key: &[u8], tries: &mut u32, why: &StoreError) {
        *tries = tries.saturating_add(1);
        self.counters.store_errors.one();
        let (topic, partition, tries) = (&*self.tp.topic, self.tp.partition, *tries);
        let key = String::from_utf8_lossy(key);
        if why.category() == Category::Transient {
            let wait = AGAIN.wait(tries, self.doors.rng.unit());
            let retry_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            warn!(
                topic,
                partition,
                %key,
                tries,
                retry_in_ms,
                "{doing} failed and is tried again, the key waits: {why}"
            );
            self.doors.clock.sleep(wait).await;
        } else {
            // Giving up would lose the event, and running it again would end the same way.
            self.counters.store_refusals.one();
            error!(
                topic,
                partition,
                %key,
                tries,
                "{doing} is refused by the store, and no retry helps before it is repaired; the key waits: {why}"
            );
            self.doors.clock.sleep(AGAIN.max).await;
        }
    }

    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn void(&self) -> MutexGuard<'_, BTreeSet<(Bytes, u64)>> {
        self.void.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn images(&self) -> MutexGuard<'_, Images> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What it means when a store says nothing for [`STATEMENT_TIMEOUT`].
pub(crate) fn unanswered() -> StoreError {
    StoreError::timed_out(format!("no answer within {} s", STATEMENT_TIMEOUT.as_secs()))
}

impl Drop for Durable {
    fn drop(&mut self) {
        self.images().forget(self.number);
    }
}

/// FNV-1a. Stored with every record, so it never changes.
fn fnv(text: &[u8]) -> u64 {
    text.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_of_a_version_is_frozen() {
        assert_eq!(super::fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(super::fnv(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
