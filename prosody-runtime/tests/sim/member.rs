//! One consumer process: the shipped client, a handler that works and fails by the plan, and a way to die.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use prosody_base::{Clock, Doors, Lane, Rng, Spawner, Task};
use prosody_runtime::{
    Assignment, Client, Context, GroupProtocol, Handler, HandlerError, Message, Mode, Timer,
};
use prosody_state::KeyStore;
use prosody_testkit::Cluster;
use prosody_testkit::broker::batch::Record;
use prosody_testkit::broker::group::GroupView;
use prosody_testkit::check::{History, Standing, TimerHistory};
use prosody_testkit::sim::Plan;
use prosody_wire::PipeConnector;

use crate::timers::{Calls, Stage, Who};
use crate::vault::Vault;

pub(crate) const GROUP: &str = "sim-group";
pub(crate) const TOPIC: &str = "sim-topic";
/// Where members that give up write what failed.
pub(crate) const FAILURES: &str = "sim-failures";
/// Its partitions.
pub(crate) const FAILURE_PARTITIONS: i32 = 2;
/// Long enough for a coordinator move, short enough that a silent member is noticed within a run.
pub(crate) const SESSION: Duration = Duration::from_secs(10);
/// Share of slow handler calls, in percent: records of one key wait behind them, rebalances and drains meet them.
const SLOW: u64 = 4;
/// Longest a slow call works; shorter than a drain may last.
const SLOW_WORK: Duration = Duration::from_millis(3_500);
/// How long a member waits before it tries to subscribe again.
const AGAIN: Duration = Duration::from_millis(500);

pub(crate) struct Member {
    pub(crate) name: String,
    client: Client,
    spawner: Spawner,
    _life: Task<()>,
}

/// What a handler needs of the world.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) history: Arc<History>,
    /// The store of runs in which events are set aside.
    pub(crate) vault: Option<Vault>,
    pub(crate) clock: Clock,
    /// Timers and their store.
    pub(crate) stage: Stage,
    /// Clients that were removed from the group and have not come back.
    evicted: Mutex<BTreeSet<String>>,
    /// Records of the failure topic that the history knows, by partition.
    buried: Mutex<BTreeMap<i32, usize>>,
}

struct Work {
    member: String,
    scene: Arc<Scene>,
    rng: Rng,
    work: Duration,
    failing: u64,
    gives_up: bool,
    timers: bool,
    /// What the member says it owns.
    owned: Assignment,
}

/// Notes the end of a call whatever ends it: a result, or the drop of its future.
struct Running<'a> {
    work: &'a Work,
    place: (i32, i64),
    key: &'a str,
    returned: bool,
    done: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Work { member, scene, .. } = self.work;
        tracing::debug!(member, place = ?self.place, self.returned, self.done, "ends");
        if !self.returned {
            scene.history.abandoned(member, self.place, self.key);
        }
        scene.history.ended(member, self.place, self.key, self.done);
    }
}

impl Handler for Work {
    async fn on_message(&self, context: Context, message: Message) -> Result<(), HandlerError> {
        // The records that are appended at the end have one key in every partition: their timers would have no name.
        let timers = self.timers && message.key() != "last";
        self.scene.stage.lives(message.key(), message.partition());
        let place = (message.partition(), message.offset());
        self.run(place, message.key(), timers.then_some(&context), None).await
    }

    async fn on_timer(&self, context: Context, timer: Timer) -> Result<(), HandlerError> {
        let time = timer.time.duration_since(UNIX_EPOCH)?.as_secs();
        let partition = self.scene.stage.home(&timer.key).unwrap_or(-1);
        let place = (partition, -1 - i64::try_from(time)?);
        self.run(place, &timer.key, Some(&context), Some(u32::try_from(time)?)).await
    }
}

