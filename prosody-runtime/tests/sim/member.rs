//! One consumer process: the shipped client, a handler that works and fails by the plan, and a way to die.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prosody_base::{Clock, Doors, Lane, Rng, Spawner, Task};
use prosody_runtime::{Assignment, Client, Context, Handler, HandlerError, Message};
use prosody_testkit::Cluster;
use prosody_testkit::check::{History, Standing};
use prosody_testkit::sim::Plan;
use prosody_wire::PipeConnector;

pub(crate) const GROUP: &str = "sim-group";
pub(crate) const TOPIC: &str = "sim-topic";
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
    pub(crate) clock: Clock,
    /// Clients that were removed from the group and have not come back.
    evicted: Mutex<BTreeSet<String>>,
}

struct Work {
    member: String,
    scene: Arc<Scene>,
    rng: Rng,
    work: Duration,
    failing: u64,
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
    async fn on_message(&self, _context: Context, message: Message) -> Result<(), HandlerError> {
        let place = (message.partition(), message.offset());
        let standing = self.scene.standing(&self.member);
        tracing::debug!(member = self.member, ?standing, ?place, key = message.key(), "starts");
        self.scene.history.started(&self.member, standing, place, message.key(), |id| self.scene.is_over(id));
        if !self.owned.clone().now().iter().any(|(_, partition)| *partition == place.0) {
            self.scene.history.started_unowned(&self.member, place);
        }
        let mut running = Running { work: self, place, key: message.key(), returned: false, done: false };
        let longest = if self.rng.below(100) < SLOW { SLOW_WORK } else { self.work };
        let (time, luck) = (longest.mul_f64(self.rng.unit()), self.rng.below(100));
        self.scene.clock.sleep(time).await;
        running.returned = true;
        if luck < self.failing {
            return Err(HandlerError::transient("the plan says so"));
        }
        running.done = true;
        Ok(())
    }
}

impl Scene {
    pub(crate) fn new(cluster: Cluster, history: Arc<History>, clock: Clock) -> Arc<Scene> {
        Arc::new(Scene { cluster, history, clock, evicted: Mutex::default() })
    }

    /// An operator removes a member from the group. Returns whether it was in it.
    pub(crate) fn evict(&self, client: &str) -> bool {
        let was_in = self.cluster.evict(GROUP, client) > 0;
        if was_in {
            self.evicted().insert(client.to_owned());
        }
        was_in
    }

    fn standing(&self, client: &str) -> Standing {
        let members = self.cluster.group(GROUP).map(|group| group.members).unwrap_or_default();
        match members.into_iter().find(|(_, known)| known.client_id == client) {
            Some((id, _)) => {
                self.evicted().remove(client);
                Standing::Member(id)
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
        self.cluster.group(GROUP).is_none_or(|group| !group.members.contains_key(id))
    }
}

impl Member {
    /// Starts a process. It subscribes by itself, and again whenever that fails.
    pub(crate) fn start(name: String, plan: &Plan, scene: &Arc<Scene>, doors: &Doors) -> Member {
        let spawner = doors.spawner.separate();
        let doors = Doors { clock: doors.clock.clone(), rng: doors.rng.fork(), spawner: spawner.clone() };
        let client = client(&name, None, &scene.cluster, &doors);
        let (subscribing, clock, rng) = (client.clone(), doors.clock.clone(), doors.rng.fork());
        let (member, scene, plan) = (name.clone(), Arc::clone(scene), plan.clone());
        let owned = client.assignment();
        let work = move || Work {
            member: member.clone(),
            scene: Arc::clone(&scene),
            rng: rng.fork(),
            work: plan.work,
            failing: plan.failing,
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
    pub(crate) async fn leave(self, history: &History) {
        let _ = self.client.unsubscribe().await;
        history.rewound(&self.name, self.client.insight().rewound);
        self.spawner.kill();
    }

    /// Ends at once and says nothing. Returns how many handlers were running.
    pub(crate) fn kill(self, history: &History) -> usize {
        history.rewound(&self.name, self.client.insight().rewound);
        let running = history.killed(&self.name);
        self.spawner.kill();
        running
    }
}

/// A client of the simulated cluster whose client id is `name`: a sender whose sends end after a while, or a consumer.
pub(crate) fn client(name: &str, sends_for: Option<Duration>, cluster: &Cluster, doors: &Doors) -> Client {
    let connector = Arc::new(PipeConnector(cluster.network()));
    let mut builder = Client::builder()
        .bootstrap_servers(cluster.bootstrap().split(',').map(str::to_owned))
        .source_system(name)
        .transport(connector, doors.clone())
        .configure(|options| {
            options.session_timeout = Some(SESSION);
            options.shutdown_timeout = Some(Duration::from_secs(5));
        });
    builder = match sends_for {
        Some(timeout) => builder.send_timeout(timeout),
        None => builder.group_id(GROUP).subscribed_topics([TOPIC]),
    };
    builder.build().expect("the options are right")
}
