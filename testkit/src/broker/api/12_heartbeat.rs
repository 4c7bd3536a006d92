//! API 12, Heartbeat: versions 0–4. Gaps: none known.

use std::ops::RangeInclusive;

use kafka_protocol::messages::heartbeat_request::HeartbeatRequest;
use kafka_protocol::messages::heartbeat_response::HeartbeatResponse;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::group::Identity;
use crate::broker::{ApiKey, code};

pub(super) struct Heartbeat;

impl Api for Heartbeat {
    const KEY: ApiKey = ApiKey::HEARTBEAT;
    const VERSIONS: RangeInclusive<i16> = 0..=4;
    type Request = HeartbeatRequest;

    fn scope(_call: &Call, request: &HeartbeatRequest, scope: &mut Scope) {
        scope.group(&request.group_id);
        scope.member(&request.member_id, request.group_instance_id.as_deref());
    }

    async fn serve(call: &Call, request: HeartbeatRequest) -> Result<Answer, Refused> {
        let group = request.group_id.as_str();
        call.asks(group, &request.member_id, "Heartbeat");
        let who = Identity { member_id: &request.member_id, instance: request.group_instance_id.as_deref() };
        let error = match call.fault().or(call.coordinates(group).err()) {
            Some(error) => error,
            None => match call.shared.coordinator.find(group) {
                None => code::UNKNOWN_MEMBER_ID,
                Some(cell) => call.shared.coordinator.with(&call.shared, group, &cell, |cell, now, _| {
                    cell.machine.heartbeat(who, request.generation_id, now)
                }),
            },
        };
        let mut response = HeartbeatResponse::default().with_error_code(call.noted(error));
        if call.version >= 1 {
            response.throttle_time_ms = call.throttle_ms();
        }
        call.encode(&response)
    }
}
