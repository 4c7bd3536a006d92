//! What is answered to which path? *Pure.*

use std::fmt::Write as _;

use super::View;
use crate::insight::prometheus::prometheus_text;
use crate::insight::quote::quote;
use crate::insight::reading::{Reading, Value};
use crate::insight::status::{PartitionStatus, RunningHandler};
use crate::insight::table::MetricKind;

const PAGE: &str = include_str!("page.html");
const TEXT: &str = "text/plain; charset=utf-8";
/// Handlers of one partition that the page lists.
const LISTED: usize = 50;

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn text(status: u16, body: impl Into<String>) -> Answer {
        Answer { status, content_type: TEXT, body: body.into() }
    }
}

pub(super) fn answer(path: &str, views: &[View]) -> Answer {
    match path {
        "/readyz" => ready(views),
        "/livez" => alive(views),
        "/metrics" => {
            let readings: Vec<Reading> = views.iter().map(|view| view.reading.clone()).collect();
            let content_type = "text/plain; version=0.0.4; charset=utf-8";
            Answer { status: 200, content_type, body: prometheus_text(&readings) }
        }
        "/status.json" => Answer { status: 200, content_type: "application/json", body: status(views) },
        "/" => Answer { status: 200, content_type: "text/html; charset=utf-8", body: PAGE.to_owned() },
        _ => Answer::text(404, "there is /, /readyz, /livez and /metrics\n"),
    }
}

/// Ready when every group of this port owns a partition: one member more than the group has partitions is no reason to
/// hold a deployment back.
fn ready(views: &[View]) -> Answer {
    let mut body = String::new();
    for view in views {
        let _ = writeln!(body, "{}: {} partitions assigned", name(view), view.assigned);
    }
    let owns = |group: &str| views.iter().any(|view| view.reading.group == group && view.assigned > 0);
    let all = !views.is_empty() && views.iter().all(|view| owns(&view.reading.group));
    Answer::text(if all { 200 } else { 503 }, body)
}

/// Alive unless a partition is stalled or a loop stands still; says which.
fn alive(views: &[View]) -> Answer {
    let mut body = String::new();
    for view in views {
        for stalled in view.partitions.iter().filter(|partition| partition.stalled) {
            let _ = writeln!(body, "{}: stalled: {}", name(view), stalled.describe(view.details));
        }
        for missed in &view.missed {
            let _ = writeln!(body, "{}: an internal loop stands still: {missed}", name(view));
        }
    }
    if body.is_empty() { Answer::text(200, "alive\n") } else { Answer::text(503, body) }
}

fn name(view: &View) -> String {
    format!("client {} of group {}", view.reading.client, view.reading.group)
}

/// What the page shows.
fn status(views: &[View]) -> String {
    format!("{{\"clients\":[{}]}}", list(views, client))
}

fn client(view: &View) -> String {
    let View { reading, topics, assigned, partitions, missed, details } = view;
    format!(
        "{{\"client\":{},\"group\":{},\"topics\":[{}],\"assigned\":{assigned},\"details\":{details},\"missed\":[{}],\"totals\":{{{}}},\"partitions\":[{}]}}",
        reading.client,
        quote(&reading.group),
        list(topics, |topic| quote(topic)),
        list(missed, |missed| quote(missed)),
        totals(reading),
        list(partitions, |one| partition(one, *details))
    )
}

/// Counters and gauges without labels of partitions or brokers, by name and label values.
fn totals(reading: &Reading) -> String {
    let samples = reading.samples.iter().filter(|sample| {
        sample.metric.kind != MetricKind::Histogram
            && sample.metric.labels.iter().all(|label| !matches!(*label, "partition" | "broker"))
    });
    let pairs: Vec<String> = samples
        .filter_map(|sample| {
            let Value::Number(number) = sample.value else { return None };
            let short = sample.metric.name.trim_start_matches("prosody_").trim_end_matches("_total");
            let name = std::iter::once(short).chain(sample.labels.iter().map(String::as_str));
            Some(format!("{}:{number}", quote(&name.collect::<Vec<_>>().join(" "))))
        })
        .collect();
    pairs.join(",")
}

fn partition(one: &PartitionStatus, details: bool) -> String {
    let lag = one.lag().map_or_else(|| "null".to_owned(), |lag| lag.to_string());
    format!(
        "{{\"topic\":{},\"partition\":{},\"watermark\":{},\"lag\":{lag},\"unfinished\":{},\"inProgress\":{},\"standing\":{:.3},\"timersDue\":{},\"timersOverdue\":{:.3},\"deferredKeys\":{},\"deferredOldest\":{:.3},\"stalled\":{},\"running\":{},\"handlers\":[{}]}}",
        quote(&one.topic),
        one.partition,
        one.watermark,
        one.unfinished,
        one.in_progress,
        one.standing.as_secs_f64(),
        one.timers_due,
        one.timers_overdue.unwrap_or_default().as_secs_f64(),
        one.deferred_keys,
        one.oldest_deferred.unwrap_or_default().as_secs_f64(),
        one.stalled,
        one.running.len(),
        list(one.running.iter().take(LISTED), |running| handler(running, details))
    )
}

fn handler(running: &RunningHandler, details: bool) -> String {
    let key = if details { format!(",\"key\":{}", quote(&running.key)) } else { String::new() };
    format!(
        "{{\"what\":{},\"seconds\":{:.3},\"abandoned\":{}{key}}}",
        quote(&running.position.to_string()),
        running.lasts.as_secs_f64(),
        running.abandoned
    )
}

fn list<T>(items: impl IntoIterator<Item = T>, text: impl Fn(T) -> String) -> String {
    items.into_iter().map(text).collect::<Vec<_>>().join(",")
}
