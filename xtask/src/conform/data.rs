//! Behaviours of records: what is written is what is read, in which partition, in which order.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::agent::{Agent, Outcome, Trouble};
use super::stage::{
    Rec, Stage, ensure, equal, number, offsets_of, produce, put, read, refused, values, wrong,
};

const UNKNOWN_TOPIC_OR_PARTITION: i64 = 3;
const MESSAGE_TOO_LARGE: i64 = 10;
/// What clients say who look before they send: librdkafka's and kafka-python's own codes for the two above.
pub(super) const LOCAL_UNKNOWN: [i64; 3] = [UNKNOWN_TOPIC_OR_PARTITION, -188, -190];

/// One record written by the subject, read back by the peer and by the subject, which must agree.
fn there_and_back(stage: &Stage<'_>, record: Value) -> Result<Rec, Trouble> {
    let topic = stage.topic(1)?;
    produce(stage.subject, &topic, json!([record]), json!({}))?;
    let by_peer = read(stage.peer, &topic, 0, json!(0), 1)?;
    let by_subject = read(stage.subject, &topic, 0, json!(0), 1)?;
    equal(&by_subject, &by_peer)?;
    by_peer.into_iter().next().ok_or_else(|| wrong("no record"))
}

pub(super) fn null_key(stage: &Stage<'_>) -> Outcome {
    equal(there_and_back(stage, json!({"partition": 0, "key": null, "value": "v"}))?.key, None)
}

pub(super) fn null_value(stage: &Stage<'_>) -> Outcome {
    equal(there_and_back(stage, json!({"partition": 0, "key": "k", "value": null}))?.value, None)
}

pub(super) fn empty_value(stage: &Stage<'_>) -> Outcome {
    equal(there_and_back(stage, json!({"partition": 0, "key": "k", "value": ""}))?.value.as_deref(), Some(""))
}

pub(super) fn empty_key(stage: &Stage<'_>) -> Outcome {
    equal(there_and_back(stage, json!({"partition": 0, "key": "", "value": "v"}))?.key.as_deref(), Some(""))
}

pub(super) fn unicode(stage: &Stage<'_>) -> Outcome {
    let record = there_and_back(stage, json!({"partition": 0, "key": "ключ", "value": "数据 ✓ 😀"}))?;
    equal((record.key.as_deref(), record.value.as_deref()), (Some("ключ"), Some("数据 ✓ 😀")))
}

pub(super) fn headers(stage: &Stage<'_>) -> Outcome {
    let written = json!([["a", "1"], ["b", "2"], ["c", ""]]);
    let record =
        there_and_back(stage, json!({"partition": 0, "key": "k", "value": "v", "headers": written}))?;
    let expected = [("a", "1"), ("b", "2"), ("c", "")];
    equal(record.headers, expected.map(|(key, value)| (key.to_owned(), Some(value.to_owned()))).to_vec())
}

pub(super) fn repeated_headers(stage: &Stage<'_>) -> Outcome {
    let written = json!([["a", "1"], ["b", "2"], ["a", "3"]]);
    let record =
        there_and_back(stage, json!({"partition": 0, "key": "k", "value": "v", "headers": written}))?;
    let of_a = record.headers.iter().filter(|(key, _)| key == "a").map(|(_, value)| value.as_deref());
    equal(of_a.collect::<Vec<_>>(), vec![Some("1"), Some("3")])
}

pub(super) fn null_header(stage: &Stage<'_>) -> Outcome {
    let written = json!([["a", null]]);
    let record =
        there_and_back(stage, json!({"partition": 0, "key": "k", "value": "v", "headers": written}))?;
    equal(record.headers, vec![("a".to_owned(), None)])
}

pub(super) fn timestamp(stage: &Stage<'_>) -> Outcome {
    let at = 1_700_000_000_123_i64;
    equal(
        there_and_back(stage, json!({"partition": 0, "key": "k", "value": "v", "timestamp": at}))?.timestamp,
        at,
    )
}

pub(super) fn log_append_time(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic_with(1, &json!({"message.timestamp.type": "LogAppendTime"}))?;
    let record = json!([{"partition": 0, "key": "k", "value": "v", "timestamp": 1_000}]);
    produce(stage.subject, &topic, record, json!({}))?;
    for agent in [stage.peer, stage.subject] {
        let found = read(agent, &topic, 0, json!(0), 1)?;
        ensure(found.iter().all(|record| record.timestamp > 1_600_000_000_000), || format!("{found:?}"))?;
    }
    Ok(())
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("value {n} {}", "lorem ipsum ".repeat(n % 7))).collect()
}

