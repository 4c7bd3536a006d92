//! One run: a cluster, members, a sender, the storm of a plan, and the verdict on what happened.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Clock, Doors, Lane, Rng, Spawner};
use prosody_testkit::broker::{Limits, Violation};
use prosody_testkit::check::{History, Logged, Told};
use prosody_testkit::sim::{KEYS, PARTITIONS, Plan, RECORDS, STORM};
use prosody_testkit::{Cluster, ClusterConfig};
use tokio::runtime::Builder;

use crate::member::{GROUP, SESSION, Scene, TOPIC, client};
use crate::storm::Storm;

/// After the last fault has healed everything is handled within this time: twice the session timeout, plus the one
/// request timeout that a connection which fell silent may still hold, plus the work itself.
const RECOVERY: Duration = Duration::from_secs(2 * SESSION.as_secs() + 30 + 30);
/// How often the end of the work is looked for.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) plan: String,
    pub(crate) struck: BTreeMap<&'static str, u64>,
    pub(crate) violations: Vec<String>,
    pub(crate) repeated: usize,
    pub(crate) recovery: Duration,
    pub(crate) trace: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plan)?;
        writeln!(f, "  struck {:?}, {} repeated, trace {:016x}", self.struck, self.repeated, self.trace)?;
        self.violations.iter().try_for_each(|violation| writeln!(f, "  BROKEN {violation}"))
    }
}

/// Plays a plan from start to end in its own single-threaded world.
pub(crate) fn run(plan: &Plan) -> Report {
    if let Ok(filter) = std::env::var("PROSODY_SIM_LOG") {
        let _ = tracing_subscriber::fmt().with_env_filter(filter).without_time().with_ansi(false).try_init();
    }
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(play(plan))
}

async fn play(plan: &Plan) -> Report {
    let rng = Rng::seeded(plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let doors = Doors { clock: Clock::simulated(), rng: rng.fork(), spawner: Spawner::here() };
    let limits = Limits { journal: 1 << 20, ..Limits::default() };
    let config = ClusterConfig { brokers: plan.brokers, limits, ..ClusterConfig::default() };
    let cluster_doors = Doors { rng: rng.fork(), spawner: Spawner::here(), ..doors.clone() };
    let cluster = Cluster::start(config, cluster_doors);
    cluster.create_topic(TOPIC, PARTITIONS).expect("a fresh cluster");
    let history = Arc::new(History::default());
    let seen = Arc::clone(&history);
    cluster.observe_commits(move |commit| seen.committed(commit.partition.1, commit.offset, commit.client));
    let scene = Arc::new(Scene { cluster, history, clock: doors.clock.clone() });

    let mut storm = Storm::new(plan, &scene, &doors);
    let sender_doors = Doors { rng: rng.fork(), spawner: Spawner::here(), ..doors.clone() };
    let sending = doors.spawner.spawn(Lane::Work, send_all(Arc::clone(&scene), sender_doors, rng.fork()));
    storm.play().await;
    let _ = sending.await;
    let healed = doors.clock.now();
    scene.cluster.control().lift_all();

    let expected: usize = (0..PARTITIONS).map(|partition| scene.cluster.log(TOPIC, partition).len()).sum();
    let settled = || scene.history.done() >= expected && is_whole(&scene, storm.members.len());
    while !settled() && doors.clock.now() < healed + RECOVERY {
        doors.clock.sleep(LOOK).await;
    }
    let recovery = doors.clock.now().saturating_duration_since(healed);
    let struck = storm.struck();
    let leaving: Vec<_> =
        storm.members.drain(..).map(|member| doors.spawner.spawn(Lane::Work, member.leave())).collect();
    for member in leaving {
        let _ = member.await;
    }
    let report = Report {
        seed: plan.seed,
        plan: plan.to_string(),
        struck,
        violations: verdict(&scene),
        repeated: scene.history.repeated(),
        recovery,
        trace: scene.history.trace(),
    };
    doors.spawner.kill();
    report
}

/// Whether the group knows exactly the members that are alive and has divided the partitions among them: from here on
/// every finished record has an owner who commits it.
fn is_whole(scene: &Scene, alive: usize) -> bool {
    scene.cluster.group(GROUP).is_some_and(|group| group.state == "Stable" && group.members.len() == alive)
}

/// Sends every record at its random moment of the storm, in one order, and notes what it was told of each.
async fn send_all(scene: Arc<Scene>, doors: Doors, rng: Rng) {
    let sender = client("sender", false, &scene.cluster, &doors);
    let mut waiting = Vec::new();
    let step = STORM / u32::try_from(RECORDS).unwrap();
    for number in 0..RECORDS {
        let (key, value) = (format!("k{}", rng.below(KEYS)), format!("v-{number}"));
        let sent = sender.send(TOPIC, &key, format!("\"{value}\"").as_bytes());
        let history = Arc::clone(&scene.history);
        waiting.push(doors.spawner.spawn(Lane::Work, async move {
            let told = match sent.await {
                Ok(delivery) => Told::Written(delivery.offset),
                Err(error) if error.may_have_been_written() => Told::Unknown,
                Err(_) => Told::NotWritten,
            };
            history.sent(&value, &key, told);
        }));
        doors.clock.sleep(step.mul_f64(2.0 * rng.unit())).await;
    }
    for sent in waiting {
        let _ = sent.await;
    }
    let _ = sender.close().await;
}

/// A JoinGroup that a planned delay holds up at the broker can be overtaken by the farewell on the other lane. It left
/// the client first; Kafka answers it UNKNOWN_MEMBER_ID.
fn is_overtaken(violation: &Violation) -> bool {
    matches!(violation, Violation::AfterLeave { api: "JoinGroup", .. })
}

fn verdict(scene: &Scene) -> Vec<String> {
    let mut log = Vec::new();
    for partition in 0..PARTITIONS {
        for record in scene.cluster.log(TOPIC, partition) {
            let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
            log.push(Logged {
                place: (partition, record.offset),
                key: text(record.key.as_deref()),
                value: text(record.value.as_deref()).trim_matches('"').to_owned(),
            });
        }
    }
    let mut found: Vec<String> = scene.history.verdict(&log).iter().map(ToString::to_string).collect();
    found.extend(
        scene
            .cluster
            .violations()
            .iter()
            .filter(|one| !is_overtaken(one))
            .map(|one| format!("broker: {one}")),
    );
    let offsets = scene.cluster.group(GROUP).map(|group| group.offsets).unwrap_or_default();
    for partition in 0..PARTITIONS {
        let end = scene.cluster.log_end(TOPIC, partition).map_or(0, |log| log.end);
        let committed =
            offsets.iter().find(|((_, index), _)| *index == partition).map_or(0, |(_, at)| at.offset);
        if committed != end {
            found.push(format!(
                "drain: {partition} ends at {end}, committed is {committed} after everyone left"
            ));
        }
    }
    found
}
