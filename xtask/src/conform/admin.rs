//! Behaviours of administrative calls: what they change, what they tell, and which error names what is wrong.

use serde_json::{Value, json};

use super::agent::{Agent, Outcome, Trouble};
use super::data::LOCAL_UNKNOWN;
use super::stage::{Member, Stage, committed, ensure, equal, number, put, refused, settle, until};

const OFFSET_OUT_OF_RANGE: i64 = 1;
const INVALID_TOPIC: i64 = 17;
const TOPIC_ALREADY_EXISTS: i64 = 36;
const INVALID_PARTITIONS: i64 = 37;
const INVALID_REPLICATION_FACTOR: i64 = 38;
const INVALID_CONFIG: i64 = 40;
const NON_EMPTY_GROUP: i64 = 68;
const GROUP_ID_NOT_FOUND: i64 = 69;

fn create(agent: &Agent, topic: &str, partitions: i64) -> Result<Value, Trouble> {
    agent.ask("create", json!({"topic": topic, "partitions": partitions}))
}

fn known(agent: &Agent, topic: &str) -> Result<Option<i64>, Trouble> {
    Ok(agent.ask("topics", json!({}))?.get(topic).and_then(Value::as_i64))
}

pub(super) fn creates(stage: &Stage<'_>) -> Outcome {
    let topic = stage.name();
    create(stage.subject, &topic, 3)?;
    until("the topic", || Ok(known(stage.peer, &topic)? == Some(3)))?;
    equal(put(stage.peer, &topic, 2, &["v"])?, vec![0])
}

pub(super) fn lists_topics(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(5)?;
    until("the topic in the list", || Ok(known(stage.subject, &topic)? == Some(5)))
}

pub(super) fn exists_already(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    refused(create(stage.subject, &topic, 1), &[TOPIC_ALREADY_EXISTS])
}

pub(super) fn bad_name(stage: &Stage<'_>) -> Outcome {
    refused(create(stage.subject, "no spaces, please", 1), &[INVALID_TOPIC])
}

pub(super) fn no_partitions(stage: &Stage<'_>) -> Outcome {
    refused(create(stage.subject, &stage.name(), 0), &[INVALID_PARTITIONS])
}

pub(super) fn too_many_replicas(stage: &Stage<'_>) -> Outcome {
    let fields = json!({"topic": stage.name(), "partitions": 1, "replication": 9});
    refused(stage.subject.ask("create", fields), &[INVALID_REPLICATION_FACTOR])
}

pub(super) fn created_with_config(stage: &Stage<'_>) -> Outcome {
    let topic = stage.name();
    let fields = json!({"topic": topic, "partitions": 1, "configs": {"retention.ms": "777000"}});
    stage.subject.ask("create", fields)?;
    let configs = stage.peer.ask("configs", json!({"topic": topic}))?;
    equal(configs.get("retention.ms").and_then(Value::as_str), Some("777000"))
}

pub(super) fn created_with_bad_config(stage: &Stage<'_>) -> Outcome {
    let fields = json!({"topic": stage.name(), "partitions": 1, "configs": {"retention.ms": "soon"}});
    refused(stage.subject.ask("create", fields), &[INVALID_CONFIG])
}

pub(super) fn describes_config(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic_with(1, &json!({"cleanup.policy": "compact"}))?;
    let configs = stage.subject.ask("configs", json!({"topic": topic}))?;
    equal(configs.get("cleanup.policy").and_then(Value::as_str), Some("compact"))
}

pub(super) fn alters_config(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic_with(1, &json!({"retention.ms": "777000"}))?;
    stage.subject.ask("alter", json!({"topic": topic, "name": "retention.ms", "value": "888000"}))?;
    until("the new value", || {
        let configs = stage.peer.ask("configs", json!({"topic": topic}))?;
        Ok(configs.get("retention.ms").and_then(Value::as_str) == Some("888000"))
    })
}

pub(super) fn alters_to_nonsense(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    let change = json!({"topic": topic, "name": "retention.ms", "value": "soon"});
    refused(stage.subject.ask("alter", change), &[INVALID_CONFIG])
}

pub(super) fn deletes(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    stage.subject.ask("delete", json!({"topic": topic}))?;
    until("the topic to go", || Ok(known(stage.peer, &topic)?.is_none()))
}

pub(super) fn deletes_what_is_missing(stage: &Stage<'_>) -> Outcome {
    refused(stage.subject.ask("delete", json!({"topic": stage.name()})), &LOCAL_UNKNOWN)
}

pub(super) fn grows(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(2)?;
    stage.subject.ask("grow", json!({"topic": topic, "total": 5}))?;
    until("five partitions", || Ok(known(stage.peer, &topic)? == Some(5)))?;
    until("a record in a new partition", || Ok(put(stage.subject, &topic, 4, &["v"]).is_ok()))
}

