//! Which options exist, under which names, with which defaults and rules? The one table: the environment, text
//! options of bindings, error messages and CONFIGURATION.md all come from it.

use std::fmt;
use std::time::Duration;

use prosody_wire::Secret;

use super::choices::{
    Compression, GroupProtocol, IsolationLevel, Mode, Partitioner, SaslMechanism, SecurityProtocol,
    SpanRelation,
};
use super::options::Options;

/// Where an option's value lives, and so how its text is read.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    Text(fn(&mut Options) -> &mut Option<String>),
    Secret(fn(&mut Options) -> &mut Option<Secret>),
    Security(fn(&mut Options) -> &mut Option<SecurityProtocol>),
    Mechanism(fn(&mut Options) -> &mut Option<SaslMechanism>),
    List(fn(&mut Options) -> &mut Option<Vec<String>>),
    Flag(fn(&mut Options) -> &mut Option<bool>),
    Count(fn(&mut Options) -> &mut Option<u32>),
    /// A count or `none`, which is `u32::MAX`.
    Limit(fn(&mut Options) -> &mut Option<u32>),
    Number(fn(&mut Options) -> &mut Option<f64>),
    Size(fn(&mut Options) -> &mut Option<u64>),
    Duration(fn(&mut Options) -> &mut Option<Duration>),
    /// A port or `none`, which is 0.
    Port(fn(&mut Options) -> &mut Option<u16>),
    /// A duration or `none`, which is `Duration::MAX`.
    Bound(fn(&mut Options) -> &mut Option<Duration>),
    Mode(fn(&mut Options) -> &mut Option<Mode>),
    Isolation(fn(&mut Options) -> &mut Option<IsolationLevel>),
    GroupProtocol(fn(&mut Options) -> &mut Option<GroupProtocol>),
    Compression(fn(&mut Options) -> &mut Option<Compression>),
    Partitioner(fn(&mut Options) -> &mut Option<Partitioner>),
    Relation(fn(&mut Options) -> &mut Option<SpanRelation>),
    /// The feature does not exist yet.
    Missing,
}

/// Whether this version has the option's feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Yes.
    Full,
    /// Not yet. Only the listed values, which ask for nothing, are accepted; building refuses any other by name.
    OffOnly(&'static [&'static str]),
    /// Read by the program around this crate; accepted and ignored here.
    Elsewhere,
}

/// One option.
#[derive(Clone, Copy)]
pub struct OptionSpec {
    /// Its name in code, as .NET writes it.
    pub name: &'static str,
    /// Its environment variable.
    pub variable: &'static str,
    /// Its default, as documentation writes it.
    pub default: &'static str,
    /// What values are allowed.
    pub rule: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Whether this version has its feature.
    pub support: Support,
    pub(crate) field: Field,
}

impl OptionSpec {
    /// The option of that name or variable; letter case does not matter.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static OptionSpec> {
        OPTIONS.iter().find(|spec| {
            spec.name.eq_ignore_ascii_case(name)
                || (!spec.variable.is_empty() && spec.variable.eq_ignore_ascii_case(name))
        })
    }

    /// Whether `text` asks for no value where none is the default. Limits have a value for it, and a secret may be the
    /// word.
    pub(crate) fn says_no_value(&self, text: &str) -> bool {
        matches!(self.field, Field::Text(_) | Field::Mechanism(_) | Field::Missing)
            && self.default.starts_with("none")
            && text.trim().eq_ignore_ascii_case("none")
    }

    pub(crate) fn problem(&self, why: impl Into<String>) -> Problem {
        Problem { option: self.name.to_owned(), variable: self.variable.to_owned(), why: why.into() }
    }
}

impl fmt::Debug for OptionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.variable)
    }
}

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The option's name in code.
    pub option: String,
    /// Its environment variable; empty for an unknown option.
    pub variable: String,
    /// What is wrong and what would be right.
    pub why: String,
}

impl Problem {
    pub(crate) fn unknown(name: &str) -> Problem {
        let why = "there is no such option".to_owned();
        Problem { option: name.to_owned(), variable: String::new(), why }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.variable.as_str() {
            "" => write!(f, "{}: {}", self.option, self.why),
            variable => write!(f, "{} ({variable}): {}", self.option, self.why),
        }
    }
}

/// Everything that is wrong with a configuration, in one error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Never empty.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration cannot be used:")?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n- {problem}"))
    }
}

