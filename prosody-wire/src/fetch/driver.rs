//! Who fetches? One task per fetcher: it keeps a Fetch under way with every broker that leads an open partition, several
//! with a distant one, looks up positions, and follows leaders. The only folder of the fetcher that awaits.

mod answers;
mod memory;
mod positions;
mod replica;
mod request;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prosody_base::{Instant, watch};

use super::buffer::{ReaderId, Shared};
use super::cursor::Lookup;
use super::offsets::Ends;
use super::plan::{FIRST_WINDOW, Held, is_full, limit, request_bytes};
use super::session::{Key, Session, sessionless};
use super::wire::Ask;
use crate::cluster::{Cluster, Metadata};
use crate::conn::Connection;
use crate::error::Error;
use crate::types::{BrokerId, LeaderEpoch};
use memory::{HESITATION, TURN};
use request::{Choice, choose, extra, send};

/// One partition of a request that is under way.
#[derive(Debug)]
struct Asked {
    id: ReaderId,
    key: Key,
    offset: i64,
    leader_epoch: LeaderEpoch,
}

/// The kinds of request a broker can have from us: one poll, and others beside it for what is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// In the session, waiting at the broker for data.
    Poll,
    /// Asks once, without waiting, over another connection: the poll may wait.
    Look,
    /// For partitions whose next records are there already, behind a poll of such: a distant broker has always work.
    Next,
}

#[derive(Debug)]
enum Event {
    Fetched {
        broker: BrokerId,
        kind: Kind,
        asked: Vec<Asked>,
        reserved: usize,
        result: Result<Reply, Error>,
    },
    Offsets {
        broker: BrokerId,
        asked: Vec<(ReaderId, Lookup, LeaderEpoch)>,
        result: Result<Vec<Ends>, Error>,
    },
}

#[derive(Debug)]
struct Reply {
    version: i16,
    body: Bytes,
    connection: Connection,
}

#[derive(Debug, Default)]
struct Broker {
    session: Session,
    polling: bool,
    /// What is polled for is there: no request waits behind that one for long.
    prompt: bool,
    /// Requests beside the poll.
    beside: usize,
    /// Bytes they brought since the last poll was answered.
    brought: usize,
    /// Lookups of positions that are under way, at most [`positions::LOOKUPS`].
    resolving: u8,
    failures: u32,
    retry_at: Option<Instant>,
    /// The next request begins with the partition behind this one.
    turn: ReaderId,
    /// When the last poll was answered, or the first one was sent.
    answered_at: Option<Instant>,
    /// Bytes to be held of its partitions.
    wanted: usize,
}

impl Broker {
    /// It is so distant, for how fast it is read, that one request at a time would leave it idle.
    fn overlaps(&self) -> bool {
        self.wanted > FIRST_WINDOW
    }

    /// What may be sent to it now.
    fn next(&self) -> Option<Kind> {
        match (self.polling, self.prompt && self.overlaps()) {
            (false, _) => Some(Kind::Poll),
            (true, true) => (self.beside + 1 < OVERLAPPING).then_some(Kind::Next),
            (true, false) => (self.beside == 0).then_some(Kind::Look),
        }
    }
}

/// What became of a request that might be sent.
enum Start {
    Sent,
    Nothing,
    NoMemory,
}

type Events = Arc<Mutex<Vec<Event>>>;

/// The driver of one fetcher; it runs until its task is dropped.
#[derive(Debug)]
pub(super) struct Driver {
    shared: Arc<Shared>,
    /// A poll, a look and a few lookups for each broker.
    events: Events,
    brokers: BTreeMap<BrokerId, Broker>,
    metadata: watch::Receiver<Arc<Metadata>>,
    /// Bytes asked for and not answered.
    reserved: usize,
    leaderless_at: Option<Instant>,
    /// Since when memory is what keeps a partition from being fetched.
    starved_at: Option<Instant>,
    /// Whose request waits for memory; it is served before the others.
    starved: Option<BrokerId>,
}

