//! Do the others carry on when a member is killed or frozen beyond its session? Strikes in the middle of work, again and
//! again, in each mode and by both group protocols: nothing is lost, keys keep their order, and the member's partitions are
//! worked on again within two sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::history::Stored;
use super::members::Members;
use super::{PARTITIONS, PATIENCE, RUNNING, SHORTEST_SESSION, Stage, UNCOMMITTED, members};
use crate::progress::{doing, say};
use crate::report::Tally;
use crate::setup;
use crate::test::Tier;

/// How long the group misses a member before it gives its partitions away, as `SHORTEST_SESSION` says.
const SESSION: Duration = Duration::from_secs(6);
/// Recovery may take two sessions; a second more for a machine that is busy with brokers and members.
const RECOVERED: Duration = Duration::from_secs(13);
/// Of this many strikes in a hundred the recovery counts.
const PERCENT: usize = 99;
/// Every partition has this many unread records when a strike comes, so that those of the struck member have work left for
/// the other. All together would not do: the partitions of the member that is struck again and again keep theirs, while
/// the other's run dry.
const UNREAD: usize = 5_000;
/// Records are produced in such lots, so that there are never many more.
const LOT: usize = 25_000;
/// Handlers for every record that may be in progress. With fewer, keys that ran little lately go before those that ran
/// much, as they should, and whole partitions of the latter wait for seconds after everybody else has recovered.
const MAX_CONCURRENCY: &str = "512";
/// How long a handler works here: fewer records go by than are produced in the same time.
const WORK_MS: &str = "160";
/// Strikes in each mode: half of them by each group protocol.
const FULL_ROUNDS: usize = 50;
const CI_ROUNDS: usize = 2;

const MODES: [&str; 3] = ["pipeline", "low-latency", "best-effort"];
const PROTOCOLS: [&str; 2] = ["classic", "consumer"];

/// What happens to a member.
#[derive(Clone, Copy, Debug)]
enum Strike {
    /// `kill -9`; another member joins afterwards.
    Kill,
    /// SIGSTOP until the others have its partitions, then SIGCONT: it learns that it was away.
    Freeze,
}

/// Every mode by both protocols.
pub(crate) fn suite(tier: Tier) -> Tally {
    if let Err(why) = setup::java() {
        return Tally::skipped(why);
    }
    let mut stage = match super::stage("4") {
        Ok(stage) => stage,
        Err(why) => return Tally::failed(why),
    };
    let rounds = if tier == Tier::Full { FULL_ROUNDS } else { CI_ROUNDS };
    let mut tally = Tally::default();
    for mode in MODES {
        for (at, protocol) in PROTOCOLS.into_iter().enumerate() {
            // With few rounds one protocol sees the kills and the other the freezes; with many, both see both.
            let strikes: Vec<Strike> = (0..rounds / PROTOCOLS.len())
                .map(|round| if (round + at) % 2 == 0 { Strike::Kill } else { Strike::Freeze })
                .collect();
            let name = format!("{mode}, {protocol} protocol, {} strikes", strikes.len());
            doing(&format!("kill: {name}"));
            stage.protocol = protocol;
            let start = Instant::now();
            let result = play(&stage, mode, &strikes).map(|fact| {
                say(&format!("           {name}: {fact}"));
                tally.facts.push(format!("{name}: {fact}"));
            });
            tally.count(&name, result.into(), start.elapsed());
        }
    }
    tally
}

/// All strikes on one group that works all the while. Says how long the recoveries took.
fn play(stage: &Stage, mode: &'static str, strikes: &[Strike]) -> Result<String, String> {
    let topic = stage.named(&format!("strikes-{mode}"));
    stage.oracle.create(&topic, PARTITIONS)?;
    stage.oracle.sessions(&format!("{topic}-group"), SESSION)?;
    let failures = format!("{topic}-failures");
    stage.oracle.create(&failures, 1)?;
    let mut members = stage.members(&topic, SHORTEST_SESSION)?;
    members.argument("--work-ms", WORK_MS);
    members.set("PROSODY_MODE", mode);
    members.set("PROSODY_MAX_CONCURRENCY", MAX_CONCURRENCY);
    members.set("PROSODY_FAILURE_TOPIC", &failures);
    let mut acknowledged = BTreeSet::new();
    let mut pair = (members.join()?, members.join()?);
    let mut recoveries = Vec::new();
    for strike in strikes {
        let (victim, other) = pair;
        busy(stage, &members, [victim, other], &topic, &mut acknowledged)?;
        recoveries.push(round(&mut members, *strike, victim, other)?);
        pair = match strike {
            Strike::Kill => (other, members.join()?),
            Strike::Freeze => (other, victim),
        };
    }
    let stored = stage.stored(&topic, &acknowledged)?;
    stage.finish(&topic, &stored, &mut members, strikes.len() * UNCOMMITTED)?;
    recoveries.sort();
    let at = (recoveries.len() * PERCENT).div_ceil(100).saturating_sub(1);
    let slow = recoveries.get(at).copied().unwrap_or_default();
    if slow > RECOVERED {
        return Err(format!(
            "recovery took {slow:.1?} at the {PERCENT}th percentile; {RECOVERED:?} are allowed"
        ));
    }
    let median = recoveries.get(recoveries.len() / 2).copied().unwrap_or_default();
    Ok(format!("{} records, recovery p50 {median:.1?}, p{PERCENT} {slow:.1?}", stored.len()))
}

/// Produces until both have partitions and many handlers at work while every partition has much unread.
fn busy(
    stage: &Stage,
    members: &Members,
    pair: [usize; 2],
    topic: &str,
    acknowledged: &mut BTreeSet<Stored>,
) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let mut produced = BTreeMap::<i32, usize>::new();
    acknowledged.iter().for_each(|stored| *produced.entry(stored.partition).or_default() += 1);
    while Instant::now() < deadline {
        let unread = |partition: i32| {
            produced.get(&partition).unwrap_or(&0).saturating_sub(members.handled_of(partition))
        };
        if (0..PARTITIONS as i32).any(|partition| unread(partition) < UNREAD) {
            let mut lot = stage.produce(topic, LOT)?;
            lot.iter().for_each(|stored| *produced.entry(stored.partition).or_default() += 1);
            acknowledged.append(&mut lot);
        } else if pair
            .iter()
            .all(|number| members.assigned(*number) > 0 && members.running(*number) >= RUNNING)
        {
            return Ok(());
        } else {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Err(format!(
        "waited {} s for members {pair:?} with {RUNNING} handlers at work in each",
        PATIENCE.as_secs()
    ))
}

/// Strikes, and waits until the other member has worked on every partition of the struck one.
fn round(members: &mut Members, strike: Strike, victim: usize, other: usize) -> Result<Duration, String> {
    let (theirs, before) = (members.partitions(victim), members.events());
    match strike {
        Strike::Kill => members.kill(victim),
        Strike::Freeze => members.signal(victim, "STOP"),
    }
    let start = Instant::now();
    let recovered =
        members::wait(PATIENCE, &format!("{theirs:?} of member {victim} after {strike:?}"), || {
            members.worked_on(other, before).is_superset(&theirs)
        });
    let took = start.elapsed();
    if let Strike::Freeze = strike {
        members.signal(victim, "CONT");
    }
    recovered.map(|()| took)
}
