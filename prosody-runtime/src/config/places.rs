//! Which cluster, topics and addresses do the options name?

use std::sync::Arc;

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

/// The topic of life-cycle events, unless they are off.
pub(super) fn telemetry(
    check: &mut Check,
    enabled: Option<bool>,
    topic: Option<String>,
    subscribed: &[String],
) -> Option<Arc<str>> {
    let topic = topic.unwrap_or_else(|| TELEMETRY_TOPIC.to_owned());
    if let Some(why) = wrong_topic(&topic) {
        check.wrong("TelemetryTopic", why);
    } else if enabled == Some(true) && subscribed.contains(&topic) {
        check.wrong(
            "TelemetryTopic",
            "must not be one of SubscribedTopics (PROSODY_SUBSCRIBED_TOPICS): every event would cause others",
        );
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
        return Some(format!("`{topic}`: topics by pattern are not in this version; list the names"));
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

/// Each topic once.
pub(super) fn distinct(mut topics: Vec<String>) -> Vec<Arc<str>> {
    topics.sort();
    topics.dedup();
    topics.into_iter().map(Arc::from).collect()
}
