//! API 37, CreatePartitions: versions 0–3. Gaps: assignments only give counts.

use std::ops::RangeInclusive;

use kafka_protocol::messages::create_partitions_request::{CreatePartitionsRequest, CreatePartitionsTopic};
use kafka_protocol::messages::create_partitions_response::{
    CreatePartitionsResponse, CreatePartitionsTopicResult,
};
use kafka_protocol::protocol::StrBytes;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::{ApiKey, code};

pub(super) struct CreatePartitions;

impl Api for CreatePartitions {
    const KEY: ApiKey = ApiKey::CREATE_PARTITIONS;
    const VERSIONS: RangeInclusive<i16> = 0..=3;
    type Request = CreatePartitionsRequest;

    fn scope(_call: &Call, request: &CreatePartitionsRequest, scope: &mut Scope) {
        for topic in &request.topics {
            scope.topic(&topic.name);
        }
    }

    async fn serve(call: &Call, request: CreatePartitionsRequest) -> Result<Answer, Refused> {
        let mut response = CreatePartitionsResponse::default().with_throttle_time_ms(call.throttle_ms());
        for topic in request.topics {
            let mut result = CreatePartitionsTopicResult::default();
            if let Err((error, why)) = grow(call, &topic, request.validate_only) {
                result.error_code = call.noted(error);
                result.error_message = Some(StrBytes::from_string(why));
            }
            response.results.push(result.with_name(topic.name));
        }
        call.encode(&response)
    }
}

fn grow(call: &Call, asked: &CreatePartitionsTopic, validate_only: bool) -> Result<(), (i16, String)> {
    if let Some(error) = call.fault_at(&asked.name, -1) {
        return Err((error, "a rule of the test".to_owned()));
    }
    let topic = call
        .shared
        .topic(&asked.name)
        .ok_or_else(|| (code::UNKNOWN_TOPIC_OR_PARTITION, format!("no topic {}", asked.name.as_str())))?;
    let bound = i32::try_from(call.shared.limits().partitions).unwrap_or(i32::MAX);
    if asked.count <= topic.count() || asked.count > bound {
        let why = format!("{} partitions; the topic has {} and may have {bound}", asked.count, topic.count());
        return Err((code::INVALID_PARTITIONS, why));
    }
    if !validate_only {
        call.shared.add_partitions(&topic, asked.count, &call.shared.alive());
    }
    Ok(())
}
