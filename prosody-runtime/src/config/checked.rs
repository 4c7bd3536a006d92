//! Is all of it usable together? Raw options become [`Checked`] once, or one error with everything that is wrong.

use std::sync::Arc;
use std::time::Duration;

use prosody_wire::group::{Assignor, TopicPattern};
use prosody_wire::produce::ProducerConfig;

use super::choices::{Compression, GroupProtocol, IsolationLevel, Mode, Partitioner, SpanRelation};
use super::options::Options;
use super::places::{Subscribed, cluster, probes, telemetry, wrong_topic};
use super::security::Security;
use super::table::{ConfigError, OptionSpec, Problem};
use crate::pipeline::defer::Deferral;
use crate::pipeline::monopoly;
use crate::probes::Place;
use crate::schedule::fair::Policy;

/// The rebalance timeout must outlast a drain, and brokers refuse absurd ones.
const MAX_SHUTDOWN: Duration = Duration::from_secs(3_600);
/// Longer would let a broker hold a fetch past our request timeout.
pub(crate) const MAX_POLL: Duration = Duration::from_secs(10);
/// Longest window of a share.
const MAX_WINDOW: Duration = Duration::from_secs(86_400);
/// What is longer counts as this: nothing runs for so long, and its sum with any time has a form.
const AGES: Duration = Duration::from_secs(100 * 31_557_600);
/// Longest text of an option, secrets apart. Requests carry some of them, and a client id has no more.
const MAX_TEXT: usize = 1_024;
/// Less could not hold one default fetch of a partition.
const MIN_FETCH_BUFFER: u64 = 1 << 20;

/// Options that fit, with defaults filled in.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "each is read where its feature lives")]
pub(crate) struct Checked {
    pub(crate) bootstrap: Vec<String>,
    /// Names the in-process cluster when mock is on.
    pub(crate) mock: Option<String>,
    pub(crate) group_id: Option<Arc<str>>,
    pub(crate) topics: Vec<Arc<str>>,
    pub(crate) patterns: Vec<TopicPattern>,
    pub(crate) allowed_events: Vec<String>,
    /// Empty without a source system and a group id; sending is an error then.
    pub(crate) source_system: Arc<str>,
    pub(crate) mode: Mode,
    pub(crate) max_concurrency: usize,
    pub(crate) max_uncommitted: usize,
    pub(crate) timeout: Duration,
    pub(crate) stall_threshold: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) commit_interval: Duration,
    pub(crate) poll_interval: Duration,
    /// Where the probes listen, if they do.
    pub(crate) probes: Option<Place>,
    pub(crate) probe_details: bool,
    pub(crate) subscribe_timeout: Duration,
    pub(crate) fetch_buffer: u64,
    pub(crate) failure_topic: Option<Arc<str>>,
    pub(crate) max_retries: u32,
    /// `None` waits without bound.
    pub(crate) send_timeout: Option<Duration>,
    pub(crate) retry_base: Duration,
    pub(crate) max_retry_delay: Duration,
    pub(crate) deferral: Deferral,
    /// Deferral was asked for by name: without a store that is an error.
    pub(crate) defer_asked: bool,
    pub(crate) monopoly: Option<monopoly::Limits>,
    pub(crate) loader_cache: u64,
    pub(crate) state_owned_cache: u64,
    pub(crate) loader_seek_timeout: Duration,
    pub(crate) scheduler: Policy,
    pub(crate) idempotence_cache: usize,
    pub(crate) idempotence_version: String,
    pub(crate) idempotence_ttl: Duration,
    pub(crate) message_spans: SpanRelation,
    pub(crate) timer_spans: SpanRelation,
    /// Where life-cycle events go, if anywhere.
    pub(crate) telemetry: Option<Arc<str>>,
    pub(crate) security: Security,
    pub(crate) client_rack: Option<String>,
    pub(crate) instance_id: Option<String>,
    pub(crate) session_timeout: Duration,
    pub(crate) group_protocol: GroupProtocol,
    pub(crate) assignors: Option<Vec<Assignor>>,
    pub(crate) isolation: IsolationLevel,
    pub(crate) compression: Compression,
    pub(crate) partitioner: Partitioner,
}

