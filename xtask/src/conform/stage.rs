//! What does a behaviour have at hand? The client under test, a second one to compare with, names of its own, and short
//! ways to ask and to compare.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::agent::{Agent, Outcome, Trouble};

/// For what must happen, on a machine that does other things besides.
const PATIENCE: Duration = Duration::from_secs(40);
/// For what is known to go wrong.
const LITTLE_PATIENCE: Duration = Duration::from_secs(6);

thread_local! {
    /// Each column has a thread of its own.
    static PATIENT: Cell<bool> = const { Cell::new(true) };
}

/// Whether the behaviour that comes next is given all the time it may need.
pub(super) fn be_patient(patient: bool) {
    PATIENT.set(patient);
}

/// How long to wait for a condition.
pub(super) fn patience() -> Duration {
    if PATIENT.get() { PATIENCE } else { LITTLE_PATIENCE }
}
pub(super) const UNSUPPORTED_VERSION: i64 = 35;
/// How long one poll of a member may wait.
const POLL_MS: u64 = 100;

/// Where a behaviour is played.
pub(super) struct Stage<'a> {
    /// The client under test.
    pub(super) subject: &'a Agent,
    /// Another client on the same cluster: librdkafka beside ours, ours beside the others.
    pub(super) peer: &'a Agent,
    /// It is: librdkafka's Python package reads past the end of a commit's metadata.
    pub(super) peer_is_ours: bool,
    /// Starts one more process of the client under test.
    pub(super) another: &'a dyn Fn() -> Result<Agent, String>,
    /// Makes a topic: by the peer, or by hand where the broker has no such request.
    pub(super) create: &'a dyn Fn(&Agent, &str, i64, &Value) -> Outcome,
    /// Brokers of the cluster.
    pub(super) brokers: usize,
    /// Distinguishes this behaviour's topics and groups from all others.
    pub(super) name: String,
    pub(super) counter: Cell<u32>,
}

/// A record as a client returns it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rec {
    pub(super) topic: String,
    pub(super) partition: i64,
    pub(super) offset: i64,
    pub(super) timestamp: i64,
    pub(super) key: Option<String>,
    pub(super) value: Option<String>,
    pub(super) headers: Vec<(String, Option<String>)>,
}

impl Stage<'_> {
    /// A name nobody else uses.
    pub(super) fn name(&self) -> String {
        self.counter.set(self.counter.get() + 1);
        format!("{}-{}", self.name, self.counter.get())
    }

    /// A new topic.
    pub(super) fn topic(&self, partitions: i64) -> Result<String, Trouble> {
        self.topic_with(partitions, &json!({}))
    }

    pub(super) fn topic_with(&self, partitions: i64, configs: &Value) -> Result<String, Trouble> {
        let name = self.name();
        (self.create)(self.peer, &name, partitions, configs)?;
        Ok(name)
    }
}

/// Writes `values` to one partition, in order; returns their offsets.
pub(super) fn put(agent: &Agent, topic: &str, partition: i64, values: &[&str]) -> Result<Vec<i64>, Trouble> {
    let records: Vec<Value> =
        values.iter().map(|value| json!({"partition": partition, "key": "k", "value": value})).collect();
    offsets_of(&produce(agent, topic, json!(records), json!({}))?)
}

/// Writes records as given, with more fields for the producer.
pub(super) fn produce(agent: &Agent, topic: &str, records: Value, more: Value) -> Result<Value, Trouble> {
    let mut fields = more;
    fields["topic"] = json!(topic);
    fields["records"] = records;
    agent.ask("produce", fields)
}

pub(super) fn offsets_of(written: &Value) -> Result<Vec<i64>, Trouble> {
    let rows = written.as_array().ok_or_else(|| wrong("produce returned no list"))?;
    Ok(rows.iter().map(|row| number(row, "offset")).collect())
}

