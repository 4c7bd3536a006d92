//! How is a cluster set up? Its size, its habits and every bound it keeps.

use std::collections::BTreeMap;
use std::time::Duration;

use prosody_base::Lane;

use super::{ApiKey, ServerSasl, UnknownProducer};
use crate::net::ServerTls;

/// Bounds of a cluster. None is infinite.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes a partition keeps; the oldest batches go first. Default 64 MiB.
    pub log_bytes: usize,
    /// Bytes of a request frame. Default 100 MiB, as `socket.request.max.bytes`.
    pub frame_bytes: usize,
    /// Bytes of one response's records, whatever the client asks for. Default 55 MiB, as `fetch.max.bytes`.
    pub fetch_bytes: usize,
    /// Bytes of one batch unless the topic's `max.message.bytes` says otherwise. Default 1,048,588.
    pub batch_bytes: usize,
    /// Connections to one broker at a time; more are closed at once. Default 4,096.
    pub connections: usize,
    /// Topics of the cluster. Default 10,000.
    pub topics: usize,
    /// Partitions of one topic. Default 10,000.
    pub partitions: usize,
    /// Groups of the cluster. Default 10,000.
    pub groups: usize,
    /// Members of one group. Default 1,000.
    pub members: usize,
    /// Partitions with a committed offset, per group. Default 100,000.
    pub offsets: usize,
    /// Bytes of the metadata text of a committed offset. Default 4,096, as `offset.metadata.max.bytes`.
    pub offset_metadata_bytes: usize,
    /// Fetch sessions per broker; the one used longest ago goes first. Default 1,000.
    pub fetch_sessions: usize,
    /// Entries of the request journal; the oldest go first. Default 65,536.
    pub journal: usize,
    /// Violations kept; later ones are only counted. Default 1,000.
    pub violations: usize,
    /// A fetch waits at most this long, whatever the client asks for. Default 5 minutes.
    pub fetch_wait: Duration,
    /// A TLS handshake ends within this time, or the connection is cut. Default 10 s.
    pub handshake: Duration,
    /// A response is written within this time, or the connection is cut. Default 5 minutes.
    pub write_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            log_bytes: 64 << 20,
            frame_bytes: 100 << 20,
            fetch_bytes: 55 << 20,
            batch_bytes: 1_048_588,
            connections: 4_096,
            topics: 10_000,
            partitions: 10_000,
            groups: 10_000,
            members: 1_000,
            offsets: 100_000,
            offset_metadata_bytes: 4_096,
            fetch_sessions: 1_000,
            journal: 65_536,
            violations: 1_000,
            fetch_wait: Duration::from_secs(300),
            handshake: Duration::from_secs(10),
            write_time: Duration::from_secs(300),
        }
    }
}

/// What a cluster is. `ClusterConfig::default()` is one broker that creates no topics by itself.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Brokers, numbered from 1. Default 1.
    pub brokers: i32,
    /// Rack of each broker, in their order. In a cluster with racks followers serve consumers, and a leader names the one
    /// in the reader's rack (KIP-392). Default: none.
    pub racks: Vec<String>,
    /// Partitions of topics created on demand, by metadata requests that allow it; `None` creates none. Default `None`.
    pub auto_create: Option<i32>,
    /// Partitions of a topic created with −1. Default 1.
    pub default_partitions: i32,
    /// How long the first rebalance of an empty group waits for more members. Default 0.
    pub initial_rebalance_delay: Duration,
    /// Session timeouts accepted from members. Default 100 ms to 30 minutes.
    pub session_timeout: (Duration, Duration),
    /// Whether groups of the new protocol (KIP-848) can be formed. Without, its APIs are served and answer
    /// UNSUPPORTED_VERSION, as a broker does whose feature level is older than its program. Default true.
    pub consumer_groups: bool,
    /// Session timeout of groups of the new protocol that have none of their own. Default 45 s.
    pub consumer_session_timeout: Duration,
    /// Heartbeat interval of such groups. Default 5 s.
    pub consumer_heartbeat_interval: Duration,
    /// What happens to producers whose first batch of a partition does not start at sequence 0. Default: refused.
    pub unknown_producer: UnknownProducer,
    /// The newest version served per API, below what the broker can; −1 hides the API. Default: no caps.
    pub version_caps: BTreeMap<ApiKey, i16>,
    /// The oldest version served per API, above what the broker can. Default: no floors.
    pub version_floors: BTreeMap<ApiKey, i16>,
    /// TLS on every listener, pipes and TCP alike. Default `None`: plaintext.
    pub tls: Option<ServerTls>,
    /// Clients must say who they are before anything else is served. Default `None`: nobody is asked.
    pub sasl: Option<ServerSasl>,
    /// Where the broker's tasks run. Default [`Lane::Io`]: a blocking handler cannot stop them.
    pub lane: Lane,
    /// Name of the cluster in metadata. Default `prosody-testkit`.
    pub cluster_id: String,
    /// Bounds.
    pub limits: Limits,
}