/// Requests that a distant broker may have from us at once, each for a part of its partitions.
const OVERLAPPING: usize = 8;

impl Driver {
    pub(super) fn new(shared: Arc<Shared>) -> Driver {
        let mut metadata = shared.cluster.watch();
        metadata.mark_changed();
        Driver {
            shared,
            events: Events::default(),
            brokers: BTreeMap::new(),
            metadata,
            reserved: 0,
            leaderless_at: None,
            starved_at: None,
            starved: None,
        }
    }

    pub(super) async fn run(mut self) {
        let clock = self.shared.cluster.doors().clock.clone();
        loop {
            let now = clock.now();
            self.take_events(now);
            self.follow_metadata(now);
            self.resolve(now);
            self.fetch(now);
            let budget = Arc::clone(&self.shared.budget);
            let until = self.wake_at(now);
            tokio::select! {
                biased;
                () = budget.wake.notified() => {}
                _ = self.metadata.changed() => self.metadata.mark_changed(),
                () = clock.sleep_until(until) => {}
            }
        }
    }

    fn wake_at(&self, now: Instant) -> Instant {
        let state = self.shared.state();
        let parts = state.parts.values().filter_map(|part| part.retry_at);
        let brokers = self.brokers.values().filter_map(|broker| broker.retry_at);
        parts
            .chain(brokers)
            .chain(self.leaderless_at)
            .chain(self.starved_at.into_iter().flat_map(|at| [at + HESITATION, at + TURN]))
            .filter(|at| *at > now)
            .fold(now + Duration::from_secs(3600), Instant::min)
    }

    fn take_events(&mut self, now: Instant) {
        let events = std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        for event in events {
            match event {
                Event::Fetched { broker, kind, asked, reserved, result } => {
                    self.reserved = self.reserved.saturating_sub(reserved);
                    self.fetched(now, broker, kind, &asked, result);
                }
                Event::Offsets { broker, asked, result } => self.found(now, broker, &asked, result),
            }
        }
    }

    fn backoff(&self, failures: u32) -> Duration {
        let limits = self.shared.cluster.limits();
        let rng = &self.shared.cluster.doors().rng;
        rng.backoff(limits.backoff, limits.backoff_max, failures.saturating_sub(1))
    }

    /// Leaders, epochs and topic ids as metadata has them now. Topics of new partitions are followed from here on.
    fn follow_metadata(&mut self, now: Instant) {
        let changed = self.metadata.has_changed().unwrap_or(false);
        let metadata = Arc::clone(&self.metadata.borrow_and_update());
        let (mut track, mut leaderless) = (Vec::new(), false);
        let mut state = self.shared.state();
        for part in state.parts.values_mut() {
            let new = part.opened.is_none();
            if new {
                part.opened = Some(now);
                track.push(Arc::clone(&part.tp.topic));
            }
            if changed || new || part.leader.is_none() {
                part.follow(&metadata);
            }
            part.mind_leader(now);
            leaderless |= part.leader.is_none();
        }
        drop(state);
        if !track.is_empty() {
            track.dedup();
            self.shared.cluster.track(&track);
        }
        if !leaderless {
            self.leaderless_at = None;
        } else if self.leaderless_at.is_none_or(|at| at <= now) {
            if self.leaderless_at.is_some() || track.is_empty() {
                self.shared.cluster.refresh_soon("a partition to fetch has no leader");
            }
            self.leaderless_at = Some(now + self.shared.cluster.limits().backoff_max);
        }
    }

