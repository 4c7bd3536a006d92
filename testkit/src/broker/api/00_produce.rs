//! API 0, Produce: versions 3–13 are served, 0–13 advertised (librdkafka turns compression off without version 0; KIP-896).
//!
//! One batch of magic 2 per partition, CRC and counts checked, idempotence checked exactly, acks 0, 1 and −1, leader
//! hints (KIP-951), topic ids (13). Gaps: compacted topics accept records without keys; `min.insync.replicas` and the
//! timeout mean nothing, for every append reaches all replicas at once; transactional batches need no
//! AddPartitionsToTxn.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::produce_request::ProduceRequest;
use kafka_protocol::messages::produce_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::{Answer, Api, Call, Refused};
use crate::broker::batch;
use crate::broker::control::Scope;
use crate::broker::topics::Topic;
use crate::broker::{ApiKey, code};

pub(super) struct Produce;

/// What became of one partition.
struct Outcome {
    error: i16,
    base_offset: i64,
    append_time: i64,
    start: i64,
    message: Option<&'static str>,
    leader: Option<(i32, i32)>,
}

impl Outcome {
    fn error(error: i16) -> Outcome {
        Outcome { error, base_offset: -1, append_time: -1, start: -1, message: None, leader: None }
    }
}

impl Api for Produce {
    const KEY: ApiKey = ApiKey::PRODUCE;
    const VERSIONS: RangeInclusive<i16> = 3..=13;
    type Request = ProduceRequest;

    fn scope(call: &Call, request: &ProduceRequest, scope: &mut Scope) {
        for topic in &request.topic_data {
            let known = named(call, &topic.name, topic.topic_id.as_bytes());
            let name = known.as_ref().map_or(topic.name.as_str(), |known| &known.name);
            for partition in &topic.partition_data {
                scope.partition(name, partition.index);
            }
        }
    }

    async fn serve(call: &Call, request: ProduceRequest) -> Result<Answer, Refused> {
        let mut response = ProduceResponse::default().with_throttle_time_ms(call.throttle_ms());
        let mut leaders = Vec::new();
        let transaction = request.transactional_id.map(|id| id.to_string());
        for data in request.topic_data {
            let topic = named(call, &data.name, data.topic_id.as_bytes());
            let missing =
                if call.version >= 13 { code::UNKNOWN_TOPIC_ID } else { code::UNKNOWN_TOPIC_OR_PARTITION };
            let mut answered =
                TopicProduceResponse::default().with_name(data.name).with_topic_id(data.topic_id);
            for partition in data.partition_data {
                let outcome = match &topic {
                    _ if !(-1..=1).contains(&request.acks) => Outcome::error(code::INVALID_REQUIRED_ACKS),
                    None => Outcome::error(missing),
                    Some(topic)
                        if !call.shared.may_write(transaction.as_deref(), &topic.name, partition.index) =>
                    {
                        Outcome::error(code::INVALID_TXN_STATE)
                    }
                    Some(topic) => append(call, topic, partition.index, partition.records.as_ref()),
                };
                call.noted(outcome.error);
                let mut one = PartitionProduceResponse::default()
                    .with_index(partition.index)
                    .with_error_code(outcome.error)
                    .with_base_offset(outcome.base_offset)
                    .with_log_append_time_ms(outcome.append_time)
                    .with_log_start_offset(outcome.start);
                if call.version >= 8 {
                    one.error_message = outcome.message.map(StrBytes::from_static_str);
                }
                if let (10.., Some((leader, epoch))) = (call.version, outcome.leader) {
                    one.current_leader =
                        LeaderIdAndEpoch::default().with_leader_id(leader.into()).with_leader_epoch(epoch);
                    leaders.push(leader);
                }
                answered.partition_responses.push(one);
            }
            response.responses.push(answered);
        }
        leaders.sort_unstable();
        leaders.dedup();
        for leader in leaders {
            if let Some((host, port)) = call.shared.address(leader, call.transport) {
                let host = StrBytes::from_string(host);
                let endpoint = NodeEndpoint::default().with_node_id(leader.into()).with_host(host);
                response.node_endpoints.push(endpoint.with_port(i32::from(port)));
            }
        }
        if request.acks != 0 {
            return call.encode(&response);
        }
        let failed = |one: &PartitionProduceResponse| one.error_code != code::NONE;
        let any = response.responses.iter().flat_map(|topic| &topic.partition_responses).any(failed);
        // With acks = 0 there is no answer to put an error into: the connection is closed, as Kafka does.
        if any { Err(Refused) } else { Ok(None) }
    }
}

fn named(call: &Call, name: &str, id: &[u8; 16]) -> Option<Arc<Topic>> {
    if call.version >= 13 { call.shared.topic_by_id(id) } else { call.shared.topic(name) }
}

fn append(call: &Call, topic: &Topic, index: i32, records: Option<&Bytes>) -> Outcome {
    if let Some(error) = call.fault_at(&topic.name, index) {
        return Outcome::error(error);
    }
    let partition = match topic.partition(index) {
        Some(partition) => partition,
        None => return Outcome::error(code::UNKNOWN_TOPIC_OR_PARTITION),
    };
    let Some(records) = records else { return Outcome::error(code::INVALID_RECORD) };
    let header = match batch::check_produced(records) {
        Ok(header) if header.is_control() => return Outcome::error(code::INVALID_RECORD),
        Ok(header) => header,
        Err(error) => {
            let (error, message) = match error {
                batch::BatchError::Crc => (code::CORRUPT_MESSAGE, "the CRC of the batch does not match"),
                batch::BatchError::Length => (code::CORRUPT_MESSAGE, "one whole batch was expected"),
                batch::BatchError::Magic(_) => (code::INVALID_RECORD, "magic 2 was expected"),
                _ => (code::INVALID_RECORD, "count and last offset delta of the batch disagree"),
            };
            return Outcome { message: Some(message), ..Outcome::error(error) };
        }
    };
    let largest = topic.config("max.message.bytes").and_then(|text| text.parse().ok());
    if records.len() > largest.unwrap_or(call.shared.limits().batch_bytes) {
        return Outcome::error(code::MESSAGE_TOO_LARGE);
    }
    let append_time = topic.config("message.timestamp.type").as_deref() == Some("LogAppendTime");
    let now = if append_time { call.shared.doors.clock.unix_millis() } else { -1 };
    let timed = append_time.then(|| batch::with_append_time(records, now));
    let records = timed.as_ref().unwrap_or(records);
    let max_timestamp = if append_time { now } else { header.max_timestamp };
    let header = batch::Header { max_timestamp, ..header };

    let mut inner = partition.lock();
    if inner.leader != call.broker {
        let leader = Some((inner.leader, inner.epoch));
        return Outcome { leader, ..Outcome::error(code::NOT_LEADER_OR_FOLLOWER) };
    }
    let epoch = inner.epoch;
    match inner.log.append(records, &header, epoch, call.shared.config.unknown_producer) {
        Err(error) => Outcome { start: inner.log.ends().start, ..Outcome::error(error) },
        Ok(appended) => {
            if !appended.duplicate {
                call.shared.invariants.appended((&topic.name, topic.id), index, &header);
                inner.wake();
            }
            Outcome {
                error: code::NONE,
                base_offset: appended.base_offset,
                append_time: now,
                start: inner.log.ends().start,
                message: None,
                leader: None,
            }
        }
    }
}
