//! How do readings of clients look as Prometheus text (exposition format 0.0.4)? *Pure.*

use std::fmt::Write as _;

use super::reading::{Reading, Sample, Value};
use super::table::{METRICS, MetricKind, MetricSpec};

/// Readings of any number of clients as Prometheus text (exposition format 0.0.4): each metric once, with the samples
/// of every client.
#[must_use]
pub fn prometheus_text(readings: &[Reading]) -> String {
    let mut text = String::new();
    for metric in METRICS {
        let mut samples = readings
            .iter()
            .flat_map(|reading| reading.samples.iter().map(move |sample| (reading, sample)))
            .filter(|(_, sample)| std::ptr::eq(sample.metric, *metric))
            .peekable();
        if samples.peek().is_none() {
            continue;
        }
        let MetricSpec { name, kind, help, .. } = metric;
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (reading, sample) in samples {
            write(&mut text, name, &labels(reading, sample), &sample.value);
        }
    }
    text
}

fn write(text: &mut String, name: &str, labels: &str, value: &Value) {
    let _ = match value {
        Value::Number(number) => writeln!(text, "{name}{{{labels}}} {number}"),
        Value::Times(times) => {
            let mut below = 0u64;
            for (bound, count) in &times.buckets {
                below = below.wrapping_add(*count);
                let bound = bound.as_secs_f64();
                let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
            }
            let (count, sum) = (times.count(), times.sum.as_secs_f64());
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
            writeln!(text, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}")
        }
    };
}

fn labels(reading: &Reading, sample: &Sample) -> String {
    let mut text = format!("client=\"{}\",group=\"{}\"", reading.client, escape(&reading.group));
    for (name, value) in sample.metric.labels.iter().zip(&sample.labels) {
        let _ = write!(text, ",{name}=\"{}\"", escape(value));
    }
    text
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::table::{BROKER_CONNECTS, HANDLER_TIME};
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_metric_comes_once_with_the_samples_of_every_client_and_labels_are_escaped() {
        let times = prosody_base::Histogram::<1>::default();
        times.record(Duration::from_millis(2));
        times.record(Duration::from_secs(400));
        let reading = |client, group: &str, label: &str| Reading {
            client,
            group: group.to_owned(),
            samples: vec![
                Sample {
                    metric: &BROKER_CONNECTS,
                    labels: vec![label.to_owned(), "ok".to_owned()],
                    value: Value::Number(2.0),
                },
                Sample { metric: &HANDLER_TIME, labels: Vec::new(), value: Value::Times(times.read()) },
            ],
        };
        let text = prometheus_text(&[reading(1, "g", "a:1"), reading(2, "h", "\"\\\n")]);
        assert_eq!(text.matches("# TYPE prosody_broker_connects_total counter").count(), 1, "{text}");
        let line = |line: &str| assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        line("prosody_broker_connects_total{client=\"1\",group=\"g\",broker=\"a:1\",result=\"ok\"} 2");
        line(
            "prosody_broker_connects_total{client=\"2\",group=\"h\",broker=\"\\\"\\\\\\n\",result=\"ok\"} 2",
        );
        line("prosody_handler_duration_seconds_bucket{client=\"1\",group=\"g\",le=\"0.001\"} 0");
        line("prosody_handler_duration_seconds_bucket{client=\"1\",group=\"g\",le=\"0.0025\"} 1");
        line("prosody_handler_duration_seconds_bucket{client=\"1\",group=\"g\",le=\"300\"} 1");
        line("prosody_handler_duration_seconds_bucket{client=\"1\",group=\"g\",le=\"+Inf\"} 2");
        line("prosody_handler_duration_seconds_sum{client=\"1\",group=\"g\"} 400.002");
        line("prosody_handler_duration_seconds_count{client=\"1\",group=\"g\"} 2");
    }
}
