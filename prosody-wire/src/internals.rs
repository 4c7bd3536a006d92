//! Where do fuzzers and the table of hostile inputs reach decoders that are otherwise private?
//!
//! Behind the feature `internals`, for the tests of this repository only. Each function runs the code a connection runs
//! on the same bytes, and says what it says.

use std::time::Duration;

use bytes::Bytes;
use prosody_base::Doors;

use crate::client::Client;
use crate::conn::{self, Connection};
use crate::error::{DecodeError, Error};
use crate::group::{Subscription, decode_assignment};
use crate::limits::Limits;
use crate::net::Stream;
use crate::proto::{ApiKey, Request, messages as m, versions};
use crate::sasl::SaslMechanism;
use crate::sasl::scram::{Scram, ScramError};
use crate::{fetch, produce};

/// Waits until `topic` is known: dials, asks for versions, asks for metadata.
///
/// # Errors
/// What the caller of any operation on that topic would see.
pub async fn topic(client: &Client, topic: &str, wait: Duration) -> Result<(), Error> {
    let cluster = client.cluster();
    let deadline = cluster.doors().clock.now() + wait;
    cluster.topic(topic, deadline).await.map(|_| ())
}

/// One connection to a peer that is not to be trusted: hello, then a Metadata request.
///
/// # Errors
/// What its first caller would see.
pub async fn connection(stream: Box<dyn Stream>, limits: &Limits, doors: &Doors) -> Result<(), Error> {
    let deadline = doors.clock.now() + limits.connect_timeout;
    let connection = Connection::open(stream, "peer:1", "fuzz", None, limits, doors, deadline).await?;
    connection.call(&m::MetadataRequest::default(), limits.request_timeout).await.map(|_| ())
}

/// The APIs and versions whose responses this client decodes: key, lowest, highest.
#[must_use]
pub fn spoken() -> Vec<(i16, i16, i16)> {
    versions::SPOKEN.iter().map(|(api, low, high)| (*api as i16, *low, *high)).collect()
}

/// Decodes the body of a response as the caller of that API does.
///
/// # Errors
/// What was wrong with it. An API this client does not use is an error too.
pub fn response(api: i16, version: i16, body: &Bytes) -> Result<(), DecodeError> {
    macro_rules! decode {
        ($($api:ident: $request:ident,)*) => {
            match ApiKey::try_from(api) {
                Ok(ApiKey::Produce) => produce::wire::response(version, body).map(|_| ()),
                Ok(ApiKey::Fetch) => fetch::wire::response(version, body).map(|_| ()),
                Ok(ApiKey::ApiVersions) => conn::hello(body.clone(), version),
                $(Ok(ApiKey::$api) => message::<m::$request>(version, body),)*
                _ => Err(DecodeError::Body(format!("API {api} is not used"))),
            }
        };
    }
    decode! {
        Metadata: MetadataRequest,
        ListOffsets: ListOffsetsRequest,
        OffsetForLeaderEpoch: OffsetForLeaderEpochRequest,
        FindCoordinator: FindCoordinatorRequest,
        JoinGroup: JoinGroupRequest,
        SyncGroup: SyncGroupRequest,
        Heartbeat: HeartbeatRequest,
        LeaveGroup: LeaveGroupRequest,
        OffsetCommit: OffsetCommitRequest,
        OffsetFetch: OffsetFetchRequest,
        InitProducerId: InitProducerIdRequest,
        CreateTopics: CreateTopicsRequest,
        DeleteTopics: DeleteTopicsRequest,
        CreatePartitions: CreatePartitionsRequest,
        DescribeConfigs: DescribeConfigsRequest,
        DescribeGroups: DescribeGroupsRequest,
        ListGroups: ListGroupsRequest,
        DeleteGroups: DeleteGroupsRequest,
        DeleteRecords: DeleteRecordsRequest,
        IncrementalAlterConfigs: IncrementalAlterConfigsRequest,
        DescribeCluster: DescribeClusterRequest,
        SaslHandshake: SaslHandshakeRequest,
        SaslAuthenticate: SaslAuthenticateRequest,
        ConsumerGroupHeartbeat: ConsumerGroupHeartbeatRequest,
        ConsumerGroupDescribe: ConsumerGroupDescribeRequest,
    }
}

fn message<R: Request>(version: i16, body: &Bytes) -> Result<(), DecodeError> {
    conn::decode::<R>(version, &mut body.clone()).map(|_| ())
}

/// A SCRAM exchange as user `user` with password `pencil` and nonce `nonce`, against these two messages of a server. Bit
/// 0 of `mode` chooses SHA-512, bit 1 puts the nonce before the challenge, bit 2 the right signature before the last
/// message. Iterations are counted and checked, and not computed.
///
/// # Errors
/// Which rule the server broke.
pub fn scram(mode: u8, challenge: &[u8], last: &[u8]) -> Result<(), ScramError> {
    let mechanism = if mode & 1 == 1 { SaslMechanism::ScramSha512 } else { SaslMechanism::ScramSha256 };
    let Some(scram) = Scram::new(mechanism, "user", "nonce".to_owned()) else { return Ok(()) };
    let head: &[u8] = if mode & 2 == 2 { b"r=nonce" } else { b"" };
    let (_, expected) = scram.challenged(&[head, challenge].concat(), "pencil")?.finish_early();
    let head = if mode & 4 == 4 { expected.message() } else { Vec::new() };
    expected.check(&[&head, last].concat())
}

/// Decodes what another member of a group says about itself.
///
/// # Errors
/// The field that is wrong, and why.
pub fn subscription(bytes: &[u8]) -> Result<(), DecodeError> {
    Subscription::decode(bytes).map(|_| ()).map_err(|why| DecodeError::Body(why.to_string()))
}

/// Decodes what the leader of a group gave us.
///
/// # Errors
/// The field that is wrong, and why.
pub fn assignment(bytes: &[u8]) -> Result<(), DecodeError> {
    decode_assignment(bytes).map(|_| ()).map_err(|why| DecodeError::Body(why.to_string()))
}
