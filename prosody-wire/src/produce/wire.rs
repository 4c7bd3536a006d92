//! What do Produce requests and responses look like? Written by hand: batches are referenced, never copied, and every
//! count of a response is checked against the bytes that are there.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use crate::conn::Body;
use crate::error::DecodeError;
use crate::proto::ErrorCode;
use crate::types::{BrokerId, Topic};
use crate::wire::{Reader, put_compact_len, put_string};

/// First version with compact strings and tagged fields.
const FLEXIBLE: i16 = 9;

/// One batch for one partition.
#[derive(Debug)]
pub(crate) struct PartitionBatch {
    pub(crate) partition: i32,
    pub(crate) batch: Bytes,
}

/// A Produce request body (v7 to v12) with acks = all. Partitions of a topic lie side by side.
pub(crate) fn request(version: i16, timeout: Duration, topics: &[(Topic, Vec<PartitionBatch>)]) -> Body {
    let flexible = version >= FLEXIBLE;
    let mut out = Segments::default();
    if flexible {
        out.head.put_u8(0);
    } else {
        out.head.put_i16(-1);
    }
    out.head.put_i16(-1);
    out.head.put_i32(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
    put_len(&mut out.head, flexible, topics.len());
    for (topic, partitions) in topics {
        put_string(&mut out.head, flexible, topic);
        put_len(&mut out.head, flexible, partitions.len());
        for PartitionBatch { partition, batch } in partitions {
            out.head.put_i32(*partition);
            put_len(&mut out.head, flexible, batch.len());
            out.reference(batch);
            put_no_tags(&mut out.head, flexible);
        }
        put_no_tags(&mut out.head, flexible);
    }
    put_no_tags(&mut out.head, flexible);
    out.finish()
}

#[derive(Default)]
struct Segments {
    head: BytesMut,
    done: Vec<Bytes>,
}

impl Segments {
    fn reference(&mut self, bytes: &Bytes) {
        self.done.push(self.head.split().freeze());
        self.done.push(bytes.clone());
    }

    fn finish(mut self) -> Body {
        self.done.push(self.head.freeze());
        Body::new(self.done)
    }
}

fn put_len(out: &mut BytesMut, flexible: bool, len: usize) {
    if flexible {
        put_compact_len(out, len);
    } else {
        out.put_i32(i32::try_from(len).unwrap_or(i32::MAX));
    }
}

fn put_no_tags(out: &mut BytesMut, flexible: bool) {
    if flexible {
        out.put_u8(0);
    }
}

/// What a broker says about one partition's batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionAnswer {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) error: ErrorCode,
    pub(crate) base_offset: i64,
    /// Set by the broker where the topic uses LogAppendTime.
    pub(crate) append_time: Option<i64>,
    /// The broker's own words about an error (v8).
    pub(crate) message: Option<String>,
    /// Who leads the partition now, with the leader epoch, when this broker does not (KIP-951, v10).
    pub(crate) leader: Option<(BrokerId, i32)>,
}

/// A node a response names beside its leaders (KIP-951).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeEndpoint {
    pub(crate) id: i32,
    pub(crate) host: String,
    pub(crate) port: i32,
    pub(crate) rack: Option<String>,
}

/// A Produce response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) partitions: Vec<PartitionAnswer>,
    pub(crate) throttle: Duration,
    pub(crate) nodes: Vec<NodeEndpoint>,
}

/// Reads a Produce response body (v7 to v12).
///
/// # Errors
/// When a count or a length claims more than the bytes that remain.
pub(crate) fn response(version: i16, body: &[u8]) -> Result<Answer, DecodeError> {
    let mut reader = Reader::new(body, version >= FLEXIBLE);
    let mut answer = Answer::default();
    // Name, partitions, tags.
    for _ in 0..reader.count("topics", 3)? {
        let topic = reader.string("topic name")?;
        for _ in 0..reader.count("partitions", 30)? {
            let partition = partition(&mut reader, version, topic)?;
            answer.partitions.push(partition);
        }
        reader.skip_tags()?;
    }
    let throttle = reader.i32("throttle_time_ms")?;
    answer.throttle = Duration::from_millis(u64::try_from(throttle).unwrap_or(0));
    let mut nodes = Vec::new();
    reader.tags(|tag, value| {
        if tag == 0 && version >= 10 {
            nodes = node_endpoints(value)?;
        }
        Ok(())
    })?;
    answer.nodes = nodes;
    Ok(answer)
}

