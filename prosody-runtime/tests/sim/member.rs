//! One consumer process: the shipped client, and a way to die.

use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Doors, Lane, Spawner, Task};
use prosody_runtime::{Client, GroupProtocol, Mode};
use prosody_state::KeyStore;
use prosody_testkit::Cluster;
use prosody_testkit::sim::{self, Plan};
use prosody_wire::PipeConnector;

use crate::handler::{TIMEOUT, Work};
use crate::scene::{FAILURES, GROUP, Scene, TOPIC};

/// Long enough for a coordinator move, short enough that a silent member is noticed within a run.
pub(crate) const SESSION: Duration = Duration::from_secs(10);
/// `ShutdownTimeout` of every member.
const SHUTDOWN: Duration = Duration::from_secs(5);
/// Longest time a member takes to leave: its drain, then a last commit and a farewell that nobody may answer.
const LEAVING: Duration = Duration::from_secs(SHUTDOWN.as_secs() + 5 + 5 + 1);
/// How long a member waits before it tries to subscribe again.
const AGAIN: Duration = Duration::from_millis(500);

pub(crate) struct Member {
    pub(crate) name: String,
    client: Client,
    spawner: Spawner,
    _life: Task<()>,
}

impl Member {
    /// Starts a process. It subscribes by itself, and again whenever that fails.
    pub(crate) fn start(number: u64, plan: &Plan, scene: &Arc<Scene>, doors: &Doors) -> Member {
        let name = format!("m{number}");
        let spawner = doors.spawner.separate();
        let doors = Doors { clock: doors.clock.clone(), rng: doors.rng.fork(), spawner: spawner.clone() };
        let mode = plan.mode_of(number);
        let store = (plan.timers || plan.defers).then(|| Arc::clone(&scene.vault.store));
        let client = client(&name, Role::Consumes(plan, mode), &scene.cluster, &doors, store);
        let (subscribing, clock, rng) = (client.clone(), doors.clock.clone(), doors.rng.fork());
        let (member, scene, plan) = (name.clone(), Arc::clone(scene), plan.clone());
        let owned = client.assignment();
        scene.begins(&name, &client);
        let work = move || Work {
            member: member.clone(),
            scene: Arc::clone(&scene),
            rng: rng.fork(),
            work: plan.work,
            failing: plan.failing,
            unruly: plan.unruly,
            permits: usize::try_from(plan.permits).expect("small"),
            mode,
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
    pub(crate) async fn leave(self, scene: &Scene) {
        let begun = scene.clock.now();
        let _ = self.client.unsubscribe().await;
        scene.ends(&self.name);
        let took = scene.clock.now() - begun;
        if took > LEAVING {
            scene.complain(format!("stop: {} took {took:?} to leave, at most {LEAVING:?}", self.name));
        }
        let (dropped, said) = (scene.dropped_by(&self.name), self.client.insight().abandoned);
        if dropped > said {
            scene.complain(format!("stop: {} dropped {dropped} handlers and says {said}", self.name));
        }
        scene.history.rewound(&self.name, self.client.insight().rewound);
        self.spawner.kill();
        scene.stage.history.killed(&self.name);
    }

    /// Ends at once and says nothing. Returns how many handlers were running.
    pub(crate) fn kill(self, scene: &Scene) -> usize {
        scene.ends(&self.name);
        scene.history.rewound(&self.name, self.client.insight().rewound);
        let running = scene.history.killed(&self.name);
        self.spawner.kill();
        scene.stage.history.killed(&self.name);
        running
    }
}

/// What a client of the simulated cluster is for.
pub(crate) enum Role<'a> {
    /// It consumes as the plan says, in this mode.
    Consumes(&'a Plan, sim::Mode),
    /// It sends, and every send ends after this time.
    Sends(Duration),
}

/// A client of the simulated cluster whose client id is `name`.
pub(crate) fn client(
    name: &str,
    role: Role<'_>,
    cluster: &Cluster,
    doors: &Doors,
    store: Option<Arc<dyn KeyStore>>,
) -> Client {
    let connector = Arc::new(PipeConnector(cluster.network()));
    let mut builder = Client::builder()
        .bootstrap_servers(cluster.bootstrap().split(',').map(str::to_owned))
        .source_system(name)
        .transport(connector, doors.clone());
    if let Some(store) = store {
        builder = builder.store(store);
    }
    let (plan, mode) = match role {
        Role::Sends(timeout) => return builder.send_timeout(timeout).build().expect("the options are right"),
        Role::Consumes(plan, mode) => (plan, mode),
    };
    builder = builder.group_id(GROUP).subscribed_topics([TOPIC]).configure(|options| {
        // `Auto` ends at the consumer protocol: the cluster serves it.
        let protocol = if plan.consumer { GroupProtocol::Auto } else { GroupProtocol::Classic };
        options.group_protocol = Some(protocol);
        // Records that were set aside are read again from brokers that may be away.
        options.defer_enabled = (!plan.defers).then_some(false);
        options.loader_cache_size = Some(2_000);
        options.loader_seek_timeout = Some(Duration::from_secs(3));
        options.defer_max_delay = Some(Duration::from_secs(8));
        options.defer_failure_window = Some(Duration::from_secs(6));
        options.session_timeout = Some(SESSION);
        options.shutdown_timeout = Some(SHUTDOWN);
        options.max_concurrency = Some(plan.permits);
        if plan.unruly > 0 {
            options.timeout = Some(TIMEOUT);
            options.monopolization_window = Some(Duration::from_secs(10));
        }
    });
    builder = match mode {
        sim::Mode::Pipeline => builder,
        sim::Mode::LowLatency => builder.mode(Mode::LowLatency).max_retries(1).failure_topic(FAILURES),
        sim::Mode::BestEffort => builder.mode(Mode::BestEffort),
    };
    builder.build().expect("the options are right")
}