impl Default for ClusterConfig {
    fn default() -> ClusterConfig {
        ClusterConfig {
            brokers: 1,
            racks: Vec::new(),
            auto_create: None,
            default_partitions: 1,
            initial_rebalance_delay: Duration::ZERO,
            session_timeout: (Duration::from_millis(100), Duration::from_secs(1_800)),
            consumer_groups: true,
            consumer_session_timeout: Duration::from_secs(45),
            consumer_heartbeat_interval: Duration::from_secs(5),
            unknown_producer: UnknownProducer::Refuse,
            version_caps: BTreeMap::new(),
            version_floors: BTreeMap::new(),
            tls: None,
            sasl: None,
            lane: Lane::Io,
            cluster_id: "prosody-testkit".to_owned(),
            limits: Limits::default(),
        }
    }
}

/// The newest version of an API that an old release served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionCap {
    /// The API.
    pub api: ApiKey,
    /// Its newest version; −1 when the release did not have it.
    pub newest: i16,
}

impl ClusterConfig {
    /// The rack of a broker; an empty one is none.
    #[must_use]
    pub fn rack(&self, broker: i32) -> Option<&str> {
        let at = usize::try_from(broker.checked_sub(1)?).ok()?;
        self.racks.get(at).map(String::as_str).filter(|rack| !rack.is_empty())
    }

    /// Serves what Apache Kafka served at a release: `"2.1"`, `"2.8"`, `"3.9"` or `"4.2"`. Other texts change nothing.
    #[must_use]
    pub fn as_version(mut self, release: &str) -> ClusterConfig {
        let column = match release {
            "2.1" => 0,
            "2.8" => 1,
            "3.9" => 2,
            "4.2" => {
                self.version_floors.extend(FLOORS.iter().copied());
                return self;
            }
            _ => return self,
        };
        for (api, newest) in RELEASES {
            if let Some(newest) = newest.get(column) {
                self.version_caps.insert(*api, *newest);
            }
        }
        self
    }
}

/// Releases that [`ClusterConfig::as_version`] knows.
pub const AS_VERSIONS: [&str; 4] = ["2.1", "2.8", "3.9", "4.2"];

/// What Kafka 4.0 dropped (KIP-896): the oldest version by API that is left.
const FLOORS: &[(ApiKey, i16)] = &[
    (ApiKey::FETCH, 4),
    (ApiKey::LIST_OFFSETS, 1),
    (ApiKey::OFFSET_COMMIT, 2),
    (ApiKey::OFFSET_FETCH, 1),
    (ApiKey::JOIN_GROUP, 2),
    (ApiKey::CREATE_TOPICS, 2),
    (ApiKey::DELETE_TOPICS, 1),
    (ApiKey::OFFSET_FOR_LEADER_EPOCH, 2),
    (ApiKey::DESCRIBE_CONFIGS, 1),
];

/// Newest version by API in Kafka 2.1, 2.8 and 3.9, as those releases' ApiVersions answers list them.
const RELEASES: &[(ApiKey, [i16; 3])] = &[
    (ApiKey::PRODUCE, [7, 9, 11]),
    (ApiKey::FETCH, [10, 12, 17]),
    (ApiKey::LIST_OFFSETS, [4, 6, 9]),
    (ApiKey::METADATA, [7, 11, 12]),
    (ApiKey::OFFSET_COMMIT, [6, 8, 9]),
    (ApiKey::OFFSET_FETCH, [5, 7, 9]),
    (ApiKey::FIND_COORDINATOR, [2, 3, 6]),
    (ApiKey::JOIN_GROUP, [3, 7, 9]),
    (ApiKey::HEARTBEAT, [2, 4, 4]),
    (ApiKey::LEAVE_GROUP, [2, 4, 5]),
    (ApiKey::SYNC_GROUP, [2, 5, 5]),
    (ApiKey::DESCRIBE_GROUPS, [2, 5, 5]),
    (ApiKey::LIST_GROUPS, [2, 4, 5]),
    (ApiKey::SASL_HANDSHAKE, [1, 1, 1]),
    (ApiKey::API_VERSIONS, [2, 3, 4]),
    (ApiKey::CREATE_TOPICS, [3, 7, 7]),
    (ApiKey::DELETE_TOPICS, [3, 6, 6]),
    (ApiKey::DELETE_RECORDS, [1, 2, 2]),
    (ApiKey::INIT_PRODUCER_ID, [1, 4, 5]),
    (ApiKey::OFFSET_FOR_LEADER_EPOCH, [2, 4, 4]),
    (ApiKey::ADD_PARTITIONS_TO_TXN, [1, 3, 3]),
    (ApiKey::END_TXN, [1, 3, 4]),
    (ApiKey::DESCRIBE_CONFIGS, [2, 4, 4]),
    (ApiKey::ALTER_CONFIGS, [1, 2, 2]),
    (ApiKey::SASL_AUTHENTICATE, [0, 2, 2]),
    (ApiKey::CREATE_PARTITIONS, [1, 3, 3]),
    (ApiKey::DELETE_GROUPS, [1, 2, 2]),
    (ApiKey::INCREMENTAL_ALTER_CONFIGS, [-1, 1, 1]),
    (ApiKey::OFFSET_DELETE, [-1, 0, 0]),
    (ApiKey::DESCRIBE_CLUSTER, [-1, 0, 1]),
    (ApiKey::CONSUMER_GROUP_HEARTBEAT, [-1, -1, 0]),
    (ApiKey::CONSUMER_GROUP_DESCRIBE, [-1, -1, 0]),
];
