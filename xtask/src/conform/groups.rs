//! Behaviours of groups: who owns which partitions, what is committed, and what changes when members come and go.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::agent::{Agent, Outcome, Trouble};
use super::stage::{
    Member, Stage, all_seen, committed, ensure, equal, patience, produce, put, refused, settle, until, values,
};

const OFFSET_METADATA_TOO_LARGE: i64 = 12;
const ILLEGAL_GENERATION: i64 = 22;
const UNKNOWN_MEMBER_ID: i64 = 25;
const REBALANCE_IN_PROGRESS: i64 = 27;
const NON_EMPTY_GROUP: i64 = 68;
/// The shortest session a broker accepts.
const SHORT_SESSION: u64 = 6_000;

pub(super) fn fill(agent: &Agent, topic: &str, partitions: i64, count: i64) -> Outcome {
    let record =
        |n: i64| json!({"partition": n % partitions, "key": format!("k{n}"), "value": n.to_string()});
    let records: Vec<Value> = (0..count).map(record).collect();
    produce(agent, topic, json!(records), json!({})).map(drop)
}

pub(super) fn member<'a>(
    agent: &'a Agent,
    name: &str,
    group: &str,
    topic: &str,
) -> Result<Member<'a>, Trouble> {
    Member::join(agent, name, group, &[topic], &json!({}))
}

/// A topic with records and a group of one member who owns all of it.
fn alone<'a>(stage: &Stage<'a>, partitions: i64) -> Result<(String, String, Member<'a>), Trouble> {
    let (topic, group) = (stage.topic(partitions)?, stage.name());
    fill(stage.peer, &topic, partitions, partitions * 10)?;
    let mut only = member(stage.subject, "a", &group, &topic)?;
    settle(&mut [&mut only], partitions as usize)?;
    Ok((topic, group, only))
}

pub(super) fn one_member(stage: &Stage<'_>) -> Outcome {
    let (topic, _, mut only) = alone(stage, 4)?;
    all_seen(&mut [&mut only], 40)?;
    for partition in 0..4 {
        let of_partition = only.seen.iter().filter(|record| record.partition == partition);
        let offsets: Vec<i64> = of_partition.map(|record| record.offset).collect();
        ensure(offsets == (0..10).collect::<Vec<_>>(), || {
            format!("{topic}-{partition} came as {offsets:?}")
        })?;
    }
    only.leave()
}

pub(super) fn two_members(stage: &Stage<'_>) -> Outcome {
    let (topic, group, mut first) = alone(stage, 4)?;
    let mut second = member(stage.subject, "b", &group, &topic)?;
    settle(&mut [&mut first, &mut second], 4)?;
    first.leave()?;
    second.leave()
}

pub(super) fn more_members_than_partitions(stage: &Stage<'_>) -> Outcome {
    let (topic, group, mut first) = alone(stage, 1)?;
    let mut second = member(stage.subject, "b", &group, &topic)?;
    settle(&mut [&mut first, &mut second], 1)?;
    first.leave()?;
    second.leave()
}

pub(super) fn leaving(stage: &Stage<'_>) -> Outcome {
    let (topic, group, mut first) = alone(stage, 4)?;
    let mut second = member(stage.subject, "b", &group, &topic)?;
    settle(&mut [&mut first, &mut second], 4)?;
    let start = Instant::now();
    first.leave()?;
    settle(&mut [&mut second], 4)?;
    ensure(start.elapsed() < Duration::from_secs(15), || {
        format!("a member that left was missed after {:?}", start.elapsed())
    })?;
    second.leave()
}

pub(super) fn killed(stage: &Stage<'_>) -> Outcome {
    let (topic, group) = (stage.topic(4)?, stage.name());
    fill(stage.peer, &topic, 4, 40)?;
    let session = json!({"session_ms": SHORT_SESSION});
    let victim = (stage.another)()?;
    let mut first = Member::join(stage.subject, "a", &group, &[&topic], &session)?;
    let mut second = Member::join(&victim, "b", &group, &[&topic], &session)?;
    settle(&mut [&mut first, &mut second], 4)?;
    victim.kill();
    settle(&mut [&mut first], 4)?;
    first.leave()
}

