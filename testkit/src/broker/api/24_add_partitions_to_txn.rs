//! API 24, AddPartitionsToTxn: versions 0–3. Gaps: versions 4 and 5 are for brokers among themselves.

use std::ops::RangeInclusive;

use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnRequest;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResponse, AddPartitionsToTxnTopicResult,
};

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::{ApiKey, code};

pub(super) struct AddPartitionsToTxn;

impl Api for AddPartitionsToTxn {
    const KEY: ApiKey = ApiKey::ADD_PARTITIONS_TO_TXN;
    const VERSIONS: RangeInclusive<i16> = 0..=3;
    type Request = AddPartitionsToTxnRequest;

    fn scope(_call: &Call, request: &AddPartitionsToTxnRequest, scope: &mut Scope) {
        scope.group(&request.v3_and_below_transactional_id);
        for topic in &request.v3_and_below_topics {
            for partition in &topic.partitions {
                scope.partition(&topic.name, *partition);
            }
        }
    }

    async fn serve(call: &Call, request: AddPartitionsToTxnRequest) -> Result<Answer, Refused> {
        let mut response = AddPartitionsToTxnResponse::default().with_throttle_time_ms(call.throttle_ms());
        let id = request.v3_and_below_transactional_id.as_str();
        let producer = (request.v3_and_below_producer_id.0, request.v3_and_below_producer_epoch);
        let topics = &request.v3_and_below_topics;
        let asked = || {
            let of = |topic: &str, partitions: &[i32]| -> Vec<(String, i32)> {
                partitions.iter().map(|index| (topic.to_owned(), *index)).collect()
            };
            topics.iter().flat_map(move |topic| of(&topic.name, &topic.partitions))
        };
        let exists = |(topic, index): &(String, i32)| {
            call.shared.topic(topic).is_some_and(|topic| topic.partition(*index).is_some())
        };
        // All or nothing, as Kafka does: one that is missing keeps the others out.
        let all_exist = asked().all(|partition| exists(&partition));
        let joined = match call.coordinates(id) {
            Ok(()) if all_exist => {
                let joined = call.shared.join_transaction(id, producer, asked());
                joined.map_err(|error| call.fenced(error, 2))
            }
            other => other,
        };
        for topic in topics {
            let mut answered = AddPartitionsToTxnTopicResult::default().with_name(topic.name.clone());
            for index in &topic.partitions {
                let error = match (call.fault_at(&topic.name, *index), joined) {
                    (Some(fault), _) => fault,
                    (None, Err(error)) => error,
                    (None, Ok(())) if !exists(&(topic.name.to_string(), *index)) => {
                        code::UNKNOWN_TOPIC_OR_PARTITION
                    }
                    (None, Ok(())) if !all_exist => code::OPERATION_NOT_ATTEMPTED,
                    (None, Ok(())) => code::NONE,
                };
                call.noted(error);
                answered.results_by_partition.push(
                    AddPartitionsToTxnPartitionResult::default()
                        .with_partition_index(*index)
                        .with_partition_error_code(error),
                );
            }
            response.results_by_topic_v3_and_below.push(answered);
        }
        call.encode(&response)
    }
}
