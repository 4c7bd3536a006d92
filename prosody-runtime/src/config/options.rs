//! What did the user set, in text or in code?

use std::time::Duration;

use std::sync::Arc;

use prosody_wire::{Secret, TokenProvider};

use super::duration::{parse_duration, parse_size};
use super::table::{Field, OPTIONS, OptionSpec, Problem, Support};

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

/// Everything a user may set. `None` falls back to the environment variable and then to the default; [`OPTIONS`] and
/// CONFIGURATION.md describe each. `Duration::MAX` stands for `none` where that is allowed.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the table of options documents each field once")]
pub struct Options {
    pub bootstrap_servers: Option<Vec<String>>,
    pub group_id: Option<String>,
    pub subscribed_topics: Option<Vec<String>>,
    pub allowed_events: Option<Vec<String>>,
    pub source_system: Option<String>,
    pub mode: Option<Mode>,
    pub mock: Option<bool>,
    pub max_concurrency: Option<u32>,
    pub max_uncommitted: Option<u32>,
    pub timeout: Option<Duration>,
    pub stall_threshold: Option<Duration>,
    pub shutdown_timeout: Option<Duration>,
    pub commit_interval: Option<Duration>,
    pub poll_interval: Option<Duration>,
    pub probe_port: Option<u16>,
    pub probe_address: Option<String>,
    pub probe_details: Option<bool>,
    pub subscribe_timeout: Option<Duration>,
    pub fetch_buffer_size: Option<u64>,
    pub failure_topic: Option<String>,
    pub send_timeout: Option<Duration>,
    pub max_retries: Option<u32>,
    pub retry_base: Option<Duration>,
    pub max_retry_delay: Option<Duration>,
    pub defer_enabled: Option<bool>,
    pub defer_base: Option<Duration>,
    pub defer_max_delay: Option<Duration>,
    pub defer_failure_threshold: Option<f64>,
    pub defer_failure_window: Option<Duration>,
    /// [`u32::MAX`] is no bound.
    pub defer_max_retries: Option<u32>,
    pub monopolization_enabled: Option<bool>,
    pub monopolization_threshold: Option<f64>,
    pub monopolization_window: Option<Duration>,
    pub scheduler_failure_weight: Option<f64>,
    pub scheduler_max_wait: Option<Duration>,
    pub scheduler_wait_weight: Option<f64>,
    pub idempotence_cache_size: Option<u32>,
    pub idempotence_version: Option<String>,
    pub idempotence_ttl: Option<Duration>,
    pub telemetry_enabled: Option<bool>,
    pub telemetry_topic: Option<String>,
    pub loader_cache_size: Option<u64>,
    pub loader_seek_timeout: Option<Duration>,
    pub security_protocol: Option<SecurityProtocol>,
    pub sasl_mechanism: Option<SaslMechanism>,
    pub sasl_username: Option<String>,
    pub sasl_password: Option<Secret>,
    pub sasl_oauth_token_endpoint: Option<String>,
    pub sasl_oauth_client_id: Option<String>,
    pub sasl_oauth_client_secret: Option<Secret>,
    pub sasl_oauth_scope: Option<String>,
    pub ssl_ca_location: Option<String>,
    pub ssl_certificate_location: Option<String>,
    pub ssl_key_location: Option<String>,
    pub ssl_key_password: Option<Secret>,
    pub client_rack: Option<String>,
    pub group_instance_id: Option<String>,
    pub session_timeout: Option<Duration>,
    pub isolation_level: Option<IsolationLevel>,
    pub group_protocol: Option<GroupProtocol>,
    pub compression: Option<Compression>,
    pub partitioner: Option<Partitioner>,
    /// Options in text whose feature does not exist yet, by name, with whether the value asks for more than "off".
    pub(crate) unsupported: Vec<&'static str>,
    pub(crate) tokens: Option<Tokens>,
}

/// A provider of tokens, which can only be given in code.
#[derive(Clone, Debug)]
pub(crate) struct Tokens(pub(crate) Arc<dyn TokenProvider>);