pub(super) fn resumes(stage: &Stage<'_>) -> Outcome {
    let (topic, group, mut first) = alone(stage, 2)?;
    all_seen(&mut [&mut first], 20)?;
    first.poll()?;
    first.leave()?;
    fill(stage.peer, &topic, 2, 6)?;
    let mut second = member(stage.subject, "b", &group, &topic)?;
    all_seen(&mut [&mut second], 6)?;
    ensure(second.seen.iter().all(|record| record.offset >= 10), || format!("{:?}", second.seen))?;
    second.leave()
}

pub(super) fn hand_over(stage: &Stage<'_>) -> Outcome {
    let (topic, group, mut first) = alone(stage, 4)?;
    let mut second = member(stage.subject, "b", &group, &topic)?;
    settle(&mut [&mut first, &mut second], 4)?;
    fill(stage.peer, &topic, 4, 400)?;
    until("the first records", || Ok(first.poll()? > 0))?;
    let of_first = first.seen.clone();
    first.leave()?;
    // 40 records of the start and 400 more, less what the first has committed.
    let deadline = Instant::now() + patience();
    let distinct = |second: &Member<'_>| {
        let both = of_first.iter().chain(&second.seen);
        both.map(|record| (record.partition, record.offset)).collect::<BTreeSet<_>>().len()
    };
    while distinct(&second) < 440 {
        second.poll()?;
        ensure(Instant::now() < deadline, || format!("{} of 440 records", distinct(&second)))?;
    }
    let twice = of_first.len() + second.seen.len() - 440;
    ensure(twice == 0, || format!("a clean hand-over repeated {twice} records"))?;
    second.leave()
}

/// A rebalance in which everything is given up and dealt anew: what was not committed comes again, also to the member that
/// had it.
pub(super) fn offered_again(stage: &Stage<'_>) -> Outcome {
    let (topic, group) = (stage.topic(2)?, stage.name());
    fill(stage.peer, &topic, 2, 20)?;
    let how = json!({"strategy": "roundrobin"});
    let mut first = Member::join(stage.subject, "a", &group, &[&topic], &how)?;
    until("all records", || {
        first.poll_with(false)?;
        Ok(first.seen.len() == 20)
    })?;
    let mut second = Member::join(stage.subject, "b", &group, &[&topic], &how)?;
    first.seen.clear();
    settle(&mut [&mut first, &mut second], 2)?;
    all_seen(&mut [&mut first, &mut second], 20)?;
    first.leave()?;
    second.leave()
}

pub(super) fn commit_metadata(stage: &Stage<'_>) -> Outcome {
    let (topic, group, only) = alone(stage, 2)?;
    only.commit(&topic, 1, 7, "text äöü")?;
    for agent in [stage.subject, stage.peer].into_iter().take(if stage.peer_is_ours { 2 } else { 1 }) {
        equal(committed(agent, &group, &topic)?.get(&1), Some(&(7, "text äöü".to_owned())))?;
    }
    only.leave()
}

pub(super) fn commit_backwards(stage: &Stage<'_>) -> Outcome {
    let (topic, group, only) = alone(stage, 1)?;
    only.commit(&topic, 0, 9, "")?;
    only.commit(&topic, 0, 4, "")?;
    equal(committed(stage.peer, &group, &topic)?.get(&0).map(|at| at.0), Some(4))?;
    only.leave()
}

pub(super) fn metadata_too_large(stage: &Stage<'_>) -> Outcome {
    let (topic, _, only) = alone(stage, 1)?;
    refused(only.commit(&topic, 0, 1, &"m".repeat(5_000)), &[OFFSET_METADATA_TOO_LARGE])?;
    only.commit(&topic, 0, 1, "short")?;
    only.leave()
}

pub(super) fn nothing_committed(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(2)?;
    let found = committed(stage.subject, &stage.name(), &topic)?;
    ensure(found.is_empty(), || format!("{found:?}"))
}

pub(super) fn reset_earliest(stage: &Stage<'_>) -> Outcome {
    let (topic, group) = (stage.topic(1)?, stage.name());
    put(stage.peer, &topic, 0, &["a", "b"])?;
    let mut only = Member::join(stage.subject, "a", &group, &[&topic], &json!({"reset": "earliest"}))?;
    all_seen(&mut [&mut only], 2)?;
    equal(values(&only.seen), vec!["a", "b"])?;
    only.leave()
}

