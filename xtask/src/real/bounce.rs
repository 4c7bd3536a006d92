//! Do groups bear what Apache Kafka's own system tests do to them? Members and brokers that are restarted one after the
//! other, on three brokers, in groups of each protocol, which read the same topic at the same time.
//!
//! - Clean restarts of members: nothing is handled twice.
//! - `kill -9` of members: nothing is lost, and no more comes twice than was uncommitted.
//! - Restarts of every broker: no partition changes its member.
//! - Restarts of static members: no partition changes its member, nothing is handled twice.

use std::time::{Duration, Instant};

use super::history::{Stored, compare};
use super::members::{self, Members};
use super::{
    BOUNCE_PORT, DEFAULT_SESSION, PARTITIONS, PATIENCE, SHORTEST_SESSION, Stage, UNCOMMITTED, at_work,
    at_work_on, both_work, stage_of,
};
use crate::progress::doing;
use crate::report::{Tally, Verdict};
use crate::test::Tier;
use crate::{run, setup};

/// What a group speaks: a name, `GroupProtocol`, the assignor.
const PROTOCOLS: [(&str, &str, Option<&str>); 3] =
    [("eager", "classic", Some("range")), ("cooperative", "classic", None), ("KIP-848", "consumer", None)];
/// Rounds of the long tier.
const ROUNDS: u32 = 20;
const BROKERS: u16 = 3;
/// A quarter of a minute of work for two members.
const RECORDS: usize = 60_000;
/// At least this much is unread when a broker stops.
const FEED: usize = 60_000;
/// After a kill, the shortest session of a group of the consumer protocol that our brokers allow.
const SHORTEST_SESSION_TIME: Duration = Duration::from_secs(6);

/// In `prosody-wire/tests/real`.
const TRUNCATED: &str = "truncation::a_log_that_was_truncated_is_read_again_from_where_it_parts";

/// One group of two members, and what it has to read.
struct Group<'a> {
    name: String,
    topic: &'a str,
    stored: &'a [Stored],
    members: Members,
    /// Numbers of the two members that run.
    two: [usize; 2],
}

/// The three protocols, once, or many times.
pub(crate) fn suite(tier: Tier) -> Tally {
    if let Err(why) = setup::java() {
        return Tally::skipped(why);
    }
    let mut tally = Tally::default();
    if let Err(why) = play(if tier == Tier::Full { ROUNDS } else { 1 }, &mut tally) {
        tally.add(Tally::failed(why));
    }
    tally
}

fn play(rounds: u32, tally: &mut Tally) -> Result<(), String> {
    doing("three brokers and their topics");
    let mut stage = stage_of("4", BROKERS, BOUNCE_PORT)?;
    let few = stage.topic_of("bounces", RECORDS)?;
    let start = Instant::now();
    tally.count(
        "a member in a rack reads from the replica there",
        closest(&stage, &few).into(),
        start.elapsed(),
    );
    let start = Instant::now();
    tally.count("records that an election loses are noticed", truncated(&stage).into(), start.elapsed());
    for round in 1..=rounds {
        side_by_side(&stage, ("clean restarts of members", round), tally, |stage, protocol, name| {
            clean(stage, Group::join(stage, protocol, name, ("bounces", &few), DEFAULT_SESSION)?)
        });
        side_by_side(&stage, ("kill -9 of members", round), tally, |stage, protocol, name| {
            if protocol.1 == "consumer" {
                stage.oracle.sessions(&name, SHORTEST_SESSION_TIME)?;
            }
            hard(stage, Group::join(stage, protocol, name, ("bounces", &few), SHORTEST_SESSION)?)
        });
        side_by_side(&stage, ("restarts of static members", round), tally, |stage, protocol, name| {
            fixed(stage, Group::join_with(stage, protocol, name, ("bounces", &few), DEFAULT_SESSION, true)?)
        });
        brokers(&mut stage, round, tally)?;
    }
    tally.facts.push(format!("{rounds} round(s) of each assertion and protocol"));
    Ok(())
}

