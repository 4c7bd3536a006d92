//! API 14, SyncGroup: versions 0–5. Gaps: none known.

use std::ops::RangeInclusive;

use bytes::Bytes;
use kafka_protocol::messages::sync_group_request::SyncGroupRequest;
use kafka_protocol::messages::sync_group_response::SyncGroupResponse;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::group::machine::Sync;
use crate::broker::{ApiKey, code};

pub(super) struct SyncGroup;

impl Api for SyncGroup {
    const KEY: ApiKey = ApiKey::SYNC_GROUP;
    const VERSIONS: RangeInclusive<i16> = 0..=5;
    type Request = SyncGroupRequest;

    fn scope(_call: &Call, request: &SyncGroupRequest, scope: &mut Scope) {
        scope.group(&request.group_id);
        scope.member(&request.member_id, request.group_instance_id.as_deref());
    }

    async fn serve(call: &Call, request: SyncGroupRequest) -> Result<Answer, Refused> {
        let group = request.group_id.as_str();
        call.asks(group, &request.member_id, "SyncGroup");
        let (error, assignment) = match call.fault().or(call.coordinates(group).err()) {
            Some(error) => (error, Bytes::new()),
            None => {
                let sync = Sync {
                    token: call.shared.coordinator.token(),
                    member_id: request.member_id.to_string(),
                    instance: request.group_instance_id.as_ref().map(ToString::to_string),
                    generation: request.generation_id,
                    protocol: request.protocol_name.as_ref().map(ToString::to_string),
                    assignments: request
                        .assignments
                        .iter()
                        .map(|one| (one.member_id.to_string(), one.assignment.clone()))
                        .collect(),
                };
                call.shared.coordinator.sync(&call.shared, group, sync).await
            }
        };
        let mut response =
            SyncGroupResponse::default().with_error_code(call.noted(error)).with_assignment(assignment);
        if call.version >= 1 {
            response.throttle_time_ms = call.throttle_ms();
        }
        if call.version >= 5 && error == code::NONE {
            response.protocol_type = request.protocol_type;
            response.protocol_name = request.protocol_name;
        }
        call.encode(&response)
    }
}