/// The same one, not an equal one.
impl PartialEq for Tokens {
    fn eq(&self, other: &Tokens) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Options {
    /// Sets one option from text, by its name (`MaxConcurrency`) or its variable (`PROSODY_MAX_CONCURRENCY`). Blank
    /// text unsets it.
    ///
    /// # Errors
    /// A [`Problem`] that names the option when it does not exist or the text does not fit it. Limits and
    /// combinations are checked when the client is built.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), Problem> {
        let Some(spec) = OptionSpec::find(name) else {
            return Err(Problem::unknown(name));
        };
        self.put(spec, text).map_err(|why| spec.problem(why))
    }

    /// Asks this provider for tokens (SaslMechanism OAUTHBEARER) instead of a token endpoint.
    pub fn set_token_provider(&mut self, provider: Arc<dyn TokenProvider>) {
        self.tokens = Some(Tokens(provider));
    }

    pub(crate) fn put(&mut self, spec: &'static OptionSpec, text: &str) -> Result<(), String> {
        let text = text.trim();
        if let Support::OffOnly(off) = spec.support {
            self.unsupported.retain(|name| *name != spec.name);
            if !text.is_empty() && !off.iter().any(|value| value.eq_ignore_ascii_case(text)) {
                self.unsupported.push(spec.name);
            }
        }
        let given = (!text.is_empty()).then_some(text);
        match spec.field {
            Field::Text(of) => *of(self) = given.map(str::to_owned),
            Field::Secret(of) => *of(self) = given.map(Secret::new),
            Field::List(of) => *of(self) = given.map(list),
            Field::Flag(of) => *of(self) = given.map(flag).transpose()?,
            Field::Count(of) => *of(self) = given.map(count).transpose()?,
            Field::Port(of) => *of(self) = given.map(port).transpose()?,
            Field::Limit(of) => *of(self) = given.map(limit).transpose()?,
            Field::Number(of) => *of(self) = given.map(number).transpose()?,
            Field::Size(of) => *of(self) = given.map(parse_size).transpose()?,
            Field::Duration(of) => *of(self) = given.map(parse_duration).transpose()?,
            Field::Bound(of) => *of(self) = given.map(bound).transpose()?,
            Field::Mode(of) => *of(self) = given.map(|text| choice(text, MODES)).transpose()?,
            Field::Security(of) => *of(self) = given.map(|text| choice(text, PROTOCOLS)).transpose()?,
            Field::Mechanism(of) => *of(self) = given.map(|text| choice(text, MECHANISMS)).transpose()?,
            Field::Isolation(of) => *of(self) = given.map(|text| choice(text, ISOLATION)).transpose()?,
            Field::GroupProtocol(of) => {
                *of(self) = given.map(|text| choice(text, GROUP_PROTOCOLS)).transpose()?
            }
            Field::Compression(of) => *of(self) = given.map(|text| choice(text, COMPRESSIONS)).transpose()?,
            Field::Partitioner(of) => *of(self) = given.map(|text| choice(text, PARTITIONERS)).transpose()?,
            Field::Missing => {}
        }
        Ok(())
    }

    /// Takes from `fallback` what is not set here.
    pub(crate) fn or(mut self, mut fallback: Options) -> Options {
        for spec in OPTIONS {
            match spec.field {
                Field::Text(of) => fill(of, &mut self, &mut fallback),
                Field::Secret(of) => fill(of, &mut self, &mut fallback),
                Field::Security(of) => fill(of, &mut self, &mut fallback),
                Field::Mechanism(of) => fill(of, &mut self, &mut fallback),
                Field::List(of) => fill(of, &mut self, &mut fallback),
                Field::Flag(of) => fill(of, &mut self, &mut fallback),
                Field::Port(of) => fill(of, &mut self, &mut fallback),
                Field::Count(of) | Field::Limit(of) => fill(of, &mut self, &mut fallback),
                Field::Number(of) => fill(of, &mut self, &mut fallback),
                Field::Size(of) => fill(of, &mut self, &mut fallback),
                Field::Duration(of) | Field::Bound(of) => fill(of, &mut self, &mut fallback),
                Field::Mode(of) => fill(of, &mut self, &mut fallback),
                Field::Isolation(of) => fill(of, &mut self, &mut fallback),
                Field::GroupProtocol(of) => fill(of, &mut self, &mut fallback),
                Field::Compression(of) => fill(of, &mut self, &mut fallback),
                Field::Partitioner(of) => fill(of, &mut self, &mut fallback),
                Field::Missing => {
                    if fallback.unsupported.contains(&spec.name) && !self.unsupported.contains(&spec.name) {
                        self.unsupported.push(spec.name);
                    }
                }
            }
        }
        self.tokens = self.tokens.or(fallback.tokens);
        self
    }
}

