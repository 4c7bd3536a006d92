//! How are topics, groups and the journal written in JSON? Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::Cluster;
use crate::broker::Entry;
use crate::broker::batch::Record;
use crate::broker::group::GroupView;

pub(super) fn cluster(cluster: &Cluster) -> Value {
    let addresses = cluster.tcp_bootstrap();
    let broker =
        |id: i32| json!({ "id": id, "up": cluster.is_up(id), "rack": cluster.shared.config.rack(id) });
    json!({
        "bootstrap": addresses,
        "brokers": cluster.brokers().into_iter().map(broker).collect::<Vec<_>>(),
        "topics": cluster.topics().len(),
        "groups": cluster.groups().len(),
        "requests": cluster.request_count(),
        "violations": cluster.violations().len(),
    })
}

/// A topic with its partitions; `None` when there is none of this name.
pub(super) fn topic(cluster: &Cluster, name: &str) -> Option<Value> {
    let partitions = (0..cluster.partitions(name)?).filter_map(|index| partition(cluster, name, index));
    let id = cluster.topic_id(name)?.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Some(json!({ "name": name, "id": id, "partitions": partitions.collect::<Vec<_>>() }))
}

pub(super) fn partition(cluster: &Cluster, name: &str, index: i32) -> Option<Value> {
    let end = cluster.log_end(name, index)?;
    Some(json!({
        "partition": index,
        "leader": cluster.leader(name, index)?,
        "start": end.start,
        "end": end.end,
        "last_stable": end.stable,
    }))
}

/// Bytes as text where they are text, else as base64 under another name.
fn bytes(name: &str, bytes: Option<&Bytes>) -> (String, Value) {
    let Some(bytes) = bytes else { return (name.to_owned(), Value::Null) };
    match std::str::from_utf8(bytes) {
        Ok(text) => (name.to_owned(), json!(text)),
        Err(_) => (format!("{name}_base64"), json!(BASE64.encode(bytes))),
    }
}

pub(super) fn record(record: &Record) -> Value {
    let headers: Vec<Value> = record
        .headers
        .iter()
        .map(|(name, value)| {
            let pair = [bytes("name", Some(name)), bytes("value", value.as_ref())];
            Value::Object(pair.into_iter().collect())
        })
        .collect();
    let mut fields = serde_json::Map::new();
    fields.insert("offset".to_owned(), json!(record.offset));
    fields.insert("timestamp".to_owned(), json!(record.timestamp));
    fields.extend([bytes("key", record.key.as_ref()), bytes("value", record.value.as_ref())]);
    fields.insert("headers".to_owned(), json!(headers));
    Value::Object(fields)
}

pub(super) fn group(name: &str, group: &GroupView) -> Value {
    let members: Vec<Value> = group
        .members
        .iter()
        .map(|(id, member)| {
            json!({
                "id": id,
                "client": member.client_id,
                "instance": member.instance,
                "rack": member.rack,
                "epoch": member.epoch,
            })
        })
        .collect();
    let offsets: Vec<Value> = group
        .offsets
        .iter()
        .map(|((topic, partition), committed)| {
            let (offset, metadata) = (committed.offset, &committed.metadata);
            json!({ "topic": &**topic, "partition": partition, "offset": offset, "metadata": metadata })
        })
        .collect();
    json!({
        "group": name,
        "protocol": group.protocol,
        "state": group.state,
        "generation": group.generation,
        "members": members,
        "offsets": offsets,
    })
}

pub(super) fn request(entry: &Entry) -> Value {
    json!({
        "sequence": entry.sequence,
        "broker": entry.broker,
        "connection": entry.connection,
        "client": &*entry.client_id,
        "api": entry.api.name(),
        "version": entry.version,
        "correlation": entry.correlation,
        "outcome": format!("{:?}", entry.outcome),
        "error": entry.error,
        "rule": entry.rule,
        "changed": entry.changed,
    })
}
