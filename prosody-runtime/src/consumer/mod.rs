//! One subscription: from joining the group to leaving it.
//!
//! ```text
//! group events ──▶ this file ──assign──▶ partitions (reader tasks, gate, workers)
//!   (io lane)          │────── shutdown: drain, commit, give up, in tasks of their own
//!                      └────── a task that commits every CommitInterval
//! ```
//!
//! | file | question it answers |
//! |---|---|
//! | `subscribe.rs` | may we subscribe, and if not, why? |
//! | `assign.rs` | which partitions are ours, and who reads them? |
//! | `durable.rs` | how does a partition get its segment of the store? |
//! | `shutdown.rs` | how is a partition given up? |
//! | `commit.rs` | what does the group know of our progress? |

pub(crate) mod assign;
pub(crate) mod commit;
mod durable;
mod shutdown;
pub(crate) mod subscribe;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use prosody_base::{Doors, Lane, Task, watch};
use prosody_state::KeyStore;
use prosody_wire::fetch::Fetcher;
use prosody_wire::group::{Group, GroupEvent};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::config::Checked;
use crate::durable::images::Images;
use crate::error::{Error, ErrorKind};
use crate::insight::Counters;
use crate::insight::beats::{BEAT, Beats, Loop};
use crate::insight::reading::{Load, Reading, samples};
use crate::insight::status::PartitionStatus;
use crate::loader::Loader;
use crate::partition::copies::Copies;
use crate::partition::held::Held;
use crate::partition::runtime::Shared;
use crate::pipeline::Pipeline;
use crate::pipeline::dedup::Dedup;
use crate::probes::{self, View};
use crate::schedule::gate::Occupied;
use crate::telemetry::Telemetry;
use crate::trace::Tracing;

use assign::{Assignments, Names};
use commit::Commits;

/// What outlives a subscription.
pub(crate) struct Lasting {
    /// Numbers the clients of a process, from 1.
    pub(crate) number: u64,
    pub(crate) config: Arc<Checked>,
    pub(crate) doors: Doors,
    pub(crate) wire: prosody_wire::Client,
    pub(crate) dedup: Arc<Dedup>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) telemetry: Option<Arc<Telemetry>>,
    pub(crate) tracing: Arc<Tracing>,
    pub(crate) held: Arc<Held>,
    pub(crate) occupied: Arc<Occupied>,
    pub(crate) names: Arc<watch::Sender<Names>>,
    /// Where timers are kept; `None` outside of mock mode.
    pub(crate) store: Option<Arc<dyn KeyStore>>,
}

/// A running subscription. Dropping it begins the same graceful end that [`Subscription::stop`] waits for.
pub(crate) struct Subscription {
    inner: Arc<Inner>,
    stop: Arc<Notify>,
    ended: watch::Receiver<Option<Result<(), Error>>>,
    task: Mutex<Option<Task<()>>>,
}

/// What the tasks of a subscription share.
struct Inner {
    config: Arc<Checked>,
    doors: Doors,
    counters: Arc<Counters>,
    pipeline: Arc<Pipeline>,
    shared: Shared,
    wire: prosody_wire::Client,
    fetcher: Fetcher,
    assignments: Assignments,
    commits: Commits,
    beats: Arc<Beats>,
    number: u64,
    loader: Loader,
    /// Key records in memory, of all partitions.
    images: Arc<Mutex<Images>>,
    store: Option<Arc<dyn KeyStore>>,
    /// What waiting records take beside the fetch buffer.
    copies: Copies,
}

impl Subscription {
    /// Partitions that are ours.
    pub(crate) fn assigned(&self) -> usize {
        self.inner.assignments.count()
    }

    pub(crate) fn load(&self) -> Load {
        self.inner.load()
    }

    pub(crate) fn partitions(&self) -> Vec<PartitionStatus> {
        self.inner.partitions()
    }

    /// Ends the subscription gracefully and waits for it. May be called again, and by several callers.
    pub(crate) async fn stop(&self) -> Result<(), Error> {
        self.stop.notify_one();
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(())),
            Err(_) => Err(Error::new(ErrorKind::Closed, "ending a subscription: its task was killed")),
        }
    }
}

