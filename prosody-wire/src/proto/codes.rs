//! What does a Kafka error code mean, and what should the caller do about it? One table.

use std::fmt;

/// What helps after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The same request again, after a backoff.
    Retry,
    /// Refresh metadata (a leader, the controller or a topic moved), then the same request again.
    RefreshMetadata,
    /// Find the group's coordinator again, then the same request again.
    FindCoordinator,
    /// Join the group again; nothing of the old membership can be committed.
    Rejoin,
    /// Nothing: the request is wrong, not allowed or came too late.
    Fatal,
}

/// An error code of the Kafka protocol. Codes newer than this table keep their number and count as fatal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

impl ErrorCode {
    /// `Ok` for code 0, the code itself otherwise.
    ///
    /// # Errors
    /// Every code but 0.
    pub fn check(code: i16) -> Result<(), ErrorCode> {
        if code == 0 { Ok(()) } else { Err(ErrorCode(code)) }
    }

    /// The name the protocol's documentation uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().map_or("UNLISTED_ERROR_CODE", |row| row.1)
    }

    /// What helps after this code.
    #[must_use]
    pub fn disposition(self) -> Disposition {
        self.row().map_or(Disposition::Fatal, |row| row.2)
    }

    fn row(self) -> Option<&'static (i16, &'static str, Disposition)> {
        TABLE.binary_search_by_key(&self.0, |row| row.0).ok().and_then(|at| TABLE.get(at))
    }
}

