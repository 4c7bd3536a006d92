//! What becomes of an event after an attempt at it? *Pure*: facts in, verdict out. What a mode does is the data in
//! [`Steps`]; [`Steps::judge`] is the order.

use std::time::Duration;

use prosody_base::sabotaged;

use super::retry::Backoff;
use crate::config::Mode;

/// The steps of a mode that are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steps {
    /// Attempts after the first that a transient error gets; `None` is without end.
    pub(crate) retries: Option<u32>,
    /// What failed and is not retried goes to the failure topic.
    pub(crate) route_failures: bool,
    /// What is no message goes to the failure topic.
    pub(crate) route_poison: bool,
}

/// How an event's attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The handler returned ok.
    Ok,
    /// It failed, and trying again may help.
    Transient,
    /// It failed, and trying again cannot help.
    Permanent,
    /// It is no message.
    Poison,
    /// It was abandoned with its partition.
    Abandoned,
    /// It was abandoned, and runs on outside Rust.
    Occupied,
}

/// What a verdict depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) end: End,
    /// Attempts so far.
    pub(crate) attempts: u32,
    /// Whether its partition is still ours to start things in.
    pub(crate) running: bool,
}

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It is finished: its offset counts as done.
    Done,
    /// It is finished although its handler failed: one line says so.
    GiveUp,
    /// It goes to the failure topic, and is finished once that has it. Its key waits.
    Route,
    /// It runs again after this wait; its key waits with it.
    Retry(Duration),
    /// It must run again elsewhere: its offset stays uncommitted.
    Unfinished,
    /// As [`Unfinished`](Verdict::Unfinished), but the handler runs on outside Rust and keeps its key and permit.
    LeftBehind,
}

impl Verdict {
    /// Whether the event counts as done.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Verdict::Done | Verdict::GiveUp)
    }
}

impl Steps {
    /// The table of modes. Records that are no messages go to a failure topic in every mode that has one.
    pub(crate) const fn of(mode: Mode, max_retries: u32, failure_topic: bool) -> Steps {
        let (retries, route_failures) = match mode {
            Mode::Pipeline => (None, false),
            Mode::LowLatency => (Some(max_retries), true),
            Mode::BestEffort => (Some(0), false),
        };
        Steps { retries, route_failures, route_poison: failure_topic }
    }

    /// The first step that has something to say decides. `unit` draws a random number in `[0, 1)`.
    pub(crate) fn judge(self, facts: Facts, backoff: Backoff, unit: impl FnOnce() -> f64) -> Verdict {
        match facts.end {
            // 1. It ended well.
            End::Ok => return Verdict::Done,
            // 2. It ended with its partition. A failure that may come from that counts for nothing.
            End::Occupied => return Verdict::LeftBehind,
            End::Abandoned => return Verdict::Unfinished,
            End::Transient if sabotaged("transient-is-not-done") => return Verdict::Done,
            End::Transient if !facts.running => return Verdict::Unfinished,
            End::Transient | End::Permanent | End::Poison => {}
        }
        // 3. Retry.
        let again = self.retries.is_none_or(|retries| facts.attempts <= retries);
        if facts.end == End::Transient && again {
            return Verdict::Retry(backoff.wait(facts.attempts, unit()));
        }
        // 4. Failure topic.
        let routed = if facts.end == End::Poison { self.route_poison } else { self.route_failures };
        if routed {
            return Verdict::Route;
        }
        // 5. Log.
        Verdict::GiveUp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(20), max: Duration::from_secs(300) };
    const MODES: [Mode; 3] = [Mode::Pipeline, Mode::LowLatency, Mode::BestEffort];
    const ENDS: [End; 6] =
        [End::Ok, End::Transient, End::Permanent, End::Poison, End::Abandoned, End::Occupied];

    /// The verdict as the rules of the modes say it, one rule a line, whatever the order of the steps.
    fn expected(mode: Mode, max_retries: u32, topic: bool, facts: Facts) -> Verdict {
        let again = Verdict::Retry(BACKOFF.wait(facts.attempts, 0.5));
        match (facts.end, facts.running, mode) {
            (End::Ok, ..) => Verdict::Done,
            (End::Poison, ..) if topic => Verdict::Route,
            (End::Poison, ..) => Verdict::GiveUp,
            (End::Occupied, ..) => Verdict::LeftBehind,
            (End::Abandoned, ..) | (End::Transient, false, _) => Verdict::Unfinished,
            (End::Permanent, _, Mode::LowLatency) => Verdict::Route,
            (End::Permanent, ..) => Verdict::GiveUp,
            (End::Transient, true, Mode::Pipeline) => again,
            (End::Transient, true, Mode::LowLatency) if facts.attempts > max_retries => Verdict::Route,
            (End::Transient, true, Mode::LowLatency) => again,
            (End::Transient, true, Mode::BestEffort) => Verdict::GiveUp,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_end_in_every_mode_is_judged_as_the_table_of_modes_says(
            mode in prop::sample::select(&MODES[..]),
            end in prop::sample::select(&ENDS[..]),
            max_retries in 0..6u32,
            topic: bool,
            attempts in 1..9u32,
            running: bool,
        ) {
            let topic = topic || mode == Mode::LowLatency;
            let facts = Facts { end, attempts, running };
            let verdict = Steps::of(mode, max_retries, topic).judge(facts, BACKOFF, || 0.5);
            prop_assert_eq!(verdict, expected(mode, max_retries, topic, facts));
        }

        /// One event from its first attempt to its verdict: it runs as often as its mode allows, and is never both
        /// failed and done without a word.
        #[test]
        fn an_event_runs_as_often_as_its_mode_allows_and_never_vanishes(
            mode in prop::sample::select(&MODES[..]),
            max_retries in 0..6u32,
            fails in 0..30u32,
        ) {
            let steps = Steps::of(mode, max_retries, mode == Mode::LowLatency);
            let mut attempts = 0;
            let verdict = loop {
                attempts += 1;
                let end = if attempts <= fails { End::Transient } else { End::Ok };
                let verdict = steps.judge(Facts { end, attempts, running: true }, BACKOFF, || 0.0);
                if !matches!(verdict, Verdict::Retry(_)) {
                    break verdict;
                }
            };
            let (most, last) = match mode {
                Mode::Pipeline => (u32::MAX, Verdict::Done),
                Mode::LowLatency => (max_retries + 1, Verdict::Route),
                Mode::BestEffort => (1, Verdict::GiveUp),
            };
            let expected = if fails >= most { (most, last) } else { (fails + 1, Verdict::Done) };
            prop_assert_eq!((attempts, verdict), expected);
        }
    }
}