impl Work {
    async fn run(
        &self,
        place: (i32, i64),
        key: &str,
        timers: Option<&Context>,
        firing: Option<u32>,
    ) -> Result<(), HandlerError> {
        self.scene.bury();
        let standing = self.scene.standing(&self.member);
        tracing::debug!(member = self.member, ?standing, ?place, key, "starts");
        let is_owner = matches!(standing, Standing::Member(_));
        self.scene.history.started(&self.member, standing, place, key, |id| self.scene.is_over(id));
        if !self.owned.clone().now().iter().any(|(_, partition)| *partition == place.0) {
            self.scene.history.started_unowned(&self.member, place);
        }
        let mut running = Running { work: self, place, key, returned: false, done: false };
        let who = Who { member: &self.member, place: (place.0, key), firing, is_owner };
        let mut calls = match timers {
            Some(context) => Some(Calls::begin(&self.scene, context, who).await?),
            None => None,
        };
        let longest = if self.rng.below(100) < SLOW { SLOW_WORK } else { self.work };
        let (time, luck) = (longest.mul_f64(self.rng.unit()), self.rng.below(100));
        self.scene.clock.sleep(time).await;
        running.returned = true;
        if luck < self.failing {
            let never = self.gives_up && self.rng.below(4) == 0;
            let error = if never { HandlerError::permanent } else { HandlerError::transient };
            return Err(error("the plan says so"));
        }
        if let Some(calls) = &mut calls {
            calls.make(&self.scene, &self.rng).await?;
        }
        running.done = true;
        Ok(())
    }
}

impl Scene {
    pub(crate) fn new(
        cluster: Cluster,
        history: Arc<History>,
        vault: Option<Vault>,
        clock: Clock,
        stage: Stage,
    ) -> Arc<Scene> {
        Arc::new(Scene {
            cluster,
            history,
            vault,
            clock,
            stage,
            evicted: Mutex::default(),
            buried: Mutex::default(),
        })
    }

    /// An operator removes a member from the group. Returns whether it was in it.
    pub(crate) fn evict(&self, client: &str) -> bool {
        let was_in = self.cluster.evict(GROUP, client) > 0;
        if was_in {
            self.evicted().insert(client.to_owned());
        }
        was_in
    }

    /// Tells the history of records that have come to the failure topic. Called whenever something happens that may
    /// depend on them, so that "before" stays what it means.
    pub(crate) fn bury(&self) {
        let mut buried = self.buried.lock().unwrap_or_else(PoisonError::into_inner);
        for partition in 0..FAILURE_PARTITIONS {
            let known = buried.entry(partition).or_default();
            let end = self.cluster.log_end(FAILURES, partition).map_or(0, |log| log.end);
            if usize::try_from(end).unwrap_or(0) > *known {
                let log = self.cluster.log(FAILURES, partition);
                log.iter().skip(*known).for_each(|record| self.history.buried(place_of(record)));
                *known = log.len();
            }
        }
    }

    fn standing(&self, client: &str) -> Standing {
        let members = self.cluster.group(GROUP).map(|group| group.members).unwrap_or_default();
        match members.into_iter().find(|(_, known)| known.client_id == client) {
            Some((id, member)) => {
                self.evicted().remove(client);
                Standing::Member(format!("{id}#{}", member.since))
            }
            None if self.evicted().contains(client) => Standing::Evicted,
            None => Standing::Out,
        }
    }

    fn evicted(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.evicted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the group has no such member any more: its partitions are gone, whether its client knows it or not.
    fn is_over(&self, id: &str) -> bool {
        let is_in = |group: GroupView| {
            group.members.iter().any(|(known, member)| format!("{known}#{}", member.since) == id)
        };
        !self.cluster.group(GROUP).is_some_and(is_in)
    }
}

impl Member {
    /// Starts a process. It subscribes by itself, and again whenever that fails.
    pub(crate) fn start(name: String, plan: &Plan, scene: &Arc<Scene>, doors: &Doors) -> Member {
        let spawner = doors.spawner.separate();
        let doors = Doors { clock: doors.clock.clone(), rng: doors.rng.fork(), spawner: spawner.clone() };
        let role = if plan.gives_up { Role::GivesUp } else { Role::Retries };
        let store = match plan.timers {
            true => Some(scene.stage.store()),
            false => scene.vault.as_ref().map(|vault| Arc::clone(&vault.store)),
        };
        let client = client(&name, role, protocol(plan), &scene.cluster, &doors, (store, !plan.timers));
        let (subscribing, clock, rng) = (client.clone(), doors.clock.clone(), doors.rng.fork());
        let (member, scene, plan) = (name.clone(), Arc::clone(scene), plan.clone());
        let owned = client.assignment();
        let work = move || Work {
            member: member.clone(),
            scene: Arc::clone(&scene),
            rng: rng.fork(),
            work: plan.work,
            failing: plan.failing,
            gives_up: plan.gives_up,
            timers: plan.timers,
            owned: owned.clone(),
        };
        let life = spawner.spawn(Lane::Work, async move {
            while subscribing.subscribe(work()).await.is_err() {
                clock.sleep(AGAIN).await;
            }
        });
        Member { name, client, spawner, _life: life }
    }

