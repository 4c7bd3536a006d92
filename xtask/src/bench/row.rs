//! What is one line of the table, and does it meet its bar?

use serde_json::{Value, json};

/// What a row has to reach.
#[derive(Clone, Debug)]
pub(crate) enum Bar {
    /// Our value divided by the peer's.
    Ratio(f64),
    /// The same, where less is better.
    RatioAtMost(f64),
    /// A rate, already scaled to this machine.
    AtLeast(f64),
    /// A time or a size, already scaled to this machine.
    AtMost(f64),
    /// The program that measured it has judged by itself.
    Judged { bar: Option<String>, ok: bool },
}

/// One measured line.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) bench: &'static str,
    pub(crate) case: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
    /// Name and value of the client it was measured beside.
    pub(crate) peer: Option<(String, f64)>,
    pub(crate) bar: Bar,
    /// Why the comparison is not fair, such as a peer that was far slower than it usually is.
    pub(crate) objection: Option<String>,
}

impl Row {
    /// A row that is beside no other client.
    pub(crate) fn alone(
        bench: &'static str,
        case: impl Into<String>,
        value: f64,
        unit: &str,
        bar: Bar,
    ) -> Row {
        Row { bench, case: case.into(), value, unit: unit.to_owned(), peer: None, bar, objection: None }
    }

    pub(crate) fn ok(&self) -> bool {
        let met = match &self.bar {
            Bar::Ratio(bar) => self.ratio().is_some_and(|ratio| ratio >= *bar),
            Bar::RatioAtMost(bar) => self.ratio().is_some_and(|ratio| ratio <= *bar),
            Bar::AtLeast(bar) => self.value >= *bar,
            Bar::AtMost(bar) => self.value <= *bar,
            Bar::Judged { ok, .. } => *ok,
        };
        met && self.objection.is_none()
    }

    fn ratio(&self) -> Option<f64> {
        self.peer.as_ref().map(|(_, value)| self.value / value)
    }

    pub(crate) fn json(&self) -> Value {
        let bar = match &self.bar {
            Bar::Ratio(bar) | Bar::RatioAtMost(bar) | Bar::AtLeast(bar) | Bar::AtMost(bar) => json!(bar),
            Bar::Judged { bar, .. } => json!(bar),
        };
        json!({
            "bench": self.bench, "case": self.case, "value": self.value, "unit": self.unit,
            "peer": self.peer.as_ref().map(|(name, _)| name), "peer_value": self.peer.as_ref().map(|(_, value)| value),
            "ratio": self.ratio(), "bar": bar, "ok": self.ok(),
        })
    }

    pub(crate) fn line(&self) -> String {
        let peer = self.peer.as_ref().map_or(String::new(), |(name, value)| {
            format!("{name} {} = {:.2} ×, ", short(*value), self.value / value)
        });
        let bar = match &self.bar {
            Bar::Ratio(bar) => format!("bar {bar:.2} ×"),
            Bar::RatioAtMost(bar) => format!("bar ≤ {bar:.2} ×"),
            Bar::AtLeast(bar) => format!("bar ≥ {}", short(*bar)),
            Bar::AtMost(bar) => format!("bar ≤ {}", short(*bar)),
            Bar::Judged { bar, .. } => bar.as_ref().map_or("no bar".to_owned(), |bar| format!("bar {bar}")),
        };
        let mark = if self.ok() { "ok" } else { "MISSED" };
        let objection = self.objection.as_deref().map_or(String::new(), |why| format!(" ({why})"));
        format!(
            "{:14} {:44} {:>10} {:18} {peer}{bar}: {mark}{objection}",
            self.bench,
            self.case,
            short(self.value),
            self.unit
        )
    }
}

/// Three significant figures are what a shared machine is good for.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100_000.0 => format!("{:.0} k", value / 1_000.0),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Bar, Row};

    fn row(value: f64, peer: Option<f64>, bar: Bar) -> Row {
        let peer = peer.map(|value| ("peer".to_owned(), value));
        Row { bench: "b", case: "c".to_owned(), value, unit: "u".to_owned(), peer, bar, objection: None }
    }

    #[test]
    fn each_kind_of_bar_is_met_or_missed() {
        assert!(row(2.0, Some(1.0), Bar::Ratio(2.0)).ok());
        assert!(!row(1.9, Some(1.0), Bar::Ratio(2.0)).ok());
        assert!(!row(9.0, None, Bar::Ratio(2.0)).ok(), "no peer, no ratio");
        assert!(row(2.0, Some(1.0), Bar::RatioAtMost(2.0)).ok());
        assert!(!row(2.1, Some(1.0), Bar::RatioAtMost(2.0)).ok());
        assert!(row(5.0, None, Bar::AtLeast(5.0)).ok() && !row(4.9, None, Bar::AtLeast(5.0)).ok());
        assert!(row(5.0, None, Bar::AtMost(5.0)).ok() && !row(5.1, None, Bar::AtMost(5.0)).ok());
        assert!(!row(f64::NAN, None, Bar::AtMost(5.0)).ok(), "a value that was not measured meets nothing");
    }

    #[test]
    fn an_unfair_comparison_is_not_ok_however_good_it_looks() {
        let mut row = row(9.0, Some(1.0), Bar::Ratio(2.0));
        row.objection = Some("peer slow".to_owned());
        assert!(!row.ok());
    }
}
