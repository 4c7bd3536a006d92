//! Behaviours of readers: where reading starts, what it leaves out, how long it waits, and where a log begins and ends.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::agent::{Agent, Outcome, Trouble};
use super::stage::{Rec, Stage, ensure, equal, produce, put, read, read_for, records, until, values, wrong};

pub(super) fn in_the_middle(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    put(stage.peer, &topic, 0, &["a", "b", "c", "d", "e"])?;
    let found = read(stage.subject, &topic, 0, json!(3), 2)?;
    equal((values(&found), found.first().map(|record| record.offset)), (vec!["d", "e"], Some(3)))
}

pub(super) fn from_earliest(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    put(stage.peer, &topic, 0, &["a", "b"])?;
    equal(values(&read(stage.subject, &topic, 0, json!("earliest"), 2)?), vec!["a", "b"])
}

/// The reader waits in one thread while the writer writes in this one.
fn while_reading(
    stage: &Stage<'_>,
    fields: Value,
    mut write: impl FnMut() -> Outcome,
) -> Result<(Vec<Rec>, Duration), Trouble> {
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| stage.subject.ask("read", fields));
        std::thread::sleep(Duration::from_millis(1_000));
        let mut first = None;
        while !reading.is_finished() {
            write()?;
            first.get_or_insert_with(Instant::now);
            std::thread::sleep(Duration::from_millis(200));
        }
        let found = reading.join().map_err(|_| wrong("the reading thread panicked"))??;
        Ok((records(&found), first.map_or(Duration::MAX, |first| first.elapsed())))
    })
}

pub(super) fn from_latest(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    put(stage.peer, &topic, 0, &["old", "old"])?;
    let fields = json!({"topic": topic, "partition": 0, "offset": "latest", "count": 1, "ms": 20_000});
    let (found, _) = while_reading(stage, fields, || put(stage.peer, &topic, 0, &["new"]).map(drop))?;
    ensure(!found.is_empty() && values(&found).iter().all(|value| *value == "new"), || format!("{found:?}"))
}

pub(super) fn long_poll(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    let fields = json!({"topic": topic, "partition": 0, "offset": 0, "count": 1, "ms": 20_000});
    let (found, took) = while_reading(stage, fields, || put(stage.peer, &topic, 0, &["now"]).map(drop))?;
    equal(values(&found).first().copied(), Some("now"))?;
    ensure(took < Duration::from_secs(5), || format!("a waiting reader got its record after {took:?}"))
}

pub(super) fn nothing_there(stage: &Stage<'_>) -> Outcome {
    let (topic, start) = (stage.topic(1)?, Instant::now());
    equal(read_for(stage.subject, &topic, false, 1_000)?, Vec::new())?;
    ensure(start.elapsed() < Duration::from_secs(8), || "reading for 1 s took over 8 s".to_owned())
}

pub(super) fn out_of_range(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    put(stage.peer, &topic, 0, &["a", "b"])?;
    equal(values(&read(stage.subject, &topic, 0, json!(1_000), 2)?), vec!["a", "b"])
}

pub(super) fn after_trimming(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    put(stage.peer, &topic, 0, &["a", "b", "c", "d"])?;
    stage.peer.ask("trim", json!({"topic": topic, "partition": 0, "offset": 2}))?;
    let found = read(stage.subject, &topic, 0, json!("earliest"), 2)?;
    equal((values(&found), found.first().map(|record| record.offset)), (vec!["c", "d"], Some(2)))
}

pub(super) fn below_the_start(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    put(stage.peer, &topic, 0, &["a", "b", "c", "d"])?;
    stage.peer.ask("trim", json!({"topic": topic, "partition": 0, "offset": 3}))?;
    equal(values(&read(stage.subject, &topic, 0, json!(0), 1)?), vec!["d"])
}

pub(super) fn recreated(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    put(stage.subject, &topic, 0, &["old", "old", "old"])?;
    equal(read(stage.subject, &topic, 0, json!(0), 3)?.len(), 3)?;
    stage.peer.ask("delete", json!({"topic": topic}))?;
    until("the topic to go", || Ok(stage.peer.ask("topics", json!({}))?.get(&topic).is_none()))?;
    (stage.create)(stage.peer, &topic, 1, &json!({}))?;
    // Brokers and clients may know the old one for a moment: the write is repeated until it counts.
    until("the first offset of the new topic", || Ok(put(stage.subject, &topic, 0, &["new"]).is_ok()))?;
    equal(values(&read(stage.subject, &topic, 0, json!("earliest"), 1)?).first().copied(), Some("new"))
}

fn offset_at(agent: &Agent, topic: &str, at: Value) -> Result<Option<i64>, Trouble> {
    let found = agent.ask("offsets", json!({"topic": topic, "at": at}))?;
    Ok(found.get("0").and_then(Value::as_i64))
}

pub(super) fn latest_offset(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    equal(offset_at(stage.subject, &topic, json!("latest"))?, Some(0))?;
    put(stage.peer, &topic, 0, &["a", "b", "c"])?;
    equal(offset_at(stage.subject, &topic, json!("latest"))?, Some(3))
}

pub(super) fn earliest_offset(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    put(stage.peer, &topic, 0, &["a", "b", "c"])?;
    equal(offset_at(stage.subject, &topic, json!("earliest"))?, Some(0))
}

pub(super) fn earliest_after_trimming(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(1)?;
    put(stage.peer, &topic, 0, &["a", "b", "c"])?;
    stage.peer.ask("trim", json!({"topic": topic, "partition": 0, "offset": 2}))?;
    equal(offset_at(stage.subject, &topic, json!("earliest"))?, Some(2))
}

fn dated(stage: &Stage<'_>) -> Result<String, Trouble> {
    let topic = stage.topic(1)?;
    for at in [1_700_000_001_000_i64, 1_700_000_002_000, 1_700_000_003_000] {
        let record = json!([{"partition": 0, "key": "k", "value": "v", "timestamp": at}]);
        produce(stage.peer, &topic, record, json!({}))?;
    }
    Ok(topic)
}

pub(super) fn offset_by_time(stage: &Stage<'_>) -> Outcome {
    let topic = dated(stage)?;
    for (at, expected) in [(1_700_000_001_000_i64, 0), (1_700_000_001_500, 1), (1_700_000_003_000, 2)] {
        equal(offset_at(stage.subject, &topic, json!(at))?, Some(expected))?;
    }
    Ok(())
}

pub(super) fn offset_in_the_future(stage: &Stage<'_>) -> Outcome {
    let topic = dated(stage)?;
    // None, or where the next record will be: what a client makes of "no such offset".
    let found = offset_at(stage.subject, &topic, json!(1_900_000_000_000_i64))?;
    ensure(matches!(found, None | Some(-1 | 3)), || format!("{found:?}"))
}
