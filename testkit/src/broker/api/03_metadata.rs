//! API 3, Metadata: versions 0–13.
//!
//! All topics, by name, by id (10 and later), creation on demand when the cluster's configuration and the request
//! allow it. Gaps: authorized operations are not computed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use kafka_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use kafka_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::topics::{Topic, lock};
use crate::broker::{ApiKey, code};

pub(super) struct Metadata;

impl Api for Metadata {
    const KEY: ApiKey = ApiKey::METADATA;
    const VERSIONS: RangeInclusive<i16> = 0..=13;
    type Request = MetadataRequest;

    fn scope(_call: &Call, request: &MetadataRequest, scope: &mut Scope) {
        for topic in request.topics.iter().flatten() {
            if let Some(name) = &topic.name {
                scope.topic(name);
            }
        }
    }

    async fn serve(call: &Call, request: MetadataRequest) -> Result<Answer, Refused> {
        let mut response = MetadataResponse::default();
        if call.version >= 3 {
            response.throttle_time_ms = call.throttle_ms();
        }
        let alive = call.shared.alive();
        for broker in &alive {
            if let Some((host, port)) = call.shared.address(*broker, call.transport) {
                let known = MetadataResponseBroker::default().with_node_id(BrokerId(*broker));
                let host = StrBytes::from_string(host);
                let rack = call.shared.config.rack(*broker).filter(|_| call.version >= 1);
                let known = known.with_rack(rack.map(|rack| StrBytes::from_string(rack.to_owned())));
                response.brokers.push(known.with_host(host).with_port(i32::from(port)));
            }
        }
        if call.version >= 1 {
            response.controller_id = BrokerId(alive.first().copied().unwrap_or(-1));
        }
        if call.version >= 2 {
            response.cluster_id = Some(StrBytes::from_string(call.shared.config.cluster_id.clone()));
        }
        // In version 0 an empty list means all topics; later that is null, and empty means none.
        let all = request.topics.as_ref().is_none_or(|topics| call.version == 0 && topics.is_empty());
        if all {
            let topics = call.shared.topics.lock().map(|topics| topics.all()).unwrap_or_default();
            response.topics = topics.iter().map(|topic| describe(call, topic, &alive)).collect();
        } else {
            let may_create = call.version < 4 || request.allow_auto_topic_creation;
            let asked = request.topics.unwrap_or_default();
            response.topics = asked.iter().map(|topic| find(call, topic, &alive, may_create)).collect();
        }
        call.encode(&response)
    }
}

fn find(call: &Call, asked: &MetadataRequestTopic, alive: &[i32], may_create: bool) -> MetadataResponseTopic {
    let failed = |error| {
        let mut topic = MetadataResponseTopic::default().with_error_code(call.noted(error));
        topic.name.clone_from(&asked.name);
        if topic.name.is_none() && call.version < 12 {
            topic.name = Some(TopicName::default());
        }
        if call.version >= 10 {
            topic.topic_id = asked.topic_id;
        }
        topic
    };
    let name = asked.name.as_ref().map(|name| name.as_str().to_owned());
    if let Some(error) = call.fault_at(name.as_deref().unwrap_or(""), -1) {
        return failed(error);
    }
    let Some(name) = name else {
        return match call.shared.topic_by_id(asked.topic_id.as_bytes()) {
            Some(topic) => describe(call, &topic, alive),
            None => failed(code::UNKNOWN_TOPIC_ID),
        };
    };
    if let Some(topic) = call.shared.topic(&name) {
        return describe(call, &topic, alive);
    }
    match call.shared.config.auto_create {
        Some(partitions) if may_create => {
            match call.shared.create_topic(&name, partitions, -1, BTreeMap::new()) {
                Ok(topic) => describe(call, &topic, alive),
                // Another connection was faster.
                Err((code::TOPIC_ALREADY_EXISTS, _)) => failed(code::LEADER_NOT_AVAILABLE),
                Err((error, _)) => failed(error),
            }
        }
        _ if !crate::broker::topics::is_valid_name(&name) => failed(code::INVALID_TOPIC_EXCEPTION),
        _ => failed(code::UNKNOWN_TOPIC_OR_PARTITION),
    }
}

fn describe(call: &Call, topic: &Arc<Topic>, alive: &[i32]) -> MetadataResponseTopic {
    let mut described = MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_string((*topic.name).into()))));
    if call.version >= 10 {
        described.topic_id = Uuid::from_bytes(topic.id);
    }
    for (index, partition) in (0..).zip(topic.partitions()) {
        let (leader, epoch) = {
            let inner = partition.lock();
            (inner.leader, inner.epoch)
        };
        let told =
            lock(&call.shared.script).get(&(topic.name.to_string(), index)).copied().unwrap_or_default();
        let (leader, epoch) = (told.leader.unwrap_or(leader), told.epoch.unwrap_or(epoch));
        let mut replicas = call.shared.replicas(index, topic.replication);
        if leader != -1 && !replicas.contains(&leader) {
            replicas.push(leader);
        }
        let (up, down): (Vec<i32>, Vec<i32>) = replicas.iter().partition(|broker| alive.contains(broker));
        let ids = |ids: Vec<i32>| ids.into_iter().map(BrokerId).collect::<Vec<_>>();
        let error = if leader == -1 { code::LEADER_NOT_AVAILABLE } else { code::NONE };
        let error = told.error.unwrap_or(error);
        let mut one = MetadataResponsePartition::default()
            .with_error_code(error)
            .with_partition_index(index)
            .with_leader_id(BrokerId(leader))
            .with_replica_nodes(ids(replicas))
            .with_isr_nodes(ids(up));
        if call.version >= 5 {
            one.offline_replicas = ids(down);
        }
        if call.version >= 7 {
            one.leader_epoch = epoch;
        }
        described.partitions.push(one);
    }
    described
}
