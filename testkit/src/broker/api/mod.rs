//! How does a request frame become an answer? Header, rules, decoding, one file per API, and the answer's framing.

#[path = "24_add_partitions_to_txn.rs"]
mod add_partitions_to_txn;
#[path = "33_alter_configs.rs"]
mod alter_configs;
mod answer;
#[path = "18_api_versions.rs"]
mod api_versions;
mod call;
#[path = "69_consumer_group_describe.rs"]
mod consumer_group_describe;
#[path = "68_consumer_group_heartbeat.rs"]
mod consumer_group_heartbeat;
#[path = "37_create_partitions.rs"]
mod create_partitions;
#[path = "19_create_topics.rs"]
mod create_topics;
#[path = "42_delete_groups.rs"]
mod delete_groups;
#[path = "21_delete_records.rs"]
mod delete_records;
#[path = "20_delete_topics.rs"]
mod delete_topics;
#[path = "60_describe_cluster.rs"]
mod describe_cluster;
#[path = "32_describe_configs.rs"]
mod describe_configs;
#[path = "15_describe_groups.rs"]
mod describe_groups;
#[path = "26_end_txn.rs"]
mod end_txn;
#[path = "01_fetch.rs"]
mod fetch;
#[path = "10_find_coordinator.rs"]
mod find_coordinator;
#[path = "12_heartbeat.rs"]
mod heartbeat;
#[path = "44_incremental_alter_configs.rs"]
mod incremental_alter_configs;
#[path = "22_init_producer_id.rs"]
mod init_producer_id;
#[path = "11_join_group.rs"]
mod join_group;
#[path = "13_leave_group.rs"]
mod leave_group;
#[path = "16_list_groups.rs"]
mod list_groups;
#[path = "02_list_offsets.rs"]
mod list_offsets;
#[path = "03_metadata.rs"]
mod metadata;
#[path = "08_offset_commit.rs"]
mod offset_commit;
#[path = "47_offset_delete.rs"]
mod offset_delete;
#[path = "09_offset_fetch.rs"]
mod offset_fetch;
#[path = "23_offset_for_leader_epoch.rs"]
mod offset_for_leader_epoch;
#[path = "00_produce.rs"]
mod produce;
mod request;
#[path = "36_sasl_authenticate.rs"]
mod sasl_authenticate;
#[path = "17_sasl_handshake.rs"]
mod sasl_handshake;
#[path = "14_sync_group.rs"]
mod sync_group;

use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicI16, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::protocol::Decodable;

pub(crate) use self::answer::{Fate, Then};
use self::answer::{framed, struck};
pub(crate) use self::call::Call;
use self::call::Fault;
use self::request::{Head, Undecodable, decode_request, is_flexible};
use super::control::{Action, Asked, Scope, Strike};
use super::journal::Entry;
use super::storage::Segments;
use super::{ApiKey, Outcome, Shared, lock};

/// An answer before it is framed; `None` wants none.
type Answer = Option<Segments>;

/// One API: its versions, what its requests are about, and how it is served.
trait Api {
    const KEY: ApiKey;
    const VERSIONS: RangeInclusive<i16>;
    type Request: Decodable + Send;

    /// Topics, groups and members of a request, for rules that name one.
    fn scope(_call: &Call, _request: &Self::Request, _scope: &mut Scope) {}

    /// Serves a request. `Err` closes the connection.
    fn serve(call: &Call, request: Self::Request) -> impl Future<Output = Result<Answer, Refused>> + Send;
}

/// A request that is answered by closing the connection.
#[derive(Debug)]
struct Refused;

