//! Does it hold on a real Apache Kafka? Quick starts of both languages, members that join, leave and are killed, a broker
//! that restarts, offsets that are resumed. What was handled is compared with the topic as Kafka's own client reads it.

mod bounce;
mod bugs;
mod history;
mod members;
mod oracle;
mod strikes;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::kafka::{Cluster, Version};
use crate::progress::doing;
use crate::report::{Tally, Verdict};
use crate::{run, setup};
pub(crate) use bounce::suite as bounces;
use history::{Stored, compare};
use members::Members;
pub(crate) use oracle::Oracle;
pub(crate) use strikes::suite as strikes;

/// One port per version, so that both suites could run at once; none of them a person's default.
const PORTS: [(&str, u16); 2] = [("3.9", 19_392), ("4", 19_492)];
const BOUNCE_PORT: u16 = 19_592;
const PARTITIONS: u32 = 8;
const RECORDS: usize = 100_000;
const KEYS: usize = 1_000;
/// An event of fate happens only while at least this many records are still unread.
const UNREAD: usize = 10_000;
/// And only while the members it strikes have at least this many handlers at work.
const RUNNING: i64 = 16;
/// A killed member is missed after one session: the shortest that a broker accepts keeps the suite short.
const SHORTEST_SESSION: &str = "6s";
/// Long enough that a restart of the broker costs nobody its partitions.
const DEFAULT_SESSION: &str = "45s";
/// For a hundred thousand records by two members, several times over.
const PATIENCE: Duration = Duration::from_secs(180);

/// What a scenario needs.
struct Stage {
    cluster: Cluster,
    oracle: Oracle,
    produce: PathBuf,
    consume: PathBuf,
    quickstart: PathBuf,
    /// What the members of a scenario speak with their group.
    protocol: &'static str,
}

type Scenario = fn(&mut Stage) -> Result<(), String>;

const SCENARIOS: &[(&str, Scenario)] = &[
    ("quick start in Rust", quickstart_rust),
    ("100,000 records, two members, a third joins and one leaves", join_and_leave),
    ("broker restart during consumption", restart),
    ("a new member resumes at the committed offsets", resume),
];

/// Kafka 4 has a suite of its own for what strikes members (`strikes.rs`).
const OLDER: &[(&str, Scenario)] = &[("kill -9 of a member with handlers running", kill)];

/// On a broker that serves the consumer protocol (KIP-848) `auto` is that, and these are run with the classic one too.
const CLASSIC: &[(&str, Scenario)] = &[
    ("classic: 100,000 records, two members, a third joins and one leaves", join_and_leave),
    ("a group of classic members is taken over by members of the consumer protocol", migrate),
];

