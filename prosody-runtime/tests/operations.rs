//! docs/operations.md lists the metrics of the table.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "tests"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use prosody_runtime::{METRICS, MetricKind};

const BEGIN: &str = "<!-- metrics: generated from prosody-runtime/src/insight/table.rs -->\n";
const END: &str = "<!-- end of metrics -->\n";

fn list() -> String {
    let mut list =
        "\n| metric | kind, unit | labels | what it says | alert on |\n|---|---|---|---|---|\n".to_owned();
    for metric in METRICS {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, unit, help, alert) = (metric.name, metric.unit, metric.help, metric.alert);
        writeln!(list, "| `{name}` | {kind}, {unit} | {} | {help} | {alert} |", labels.join(", ")).unwrap();
    }
    list.push('\n');
    list
}

#[test]
fn the_page_lists_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (head, rest) = page.split_once(BEGIN).expect("the mark where the list begins");
    let (written, tail) = rest.split_once(END).expect("the mark where the list ends");
    if std::env::var_os("PROSODY_TESTS_UPDATE").is_some() {
        std::fs::write(path, [head, BEGIN, &list(), END, tail].concat()).unwrap();
    } else {
        assert!(
            written == list(),
            "docs/operations.md differs from the table; run PROSODY_TESTS_UPDATE=1 cargo test -p prosody-runtime --test operations"
        );
    }
}

#[test]
fn names_are_unique_and_follow_the_conventions_of_prometheus() {
    let mut seen = BTreeSet::new();
    for metric in METRICS {
        let name = metric.name;
        assert!(seen.insert(name), "{name} twice");
        assert!(
            name.starts_with("prosody_") && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{name}"
        );
        assert_eq!(metric.kind == MetricKind::Counter, name.ends_with("_total"), "{name}");
        assert!(metric.help.ends_with('.') && !metric.unit.is_empty(), "{name}");
        let seconds = name.contains("_seconds");
        assert_eq!(metric.unit == "seconds", seconds, "{name}");
    }
}