/// Reads `count` records of one partition from `from`, which is an offset, "earliest" or "latest".
pub(super) fn read(
    agent: &Agent,
    topic: &str,
    partition: i64,
    from: Value,
    count: usize,
) -> Result<Vec<Rec>, Trouble> {
    let fields = json!({"topic": topic, "partition": partition, "offset": from, "count": count});
    let found = records(&agent.ask("read", fields)?);
    ensure(found.len() >= count, || format!("{} of {count} records of {topic}-{partition}", found.len()))?;
    Ok(found)
}

/// Everything from the beginning that comes within `ms`, at most 1,000 records.
pub(super) fn read_for(agent: &Agent, topic: &str, committed: bool, ms: u64) -> Result<Vec<Rec>, Trouble> {
    let fields = json!({"topic": topic, "partition": 0, "offset": "earliest", "count": 1000,
        "committed": committed, "ms": ms});
    Ok(records(&agent.ask("read", fields)?))
}

pub(super) fn records(rows: &Value) -> Vec<Rec> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let header = |pair: &Value| (text(pair.get(0)).unwrap_or_default(), text(pair.get(1)));
    let rows = rows.as_array().into_iter().flatten();
    rows.map(|row| Rec {
        topic: text(row.get("topic")).unwrap_or_default(),
        partition: number(row, "partition"),
        offset: number(row, "offset"),
        timestamp: number(row, "timestamp"),
        key: text(row.get("key")),
        value: text(row.get("value")),
        headers: row.get("headers").and_then(Value::as_array).into_iter().flatten().map(header).collect(),
    })
    .collect()
}

pub(super) fn number(row: &Value, field: &str) -> i64 {
    row.get(field).and_then(Value::as_i64).unwrap_or(-1)
}

/// The values of records, as text.
pub(super) fn values(records: &[Rec]) -> Vec<&str> {
    records.iter().map(|record| record.value.as_deref().unwrap_or("null")).collect()
}

pub(super) fn wrong(why: impl Into<String>) -> Trouble {
    Trouble::Wrong(why.into())
}

pub(super) fn ensure(holds: bool, why: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(Trouble::Wrong(why())) }
}

pub(super) fn equal<T: PartialEq + std::fmt::Debug>(got: T, expected: T) -> Outcome {
    ensure(got == expected, || format!("got {got:?}, expected {expected:?}"))
}

/// The operation must be refused with one of these codes.
pub(super) fn refused<T: std::fmt::Debug>(result: Result<T, Trouble>, codes: &[i64]) -> Outcome {
    match result {
        Err(Trouble::Refused { code: Some(code), .. }) if codes.contains(&code) => Ok(()),
        Err(Trouble::Lacks(what)) => Err(Trouble::Lacks(what)),
        // The broker does not offer the request: the client has said so.
        Err(Trouble::Refused { code: Some(UNSUPPORTED_VERSION), text }) => {
            Err(Trouble::Refused { code: Some(UNSUPPORTED_VERSION), text })
        }
        other => Err(wrong(format!("expected error {codes:?}, got {other:?}"))),
    }
}

/// Repeats a question until the answer is right.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> Result<bool, Trouble>) -> Outcome {
    let deadline = Instant::now() + patience();
    while !holds()? {
        ensure(Instant::now() < deadline, || format!("waited {} s for {what}", patience().as_secs()))?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A member of a group, run by one client.
pub(super) struct Member<'a> {
    agent: &'a Agent,
    name: String,
    pub(super) assigned: BTreeSet<(String, i64)>,
    pub(super) seen: Vec<Rec>,
}

