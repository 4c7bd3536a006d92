//! How do the metrics reach .NET? As bytes that its Meter reads when somebody collects: numbers are little-endian, a
//! text is a 32-bit length and UTF-8.
//!
//! - *Table*: how many metrics, and for each its kind (0 counter, 1 gauge, 2 histogram), name, unit, help, how many labels,
//!   and their names.
//! - *Readings*, one for each client, up to the end: its number (64 bits), its group, how many samples, and for each the
//!   metric's place in the table, the values of the metric's labels, and a float; or of a histogram how many buckets, for
//!   each its upper bound (a float) and how many were within it (64 bits), how many there were in all, and their sum (a float).

use prosody_runtime::{METRICS, MetricKind, Reading, Value};

/// What metrics there are.
pub(crate) fn table() -> Vec<u8> {
    let mut bytes = Bytes::default();
    bytes.count(METRICS.len());
    for metric in METRICS {
        bytes.count(match metric.kind {
            MetricKind::Counter => 0,
            MetricKind::Gauge => 1,
            MetricKind::Histogram => 2,
        });
        for text in [metric.name, metric.unit, metric.help] {
            bytes.text(text);
        }
        bytes.count(metric.labels.len());
        metric.labels.iter().for_each(|label| bytes.text(label));
    }
    bytes.0
}

/// What they say.
pub(crate) fn readings(readings: impl Iterator<Item = Reading>) -> Vec<u8> {
    let mut bytes = Bytes::default();
    for reading in readings {
        bytes.0.extend_from_slice(&reading.client.to_le_bytes());
        bytes.text(&reading.group);
        bytes.count(reading.samples.len());
        for sample in &reading.samples {
            let place = METRICS.iter().position(|metric| std::ptr::eq(*metric, sample.metric));
            bytes.count(place.unwrap_or(usize::MAX));
            sample.labels.iter().for_each(|label| bytes.text(label));
            match &sample.value {
                Value::Number(number) => bytes.float(*number),
                Value::Times(times) => {
                    bytes.count(times.buckets.len());
                    let mut within = 0u64;
                    for (bound, count) in &times.buckets {
                        within = within.wrapping_add(*count);
                        bytes.float(bound.as_secs_f64());
                        bytes.0.extend_from_slice(&within.to_le_bytes());
                    }
                    bytes.0.extend_from_slice(&times.count().to_le_bytes());
                    bytes.float(times.sum.as_secs_f64());
                }
            }
        }
    }
    bytes.0
}

#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn count(&mut self, count: usize) {
        self.0.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn float(&mut self, number: f64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }
}