    /// Drains, commits and leaves.
    pub(crate) async fn leave(self, history: &History, timers: &TimerHistory) {
        let _ = self.client.unsubscribe().await;
        history.rewound(&self.name, self.client.insight().rewound);
        self.spawner.kill();
        timers.killed(&self.name);
    }

    /// Ends at once and says nothing. Returns how many handlers were running.
    pub(crate) fn kill(self, history: &History, timers: &TimerHistory) -> usize {
        history.rewound(&self.name, self.client.insight().rewound);
        let running = history.killed(&self.name);
        self.spawner.kill();
        timers.killed(&self.name);
        running
    }
}

/// Where a record of the failure topic came from.
pub(crate) fn place_of(record: &Record) -> (i32, i64) {
    let number = |name: &str| {
        let value = record.headers.iter().rev().find(|(key, _)| key == name.as_bytes())?.1.as_deref()?;
        std::str::from_utf8(value).ok()?.parse::<i64>().ok()
    };
    let partition = number("source-partition").and_then(|partition| i32::try_from(partition).ok());
    (partition.unwrap_or(-1), number("source-offset").unwrap_or(-1))
}

/// What the members of a run speak. `Auto` ends at the consumer protocol: the cluster serves it.
fn protocol(plan: &Plan) -> GroupProtocol {
    if plan.consumer { GroupProtocol::Auto } else { GroupProtocol::Classic }
}

/// What a client of the simulated cluster is for.
pub(crate) enum Role {
    /// It consumes, and retries without end.
    Retries,
    /// It consumes, and writes what failed twice to the failure topic.
    GivesUp,
    /// It sends, and every send ends after this time.
    Sends(Duration),
}

/// A client of the simulated cluster whose client id is `name`.
pub(crate) fn client(
    name: &str,
    role: Role,
    protocol: GroupProtocol,
    cluster: &Cluster,
    doors: &Doors,
    (store, defers): (Option<Arc<dyn KeyStore>>, bool),
) -> Client {
    let connector = Arc::new(PipeConnector(cluster.network()));
    let mut builder = Client::builder()
        .bootstrap_servers(cluster.bootstrap().split(',').map(str::to_owned))
        .source_system(name)
        .transport(connector, doors.clone())
        .configure(|options| {
            options.group_protocol = Some(protocol);
            // Records that were set aside are read again from brokers that may be away.
            options.defer_enabled = (!defers).then_some(false);
            options.loader_cache_size = Some(2_000);
            options.loader_seek_timeout = Some(Duration::from_secs(3));
            options.defer_max_delay = Some(Duration::from_secs(8));
            options.session_timeout = Some(SESSION);
            options.shutdown_timeout = Some(Duration::from_secs(5));
        });
    if let Some(store) = store {
        builder = builder.store(store);
    }
    builder = match role {
        Role::Sends(timeout) => builder.send_timeout(timeout),
        Role::Retries => builder.group_id(GROUP).subscribed_topics([TOPIC]),
        Role::GivesUp => {
            let gives_up = builder.mode(Mode::LowLatency).max_retries(1).failure_topic(FAILURES);
            gives_up.group_id(GROUP).subscribed_topics([TOPIC])
        }
    };
    builder.build().expect("the options are right")
}
