//! API 15, DescribeGroups: versions 0–6, classic groups alone. Gaps: authorized operations are not computed.

use std::ops::RangeInclusive;

use kafka_protocol::messages::describe_groups_request::DescribeGroupsRequest;
use kafka_protocol::messages::describe_groups_response::{
    DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};
use kafka_protocol::protocol::StrBytes;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::topics::lock;
use crate::broker::{ApiKey, code};

pub(super) struct DescribeGroups;

impl Api for DescribeGroups {
    const KEY: ApiKey = ApiKey::DESCRIBE_GROUPS;
    const VERSIONS: RangeInclusive<i16> = 0..=6;
    type Request = DescribeGroupsRequest;

    fn scope(_call: &Call, request: &DescribeGroupsRequest, scope: &mut Scope) {
        for group in &request.groups {
            scope.group(group);
        }
    }

    async fn serve(call: &Call, request: DescribeGroupsRequest) -> Result<Answer, Refused> {
        let mut response = DescribeGroupsResponse::default();
        if call.version >= 1 {
            response.throttle_time_ms = call.throttle_ms();
        }
        for group in request.groups {
            let described = describe(call, &group);
            response.groups.push(described.with_group_id(group));
        }
        call.encode(&response)
    }
}

fn describe(call: &Call, group: &str) -> DescribedGroup {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let described = DescribedGroup::default();
    if let Some(error) = call.fault().or(call.coordinates(group).err()) {
        return described.with_error_code(call.noted(error));
    }
    let found = call.shared.coordinator.find(group);
    let Some(cell) = found.filter(|cell| lock(cell).modern.is_none()) else {
        let described = described.with_group_state(text("Dead"));
        // Since version 6 an unknown group is an error; before, it was a dead one. One of the new protocol is not known here.
        return if call.version >= 6 {
            described
                .with_error_code(call.noted(code::GROUP_ID_NOT_FOUND))
                .with_error_message(Some(text("no such group")))
        } else {
            described
        };
    };
    let cell = lock(&cell);
    let (protocol_type, protocol) = cell.machine.protocol();
    let mut described = described
        .with_group_state(text(cell.machine.state().name()))
        .with_protocol_type(text(protocol_type))
        .with_protocol_data(text(protocol));
    for (id, member) in cell.machine.members() {
        let mut one = DescribedGroupMember::default()
            .with_member_id(text(id))
            .with_client_id(text(&member.client_id))
            .with_client_host(text(&member.client_host))
            .with_member_metadata(cell.machine.metadata(member))
            .with_member_assignment(member.assignment.clone());
        if call.version >= 4 {
            one.group_instance_id = member.instance.as_deref().map(text);
        }
        described.members.push(one);
    }
    described
}
