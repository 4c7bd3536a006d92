//! How is a broker reached, and what happens while it is not? One slot for each broker and lane.
//!
//! A slot is empty, dialing or open. Whoever needs it first starts the dial, everyone else waits for the same one. The
//! dial is a task of its own: a caller with a short deadline does not take it along when it gives up. The first dial
//! never waits; after a failure the next waits for a jittered, growing time (KIP-580).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prosody_base::{Doors, Instant, Task, sabotaged, watch};

use crate::client::ClientConfig;
use crate::conn::Connection;
use crate::error::{Error, ErrorKind};
use crate::figures::{Book, BrokerFigures};
use crate::net::Connector;
use crate::sasl::Login;
use crate::types::BrokerId;

/// What a connection is used for. A long request holds up only its own lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lane {
    /// Produce.
    Produce,
    /// Fetch, which waits at the broker.
    Fetch,
    /// Groups, metadata and everything else.
    Coordination,
    /// What members of groups wait for at their coordinator, of each but the first of a client: a broker works on one
    /// request of a connection at a time, and a JoinGroup waits for the other members.
    Member(u16),
}

/// The lane of one member; free for another one when it is dropped.
#[derive(Debug)]
pub(crate) struct MemberLane {
    number: u16,
    taken: Arc<Mutex<BTreeSet<u16>>>,
}

impl MemberLane {
    pub(super) fn first_free(taken: &Arc<Mutex<BTreeSet<u16>>>) -> MemberLane {
        let mut numbers = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let number = (0..u16::MAX).find(|number| !numbers.contains(number)).unwrap_or(u16::MAX);
        numbers.insert(number);
        MemberLane { number, taken: Arc::clone(taken) }
    }

    /// Where the member's long requests go.
    pub(crate) fn lane(&self) -> Lane {
        if self.number == 0 { Lane::Coordination } else { Lane::Member(self.number) }
    }
}

