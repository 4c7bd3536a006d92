//! Which cluster, topics and addresses do the options name?

use std::sync::Arc;

use prosody_wire::group::TopicPattern;

use super::checked::Check;
use crate::probes::Place;

/// Longest topic name Kafka accepts.
const MAX_TOPIC_NAME: usize = 249;
/// The topic of life-cycle events unless the user says otherwise.
const TELEMETRY_TOPIC: &str = "prosody.telemetry-events";
/// Where the probes listen unless the user says otherwise.
const PROBE_PORT: u16 = 8_000;
/// The default name of the mock cluster that clients without bootstrap servers share.
pub(super) const MOCK_CLUSTER: &str = "mock";

/// What SubscribedTopics names.
#[derive(Default)]
pub(super) struct Subscribed {
    /// Sorted, each once.
    pub(super) topics: Vec<Arc<str>>,
    /// Entries that start with `^`, each once.
    pub(super) patterns: Vec<TopicPattern>,
}

impl Subscribed {
    pub(super) fn check(check: &mut Check, mut entries: Vec<String>) -> Subscribed {
        entries.sort();
        entries.dedup();
        let mut subscribed = Subscribed::default();
        for entry in entries {
            if !entry.starts_with('^') {
                match wrong_topic(&entry) {
                    Some(why) => check.wrong("SubscribedTopics", why),
                    None => subscribed.topics.push(Arc::from(entry)),
                }
                continue;
            }
            match TopicPattern::new(&entry) {
                Ok(pattern) => subscribed.patterns.push(pattern),
                Err(why) => check.wrong("SubscribedTopics", why.to_string()),
            }
        }
        subscribed
    }

    /// Whether records of this topic are read; what says so, as the user wrote it.
    pub(super) fn reads(&self, topic: &str) -> Option<String> {
        if self.topics.iter().any(|one| **one == *topic) {
            return Some(topic.to_owned());
        }
        self.patterns.iter().find(|one| one.matches(topic)).map(|one| one.as_str().to_owned())
    }
}

/// The topic of life-cycle events, unless they are off.
pub(super) fn telemetry(
    check: &mut Check,
    enabled: Option<bool>,
    topic: Option<String>,
    subscribed: &Subscribed,
) -> Option<Arc<str>> {
    let topic = topic.unwrap_or_else(|| TELEMETRY_TOPIC.to_owned());
    if let Some(why) = wrong_topic(&topic) {
        check.wrong("TelemetryTopic", why);
    } else if let Some(by) = subscribed.reads(&topic).filter(|_| enabled == Some(true)) {
        let why = format!(
            "must not be one of SubscribedTopics (PROSODY_SUBSCRIBED_TOPICS), which has `{by}`: every event would cause others"
        );
        check.wrong("TelemetryTopic", why);
    }
    (enabled == Some(true)).then(|| Arc::from(topic))
}

/// Where the probes listen, unless they are off.
pub(super) fn probes(
    check: &mut Check,
    port: Option<u16>,
    address: Option<String>,
    mock: bool,
) -> Option<Place> {
    let address = check.text("ProbeAddress", address).and_then(|text| match text.trim().parse() {
        Ok(address) => Some(address),
        Err(_) => {
            check.wrong("ProbeAddress", format!("`{text}` is not an IP address such as `127.0.0.1` or `::`"));
            None
        }
    });
    // In mock mode only who asks for probes gets them: tests run beside each other.
    let port = port.unwrap_or(if mock { 0 } else { PROBE_PORT });
    (port != 0).then_some(Place { address, port })
}

/// Real servers, or the name of an in-process cluster.
pub(super) fn cluster(
    check: &mut Check,
    servers: Option<Vec<String>>,
    mock: bool,
) -> (Vec<String>, Option<String>) {
    let servers = servers.unwrap_or_default();
    let named = servers.first().and_then(|first| first.strip_prefix("mock://"));
    if let Some(name) = named {
        if name.is_empty() || servers.len() > 1 {
            check.wrong("BootstrapServers", "`mock://name` needs a name and stands alone");
        }
        let name = name.to_owned();
        return (Vec::new(), Some(name));
    }
    if mock {
        let name = if servers.is_empty() { MOCK_CLUSTER.to_owned() } else { servers.join(",") };
        return (Vec::new(), Some(name));
    }
    if servers.is_empty() {
        check.wrong("BootstrapServers", "required, for example `localhost:9092`");
    }
    for server in &servers {
        let good = server.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty()
                && !host.contains(char::is_whitespace)
                && port.parse::<u16>().is_ok_and(|p| p > 0)
        });
        if !good {
            check.wrong(
                "BootstrapServers",
                format!("`{server}` is not `host:port` with a port from 1 to 65535"),
            );
        }
    }
    (servers, None)
}

/// What is wrong with a topic's name, if anything.
pub(crate) fn wrong_topic(topic: &str) -> Option<String> {
    if topic.starts_with('^') {
        return Some(format!("`{topic}` is a pattern, and this must be the name of one topic"));
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let good = !topic.is_empty()
        && topic.len() <= MAX_TOPIC_NAME
        && topic.chars().all(legal)
        && !matches!(topic, "." | "..");
    (!good).then(|| {
        format!("`{topic}` is not a topic name: 1 to {MAX_TOPIC_NAME} letters, digits, `.`, `_` and `-`")
    })
}
