//! What is in a record that was set aside? Single records are read again from Kafka: those that were deferred, and those
//! that a collection of messages refers to.
//!
//! | file | question it answers |
//! |---|---|
//! | `plan.rs` | which offsets are read next, and who waits for them? (pure) |
//! | `cache.rs` | which records are still in memory? (pure) |
//! | `mod.rs` | who reads, and for how long does one wait? |
//!
//! Fetches run as tasks that look for work until there is none, so requests that are made together are read together.

mod cache;
mod plan;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prosody_base::{Doors, Instant, Lane};
use prosody_wire::batch::Record;
use prosody_wire::fetch::{Gone, RecordReader, RunRecord, RunRequest};
use prosody_wire::{Client, Error, IsolationLevel, LeaderEpoch, TopicId, TopicPartition};
use tokio::sync::oneshot;

use self::cache::Cache;
use self::plan::{Answer, Fetch, Plan};
use crate::insight::Counters;

/// A fetch that decides nothing within this time lets other offsets of its partition go first.
const TURN: Duration = Duration::from_secs(2);
/// Bytes a fetch of one record asks for; a larger batch comes all the same.
const ONE: usize = 64 << 10;
/// Bytes a fetch of several records asks for.
const SEVERAL: usize = 1 << 20;

/// A partition, of the topic of this id when it is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) partition: TopicPartition,
    pub(crate) topic_id: Option<TopicId>,
}

/// A record, in memory of its own.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) record: Arc<Record>,
    /// The epoch of the leader that appended it, −1 when unknown. Another one than expected is another record.
    pub(crate) leader_epoch: LeaderEpoch,
}

/// What became of a record.
#[derive(Clone, Debug)]
pub(crate) enum Loaded {
    Found(Found),
    /// Its log proves that it is not there and never will be.
    Gone(Gone),
}

/// A record could not be read; whether it is there is not known. Trying again later may help.
#[derive(Clone, Debug)]
pub(crate) struct LoadError(String);

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}

/// Bounds of a loader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoaderConfig {
    /// `LoaderCacheSize`.
    pub(crate) cache_bytes: usize,
    /// `LoaderSeekTimeout`.
    pub(crate) seek_timeout: Duration,
    pub(crate) isolation: IsolationLevel,
}

type Waiter = oneshot::Sender<Result<Loaded, String>>;

/// Reads single records over a client's connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Loader(Arc<Inner>);

struct Inner {
    reader: RecordReader,
    doors: Doors,
    seek_timeout: Duration,
    counters: Arc<Counters>,
    state: Mutex<State>,
}

struct State {
    plan: Plan<Waiter>,
    cache: Cache,
    /// A task was started and has not looked for work yet.
    launching: bool,
}

/// Takes a request back when nobody waits for it any more.
struct Request<'a> {
    loader: &'a Inner,
    place: &'a Place,
    offset: i64,
    ticket: u64,
}

impl Request<'_> {
    fn take_back(&self) -> Option<String> {
        self.loader.state().plan.forget(self.place, self.offset, self.ticket)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.take_back();
    }
}

impl Loader {
    pub(crate) fn new(
        client: &Client,
        doors: Doors,
        config: LoaderConfig,
        counters: Arc<Counters>,
    ) -> Loader {
        let state = State { plan: Plan::new(), cache: Cache::new(config.cache_bytes), launching: false };
        Loader(Arc::new(Inner {
            reader: RecordReader::new(client, config.isolation),
            doors,
            seek_timeout: config.seek_timeout,
            counters,
            state: Mutex::new(state),
        }))
    }

