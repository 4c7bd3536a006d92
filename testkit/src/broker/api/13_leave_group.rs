//! API 13, LeaveGroup: versions 0–5. One member (0–2) or several (3–5, also by instance). Gaps: none known.

use std::ops::RangeInclusive;

use kafka_protocol::messages::leave_group_request::{LeaveGroupRequest, MemberIdentity};
use kafka_protocol::messages::leave_group_response::{LeaveGroupResponse, MemberResponse};

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::group::Identity;
use crate::broker::{ApiKey, code};

pub(super) struct LeaveGroup;

impl Api for LeaveGroup {
    const KEY: ApiKey = ApiKey::LEAVE_GROUP;
    const VERSIONS: RangeInclusive<i16> = 0..=5;
    type Request = LeaveGroupRequest;

    fn scope(_call: &Call, request: &LeaveGroupRequest, scope: &mut Scope) {
        scope.group(&request.group_id);
        scope.member(&request.member_id, None);
        for member in &request.members {
            scope.member(&member.member_id, member.group_instance_id.as_deref());
        }
    }

    async fn serve(call: &Call, request: LeaveGroupRequest) -> Result<Answer, Refused> {
        let group = request.group_id.as_str();
        let mut response = LeaveGroupResponse::default();
        if call.version >= 1 {
            response.throttle_time_ms = call.throttle_ms();
        }
        if let Some(error) = call.fault().or(call.coordinates(group).err()) {
            response.error_code = call.noted(error);
            return call.encode(&response);
        }
        if call.version < 3 {
            let member = MemberIdentity::default().with_member_id(request.member_id);
            response.error_code = leave(call, group, &member);
            return call.encode(&response);
        }
        for member in request.members {
            let error = leave(call, group, &member);
            response.members.push(
                MemberResponse::default()
                    .with_member_id(member.member_id)
                    .with_group_instance_id(member.group_instance_id)
                    .with_error_code(error),
            );
        }
        call.encode(&response)
    }
}

fn leave(call: &Call, group: &str, member: &MemberIdentity) -> i16 {
    let who = Identity { member_id: &member.member_id, instance: member.group_instance_id.as_deref() };
    let error = match call.shared.coordinator.find(group) {
        None => code::UNKNOWN_MEMBER_ID,
        Some(cell) => call
            .shared
            .coordinator
            .with(&call.shared, group, &cell, |cell, now, out| cell.machine.leave(who, now, out)),
    };
    if error == code::NONE && !member.member_id.is_empty() {
        call.shared.invariants.left(group, &member.member_id);
    }
    call.noted(error)
}