impl std::error::Error for ConfigError {}

/// Every option, in the order in which CONFIGURATION.md lists them.
pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "BootstrapServers",
        variable: "PROSODY_BOOTSTRAP_SERVERS",
        default: "required unless mock",
        rule: "comma-separated `host:port`; in mock mode any text, which names the cluster",
        doc: "Brokers to ask first; the rest of the cluster is learned from them.",
        support: Support::Full,
        field: Field::List(|o| &mut o.bootstrap_servers),
    },
    OptionSpec {
        name: "GroupId",
        variable: "PROSODY_GROUP_ID",
        default: "required to subscribe",
        rule: "not blank",
        doc: "The consumer group, usually the application's name.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.group_id),
    },
    OptionSpec {
        name: "SubscribedTopics",
        variable: "PROSODY_SUBSCRIBED_TOPICS",
        default: "required to subscribe",
        rule: "comma-separated topic names of at most 249 letters, digits, `.`, `_` and `-`; an entry that starts with `^` is a \
               regular expression of at most 1,024 bytes",
        doc: "Topics to consume. A regular expression means every topic whose whole name it matches (`^orders-.*`), those that \
              appear later too and Kafka's internal ones never; it may match none yet. In groups of the consumer protocol the \
              broker matches, by RE2J, and elsewhere the client, every 5 minutes at the latest: both take the syntax that \
              RE2 does, without look-around and backreferences.",
        support: Support::Full,
        field: Field::List(|o| &mut o.subscribed_topics),
    },
    OptionSpec {
        name: "AllowedEvents",
        variable: "PROSODY_ALLOWED_EVENTS",
        default: "all",
        rule: "comma-separated prefixes",
        doc: "Messages whose top-level string `type` starts with none of the prefixes are skipped; messages without \
              one are processed.",
        support: Support::Full,
        field: Field::List(|o| &mut o.allowed_events),
    },
    OptionSpec {
        name: "SourceSystem",
        variable: "PROSODY_SOURCE_SYSTEM",
        default: "the group id",
        rule: "not blank",
        doc: "Written to the `source-system` header of every sent message. Messages whose header equals the group id \
              are skipped, so set it to another value to consume what you send.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.source_system),
    },
    missing("Subsystem", "PROSODY_SUBSYSTEM", "none", "Names the readers of published keyed state.", &[]),
    OptionSpec {
        name: "Mode",
        variable: "PROSODY_MODE",
        default: "pipeline",
        rule: "`pipeline`, `low-latency` or `best-effort`",
        doc: "What happens to an event whose handler fails: pipeline retries it until it succeeds, low-latency retries it \
              `MaxRetries` times and then sends it to `FailureTopic`, best-effort logs it and goes on. A permanent \
              error is never retried.",
        support: Support::Full,
        field: Field::Mode(|o| &mut o.mode),
    },
    OptionSpec {
        name: "Mock",
        variable: "PROSODY_MOCK",
        default: "false",
        rule: "`true` or `false`",
        doc: "Use a broker inside this process instead of a real one. Clients of one process whose bootstrap servers \
              are equal share it.",
        support: Support::Full,
        field: Field::Flag(|o| &mut o.mock),
    },
    OptionSpec {
        name: "MaxConcurrency",
        variable: "PROSODY_MAX_CONCURRENCY",
        default: "32",
        rule: "≥ 1",
        doc: "Handlers that run at once, over all partitions.",
        support: Support::Full,
        field: Field::Count(|o| &mut o.max_concurrency),
    },
    OptionSpec {
        name: "MaxUncommitted",
        variable: "PROSODY_MAX_UNCOMMITTED",
        default: "64",
        rule: "≥ 1",
        doc: "Messages of one partition in progress at once: running, queued behind their key, or waiting for a retry.",
        support: Support::Full,
        field: Field::Count(|o| &mut o.max_uncommitted),
    },
    OptionSpec {
        name: "Timeout",
        variable: "PROSODY_TIMEOUT",
        default: "80 % of StallThreshold",
        rule: "> 0",
        doc: "How long one attempt of a handler may run before it is asked to cancel.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.timeout),
    },
    OptionSpec {
        name: "StallThreshold",
        variable: "PROSODY_STALL_THRESHOLD",
        default: "5m",
        rule: "> 0",
        doc: "A partition counts as stalled when a handler of it runs longer than this, or records are unfinished and none of them finished for this long. One with nothing to do is not.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.stall_threshold),
    },
    OptionSpec {
        name: "ShutdownTimeout",
        variable: "PROSODY_SHUTDOWN_TIMEOUT",
        default: "30s",
        rule: "> 0, at most 1h",
        doc: "How long running handlers may go on when their partition is given up. They are asked to cancel after \
              80 % of it and abandoned at its end.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.shutdown_timeout),
    },
    OptionSpec {
        name: "CommitInterval",
        variable: "PROSODY_COMMIT_INTERVAL",
        default: "1s",
        rule: "> 0",
        doc: "How often finished offsets are committed. They are also committed whenever a partition is given up.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.commit_interval),
    },
    OptionSpec {
        name: "PollInterval",
        variable: "PROSODY_POLL_INTERVAL",
        default: "100ms",
        rule: "> 0, at most 10s",
        doc: "How long a broker may hold back a fetch that has nothing to return.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.poll_interval),
    },
    OptionSpec {
        name: "ProbePort",
        variable: "PROSODY_PROBE_PORT",
        default: "8000; none in mock mode",
        rule: "1 to 65535; `0` or `none` for no probes",
        doc: "Port of `/readyz`, `/livez`, `/metrics` and a live page at `/`, while the client is subscribed. Clients of \
              one process may share it; when another process uses it, subscribing fails.",
        support: Support::Full,
        field: Field::Port(|o| &mut o.probe_port),
    },
    OptionSpec {
        name: "ProbeAddress",
        variable: "PROSODY_PROBE_ADDRESS",
        default: "all interfaces",
        rule: "an IP address",
        doc: "Address the probes listen on.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.probe_address),
    },
    OptionSpec {
        name: "ProbeDetails",
        variable: "PROSODY_PROBE_DETAILS",
        default: "false",
        rule: "`true` or `false`",
        doc: "Whether the probes show keys. Whoever reaches the port can read them.",
        support: Support::Full,
        field: Field::Flag(|o| &mut o.probe_details),
    },
    OptionSpec {
        name: "SubscribeTimeout",
        variable: "PROSODY_SUBSCRIBE_TIMEOUT",
        default: "30s",
        rule: "> 0",
        doc: "How long subscribing may look for the cluster before it fails.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.subscribe_timeout),
    },
    OptionSpec {
        name: "FetchBufferSize",
        variable: "PROSODY_FETCH_BUFFER_SIZE",
        default: "64MiB",
        rule: "≥ 1 MiB",
        doc: "Memory for fetched records of all partitions together, counted decompressed. Records that wait for longer than a second are copied out of it, which takes as much again at most.",
        support: Support::Full,
        field: Field::Size(|o| &mut o.fetch_buffer_size),
    },
    OptionSpec {
        name: "FailureTopic",
        variable: "PROSODY_FAILURE_TOPIC",
        default: "none; required in low-latency mode",
        rule: "a topic that is none of SubscribedTopics and matches none of its patterns",
        doc: "Where low-latency mode sends messages whose handler failed, and every mode sends records that are no \
              messages: with their key, value and headers, and headers `source-…` that say where they come from and \
              why. It must exist.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.failure_topic),
    },
    OptionSpec {
        name: "SendTimeout",
        variable: "PROSODY_SEND_TIMEOUT",
        default: "30s",
        rule: "> 0 or `none`",
        doc: "How long a send may take, retries included. `none` waits without bound.",
        support: Support::Full,
        field: Field::Bound(|o| &mut o.send_timeout),
    },
    OptionSpec {
        name: "MaxRetries",
        variable: "PROSODY_MAX_RETRIES",
        default: "3",
        rule: "≥ 0",
        doc: "In low-latency mode, attempts after the first before a message goes to the failure topic.",
        support: Support::Full,
        field: Field::Count(|o| &mut o.max_retries),
    },
    OptionSpec {
        name: "RetryBase",
        variable: "PROSODY_RETRY_BASE",
        default: "20ms",
        rule: "> 0, at most MaxRetryDelay",
        doc: "The n-th retry of an event waits a random time up to this × 2ⁿ.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.retry_base),
    },
    OptionSpec {
        name: "MaxRetryDelay",
        variable: "PROSODY_RETRY_MAX_DELAY",
        default: "5m",
        rule: "> 0, at least RetryBase",
        doc: "The longest wait between two attempts at an event.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.max_retry_delay),
    },
    OptionSpec {
        name: "DeferEnabled",
        variable: "PROSODY_DEFER_ENABLED",
        default: "true where timers have a store",
        rule: "`true` or `false`",
        doc: "In pipeline mode, whether an event whose handler fails is set aside: its offset counts as done, and it runs again after a wait, before later events of its key. Needs a store: with `true` and without one subscribing fails, unset it is off then. What is set aside already is worked off either way.",
        support: Support::Full,
        field: Field::Flag(|o| &mut o.defer_enabled),
    },
    OptionSpec {
        name: "DeferBase",
        variable: "PROSODY_DEFER_BASE",
        default: "1s",
        rule: "≥ 1s",
        doc: "The wait before the first retry of an event that was set aside. The n-th retry after that waits a random number of seconds up to this × 2ⁿ.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.defer_base),
    },
    OptionSpec {
        name: "DeferMaxDelay",
        variable: "PROSODY_DEFER_MAX_DELAY",
        default: "1d",
        rule: "≥ DeferBase",
        doc: "The longest of those waits.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.defer_max_delay),
    },
    OptionSpec {
        name: "DeferFailureThreshold",
        variable: "PROSODY_DEFER_FAILURE_THRESHOLD",
        default: "0.9",
        rule: "more than 0, at most 1",
        doc: "When a larger share of first attempts fails, nothing new is set aside: it is no longer a matter of single keys, and events are retried in place. At least 20 attempts have to be in the window.",
        support: Support::Full,
        field: Field::Number(|o| &mut o.defer_failure_threshold),
    },
    OptionSpec {
        name: "DeferFailureWindow",
        variable: "PROSODY_DEFER_FAILURE_WINDOW",
        default: "5m",
        rule: "≥ 1s",
        doc: "How far back that share looks.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.defer_failure_window),
    },
    OptionSpec {
        name: "DeferMaxRetries",
        variable: "PROSODY_DEFER_MAX_RETRIES",
        default: "none",
        rule: "≥ 0 or `none`",
        doc: "Retries of an event that was set aside. Then it goes to `FailureTopic` if there is one, or is logged and passed over.",
        support: Support::Full,
        field: Field::Limit(|o| &mut o.defer_max_retries),
    },
    OptionSpec {
        name: "MonopolizationEnabled",
        variable: "PROSODY_MONOPOLIZATION_ENABLED",
        default: "true",
        rule: "`true` or `false`",
        doc: "In pipeline mode, whether a key that takes nearly all the time is held back: its next event counts as failed for now, without running.",
        support: Support::Full,
        field: Field::Flag(|o| &mut o.monopolization_enabled),
    },
    OptionSpec {
        name: "MonopolizationThreshold",
        variable: "PROSODY_MONOPOLIZATION_THRESHOLD",
        default: "0.9",
        rule: "more than 0, at most 1",
        doc: "Share of MonopolizationWindow that handlers of one key may run.",
        support: Support::Full,
        field: Field::Number(|o| &mut o.monopolization_threshold),
    },
    OptionSpec {
        name: "MonopolizationWindow",
        variable: "PROSODY_MONOPOLIZATION_WINDOW",
        default: "5m",
        rule: "≥ 1s",
        doc: "How far back that share looks.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.monopolization_window),
    },
    OptionSpec {
        name: "SchedulerFailureWeight",
        variable: "PROSODY_SCHEDULER_FAILURE_WEIGHT",
        default: "0.3",
        rule: "more than 0, less than 1",
        doc: "The share of execution time that retries get while both they and first attempts wait; first attempts get the rest. Alone, either gets everything.",
        support: Support::Full,
        field: Field::Number(|o| &mut o.scheduler_failure_weight),
    },
    OptionSpec {
        name: "SchedulerMaxWait",
        variable: "PROSODY_SCHEDULER_MAX_WAIT",
        default: "2m",
        rule: "> 0",
        doc: "An event that waits for a permit gains priority with the square of its wait, up to this long.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.scheduler_max_wait),
    },
    OptionSpec {
        name: "SchedulerWaitWeight",
        variable: "PROSODY_SCHEDULER_WAIT_WEIGHT",
        default: "200",
        rule: "seconds, ≥ 0",
        doc: "How many seconds of execution time of its key that wait makes up for. A key never has more than 173 s, because its time halves every 2 minutes.",
        support: Support::Full,
        field: Field::Number(|o| &mut o.scheduler_wait_weight),
    },
    OptionSpec {
        name: "IdempotenceCacheSize",
        variable: "PROSODY_IDEMPOTENCE_CACHE_SIZE",
        default: "8192",
        rule: "≥ 1",
        doc: "Message ids remembered, to skip a message whose key and `id` were processed before.",
        support: Support::Full,
        field: Field::Count(|o| &mut o.idempotence_cache_size),
    },
    OptionSpec {
        name: "IdempotenceVersion",
        variable: "PROSODY_IDEMPOTENCE_VERSION",
        default: "1",
        rule: "not blank",
        doc: "Change it to forget all remembered ids.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.idempotence_version),
    },
    OptionSpec {
        name: "IdempotenceTtl",
        variable: "PROSODY_IDEMPOTENCE_TTL",
        default: "7d",
        rule: "≥ 1m",
        doc: "How long an id is remembered.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.idempotence_ttl),
    },
    OptionSpec {
        name: "LoaderCacheSize",
        variable: "PROSODY_LOADER_CACHE_SIZE",
        default: "64MiB",
        rule: "bytes, ≥ 0",
        doc: "Memory for messages that were set aside, so that they need not be read from Kafka again.",
        support: Support::Full,
        field: Field::Size(|o| &mut o.loader_cache_size),
    },
    OptionSpec {
        name: "LoaderSeekTimeout",
        variable: "PROSODY_LOADER_SEEK_TIMEOUT",
        default: "30s",
        rule: "> 0",
        doc: "How long reading such a message from Kafka may take. After that it waits for its next retry.",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.loader_seek_timeout),
    },
    OptionSpec {
        name: "MessageSpans",
        variable: "PROSODY_MESSAGE_SPANS",
        default: "child",
        rule: "`child` or `follows_from`",
        doc: "How the span of a message's handler relates to its sender's: a child in the same trace, or the root of a \
              trace of its own with a link to it.",
        support: Support::Full,
        field: Field::Relation(|o| &mut o.message_spans),
    },
    OptionSpec {
        name: "TimerSpans",
        variable: "PROSODY_TIMER_SPANS",
        default: "follows_from",
        rule: "`child` or `follows_from`",
        doc: "The same for a timer's handler and the one that scheduled the timer.",
        support: Support::Full,
        field: Field::Relation(|o| &mut o.timer_spans),
    },
    missing("CassandraNodes", "PROSODY_CASSANDRA_NODES", "none", "Where state is kept.", &[]),
    missing("CassandraKeyspace", "PROSODY_CASSANDRA_KEYSPACE", "prosody", "The keyspace of state.", &[]),
    missing("CassandraUser", "PROSODY_CASSANDRA_USER", "none", "User of the store.", &[]),
    missing("CassandraPassword", "PROSODY_CASSANDRA_PASSWORD", "none", "Password of the store.", &[]),
    missing("CassandraDatacenter", "PROSODY_CASSANDRA_DATACENTER", "none", "Preferred datacenter.", &[]),
    missing("CassandraRack", "PROSODY_CASSANDRA_RACK", "none", "Preferred rack.", &[]),
    missing("CassandraRetention", "PROSODY_CASSANDRA_RETENTION", "1y", "How long state is kept.", &[]),
    missing("CassandraReplication", "PROSODY_CASSANDRA_REPLICATION", "none", "Replication of state.", &[]),
    OptionSpec {
        name: "StateOwnedCacheSize",
        variable: "PROSODY_STATE_OWNED_CACHE_SIZE",
        default: "64MiB",
        rule: "bytes, ≥ 0",
        doc: "Memory for what the store has of keys (timers, deferred events), over all partitions of a client, so that it \
              need not be read again.",
        support: Support::Full,
        field: Field::Size(|o| &mut o.state_owned_cache_size),
    },
    missing("StateReadCacheSize", "PROSODY_STATE_READ_CACHE_SIZE", "1MiB", "Cache of published state.", &[]),
    missing("StateReadCache", "PROSODY_STATE_READ_CACHE_TTL", "5s", "Age of cached published state.", &[]),
    OptionSpec {
        name: "TelemetryEnabled",
        variable: "PROSODY_TELEMETRY_ENABLED",
        default: "false",
        rule: "`true` or `false`",
        doc: "Sends an event to TelemetryTopic whenever a handler starts or ends, a message was sent, or a timer was scheduled or cancelled. Events \
              are dropped, and counted, rather than slowing anything.",
        support: Support::Full,
        field: Field::Flag(|o| &mut o.telemetry_enabled),
    },
    OptionSpec {
        name: "TelemetryTopic",
        variable: "PROSODY_TELEMETRY_TOPIC",
        default: "prosody.telemetry-events",
        rule: "a topic that is none of SubscribedTopics and matches none of its patterns",
        doc: "Where those events go. It must exist.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.telemetry_topic),
    },
    OptionSpec {
        name: "SecurityProtocol",
        variable: "PROSODY_SECURITY_PROTOCOL",
        default: "plaintext",
        rule: "`plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`",
        doc: "How brokers are reached: encrypted (`ssl`), authenticated (`sasl_`), both or neither. `sasl_plaintext` warns.",
        support: Support::Full,
        field: Field::Security(|o| &mut o.security_protocol),
    },
    OptionSpec {
        name: "SaslMechanism",
        variable: "PROSODY_SASL_MECHANISM",
        default: "none",
        rule: "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`; required with `sasl_`",
        doc: "How the client proves who it is.",
        support: Support::Full,
        field: Field::Mechanism(|o| &mut o.sasl_mechanism),
    },
    OptionSpec {
        name: "SaslUsername",
        variable: "PROSODY_SASL_USERNAME",
        default: "none",
        rule: "not blank; required with `sasl_`, not with OAUTHBEARER",
        doc: "User of the brokers.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.sasl_username),
    },
    OptionSpec {
        name: "SaslPassword",
        variable: "PROSODY_SASL_PASSWORD",
        default: "none",
        rule: "required with `sasl_`, not with OAUTHBEARER",
        doc: "Password of that user. Never printed.",
        support: Support::Full,
        field: Field::Secret(|o| &mut o.sasl_password),
    },
    OptionSpec {
        name: "SaslOauthTokenEndpoint",
        variable: "PROSODY_SASL_OAUTH_TOKEN_ENDPOINT",
        default: "none",
        rule: "a URL, `https://…`; with OAUTHBEARER, unless a token provider is given in code",
        doc: "Where tokens come from (OIDC client credentials, KIP-768). Its certificate is checked against SslCaLocation and the platform's authorities. `http://` warns.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.sasl_oauth_token_endpoint),
    },
    OptionSpec {
        name: "SaslOauthClientId",
        variable: "PROSODY_SASL_OAUTH_CLIENT_ID",
        default: "none",
        rule: "not blank; with SaslOauthTokenEndpoint",
        doc: "What the identity provider knows this client by.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.sasl_oauth_client_id),
    },
    OptionSpec {
        name: "SaslOauthClientSecret",
        variable: "PROSODY_SASL_OAUTH_CLIENT_SECRET",
        default: "none",
        rule: "with SaslOauthTokenEndpoint",
        doc: "Secret of that client. Never printed.",
        support: Support::Full,
        field: Field::Secret(|o| &mut o.sasl_oauth_client_secret),
    },
    OptionSpec {
        name: "SaslOauthScope",
        variable: "PROSODY_SASL_OAUTH_SCOPE",
        default: "none",
        rule: "names separated by spaces; with SaslOauthTokenEndpoint",
        doc: "What the token should allow. Unset leaves that to the provider.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.sasl_oauth_scope),
    },
    OptionSpec {
        name: "SslCaLocation",
        variable: "PROSODY_SSL_CA_LOCATION",
        default: "those of the platform",
        rule: "a PEM file",
        doc: "Authorities whose certificates are trusted. Read again when it changes.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.ssl_ca_location),
    },
    OptionSpec {
        name: "SslCertificateLocation",
        variable: "PROSODY_SSL_CERTIFICATE_LOCATION",
        default: "none",
        rule: "a PEM file; with SslKeyLocation",
        doc: "Certificate of the client, for brokers that ask for one. Read again when it changes.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.ssl_certificate_location),
    },
    OptionSpec {
        name: "SslKeyLocation",
        variable: "PROSODY_SSL_KEY_LOCATION",
        default: "none",
        rule: "a PEM file: PKCS#8, PKCS#1 or SEC1; with SslCertificateLocation",
        doc: "Private key of that certificate. Read again when it changes.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.ssl_key_location),
    },
    OptionSpec {
        name: "SslKeyPassword",
        variable: "PROSODY_SSL_KEY_PASSWORD",
        default: "none",
        rule: "with SslKeyLocation",
        doc: "Unlocks that key when it is encrypted (PKCS#8, PBES2 with PBKDF2 and AES-CBC). Never printed.",
        support: Support::Full,
        field: Field::Secret(|o| &mut o.ssl_key_password),
    },
    OptionSpec {
        name: "ClientRack",
        variable: "PROSODY_CLIENT_RACK",
        default: "none",
        rule: "not blank",
        doc: "Where this process runs: partitions are read from an in-sync replica in the same place where the brokers select \
              one, and from the leader while that fails (KIP-392); groups prefer members near a replica where balance allows \
              it (KIP-881).",
        support: Support::Full,
        field: Field::Text(|o| &mut o.client_rack),
    },
    OptionSpec {
        name: "GroupInstanceId",
        variable: "PROSODY_GROUP_INSTANCE_ID",
        default: "none",
        rule: "not blank, unique in the group",
        doc: "Makes the member static (KIP-345): it keeps its partitions over a restart and does not leave on close.",
        support: Support::Full,
        field: Field::Text(|o| &mut o.group_instance_id),
    },
    OptionSpec {
        name: "GroupProtocol",
        variable: "PROSODY_GROUP_PROTOCOL",
        default: "auto",
        rule: "`auto`, `classic` or `consumer`",
        doc: "How members agree on partitions: the broker divides (`consumer`, KIP-848) or they do (`classic`). `auto` is \
              `consumer` where the broker serves it and the group has no classic members.",
        support: Support::Full,
        field: Field::GroupProtocol(|o| &mut o.group_protocol),
    },
    OptionSpec {
        name: "SessionTimeout",
        variable: "PROSODY_SESSION_TIMEOUT",
        default: "45s",
        rule: "≥ 1s, within the broker's limits",
        doc: "A member not heard of for this long loses its partitions. By the consumer protocol the group's own setting \
              counts (`consumer.session.timeout.ms`).",
        support: Support::Full,
        field: Field::Duration(|o| &mut o.session_timeout),
    },
    OptionSpec {
        name: "IsolationLevel",
        variable: "PROSODY_ISOLATION_LEVEL",
        default: "read_committed",
        rule: "`read_committed` or `read_uncommitted`",
        doc: "Whether records of open and aborted transactions are consumed.",
        support: Support::Full,
        field: Field::Isolation(|o| &mut o.isolation_level),
    },
    OptionSpec {
        name: "Compression",
        variable: "PROSODY_COMPRESSION",
        default: "lz4",
        rule: "`none`, `gzip`, `snappy`, `lz4` or `zstd`",
        doc: "How sent batches are compressed.",
        support: Support::Full,
        field: Field::Compression(|o| &mut o.compression),
    },
    OptionSpec {
        name: "Partitioner",
        variable: "PROSODY_PARTITIONER",
        default: "crc32",
        rule: "`crc32` or `murmur2`",
        doc: "How a key chooses its partition: as .NET and C clients do, or as Java clients do.",
        support: Support::Full,
        field: Field::Partitioner(|o| &mut o.partitioner),
    },
    missing(
        "AcceptPartitionGrowth",
        "PROSODY_ACCEPT_PARTITION_GROWTH",
        "false",
        "Accepts new partitions.",
        &["false"],
    ),
    OptionSpec {
        name: "Log",
        variable: "PROSODY_LOG",
        default: "info",
        rule: "a `tracing` filter",
        doc: "Which log lines are written. Read by the program around this crate, not by the crate.",
        support: Support::Elsewhere,
        field: Field::Missing,
    },
];

/// An option whose feature this version does not have; `off` are the values that ask for nothing.
const fn missing(
    name: &'static str,
    variable: &'static str,
    default: &'static str,
    doc: &'static str,
    off: &'static [&'static str],
) -> OptionSpec {
    let rule = "not in this version";
    OptionSpec { name, variable, default, rule, doc, support: Support::OffOnly(off), field: Field::Missing }
}