    /// The record at an offset whose leader epoch is `leader_epoch` (−1: not known), or the proof that there is none.
    ///
    /// # Errors
    /// After the seek timeout, or at once when no retry helps: with the topic, the partition, the offset and the cause.
    pub(crate) async fn load(
        &self,
        place: &Place,
        offset: i64,
        leader_epoch: LeaderEpoch,
    ) -> Result<Loaded, LoadError> {
        let inner = &*self.0;
        let deadline = inner.doors.clock.now() + inner.seek_timeout;
        let (waiter, told) = oneshot::channel();
        let request = {
            let mut state = inner.state();
            if let Some(found) = state.cache.get(place, offset) {
                inner.counters.reload_hits.one();
                return Ok(Loaded::Found(found));
            }
            let ticket = state.plan.ask(place, offset, leader_epoch, waiter);
            launch(&self.0, &mut state);
            Request { loader: inner, place, offset, ticket }
        };
        let why = match inner.doors.clock.until(deadline, told).await {
            Ok(Ok(Ok(loaded))) => return Ok(loaded),
            Ok(Ok(Err(why))) => why,
            Ok(Err(_)) => "this client was closed".to_owned(),
            Err(_) => {
                let why = request.take_back().unwrap_or_else(|| "no answer".to_owned());
                format!("not decided within LoaderSeekTimeout ({:?}): {why}", inner.seek_timeout)
            }
        };
        inner.counters.reloads_failed.one();
        let TopicPartition { topic, partition } = &place.partition;
        Err(LoadError(format!("reading topic {topic}, partition {partition}, offset {offset} again: {why}")))
    }

    /// Keeps a record that is about to be set aside, so that it need not be read again.
    pub(crate) fn keep(&self, place: &Place, found: Found) {
        self.0.state().cache.put(place, found);
    }

    /// Lets go of a record that will not be asked for again.
    pub(crate) fn let_go(&self, place: &Place, offset: i64) {
        self.0.state().cache.remove(place, offset);
    }
}

/// Starts a task for the next fetch and those behind it, when there is work that no task is about to take.
fn launch(inner: &Arc<Inner>, state: &mut State) {
    if state.launching || !state.plan.has_work() {
        return;
    }
    state.launching = true;
    let work = {
        let inner = Arc::clone(inner);
        async move {
            inner.state().launching = false;
            while let Some(fetch) = next(&inner) {
                inner.fetch(fetch).await;
            }
        }
    };
    inner.doors.spawner.spawn(Lane::Work, work).detach();
}

/// The next fetch; what is left besides it is another task's work.
fn next(inner: &Arc<Inner>) -> Option<Fetch> {
    let mut state = inner.state();
    let fetch = state.plan.start();
    launch(inner, &mut state);
    fetch
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fetch(&self, fetch: Fetch) {
        self.counters.reload_fetches.one();
        let (first, last) = (*fetch.run.start(), *fetch.run.end());
        let run = RunRequest {
            partition: fetch.place.partition.clone(),
            topic_id: fetch.place.topic_id,
            first,
            last,
            leader_epoch: fetch.leader_epoch,
            max_bytes: if first == last { ONE } else { SEVERAL },
        };
        let deadline: Instant = self.doors.clock.now() + TURN.min(self.seek_timeout);
        let (answer, records, gone) = match self.reader.read(&run, deadline).await {
            Ok(read) => (Answer::Decided { next: read.next }, read.records, read.gone),
            Err(error) => (failed(&error), Vec::new(), Gone::NoRecord),
        };
        let mut state = self.state();
        for ended in state.plan.answered(&fetch, answer) {
            let result = match (ended.refused, find(&records, ended.offset)) {
                (Some(why), _) => Err(why),
                (None, Some(found)) => {
                    self.counters.reloads.one();
                    state.cache.put(&fetch.place, found.clone());
                    Ok(Loaded::Found(found))
                }
                (None, None) => {
                    self.counters.reloads_gone.one();
                    Ok(Loaded::Gone(gone))
                }
            };
            for waiter in ended.waiters {
                // Whoever gave up meanwhile does not listen.
                let _ = waiter.send(result.clone());
            }
        }
    }
}

fn failed(error: &Error) -> Answer {
    let why = error.to_string();
    if error.is_retriable() { Answer::Again(why) } else { Answer::Refused(why) }
}

/// A copy of the record with this offset. Records are in order.
fn find(records: &[RunRecord], offset: i64) -> Option<Found> {
    let at = records.binary_search_by_key(&offset, |found| found.record.offset()).ok()?;
    let RunRecord { record, leader_epoch } = records.get(at)?;
    Some(Found { record: Arc::new(record.copied()), leader_epoch: *leader_epoch })
}
