//! One run: a cluster, members, a sender, the storm of a plan, and the verdict on what happened.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prosody_base::{Clock, Doors, Instant, Lane, Rng, Spawner};
use prosody_testkit::broker::Limits;
use prosody_testkit::broker::batch::Record;
use prosody_testkit::check::{History, Logged};
use prosody_testkit::sim::{PARTITIONS, Plan, RECORDS};
use prosody_testkit::{Cluster, ClusterConfig};
use tokio::runtime::Builder;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::member::{Member, SESSION};
use crate::scene::{FAILURE_PARTITIONS, FAILURES, GROUP, Scene, TOPIC, place_of};
use crate::sender::send_all;
use crate::storm::Storm;
use crate::timers::Stage;
use crate::vault::Vault;

/// After the last fault has healed everything is handled within this time: twice the session timeout, plus the one
/// request timeout that a connection which fell silent may still hold, or a statement of the store, plus the work itself.
const RECOVERY: Duration = Duration::from_secs(2 * SESSION.as_secs() + 30 + 30);
/// Where handlers are unruly, a key that took all the time lately waits, too: after ten attempts for up to this long.
const MONOPOLY: Duration = Duration::from_secs(20);
/// After that no handler schedules anything more, and what is scheduled fires within this time: what a former owner put
/// late is found 60 s after the last assignment, plus the work itself. Messages that come late in [`RECOVERY`] leave
/// timers that are not due yet when it ends, and these leave others.
const FIRING: Duration = Duration::from_secs(60 + 30);
/// How often the end of the work is looked for.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) plan: String,
    pub(crate) struck: BTreeMap<&'static str, u64>,
    pub(crate) violations: Vec<String>,
    pub(crate) repeated: usize,
    /// Records of the failure topic.
    pub(crate) buried: usize,
    /// Timers that fired.
    pub(crate) fired: u64,
    /// Records that were set aside.
    pub(crate) stored: usize,
    pub(crate) recovery: Duration,
    pub(crate) trace: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plan)?;
        let Report { struck, repeated, buried, fired, trace, .. } = self;
        writeln!(
            f,
            "  struck {struck:?}, {repeated} repeated, {buried} given up, {fired} timers, trace {trace:016x}"
        )?;
        self.violations.iter().try_for_each(|violation| writeln!(f, "  BROKEN {violation}"))
    }
}

/// Plays a plan from start to end in its own single-threaded world.
pub(crate) fn run(plan: &Plan) -> Report {
    if let Ok(filter) = std::env::var("PROSODY_SIM_LOG") {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_timer(SinceStart::default())
            .with_ansi(false)
            .try_init();
    }
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(play(plan))
}

/// Virtual time since the first line: it can be read beside the times of a plan.
#[derive(Default)]
struct SinceStart(OnceLock<Instant>);

impl FormatTime for SinceStart {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        let now = Clock::simulated().now();
        write!(w, "{:.3?}", now - *self.0.get_or_init(|| now))
    }
}