/// Runs every scenario on one cluster of this version.
pub(crate) fn suite(version: &'static str) -> Tally {
    if let Err(why) = setup::java() {
        return Tally::skipped(why);
    }
    let mut tally = Tally::default();
    let mut stage = match stage(version) {
        Ok(stage) => stage,
        Err(why) => return Tally::failed(why),
    };
    let (older, classic) = if version == "4" { (&[][..], CLASSIC) } else { (OLDER, &[][..]) };
    let with = |protocol| move |(name, scenario): &(&'static str, Scenario)| (*name, *scenario, protocol);
    for (name, scenario, protocol) in
        SCENARIOS.iter().chain(older).map(with("auto")).chain(classic.iter().map(with("classic")))
    {
        doing(&format!("Kafka {version}: {name}"));
        stage.protocol = protocol;
        let start = Instant::now();
        let result = scenario(&mut stage);
        tally.count(name, result.into(), start.elapsed());
    }
    let start = Instant::now();
    tally.count("quick start in C#", quickstart_csharp(&stage), start.elapsed());
    drop(stage);
    tally.add(bugs::run(version));
    tally
}

fn stage(version: &'static str) -> Result<Stage, String> {
    let port = PORTS.iter().find(|(name, _)| *name == version).map_or(PORTS[0].1, |(_, port)| *port);
    stage_of(version, 1, port)
}

fn stage_of(version: &'static str, brokers: u16, port: u16) -> Result<Stage, String> {
    let (produce, consume) =
        (run::example("produce", run::Profile::Dev)?, run::example("consume", run::Profile::Dev)?);
    let quickstart = run::example("quickstart", run::Profile::Dev)?;
    let cluster = Cluster::start(Version::named(version)?, brokers, port)?;
    let oracle = Oracle::of(&cluster)?;
    Ok(Stage { cluster, oracle, produce, consume, quickstart, protocol: "auto" })
}

fn quickstart_rust(stage: &mut Stage) -> Result<(), String> {
    let mut program = Command::new(&stage.quickstart);
    program.env("PROSODY_BOOTSTRAP_SERVERS", stage.cluster.bootstrap()).env("PROSODY_PROBE_PORT", "none");
    saw_the_message(&run::logged("quickstart-rust", &mut program)?)
}

fn quickstart_csharp(stage: &Stage) -> Verdict {
    let project = run::root().join("csharp/samples/QuickStart");
    let mut dotnet = match setup::dotnet_command() {
        Ok(dotnet) => dotnet,
        Err(why) => return Verdict::Skipped(why),
    };
    dotnet
        .args(["run", "--framework", "net10.0", "--project"])
        .arg(project)
        .env("PROSODY_BOOTSTRAP_SERVERS", stage.cluster.bootstrap())
        .env("PROSODY_PROBE_PORT", "none");
    run::logged("quickstart-csharp", &mut dotnet).and_then(|ran| saw_the_message(&ran)).into()
}

fn saw_the_message(ran: &run::Ran) -> Result<(), String> {
    if ran.ok && ran.output.contains("Received message: ") { Ok(()) } else { Err(ran.tail(30)) }
}

impl Stage {
    /// The topic of a scenario that is played once for each protocol.
    fn named(&self, topic: &str) -> String {
        format!("{topic}-{}", self.protocol)
    }

    /// A topic of its own with `RECORDS` records from our producer.
    fn topic(&self, name: &str) -> Result<Vec<Stored>, String> {
        self.topic_of(name, RECORDS)
    }

    /// A topic of its own with records from our producer; every record it said was acknowledged is there, once.
    fn topic_of(&self, name: &str, records: usize) -> Result<Vec<Stored>, String> {
        self.oracle.create(name, PARTITIONS)?;
        let acknowledged = self.produce(name, records)?;
        self.stored(name, &acknowledged)
    }

    /// What the topic holds by another client's word: exactly what was acknowledged.
    fn stored(&self, topic: &str, acknowledged: &BTreeSet<Stored>) -> Result<Vec<Stored>, String> {
        let mut stored = self.oracle.read(topic)?;
        stored.sort();
        if acknowledged.iter().eq(stored.iter()) {
            return Ok(stored);
        }
        let (acknowledged, stored) = (acknowledged.len(), stored.len());
        Err(format!(
            "{acknowledged} records were acknowledged, {stored} are stored, and they should be the same"
        ))
    }

    /// The records that were acknowledged: as many as asked for.
    fn produce(&self, topic: &str, count: usize) -> Result<BTreeSet<Stored>, String> {
        let mut command = Command::new(&self.produce);
        command.args(["--bootstrap", &self.cluster.bootstrap(), "--topic", topic]).args([
            "--count",
            &count.to_string(),
            "--keys",
            &KEYS.to_string(),
            "--size",
            "100",
        ]);
        let mut acknowledged = BTreeSet::new();
        let ok = run::lines_of(&mut command, |line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let number = |field: &str| value.get(field).and_then(serde_json::Value::as_i64);
            if let (Some(partition), Some(offset)) = (number("partition"), number("offset")) {
                let key = value.get("key").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
                acknowledged.insert(Stored {
                    partition: i32::try_from(partition).unwrap_or(-1),
                    offset,
                    key,
                });
            }
        })?;
        match acknowledged.len() {
            all if ok && all == count => Ok(acknowledged),
            some => Err(format!("produce: {some} of {count} records were acknowledged, ended well: {ok}")),
        }
    }

    fn members(&self, topic: &str, session: &'static str) -> Result<Members, String> {
        self.members_of(&format!("{topic}-group"), topic, session)
    }

    fn members_of(&self, group: &str, topic: &str, session: &'static str) -> Result<Members, String> {
        let log = run::scratch("logs")?.join(format!("{}-{group}.log", self.cluster.version.full));
        let _ = std::fs::remove_file(&log);
        let of = (group, topic);
        let environment = [("PROSODY_SESSION_TIMEOUT", session), ("PROSODY_GROUP_PROTOCOL", self.protocol)];
        Ok(Members::new(&self.consume, &self.cluster.bootstrap(), of, &environment, log))
    }

    /// The whole topic was handled in order, and the group has committed all of it.
    fn finish(
        &self,
        topic: &str,
        stored: &[Stored],
        members: &mut Members,
        most_twice: usize,
    ) -> Result<(), String> {
        // One member may have nearly all that is left, and takes its time for each.
        let patience = PATIENCE + Duration::from_millis(stored.len() as u64);
        members.wait_handled(stored.len(), patience).map_err(|why| {
            let wrong = compare(stored, &members.history()).err().unwrap_or_default();
            format!("{why}\n{wrong}")
        })?;
        members.leave_all()?;
        let seen = compare(stored, &members.history())?;
        if seen.duplicates > most_twice {
            return Err(format!(
                "{} records were handled twice; at most {most_twice} may be",
                seen.duplicates
            ));
        }
        match self.oracle.lag(&format!("{topic}-group"), topic)? {
            0 => Ok(()),
            lag => Err(format!("everything was handled, and {lag} records are not committed")),
        }
    }
}