type Protocol = (&'static str, &'static str, Option<&'static str>);

/// The groups of all protocols at the same time, each in a thread.
fn side_by_side(
    stage: &Stage,
    (what, round): (&str, u32),
    tally: &mut Tally,
    assertion: impl Fn(&Stage, Protocol, String) -> Result<(), String> + Sync,
) {
    doing(&format!("round {round}: {what}"));
    let start = Instant::now();
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let one = |protocol: &'static Protocol| {
            let name = group(what, protocol.0, round);
            let assertion = &assertion;
            scope.spawn(move || assertion(stage, *protocol, name))
        };
        let threads: Vec<_> = PROTOCOLS.iter().map(one).collect();
        let end = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join();
        threads.into_iter().map(|one| end(one).unwrap_or_else(|_| Err("it panicked".to_owned()))).collect()
    });
    for (protocol, result) in PROTOCOLS.iter().zip(results) {
        count(tally, (what, protocol.0, round), result, start);
    }
}

fn count(
    tally: &mut Tally,
    (what, protocol, round): (&str, &str, u32),
    result: Result<(), String>,
    since: Instant,
) {
    tally.count(&format!("{protocol}: {what}, round {round}"), Verdict::from(result), since.elapsed());
}

fn group(what: &str, protocol: &str, round: u32) -> String {
    format!("{}-{protocol}-{round}", what.replace(' ', "-"))
}

impl<'a> Group<'a> {
    fn join(
        stage: &Stage,
        protocol: Protocol,
        name: String,
        topic: (&'a str, &'a [Stored]),
        session: &'static str,
    ) -> Result<Group<'a>, String> {
        Group::join_with(stage, protocol, name, topic, session, false)
    }

    /// Two members with partitions.
    fn join_with(
        stage: &Stage,
        (_, protocol, assignor): Protocol,
        name: String,
        (topic, stored): (&'a str, &'a [Stored]),
        session: &'static str,
        fixed: bool,
    ) -> Result<Group<'a>, String> {
        let mut members = stage.members_of(&name, topic, session)?;
        members.set("PROSODY_GROUP_PROTOCOL", protocol);
        if let Some(assignor) = assignor {
            members.argument("--assignor", assignor);
        }
        let mut join = |instance: &str| {
            if fixed {
                members.set(INSTANCE, instance);
            }
            members.join()
        };
        let [one, other] = INSTANCES;
        let two = [join(one)?, join(other)?];
        both_work(&members, &two)?;
        Ok(Group { name, topic, stored, members, two })
    }

    /// How often the assignments of the two changed.
    fn changes(&self) -> [usize; 2] {
        self.two.map(|one| self.members.changes(one))
    }

    fn at_work(&self) -> Result<(), String> {
        at_work(&self.members, &self.two, self.stored)
    }

    /// Everything was handled, in order, no more of it twice than may be, and all is committed.
    fn finish(mut self, stage: &Stage, most_twice: usize) -> Result<(), String> {
        self.members.wait_handled(self.stored.len(), PATIENCE)?;
        self.members.leave_all()?;
        let seen = compare(self.stored, &self.members.history())?;
        if seen.duplicates > most_twice {
            return Err(format!(
                "{} records were handled twice; at most {most_twice} may be",
                seen.duplicates
            ));
        }
        match stage.oracle.lag(&self.name, self.topic)? {
            0 => Ok(()),
            lag => Err(format!("everything was handled, and {lag} records are not committed")),
        }
    }
}

/// What makes a member a static one, and the names of the two.
const INSTANCE: &str = "PROSODY_GROUP_INSTANCE_ID";
const INSTANCES: [&str; 2] = ["one", "two"];

fn clean(stage: &Stage, mut group: Group<'_>) -> Result<(), String> {
    for _ in group.two {
        group.at_work()?;
        let [goes, stays] = group.two;
        group.members.leave(goes)?;
        group.two = [stays, group.members.join()?];
        both_work(&group.members, &group.two)?;
    }
    group.finish(stage, 0)
}

fn hard(stage: &Stage, mut group: Group<'_>) -> Result<(), String> {
    for _ in group.two {
        group.at_work()?;
        let [goes, stays] = group.two;
        group.members.kill(goes);
        group.two = [stays, group.members.join()?];
        both_work(&group.members, &group.two)?;
    }
    group.finish(stage, 2 * UNCOMMITTED)
}

fn fixed(stage: &Stage, mut group: Group<'_>) -> Result<(), String> {
    for instance in INSTANCES {
        group.at_work()?;
        let [goes, stays] = group.two;
        let (had, changes) = (group.members.partitions(goes), group.members.changes(stays));
        group.members.leave(goes)?;
        group.members.set(INSTANCE, instance);
        let back = group.members.join()?;
        group.two = [stays, back];
        members::wait(PATIENCE, "a static member to have its partitions again", || {
            group.members.partitions(back) == had
        })?;
        match group.members.changes(stays) - changes {
            0 => {}
            some => return Err(format!("the assignment of the member that stayed changed {some} times")),
        }
    }
    group.finish(stage, 0)
}

