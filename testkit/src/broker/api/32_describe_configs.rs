//! API 32, DescribeConfigs: versions 1–4, for topics (2), brokers (4) and groups (32).
//!
//! The settings listed here are the ones this broker knows. Of them `max.message.bytes` and `message.timestamp.type`
//! have an effect. Gaps: no documentation; synonyms are empty.

use std::ops::RangeInclusive;
use std::time::Duration;

use kafka_protocol::messages::describe_configs_request::{DescribeConfigsRequest, DescribeConfigsResource};
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResponse, DescribeConfigsResult,
};
use kafka_protocol::protocol::StrBytes;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::state::{HEARTBEAT_INTERVAL, SESSION_TIMEOUT};
use crate::broker::topics::{Topic, lock};
use crate::broker::{ApiKey, code};

/// A setting of the topic itself.
const FROM_TOPIC: i8 = 1;
/// A setting of the group itself.
const FROM_GROUP: i8 = 8;
/// A default.
const FROM_DEFAULT: i8 = 5;

/// Topic settings with their defaults and types (2 text, 1 boolean, 5 long, 3 int, 7 list, 6 double).
const TOPIC_CONFIGS: &[(&str, &str, i8)] = &[
    ("cleanup.policy", "delete", 7),
    ("compression.type", "producer", 2),
    ("delete.retention.ms", "86400000", 5),
    ("max.message.bytes", "1048588", 3),
    ("message.timestamp.type", "CreateTime", 2),
    ("min.cleanable.dirty.ratio", "0.5", 6),
    ("min.compaction.lag.ms", "0", 5),
    ("min.insync.replicas", "1", 3),
    ("retention.bytes", "-1", 5),
    ("retention.ms", "604800000", 5),
    ("segment.bytes", "1073741824", 3),
    ("segment.ms", "604800000", 5),
    ("unclean.leader.election.enable", "false", 1),
];

pub(super) struct DescribeConfigs;

impl Api for DescribeConfigs {
    const KEY: ApiKey = ApiKey::DESCRIBE_CONFIGS;
    const VERSIONS: RangeInclusive<i16> = 1..=4;
    type Request = DescribeConfigsRequest;

    fn scope(_call: &Call, request: &DescribeConfigsRequest, scope: &mut Scope) {
        for resource in request.resources.iter().filter(|resource| resource.resource_type == 2) {
            scope.topic(&resource.resource_name);
        }
    }

    async fn serve(call: &Call, request: DescribeConfigsRequest) -> Result<Answer, Refused> {
        let mut response = DescribeConfigsResponse::default().with_throttle_time_ms(call.throttle_ms());
        for resource in request.resources {
            response.results.push(describe(call, resource));
        }
        call.encode(&response)
    }
}

fn describe(call: &Call, resource: DescribeConfigsResource) -> DescribeConfigsResult {
    let found = match (call.fault_at(&resource.resource_name, -1), resource.resource_type) {
        (Some(error), _) => Err(error),
        (None, 2) => match call.shared.topic(&resource.resource_name) {
            Some(topic) => Ok(topic_configs(call, &topic)),
            None => Err(code::UNKNOWN_TOPIC_OR_PARTITION),
        },
        (None, 4) => Ok(broker_configs(call)),
        (None, 32) => Ok(group_configs(call, &resource.resource_name)),
        (None, _) => Err(code::INVALID_REQUEST),
    };
    let mut result = DescribeConfigsResult::default()
        .with_error_message(None)
        .with_resource_type(resource.resource_type)
        .with_resource_name(resource.resource_name);
    let configs = match found {
        Ok(configs) => configs,
        Err(error) => return result.with_error_code(call.noted(error)),
    };
    let wanted = resource.configuration_keys;
    for (name, value, source) in configs {
        if wanted.as_ref().is_some_and(|wanted| !wanted.iter().any(|one| one.as_str() == name)) {
            continue;
        }
        let mut one = DescribeConfigsResourceResult::default()
            .with_name(StrBytes::from_static_str(name))
            .with_value(Some(StrBytes::from_string(value)))
            .with_documentation(None)
            .with_config_source(source);
        if call.version >= 3 {
            one.config_type = TOPIC_CONFIGS.iter().find(|known| known.0 == name).map_or(2, |known| known.2);
        }
        result.configs.push(one);
    }
    result
}

/// Name, value and source of every setting of a topic.
pub(super) fn topic_configs(call: &Call, topic: &Topic) -> Vec<(&'static str, String, i8)> {
    let own = lock(&topic.configs).clone();
    let default = |name: &str, value: &str| match name {
        "max.message.bytes" => call.shared.limits().batch_bytes.to_string(),
        _ => value.to_owned(),
    };
    let one = |(name, value, _): &(&'static str, &str, i8)| match own.get(*name) {
        Some(own) => (*name, own.clone(), FROM_TOPIC),
        None => (*name, default(name, value), FROM_DEFAULT),
    };
    TOPIC_CONFIGS.iter().map(one).collect()
}

fn group_configs(call: &Call, group: &str) -> Vec<(&'static str, String, i8)> {
    let (own, times) = (call.shared.coordinator.settings(group), call.shared.group_times(group));
    let one = |(name, time): (&'static str, Duration)| {
        let source = if own.contains_key(name) { FROM_GROUP } else { FROM_DEFAULT };
        (name, time.as_millis().to_string(), source)
    };
    [(HEARTBEAT_INTERVAL, times.heartbeat), (SESSION_TIMEOUT, times.session)].into_iter().map(one).collect()
}

fn broker_configs(call: &Call) -> Vec<(&'static str, String, i8)> {
    let config = &call.shared.config;
    vec![
        ("auto.create.topics.enable", config.auto_create.is_some().to_string(), FROM_DEFAULT),
        (
            "group.initial.rebalance.delay.ms",
            config.initial_rebalance_delay.as_millis().to_string(),
            FROM_DEFAULT,
        ),
        ("message.max.bytes", config.limits.batch_bytes.to_string(), FROM_DEFAULT),
        ("num.partitions", config.default_partitions.to_string(), FROM_DEFAULT),
    ]
}

/// Whether a topic setting exists and its value can be one.
pub(super) fn check_topic_config(name: &str, value: &str) -> Result<(), String> {
    let Some((_, _, kind)) = TOPIC_CONFIGS.iter().find(|known| known.0 == name) else {
        return Err(format!("unknown topic config name: {name}"));
    };
    let fits = match kind {
        1 => matches!(value, "true" | "false"),
        3 | 5 => value.parse::<i64>().is_ok(),
        6 => value.parse::<f64>().is_ok(),
        _ => match name {
            "message.timestamp.type" => matches!(value, "CreateTime" | "LogAppendTime"),
            "cleanup.policy" => value.split(',').all(|part| matches!(part.trim(), "delete" | "compact")),
            _ => !value.is_empty(),
        },
    };
    if fits { Ok(()) } else { Err(format!("invalid value {value:?} for configuration {name}")) }
}