fn partition(reader: &mut Reader<'_>, version: i16, topic: &str) -> Result<PartitionAnswer, DecodeError> {
    let partition = reader.i32("partition")?;
    let error = ErrorCode(reader.i16("error_code")?);
    let base_offset = reader.i64("base_offset")?;
    let append_time = reader.i64("log_append_time_ms")?;
    reader.i64("log_start_offset")?;
    let mut message = None;
    if version >= 8 {
        for _ in 0..reader.count("record_errors", 5)? {
            reader.i32("batch_index")?;
            let why = reader.nullable_string("batch_index_error_message")?;
            if message.is_none() {
                message = why.map(str::to_owned);
            }
            reader.skip_tags()?;
        }
        if let Some(text) = reader.nullable_string("error_message")? {
            message = Some(text.to_owned());
        }
    }
    let mut leader = None;
    reader.tags(|tag, value| {
        if tag == 0 && version >= 10 {
            leader = current_leader(value)?;
        }
        Ok(())
    })?;
    let append_time = (append_time >= 0).then_some(append_time);
    let topic = topic.to_owned();
    Ok(PartitionAnswer { topic, partition, error, base_offset, append_time, message, leader })
}

/// The `current_leader` tagged field of Produce and Fetch responses; `None` while there is no leader.
pub(crate) fn current_leader(value: &[u8]) -> Result<Option<(BrokerId, i32)>, DecodeError> {
    let mut reader = Reader::new(value, true);
    let (leader, epoch) = (reader.i32("leader_id")?, reader.i32("leader_epoch")?);
    reader.skip_tags()?;
    Ok((leader >= 0).then_some((BrokerId(leader), epoch)))
}

/// The `node_endpoints` tagged field of Produce and Fetch responses.
pub(crate) fn node_endpoints(value: &[u8]) -> Result<Vec<NodeEndpoint>, DecodeError> {
    let mut reader = Reader::new(value, true);
    let mut nodes = Vec::new();
    for _ in 0..reader.count("node_endpoints", 11)? {
        let id = reader.i32("node_id")?;
        let host = reader.string("host")?.to_owned();
        let port = reader.i32("port")?;
        let rack = reader.nullable_string("rack")?.map(str::to_owned);
        reader.skip_tags()?;
        nodes.push(NodeEndpoint { id, host, port, rack });
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One partition of one topic, NOT_LEADER_OR_FOLLOWER with the new leader and its address.
    fn moved() -> Vec<u8> {
        let mut body = BytesMut::new();
        body.put_slice(&[2, 2, b't', 2]);
        body.put_i32(3);
        body.put_i16(6);
        body.put_i64(-1);
        body.put_i64(-1);
        body.put_i64(-1);
        body.put_slice(&[1, 0, 1, 0, 9]);
        body.put_i32(2);
        body.put_i32(8);
        body.put_slice(&[0, 0]);
        body.put_i32(25);
        body.put_slice(&[1, 0, 14, 2]);
        body.put_i32(2);
        body.put_slice(&[3, b'b', b'2']);
        body.put_i32(9092);
        body.put_slice(&[0, 0]);
        body.to_vec()
    }

    #[test]
    fn a_new_leader_is_read_with_its_address() {
        let answer = response(10, &moved()).expect("well formed");
        assert_eq!(answer.throttle, Duration::from_millis(25));
        let [partition] = &answer.partitions[..] else { panic!("{answer:?}") };
        assert_eq!((partition.partition, partition.error), (3, ErrorCode::NOT_LEADER_OR_FOLLOWER));
        assert_eq!(partition.leader, Some((BrokerId(2), 8)));
        let node = NodeEndpoint { id: 2, host: "b2".to_owned(), port: 9092, rack: None };
        assert_eq!(answer.nodes, [node]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn damage_is_an_error_and_never_a_panic(
            version in 7i16..13,
            cut in 0usize..80,
            flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut body = moved();
            for (at, value) in flips {
                let at = at.index(body.len());
                body[at] = value;
            }
            body.truncate(body.len().saturating_sub(cut));
            let _ = response(version, &body);
        }
    }
}
