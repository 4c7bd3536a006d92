//! What do all metrics of one client say at this moment?

use std::time::Duration;

use prosody_base::Distribution;

use super::status::PartitionStatus;
use super::table::{self, MetricSpec};
use super::{Counters, Insight};

/// All metrics of one client; see [`Client::metrics`](crate::Client::metrics).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reading {
    /// The client's number in this process, from 1.
    pub client: u64,
    /// Its group id; empty when it has none.
    pub group: String,
    /// In the order of [`METRICS`](crate::METRICS).
    pub samples: Vec<Sample>,
}

/// One value of a metric.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sample {
    /// Which.
    pub metric: &'static MetricSpec,
    /// Values of the metric's labels, in their order.
    pub labels: Vec<String>,
    /// The value.
    pub value: Value,
}

/// What a sample holds.
#[derive(Clone, Debug)]
pub enum Value {
    /// Of a counter or a gauge.
    Number(f64),
    /// Of a histogram.
    Times(Distribution),
}

/// What runs and waits in a subscription.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) running: usize,
    pub(crate) permits: usize,
    pub(crate) ready: usize,
    pub(crate) retries: usize,
    pub(crate) assigned: usize,
    /// Bytes of key records in memory.
    pub(crate) owned_cache: usize,
}

/// The samples of a client.
pub(crate) fn samples(
    counters: &Counters,
    load: Load,
    partitions: &[PartitionStatus],
    brokers: &[prosody_wire::BrokerFigures],
) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut push = |metric: &'static MetricSpec, labels: &[&str], value: Value| {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        samples.push(Sample { metric, labels, value });
    };
    #[allow(clippy::cast_precision_loss, reason = "Prometheus numbers are floats")]
    let whole = |number: u64| Value::Number(number as f64);
    let seconds = |time: Option<Duration>| Value::Number(time.unwrap_or_default().as_secs_f64());
    let count = |number: usize| whole(number as u64);
    let Insight {
        handled,
        timers_handled,
        failed_attempts,
        panics,
        permanent_errors,
        given_up,
        timers_given_up,
        routed,
        timers_routed,
        failed_routes,
        timeouts,
        retries,
        skipped_own,
        skipped_type,
        duplicates,
        poison,
        tombstones,
        rewound,
        skipped_done,
        skipped_finished,
        abandoned,
        commits,
        failed_commits,
        assignments,
        lost_partitions,
        deferred,
        deferred_gone,
        monopolies,
        reload_hits,
        reloads,
        reloads_gone,
        reloads_failed,
        reload_fetches,
        store_errors,
        store_refusals,
        conflicts,
        sent,
        failed_sends,
        telemetry_sent,
        telemetry_dropped,
        telemetry_failed,
        spans_sent,
        spans_dropped,
        spans_failed,
    } = counters.read();
    push(&table::MESSAGES, &["ok"], whole(handled));
    push(&table::MESSAGES, &["given_up"], whole(given_up.saturating_sub(timers_given_up)));
    push(&table::MESSAGES, &["routed"], whole(routed.saturating_sub(timers_routed)));
    push(&table::TIMERS, &["ok"], whole(timers_handled));
    push(&table::TIMERS, &["given_up"], whole(timers_given_up));
    push(&table::TIMERS, &["routed"], whole(timers_routed));
    push(&table::ATTEMPTS_FAILED, &["transient"], whole(failed_attempts));
    push(&table::ATTEMPTS_FAILED, &["permanent"], whole(permanent_errors));
    push(&table::PANICS, &[], whole(panics));
    push(&table::TIMEOUTS, &[], whole(timeouts));
    push(&table::ABANDONED, &[], whole(abandoned));
    push(&table::RETRIES, &[], whole(retries));
    push(&table::HANDLER_TIME, &[], Value::Times(counters.handler_time.read()));
    push(&table::SKIPPED, &["own"], whole(skipped_own));
    push(&table::SKIPPED, &["type"], whole(skipped_type));
    push(&table::SKIPPED, &["finished"], whole(skipped_finished));
    push(&table::SKIPPED, &["done"], whole(skipped_done));
    push(&table::SKIPPED, &["seen"], whole(rewound));
    push(&table::STORE_ERRORS, &["transient"], whole(store_errors.saturating_sub(store_refusals)));
    push(&table::STORE_ERRORS, &["refused"], whole(store_refusals));
    push(&table::STORE_CONFLICTS, &[], whole(conflicts));
    push(&table::DEDUP_HITS, &[], whole(duplicates));
    push(&table::POISON, &[], whole(poison));
    push(&table::TOMBSTONES, &[], whole(tombstones));
    push(&table::FAILURE_WRITES, &["ok"], whole(routed));
    push(&table::FAILURE_WRITES, &["failed"], whole(failed_routes));
    push(&table::DEFERRED, &[], whole(deferred));
    push(&table::DEFERRED_GONE, &[], whole(deferred_gone));
    push(&table::MONOPOLIES, &[], whole(monopolies));
    push(&table::RELOADS, &["memory"], whole(reload_hits));
    push(&table::RELOADS, &["kafka"], whole(reloads));
    push(&table::RELOADS, &["gone"], whole(reloads_gone));
    push(&table::RELOADS, &["failed"], whole(reloads_failed));
    push(&table::RELOAD_FETCHES, &[], whole(reload_fetches));
    push(&table::PERMITS_USED, &[], count(load.running));
    push(&table::PERMITS, &[], count(load.permits));
    push(&table::READY, &[], count(load.ready));
    push(&table::RETRIES_WAITING, &[], count(load.retries));
    push(&table::ASSIGNED, &[], count(load.assigned));
    push(&table::OWNED_CACHE, &[], count(load.owned_cache));
    for status in partitions {
        let number = status.partition.to_string();
        let labels = [&*status.topic, number.as_str()];
        if let Some(lag) = status.lag().and_then(|lag| u64::try_from(lag).ok()) {
            push(&table::LAG, &labels, whole(lag));
        }
        push(&table::UNFINISHED, &labels, count(status.unfinished));
        push(&table::IN_PROGRESS, &labels, count(status.in_progress));
        push(&table::TIMERS_DUE, &labels, count(status.timers_due));
        push(&table::TIMERS_OVERDUE, &labels, seconds(status.timers_overdue));
        push(&table::DEFERRED_KEYS, &labels, count(status.deferred_keys));
        push(&table::DEFERRED_OLDEST, &labels, seconds(status.oldest_deferred));
        push(&table::STANDING, &labels, Value::Number(status.standing.as_secs_f64()));
        push(&table::STALLED, &labels, count(usize::from(status.stalled)));
    }
    push(&table::REBALANCES, &[], whole(assignments));
    push(&table::LOST, &[], whole(lost_partitions));
    push(&table::COMMITS, &["ok"], whole(commits));
    push(&table::COMMITS, &["failed"], whole(failed_commits));
    push(&table::SENT, &["ok"], whole(sent));
    push(&table::SENT, &["failed"], whole(failed_sends));
    push(&table::TELEMETRY, &["ok"], whole(telemetry_sent));
    push(&table::TELEMETRY, &["dropped"], whole(telemetry_dropped));
    push(&table::TELEMETRY, &["failed"], whole(telemetry_failed));
    push(&table::SPANS, &["ok"], whole(spans_sent));
    push(&table::SPANS, &["dropped"], whole(spans_dropped));
    push(&table::SPANS, &["failed"], whole(spans_failed));
    for broker in brokers {
        let address = broker.address.as_str();
        for (request, times) in
            [("produce", &broker.produce), ("fetch", &broker.fetch), ("other", &broker.other)]
        {
            push(&table::BROKER_TIME, &[address, request], Value::Times(times.clone()));
        }
        push(&table::BROKER_IN_FLIGHT, &[address], count(broker.in_flight));
        push(&table::BROKER_BYTES, &[address, "sent"], whole(broker.sent_bytes));
        push(&table::BROKER_BYTES, &[address, "received"], whole(broker.received_bytes));
        push(&table::BROKER_CONNECTS, &[address, "ok"], whole(broker.connects));
        push(&table::BROKER_CONNECTS, &[address, "failed"], whole(broker.failed_connects));
        push(&table::BROKER_THROTTLED, &[address], Value::Number(broker.throttled.as_secs_f64()));
    }
    samples
}