/// Nine tenths of what a member in the rack of the last broker receives come from there (KIP-392): brokers lead a third of
/// the partitions each, and all of them have all.
fn closest(stage: &Stage, stored: &[Stored]) -> Result<(), String> {
    let mut members = stage.members_of("closest", "bounces", DEFAULT_SESSION)?;
    members.set("PROSODY_CLIENT_RACK", &format!("rack-{BROKERS}"));
    let only = members.join()?;
    members.wait_handled(stored.len(), PATIENCE)?;
    members.leave_all()?;
    compare(stored, &members.history())?;
    let received = members.received(only);
    let near = stage.cluster.bootstrap().rsplit(',').next().and_then(|broker| received.get(broker)).copied();
    let (near, all) = (near.unwrap_or_default(), received.values().sum::<f64>());
    if near >= 0.9 * all && near > 0.0 { Ok(()) } else { Err(format!("bytes by broker: {received:?}")) }
}

/// A test of prosody-wire freezes two brokers in turn, so that one leads which is behind.
fn truncated(stage: &Stage) -> Result<(), String> {
    let mut command = run::cargo();
    command.args(["test", "--workspace", "--test", "real", "--", "--nocapture", TRUNCATED]);
    let processes: Vec<String> = stage.cluster.processes().iter().map(u32::to_string).collect();
    command.env("PROSODY_REAL_KAFKA", stage.cluster.bootstrap());
    command.env("PROSODY_REAL_KAFKA_PROCESSES", processes.join(","));
    let ran = run::logged("truncated", &mut command)?;
    let played = ran.output.contains("1 passed") && !ran.output.contains(": skipped, ");
    if ran.ok && played { Ok(()) } else { Err(ran.tail(30)) }
}

/// All groups are there while each broker is stopped and started again, and there is always more to read: a broker takes
/// its time to start.
fn brokers(stage: &mut Stage, round: u32, tally: &mut Tally) -> Result<(), String> {
    const WHAT: &str = "restarts of every broker";
    doing(&format!("round {round}: {WHAT}"));
    let start = Instant::now();
    let topic = group(WHAT, "topic", round);
    stage.oracle.create(&topic, PARTITIONS)?;
    let mut acknowledged = stage.produce(&topic, FEED)?;
    let join = |protocol: &Protocol| {
        let name = group(WHAT, protocol.0, round);
        Group::join(stage, *protocol, name, (&topic, &[]), DEFAULT_SESSION)
    };
    let mut groups: Vec<Result<Group<'_>, String>> = PROTOCOLS.iter().map(join).collect();
    let mut before = Vec::new();
    for broker in 0..usize::from(BROKERS) {
        let handled = |groups: &[Result<Group<'_>, String>]| {
            groups.iter().flatten().map(|group| group.members.handled()).max().unwrap_or_default()
        };
        while acknowledged.len() < handled(&groups) + FEED {
            acknowledged.extend(stage.produce(&topic, FEED)?);
        }
        for group in &mut groups {
            let at_work = |group: &Group<'_>| at_work_on(&group.members, &group.two, acknowledged.len());
            if let Some(why) = group.as_ref().ok().and_then(|group| at_work(group).err()) {
                *group = Err(format!("before broker {broker} stops: {why}"));
            }
        }
        if broker == 0 {
            // Everybody has what it will have: a fresh group may divide twice.
            before = groups.iter().map(|group| group.as_ref().ok().map(Group::changes)).collect();
        }
        stage.cluster.stop_broker(broker);
        stage.cluster.start_broker(broker)?;
    }
    let stored = stage.stored(&topic, &acknowledged)?;
    for ((protocol, group), before) in PROTOCOLS.iter().zip(groups).zip(before) {
        let result = group.and_then(|mut group| {
            group.stored = &stored;
            group.members.wait_handled(stored.len(), PATIENCE)?;
            match (before, group.changes()) {
                (Some(before), after) if before != after => {
                    Err(format!("assignments changed from {before:?} times to {after:?} times"))
                }
                _ => group.finish(stage, 0),
            }
        });
        count(tally, (WHAT, protocol.0, round), result, start);
    }
    Ok(())
}
