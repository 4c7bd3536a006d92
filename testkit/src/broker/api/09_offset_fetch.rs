//! API 9, OffsetFetch: versions 1–9.
//!
//! Listed partitions or all (null, version 2 and later), several groups (8 and later), member ids and epochs of the new
//! protocol (9), metadata texts. Gaps: no open
//! transactional commits, so `require_stable` has nothing to wait for; version 10 (topic ids) is not served.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequest;
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::protocol::StrBytes;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::group::Committed;
use crate::broker::topics::lock;
use crate::broker::{ApiKey, code};

pub(super) struct OffsetFetch;

/// Topic → partition → what is committed, or an error.
type Found = BTreeMap<String, Vec<(i32, Result<Option<Committed>, i16>)>>;

impl Api for OffsetFetch {
    const KEY: ApiKey = ApiKey::OFFSET_FETCH;
    const VERSIONS: RangeInclusive<i16> = 1..=9;
    type Request = OffsetFetchRequest;

    fn scope(_call: &Call, request: &OffsetFetchRequest, scope: &mut Scope) {
        scope.group(&request.group_id);
        for topic in request.topics.iter().flatten() {
            for partition in &topic.partition_indexes {
                scope.partition(&topic.name, *partition);
            }
        }
        for group in &request.groups {
            scope.group(&group.group_id);
            scope.member(group.member_id.as_deref().unwrap_or_default(), None);
            for topic in group.topics.iter().flatten() {
                for partition in &topic.partition_indexes {
                    scope.partition(&topic.name, *partition);
                }
            }
        }
    }

    async fn serve(call: &Call, request: OffsetFetchRequest) -> Result<Answer, Refused> {
        let mut response = OffsetFetchResponse::default();
        if call.version >= 3 {
            response.throttle_time_ms = call.throttle_ms();
        }
        if call.version >= 8 {
            for group in request.groups {
                let asked = group.topics.map(|topics| {
                    topics
                        .into_iter()
                        .map(|topic| (topic.name.to_string(), topic.partition_indexes))
                        .collect()
                });
                let member = (group.member_id.as_deref(), group.member_epoch);
                response.groups.push(batched(call, &group.group_id, member, asked));
            }
            return call.encode(&response);
        }
        let asked = request.topics.map(|topics| {
            topics.into_iter().map(|topic| (topic.name.to_string(), topic.partition_indexes)).collect()
        });
        let listed = asked.clone();
        let (error, found) = match find(call, &request.group_id, (None, -1), asked) {
            Ok(found) => (code::NONE, found),
            // Before version 2 there is no error of the whole answer: every partition carries it.
            Err(error) => (error, refused(listed.unwrap_or_default(), error)),
        };
        if call.version >= 2 {
            response.error_code = call.noted(error);
        }
        for (topic, partitions) in found {
            let name = StrBytes::from_string(topic).into();
            let mut answered = OffsetFetchResponseTopic::default().with_name(name);
            for (index, committed) in partitions {
                let (error, offset, epoch, metadata) = parts(call, committed);
                let mut one = OffsetFetchResponsePartition::default()
                    .with_partition_index(index)
                    .with_committed_offset(offset)
                    .with_metadata(metadata)
                    .with_error_code(error);
                if call.version >= 5 {
                    one.committed_leader_epoch = epoch;
                }
                answered.partitions.push(one);
            }
            response.topics.push(answered);
        }
        call.encode(&response)
    }
}

fn batched(
    call: &Call,
    group: &str,
    member: (Option<&str>, i32),
    asked: Option<Vec<(String, Vec<i32>)>>,
) -> OffsetFetchResponseGroup {
    let id = StrBytes::from_string(group.to_owned()).into();
    let mut response = OffsetFetchResponseGroup::default().with_group_id(id);
    match find(call, group, member, asked) {
        Err(error) => response.error_code = call.noted(error),
        Ok(found) => {
            for (topic, partitions) in found {
                let name = StrBytes::from_string(topic).into();
                let mut answered = OffsetFetchResponseTopics::default().with_name(name);
                for (index, committed) in partitions {
                    let (error, offset, epoch, metadata) = parts(call, committed);
                    answered.partitions.push(
                        OffsetFetchResponsePartitions::default()
                            .with_partition_index(index)
                            .with_committed_offset(offset)
                            .with_committed_leader_epoch(epoch)
                            .with_metadata(metadata)
                            .with_error_code(error),
                    );
                }
                response.topics.push(answered);
            }
        }
    }
    response
}

fn find(
    call: &Call,
    group: &str,
    (member, epoch): (Option<&str>, i32),
    asked: Option<Vec<(String, Vec<i32>)>>,
) -> Result<Found, i16> {
    let whole = call.fault.as_ref().filter(|fault| fault.topic.is_none()).map(|fault| fault.code);
    if let Some(error) = whole {
        return Err(error);
    }
    call.coordinates(group)?;
    let offsets = match call.shared.coordinator.find(group) {
        Some(cell) => {
            let cell = lock(&cell);
            if let Some(modern) = &cell.modern {
                modern.read(member, epoch)?;
            }
            cell.offsets.clone()
        }
        None => BTreeMap::new(),
    };
    let mut found = Found::new();
    match asked {
        Some(topics) => {
            for (topic, partitions) in topics {
                let name: Arc<str> = topic.as_str().into();
                for index in partitions {
                    let committed = match call.fault_at(&topic, index) {
                        Some(error) => Err(error),
                        None => Ok(offsets.get(&(Arc::clone(&name), index)).cloned()),
                    };
                    found.entry(topic.clone()).or_default().push((index, committed));
                }
            }
        }
        None => {
            for ((topic, index), committed) in offsets {
                found.entry(topic.as_ref().to_owned()).or_default().push((index, Ok(Some(committed))));
            }
        }
    }
    Ok(found)
}

fn refused(asked: Vec<(String, Vec<i32>)>, error: i16) -> Found {
    let all = |partitions: Vec<i32>| partitions.into_iter().map(|index| (index, Err(error))).collect();
    asked.into_iter().map(|(topic, partitions)| (topic, all(partitions))).collect()
}

fn parts(call: &Call, committed: Result<Option<Committed>, i16>) -> (i16, i64, i32, Option<StrBytes>) {
    match committed {
        Ok(Some(committed)) => {
            let text = StrBytes::from_string(committed.metadata.as_ref().to_owned());
            (code::NONE, committed.offset, committed.leader_epoch, Some(text))
        }
        Ok(None) => (code::NONE, -1, -1, Some(StrBytes::default())),
        Err(error) => (call.noted(error), -1, -1, Some(StrBytes::default())),
    }
}
