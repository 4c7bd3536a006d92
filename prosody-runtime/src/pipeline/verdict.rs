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
    /// Its payload turned out not to be JSON.
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
    /// Attempts so far, with this one.
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
    pub(crate) const fn of(mode: Mode) -> Steps {
        match mode {
            Mode::Pipeline | Mode::LowLatency => Steps { retries: None },
            Mode::BestEffort => Steps { retries: Some(0) },
        }
    }

    /// The first step that has something to say decides. `unit` draws a random number in `[0, 1)`.
    pub(crate) fn judge(self, facts: Facts, backoff: Backoff, unit: impl FnOnce() -> f64) -> Verdict {
        // 1. The event ended well, or is no message.
        match facts.end {
            End::Ok | End::Poison => return Verdict::Done,
            // 2. It ended with its partition. A failure that may come from that counts for nothing.
            End::Occupied => return Verdict::LeftBehind,
            End::Abandoned => return Verdict::Unfinished,
            End::Transient if sabotaged("transient-is-not-done") => return Verdict::Done,
            End::Transient if !facts.running => return Verdict::Unfinished,
            End::Transient | End::Permanent => {}
        }
        // 3. Retry.
        let again = self.retries.is_none_or(|retries| facts.attempts <= retries);
        if facts.end == End::Transient && again {
            return Verdict::Retry(backoff.wait(facts.attempts, unit()));
        }
        // 4. Log.
        Verdict::GiveUp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(20), max: Duration::from_secs(300) };

    /// The verdict as RUNTIME's rules say it, one rule a line, independent of the order of the steps.
    fn expected(mode: Mode, facts: Facts) -> Verdict {
        let wait = BACKOFF.wait(facts.attempts, 0.5);
        match (facts.end, facts.running, mode) {
            (End::Ok | End::Poison, ..) => Verdict::Done,
            (End::Abandoned, ..) | (End::Transient, false, _) => Verdict::Unfinished,
            (End::Occupied, ..) => Verdict::LeftBehind,
            (End::Permanent, ..) | (End::Transient, true, Mode::BestEffort) => Verdict::GiveUp,
            (End::Transient, true, _) => Verdict::Retry(wait),
        }
    }

    fn end() -> impl Strategy<Value = End> {
        prop::sample::select(vec![
            End::Ok,
            End::Transient,
            End::Permanent,
            End::Poison,
            End::Abandoned,
            End::Occupied,
        ])
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_end_in_every_mode_is_judged_as_the_table_of_modes_says(
            mode in prop::sample::select(vec![Mode::Pipeline, Mode::BestEffort]),
            end in end(),
            attempts in 1..9u32,
            running: bool,
        ) {
            let facts = Facts { end, attempts, running };
            prop_assert_eq!(Steps::of(mode).judge(facts, BACKOFF, || 0.5), expected(mode, facts));
        }

        /// One event from its first attempt to its verdict.
        #[test]
        fn an_event_runs_as_often_as_its_mode_allows_and_never_vanishes(
            mode in prop::sample::select(vec![Mode::Pipeline, Mode::BestEffort]),
            fails in 0..30u32,
        ) {
            let mut attempts = 0;
            let verdict = loop {
                attempts += 1;
                let end = if attempts <= fails { End::Transient } else { End::Ok };
                let verdict = Steps::of(mode).judge(Facts { end, attempts, running: true }, BACKOFF, || 0.0);
                if !matches!(verdict, Verdict::Retry(_)) {
                    break verdict;
                }
            };
            match mode {
                Mode::BestEffort => prop_assert_eq!((attempts, verdict == Verdict::GiveUp), (1, fails > 0)),
                _ => prop_assert_eq!((attempts, verdict), (fails + 1, Verdict::Done)),
            }
        }
    }
}
