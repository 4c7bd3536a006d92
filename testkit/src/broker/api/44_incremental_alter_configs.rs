//! API 44, IncrementalAlterConfigs: versions 0–1, set (0) and delete (1) for topics and groups. Gaps: append and subtract of list
//! values are refused; broker settings cannot be changed.

use std::ops::RangeInclusive;

use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, IncrementalAlterConfigsRequest,
};
use kafka_protocol::messages::incremental_alter_configs_response::{
    AlterConfigsResourceResponse, IncrementalAlterConfigsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::describe_configs::check_topic_config;
use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::state::{HEARTBEAT_INTERVAL, SESSION_TIMEOUT};
use crate::broker::topics::lock;
use crate::broker::{ApiKey, code};

pub(super) struct IncrementalAlterConfigs;

impl Api for IncrementalAlterConfigs {
    const KEY: ApiKey = ApiKey::INCREMENTAL_ALTER_CONFIGS;
    const VERSIONS: RangeInclusive<i16> = 0..=1;
    type Request = IncrementalAlterConfigsRequest;

    fn scope(_call: &Call, request: &IncrementalAlterConfigsRequest, scope: &mut Scope) {
        for resource in request.resources.iter().filter(|resource| resource.resource_type == 2) {
            scope.topic(&resource.resource_name);
        }
    }

    async fn serve(call: &Call, request: IncrementalAlterConfigsRequest) -> Result<Answer, Refused> {
        let mut response =
            IncrementalAlterConfigsResponse::default().with_throttle_time_ms(call.throttle_ms());
        for resource in request.resources {
            let mut result = AlterConfigsResourceResponse::default().with_error_message(None);
            if let Err((error, why)) = alter(call, &resource, request.validate_only) {
                result.error_code = call.noted(error);
                result.error_message = Some(StrBytes::from_string(why));
            }
            let result = result.with_resource_type(resource.resource_type);
            response.responses.push(result.with_resource_name(resource.resource_name));
        }
        call.encode(&response)
    }
}

fn alter(call: &Call, resource: &AlterConfigsResource, validate_only: bool) -> Result<(), (i16, String)> {
    if let Some(error) = call.fault_at(&resource.resource_name, -1) {
        return Err((error, "a rule of the test".to_owned()));
    }
    let name = resource.resource_name.as_str();
    let topic = match resource.resource_type {
        2 => {
            let missing = || (code::UNKNOWN_TOPIC_OR_PARTITION, format!("no topic {name}"));
            Some(call.shared.topic(name).ok_or_else(missing)?)
        }
        32 => None,
        _ => {
            return Err((
                code::INVALID_REQUEST,
                "only settings of topics and groups can be changed".to_owned(),
            ));
        }
    };
    let check = if topic.is_some() { check_topic_config } else { check_group_config };
    let mut changed = match &topic {
        Some(topic) => lock(&topic.configs).clone(),
        None => call.shared.coordinator.settings(name),
    };
    for config in &resource.configs {
        let value = config.value.as_deref().unwrap_or_default();
        match config.config_operation {
            0 => {
                check(&config.name, value).map_err(|why| (code::INVALID_CONFIG, why))?;
                changed.insert(config.name.to_string(), value.to_owned());
            }
            1 => {
                changed.remove(config.name.as_str());
            }
            other => return Err((code::INVALID_REQUEST, format!("operation {other} is not served"))),
        }
    }
    if !validate_only {
        match topic {
            Some(topic) => *lock(&topic.configs) = changed,
            None => {
                let full = |error| (error, "too many groups have settings of their own".to_owned());
                call.shared.coordinator.set(name, changed).map_err(full)?;
            }
        }
    }
    Ok(())
}

/// Whether a group setting exists and its value can be one: a time above zero, in milliseconds.
fn check_group_config(name: &str, value: &str) -> Result<(), String> {
    if ![HEARTBEAT_INTERVAL, SESSION_TIMEOUT].contains(&name) {
        return Err(format!("unknown group config name: {name}"));
    }
    match value.parse::<u32>() {
        Ok(ms) if ms > 0 => Ok(()),
        _ => Err(format!("invalid value {value:?} for configuration {name}")),
    }
}
