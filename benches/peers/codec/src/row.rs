//! What does one line of the result say?

/// What our value must reach.
#[derive(Clone, Copy)]
pub enum Bar {
    /// Shown for comparison only.
    None,
    /// At most this.
    AtMost(f64),
    /// At most this share of the peer's value.
    Ratio(f64),
    /// One of the two.
    AtMostOrRatio(f64, f64),
}

/// One figure beside a peer's.
pub struct Row {
    case: String,
    value: f64,
    unit: &'static str,
    peer: String,
    peer_value: f64,
    bar: Bar,
}

impl Row {
    pub fn new(case: &str, value: f64, unit: &'static str, peer: &str, peer_value: f64, bar: Bar) -> Row {
        Row { case: case.into(), value, unit, peer: peer.into(), peer_value, bar }
    }

    pub fn ok(&self) -> bool {
        let ratio = self.value / self.peer_value;
        match self.bar {
            Bar::None => true,
            Bar::AtMost(most) => self.value <= most,
            Bar::Ratio(most) => ratio <= most,
            Bar::AtMostOrRatio(value, share) => self.value <= value || ratio <= share,
        }
    }

    /// Names are plain text of this program, so they need no escaping.
    pub fn json(&self) -> String {
        let bar = match self.bar {
            Bar::None => "null".to_owned(),
            Bar::AtMost(most) => format!("\"<= {most}\""),
            Bar::Ratio(most) => format!("\"<= {most} x peer\""),
            Bar::AtMostOrRatio(value, share) => format!("\"<= {value} or <= {share} x peer\""),
        };
        let peer = if self.peer.is_empty() { "null".to_owned() } else { format!("\"{}\"", self.peer) };
        format!(
            "{{\"bench\":\"codec\",\"case\":\"{}\",\"value\":{},\"unit\":\"{}\",\"peer\":{peer},\"peer_value\":{},\"ratio\":{},\"bar\":{bar},\"ok\":{}}}",
            self.case,
            number(self.value),
            self.unit,
            number(self.peer_value),
            number(self.value / self.peer_value),
            self.ok()
        )
    }
}

fn number(value: f64) -> String {
    if value.is_finite() { format!("{value:.3}") } else { "null".to_owned() }
}
