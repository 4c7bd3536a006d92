//! What do Fetch requests and responses look like? Written by hand: records stay slices of the response's buffer, and
//! every count is checked against the bytes that are there.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::session::{Key, Params, SessionRequest};
use crate::conn::Body;
use crate::error::DecodeError;
use crate::produce::wire::{NodeEndpoint, current_leader, node_endpoints};
use crate::proto::ErrorCode;
use crate::types::{BrokerId, IsolationLevel, Topic, TopicId};
use crate::wire::{Reader, put_compact_len, put_string};

/// First version with the reader's rack and the follower it shall read from (KIP-392).
const RACKS: i16 = 11;
/// First version with compact strings and tagged fields, and with the epoch of the last record fetched (KIP-595).
const FLEXIBLE: i16 = 12;
/// First version that says where the log parts from what was read: at the end of that epoch.
pub(crate) const DIVERGING: i16 = FLEXIBLE;
/// First version that names topics by id (KIP-516).
pub(crate) const TOPIC_IDS: i16 = 13;
/// First version in which the replica is a tagged field (KIP-903).
const REPLICA_STATE: i16 = 15;
/// First version with the addresses of new leaders (KIP-951).
const NODE_ENDPOINTS: i16 = 16;

/// What a request asks for besides its partitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    /// How long the broker may wait for a first byte.
    pub(crate) max_wait: Duration,
    /// Bytes of records in the whole response; one batch may go over it.
    pub(crate) max_bytes: usize,
    pub(crate) isolation: IsolationLevel,
    /// Where we are: the leader may name a follower near us (KIP-392). Empty for the leader alone.
    pub(crate) rack: &'a str,
}

/// A Fetch request body (v10 to v17). From v13 on every partition needs its topic id.
pub(crate) fn request(version: i16, ask: Ask<'_>, session: &SessionRequest) -> Body {
    let flexible = version >= FLEXIBLE;
    let mut out = BytesMut::with_capacity(128 + 40 * session.send.len());
    if version < REPLICA_STATE {
        out.put_i32(-1);
    }
    out.put_i32(i32::try_from(ask.max_wait.as_millis()).unwrap_or(i32::MAX));
    out.put_i32(1);
    out.put_i32(i32::try_from(ask.max_bytes).unwrap_or(i32::MAX));
    out.put_i8(match ask.isolation {
        IsolationLevel::ReadUncommitted => 0,
        IsolationLevel::ReadCommitted => 1,
    });
    out.put_i32(session.id);
    out.put_i32(session.epoch);
    let sends = by_topic(&session.send, |(key, _)| key);
    put_len(&mut out, flexible, sends.len());
    for group in sends {
        put_topic(&mut out, version, group.first().map(|(key, _)| key));
        put_len(&mut out, flexible, group.len());
        for (key, params) in group {
            put_partition(&mut out, version, key, *params);
        }
        put_no_tags(&mut out, flexible);
    }
    let forgets = by_topic(&session.forget, |key| key);
    put_len(&mut out, flexible, forgets.len());
    for group in forgets {
        put_topic(&mut out, version, group.first());
        put_len(&mut out, flexible, group.len());
        group.iter().for_each(|key| out.put_i32(key.partition));
        put_no_tags(&mut out, flexible);
    }
    if version >= RACKS {
        put_string(&mut out, flexible, ask.rack);
    }
    put_no_tags(&mut out, flexible);
    Body::new(vec![out.freeze()])
}

/// Runs of one topic. The session sorts by topic, so each topic is one run.
fn by_topic<T>(items: &[T], key: impl Fn(&T) -> &Key) -> Vec<&[T]> {
    items.chunk_by(|a, b| (&key(a).topic, key(a).topic_id) == (&key(b).topic, key(b).topic_id)).collect()
}

fn put_topic(out: &mut BytesMut, version: i16, key: Option<&Key>) {
    if version >= TOPIC_IDS {
        out.put_slice(&key.and_then(|key| key.topic_id).map_or([0; 16], |id| id.0));
    } else {
        put_string(out, version >= FLEXIBLE, key.map_or("", |key| &key.topic));
    }
}

fn put_partition(out: &mut BytesMut, version: i16, key: &Key, params: Params) {
    out.put_i32(key.partition);
    out.put_i32(params.leader_epoch);
    out.put_i64(params.offset);
    if version >= FLEXIBLE {
        out.put_i32(params.last_epoch);
    }
    // A consumer has no log of its own, so no start of it.
    out.put_i64(-1);
    out.put_i32(i32::try_from(params.max_bytes).unwrap_or(i32::MAX));
    put_no_tags(out, version >= FLEXIBLE);
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

/// How a response names a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopicRef {
    Name(Topic),
    Id(TopicId),
}

/// A transaction that was aborted: records of this producer from this offset to its marker do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aborted {
    pub(crate) producer_id: i64,
    pub(crate) first_offset: i64,
}

/// One partition of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionData {
    pub(crate) topic: TopicRef,
    pub(crate) partition: i32,
    pub(crate) error: ErrorCode,
    pub(crate) high_watermark: i64,
    /// Where the oldest open transaction begins, or the high watermark; −1 when the broker does not say.
    pub(crate) last_stable: i64,
    pub(crate) aborted: Vec<Aborted>,
    /// A slice of the response.
    pub(crate) records: Bytes,
    /// Where this log and what we read part ways (KIP-595): epoch and its end offset.
    pub(crate) diverging: Option<(i32, i64)>,
    pub(crate) leader: Option<(BrokerId, i32)>,
    /// The follower to read from instead (KIP-392).
    pub(crate) preferred: Option<BrokerId>,
}