/// Serves one frame (without its length).
pub(crate) async fn serve_frame(call: &mut Call, frame: Bytes) -> Fate {
    let (head, body) = match Head::read(frame) {
        Ok(read) => read,
        Err(Undecodable(why)) => {
            call.refuse(why);
            return Fate { write: Vec::new(), then: Then::Close };
        }
    };
    if *call.client_id != *head.client_id {
        call.client_id = head.client_id.as_str().into();
    }
    let served =
        served(&call.shared).find(|(key, versions)| *key == head.api && versions.contains(&head.version));
    let sequence = call.shared.journal.open(Entry {
        sequence: 0,
        at: call.shared.doors.clock.now(),
        broker: call.broker,
        connection: call.connection,
        client_id: Arc::clone(&call.client_id),
        api: head.api,
        version: head.version,
        correlation: head.correlation,
        outcome: Outcome::Pending,
        error: 0,
        rule: None,
        changed: false,
    });
    call.version = head.version;
    call.fault = None;
    call.throttle = Duration::ZERO;
    call.error = AtomicI16::new(0);
    if served.is_none() {
        call.shared.journal.update(sequence, |entry| entry.outcome = Outcome::UnsupportedVersion);
        if head.api == ApiKey::API_VERSIONS {
            call.version = 0;
            let answer = api_versions::unsupported(call);
            return framed(head.correlation, false, answer.unwrap_or_default());
        }
        call.refuse(format!("{} v{} is not served", head.api, head.version));
        return Fate { write: Vec::new(), then: Then::Close };
    }
    if !admitted(call, head.api) {
        call.shared.journal.update(sequence, |entry| entry.outcome = Outcome::Refused);
        tracing::debug!(api = %head.api, peer = call.peer, "a request of nobody in particular");
        return Fate { write: Vec::new(), then: Then::Close };
    }
    route(call, &head, body, sequence).await
}

/// Whether a request may come before its client has said who it is, or the client has said so.
fn admitted(call: &Call, api: ApiKey) -> bool {
    let open = [ApiKey::API_VERSIONS, ApiKey::SASL_HANDSHAKE, ApiKey::SASL_AUTHENTICATE].contains(&api);
    open || call.shared.config.sasl.is_none() || lock(&call.login).admits(call.shared.doors.clock.now())
}

