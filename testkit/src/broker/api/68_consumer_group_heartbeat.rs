//! API 68, ConsumerGroupHeartbeat: versions 0–1.
//!
//! The protocol of KIP-848 in full: see `group/modern/`. The only call of its members but OffsetCommit and OffsetFetch: it
//! joins, beats, says what was given up, and leaves. Version 0 gives an id to members that bring none; version 1 adds
//! regular expressions. Gaps: a classic group with members refuses (GROUP_ID_NOT_FOUND) instead of taking members of
//! both protocols.

use std::ops::RangeInclusive;
use std::time::Duration;

use kafka_protocol::messages::consumer_group_heartbeat_request::ConsumerGroupHeartbeatRequest;
use kafka_protocol::messages::consumer_group_heartbeat_response::{
    Assignment, ConsumerGroupHeartbeatResponse, TopicPartitions,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::group::modern::{Beat, Beaten, Catalog, Group, Places, Refusal, Times};
use crate::broker::topics::lock;
use crate::broker::{ApiKey, code};

pub(super) struct ConsumerGroupHeartbeat;

impl Api for ConsumerGroupHeartbeat {
    const KEY: ApiKey = ApiKey::CONSUMER_GROUP_HEARTBEAT;
    const VERSIONS: RangeInclusive<i16> = 0..=1;
    type Request = ConsumerGroupHeartbeatRequest;

    fn scope(_call: &Call, request: &ConsumerGroupHeartbeatRequest, scope: &mut Scope) {
        scope.group(&request.group_id);
        scope.member(&request.member_id, request.instance_id.as_deref());
    }

    async fn serve(call: &Call, request: ConsumerGroupHeartbeatRequest) -> Result<Answer, Refused> {
        let group = request.group_id.to_string();
        let mut response =
            ConsumerGroupHeartbeatResponse::default().with_throttle_time_ms(call.throttle_ms());
        let beat = beat(call, request);
        let (member, leaves) = (beat.member_id.clone(), beat.epoch < 0);
        match beat.epoch {
            0 => call.shared.invariants.joins(&group, &member),
            // A farewell whose answer was lost is said again.
            epoch if epoch < 0 => {}
            _ => call.asks(&group, &member, "ConsumerGroupHeartbeat"),
        }
        let times = call.shared.group_times(&group);
        match serve(call, &group, beat, times) {
            Ok(beaten) => {
                if leaves && beaten.epoch == -1 {
                    call.shared.invariants.left(&group, &member);
                }
                response.member_id = Some(StrBytes::from_string(member));
                response.member_epoch = beaten.epoch;
                response.heartbeat_interval_ms = millis(times.heartbeat);
                response.assignment = beaten.assignment.map(|places| assignment(&places));
            }
            Err((error, why)) => {
                response.error_code = call.noted(error);
                response.error_message = Some(StrBytes::from_string(why));
            }
        }
        call.encode(&response)
    }
}

fn beat(call: &Call, request: ConsumerGroupHeartbeatRequest) -> Beat {
    let text = |text: StrBytes| text.to_string();
    let mut member_id = request.member_id.to_string();
    if member_id.is_empty() && call.version == 0 && request.member_epoch == 0 {
        let random = || call.shared.doors.rng.next_u64();
        member_id = format!("{:016x}{:016x}", random(), random());
    }
    let owned = request.topic_partitions.map(|topics| {
        let places = |topic: &kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions| {
            let id = *topic.topic_id.as_bytes();
            topic.partitions.iter().map(move |partition| (id, *partition)).collect::<Vec<_>>()
        };
        topics.iter().flat_map(places).collect()
    });
    Beat {
        member_id,
        epoch: request.member_epoch,
        instance: request.instance_id.map(text),
        rack: request.rack_id.map(text),
        rebalance_timeout: u64::try_from(request.rebalance_timeout_ms).ok().map(Duration::from_millis),
        topics: request
            .subscribed_topic_names
            .map(|names| names.iter().map(|name| name.to_string()).collect()),
        regex: request.subscribed_topic_regex.map(text),
        assignor: request.server_assignor.map(text),
        owned,
        client_id: call.client_id.as_ref().to_owned(),
        client_host: format!("/{}", call.peer),
    }
}

fn serve(call: &Call, group: &str, beat: Beat, times: Times) -> Result<Beaten, Refusal> {
    let plain = |error| (error, String::new());
    if let Some(error) = call.fault() {
        return Err((error, "a rule of the test".to_owned()));
    }
    if !call.shared.config.consumer_groups {
        return Err((code::UNSUPPORTED_VERSION, "the group feature is not enabled".to_owned()));
    }
    call.coordinates(group).map_err(plain)?;
    let cell = if beat.epoch == 0 {
        call.shared.coordinator.find_or_create(group).map_err(plain)?
    } else {
        let missing = || (code::GROUP_ID_NOT_FOUND, format!("no group {group}"));
        call.shared.coordinator.find(group).ok_or_else(missing)?
    };
    let catalog: Catalog = lock(&call.shared.topics)
        .all()
        .iter()
        .map(|topic| (topic.name.as_ref().to_owned(), (topic.id, topic.count())))
        .collect();
    call.shared.coordinator.with(&call.shared, group, &cell, |cell, now, _| {
        let machine = cell.turn_modern(call.shared.limits().members)?;
        let (member, owned) = (beat.member_id.clone(), beat.owned.clone().unwrap_or_default());
        let held_by_others = foreign(machine, &member, &owned);
        let beaten = machine.heartbeat(beat, &catalog, times, now)?;
        let named = held_by_others.into_iter().filter_map(|((id, partition), other)| {
            let (name, _) = catalog.iter().find(|(_, topic)| topic.0 == id)?;
            Some(((name.clone(), partition), other))
        });
        call.shared.invariants.holds((group, beaten.epoch, &member), named);
        Ok(beaten)
    })
}

/// What a member says it holds although another one does.
fn foreign(group: &Group, member: &str, owned: &Places) -> Vec<(([u8; 16], i32), String)> {
    let other = |place: &([u8; 16], i32)| {
        group.holder(place).filter(|holder| *holder != member).map(|holder| (*place, holder.to_owned()))
    };
    owned.iter().filter_map(other).collect()
}

fn assignment(places: &Places) -> Assignment {
    let mut topics: Vec<TopicPartitions> = Vec::new();
    for (id, partition) in places {
        let id = Uuid::from_bytes(*id);
        match topics.last_mut().filter(|last| last.topic_id == id) {
            Some(last) => last.partitions.push(*partition),
            None => {
                topics.push(TopicPartitions::default().with_topic_id(id).with_partitions(vec![*partition]))
            }
        }
    }
    Assignment::default().with_topic_partitions(topics)
}

fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}
