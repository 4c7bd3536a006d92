//! API 11, JoinGroup: versions 0–9.
//!
//! The classic protocol in full: see `group/machine.rs`. Gaps: none known.

use std::ops::RangeInclusive;
use std::time::Duration;

use kafka_protocol::messages::join_group_request::JoinGroupRequest;
use kafka_protocol::messages::join_group_response::{JoinGroupResponse, JoinGroupResponseMember};
use kafka_protocol::protocol::StrBytes;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::group::machine::{Join, Joined};
use crate::broker::topics::lock;
use crate::broker::{ApiKey, code};

pub(super) struct JoinGroup;

impl Api for JoinGroup {
    const KEY: ApiKey = ApiKey::JOIN_GROUP;
    const VERSIONS: RangeInclusive<i16> = 0..=9;
    type Request = JoinGroupRequest;

    fn scope(_call: &Call, request: &JoinGroupRequest, scope: &mut Scope) {
        scope.group(&request.group_id);
        scope.member(&request.member_id, request.group_instance_id.as_deref());
    }

    async fn serve(call: &Call, request: JoinGroupRequest) -> Result<Answer, Refused> {
        let group = request.group_id.to_string();
        call.asks(&group, &request.member_id, "JoinGroup");
        let session_timeout = millis(request.session_timeout_ms);
        let (shortest, longest) = call.shared.config.session_timeout;
        let refused = match call.fault() {
            Some(error) => Some(error),
            None if !(shortest..=longest).contains(&session_timeout) => Some(code::INVALID_SESSION_TIMEOUT),
            None => call.coordinates(&group).err(),
        };
        if let Some(error) = refused {
            let mut response = JoinGroupResponse::default()
                .with_error_code(call.noted(error))
                .with_generation_id(-1)
                .with_member_id(request.member_id);
            if call.version < 7 {
                response.protocol_name = Some(StrBytes::default());
            }
            return call.encode(&response);
        }
        let protocol_type = request.protocol_type.clone();
        let join = join(call, &request, session_timeout);
        let (static_member, new_id) = (join.instance.clone(), join.new_id.clone());
        let old = static_member.as_ref().and_then(|instance| holder(call, &group, instance));
        let joined = call.shared.coordinator.join(&call.shared, &group, join).await;
        if let Some(old) = old
            && joined.member_id == new_id
            && let Some(cell) = call.shared.coordinator.find(&group)
        {
            lock(&cell).owners.renamed(&old, &new_id);
        }
        call.noted(joined.error);
        call.encode(&response(call, &joined, protocol_type))
    }
}

fn join(call: &Call, request: &JoinGroupRequest, session_timeout: Duration) -> Join {
    let instance = request.group_instance_id.as_ref().map(ToString::to_string).filter(|_| call.version >= 5);
    let prefix = instance.as_deref().unwrap_or(&call.client_id);
    Join {
        token: call.shared.coordinator.token(),
        member_id: request.member_id.to_string(),
        new_id: format!(
            "{prefix}-{:016x}{:016x}",
            call.shared.doors.rng.next_u64(),
            call.shared.doors.rng.next_u64()
        ),
        instance,
        client_id: call.client_id.as_ref().to_owned(),
        client_host: format!("/{}", call.peer),
        session_timeout,
        // Version 0 has no rebalance timeout of its own.
        rebalance_timeout: if call.version >= 1 {
            millis(request.rebalance_timeout_ms)
        } else {
            session_timeout
        },
        protocol_type: request.protocol_type.to_string(),
        protocols: request
            .protocols
            .iter()
            .map(|protocol| (protocol.name.to_string(), protocol.metadata.clone()))
            .collect(),
        needs_id: call.version >= 4,
        can_skip: call.version >= 9,
    }
}

/// The member id that holds a static instance now.
fn holder(call: &Call, group: &str, instance: &str) -> Option<String> {
    let cell = call.shared.coordinator.find(group)?;
    let cell = lock(&cell);
    let held =
        |(_, member): &(&String, &crate::broker::group::Member)| member.instance.as_deref() == Some(instance);
    cell.machine.members().iter().find(held).map(|(id, _)| id.clone())
}

fn response(call: &Call, joined: &Joined, protocol_type: StrBytes) -> JoinGroupResponse {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let mut response = JoinGroupResponse::default()
        .with_error_code(joined.error)
        .with_generation_id(joined.generation)
        .with_leader(text(&joined.leader))
        .with_member_id(text(&joined.member_id));
    response.protocol_name = joined.protocol.as_deref().map(text);
    if call.version < 7 && response.protocol_name.is_none() {
        response.protocol_name = Some(StrBytes::default());
    }
    if call.version >= 2 {
        response.throttle_time_ms = call.throttle_ms();
    }
    if call.version >= 7 && joined.error == code::NONE {
        response.protocol_type = Some(protocol_type);
    }
    if call.version >= 9 {
        response.skip_assignment = joined.skip_assignment;
    }
    for (id, instance, metadata) in &joined.members {
        let mut member =
            JoinGroupResponseMember::default().with_member_id(text(id)).with_metadata(metadata.clone());
        if call.version >= 5 {
            member.group_instance_id = instance.as_deref().map(text);
        }
        response.members.push(member);
    }
    response
}

fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
