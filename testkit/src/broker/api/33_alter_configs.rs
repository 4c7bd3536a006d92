//! API 33, AlterConfigs: versions 0–2, for topics. Settings that a request leaves out go back to their defaults, which is
//! why clients were given API 44. Gaps: broker settings cannot be changed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use kafka_protocol::messages::alter_configs_request::{AlterConfigsRequest, AlterConfigsResource};
use kafka_protocol::messages::alter_configs_response::{AlterConfigsResourceResponse, AlterConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::describe_configs::check_topic_config;
use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::topics::lock;
use crate::broker::{ApiKey, code};

pub(super) struct AlterConfigs;

impl Api for AlterConfigs {
    const KEY: ApiKey = ApiKey::ALTER_CONFIGS;
    const VERSIONS: RangeInclusive<i16> = 0..=2;
    type Request = AlterConfigsRequest;

    fn scope(_call: &Call, request: &AlterConfigsRequest, scope: &mut Scope) {
        for resource in request.resources.iter().filter(|resource| resource.resource_type == 2) {
            scope.topic(&resource.resource_name);
        }
    }

    async fn serve(call: &Call, request: AlterConfigsRequest) -> Result<Answer, Refused> {
        let mut response = AlterConfigsResponse::default().with_throttle_time_ms(call.throttle_ms());
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
    if resource.resource_type != 2 {
        return Err((code::INVALID_REQUEST, "only settings of topics can be changed".to_owned()));
    }
    let missing =
        || (code::UNKNOWN_TOPIC_OR_PARTITION, format!("no topic {}", resource.resource_name.as_str()));
    let topic = call.shared.topic(&resource.resource_name).ok_or_else(missing)?;
    let mut wanted = BTreeMap::new();
    for config in &resource.configs {
        let value = config.value.as_deref().unwrap_or_default();
        check_topic_config(&config.name, value).map_err(|why| (code::INVALID_CONFIG, why))?;
        wanted.insert(config.name.to_string(), value.to_owned());
    }
    if !validate_only {
        *lock(&topic.configs) = wanted;
    }
    Ok(())
}
