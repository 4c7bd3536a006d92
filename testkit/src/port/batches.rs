//! What can be put into a log? Records, batches of a producer, the end of a transaction, and bytes as they are.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde_json::{Value, json};

use super::routes::{Answered, Refused, bad, missing};
use super::rules::Fields;
use crate::Cluster;
use crate::broker::batch::{KeyValue, NewBatch};

/// Offsets that one raw batch may take.
const OFFSETS: i64 = 1 << 31;
/// The bit of a batch that is part of a transaction.
const TRANSACTIONAL: i16 = 1 << 4;

/// One record, or a list of them.
pub(super) fn records(cluster: &Cluster, (topic, index): (&str, i32), body: Value) -> Answered {
    let records = pairs(body)?;
    let offset = cluster.append(topic, index, &borrowed(&records)).ok_or_else(|| missing("topic", topic))?;
    Ok(json!({ "offset": offset, "count": records.len() }))
}

/// One batch of a producer, perhaps in a transaction.
pub(super) fn batch(cluster: &Cluster, (topic, index): (&str, i32), body: Value) -> Answered {
    let mut fields = Fields::of(body).map_err(bad)?;
    let (producer_id, producer_epoch) = producer(&mut fields)?;
    let base_sequence = fields.number("sequence").map_err(bad)?.unwrap_or(0);
    let transactional = fields.flag("transactional").map_err(bad)?.unwrap_or(false);
    let timestamp = fields.number("timestamp").map_err(bad)?;
    let records = pairs(fields.take("records").unwrap_or_else(|| json!([])))?;
    fields.end("producer, epoch, sequence, transactional, timestamp and records").map_err(bad)?;
    let new = NewBatch {
        attributes: if transactional { TRANSACTIONAL } else { 0 },
        producer_id,
        producer_epoch,
        base_sequence,
        timestamp: timestamp.unwrap_or_else(|| cluster.shared.doors.clock.unix_millis()),
        records: &borrowed(&records),
    };
    let refused = || (409, format!("sequence {base_sequence} of producer {producer_id} is not the next one"));
    let offset = cluster.append_batch(topic, index, &new).ok_or_else(refused)?;
    Ok(json!({ "offset": offset, "count": records.len() }))
}

/// The marker that ends what a producer wrote here in a transaction.
pub(super) fn end_transaction(cluster: &Cluster, (topic, index): (&str, i32), body: Value) -> Answered {
    let mut fields = Fields::of(body).map_err(bad)?;
    let producer = producer(&mut fields)?;
    let commit = fields.flag("commit").map_err(bad)?.ok_or_else(|| bad("`commit` is true or false"))?;
    fields.end("producer, epoch and commit").map_err(bad)?;
    if cluster.end_transaction(topic, index, producer, commit) {
        Ok(json!({ "committed": commit }))
    } else {
        Err(missing("topic", topic))
    }
}

/// Bytes that nobody checks.
pub(super) fn raw(cluster: &Cluster, (topic, index): (&str, i32), body: Value) -> Answered {
    let mut fields = Fields::of(body).map_err(bad)?;
    let text = fields.text("base64").map_err(bad)?.ok_or_else(|| bad("`base64` is wanted"))?;
    let bytes = BASE64.decode(text).map_err(|why| bad(format!("`base64` is no base64: {why}")))?;
    let last: i64 =
        fields.number("last_offset").map_err(bad)?.ok_or_else(|| bad("`last_offset` is wanted"))?;
    fields.end("base64 and last_offset").map_err(bad)?;
    let end = cluster.log_end(topic, index).ok_or_else(|| missing("topic", topic))?.end;
    if last < end || last - end >= OFFSETS {
        return Err((409, format!("`last_offset` is from {end} to {}", end + OFFSETS - 1)));
    }
    if bytes.is_empty() || !cluster.append_raw(topic, index, Bytes::from(bytes), last) {
        return Err(bad("`base64` is empty"));
    }
    Ok(json!({ "end": last + 1 }))
}

fn producer(fields: &mut Fields) -> Result<(i64, i16), Refused> {
    let id = fields.number("producer").map_err(bad)?.ok_or_else(|| bad("`producer` is a producer id"))?;
    Ok((id, fields.number("epoch").map_err(bad)?.unwrap_or(0)))
}

type Pair = (Option<String>, Option<String>);

fn pairs(given: Value) -> Result<Vec<Pair>, Refused> {
    let given = match given {
        Value::Array(records) => records,
        one => vec![one],
    };
    if given.is_empty() {
        return Err(bad("no record is given"));
    }
    let pair = |one| {
        let mut fields = Fields::of(one)?;
        let pair = (fields.text("key")?, fields.text("value")?);
        fields.end("key and value")?;
        Ok(pair)
    };
    given.into_iter().map(pair).collect::<Result<_, String>>().map_err(bad)
}

fn borrowed(pairs: &[Pair]) -> Vec<KeyValue<'_>> {
    pairs
        .iter()
        .map(|(key, value)| (key.as_deref().map(str::as_bytes), value.as_deref().map(str::as_bytes)))
        .collect()
}
