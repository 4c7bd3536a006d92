//! API 8, OffsetCommit: versions 2–9.
//!
//! Members of the current generation or member epoch, and clients without a group protocol while the group is empty. In
//! a group of the new protocol members commit with version 9 alone, whose error STALE_MEMBER_EPOCH they must know. Metadata texts are
//! bounded. Gaps: offsets never expire; version 10 (topic ids) is not served.

use std::ops::RangeInclusive;

use kafka_protocol::messages::offset_commit_request::OffsetCommitRequest;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::group::{Cell, Committed, Identity};
use crate::broker::{ApiKey, CommitSeen, code};

pub(super) struct OffsetCommit;

impl Api for OffsetCommit {
    const KEY: ApiKey = ApiKey::OFFSET_COMMIT;
    const VERSIONS: RangeInclusive<i16> = 2..=9;
    type Request = OffsetCommitRequest;

    fn scope(_call: &Call, request: &OffsetCommitRequest, scope: &mut Scope) {
        scope.group(&request.group_id);
        scope.member(&request.member_id, request.group_instance_id.as_deref());
        for topic in &request.topics {
            for partition in &topic.partitions {
                scope.partition(&topic.name, partition.partition_index);
            }
        }
    }

    async fn serve(call: &Call, request: OffsetCommitRequest) -> Result<Answer, Refused> {
        let group = request.group_id.as_str();
        let member = request.member_id.as_str();
        let generation = request.generation_id_or_member_epoch;
        call.asks(group, member, "OffsetCommit");
        let who = Identity { member_id: member, instance: request.group_instance_id.as_deref() };
        let mut response = OffsetCommitResponse::default();
        if call.version >= 3 {
            response.throttle_time_ms = call.throttle_ms();
        }
        let found = call.coordinates(group).and_then(|()| call.shared.coordinator.find_or_create(group));
        let whole = match &found {
            Err(error) => Err(*error),
            Ok(cell) => call.shared.coordinator.with(&call.shared, group, cell, |cell, now, _| {
                if cell.modern.is_some() && generation >= 0 && call.version < 9 {
                    return Err(code::UNSUPPORTED_VERSION);
                }
                cell.commit(who, generation, now)
            }),
        };
        for topic in &request.topics {
            let known = call.shared.topic(&topic.name);
            let mut answered = OffsetCommitResponseTopic::default().with_name(topic.name.clone());
            for partition in &topic.partitions {
                let index = partition.partition_index;
                let text = partition.committed_metadata.as_deref().unwrap_or_default();
                let exists = known.as_ref().is_some_and(|topic| (0..topic.count()).contains(&index));
                let checked = match call.fault_at(&topic.name, index) {
                    Some(error) => Err(error),
                    None => whole,
                };
                let result = checked.and_then(|()| match (&found, &known) {
                    (Ok(cell), Some(known)) if exists => {
                        if text.len() > call.shared.limits().offset_metadata_bytes {
                            return Err(code::OFFSET_METADATA_TOO_LARGE);
                        }
                        let committed = Committed {
                            offset: partition.committed_offset,
                            leader_epoch: if call.version >= 6 {
                                partition.committed_leader_epoch
                            } else {
                                -1
                            },
                            metadata: text.into(),
                        };
                        call.shared.coordinator.with(&call.shared, group, cell, |cell, _, _| {
                            let who = (group, generation, member);
                            if let Some(modern) = cell.modern.as_ref().filter(|_| generation >= 0) {
                                let place = (known.id, index);
                                let owner = modern.holder(&place);
                                call.shared.invariants.commits(who, (&known.name, index), owner);
                            } else if generation >= 0 && cell.machine.protocol().0 == "consumer" {
                                cell.owners.commits(who, (&known.name, index), &call.shared.invariants);
                            }
                            store(cell, (known.name.clone(), index), committed, call.shared.limits().offsets)
                        })
                    }
                    _ => Err(code::UNKNOWN_TOPIC_OR_PARTITION),
                });
                if result.is_ok() {
                    call.shared.observers.committed(CommitSeen {
                        group,
                        client: &call.client_id,
                        connection: call.connection,
                        partition: (&topic.name, index),
                        offset: partition.committed_offset,
                    });
                }
                let error = result.err().unwrap_or(code::NONE);
                let one = OffsetCommitResponsePartition::default().with_partition_index(index);
                answered.partitions.push(one.with_error_code(call.noted(error)));
            }
            response.topics.push(answered);
        }
        call.encode(&response)
    }
}

fn store(
    cell: &mut Cell,
    partition: (std::sync::Arc<str>, i32),
    committed: Committed,
    bound: usize,
) -> Result<(), i16> {
    if cell.offsets.len() >= bound && !cell.offsets.contains_key(&partition) {
        return Err(code::INVALID_REQUEST);
    }
    cell.offsets.insert(partition, committed);
    Ok(())
}