/// `NOT_COORDINATOR (16)`
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One row: code, constant (its name is the protocol's), disposition.
macro_rules! codes {
    ($($code:literal $name:ident $disposition:ident;)*) => {
        #[allow(missing_docs, reason = "the names are the protocol's own")]
        impl ErrorCode {
            $(pub const $name: ErrorCode = ErrorCode($code);)*
        }
        const TABLE: &[(i16, &str, Disposition)] =
            &[$(($code, stringify!($name), Disposition::$disposition)),*];
    };
}

codes! {
    -1 UNKNOWN_SERVER_ERROR Fatal;
    0 NONE Retry;
    1 OFFSET_OUT_OF_RANGE Fatal;
    2 CORRUPT_MESSAGE Retry;
    3 UNKNOWN_TOPIC_OR_PARTITION RefreshMetadata;
    4 INVALID_FETCH_SIZE Fatal;
    5 LEADER_NOT_AVAILABLE RefreshMetadata;
    6 NOT_LEADER_OR_FOLLOWER RefreshMetadata;
    7 REQUEST_TIMED_OUT Retry;
    8 BROKER_NOT_AVAILABLE RefreshMetadata;
    9 REPLICA_NOT_AVAILABLE RefreshMetadata;
    10 MESSAGE_TOO_LARGE Fatal;
    11 STALE_CONTROLLER_EPOCH Fatal;
    12 OFFSET_METADATA_TOO_LARGE Fatal;
    13 NETWORK_EXCEPTION RefreshMetadata;
    14 COORDINATOR_LOAD_IN_PROGRESS Retry;
    15 COORDINATOR_NOT_AVAILABLE FindCoordinator;
    16 NOT_COORDINATOR FindCoordinator;
    17 INVALID_TOPIC_EXCEPTION Fatal;
    18 RECORD_LIST_TOO_LARGE Fatal;
    19 NOT_ENOUGH_REPLICAS Retry;
    20 NOT_ENOUGH_REPLICAS_AFTER_APPEND Retry;
    21 INVALID_REQUIRED_ACKS Fatal;
    22 ILLEGAL_GENERATION Rejoin;
    23 INCONSISTENT_GROUP_PROTOCOL Fatal;
    24 INVALID_GROUP_ID Fatal;
    25 UNKNOWN_MEMBER_ID Rejoin;
    26 INVALID_SESSION_TIMEOUT Fatal;
    27 REBALANCE_IN_PROGRESS Rejoin;
    28 INVALID_COMMIT_OFFSET_SIZE Fatal;
    29 TOPIC_AUTHORIZATION_FAILED Fatal;
    30 GROUP_AUTHORIZATION_FAILED Fatal;
    31 CLUSTER_AUTHORIZATION_FAILED Fatal;
    32 INVALID_TIMESTAMP Fatal;
    33 UNSUPPORTED_SASL_MECHANISM Fatal;
    34 ILLEGAL_SASL_STATE Fatal;
    35 UNSUPPORTED_VERSION Fatal;
    36 TOPIC_ALREADY_EXISTS Fatal;
    37 INVALID_PARTITIONS Fatal;
    38 INVALID_REPLICATION_FACTOR Fatal;
    39 INVALID_REPLICA_ASSIGNMENT Fatal;
    40 INVALID_CONFIG Fatal;
    41 NOT_CONTROLLER RefreshMetadata;
    42 INVALID_REQUEST Fatal;
    43 UNSUPPORTED_FOR_MESSAGE_FORMAT Fatal;
    44 POLICY_VIOLATION Fatal;
    45 OUT_OF_ORDER_SEQUENCE_NUMBER Fatal;
    46 DUPLICATE_SEQUENCE_NUMBER Fatal;
    47 INVALID_PRODUCER_EPOCH Fatal;
    48 INVALID_TXN_STATE Fatal;
    49 INVALID_PRODUCER_ID_MAPPING Fatal;
    50 INVALID_TRANSACTION_TIMEOUT Fatal;
    51 CONCURRENT_TRANSACTIONS Retry;
    52 TRANSACTION_COORDINATOR_FENCED Fatal;
    53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED Fatal;
    54 SECURITY_DISABLED Fatal;
    55 OPERATION_NOT_ATTEMPTED Fatal;
    56 KAFKA_STORAGE_ERROR RefreshMetadata;
    57 LOG_DIR_NOT_FOUND Fatal;
    58 SASL_AUTHENTICATION_FAILED Fatal;
    59 UNKNOWN_PRODUCER_ID Fatal;
    60 REASSIGNMENT_IN_PROGRESS Fatal;
    61 DELEGATION_TOKEN_AUTH_DISABLED Fatal;
    62 DELEGATION_TOKEN_NOT_FOUND Fatal;
    63 DELEGATION_TOKEN_OWNER_MISMATCH Fatal;
    64 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED Fatal;
    65 DELEGATION_TOKEN_AUTHORIZATION_FAILED Fatal;
    66 DELEGATION_TOKEN_EXPIRED Fatal;
    67 INVALID_PRINCIPAL_TYPE Fatal;
    68 NON_EMPTY_GROUP Fatal;
    69 GROUP_ID_NOT_FOUND Fatal;
    70 FETCH_SESSION_ID_NOT_FOUND Retry;
    71 INVALID_FETCH_SESSION_EPOCH Retry;
    72 LISTENER_NOT_FOUND RefreshMetadata;
    73 TOPIC_DELETION_DISABLED Fatal;
    74 FENCED_LEADER_EPOCH RefreshMetadata;
    75 UNKNOWN_LEADER_EPOCH RefreshMetadata;
    76 UNSUPPORTED_COMPRESSION_TYPE Fatal;
    77 STALE_BROKER_EPOCH Fatal;
    78 OFFSET_NOT_AVAILABLE Retry;
    79 MEMBER_ID_REQUIRED Rejoin;
    80 PREFERRED_LEADER_NOT_AVAILABLE RefreshMetadata;
    81 GROUP_MAX_SIZE_REACHED Fatal;
    82 FENCED_INSTANCE_ID Fatal;
    83 ELIGIBLE_LEADERS_NOT_AVAILABLE RefreshMetadata;
    84 ELECTION_NOT_NEEDED RefreshMetadata;
    85 NO_REASSIGNMENT_IN_PROGRESS Fatal;
    86 GROUP_SUBSCRIBED_TO_TOPIC Fatal;
    87 INVALID_RECORD Fatal;
    88 UNSTABLE_OFFSET_COMMIT Retry;
    89 THROTTLING_QUOTA_EXCEEDED Retry;
    90 PRODUCER_FENCED Fatal;
    91 RESOURCE_NOT_FOUND Fatal;
    92 DUPLICATE_RESOURCE Fatal;
    93 UNACCEPTABLE_CREDENTIAL Fatal;
    94 INCONSISTENT_VOTER_SET Fatal;
    95 INVALID_UPDATE_VERSION Fatal;
    96 FEATURE_UPDATE_FAILED Fatal;
    97 PRINCIPAL_DESERIALIZATION_FAILURE Fatal;
    98 SNAPSHOT_NOT_FOUND Fatal;
    99 POSITION_OUT_OF_RANGE Fatal;
    100 UNKNOWN_TOPIC_ID RefreshMetadata;
    101 DUPLICATE_BROKER_REGISTRATION Fatal;
    102 BROKER_ID_NOT_REGISTERED Fatal;
    103 INCONSISTENT_TOPIC_ID RefreshMetadata;
    104 INCONSISTENT_CLUSTER_ID Fatal;
    105 TRANSACTIONAL_ID_NOT_FOUND Fatal;
    106 FETCH_SESSION_TOPIC_ID_ERROR Retry;
    107 INELIGIBLE_REPLICA Fatal;
    108 NEW_LEADER_ELECTED Fatal;
    109 OFFSET_MOVED_TO_TIERED_STORAGE Fatal;
    110 FENCED_MEMBER_EPOCH Rejoin;
    111 UNRELEASED_INSTANCE_ID Fatal;
    112 UNSUPPORTED_ASSIGNOR Fatal;
    113 STALE_MEMBER_EPOCH Retry;
    114 MISMATCHED_ENDPOINT_TYPE Fatal;
    115 UNSUPPORTED_ENDPOINT_TYPE Fatal;
    116 UNKNOWN_CONTROLLER_ID Fatal;
    117 UNKNOWN_SUBSCRIPTION_ID Fatal;
    118 TELEMETRY_TOO_LARGE Fatal;
    119 INVALID_REGISTRATION Fatal;
    120 TRANSACTION_ABORTABLE Fatal;
    121 INVALID_RECORD_STATE Fatal;
    122 SHARE_SESSION_NOT_FOUND Retry;
    123 INVALID_SHARE_SESSION_EPOCH Retry;
    124 FENCED_STATE_EPOCH Fatal;
    125 INVALID_VOTER_KEY Fatal;
    126 DUPLICATE_VOTER Fatal;
    127 VOTER_NOT_FOUND Fatal;
    128 INVALID_REGULAR_EXPRESSION Fatal;
    129 REBOOTSTRAP_REQUIRED RefreshMetadata;
    130 STREAMS_INVALID_TOPOLOGY Fatal;
    131 STREAMS_INVALID_TOPOLOGY_EPOCH Fatal;
    132 STREAMS_TOPOLOGY_FENCED Fatal;
    133 SHARE_SESSION_LIMIT_REACHED Retry;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_gapless_so_lookups_find_every_row() {
        for (at, (code, name, _)) in TABLE.iter().enumerate() {
            assert_eq!(usize::try_from(*code + 1), Ok(at), "{name}");
            assert_eq!(ErrorCode(*code).name(), *name);
        }
        assert_eq!(ErrorCode(32_000).name(), "UNLISTED_ERROR_CODE");
        assert_eq!(ErrorCode(32_000).disposition(), Disposition::Fatal);
        assert_eq!(ErrorCode::NOT_COORDINATOR.to_string(), "NOT_COORDINATOR (16)");
    }
}
