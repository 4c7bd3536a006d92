//! Does every internal loop still go on? Each says so every few seconds. *Pure.*

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prosody_base::Instant;

/// A loop says that it goes on at least this often.
pub(crate) const BEAT: Duration = Duration::from_secs(5);
/// Silence after which a loop counts as stuck: a commit may take 30 s, and a machine may stand still for a while.
const MISSED: Duration = Duration::from_secs(60);

/// The loops of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loop {
    Group,
    Commits,
    Retries,
}

/// Names for people, in the order of [`Loop`].
const NAMES: [&str; 3] = ["group events", "offset commits", "retries"];

/// When each loop last said that it goes on.
#[derive(Debug)]
pub(crate) struct Beats(Mutex<[Instant; NAMES.len()]>);

impl Beats {
    pub(crate) fn new(now: Instant) -> Beats {
        Beats(Mutex::new([now; NAMES.len()]))
    }

    pub(crate) fn beat(&self, who: Loop, now: Instant) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.get_mut(who as usize) {
            *last = now;
        }
    }

    /// Who missed its beat, and for how long.
    pub(crate) fn missed(&self, now: Instant) -> Vec<String> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = NAMES.iter().zip(last).filter_map(|(name, last)| {
            let silence = now.saturating_duration_since(last);
            (silence >= MISSED).then(|| format!("{name}, for {} s", silence.as_secs()))
        });
        silent.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_is_silent_for_a_minute_is_named() {
        let start = Instant::now();
        let (beats, at) = (Beats::new(start), |seconds| start + Duration::from_secs(seconds));
        beats.beat(Loop::Group, at(50));
        beats.beat(Loop::Retries, at(50));
        assert!(beats.missed(at(59)).is_empty());
        assert_eq!(beats.missed(at(70)), ["offset commits, for 70 s"]);
    }
}