impl Checked {
    /// Whether there is anything to subscribe to.
    pub(crate) fn has_topics(&self) -> bool {
        !(self.topics.is_empty() && self.patterns.is_empty())
    }

    /// What is subscribed to, as the user wrote it.
    pub(crate) fn subscribed(&self) -> Vec<String> {
        let patterns = self.patterns.iter().map(|pattern| pattern.as_str().to_owned());
        self.topics.iter().map(ToString::to_string).chain(patterns).collect()
    }

    /// How records are sent.
    pub(crate) fn producer(&self) -> ProducerConfig {
        let (compression, partitioner) = (self.compression.into(), self.partitioner.into());
        ProducerConfig { compression, partitioner, ..ProducerConfig::default() }
    }
}

/// Collects what is wrong while values are taken.
pub(super) struct Check {
    problems: Vec<Problem>,
}

impl Check {
    pub(super) fn wrong(&mut self, option: &str, why: impl Into<String>) {
        let problem = match OptionSpec::find(option) {
            Some(spec) => spec.problem(why),
            None => Problem { option: option.to_owned(), variable: String::new(), why: why.into() },
        };
        self.problems.push(problem);
    }

    fn span(
        &mut self,
        option: &str,
        value: Option<Duration>,
        default: Duration,
        least: Duration,
        most: Duration,
    ) -> Duration {
        let value = value.unwrap_or(default);
        if value < least {
            let least = super::duration::render_duration(least.max(Duration::from_nanos(1)));
            self.wrong(option, format!("must be at least {least}"));
        } else if value > most {
            self.wrong(option, format!("must be at most {}", super::duration::render_duration(most)));
        }
        value.min(AGES)
    }

    fn positive(&mut self, option: &str, value: Option<Duration>, default: Duration) -> Duration {
        let value = value.unwrap_or(default);
        if value.is_zero() {
            self.wrong(option, "must be longer than 0");
        } else if value == Duration::MAX {
            self.wrong(option, "cannot be without bound");
        }
        value.min(AGES)
    }

    /// More than 0, at most 1; 0.9 by default.
    fn share(&mut self, option: &str, value: Option<f64>) -> f64 {
        let value = value.unwrap_or(0.9);
        if !(value > 0.0 && value <= 1.0) {
            self.wrong(option, "must be more than 0 and at most 1");
        }
        value
    }

    fn at_least_one(&mut self, option: &str, value: Option<u32>, default: u32) -> usize {
        let value = value.unwrap_or(default);
        if value == 0 {
            self.wrong(option, "must be at least 1");
        }
        value as usize
    }

    pub(super) fn text(&mut self, option: &str, value: Option<String>) -> Option<String> {
        if value.as_ref().is_some_and(|text| text.trim().is_empty()) {
            self.wrong(option, "must not be blank");
        }
        if value.as_ref().is_some_and(|text| text.len() > MAX_TEXT) {
            self.wrong(option, format!("must have at most {MAX_TEXT} bytes"));
        }
        value
    }
}

