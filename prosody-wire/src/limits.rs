//! How much may a peer, a caller or an outage make this client hold or wait? Every bound, in one struct, none infinite.

use std::time::Duration;

/// Bounds of one client. Each is a hard limit: what goes over it ends in an error that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest frame a broker may send, in bytes. Checked before anything is allocated. Default 64 MiB.
    pub frame_bytes: usize,
    /// Most bytes one record batch may decompress to. Default 64 MiB.
    pub batch_bytes: usize,
    /// Most headers of one record. Default 4,096.
    pub headers: usize,
    /// Most brokers a cluster may name. Default 1,024.
    pub brokers: usize,
    /// Requests of one connection that were written and not answered. Default 128.
    pub in_flight: usize,
    /// Requests of one connection that wait to be written. Default 1,024; one more fails at once.
    pub queued: usize,
    /// Longest wait for name resolution, connect and ApiVersions together. Default 10 s.
    pub connect_timeout: Duration,
    /// Longest wait for an answer where the caller names none. Default 30 s (`request.timeout.ms`).
    pub request_timeout: Duration,
    /// First wait after a failed dial or refresh; the first attempt itself never waits. Default 50 ms.
    pub backoff: Duration,
    /// Longest wait between attempts (KIP-580). Default 1 s.
    pub backoff_max: Duration,
    /// Longest pause a broker's `throttle_time_ms` may impose (KIP-219). Default 30 s.
    pub throttle: Duration,
    /// Connections unused for this long are replaced instead of used: brokers close theirs after 10 minutes
    /// (`connections.max.idle.ms`). Default 9 min.
    pub idle: Duration,
    /// Age at which metadata is refreshed although nothing went wrong (`metadata.max.age.ms`). Default 5 min.
    pub metadata_age: Duration,
    /// Shortest time between two refreshes that somebody asked for. The first of a quiet period never waits. Default 20 ms.
    pub refresh_gap: Duration,
    /// Wait for one candidate broker before the next is tried beside it. Default 500 ms.
    pub dial_stagger: Duration,
}

impl Limits {
    /// Most connections of one client to one broker: one to produce, one to fetch, one for everything else, the membership
    /// of a group included. Each further group that the same client is a member of at the same time has one more, because
    /// a broker works on one request of a connection at a time; and the connection that the client began with stays until
    /// the broker finds it idle, where its address is not the one that the broker names.
    pub const CONNECTIONS_PER_BROKER: usize = 3;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            frame_bytes: 64 << 20,
            batch_bytes: 64 << 20,
            headers: 4_096,
            brokers: 1_024,
            in_flight: 128,
            queued: 1_024,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            backoff: Duration::from_millis(50),
            backoff_max: Duration::from_secs(1),
            throttle: Duration::from_secs(30),
            idle: Duration::from_secs(9 * 60),
            metadata_age: Duration::from_secs(5 * 60),
            refresh_gap: Duration::from_millis(20),
            dial_stagger: Duration::from_millis(500),
        }
    }
}