async fn route(call: &mut Call, head: &Head, body: Bytes, sequence: u64) -> Fate {
    match head.api {
        ApiKey::PRODUCE => run::<produce::Produce>(call, head, body, sequence).await,
        ApiKey::FETCH => run::<fetch::Fetch>(call, head, body, sequence).await,
        ApiKey::LIST_OFFSETS => run::<list_offsets::ListOffsets>(call, head, body, sequence).await,
        ApiKey::METADATA => run::<metadata::Metadata>(call, head, body, sequence).await,
        ApiKey::OFFSET_COMMIT => run::<offset_commit::OffsetCommit>(call, head, body, sequence).await,
        ApiKey::OFFSET_FETCH => run::<offset_fetch::OffsetFetch>(call, head, body, sequence).await,
        ApiKey::FIND_COORDINATOR => {
            run::<find_coordinator::FindCoordinator>(call, head, body, sequence).await
        }
        ApiKey::JOIN_GROUP => run::<join_group::JoinGroup>(call, head, body, sequence).await,
        ApiKey::HEARTBEAT => run::<heartbeat::Heartbeat>(call, head, body, sequence).await,
        ApiKey::LEAVE_GROUP => run::<leave_group::LeaveGroup>(call, head, body, sequence).await,
        ApiKey::SYNC_GROUP => run::<sync_group::SyncGroup>(call, head, body, sequence).await,
        ApiKey::DESCRIBE_GROUPS => run::<describe_groups::DescribeGroups>(call, head, body, sequence).await,
        ApiKey::LIST_GROUPS => run::<list_groups::ListGroups>(call, head, body, sequence).await,
        ApiKey::API_VERSIONS => run::<api_versions::ApiVersions>(call, head, body, sequence).await,
        ApiKey::SASL_HANDSHAKE => run::<sasl_handshake::SaslHandshake>(call, head, body, sequence).await,
        ApiKey::SASL_AUTHENTICATE => {
            run::<sasl_authenticate::SaslAuthenticate>(call, head, body, sequence).await
        }
        ApiKey::CREATE_TOPICS => run::<create_topics::CreateTopics>(call, head, body, sequence).await,
        ApiKey::DELETE_TOPICS => run::<delete_topics::DeleteTopics>(call, head, body, sequence).await,
        ApiKey::DELETE_RECORDS => run::<delete_records::DeleteRecords>(call, head, body, sequence).await,
        ApiKey::INIT_PRODUCER_ID => run::<init_producer_id::InitProducerId>(call, head, body, sequence).await,
        ApiKey::ADD_PARTITIONS_TO_TXN => {
            run::<add_partitions_to_txn::AddPartitionsToTxn>(call, head, body, sequence).await
        }
        ApiKey::END_TXN => run::<end_txn::EndTxn>(call, head, body, sequence).await,
        ApiKey::OFFSET_FOR_LEADER_EPOCH => {
            run::<offset_for_leader_epoch::OffsetForLeaderEpoch>(call, head, body, sequence).await
        }
        ApiKey::DESCRIBE_CONFIGS => {
            run::<describe_configs::DescribeConfigs>(call, head, body, sequence).await
        }
        ApiKey::ALTER_CONFIGS => run::<alter_configs::AlterConfigs>(call, head, body, sequence).await,
        ApiKey::CREATE_PARTITIONS => {
            run::<create_partitions::CreatePartitions>(call, head, body, sequence).await
        }
        ApiKey::DELETE_GROUPS => run::<delete_groups::DeleteGroups>(call, head, body, sequence).await,
        ApiKey::INCREMENTAL_ALTER_CONFIGS => {
            run::<incremental_alter_configs::IncrementalAlterConfigs>(call, head, body, sequence).await
        }
        ApiKey::OFFSET_DELETE => run::<offset_delete::OffsetDelete>(call, head, body, sequence).await,
        ApiKey::DESCRIBE_CLUSTER => {
            run::<describe_cluster::DescribeCluster>(call, head, body, sequence).await
        }
        ApiKey::CONSUMER_GROUP_HEARTBEAT => {
            run::<consumer_group_heartbeat::ConsumerGroupHeartbeat>(call, head, body, sequence).await
        }
        ApiKey::CONSUMER_GROUP_DESCRIBE => {
            run::<consumer_group_describe::ConsumerGroupDescribe>(call, head, body, sequence).await
        }
        _ => Fate { write: Vec::new(), then: Then::Close },
    }
}

/// Every API with the versions this cluster serves.
fn served(shared: &Shared) -> impl Iterator<Item = (ApiKey, RangeInclusive<i16>)> {
    fn entry<A: Api>() -> (ApiKey, RangeInclusive<i16>) {
        (A::KEY, A::VERSIONS)
    }
    let all = [
        entry::<produce::Produce>(),
        entry::<fetch::Fetch>(),
        entry::<list_offsets::ListOffsets>(),
        entry::<metadata::Metadata>(),
        entry::<offset_commit::OffsetCommit>(),
        entry::<offset_fetch::OffsetFetch>(),
        entry::<find_coordinator::FindCoordinator>(),
        entry::<join_group::JoinGroup>(),
        entry::<heartbeat::Heartbeat>(),
        entry::<leave_group::LeaveGroup>(),
        entry::<sync_group::SyncGroup>(),
        entry::<describe_groups::DescribeGroups>(),
        entry::<list_groups::ListGroups>(),
        entry::<api_versions::ApiVersions>(),
        entry::<sasl_handshake::SaslHandshake>(),
        entry::<sasl_authenticate::SaslAuthenticate>(),
        entry::<create_topics::CreateTopics>(),
        entry::<delete_topics::DeleteTopics>(),
        entry::<delete_records::DeleteRecords>(),
        entry::<init_producer_id::InitProducerId>(),
        entry::<add_partitions_to_txn::AddPartitionsToTxn>(),
        entry::<end_txn::EndTxn>(),
        entry::<offset_for_leader_epoch::OffsetForLeaderEpoch>(),
        entry::<describe_configs::DescribeConfigs>(),
        entry::<alter_configs::AlterConfigs>(),
        entry::<create_partitions::CreatePartitions>(),
        entry::<delete_groups::DeleteGroups>(),
        entry::<incremental_alter_configs::IncrementalAlterConfigs>(),
        entry::<offset_delete::OffsetDelete>(),
        entry::<describe_cluster::DescribeCluster>(),
        entry::<consumer_group_heartbeat::ConsumerGroupHeartbeat>(),
        entry::<consumer_group_describe::ConsumerGroupDescribe>(),
    ];
    all.into_iter().filter_map(|(key, versions)| {
        let newest =
            shared.config.version_caps.get(&key).map_or(*versions.end(), |cap| *versions.end().min(cap));
        let oldest = shared
            .config
            .version_floors
            .get(&key)
            .map_or(*versions.start(), |floor| (*versions.start()).max(*floor));
        (newest >= oldest).then_some((key, oldest..=newest))
    })
}

