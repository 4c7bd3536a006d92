//! API 69, ConsumerGroupDescribe: versions 0–1. Groups of the new protocol alone. Gaps: authorized operations are not
//! computed.

use std::ops::RangeInclusive;

use kafka_protocol::messages::consumer_group_describe_request::ConsumerGroupDescribeRequest;
use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment, ConsumerGroupDescribeResponse, DescribedGroup, Member, TopicPartitions,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::group::modern::Places;
use crate::broker::topics::lock;
use crate::broker::{ApiKey, code};

/// A member that speaks the new protocol, in version 1.
const CONSUMER: i8 = 1;

pub(super) struct ConsumerGroupDescribe;

impl Api for ConsumerGroupDescribe {
    const KEY: ApiKey = ApiKey::CONSUMER_GROUP_DESCRIBE;
    const VERSIONS: RangeInclusive<i16> = 0..=1;
    type Request = ConsumerGroupDescribeRequest;

    fn scope(_call: &Call, request: &ConsumerGroupDescribeRequest, scope: &mut Scope) {
        for group in &request.group_ids {
            scope.group(group);
        }
    }

    async fn serve(call: &Call, request: ConsumerGroupDescribeRequest) -> Result<Answer, Refused> {
        let mut response = ConsumerGroupDescribeResponse::default().with_throttle_time_ms(call.throttle_ms());
        for group in request.group_ids {
            let described = match describe(call, &group) {
                Ok(described) => described,
                Err(error) => DescribedGroup::default().with_error_code(call.noted(error)),
            };
            response.groups.push(described.with_group_id(group));
        }
        call.encode(&response)
    }
}

fn describe(call: &Call, group: &str) -> Result<DescribedGroup, i16> {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    if let Some(error) = call.fault() {
        return Err(error);
    }
    if !call.shared.config.consumer_groups {
        return Err(code::UNSUPPORTED_VERSION);
    }
    call.coordinates(group)?;
    let cell = call.shared.coordinator.find(group).ok_or(code::GROUP_ID_NOT_FOUND)?;
    let cell = lock(&cell);
    let machine = cell.modern.as_ref().ok_or(code::GROUP_ID_NOT_FOUND)?;
    let (epoch, target_epoch) = machine.epochs();
    let members = machine.members().iter().map(|(id, member)| {
        let mut one = Member::default()
            .with_member_id(text(id))
            .with_instance_id(member.instance.as_deref().map(text))
            .with_rack_id(member.rack.as_deref().map(text))
            .with_member_epoch(member.epoch)
            .with_client_id(text(&member.client_id))
            .with_client_host(text(&member.client_host))
            .with_subscribed_topic_names(member.topics.iter().map(|name| text(name).into()).collect())
            .with_subscribed_topic_regex(member.regex.as_deref().map(text))
            .with_assignment(assignment(call, &member.assigned))
            .with_target_assignment(assignment(call, &machine.target(id)));
        if call.version >= 1 {
            one.member_type = CONSUMER;
        }
        one
    });
    Ok(DescribedGroup::default()
        .with_group_state(text(machine.state()))
        .with_group_epoch(epoch)
        .with_assignment_epoch(target_epoch)
        .with_assignor_name(text(machine.assignor().name()))
        .with_members(members.collect()))
}

/// Topics that are gone are left out.
fn assignment(call: &Call, places: &Places) -> Assignment {
    let mut topics: Vec<TopicPartitions> = Vec::new();
    for (id, partition) in places {
        let uuid = Uuid::from_bytes(*id);
        if let Some(last) = topics.last_mut().filter(|last| last.topic_id == uuid) {
            last.partitions.push(*partition);
        } else if let Some(topic) = call.shared.topic_by_id(id) {
            let name = StrBytes::from_string(topic.name.as_ref().to_owned()).into();
            let one = TopicPartitions::default().with_topic_id(uuid).with_topic_name(name);
            topics.push(one.with_partitions(vec![*partition]));
        }
    }
    Assignment::default().with_topic_partitions(topics)
}