impl Drop for MemberLane {
    fn drop(&mut self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// Whom to dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Broker(BrokerId),
    /// An address of the configuration, by its place there.
    Seed(usize),
}

/// Host and port.
pub(super) type Address = (Arc<str>, u16);

/// The result of a dial once it is there.
pub(super) type Dial = watch::Receiver<Option<Result<Connection, Error>>>;

/// What a slot has to offer at once.
pub(super) enum Reach {
    Open(Connection),
    Dialing(Dial),
}

#[derive(Debug)]
pub(super) struct Lanes {
    slots: Mutex<BTreeMap<(Target, Lane), Slot>>,
    connector: Arc<dyn Connector>,
    config: Arc<ClientConfig>,
    login: Option<Arc<Login>>,
    doors: Doors,
    closed: AtomicBool,
    figures: Book,
    /// Counts finished dials, for those who wait for any of several.
    pub(super) finished: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Slot {
    open: Option<(Connection, Address, Instant)>,
    dialing: Option<(Dial, Task<()>)>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Lanes {
    pub(super) fn new(connector: Arc<dyn Connector>, config: Arc<ClientConfig>, doors: Doors) -> Lanes {
        let (finished, _) = watch::channel(0);
        let login = config.sasl.as_ref().map(|sasl| Arc::new(Login::new(sasl, &config.limits, &doors)));
        let (figures, closed) = (Book::new(config.limits.brokers), AtomicBool::new(false));
        Lanes { slots: Mutex::default(), connector, config, login, doors, closed, figures, finished }
    }

    /// An open connection, or the dial that is under way now.
    pub(super) fn reach(self: &Arc<Lanes>, target: Target, lane: Lane, address: &Address) -> Reach {
        let now = self.doors.clock.now();
        let mut slots = self.slots();
        let slot = slots.entry((target, lane)).or_default();
        if let Some(connection) = slot.usable(address, now, &self.config, &self.doors) {
            return Reach::Open(connection);
        }
        if let Some((dial, _)) = &slot.dialing {
            return Reach::Dialing(dial.clone());
        }
        if self.closed.load(Ordering::Acquire) {
            return Reach::Dialing(watch::channel(Some(Err(closed()))).1);
        }
        let (done, dial) = watch::channel(None);
        let not_before = slot.not_before.filter(|at| *at > now);
        let lanes = Arc::clone(self);
        let address = address.clone();
        let task = self.doors.spawner.spawn(prosody_base::Lane::Io, async move {
            if let Some(at) = not_before {
                lanes.doors.clock.sleep_until(at).await;
            }
            let result = lanes.dial(target, &address).await;
            lanes.finish(target, lane, address, &result);
            done.send_replace(Some(result));
            lanes.finished.send_modify(|count| *count = count.wrapping_add(1));
        });
        slot.dialing = Some((dial.clone(), task));
        Reach::Dialing(dial)
    }

    /// An open connection of this slot, without dialing.
    pub(super) fn open(&self, target: Target, lane: Lane, address: &Address) -> Option<Connection> {
        let now = self.doors.clock.now();
        self.slots().get_mut(&(target, lane))?.usable(address, now, &self.config, &self.doors)
    }

    /// Makes a connection to a seed the coordination lane of the broker that has the same address.
    pub(super) fn adopt(&self, broker: BrokerId, address: &Address) {
        let mut slots = self.slots();
        let seed = slots.iter().find_map(|(key, slot)| {
            let is_seed = matches!(key.0, Target::Seed(_));
            (is_seed && slot.open.as_ref().is_some_and(|open| open.1 == *address)).then_some(*key)
        });
        let Some(seed) = seed else { return };
        let key = (Target::Broker(broker), Lane::Coordination);
        if slots.get(&key).is_some_and(|slot| slot.open.is_some() || slot.dialing.is_some()) {
            return;
        }
        if let Some(open) = slots.get_mut(&seed).and_then(|slot| slot.open.take()) {
            slots.entry(key).or_default().open = Some(open);
        }
    }

    /// Closes every connection and ends every dial.
    pub(super) fn close(&self) {
        let slots = {
            let mut slots = self.slots();
            self.closed.store(true, Ordering::Release);
            std::mem::take(&mut *slots)
        };
        for (connection, _, _) in slots.into_values().filter_map(|slot| slot.open) {
            connection.close("this client was closed");
        }
    }

    /// What happened between us and each address.
    pub(super) fn figures(&self) -> Vec<BrokerFigures> {
        let slots = self.slots();
        let open: Vec<Connection> =
            slots.values().filter_map(|slot| slot.open.as_ref().map(|open| open.0.clone())).collect();
        drop(slots);
        self.figures.read(|figures| {
            let in_flight = open.iter().filter_map(|connection| connection.in_flight(figures));
            in_flight.fold((0, 0), |(count, sum), more| (count + 1, sum + more))
        })
    }

    async fn dial(&self, target: Target, (host, port): &Address) -> Result<Connection, Error> {
        let peer = match target {
            Target::Broker(id) => format!("broker {id} at {host}:{port}"),
            Target::Seed(_) => format!("{host}:{port}"),
        };
        let limits = &self.config.limits;
        let deadline = self.doors.clock.now() + limits.connect_timeout;
        let connecting = || format!("connecting to {peer}");
        // Each step knows its name, so each keeps the deadline itself.
        let stream = match self.doors.clock.until(deadline, self.connector.connect(host, *port)).await {
            Ok(stream) => stream.map_err(|cause| Error::io(connecting(), cause))?,
            Err(_) => return Err(Error::new(connecting(), ErrorKind::Timeout)),
        };
        let (name, login) = (&self.config.client_id, self.login.as_ref());
        Connection::open(stream, &peer, name, login, limits, &self.doors, deadline).await
    }

    fn finish(&self, target: Target, lane: Lane, address: Address, result: &Result<Connection, Error>) {
        let now = self.doors.clock.now();
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(&(target, lane)) else { return };
        if let Some((_, task)) = slot.dialing.take() {
            task.detach(); // it is this very task
        }
        match result {
            Ok(connection) => {
                tracing::debug!(peer = %connection.peer(), "connected");
                let figures = self.figures.of(&address);
                figures.connects.one();
                connection.count_in(figures);
                slot.not_before = None;
                slot.open = Some((connection.clone(), address, now));
            }
            Err(error) => {
                self.figures.of(&address).failed_connects.one();
                slot.failed(now, &self.config, &self.doors);
                let times = slot.failures;
                if worth_saying(times) {
                    tracing::warn!(%error, times, "cannot connect; trying again");
                } else {
                    tracing::debug!(%error, times, "cannot connect; trying again");
                }
            }
        }
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<(Target, Lane), Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// The connection, unless it ended, leads to an old address, or was idle for so long that the broker may be about
    /// to close it.
    fn usable(
        &mut self,
        address: &Address,
        now: Instant,
        config: &ClientConfig,
        doors: &Doors,
    ) -> Option<Connection> {
        let (connection, at, since) = self.open.as_ref()?;
        if connection.closed().is_some() {
            // A connection that ends as soon as it is open counts as a failed dial, or we would dial in a tight loop.
            if now.saturating_duration_since(*since) < config.limits.backoff_max {
                self.failed(now, config, doors);
            } else {
                self.failures = 0;
            }
            self.open = None;
            return None;
        }
        let stale = connection.idle_since().is_some_and(|since| now >= since + config.limits.idle);
        if stale && !sabotaged("idle-connection") || at != address {
            self.open = None;
            return None;
        }
        Some(connection.clone())
    }

    fn failed(&mut self, now: Instant, config: &ClientConfig, doors: &Doors) {
        let limits = &config.limits;
        self.not_before = Some(now + doors.rng.backoff(limits.backoff, limits.backoff_max, self.failures));
        self.failures = self.failures.saturating_add(1);
    }
}

/// Whether the n-th failure in a row is worth a line of the log: the first ones, then about one a minute.
pub(super) fn worth_saying(times: u32) -> bool {
    times.is_power_of_two() || times.is_multiple_of(64)
}

/// Waits for a dial's result.
pub(super) async fn outcome(mut dial: Dial) -> Result<Connection, Error> {
    let done = dial.wait_for(Option::is_some).await.map_err(|_| closed())?;
    done.clone().unwrap_or_else(|| Err(closed()))
}

fn closed() -> Error {
    Error::new("dialing a broker", ErrorKind::Closed("this client was closed"))
}