pub(super) fn reset_latest(stage: &Stage<'_>) -> Outcome {
    let (topic, group) = (stage.topic(1)?, stage.name());
    put(stage.peer, &topic, 0, &["old", "old"])?;
    let mut only = Member::join(stage.subject, "a", &group, &[&topic], &json!({"reset": "latest"}))?;
    settle(&mut [&mut only], 1)?;
    until("a new record", || {
        put(stage.peer, &topic, 0, &["new"])?;
        only.poll()?;
        Ok(!only.seen.is_empty())
    })?;
    ensure(values(&only.seen).iter().all(|value| *value == "new"), || format!("{:?}", only.seen))?;
    only.leave()
}

pub(super) fn committed_out_of_range(stage: &Stage<'_>) -> Outcome {
    let (topic, group) = (stage.topic(1)?, stage.name());
    put(stage.peer, &topic, 0, &["a", "b"])?;
    stage.peer.ask("set_offsets", json!({"group": group, "topic": topic, "offsets": {"0": 1_000}}))?;
    let mut only = Member::join(stage.subject, "a", &group, &[&topic], &json!({"reset": "earliest"}))?;
    all_seen(&mut [&mut only], 2)?;
    only.leave()
}

pub(super) fn starts_where_told(stage: &Stage<'_>) -> Outcome {
    let (topic, group) = (stage.topic(1)?, stage.name());
    put(stage.peer, &topic, 0, &["a", "b", "c", "d"])?;
    stage.peer.ask("set_offsets", json!({"group": group, "topic": topic, "offsets": {"0": 2}}))?;
    let mut only = member(stage.subject, "a", &group, &topic)?;
    all_seen(&mut [&mut only], 2)?;
    equal(values(&only.seen), vec!["c", "d"])?;
    only.leave()
}

pub(super) fn two_groups(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(2)?;
    fill(stage.peer, &topic, 2, 20)?;
    let mut first = member(stage.subject, "a", &stage.name(), &topic)?;
    let mut second = member(stage.subject, "b", &stage.name(), &topic)?;
    all_seen(&mut [&mut first], 20)?;
    all_seen(&mut [&mut second], 20)?;
    first.leave()?;
    second.leave()
}

pub(super) fn two_topics(stage: &Stage<'_>) -> Outcome {
    let (one, two, group) = (stage.topic(2)?, stage.topic(3)?, stage.name());
    fill(stage.peer, &one, 2, 20)?;
    fill(stage.peer, &two, 3, 30)?;
    let mut only = Member::join(stage.subject, "a", &group, &[&one, &two], &json!({}))?;
    settle(&mut [&mut only], 5)?;
    all_seen(&mut [&mut only], 50)?;
    only.leave()
}

pub(super) fn growth_is_noticed(stage: &Stage<'_>) -> Outcome {
    let (topic, _, mut only) = alone(stage, 2)?;
    stage.peer.ask("grow", json!({"topic": topic, "total": 4}))?;
    settle(&mut [&mut only], 4)?;
    put(stage.peer, &topic, 3, &["in a new partition"])?;
    until("the record of a new partition", || {
        only.poll()?;
        Ok(only.seen.iter().any(|record| record.partition == 3))
    })?;
    only.leave()
}

pub(super) fn later_topic(stage: &Stage<'_>) -> Outcome {
    let (there, later, group) = (stage.topic(1)?, stage.name(), stage.name());
    let mut only = Member::join(stage.subject, "a", &group, &[&there, &later], &json!({}))?;
    settle(&mut [&mut only], 1)?;
    (stage.create)(stage.peer, &later, 2, &json!({}))?;
    settle(&mut [&mut only], 3)?;
    only.leave()
}

fn golden(stage: &Stage<'_>, strategy: &str, shares: [&[(usize, i64)]; 2]) -> Outcome {
    let (one, two, group) = (stage.topic(3)?, stage.topic(3)?, stage.name());
    let how = json!({"strategy": strategy});
    let mut first = Member::join(stage.subject, "a", &group, &[&one, &two], &how)?;
    let mut second = Member::join(stage.subject, "b", &group, &[&one, &two], &how)?;
    // Range gives the first member the odd partition of each topic, four of six in all.
    let deadline = Instant::now() + patience();
    let topics = [&one, &two];
    let expected: BTreeSet<BTreeSet<(String, i64)>> = shares
        .iter()
        .map(|share| share.iter().map(|(topic, partition)| (topics[*topic].clone(), *partition)).collect())
        .collect();
    loop {
        first.poll()?;
        second.poll()?;
        let got = BTreeSet::from([first.assigned.clone(), second.assigned.clone()]);
        if got == expected {
            break;
        }
        ensure(Instant::now() < deadline, || format!("got {got:?}, expected {expected:?}"))?;
    }
    first.leave()?;
    second.leave()
}

