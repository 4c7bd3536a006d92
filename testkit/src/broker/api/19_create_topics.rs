//! API 19, CreateTopics: versions 2–7.
//!
//! Partition count and replication factor with −1 defaults, manual assignments, configs, `validate_only`. Gaps: configs
//! are kept and described but only some mean anything (see `32_describe_configs.rs`); assignments only give counts.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::describe_configs::{check_topic_config, topic_configs};
use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::{ApiKey, code};

pub(super) struct CreateTopics;

impl Api for CreateTopics {
    const KEY: ApiKey = ApiKey::CREATE_TOPICS;
    const VERSIONS: RangeInclusive<i16> = 2..=7;
    type Request = CreateTopicsRequest;

    fn scope(_call: &Call, request: &CreateTopicsRequest, scope: &mut Scope) {
        for topic in &request.topics {
            scope.topic(&topic.name);
        }
    }

    async fn serve(call: &Call, request: CreateTopicsRequest) -> Result<Answer, Refused> {
        let mut response = CreateTopicsResponse::default().with_throttle_time_ms(call.throttle_ms());
        for topic in request.topics {
            let result = create(call, &topic, request.validate_only);
            response.topics.push(result.with_name(topic.name));
        }
        call.encode(&response)
    }
}

fn create(call: &Call, asked: &CreatableTopic, validate_only: bool) -> CreatableTopicResult {
    let failed = |(error, why): (i16, String)| {
        CreatableTopicResult::default()
            .with_error_code(call.noted(error))
            .with_error_message(Some(StrBytes::from_string(why)))
            .with_num_partitions(-1)
            .with_replication_factor(-1)
    };
    if let Some(error) = call.fault_at(&asked.name, -1) {
        return failed((error, "a rule of the test".to_owned()));
    }
    let mut configs = BTreeMap::new();
    for config in &asked.configs {
        let value = config.value.as_deref().unwrap_or_default();
        if let Err(why) = check_topic_config(&config.name, value) {
            return failed((code::INVALID_CONFIG, why));
        }
        configs.insert(config.name.to_string(), value.to_owned());
    }
    let (mut partitions, mut replication) = (asked.num_partitions, asked.replication_factor);
    if !asked.assignments.is_empty() {
        if partitions != -1 || replication != -1 {
            return failed((code::INVALID_REQUEST, "counts and assignments exclude each other".to_owned()));
        }
        partitions = i32::try_from(asked.assignments.len()).unwrap_or(i32::MAX);
        let replicas = asked.assignments.iter().map(|one| one.broker_ids.len()).max().unwrap_or(0);
        replication = i16::try_from(replicas).unwrap_or(i16::MAX);
        if replication == 0 {
            return failed((code::INVALID_REPLICA_ASSIGNMENT, "a partition has no replicas".to_owned()));
        }
    }
    let created = if validate_only {
        call.shared.check_topic(&asked.name, partitions, replication)
    } else {
        call.shared
            .create_topic(&asked.name, partitions, replication, configs)
            .map(|topic| (topic.id, topic.count(), topic.replication, topic_configs(call, &topic)))
    };
    match created {
        Err(error) => failed(error),
        Ok((id, partitions, replication, configs)) => {
            let mut result = CreatableTopicResult::default().with_error_message(None);
            if call.version >= 5 {
                result.num_partitions = partitions;
                result.replication_factor = replication;
                let described = |(name, value, source): (&'static str, String, i8)| {
                    CreatableTopicConfigs::default()
                        .with_name(StrBytes::from_static_str(name))
                        .with_value(Some(StrBytes::from_string(value)))
                        .with_config_source(source)
                };
                result.configs = Some(configs.into_iter().map(described).collect());
            }
            if call.version >= 7 {
                result.topic_id = Uuid::from_bytes(id);
            }
            result
        }
    }
}