pub(super) fn shrinks(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(3)?;
    refused(stage.subject.ask("grow", json!({"topic": topic, "total": 2})), &[INVALID_PARTITIONS])
}

pub(super) fn trims(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    put(stage.peer, &topic, 0, &["a", "b", "c"])?;
    let low = stage.subject.ask("trim", json!({"topic": topic, "partition": 0, "offset": 2}))?;
    ensure(low.as_i64().is_none_or(|low| low == 2), || format!("the answer names {low}"))?;
    let starts = stage.peer.ask("offsets", json!({"topic": topic, "at": "earliest"}))?;
    equal(starts.get("0").and_then(Value::as_i64), Some(2))
}

pub(super) fn trims_beyond_the_end(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    put(stage.peer, &topic, 0, &["a"])?;
    let result = stage.subject.ask("trim", json!({"topic": topic, "partition": 0, "offset": 9}));
    refused(result, &[OFFSET_OUT_OF_RANGE])
}

pub(super) fn describes_cluster(stage: &Stage<'_>) -> Outcome {
    let found = stage.subject.ask("cluster", json!({}))?;
    let brokers = found.get("brokers").and_then(Value::as_array).cloned().unwrap_or_default();
    equal(brokers.len(), stage.brokers)?;
    ensure(brokers.contains(&found["controller"]), || format!("{found}"))
}

/// A group of one member of the peer, who owns the two partitions of a topic.
fn group<'a>(stage: &Stage<'a>) -> Result<(String, String, Member<'a>), Trouble> {
    let (topic, group) = (stage.topic(2)?, stage.name());
    let mut member = Member::join(stage.peer, "a", &group, &[&topic], &json!({}))?;
    settle(&mut [&mut member], 2)?;
    Ok((topic, group, member))
}

pub(super) fn lists_groups(stage: &Stage<'_>) -> Outcome {
    let (_, group, member) = group(stage)?;
    let found = stage.subject.ask("groups", json!({}))?;
    let listed = found.as_array().is_some_and(|all| all.contains(&json!(group)));
    ensure(listed, || format!("{group} is not among {found}"))?;
    member.leave()
}

pub(super) fn describes_group(stage: &Stage<'_>) -> Outcome {
    let (_, group, member) = group(stage)?;
    let found = stage.subject.ask("group", json!({"group": group}))?;
    let state = found.get("state").and_then(Value::as_str).unwrap_or_default().to_lowercase();
    equal((state.as_str(), number(&found, "members")), ("stable", 1))?;
    ensure(matches!(number(&found, "partitions"), 2 | -1), || format!("{found}"))?;
    member.leave()
}

pub(super) fn describes_no_group(stage: &Stage<'_>) -> Outcome {
    match stage.subject.ask("group", json!({"group": stage.name()})) {
        Ok(found) => {
            let state = found.get("state").and_then(Value::as_str).unwrap_or_default().to_lowercase();
            equal(state.as_str(), "dead")
        }
        other => refused(other, &[GROUP_ID_NOT_FOUND]),
    }
}

pub(super) fn deletes_group(stage: &Stage<'_>) -> Outcome {
    let (topic, group, member) = group(stage)?;
    member.commit(&topic, 0, 1, "")?;
    member.leave()?;
    until("the group to be empty and go", || {
        match stage.subject.ask("drop_group", json!({"group": group})) {
            Ok(_) => Ok(true),
            Err(Trouble::Refused { code: Some(NON_EMPTY_GROUP), .. }) => Ok(false),
            Err(why) => Err(why),
        }
    })?;
    let left = committed(stage.peer, &group, &topic)?;
    ensure(left.is_empty(), || format!("{left:?}"))
}

pub(super) fn keeps_a_group_in_use(stage: &Stage<'_>) -> Outcome {
    let (_, group, member) = group(stage)?;
    refused(stage.subject.ask("drop_group", json!({"group": group})), &[NON_EMPTY_GROUP])?;
    member.leave()
}

pub(super) fn deletes_no_group(stage: &Stage<'_>) -> Outcome {
    refused(stage.subject.ask("drop_group", json!({"group": stage.name()})), &[GROUP_ID_NOT_FOUND])
}

pub(super) fn reads_group_offsets(stage: &Stage<'_>) -> Outcome {
    let (topic, group, member) = group(stage)?;
    member.commit(&topic, 1, 5, "")?;
    equal(committed(stage.subject, &group, &topic)?.get(&1).map(|at| at.0), Some(5))?;
    member.leave()
}

pub(super) fn sets_group_offsets(stage: &Stage<'_>) -> Outcome {
    let (topic, group) = (stage.topic(2)?, stage.name());
    stage.subject.ask("set_offsets", json!({"group": group, "topic": topic, "offsets": {"0": 4, "1": 0}}))?;
    let found = committed(stage.peer, &group, &topic)?;
    equal(found.values().map(|at| at.0).collect::<Vec<_>>(), vec![4, 0])
}
