//! API 2, ListOffsets: versions 1–10.
//!
//! Earliest (−2), latest (−1, below open transactions for read_committed), largest timestamp (−3), local earliest (−4),
//! tiered latest (−5: there is no tier), and by timestamp. Gaps: version 0; nothing is ever tiered.

use std::ops::RangeInclusive;

use kafka_protocol::messages::list_offsets_request::ListOffsetsRequest;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::topics::Topic;
use crate::broker::{ApiKey, code};

pub(super) struct ListOffsets;

impl Api for ListOffsets {
    const KEY: ApiKey = ApiKey::LIST_OFFSETS;
    const VERSIONS: RangeInclusive<i16> = 1..=10;
    type Request = ListOffsetsRequest;

    fn scope(_call: &Call, request: &ListOffsetsRequest, scope: &mut Scope) {
        for topic in &request.topics {
            for partition in &topic.partitions {
                scope.partition(&topic.name, partition.partition_index);
            }
        }
    }

    async fn serve(call: &Call, request: ListOffsetsRequest) -> Result<Answer, Refused> {
        let mut response = ListOffsetsResponse::default();
        if call.version >= 2 {
            response.throttle_time_ms = call.throttle_ms();
        }
        let committed_only = request.isolation_level == 1;
        for asked in request.topics {
            let topic = call.shared.topic(&asked.name);
            let mut answered = ListOffsetsTopicResponse::default().with_name(asked.name.clone());
            for partition in asked.partitions {
                let epoch = if call.version >= 4 { partition.current_leader_epoch } else { -1 };
                let index = partition.partition_index;
                let one = ListOffsetsPartitionResponse::default().with_partition_index(index);
                let found = match call.fault_at(&asked.name, index) {
                    Some(error) => Err(error),
                    None => find(call, topic.as_deref(), index, epoch, partition.timestamp, committed_only),
                };
                answered.partitions.push(match found {
                    Ok((offset, timestamp, leader_epoch)) => {
                        let one = one.with_offset(offset).with_timestamp(timestamp);
                        if call.version >= 4 { one.with_leader_epoch(leader_epoch) } else { one }
                    }
                    Err(error) => one.with_error_code(call.noted(error)).with_offset(-1).with_timestamp(-1),
                });
            }
            response.topics.push(answered);
        }
        call.encode(&response)
    }
}

fn find(
    call: &Call,
    topic: Option<&Topic>,
    index: i32,
    client_epoch: i32,
    timestamp: i64,
    committed_only: bool,
) -> Result<(i64, i64, i32), i16> {
    let partition = call.led(topic, index, client_epoch)?;
    let inner = partition.lock();
    let log = &inner.log;
    let ends = log.ends();
    let corrupt = |_| code::CORRUPT_MESSAGE;
    let found = match timestamp {
        -1 => Some((if committed_only { ends.stable } else { ends.end }, -1)),
        -2 | -4 => Some((ends.start, -1)),
        -3 => log.at_max_timestamp().map_err(corrupt)?,
        -5 => None,
        0.. => log.at_timestamp(timestamp).map_err(corrupt)?,
        _ => return Err(code::UNSUPPORTED_VERSION),
    };
    Ok(match found {
        Some((offset, timestamp)) if timestamp == -1 && offset == ends.end => (offset, -1, inner.epoch),
        Some((offset, timestamp)) => (offset, timestamp, log.epoch_at(offset)),
        None => (-1, -1, -1),
    })
}