async fn play(plan: &Plan) -> Report {
    let rng = Rng::seeded(plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let doors = Doors { clock: Clock::simulated(), rng: rng.fork(), spawner: Spawner::here() };
    let limits = Limits { journal: 1 << 20, ..Limits::default() };
    let config = ClusterConfig {
        brokers: plan.brokers,
        consumer_session_timeout: SESSION,
        consumer_heartbeat_interval: SESSION / 3,
        limits,
        ..ClusterConfig::default()
    };
    let cluster_doors = Doors { rng: rng.fork(), spawner: Spawner::here(), ..doors.clone() };
    let cluster = Cluster::start(config, cluster_doors);
    cluster.create_topic(TOPIC, PARTITIONS).expect("a fresh cluster");
    cluster.create_topic(FAILURES, FAILURE_PARTITIONS).expect("a fresh cluster");
    let history = Arc::new(History::default());
    let quiet = plan.faults.iter().all(|(_, fault)| matches!(fault.kind(), "join" | "leave"));
    // A stream of its own: plans without a store draw nothing.
    let luck = Rng::seeded(plan.seed ^ 0xFA17);
    let vault = Vault::open(Arc::clone(&history), &doors.clock, luck, quiet);
    let scene = Scene::new(cluster, history, vault, doors.clock.clone(), Stage::new(quiet));
    let seen = Arc::downgrade(&scene);
    scene.cluster.observe_commits(move |commit| {
        let Some(scene) = seen.upgrade() else { return };
        scene.bury();
        tracing::debug!(
            partition = commit.partition.1,
            offset = commit.offset,
            by = commit.client,
            "committed"
        );
        scene.history.committed(commit.partition.1, commit.offset, commit.client, commit.connection);
    });

    let mut storm = Storm::new(plan, &scene, &doors);
    let sender_doors = Doors { rng: rng.fork(), spawner: Spawner::here(), ..doors.clone() };
    let sending = doors.spawner.spawn(Lane::Work, send_all(Arc::clone(&scene), sender_doors, rng.fork()));
    storm.play().await;
    let _ = sending.await;
    let healed = doors.clock.now();
    scene.heal();

    let ends = || (0..PARTITIONS).filter_map(|partition| scene.cluster.log_end(TOPIC, partition));
    let expected = || usize::try_from(ends().map(|log| log.end).sum::<i64>()).unwrap();
    let within = RECOVERY + if plan.unruly > 0 { MONOPOLY } else { Duration::ZERO };
    let until = healed + within;
    let settled =
        || is_whole(&scene, &storm.members) && unfinished(&scene).is_empty() && scene.vault.pending() == 0;
    let done = || {
        scene.bury();
        scene.history.done()
    };
    while doors.clock.now() < until && (done() < expected() || !settled()) {
        doors.clock.sleep(LOOK).await;
    }
    let recovery = doors.clock.now().saturating_duration_since(healed);
    if recovery >= within && (done() < expected() || !unfinished(&scene).is_empty()) {
        let (done, expected) = (done(), expected());
        scene.complain(format!("recovery: {done} of {expected} records were handled after {recovery:?}"));
    }
    // One of a deferred message that was void when it was written may stay for the next owner: timers are judged at the end.
    scene.stage.close();
    let until = doors.clock.now() + FIRING;
    while doors.clock.now() < until && scene.vault.pending() > 0 {
        doors.clock.sleep(LOOK).await;
    }
    let struck = storm.struck();
    // What is handled last is committed by those who leave, or not at all.
    for partition in 0..PARTITIONS {
        let value = format!("{{\"number\":\"last-{partition}\"}}");
        scene.cluster.append(TOPIC, partition, &[(Some(b"last"), Some(value.as_bytes()))]);
    }
    let until = doors.clock.now() + RECOVERY;
    while doors.clock.now() < until && done() < expected() {
        doors.clock.sleep(LOOK).await;
    }
    storm.disband().await;
    let mut violations = verdict(&scene);
    violations.extend(scene.stage.verdict(&scene.vault).await);
    violations.extend(scene.complaints());
    let report = Report {
        seed: plan.seed,
        plan: plan.to_string(),
        struck,
        fired: scene.stage.history.fired(),
        stored: scene.history.stored_records(),
        violations,
        buried: buried(&scene).len(),
        repeated: scene.history.repeated(),
        recovery,
        trace: scene.history.trace(),
    };
    doors.spawner.kill();
    report
}

/// Whether the group knows exactly the members that are alive and has divided the partitions among them: from here on
/// every finished record has an owner who commits it.
fn is_whole(scene: &Scene, alive: &[Member]) -> bool {
    scene.cluster.group(GROUP).is_some_and(|group| {
        let is_in = |member: &Member| group.members.values().any(|known| known.client_id == member.name);
        group.state == "Stable" && group.members.len() == alive.len() && alive.iter().all(is_in)
    })
}

fn verdict(scene: &Scene) -> Vec<String> {
    let mut log = Vec::new();
    for partition in 0..PARTITIONS {
        for record in scene.cluster.log(TOPIC, partition) {
            let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
            log.push(Logged {
                place: (partition, record.offset),
                key: text(record.key.as_deref()),
                value: text(record.value.as_deref()).split('"').nth(3).unwrap_or_default().to_owned(),
            });
        }
    }
    let mut found = Vec::new();
    if (log.len() as u64) < RECORDS {
        found.push(format!("plan: {} records were written, which proves too little", log.len()));
    }
    found.extend(scene.history.verdict(&log).iter().map(ToString::to_string));
    for record in buried(scene) {
        let Some((partition, offset)) = place_of(&record) else { continue };
        let original = scene.cluster.log(TOPIC, partition).into_iter().find(|one| one.offset == offset);
        if original.is_none_or(|one| (one.key, one.value) != (record.key, record.value)) {
            found.push(format!("failure topic: what is said to be {partition}@{offset} is something else"));
        }
    }
    found.extend(scene.cluster.violations().iter().map(|one| format!("broker: {one}")));
    for (partition, end, committed) in unfinished(scene) {
        found.push(format!("drain: {partition} ends at {end}, committed is {committed} after everyone left"));
    }
    found
}

/// What is in the failure topic.
fn buried(scene: &Scene) -> Vec<Record> {
    (0..FAILURE_PARTITIONS).flat_map(|partition| scene.cluster.log(FAILURES, partition)).collect()
}

/// Partitions whose end is not what the group has committed, with both.
fn unfinished(scene: &Scene) -> Vec<(i32, i64, i64)> {
    let offsets = scene.cluster.group(GROUP).map(|group| group.offsets).unwrap_or_default();
    let of = |partition| {
        let end = scene.cluster.log_end(TOPIC, partition).map_or(0, |log| log.end);
        let committed =
            offsets.iter().find(|((_, index), _)| *index == partition).map_or(0, |(_, at)| at.offset);
        (partition, end, committed)
    };
    (0..PARTITIONS).map(of).filter(|(_, end, committed)| end != committed).collect()
}