/// Decodes a request, lets the rules take it over, and serves it.
async fn run<A: Api>(call: &mut Call, head: &Head, body: Bytes, sequence: u64) -> Fate {
    let close = Fate { write: Vec::new(), then: Then::Close };
    let request = match decode_request::<A::Request>(head, body) {
        Ok(request) => request,
        Err(Undecodable(why)) => {
            call.shared.journal.update(sequence, |entry| entry.outcome = Outcome::Undecodable);
            call.refuse(why);
            return close;
        }
    };
    let asked = Asked { api: head.api, version: head.version, broker: call.broker, client: &call.client_id };
    let strike = call.shared.control.strike(&asked, || {
        let mut scope = Scope::default();
        A::scope(call, &request, &mut scope);
        scope
    });
    if let Some(strike) = &strike {
        call.shared.journal.update(sequence, |entry| {
            entry.rule = Some(strike.rule);
            entry.changed = true;
        });
        let early = match strike.action {
            Action::CutBefore => Some((Outcome::CutBefore, Then::Close)),
            Action::Hang => Some((Outcome::Hung, Then::Swallow)),
            _ => None,
        };
        if let Some((outcome, then)) = early {
            call.shared.journal.update(sequence, |entry| entry.outcome = outcome);
            return Fate { write: Vec::new(), then };
        }
        call.held_back |= matches!(strike.action, Action::Delay(_) | Action::DelayAnswer(_));
        match &strike.action {
            Action::Delay(wait) => call.shared.doors.clock.sleep(*wait).await,
            Action::Throttle(wait) => call.throttle = *wait,
            Action::Error(code) => {
                let (topic, partition) = (strike.topic.clone(), strike.partition);
                call.fault = Some(Fault { code: *code, topic, partition });
            }
            _ => {}
        }
    }
    let served = A::serve(call, request).await;
    let error = call.error.load(Ordering::Relaxed);
    if let Some(Strike { action: Action::DelayAnswer(wait), .. }) = &strike {
        call.shared.doors.clock.sleep(*wait).await;
    }
    let (outcome, fate) = match served {
        Err(Refused) => (Outcome::Refused, close),
        Ok(None) => (Outcome::NoAnswer, Fate { write: Vec::new(), then: Then::Continue }),
        Ok(Some(body)) => {
            let flexible = is_flexible(head.api, head.version) && head.api != ApiKey::API_VERSIONS;
            match &strike {
                Some(strike) => struck(&strike.action, head.correlation, flexible, body),
                None => (Outcome::Answered, framed(head.correlation, flexible, body)),
            }
        }
    };
    call.shared.journal.update(sequence, |entry| {
        entry.outcome = outcome;
        entry.error = error;
    });
    fate
}
