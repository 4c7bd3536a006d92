//! How are APIs and errors called? Numbers of the protocol with their names.

use std::fmt;

/// The number of a Kafka API.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiKey(pub i16);

macro_rules! api_keys {
    ($($name:ident = $number:literal $text:literal),* $(,)?) => {
        impl ApiKey {
            $(#[doc = $text] pub const $name: ApiKey = ApiKey($number);)*

            /// Every API with a name, in order.
            pub const ALL: &'static [ApiKey] = &[$(ApiKey::$name),*];

            /// The API of this name.
            #[must_use]
            pub fn named(name: &str) -> Option<ApiKey> {
                ApiKey::ALL.iter().copied().find(|api| api.name() == name)
            }

            /// The protocol's name of the API, or `Unknown`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 { $($number => $text,)* _ => "Unknown" }
            }
        }
    };
}

api_keys! {
    PRODUCE = 0 "Produce",
    FETCH = 1 "Fetch",
    LIST_OFFSETS = 2 "ListOffsets",
    METADATA = 3 "Metadata",
    OFFSET_COMMIT = 8 "OffsetCommit",
    OFFSET_FETCH = 9 "OffsetFetch",
    FIND_COORDINATOR = 10 "FindCoordinator",
    JOIN_GROUP = 11 "JoinGroup",
    HEARTBEAT = 12 "Heartbeat",
    LEAVE_GROUP = 13 "LeaveGroup",
    SYNC_GROUP = 14 "SyncGroup",
    DESCRIBE_GROUPS = 15 "DescribeGroups",
    LIST_GROUPS = 16 "ListGroups",
    SASL_HANDSHAKE = 17 "SaslHandshake",
    API_VERSIONS = 18 "ApiVersions",
    CREATE_TOPICS = 19 "CreateTopics",
    DELETE_TOPICS = 20 "DeleteTopics",
    DELETE_RECORDS = 21 "DeleteRecords",
    INIT_PRODUCER_ID = 22 "InitProducerId",
    OFFSET_FOR_LEADER_EPOCH = 23 "OffsetForLeaderEpoch",
    ADD_PARTITIONS_TO_TXN = 24 "AddPartitionsToTxn",
    END_TXN = 26 "EndTxn",
    DESCRIBE_CONFIGS = 32 "DescribeConfigs",
    ALTER_CONFIGS = 33 "AlterConfigs",
    SASL_AUTHENTICATE = 36 "SaslAuthenticate",
    CREATE_PARTITIONS = 37 "CreatePartitions",
    DELETE_GROUPS = 42 "DeleteGroups",
    INCREMENTAL_ALTER_CONFIGS = 44 "IncrementalAlterConfigs",
    OFFSET_DELETE = 47 "OffsetDelete",
    DESCRIBE_CLUSTER = 60 "DescribeCluster",
    CONSUMER_GROUP_HEARTBEAT = 68 "ConsumerGroupHeartbeat",
    CONSUMER_GROUP_DESCRIBE = 69 "ConsumerGroupDescribe",
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error codes of the protocol that this broker answers with.
#[allow(missing_docs, reason = "the protocol's own names say it")]
pub mod code {
    pub const NONE: i16 = 0;
    pub const UNKNOWN_SERVER_ERROR: i16 = -1;
    pub const OFFSET_OUT_OF_RANGE: i16 = 1;
    pub const CORRUPT_MESSAGE: i16 = 2;
    pub const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    pub const LEADER_NOT_AVAILABLE: i16 = 5;
    pub const NOT_LEADER_OR_FOLLOWER: i16 = 6;
    pub const REQUEST_TIMED_OUT: i16 = 7;
    pub const MESSAGE_TOO_LARGE: i16 = 10;
    pub const OFFSET_METADATA_TOO_LARGE: i16 = 12;
    pub const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
    pub const COORDINATOR_NOT_AVAILABLE: i16 = 15;
    pub const NOT_COORDINATOR: i16 = 16;
    pub const INVALID_TOPIC_EXCEPTION: i16 = 17;
    pub const NOT_ENOUGH_REPLICAS: i16 = 19;
    pub const INVALID_REQUIRED_ACKS: i16 = 21;
    pub const ILLEGAL_GENERATION: i16 = 22;
    pub const INCONSISTENT_GROUP_PROTOCOL: i16 = 23;
    pub const INVALID_GROUP_ID: i16 = 24;
    pub const UNKNOWN_MEMBER_ID: i16 = 25;
    pub const INVALID_SESSION_TIMEOUT: i16 = 26;
    pub const REBALANCE_IN_PROGRESS: i16 = 27;
    pub const GROUP_AUTHORIZATION_FAILED: i16 = 30;
    pub const UNSUPPORTED_SASL_MECHANISM: i16 = 33;
    pub const ILLEGAL_SASL_STATE: i16 = 34;
    pub const UNSUPPORTED_VERSION: i16 = 35;
    pub const TOPIC_ALREADY_EXISTS: i16 = 36;
    pub const INVALID_PARTITIONS: i16 = 37;
    pub const INVALID_REPLICATION_FACTOR: i16 = 38;
    pub const INVALID_REPLICA_ASSIGNMENT: i16 = 39;
    pub const INVALID_CONFIG: i16 = 40;
    pub const INVALID_REQUEST: i16 = 42;
    pub const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
    pub const DUPLICATE_SEQUENCE_NUMBER: i16 = 46;
    pub const INVALID_PRODUCER_EPOCH: i16 = 47;
    pub const INVALID_TXN_STATE: i16 = 48;
    pub const INVALID_PRODUCER_ID_MAPPING: i16 = 49;
    pub const CONCURRENT_TRANSACTIONS: i16 = 51;
    pub const OPERATION_NOT_ATTEMPTED: i16 = 55;
    pub const SASL_AUTHENTICATION_FAILED: i16 = 58;
    pub const UNKNOWN_PRODUCER_ID: i16 = 59;
    pub const NON_EMPTY_GROUP: i16 = 68;
    pub const GROUP_ID_NOT_FOUND: i16 = 69;
    pub const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
    pub const INVALID_FETCH_SESSION_EPOCH: i16 = 71;
    pub const FENCED_LEADER_EPOCH: i16 = 74;
    pub const UNKNOWN_LEADER_EPOCH: i16 = 75;
    pub const MEMBER_ID_REQUIRED: i16 = 79;
    pub const GROUP_MAX_SIZE_REACHED: i16 = 81;
    pub const FENCED_INSTANCE_ID: i16 = 82;
    pub const GROUP_SUBSCRIBED_TO_TOPIC: i16 = 86;
    pub const INVALID_RECORD: i16 = 87;
    pub const PRODUCER_FENCED: i16 = 90;
    pub const UNKNOWN_TOPIC_ID: i16 = 100;
    pub const FETCH_SESSION_TOPIC_ID_ERROR: i16 = 106;
    pub const FENCED_MEMBER_EPOCH: i16 = 110;
    pub const UNRELEASED_INSTANCE_ID: i16 = 111;
    pub const UNSUPPORTED_ASSIGNOR: i16 = 112;
    pub const STALE_MEMBER_EPOCH: i16 = 113;
    pub const INVALID_REGULAR_EXPRESSION: i16 = 128;
}