fn fill<T>(of: fn(&mut Options) -> &mut Option<T>, into: &mut Options, from: &mut Options) {
    if of(into).is_none() {
        *of(into) = of(from).take();
    }
}

/// A choice's words, the first of which is the one documentation uses.
type Words<T> = &'static [(&'static [&'static str], T)];

const MODES: Words<Mode> = &[
    (&["pipeline"], Mode::Pipeline),
    (&["low-latency", "low_latency", "lowlatency"], Mode::LowLatency),
    (&["best-effort", "best_effort", "besteffort"], Mode::BestEffort),
];
const PROTOCOLS: Words<SecurityProtocol> = &[
    (&["plaintext"], SecurityProtocol::Plaintext),
    (&["ssl"], SecurityProtocol::Ssl),
    (&["sasl_plaintext", "sasl-plaintext"], SecurityProtocol::SaslPlaintext),
    (&["sasl_ssl", "sasl-ssl"], SecurityProtocol::SaslSsl),
];
const MECHANISMS: Words<SaslMechanism> = &[
    (&["plain"], SaslMechanism::Plain),
    (&["scram-sha-256"], SaslMechanism::ScramSha256),
    (&["scram-sha-512"], SaslMechanism::ScramSha512),
    (&["oauthbearer"], SaslMechanism::OauthBearer),
];
const ISOLATION: Words<IsolationLevel> = &[
    (&["read_committed", "read-committed"], IsolationLevel::ReadCommitted),
    (&["read_uncommitted", "read-uncommitted"], IsolationLevel::ReadUncommitted),
];
const GROUP_PROTOCOLS: Words<GroupProtocol> = &[
    (&["auto"], GroupProtocol::Auto),
    (&["classic"], GroupProtocol::Classic),
    (&["consumer"], GroupProtocol::Consumer),
];
const COMPRESSIONS: Words<Compression> = &[
    (&["none"], Compression::None),
    (&["gzip"], Compression::Gzip),
    (&["snappy"], Compression::Snappy),
    (&["lz4"], Compression::Lz4),
    (&["zstd"], Compression::Zstd),
];
const PARTITIONERS: Words<Partitioner> =
    &[(&["crc32"], Partitioner::Crc32), (&["murmur2"], Partitioner::Murmur2)];

fn choice<T: Copy>(text: &str, words: Words<T>) -> Result<T, String> {
    let wanted = text.to_ascii_lowercase();
    words.iter().find(|(names, _)| names.contains(&wanted.as_str())).map(|(_, value)| *value).ok_or_else(
        || {
            let known: Vec<&str> = words.iter().filter_map(|(names, _)| names.first().copied()).collect();
            format!("`{text}` is not one of {}", known.join(", "))
        },
    )
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn flag(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(format!("`{text}` is neither `true` nor `false`")),
    }
}

fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number from 0 to {}", u32::MAX))
}

fn port(text: &str) -> Result<u16, String> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(0);
    }
    text.parse().map_err(|_| format!("`{text}` is neither a port from 0 to 65535 nor `none`"))
}

fn limit(text: &str) -> Result<u32, String> {
    if text.eq_ignore_ascii_case("none") { Ok(u32::MAX) } else { count(text) }
}

fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number like `0.3`"))
}

fn bound(text: &str) -> Result<Duration, String> {
    if text.eq_ignore_ascii_case("none") { Ok(Duration::MAX) } else { parse_duration(text) }
}