/// A Fetch response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) throttle: Duration,
    pub(crate) error: i16,
    pub(crate) session_id: i32,
    pub(crate) partitions: Vec<PartitionData>,
    pub(crate) nodes: Vec<NodeEndpoint>,
}

/// Reads a Fetch response body (v10 to v17).
///
/// # Errors
/// When a count or a length claims more than the bytes that remain.
pub(crate) fn response(version: i16, body: &Bytes) -> Result<Answer, DecodeError> {
    let mut reader = Reader::new(body, version >= FLEXIBLE);
    let throttle = reader.i32("throttle_time_ms")?;
    let mut answer = Answer {
        throttle: Duration::from_millis(u64::try_from(throttle).unwrap_or(0)),
        error: reader.i16("error_code")?,
        session_id: reader.i32("session_id")?,
        ..Answer::default()
    };
    for _ in 0..reader.count("topics", 3)? {
        let topic = if version >= TOPIC_IDS {
            TopicRef::Id(TopicId(reader.uuid("topic_id")?))
        } else {
            TopicRef::Name(Topic::from(reader.string("topic name")?))
        };
        for _ in 0..reader.count("partitions", 35)? {
            let partition = partition(&mut reader, version, &topic, body)?;
            answer.partitions.push(partition);
        }
        reader.skip_tags()?;
    }
    let mut nodes = Vec::new();
    reader.tags(|tag, value| {
        if tag == 0 && version >= NODE_ENDPOINTS {
            nodes = node_endpoints(value)?;
        }
        Ok(())
    })?;
    answer.nodes = nodes;
    Ok(answer)
}

fn partition(
    reader: &mut Reader<'_>,
    version: i16,
    topic: &TopicRef,
    body: &Bytes,
) -> Result<PartitionData, DecodeError> {
    let partition = reader.i32("partition")?;
    let error = ErrorCode(reader.i16("error_code")?);
    let high_watermark = reader.i64("high_watermark")?;
    let last_stable = reader.i64("last_stable_offset")?;
    reader.i64("log_start_offset")?;
    let mut aborted = Vec::new();
    for _ in 0..reader.count("aborted_transactions", 16)? {
        let producer_id = reader.i64("producer_id")?;
        let first_offset = reader.i64("first_offset")?;
        reader.skip_tags()?;
        aborted.push(Aborted { producer_id, first_offset });
    }
    let preferred = if version >= RACKS { reader.i32("preferred_read_replica")? } else { -1 };
    let records = reader.bytes("records", body)?;
    let (mut diverging, mut leader) = (None, None);
    reader.tags(|tag, value| {
        match tag {
            0 => diverging = diverging_epoch(value)?,
            1 => leader = current_leader(value)?,
            _ => {}
        }
        Ok(())
    })?;
    let topic = topic.clone();
    Ok(PartitionData {
        topic,
        partition,
        error,
        high_watermark,
        last_stable,
        aborted,
        records,
        diverging,
        leader,
        preferred: (preferred >= 0).then_some(BrokerId(preferred)),
    })
}

fn diverging_epoch(value: &[u8]) -> Result<Option<(i32, i64)>, DecodeError> {
    let mut reader = Reader::new(value, true);
    let (epoch, end) = (reader.i32("epoch")?, reader.i64("end_offset")?);
    reader.skip_tags()?;
    Ok((end >= 0).then_some((epoch, end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One partition with an aborted transaction, five bytes of records and a diverging epoch.
    fn answer() -> Vec<u8> {
        let mut body = BytesMut::new();
        body.put_i32(25);
        body.put_i16(0);
        body.put_i32(77);
        body.put_u8(2);
        body.put_slice(&[9; 16]);
        body.put_u8(2);
        body.put_i32(3);
        body.put_i16(0);
        body.put_i64(500);
        body.put_i64(499);
        body.put_i64(0);
        body.put_u8(2);
        body.put_i64(41);
        body.put_i64(42);
        body.put_u8(0);
        body.put_i32(-1);
        body.put_slice(&[6, 1, 2, 3, 4, 5]);
        body.put_slice(&[1, 0, 13]);
        body.put_i32(4);
        body.put_i64(90);
        body.put_slice(&[0, 0, 0]);
        body.to_vec()
    }

    #[test]
    fn records_are_slices_of_the_response() {
        let body = Bytes::from(answer());
        let answer = response(13, &body).expect("well formed");
        assert_eq!((answer.session_id, answer.throttle), (77, Duration::from_millis(25)));
        let [data] = &answer.partitions[..] else { panic!("{answer:?}") };
        assert_eq!(data.topic, TopicRef::Id(TopicId([9; 16])));
        assert_eq!((data.partition, data.high_watermark), (3, 500));
        assert_eq!(data.aborted, [Aborted { producer_id: 41, first_offset: 42 }]);
        assert_eq!(data.diverging, Some((4, 90)));
        assert_eq!(data.records.as_ref(), [1, 2, 3, 4, 5]);
        assert!(body.as_ptr_range().contains(&data.records.as_ptr()), "not copied");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn damage_is_an_error_and_never_a_panic(
            version in 10i16..18,
            cut in 0usize..120,
            flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut body = answer();
            for (at, value) in flips {
                let at = at.index(body.len());
                body[at] = value;
            }
            body.truncate(body.len().saturating_sub(cut));
            let _ = response(version, &Bytes::from(body));
        }
    }
}