fn compression(writer: &Agent, reader: &Agent, topic: &str, codec: &str) -> Outcome {
    let texts = numbered(200);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let records: Vec<Value> = texts.iter().map(|v| json!({"partition": 0, "key": "k", "value": v})).collect();
    produce(writer, topic, json!(records), json!({"compression": codec}))?;
    let found = read(reader, topic, 0, json!(0), 200)?;
    equal(values(&found), texts)?;
    equal(found.iter().map(|record| record.offset).collect::<Vec<_>>(), (0..200).collect())
}

macro_rules! codecs {
    ($($written:ident $read:ident $codec:literal;)*) => {$(
        pub(super) fn $written(stage: &Stage<'_>) -> Outcome {
            compression(stage.subject, stage.peer, &stage.topic(1)?, $codec)
        }
        pub(super) fn $read(stage: &Stage<'_>) -> Outcome {
            compression(stage.peer, stage.subject, &stage.topic(1)?, $codec)
        }
    )*};
}

codecs! {
    none_written none_read "none";
    gzip_written gzip_read "gzip";
    snappy_written snappy_read "snappy";
    lz4_written lz4_read "lz4";
    zstd_written zstd_read "zstd";
}

pub(super) fn a_thousand_in_order(stage: &Stage<'_>) -> Outcome {
    let (topic, texts) = (stage.topic(1)?, numbered(1_000));
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let offsets = put(stage.subject, &topic, 0, &texts)?;
    equal(offsets, (0..1_000).collect())?;
    equal(values(&read(stage.peer, &topic, 0, json!(0), 1_000)?), texts)
}

pub(super) fn offsets_returned(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(2)?;
    put(stage.peer, &topic, 1, &["a", "b"])?;
    let written =
        produce(stage.subject, &topic, json!([{"partition": 1, "key": "k", "value": "c"}]), json!({}))?;
    equal(offsets_of(&written)?, vec![2])?;
    equal(written.get(0).map(|row| number(row, "partition")), Some(1))
}

pub(super) fn keys_stay_together(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(5)?;
    let records: Vec<Value> =
        (0..100).map(|n| json!({"key": format!("key {}", n % 10), "value": n.to_string()})).collect();
    produce(stage.subject, &topic, json!(records), json!({}))?;
    let ends = stage.peer.ask("offsets", json!({"topic": topic, "at": "latest"}))?;
    let mut homes = BTreeSet::new();
    let mut total = 0;
    for partition in 0..5 {
        let count = ends.get(partition.to_string()).and_then(Value::as_u64).unwrap_or(0) as usize;
        let found =
            if count == 0 { Vec::new() } else { read(stage.peer, &topic, partition, json!(0), count)? };
        total += found.len();
        for key in found.iter().map(|record| record.key.clone()).collect::<BTreeSet<_>>() {
            let of_key = found.iter().filter(|record| record.key == key);
            let numbers: Vec<i64> = of_key.filter_map(|r| r.value.as_deref()?.parse().ok()).collect();
            ensure(numbers.is_sorted(), || format!("{key:?} is out of order: {numbers:?}"))?;
            ensure(homes.insert(key.clone()), || format!("{key:?} is in two partitions"))?;
        }
    }
    equal((total, homes.len()), (100, 10))
}

/// Where Java's client puts `key-0` to `key-11` among 7 partitions.
const MURMUR2: [i64; 12] = [0, 5, 4, 4, 5, 4, 5, 3, 4, 2, 3, 3];
/// Where librdkafka's `consistent` puts them: CRC-32 modulo 7.
const CRC32: [i64; 12] = [6, 0, 3, 5, 1, 4, 3, 0, 3, 3, 5, 3];

fn partitions_of_keys(stage: &Stage<'_>, partitioner: &str, expected: [i64; 12]) -> Outcome {
    let topic = stage.topic(7)?;
    let records: Vec<Value> = (0..12).map(|n| json!({"key": format!("key-{n}"), "value": "v"})).collect();
    let written = produce(stage.subject, &topic, json!(records), json!({"partitioner": partitioner}))?;
    let rows = written.as_array().into_iter().flatten();
    equal(rows.map(|row| number(row, "partition")).collect::<Vec<_>>(), expected.to_vec())
}

pub(super) fn murmur2(stage: &Stage<'_>) -> Outcome {
    partitions_of_keys(stage, "murmur2", MURMUR2)
}

pub(super) fn crc32(stage: &Stage<'_>) -> Outcome {
    partitions_of_keys(stage, "crc32", CRC32)
}