/// What may come twice after a crash: what one member handles between two commits, with a second for a late one. 32
/// handlers that take 5 ms, `CommitInterval` 1 s.
const UNCOMMITTED: usize = 2 * 32 * 1_000 / 5;

fn join_and_leave(stage: &mut Stage) -> Result<(), String> {
    let topic = stage.named("join-and-leave");
    let stored = stage.topic(&topic)?;
    let mut members = stage.members(&topic, DEFAULT_SESSION)?;
    let (first, second) = (members.join()?, members.join()?);
    members.wait_handled(RECORDS / 10, PATIENCE)?;
    both_work(&members, &[first, second])?;
    at_work(&members, &[first, second], &stored)?;
    let third = members.join()?;
    members.wait_handled(RECORDS * 4 / 10, PATIENCE)?;
    both_work(&members, &[first, second, third])?;
    at_work(&members, &[first], &stored)?;
    members.leave(first)?;
    // Nobody died: a clean handover repeats nothing.
    stage.finish(&topic, &stored, &mut members, 0)
}

fn kill(stage: &mut Stage) -> Result<(), String> {
    let topic = stage.named("kill");
    let stored = stage.topic(&topic)?;
    let mut members = stage.members(&topic, SHORTEST_SESSION)?;
    let (first, second) = (members.join()?, members.join()?);
    members.wait_handled(RECORDS / 5, PATIENCE)?;
    both_work(&members, &[first, second])?;
    at_work(&members, &[second], &stored)?;
    members.kill(second);
    stage.finish(&topic, &stored, &mut members, UNCOMMITTED)
}

fn restart(stage: &mut Stage) -> Result<(), String> {
    let topic = stage.named("restart");
    let stored = stage.topic(&topic)?;
    let mut members = stage.members(&topic, DEFAULT_SESSION)?;
    let both = [members.join()?, members.join()?];
    members.wait_handled(RECORDS / 5, PATIENCE)?;
    both_work(&members, &both)?;
    at_work(&members, &both, &stored)?;
    stage.cluster.stop_broker(0);
    stage.cluster.start_broker(0)?;
    // Nobody was away for a session: everybody keeps its partitions, and commits go on.
    stage.finish(&topic, &stored, &mut members, 0)
}

fn resume(stage: &mut Stage) -> Result<(), String> {
    let topic = stage.named("resume");
    let stored = stage.topic(&topic)?;
    let mut members = stage.members(&topic, DEFAULT_SESSION)?;
    let first = members.join()?;
    members.wait_handled(RECORDS / 5, PATIENCE)?;
    at_work(&members, &[first], &stored)?;
    members.leave(first)?;
    members.join()?;
    stage.finish(&topic, &stored, &mut members, 0)
}

/// Members of an older version are replaced one by one: the group changes its protocol while it works. Apache Kafka takes
/// members of both into one group (`group.consumer.migration.policy`); nothing is repeated.
fn migrate(stage: &mut Stage) -> Result<(), String> {
    let topic = stage.named("migrate");
    let stored = stage.topic(&topic)?;
    let mut members = stage.members(&topic, DEFAULT_SESSION)?;
    let old = members.join()?;
    members.wait_handled(RECORDS / 10, PATIENCE)?;
    members.set("PROSODY_GROUP_PROTOCOL", "consumer");
    let newer = members.join()?;
    both_work(&members, &[old, newer])?;
    at_work(&members, &[old, newer], &stored)?;
    members.leave(old)?;
    let next = members.join()?;
    both_work(&members, &[newer, next])?;
    stage.finish(&topic, &stored, &mut members, 0)
}

fn both_work(members: &Members, numbers: &[usize]) -> Result<(), String> {
    members::wait(PATIENCE, "every member to have partitions", || {
        numbers.iter().all(|number| members.assigned(*number) > 0)
    })
}

/// An event of fate counts only in the middle of work: the members it strikes are busy, and much is unread.
fn at_work(members: &Members, numbers: &[usize], stored: &[Stored]) -> Result<(), String> {
    at_work_on(members, numbers, stored.len())
}

/// The same, of so many records.
fn at_work_on(members: &Members, numbers: &[usize], records: usize) -> Result<(), String> {
    members::wait(PATIENCE, &format!("{RUNNING} handlers at work in each member"), || {
        numbers.iter().all(|number| members.running(*number) >= RUNNING)
    })?;
    match records.saturating_sub(members.handled()) {
        left if left >= UNREAD => Ok(()),
        left => Err(format!("only {left} records are unread: the event would come too late to count")),
    }
}
