//! API 10, FindCoordinator: versions 0–6.
//!
//! Groups and transactional ids, one key (0–3) or several (4–6). Gaps: share groups (key type 2) are refused.

use std::ops::RangeInclusive;

use kafka_protocol::messages::BrokerId;
use kafka_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use kafka_protocol::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::{ApiKey, code};

pub(super) struct FindCoordinator;

impl Api for FindCoordinator {
    const KEY: ApiKey = ApiKey::FIND_COORDINATOR;
    const VERSIONS: RangeInclusive<i16> = 0..=6;
    type Request = FindCoordinatorRequest;

    fn scope(_call: &Call, request: &FindCoordinatorRequest, scope: &mut Scope) {
        scope.group(&request.key);
        for key in &request.coordinator_keys {
            scope.group(key);
        }
    }

    async fn serve(call: &Call, request: FindCoordinatorRequest) -> Result<Answer, Refused> {
        let mut response = FindCoordinatorResponse::default().with_error_message(None);
        if call.version >= 1 {
            response.throttle_time_ms = call.throttle_ms();
        }
        if call.version < 4 {
            let (error, id, host, port) = find(call, &request.key, request.key_type);
            response.error_code = error;
            response.node_id = BrokerId(id);
            response.host = StrBytes::from_string(host);
            response.port = port;
            return call.encode(&response);
        }
        for key in request.coordinator_keys {
            let (error, id, host, port) = find(call, &key, request.key_type);
            response.coordinators.push(
                Coordinator::default()
                    .with_key(key)
                    .with_error_message(None)
                    .with_node_id(BrokerId(id))
                    .with_host(StrBytes::from_string(host))
                    .with_port(port)
                    .with_error_code(error),
            );
        }
        call.encode(&response)
    }
}

fn find(call: &Call, key: &str, key_type: i8) -> (i16, i32, String, i32) {
    let failed = |error| (call.noted(error), -1, String::new(), -1);
    if let Some(error) = call.fault() {
        return failed(error);
    }
    if !(0..=1).contains(&key_type) {
        return failed(code::INVALID_REQUEST);
    }
    if key.is_empty() && key_type == 0 {
        return failed(code::INVALID_GROUP_ID);
    }
    let found = call.shared.coordinator_of(key).and_then(|broker| {
        call.shared.address(broker, call.transport).map(|(host, port)| (broker, host, port))
    });
    match found {
        Some((broker, host, port)) => (code::NONE, broker, host, i32::from(port)),
        None => failed(code::COORDINATOR_NOT_AVAILABLE),
    }
}
