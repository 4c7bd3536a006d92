//! How do a member's calls become Kafka messages, and answers values?
//!
//! Each message is filled for the version that is spoken on the connection: a field the version does not have stays
//! at its default, or it could not be encoded.

use std::time::Duration;

use bytes::Bytes;

use super::Assignor;
use crate::conn::Connection;
use crate::error::Error;
use crate::group::calls::{Answer, Joined};
use crate::group::codec::{check, doing, group_id, instance_id, milliseconds};
use crate::group::config::GroupConfig;
use crate::proto::messages::{self as m};
use crate::proto::{ApiKey, ErrorCode, StrBytes, text};

/// What consumers call their embedded protocol.
const PROTOCOL_TYPE: &str = "consumer";
pub(crate) async fn sync(
    connection: &Connection,
    config: &GroupConfig,
    member_id: String,
    generation: i32,
    (protocol, assignments): (Assignor, Vec<(String, Bytes)>),
    timeout: Duration,
) -> Result<Answer, Error> {
    let version = connection.require(ApiKey::SyncGroup)?;
    let rows = assignments.into_iter().map(|(member, assignment)| {
        m::sync_group_request::SyncGroupRequestAssignment::default()
            .with_member_id(StrBytes::from_string(member))
            .with_assignment(assignment)
    });
    let mut request = m::SyncGroupRequest::default()
        .with_group_id(group_id(config))
        .with_generation_id(generation)
        .with_member_id(StrBytes::from_string(member_id))
        .with_assignments(rows.collect());
    if version >= 3 {
        request.group_instance_id = instance_id(config);
    }
    if version >= 5 {
        request.protocol_type = Some(StrBytes::from_static_str(PROTOCOL_TYPE));
        request.protocol_name = Some(StrBytes::from_static_str(protocol.name()));
    }
    let answer = connection.call_version(&request, version, timeout).await?;
    check(answer.error_code, || doing("getting our assignment in", config, connection))?;
    Ok(Answer::Synced(answer.assignment))
}

pub(crate) async fn heartbeat(
    connection: &Connection,
    config: &GroupConfig,
    member_id: String,
    generation: i32,
    timeout: Duration,
) -> Result<Answer, Error> {
    let version = connection.require(ApiKey::Heartbeat)?;
    let mut request = m::HeartbeatRequest::default()
        .with_group_id(group_id(config))
        .with_generation_id(generation)
        .with_member_id(StrBytes::from_string(member_id));
    if version >= 3 {
        request.group_instance_id = instance_id(config);
    }
    let answer = connection.call_version(&request, version, timeout).await?;
    check(answer.error_code, || doing("sending a heartbeat to", config, connection))?;
    Ok(Answer::Heartbeat)
}

pub(crate) async fn join(
    connection: &Connection,
    config: &GroupConfig,
    member_id: &str,
    metadata: &Bytes,
    patience: Duration,
) -> Result<Answer, Error> {
    let version = connection.require(ApiKey::JoinGroup)?;
    let timeout = match member_id {
        // Asked again, each makes a new member, and the one that nobody heard of is waited for.
        "" if version < 4 || config.instance_id.is_some() => config.rebalance_wait(),
        // An id is given out at once (KIP-394). One that was lost is in the way of a rebalance for a session.
        "" => config.session_timeout.min(config.rebalance_wait()),
        _ => patience,
    };
    let protocols = config.assignors.iter().map(|assignor| {
        m::join_group_request::JoinGroupRequestProtocol::default()
            .with_name(StrBytes::from_static_str(assignor.name()))
            .with_metadata(metadata.clone())
    });
    let mut request = m::JoinGroupRequest::default()
        .with_group_id(group_id(config))
        .with_session_timeout_ms(milliseconds(config.session_timeout))
        .with_rebalance_timeout_ms(milliseconds(config.rebalance_timeout))
        .with_member_id(text(member_id))
        .with_protocol_type(StrBytes::from_static_str(PROTOCOL_TYPE))
        .with_protocols(protocols.collect());
    if version >= 5 {
        request.group_instance_id = instance_id(config);
    }
    let answer = connection.call_version(&request, version, timeout).await?;
    if ErrorCode(answer.error_code) == ErrorCode::MEMBER_ID_REQUIRED {
        return Ok(Answer::MemberId(answer.member_id.to_string()));
    }
    if let Err(why) = check(answer.error_code, || doing("joining", config, connection)) {
        let is_other = why.code() == Some(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        let theirs = if is_other { assignor(connection, config).await } else { None };
        return Err(match theirs {
            Some(theirs) => why.during(&format!("the group divides by {theirs}")),
            None => why,
        });
    }
    let members = answer.members.into_iter().map(|member| {
        (member.member_id.to_string(), member.group_instance_id.map(|id| id.to_string()), member.metadata)
    });
    Ok(Answer::Joined(Joined {
        generation: answer.generation_id,
        protocol: answer.protocol_name.map(|name| name.to_string()).unwrap_or_default(),
        leader: answer.leader.to_string(),
        member_id: answer.member_id.to_string(),
        skip_assignment: answer.skip_assignment,
        members: members.collect(),
    }))
}

/// What the group divides by, as far as its coordinator says: a refused JoinGroup does not.
async fn assignor(connection: &Connection, config: &GroupConfig) -> Option<String> {
    let request = m::DescribeGroupsRequest::default().with_groups(vec![group_id(config)]);
    let answer = connection.call(&request, config.session_timeout / 3).await.ok()?;
    let group = answer.groups.into_iter().next()?;
    Some(group.protocol_data.to_string()).filter(|name| !name.is_empty())
}

pub(crate) async fn leave(
    connection: &Connection,
    config: &GroupConfig,
    member_id: &str,
    timeout: Duration,
) -> Result<Answer, Error> {
    let version = connection.require(ApiKey::LeaveGroup)?;
    let mut request = m::LeaveGroupRequest::default().with_group_id(group_id(config));
    if version >= 3 {
        let mut member = m::leave_group_request::MemberIdentity::default().with_member_id(text(member_id));
        if version >= 5 {
            member.reason = Some(StrBytes::from_static_str("the consumer is closing"));
        }
        request.members = vec![member];
    } else {
        request.member_id = text(member_id);
    }
    let answer = connection.call_version(&request, version, timeout).await?;
    let code = answer.members.first().map_or(0, |member| member.error_code);
    check(if answer.error_code == 0 { code } else { answer.error_code }, || {
        doing("leaving", config, connection)
    })?;
    Ok(Answer::Left)
}
