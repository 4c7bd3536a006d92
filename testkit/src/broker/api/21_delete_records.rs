//! API 21, DeleteRecords: versions 0–2; −1 deletes up to the high watermark. Gaps: none known.

use std::ops::RangeInclusive;

use kafka_protocol::messages::delete_records_request::DeleteRecordsRequest;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsResponse, DeleteRecordsTopicResult,
};

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::{ApiKey, code};

pub(super) struct DeleteRecords;

impl Api for DeleteRecords {
    const KEY: ApiKey = ApiKey::DELETE_RECORDS;
    const VERSIONS: RangeInclusive<i16> = 0..=2;
    type Request = DeleteRecordsRequest;

    fn scope(_call: &Call, request: &DeleteRecordsRequest, scope: &mut Scope) {
        for topic in &request.topics {
            for partition in &topic.partitions {
                scope.partition(&topic.name, partition.partition_index);
            }
        }
    }

    async fn serve(call: &Call, request: DeleteRecordsRequest) -> Result<Answer, Refused> {
        let mut response = DeleteRecordsResponse::default().with_throttle_time_ms(call.throttle_ms());
        for asked in request.topics {
            let mut answered = DeleteRecordsTopicResult::default().with_name(asked.name.clone());
            for partition in asked.partitions {
                let index = partition.partition_index;
                let one = DeleteRecordsPartitionResult::default().with_partition_index(index);
                answered.partitions.push(match delete(call, &asked.name, index, partition.offset) {
                    Ok(start) => one.with_low_watermark(start),
                    Err(error) => one.with_error_code(call.noted(error)).with_low_watermark(-1),
                });
            }
            response.topics.push(answered);
        }
        call.encode(&response)
    }
}

fn delete(call: &Call, topic: &str, index: i32, offset: i64) -> Result<i64, i16> {
    if let Some(error) = call.fault_at(topic, index) {
        return Err(error);
    }
    let partition = call.led(call.shared.topic(topic).as_deref(), index, -1)?;
    let mut inner = partition.lock();
    let ends = inner.log.ends();
    let offset = if offset == -1 { ends.end } else { offset };
    if offset < 0 || offset > ends.end {
        return Err(code::OFFSET_OUT_OF_RANGE);
    }
    inner.log.delete_before(offset);
    inner.wake();
    Ok(inner.log.ends().start)
}
