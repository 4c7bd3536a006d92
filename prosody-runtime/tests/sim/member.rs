//! One consumer process: the shipped client, a handler that works and fails by the plan, and a way to die.

use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Clock, Doors, Lane, Rng, Spawner, Task};
use prosody_runtime::{Client, Context, Handler, HandlerError, Message};
use prosody_testkit::Cluster;
use prosody_testkit::check::History;
use prosody_testkit::sim::Plan;
use prosody_wire::PipeConnector;

pub(crate) const GROUP: &str = "sim-group";
pub(crate) const TOPIC: &str = "sim-topic";
/// Long enough for a coordinator move, short enough that a silent member is noticed within a run.
pub(crate) const SESSION: Duration = Duration::from_secs(10);
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
}

struct Work {
    member: String,
    scene: Arc<Scene>,
    rng: Rng,
    work: Duration,
    failing: u64,
}

/// Notes the end of a call whatever ends it: a result, or the drop of its future.
struct Running<'a> {
    work: &'a Work,
    place: (i32, i64),
    key: &'a str,
    done: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.work.scene.history.ended(&self.work.member, self.place, self.key, self.done);
    }
}

impl Handler for Work {
    async fn on_message(&self, _context: Context, message: Message) -> Result<(), HandlerError> {
        let place = (message.partition(), message.offset());
        self.scene.history.started(&self.member, place, message.key(), |other| self.scene.is_out(other));
        let mut running = Running { work: self, place, key: message.key(), done: false };
        let (time, luck) = (self.work.mul_f64(self.rng.unit()), self.rng.below(100));
        self.scene.clock.sleep(time).await;
        if luck < self.failing {
            return Err(HandlerError::transient("the plan says so"));
        }
        running.done = true;
        Ok(())
    }
}

impl Scene {
    /// Whether the broker has removed this member from the group.
    fn is_out(&self, member: &str) -> bool {
        self.cluster
            .group(GROUP)
            .is_none_or(|group| group.members.values().all(|known| known.client_id != member))
    }
}

impl Member {
    /// Starts a process. It subscribes by itself, and again whenever that fails.
    pub(crate) fn start(name: String, plan: &Plan, scene: &Arc<Scene>, doors: &Doors) -> Member {
        let spawner = doors.spawner.separate();
        let doors = Doors { clock: doors.clock.clone(), rng: doors.rng.fork(), spawner: spawner.clone() };
        let client = client(&name, true, &scene.cluster, &doors);
        let (subscribing, clock, rng) = (client.clone(), doors.clock.clone(), doors.rng.fork());
        let (member, scene, plan) = (name.clone(), Arc::clone(scene), plan.clone());
        let work = move || Work {
            member: member.clone(),
            scene: Arc::clone(&scene),
            rng: rng.fork(),
            work: plan.work,
            failing: plan.failing,
        };
        let life = spawner.spawn(Lane::Work, async move {
            while subscribing.subscribe(work()).await.is_err() {
                clock.sleep(AGAIN).await;
            }
        });
        Member { name, client, spawner, _life: life }
    }

    /// Drains, commits and leaves.
    pub(crate) async fn leave(self) {
        let _ = self.client.unsubscribe().await;
        self.spawner.kill();
    }

    /// Ends at once and says nothing. Returns how many handlers were running.
    pub(crate) fn kill(self, history: &History) -> usize {
        let running = history.killed(&self.name);
        self.spawner.kill();
        running
    }
}

/// A client of the simulated cluster whose client id is `name`.
pub(crate) fn client(name: &str, consumes: bool, cluster: &Cluster, doors: &Doors) -> Client {
    let connector = Arc::new(PipeConnector(cluster.network()));
    let mut builder = Client::builder()
        .bootstrap_servers(cluster.bootstrap().split(',').map(str::to_owned))
        .source_system(name)
        .transport(connector, doors.clone())
        .configure(|options| {
            options.session_timeout = Some(SESSION);
            options.shutdown_timeout = Some(Duration::from_secs(5));
        });
    if consumes {
        builder = builder.group_id(GROUP).subscribed_topics([TOPIC]);
    }
    builder.build().expect("the options are right")
}