pub(super) fn range(stage: &Stage<'_>) -> Outcome {
    golden(stage, "range", [&[(0, 0), (0, 1), (1, 0), (1, 1)], &[(0, 2), (1, 2)]])
}

pub(super) fn round_robin(stage: &Stage<'_>) -> Outcome {
    golden(stage, "roundrobin", [&[(0, 0), (0, 2), (1, 1)], &[(0, 1), (1, 0), (1, 2)]])
}

pub(super) fn cooperative(stage: &Stage<'_>) -> Outcome {
    let (topic, group) = (stage.topic(6)?, stage.name());
    let how = json!({"strategy": "cooperative-sticky"});
    let mut first = Member::join(stage.subject, "a", &group, &[&topic], &how)?;
    settle(&mut [&mut first], 6)?;
    let mut second = Member::join(stage.subject, "b", &group, &[&topic], &how)?;
    let (mut always, deadline) = (first.assigned.clone(), Instant::now() + patience());
    while first.assigned.len() + second.assigned.len() != 6 || second.assigned.len() != 3 {
        first.poll()?;
        second.poll()?;
        always.retain(|partition| first.assigned.contains(partition));
        ensure(Instant::now() < deadline, || format!("{:?} {:?}", first.assigned, second.assigned))?;
    }
    equal(&always, &first.assigned)?;
    first.leave()?;
    second.leave()
}

pub(super) fn static_member(stage: &Stage<'_>) -> Outcome {
    let (topic, group) = (stage.topic(4)?, stage.name());
    let how = |instance: &str| json!({"instance": instance, "session_ms": 30_000});
    let mut stays = Member::join(stage.subject, "a", &group, &[&topic], &how("one"))?;
    let mut goes = Member::join(stage.subject, "b", &group, &[&topic], &how("two"))?;
    settle(&mut [&mut stays, &mut goes], 4)?;
    let (before, of_the_other) = (stays.assigned.clone(), goes.assigned.clone());
    goes.leave()?;
    for _ in 0..10 {
        stays.poll()?;
        equal(&stays.assigned, &before)?;
    }
    let mut back = Member::join(stage.subject, "c", &group, &[&topic], &how("two"))?;
    let deadline = Instant::now() + patience();
    while back.assigned != of_the_other {
        back.poll()?;
        stays.poll()?;
        equal(&stays.assigned, &before)?;
        ensure(Instant::now() < deadline, || format!("{:?}, before {of_the_other:?}", back.assigned))?;
    }
    stays.leave()?;
    back.leave()
}

pub(super) fn pattern(stage: &Stage<'_>) -> Outcome {
    follow_pattern(stage, None)
}

/// By the consumer protocol (KIP-848) where the broker serves it. Apache Kafka's coordinator matches again at most every
/// ten seconds.
pub(super) fn pattern_by_coordinator(stage: &Stage<'_>) -> Outcome {
    follow_pattern(stage, Some("auto"))
}

fn follow_pattern(stage: &Stage<'_>, protocol: Option<&str>) -> Outcome {
    let (prefix, group) = (stage.name(), stage.name());
    let topics = [format!("{prefix}-red"), format!("{prefix}-green")];
    (stage.create)(stage.peer, &topics[0], 1, &json!({}))?;
    let how = json!({"pattern": format!("^{prefix}-.*"), "protocol": protocol});
    let mut only = Member::join(stage.subject, "a", &group, &[], &how)?;
    settle(&mut [&mut only], 1)?;
    (stage.create)(stage.peer, &topics[1], 2, &json!({}))?;
    settle(&mut [&mut only], 3)?;
    only.leave()
}

pub(super) fn outsiders_cannot_commit(stage: &Stage<'_>) -> Outcome {
    let (topic, group, only) = alone(stage, 1)?;
    let result =
        stage.subject.ask("set_offsets", json!({"group": group, "topic": topic, "offsets": {"0": 3}}));
    refused(result, &[UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, NON_EMPTY_GROUP])?;
    only.leave()
}
