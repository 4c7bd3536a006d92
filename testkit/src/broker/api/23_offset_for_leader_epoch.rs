//! API 23, OffsetForLeaderEpoch: versions 2–4 (KIP-320). Gaps: versions 0 and 1.

use std::ops::RangeInclusive;

use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderEpochRequest;
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};

use super::{Answer, Api, Call, Refused};
use crate::broker::ApiKey;
use crate::broker::control::Scope;

pub(super) struct OffsetForLeaderEpoch;

impl Api for OffsetForLeaderEpoch {
    const KEY: ApiKey = ApiKey::OFFSET_FOR_LEADER_EPOCH;
    const VERSIONS: RangeInclusive<i16> = 2..=4;
    type Request = OffsetForLeaderEpochRequest;

    fn scope(_call: &Call, request: &OffsetForLeaderEpochRequest, scope: &mut Scope) {
        for topic in &request.topics {
            for partition in &topic.partitions {
                scope.partition(&topic.topic, partition.partition);
            }
        }
    }

    async fn serve(call: &Call, request: OffsetForLeaderEpochRequest) -> Result<Answer, Refused> {
        let mut response = OffsetForLeaderEpochResponse::default().with_throttle_time_ms(call.throttle_ms());
        for asked in request.topics {
            let topic = call.shared.topic(&asked.topic);
            let mut answered = OffsetForLeaderTopicResult::default().with_topic(asked.topic.clone());
            for partition in asked.partitions {
                let index = partition.partition;
                let found = match call.fault_at(&asked.topic, index) {
                    Some(error) => Err(error),
                    None => call.led(topic.as_deref(), index, partition.current_leader_epoch),
                };
                let one = EpochEndOffset::default().with_partition(index);
                answered.partitions.push(match found {
                    Ok(found) => {
                        let (epoch, end) = found.lock().log.epoch_end(partition.leader_epoch);
                        one.with_leader_epoch(epoch).with_end_offset(end)
                    }
                    Err(error) => {
                        one.with_error_code(call.noted(error)).with_leader_epoch(-1).with_end_offset(-1)
                    }
                });
            }
            response.topics.push(answered);
        }
        call.encode(&response)
    }
}
