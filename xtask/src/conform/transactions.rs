//! Behaviours of transactions: what readers see of committed, aborted and open ones. Clients that write none read those of
//! the other client.

use serde_json::{Value, json};

use super::agent::{Outcome, Trouble};
use super::stage::{Stage, equal, produce, put, read_for, until, values};

/// Long enough for what is there to come.
const LOOK_MS: u64 = 1_500;

/// Writes records in a transaction and ends it, or leaves it open.
fn write(stage: &Stage<'_>, topic: &str, id: &str, texts: &[&str], end: Option<&str>) -> Outcome {
    let record = |text: &&str| json!({"partition": 0, "key": "k", "value": text});
    let records: Vec<Value> = texts.iter().map(record).collect();
    let mut how = json!({"transaction": id, "idempotent": true});
    if let Some(end) = end {
        how["end"] = json!(end);
    }
    match produce(stage.subject, topic, json!(records), how.clone()) {
        Err(Trouble::Lacks(_)) => produce(stage.peer, topic, json!(records), how).map(drop),
        written => written.map(drop),
    }
}

/// Both clients see these values, and soon: markers are written after the end of a transaction is acknowledged.
fn both_see(stage: &Stage<'_>, topic: &str, committed: bool, expected: &[&str]) -> Outcome {
    for agent in [stage.subject, stage.peer] {
        let mut last = Vec::new();
        let seen = until("the records to be seen", || {
            last = read_for(agent, topic, committed, LOOK_MS)?;
            Ok(values(&last) == expected)
        });
        if matches!(seen, Err(Trouble::Wrong(_))) {
            equal(values(&last), expected.to_vec())?;
        }
        seen?;
    }
    Ok(())
}

pub(super) fn committed(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    write(stage, &topic, &stage.name(), &["a", "b"], Some("commit"))?;
    put(stage.peer, &topic, 0, &["c"])?;
    both_see(stage, &topic, true, &["a", "b", "c"])
}

pub(super) fn aborted(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    let id = stage.name();
    write(stage, &topic, &id, &["not this"], Some("abort"))?;
    write(stage, &topic, &id, &["this"], Some("commit"))?;
    put(stage.peer, &topic, 0, &["and this"])?;
    both_see(stage, &topic, true, &["this", "and this"])
}

pub(super) fn uncommitted(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    write(stage, &topic, &stage.name(), &["aborted"], Some("abort"))?;
    put(stage.peer, &topic, 0, &["plain"])?;
    both_see(stage, &topic, false, &["aborted", "plain"])
}

pub(super) fn open(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    let id = stage.name();
    put(stage.peer, &topic, 0, &["before"])?;
    write(stage, &topic, &id, &["open"], None)?;
    put(stage.peer, &topic, 0, &["after"])?;
    both_see(stage, &topic, false, &["before", "open", "after"])?;
    both_see(stage, &topic, true, &["before"])?;
    // The next producer of the same id ends what the one before has left open.
    write(stage, &topic, &id, &["next"], Some("commit"))?;
    both_see(stage, &topic, true, &["before", "after", "next"])
}