/// Checks everything and reports all problems at once, after those in `found`.
///
/// # Errors
/// [`ConfigError`] with one entry for each thing that is wrong.
pub(crate) fn check(mut options: Options, found: Vec<Problem>) -> Result<Checked, ConfigError> {
    let mut check = Check { problems: found };
    for name in &options.unsupported {
        check.wrong(name, "this version of Prosody does not have this feature yet; leave it unset");
    }
    let mode = options.mode.unwrap_or_default();
    let (bootstrap, mock) =
        cluster(&mut check, options.bootstrap_servers.take(), options.mock.unwrap_or(false));
    let is_mock = mock.is_some();
    let security = super::security::check(&mut check, &mut options, mock.is_some());
    let group_id = check.text("GroupId", options.group_id);
    let subscribed = Subscribed::check(&mut check, options.subscribed_topics.unwrap_or_default());
    let failure_topic = options.failure_topic;
    if let Some(why) = failure_topic.as_deref().and_then(wrong_topic) {
        check.wrong("FailureTopic", why);
    } else if let Some(by) = failure_topic.as_deref().and_then(|topic| subscribed.reads(topic)) {
        let why = format!(
            "must not be one of SubscribedTopics (PROSODY_SUBSCRIBED_TOPICS), which has `{by}`: what failed would come back for ever"
        );
        check.wrong("FailureTopic", why);
    } else if failure_topic.is_none() && mode == Mode::LowLatency {
        check.wrong("FailureTopic", "required in low-latency mode, which sends there what failed");
    }
    let telemetry = telemetry(&mut check, options.telemetry_enabled, options.telemetry_topic, &subscribed);
    let allowed_events = options.allowed_events.unwrap_or_default();
    if allowed_events.iter().any(String::is_empty) {
        check.wrong("AllowedEvents", "an empty prefix allows everything; leave the option unset instead");
    }
    let source_system =
        check.text("SourceSystem", options.source_system).or_else(|| group_id.clone()).unwrap_or_default();
    let seconds = Duration::from_secs;
    let stall_threshold = check.positive("StallThreshold", options.stall_threshold, seconds(300));
    // Of a threshold of 0 one complaint is enough.
    let four_fifths = (stall_threshold / 5 * 4).max(Duration::from_nanos(1));
    let timeout = check.positive("Timeout", options.timeout, four_fifths);
    let shutdown_timeout = check.positive("ShutdownTimeout", options.shutdown_timeout, seconds(30));
    let shutdown_timeout = check.span(
        "ShutdownTimeout",
        Some(shutdown_timeout).filter(|value| !value.is_zero()),
        seconds(30),
        Duration::ZERO,
        MAX_SHUTDOWN,
    );
    let poll_interval = check.positive("PollInterval", options.poll_interval, Duration::from_millis(100));
    if poll_interval > MAX_POLL && options.poll_interval != Some(Duration::MAX) {
        check.wrong("PollInterval", "must be at most 10s");
    }
    let fetch_buffer = options.fetch_buffer_size.unwrap_or(64 << 20);
    if fetch_buffer < MIN_FETCH_BUFFER {
        check.wrong("FetchBufferSize", "must be at least 1 MiB");
    }
    let send_timeout = options.send_timeout.unwrap_or(seconds(30));
    if send_timeout.is_zero() {
        check.wrong("SendTimeout", "must be longer than 0, or `none` to wait without bound");
    }
    let retry_base = check.positive("RetryBase", options.retry_base, Duration::from_millis(20));
    let max_retry_delay = check.positive("MaxRetryDelay", options.max_retry_delay, seconds(300));
    if retry_base > max_retry_delay {
        check.wrong("RetryBase", "must not be longer than MaxRetryDelay (PROSODY_RETRY_MAX_DELAY)");
    }
    let second = seconds(1);
    let deferral = Deferral {
        enabled: options.defer_enabled.unwrap_or(true),
        base: check.span("DeferBase", options.defer_base, second, second, Duration::MAX),
        max: check.positive("DeferMaxDelay", options.defer_max_delay, seconds(86_400)),
        threshold: check.share("DeferFailureThreshold", options.defer_failure_threshold),
        window: check.span(
            "DeferFailureWindow",
            options.defer_failure_window,
            seconds(300),
            second,
            MAX_WINDOW,
        ),
        max_retries: options.defer_max_retries.filter(|most| *most != u32::MAX),
    };
    if deferral.base > deferral.max {
        check.wrong("DeferBase", "must not be longer than DeferMaxDelay (PROSODY_DEFER_MAX_DELAY)");
    }
    let monopoly = monopoly::Limits {
        threshold: check.share("MonopolizationThreshold", options.monopolization_threshold),
        window: check.span(
            "MonopolizationWindow",
            options.monopolization_window,
            seconds(300),
            second,
            MAX_WINDOW,
        ),
    };
    let scheduler = Policy {
        failure_weight: options.scheduler_failure_weight.unwrap_or(0.3),
        max_wait: check.positive("SchedulerMaxWait", options.scheduler_max_wait, seconds(120)),
        wait_weight: options.scheduler_wait_weight.unwrap_or(200.0),
    };
    if !(scheduler.failure_weight > 0.0 && scheduler.failure_weight < 1.0) {
        check.wrong("SchedulerFailureWeight", "must be more than 0 and less than 1");
    }
    if !(scheduler.wait_weight >= 0.0 && scheduler.wait_weight.is_finite()) {
        check.wrong("SchedulerWaitWeight", "must be a finite number of seconds, at least 0");
    }
    let version = check.text("IdempotenceVersion", options.idempotence_version);
    let day = seconds(86_400);
    let checked = Checked {
        bootstrap,
        mock,
        topics: subscribed.topics,
        patterns: subscribed.patterns,
        allowed_events,
        source_system: Arc::from(source_system),
        mode,
        max_concurrency: check.at_least_one("MaxConcurrency", options.max_concurrency, 32),
        max_uncommitted: check.at_least_one("MaxUncommitted", options.max_uncommitted, 64),
        timeout,
        stall_threshold,
        shutdown_timeout,
        commit_interval: check.positive("CommitInterval", options.commit_interval, seconds(1)),
        poll_interval,
        probes: probes(&mut check, options.probe_port, options.probe_address, is_mock),
        probe_details: options.probe_details.unwrap_or(false),
        subscribe_timeout: check.positive("SubscribeTimeout", options.subscribe_timeout, seconds(30)),
        fetch_buffer,
        failure_topic: failure_topic.map(Arc::from),
        max_retries: options.max_retries.unwrap_or(3),
        send_timeout: Some(send_timeout)
            .filter(|timeout| *timeout != Duration::MAX)
            .map(|timeout| timeout.min(AGES)),
        retry_base,
        max_retry_delay,
        deferral,
        defer_asked: options.defer_enabled == Some(true),
        monopoly: Some(monopoly).filter(|_| options.monopolization_enabled.unwrap_or(true)),
        loader_cache: options.loader_cache_size.unwrap_or(64 << 20),
        state_owned_cache: options.state_owned_cache_size.unwrap_or(64 << 20),
        loader_seek_timeout: check.positive("LoaderSeekTimeout", options.loader_seek_timeout, seconds(30)),
        scheduler,
        idempotence_cache: check.at_least_one("IdempotenceCacheSize", options.idempotence_cache_size, 8_192),
        idempotence_version: version.unwrap_or_else(|| "1".to_owned()),
        idempotence_ttl: check.span(
            "IdempotenceTtl",
            options.idempotence_ttl,
            day * 7,
            seconds(60),
            Duration::MAX,
        ),
        message_spans: options.message_spans.unwrap_or(SpanRelation::Child),
        timer_spans: options.timer_spans.unwrap_or(SpanRelation::FollowsFrom),
        telemetry,
        security,
        client_rack: check.text("ClientRack", options.client_rack),
        instance_id: check.text("GroupInstanceId", options.group_instance_id),
        session_timeout: check.span(
            "SessionTimeout",
            options.session_timeout,
            seconds(45),
            seconds(1),
            MAX_SHUTDOWN,
        ),
        assignors: options.assignors,
        group_protocol: options.group_protocol.unwrap_or_default(),
        isolation: options.isolation_level.unwrap_or_default(),
        compression: options.compression.unwrap_or_default(),
        partitioner: options.partitioner.unwrap_or_default(),
        group_id: group_id.map(Arc::from),
    };
    if check.problems.is_empty() { Ok(checked) } else { Err(ConfigError { problems: check.problems }) }
}

#[cfg(test)]
#[path = "checked_tests.rs"]
mod tests;