pub(super) fn large(stage: &Stage<'_>) -> Outcome {
    let (topic, value) = (stage.topic(1)?, "x".repeat(900_000));
    put(stage.subject, &topic, 0, &[&value])?;
    for agent in [stage.peer, stage.subject] {
        equal(
            read(agent, &topic, 0, json!(0), 1)?.first().and_then(|r| r.value.as_ref()).map(String::len),
            Some(900_000),
        )?;
    }
    Ok(())
}

pub(super) fn too_large(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic_with(1, &json!({"max.message.bytes": "2000"}))?;
    let value = (0..10_000).map(|n| char::from(b'a' + (n * n % 26) as u8)).collect::<String>();
    let record = json!([{"partition": 0, "key": "k", "value": value}]);
    refused(produce(stage.subject, &topic, record, json!({})), &[MESSAGE_TOO_LARGE])?;
    // And the next one goes through.
    equal(put(stage.subject, &topic, 0, &["small"])?, vec![0])
}

pub(super) fn larger_than_the_fetch(stage: &Stage<'_>) -> Outcome {
    let (topic, value) = (stage.topic(1)?, "y".repeat(200_000));
    put(stage.peer, &topic, 0, &[&value, "after"])?;
    let fields = json!({"topic": topic, "partition": 0, "offset": 0, "count": 2, "max_bytes": 10_000});
    let found = super::stage::records(&stage.subject.ask("read", fields)?);
    equal(found.iter().map(|r| r.value.as_ref().map_or(0, String::len)).collect::<Vec<_>>(), vec![200_000, 5])
}

pub(super) fn acks_0(stage: &Stage<'_>) -> Outcome {
    acks(stage, 0)
}

pub(super) fn acks_1(stage: &Stage<'_>) -> Outcome {
    acks(stage, 1)
}

fn acks(stage: &Stage<'_>, acks: i64) -> Outcome {
    let topic = stage.topic(1)?;
    let records =
        json!([{"partition": 0, "key": "k", "value": "a"}, {"partition": 0, "key": "k", "value": "b"}]);
    produce(stage.subject, &topic, records, json!({"acks": acks}))?;
    equal(values(&read(stage.peer, &topic, 0, json!(0), 2)?), vec!["a", "b"])
}

pub(super) fn idempotent(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(3)?;
    let records: Vec<Value> =
        (0..300).map(|n| json!({"partition": n % 3, "key": "k", "value": n.to_string()})).collect();
    produce(stage.subject, &topic, json!(records), json!({"idempotent": true}))?;
    for partition in 0..3 {
        let found = read(stage.peer, &topic, partition, json!(0), 100)?;
        let numbers: Vec<i64> = found.iter().filter_map(|r| r.value.as_deref()?.parse().ok()).collect();
        equal(numbers, (0..100).map(|n| n * 3 + partition).collect())?;
    }
    Ok(())
}

pub(super) fn missing_topic(stage: &Stage<'_>) -> Outcome {
    let (topic, record) = (stage.name(), json!([{"key": "k", "value": "v"}]));
    match produce(stage.subject, &topic, record, json!({"ms": 2500})) {
        // Java's and kafka-python's words for a topic that no broker has shown them in time.
        Err(Trouble::Refused { text, .. }) if text.contains("metadata after") => {}
        other => refused(other, &LOCAL_UNKNOWN)?,
    }
    let known = stage.peer.ask("topics", json!({}))?;
    ensure(known.get(&topic).is_none(), || "asking for the topic has created it".to_owned())
}

pub(super) fn missing_partition(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(2)?;
    let record = json!([{"partition": 7, "key": "k", "value": "v"}]);
    let result = produce(stage.subject, &topic, record, json!({"ms": 2500}));
    ensure(matches!(result, Err(Trouble::Refused { .. })), || format!("{result:?}"))?;
    equal(put(stage.subject, &topic, 1, &["v"])?, vec![0])
}

pub(super) fn many_partitions(stage: &Stage<'_>) -> Outcome {
    let topic = stage.topic(40)?;
    let records: Vec<Value> =
        (0..120).map(|n| json!({"partition": n % 40, "key": "k", "value": n.to_string()})).collect();
    let written = produce(stage.subject, &topic, json!(records), json!({}))?;
    equal(offsets_of(&written)?, (0..120).map(|n| n / 40).collect())?;
    let ends = stage.subject.ask("offsets", json!({"topic": topic, "at": "latest"}))?;
    equal(ends.as_object().map(|all| all.values().filter(|end| end.as_i64() == Some(3)).count()), Some(40))
}