impl<'a> Member<'a> {
    /// Joins; `more` says more of how.
    pub(super) fn join(
        agent: &'a Agent,
        name: &str,
        group: &str,
        topics: &[&str],
        more: &Value,
    ) -> Result<Member<'a>, Trouble> {
        let mut fields = json!({"member": name, "group": group, "topics": topics});
        for (field, value) in more.as_object().into_iter().flatten() {
            fields[field.as_str()] = value.clone();
        }
        agent.ask("join", fields)?;
        Ok(Member { agent, name: name.to_owned(), assigned: BTreeSet::new(), seen: Vec::new() })
    }

    /// Polls once, and commits what came.
    pub(super) fn poll(&mut self) -> Result<usize, Trouble> {
        self.poll_with(true)
    }

    pub(super) fn poll_with(&mut self, commit: bool) -> Result<usize, Trouble> {
        let answer = self.agent.ask("poll", json!({"member": self.name, "ms": POLL_MS, "commit": commit}))?;
        let pair = |row: &Value| Some((row.get(0)?.as_str()?.to_owned(), row.get(1)?.as_i64()?));
        let assigned = answer.get("assigned").and_then(Value::as_array).into_iter().flatten();
        self.assigned = assigned.filter_map(pair).collect();
        let new = records(answer.get("records").unwrap_or(&Value::Null));
        let count = new.len();
        self.seen.extend(new);
        Ok(count)
    }

    pub(super) fn leave(self) -> Outcome {
        self.agent.ask("leave", json!({"member": self.name})).map(drop)
    }

    pub(super) fn commit(
        &self,
        topic: &str,
        partition: i64,
        offset: i64,
        metadata: &str,
    ) -> Result<Value, Trouble> {
        let row = json!({"topic": topic, "partition": partition, "offset": offset, "metadata": metadata});
        self.agent.ask("commit", json!({"member": self.name, "offsets": [row]}))
    }

    pub(super) fn partitions(&self) -> Vec<i64> {
        self.assigned.iter().map(|(_, partition)| *partition).collect()
    }
}

/// Polls the members in turn until each owns its share: all partitions once, spread evenly over those who can have some.
pub(super) fn settle(members: &mut [&mut Member<'_>], partitions: usize) -> Outcome {
    let deadline = Instant::now() + patience();
    let most = partitions.div_ceil(members.len());
    loop {
        for member in members.iter_mut() {
            member.poll()?;
        }
        let all: BTreeSet<&(String, i64)> = members.iter().flat_map(|member| &member.assigned).collect();
        let count: usize = members.iter().map(|member| member.assigned.len()).sum();
        let fair = members.iter().all(|member| member.assigned.len() <= most);
        if all.len() == partitions && count == partitions && fair {
            return Ok(());
        }
        ensure(Instant::now() < deadline, || {
            let shares: Vec<_> = members.iter().map(|member| member.partitions()).collect();
            format!("the members do not share {partitions} partitions: {shares:?}")
        })?;
    }
}

/// Polls the members in turn until they have seen `count` different records of these topics.
pub(super) fn all_seen(members: &mut [&mut Member<'_>], count: usize) -> Outcome {
    let deadline = Instant::now() + patience();
    loop {
        for member in members.iter_mut() {
            member.poll()?;
        }
        let seen: BTreeSet<_> = members
            .iter()
            .flat_map(|member| &member.seen)
            .map(|r| (&r.topic, r.partition, r.offset))
            .collect();
        if seen.len() >= count {
            return equal(seen.len(), count);
        }
        ensure(Instant::now() < deadline, || format!("{} of {count} records", seen.len()))?;
    }
}

/// What a group has committed for a topic: offset and metadata by partition.
pub(super) fn committed(
    agent: &Agent,
    group: &str,
    topic: &str,
) -> Result<BTreeMap<i64, (i64, String)>, Trouble> {
    let found = agent.ask("committed", json!({"group": group, "topic": topic}))?;
    let rows = found.as_object().into_iter().flatten();
    Ok(rows
        .filter_map(|(partition, row)| {
            let metadata = row.get("metadata").and_then(Value::as_str).unwrap_or_default().to_owned();
            Some((partition.parse().ok()?, (number(row, "offset"), metadata)))
        })
        .filter(|(_, (offset, _))| *offset >= 0)
        .collect())
}