impl Inner {
    /// What runs and waits now.
    fn load(&self) -> Load {
        let shared = &self.shared;
        let (running, permits, ready) = shared.gate.load();
        Load {
            running,
            permits,
            ready,
            retries: shared.retries.len(),
            assigned: self.assignments.count(),
            owned_cache: self.images.lock().unwrap_or_else(PoisonError::into_inner).bytes(),
        }
    }

    /// What our partitions look like now, those that are read.
    fn partitions(&self) -> Vec<PartitionStatus> {
        let Inner { config, doors, shared, fetcher, assignments, .. } = self;
        let (now, running, ends) = (doors.clock.now(), shared.gate.running(), fetcher.high_watermarks());
        let open = assignments.open_partitions().into_iter().map(|(_, partition)| {
            let end = ends.get(partition.tp()).copied();
            partition.status(&running, end, now, config.stall_threshold)
        });
        open.collect()
    }

    /// All metrics now.
    fn reading(&self) -> Reading {
        let group = self.config.group_id.as_deref().unwrap_or_default().to_owned();
        let samples = samples(&self.counters, self.load(), &self.partitions(), &self.wire.brokers());
        Reading { client: self.number, group, samples }
    }

    /// What the probes say of this client.
    fn view(&self) -> View {
        View {
            reading: self.reading(),
            topics: self.config.subscribed(),
            assigned: self.assignments.count(),
            partitions: self.partitions(),
            missed: self.beats.missed(self.doors.clock.now()),
            details: self.config.probe_details,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.detach();
        }
    }
}

/// The subscription's own task. It runs no user code and waits for nobody's handler.
async fn run(
    inner: Arc<Inner>,
    mut group: Group,
    stop: Arc<Notify>,
    ended: watch::Sender<Option<Result<(), Error>>>,
    probes: Option<SocketAddr>,
) {
    let spawner = &inner.doors.spawner;
    let committing = spawner.spawn(Lane::Io, commit::drive(Arc::clone(&inner)));
    let retrying = {
        let (retries, gate) = (Arc::clone(&inner.shared.retries), Arc::clone(&inner.shared.gate));
        spawner.spawn(Lane::Io, retries.drive(inner.doors.clock.clone(), gate, Arc::clone(&inner.beats)))
    };
    let clock = &inner.doors.clock;
    loop {
        inner.beats.beat(Loop::Group, clock.now());
        let event = tokio::select! {
            biased;
            () = stop.notified() => break,
            event = group.event() => event,
            () = clock.sleep(BEAT) => continue,
        };
        match event {
            GroupEvent::Assigned { epoch, partitions } => {
                inner.counters.assignments.one();
                info!(
                    group = inner.config.group_id.as_deref(),
                    count = partitions.len(),
                    "partitions assigned"
                );
                for assigned in partitions {
                    assign::open(&inner, epoch, assigned);
                }
            }
            GroupEvent::Revoke { partitions, deadline, done } => {
                info!(
                    group = inner.config.group_id.as_deref(),
                    count = partitions.len(),
                    "partitions revoked"
                );
                let inner = Arc::clone(&inner);
                let revoking = inner.assignments.take(&partitions);
                let giving_up = async move {
                    shutdown::give_up(&inner, revoking, Some(deadline), true).await.ok();
                    done.done();
                };
                spawner.spawn(Lane::Io, giving_up).detach();
            }
            GroupEvent::Lost { partitions, why } => {
                inner.counters.lost_partitions.add(partitions.len() as u64);
                warn!(
                    group = inner.config.group_id.as_deref(),
                    count = partitions.len(),
                    "partitions lost: {why}"
                );
                let inner = Arc::clone(&inner);
                let lost = inner.assignments.take(&partitions);
                let giving_up = async move {
                    shutdown::give_up(&inner, lost, None, false).await.ok();
                };
                spawner.spawn(Lane::Io, giving_up).detach();
            }
            GroupEvent::Failed(why) => {
                warn!(group = inner.config.group_id.as_deref(), "the group cannot be used now: {why}");
            }
        }
    }
    let result = shutdown::end(&inner, group).await;
    drop((committing, retrying));
    if let Some(at) = probes {
        probes::leave(at, inner.number).await;
    }
    ended.send_replace(Some(result));
}
