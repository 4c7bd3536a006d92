//! What did the user set, in text or in code?

use std::time::Duration;

use std::sync::Arc;

use prosody_wire::group::Assignor;
use prosody_wire::{Secret, TokenProvider};

use super::choices::{
    COMPRESSIONS, Compression, GROUP_PROTOCOLS, GroupProtocol, ISOLATION, IsolationLevel, MECHANISMS, MODES,
    Mode, PARTITIONERS, PROTOCOLS, Partitioner, RELATIONS, SaslMechanism, SecurityProtocol, SpanRelation,
    choice,
};
use super::duration::{parse_duration, parse_size};
use super::security::Tokens;
use super::table::{Field, OPTIONS, OptionSpec, Problem, Support};

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
    pub state_owned_cache_size: Option<u64>,
    pub loader_seek_timeout: Option<Duration>,
    pub message_spans: Option<SpanRelation>,
    pub timer_spans: Option<SpanRelation>,
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
    /// How members of a classic group divide its partitions; cooperative-sticky unless set. For tests of groups that
    /// still divide eagerly.
    #[doc(hidden)]
    pub assignors: Option<Vec<Assignor>>,
}

impl Options {
    /// Sets one option from text, by its name (`MaxConcurrency`) or its variable (`PROSODY_MAX_CONCURRENCY`). Blank
    /// text unsets it, and so does `none` where that is the default (a secret may be that word).
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
        let text = if spec.says_no_value(text) { "" } else { text.trim() };
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
            Field::Relation(of) => *of(self) = given.map(|text| choice(text, RELATIONS)).transpose()?,
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
                Field::Relation(of) => fill(of, &mut self, &mut fallback),
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
        self.assignors = self.assignors.or(fallback.assignors);
        self
    }
}

fn fill<T>(of: fn(&mut Options) -> &mut Option<T>, into: &mut Options, from: &mut Options) {
    if of(into).is_none() {
        *of(into) = of(from).take();
    }
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
