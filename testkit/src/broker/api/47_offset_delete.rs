//! API 47, OffsetDelete: version 0.
//!
//! Gaps: a group with members is refused as a whole; Kafka refuses only topics they subscribe to.

use std::ops::RangeInclusive;
use std::sync::Arc;

use kafka_protocol::messages::offset_delete_request::OffsetDeleteRequest;
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::topics::lock;
use crate::broker::{ApiKey, code};

pub(super) struct OffsetDelete;

impl Api for OffsetDelete {
    const KEY: ApiKey = ApiKey::OFFSET_DELETE;
    const VERSIONS: RangeInclusive<i16> = 0..=0;
    type Request = OffsetDeleteRequest;

    fn scope(_call: &Call, request: &OffsetDeleteRequest, scope: &mut Scope) {
        scope.group(&request.group_id);
    }

    async fn serve(call: &Call, request: OffsetDeleteRequest) -> Result<Answer, Refused> {
        let mut response = OffsetDeleteResponse::default().with_throttle_time_ms(call.throttle_ms());
        let group = request.group_id.as_str();
        let cell = match call.fault().or(call.coordinates(group).err()) {
            Some(error) => Err(error),
            None => call.shared.coordinator.find(group).ok_or(code::GROUP_ID_NOT_FOUND),
        };
        let cell = match cell {
            Ok(cell) => cell,
            Err(error) => return call.encode(&response.with_error_code(call.noted(error))),
        };
        let mut cell = lock(&cell);
        let busy = !cell.is_empty();
        for asked in request.topics {
            let name: Arc<str> = asked.name.as_str().into();
            let mut answered = OffsetDeleteResponseTopic::default().with_name(asked.name);
            for partition in asked.partitions {
                let index = partition.partition_index;
                let error = if busy { code::GROUP_SUBSCRIBED_TO_TOPIC } else { code::NONE };
                if !busy {
                    cell.offsets.remove(&(Arc::clone(&name), index));
                }
                let one = OffsetDeleteResponsePartition::default().with_partition_index(index);
                answered.partitions.push(one.with_error_code(call.noted(error)));
            }
            response.topics.push(answered);
        }
        call.encode(&response)
    }
}
