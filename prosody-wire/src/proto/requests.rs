//! Which request has which response, and where does the response say that we are throttled?

use std::time::Duration;

use kafka_protocol::messages::{self as m, ApiKey};
use kafka_protocol::protocol::{Decodable, Encodable};

/// A request that [`Connection::call`](crate::conn::Connection::call) can send.
pub(crate) trait Request: Encodable + Send + Sync {
    /// Its API.
    const API: ApiKey;
    /// What comes back.
    type Response: Decodable + Send;
    /// How long the broker asks us to send nothing more on this connection (KIP-219).
    fn throttle(response: &Self::Response) -> Duration;
}

fn milliseconds(throttle: i32) -> Duration {
    Duration::from_millis(u64::try_from(throttle).unwrap_or(0))
}

/// One line for each pair.
macro_rules! requests {
    ($($api:ident: $request:ident -> $response:ident,)*) => {$(
        impl Request for m::$request {
            const API: ApiKey = ApiKey::$api;
            type Response = m::$response;
            fn throttle(response: &m::$response) -> Duration {
                milliseconds(response.throttle_time_ms)
            }
        }
    )*};
}

/// Neither can be throttled.
macro_rules! logins {
    ($($api:ident: $request:ident -> $response:ident,)*) => {$(
        impl Request for m::$request {
            const API: ApiKey = ApiKey::$api;
            type Response = m::$response;
            fn throttle(_: &m::$response) -> Duration {
                Duration::ZERO
            }
        }
    )*};
}

logins! {
    SaslHandshake: SaslHandshakeRequest -> SaslHandshakeResponse,
    SaslAuthenticate: SaslAuthenticateRequest -> SaslAuthenticateResponse,
}

requests! {
    Metadata: MetadataRequest -> MetadataResponse,
    ListOffsets: ListOffsetsRequest -> ListOffsetsResponse,
    OffsetForLeaderEpoch: OffsetForLeaderEpochRequest -> OffsetForLeaderEpochResponse,
    FindCoordinator: FindCoordinatorRequest -> FindCoordinatorResponse,
    JoinGroup: JoinGroupRequest -> JoinGroupResponse,
    SyncGroup: SyncGroupRequest -> SyncGroupResponse,
    Heartbeat: HeartbeatRequest -> HeartbeatResponse,
    LeaveGroup: LeaveGroupRequest -> LeaveGroupResponse,
    OffsetCommit: OffsetCommitRequest -> OffsetCommitResponse,
    OffsetFetch: OffsetFetchRequest -> OffsetFetchResponse,
    InitProducerId: InitProducerIdRequest -> InitProducerIdResponse,
    CreateTopics: CreateTopicsRequest -> CreateTopicsResponse,
    DeleteTopics: DeleteTopicsRequest -> DeleteTopicsResponse,
    CreatePartitions: CreatePartitionsRequest -> CreatePartitionsResponse,
    DescribeConfigs: DescribeConfigsRequest -> DescribeConfigsResponse,
    DescribeGroups: DescribeGroupsRequest -> DescribeGroupsResponse,
    ListGroups: ListGroupsRequest -> ListGroupsResponse,
    DeleteGroups: DeleteGroupsRequest -> DeleteGroupsResponse,
    DeleteRecords: DeleteRecordsRequest -> DeleteRecordsResponse,
    ConsumerGroupHeartbeat: ConsumerGroupHeartbeatRequest -> ConsumerGroupHeartbeatResponse,
    ConsumerGroupDescribe: ConsumerGroupDescribeRequest -> ConsumerGroupDescribeResponse,
    IncrementalAlterConfigs: IncrementalAlterConfigsRequest -> IncrementalAlterConfigsResponse,
    DescribeCluster: DescribeClusterRequest -> DescribeClusterResponse,
}
