//! Behaviours of groups that mix the client under test with the other one: who divides, who takes over, who carries on.

use std::collections::BTreeSet;

use serde_json::json;

use super::agent::{Agent, Outcome, Trouble};
use super::groups::{fill, member};
use super::stage::{Member, Stage, all_seen, settle, until};

/// Which strategy the client under test and ours share in a mixed group: the first that both know.
fn mixed<'a>(
    stage: &Stage<'a>,
    ours_first: bool,
) -> Result<(String, String, Member<'a>, Member<'a>), Trouble> {
    let mut last = Trouble::Wrong("no strategy was tried".to_owned());
    for strategy in ["cooperative-sticky", "range", "roundrobin"] {
        let (topic, group) = (stage.topic(4)?, stage.name());
        fill(stage.peer, &topic, 4, 40)?;
        let how = json!({"strategy": strategy});
        let join = |agent: &'a Agent, name: &str| Member::join(agent, name, &group, &[&topic], &how);
        let pair = if ours_first {
            let mut ours = join(stage.peer, "ours")?;
            settle(&mut [&mut ours], 4)?;
            match join(stage.subject, "theirs") {
                Ok(theirs) => Ok((theirs, ours)),
                Err(why) => {
                    ours.leave()?;
                    Err(why)
                }
            }
        } else {
            join(stage.subject, "theirs").and_then(|mut theirs| {
                settle(&mut [&mut theirs], 4)?;
                Ok((theirs, join(stage.peer, "ours")?))
            })
        };
        match pair {
            Ok((mut theirs, mut ours)) => {
                settle(&mut [&mut theirs, &mut ours], 4)?;
                return Ok((topic, group, theirs, ours));
            }
            Err(Trouble::Lacks(why)) => last = Trouble::Lacks(why),
            Err(why) => return Err(why),
        }
    }
    Err(last)
}

pub(super) fn mixed_they_lead(stage: &Stage<'_>) -> Outcome {
    let (_, _, theirs, ours) = mixed(stage, false)?;
    theirs.leave()?;
    ours.leave()
}

pub(super) fn mixed_we_lead(stage: &Stage<'_>) -> Outcome {
    let (_, _, theirs, ours) = mixed(stage, true)?;
    theirs.leave()?;
    ours.leave()
}

pub(super) fn mixed_we_leave(stage: &Stage<'_>) -> Outcome {
    let (topic, _, mut theirs, mut ours) = mixed(stage, false)?;
    all_seen(&mut [&mut theirs, &mut ours], 40)?;
    ours.leave()?;
    settle(&mut [&mut theirs], 4)?;
    fill(stage.peer, &topic, 4, 40)?;
    until("the records of all partitions", || {
        theirs.poll()?;
        let newer = theirs.seen.iter().filter(|record| record.offset >= 10);
        Ok(newer.map(|record| (record.partition, record.offset)).collect::<BTreeSet<_>>().len() == 40)
    })?;
    theirs.leave()
}

pub(super) fn mixed_they_leave(stage: &Stage<'_>) -> Outcome {
    let (topic, _, mut theirs, mut ours) = mixed(stage, true)?;
    all_seen(&mut [&mut theirs, &mut ours], 40)?;
    theirs.leave()?;
    settle(&mut [&mut ours], 4)?;
    fill(stage.peer, &topic, 4, 40)?;
    until("the records of all partitions", || {
        ours.poll()?;
        let newer = ours.seen.iter().filter(|record| record.offset >= 10);
        Ok(newer.map(|record| (record.partition, record.offset)).collect::<BTreeSet<_>>().len() == 40)
    })?;
    ours.leave()
}

fn carried_on(stage: &Stage<'_>, from: &Agent, to: &Agent) -> Outcome {
    let (topic, group) = (stage.topic(2)?, stage.name());
    fill(stage.peer, &topic, 2, 20)?;
    let mut first = member(from, "a", &group, &topic)?;
    all_seen(&mut [&mut first], 20)?;
    first.poll()?;
    first.leave()?;
    fill(stage.peer, &topic, 2, 8)?;
    let mut second = member(to, "b", &group, &topic)?;
    all_seen(&mut [&mut second], 8)?;
    second.leave()
}

pub(super) fn carried_on_by_the_subject(stage: &Stage<'_>) -> Outcome {
    carried_on(stage, stage.peer, stage.subject)
}

pub(super) fn carried_on_by_the_peer(stage: &Stage<'_>) -> Outcome {
    carried_on(stage, stage.subject, stage.peer)
}
