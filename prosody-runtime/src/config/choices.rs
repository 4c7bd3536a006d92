//! Which choices are there, and how do people write them?

/// What happens to an event whose handler fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Retried until it succeeds; nothing is given up for a transient error.
    #[default]
    Pipeline,
    /// A few retries, then the failure topic; a permanent error goes there at once.
    LowLatency,
    /// Logged, and done: nothing is retried.
    BestEffort,
}

/// How record batches are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip: slow and small.
    Gzip,
    /// Snappy in xerial framing.
    Snappy,
    /// LZ4 frames.
    #[default]
    Lz4,
    /// zstd.
    Zstd,
}

/// How a key chooses its partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partitioner {
    /// CRC32, which .NET and C clients use.
    #[default]
    Crc32,
    /// murmur2, which Java clients use.
    Murmur2,
}

/// How brokers are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecurityProtocol {
    /// Neither encrypted nor authenticated.
    #[default]
    Plaintext,
    /// TLS.
    Ssl,
    /// Authenticated, but readable by whoever is on the way.
    SaslPlaintext,
    /// TLS, and authenticated inside it.
    SaslSsl,
}

/// How the client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslMechanism {
    /// By sending the password.
    Plain,
    /// By challenge and response with SHA-256.
    ScramSha256,
    /// By challenge and response with SHA-512.
    ScramSha512,
    /// By tokens of an identity provider.
    OauthBearer,
}

/// Which records of transactions are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Only those of committed transactions.
    #[default]
    ReadCommitted,
    /// All.
    ReadUncommitted,
}

/// Which protocol members speak with their group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupProtocol {
    /// The consumer protocol (KIP-848) where the broker serves it and the group has no classic members; the classic one
    /// elsewhere.
    #[default]
    Auto,
    /// Members divide the partitions among themselves.
    Classic,
    /// The broker divides. Where that is not possible the member does not join, and the log says why.
    Consumer,
}

impl From<GroupProtocol> for prosody_wire::group::GroupProtocol {
    fn from(protocol: GroupProtocol) -> Self {
        match protocol {
            GroupProtocol::Auto => Self::Auto,
            GroupProtocol::Classic => Self::Classic,
            GroupProtocol::Consumer => Self::Consumer,
        }
    }
}

impl From<Compression> for prosody_wire::batch::Compression {
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::None => Self::None,
            Compression::Gzip => Self::Gzip,
            Compression::Snappy => Self::Snappy,
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd,
        }
    }
}

impl From<Partitioner> for prosody_wire::produce::Partitioner {
    fn from(partitioner: Partitioner) -> Self {
        match partitioner {
            Partitioner::Crc32 => Self::Crc32Consistent,
            Partitioner::Murmur2 => Self::Murmur2,
        }
    }
}

impl From<IsolationLevel> for prosody_wire::IsolationLevel {
    fn from(isolation: IsolationLevel) -> Self {
        match isolation {
            IsolationLevel::ReadCommitted => Self::ReadCommitted,
            IsolationLevel::ReadUncommitted => Self::ReadUncommitted,
        }
    }
}

/// How the span of an event relates to the one that caused it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanRelation {
    /// A child of it, in the same trace.
    #[default]
    Child,
    /// The root of a trace of its own, with a link to it.
    FollowsFrom,
}

/// A choice's words, the first of which is the one documentation uses.
pub(super) type Words<T> = &'static [(&'static [&'static str], T)];

pub(super) const MODES: Words<Mode> = &[
    (&["pipeline"], Mode::Pipeline),
    (&["low-latency", "low_latency", "lowlatency"], Mode::LowLatency),
    (&["best-effort", "best_effort", "besteffort"], Mode::BestEffort),
];
pub(super) const PROTOCOLS: Words<SecurityProtocol> = &[
    (&["plaintext"], SecurityProtocol::Plaintext),
    (&["ssl"], SecurityProtocol::Ssl),
    (&["sasl_plaintext", "sasl-plaintext"], SecurityProtocol::SaslPlaintext),
    (&["sasl_ssl", "sasl-ssl"], SecurityProtocol::SaslSsl),
];
pub(super) const MECHANISMS: Words<SaslMechanism> = &[
    (&["plain"], SaslMechanism::Plain),
    (&["scram-sha-256"], SaslMechanism::ScramSha256),
    (&["scram-sha-512"], SaslMechanism::ScramSha512),
    (&["oauthbearer"], SaslMechanism::OauthBearer),
];
pub(super) const ISOLATION: Words<IsolationLevel> = &[
    (&["read_committed", "read-committed"], IsolationLevel::ReadCommitted),
    (&["read_uncommitted", "read-uncommitted"], IsolationLevel::ReadUncommitted),
];
pub(super) const GROUP_PROTOCOLS: Words<GroupProtocol> = &[
    (&["auto"], GroupProtocol::Auto),
    (&["classic"], GroupProtocol::Classic),
    (&["consumer"], GroupProtocol::Consumer),
];
pub(super) const RELATIONS: Words<SpanRelation> = &[
    (&["child"], SpanRelation::Child),
    (&["follows_from", "follows-from", "followsfrom"], SpanRelation::FollowsFrom),
];
pub(super) const COMPRESSIONS: Words<Compression> = &[
    (&["none"], Compression::None),
    (&["gzip"], Compression::Gzip),
    (&["snappy"], Compression::Snappy),
    (&["lz4"], Compression::Lz4),
    (&["zstd"], Compression::Zstd),
];
pub(super) const PARTITIONERS: Words<Partitioner> =
    &[(&["crc32"], Partitioner::Crc32), (&["murmur2"], Partitioner::Murmur2)];

/// The choice that a text names, in any case.
pub(super) fn choice<T: Copy>(text: &str, words: Words<T>) -> Result<T, String> {
    let wanted = text.to_ascii_lowercase();
    words.iter().find(|(names, _)| names.contains(&wanted.as_str())).map(|(_, value)| *value).ok_or_else(
        || {
            let known: Vec<&str> = words.iter().filter_map(|(names, _)| names.first().copied()).collect();
            format!("`{text}` is not one of {}", known.join(", "))
        },
    )
}