    /// Starts every request that may start now.
    fn fetch(&mut self, now: Instant) {
        let (leaders, stuck) = {
            let mut state = self.shared.state();
            let share = self.shared.share(state.parts.len());
            let held = self.shared.budget.held() + extra(&state) + self.reserved;
            let free = self.shared.config.buffer_bytes.saturating_sub(held);
            let mut stuck = None;
            for part in state.parts.values_mut() {
                part.limit = limit(share, part.waits(), free);
                part.full = is_full(Held { bytes: part.bytes(), full: part.full }, part.limit);
                if part.full && part.waits() {
                    stuck = stuck.or(part.source(now));
                }
            }
            let mut leaders: Vec<BrokerId> =
                state.parts.values().filter_map(|part| part.source(now)).collect();
            leaders.sort_unstable();
            leaders.dedup();
            let first = leaders.iter().position(|id| Some(*id) == self.starved).unwrap_or(0);
            leaders.rotate_left(first);
            (leaders, stuck)
        };
        self.starved = stuck;
        for id in leaders {
            let broker = self.brokers.entry(id).or_default();
            if broker.retry_at.is_some_and(|at| at > now) {
                continue;
            }
            while let Some(kind) = self.brokers.get(&id).and_then(Broker::next) {
                match self.start(now, id, kind) {
                    Start::Sent => {}
                    Start::Nothing => break,
                    Start::NoMemory => {
                        self.starved.get_or_insert(id);
                        break;
                    }
                }
            }
        }
        self.share_out(now);
    }

    /// Sends one request to a broker if it has partitions for it.
    fn start(&mut self, now: Instant, id: BrokerId, kind: Kind) -> Start {
        let config = self.shared.config.clone();
        let Some(broker) = self.brokers.get_mut(&id) else { return Start::Nothing };
        let mut state = self.shared.state();
        let (window, share) = (self.shared.window(), self.shared.share(state.parts.len()));
        let cap = broker.overlaps().then_some(window / OVERLAPPING);
        let Choice { asked, percent, room, leader_alone, prompt } =
            choose(&state, id, kind, now, broker.turn, share, cap);
        if asked.is_empty() {
            return Start::Nothing;
        }
        let held = self.shared.budget.held() + extra(&state) + self.reserved;
        let Some(max_bytes) = request_bytes(window, held, room, config.max_bytes, percent) else {
            return Start::NoMemory;
        };
        // With all of them in it, the next one comes first next time; else those that found no room in it.
        let turn = if cap.is_some() { asked.last() } else { asked.first() };
        broker.turn = turn.map_or(broker.turn, |(asked, _)| asked.id);
        for (asked, _) in &asked {
            if let Some(part) = state.parts.get_mut(&asked.id) {
                part.asked = true;
            }
        }
        if kind == Kind::Poll {
            // What looked and found nothing waits in the poll now.
            state.parts.values_mut().for_each(|part| part.looked = false);
        }
        drop(state);
        let wanted = asked.iter().map(|(asked, params)| (asked.key.clone(), *params));
        let (request, max_wait) = match kind {
            Kind::Poll => {
                (broker.polling, broker.prompt) = (true, prompt);
                broker.answered_at.get_or_insert(now);
                (broker.session.next(wanted), config.max_wait)
            }
            Kind::Look | Kind::Next => {
                broker.beside += 1;
                (sessionless(wanted.collect()), Duration::ZERO)
            }
        };
        let reserved = super::plan::expanded(max_bytes, percent);
        self.reserved += reserved;
        let with_ids = asked.iter().all(|(asked, _)| asked.key.topic_id.is_some());
        let asked: Vec<Asked> = asked.into_iter().map(|(asked, _)| asked).collect();
        self.spawn(move |cluster| async move {
            let rack = config.client_rack.as_deref().filter(|_| !leader_alone).unwrap_or_default();
            let ask = Ask { max_wait, max_bytes, isolation: config.isolation, rack };
            let result = send(&cluster, id, kind, ask, with_ids, &request).await;
            Event::Fetched { broker: id, kind, asked, reserved, result }
        });
        Start::Sent
    }

    fn spawn<F>(&self, work: impl FnOnce(Cluster) -> F)
    where
        F: Future<Output = Event> + Send + 'static,
    {
        let (events, budget) = (Arc::clone(&self.events), Arc::clone(&self.shared.budget));
        let work = work(self.shared.cluster.clone());
        let task = async move {
            let event = work.await;
            events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
            budget.wake.notify_one();
        };
        self.shared.cluster.doors().spawner.spawn(prosody_base::Lane::Io, task).detach();
    }
}
