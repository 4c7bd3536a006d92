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
    /// What fails may be set aside, and what was set aside waits longer after each failure.
    pub(crate) defers: bool,
    /// Retries of what was set aside; `None` is without end.
    pub(crate) defer_retries: Option<u32>,
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
    /// Whether a failure may be set aside: there is a store, and most of what runs succeeds.
    pub(crate) may_defer: bool,
    /// How often it was tried again before, when it was set aside.
    pub(crate) deferred: Option<u32>,
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
    /// It is set aside, and comes back by a timer. Its offset counts as done once the store has it.
    Defer,
    /// It must run again elsewhere: its offset stays uncommitted.
    Unfinished,
    /// As [`Unfinished`](Verdict::Unfinished), but the handler runs on outside Rust and keeps its key and permit.
    LeftBehind,
}

impl Steps {
    /// The table of modes. Records that are no messages go to a failure topic in every mode that has one.
    pub(crate) const fn of(
        mode: Mode,
        max_retries: u32,
        defer_retries: Option<u32>,
        failure_topic: bool,
    ) -> Steps {
        let (retries, route_failures) = match mode {
            Mode::Pipeline => (None, false),
            Mode::LowLatency => (Some(max_retries), true),
            Mode::BestEffort => (Some(0), false),
        };
        let defers = matches!(mode, Mode::Pipeline);
        Steps { retries, defers, defer_retries, route_failures, route_poison: failure_topic }
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
        // 3. Deferral. What was set aside is never retried in place, and may have a last retry.
        let mut ends = false;
        if facts.end == End::Transient && self.defers {
            let retries = facts.deferred.map_or(0, |tried| tried.saturating_add(1));
            let candidate = (facts.may_defer && !sabotaged("defer-frees")) || facts.deferred.is_some();
            ends = candidate && self.defer_retries.is_some_and(|most| retries >= most);
            if candidate && !ends {
                return Verdict::Defer;
            }
        }
        // 4. Retry.
        let again = self.retries.is_none_or(|retries| facts.attempts <= retries);
        if facts.end == End::Transient && again && !ends {
            return Verdict::Retry(backoff.wait(facts.attempts, unit()));
        }
        // 5. Failure topic.
        let routed = if facts.end == End::Poison || ends { self.route_poison } else { self.route_failures };
        if routed {
            return Verdict::Route;
        }
        // 6. Log.
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
    fn expected(mode: Mode, max_retries: u32, most: Option<u32>, topic: bool, facts: Facts) -> Verdict {
        let again = Verdict::Retry(BACKOFF.wait(facts.attempts, 0.5));
        if (facts.end, facts.running, mode) == (End::Transient, true, Mode::Pipeline) {
            return match (facts.deferred, most) {
                (Some(tried), Some(most)) if tried + 1 >= most && topic => Verdict::Route,
                (Some(tried), Some(most)) if tried + 1 >= most => Verdict::GiveUp,
                (Some(_), _) => Verdict::Defer,
                (None, Some(0)) if facts.may_defer && topic => Verdict::Route,
                (None, Some(0)) if facts.may_defer => Verdict::GiveUp,
                (None, _) if facts.may_defer => Verdict::Defer,
                (None, _) => again,
            };
        }
        match (facts.end, facts.running, mode) {
            (End::Ok, ..) => Verdict::Done,
            (End::Poison, ..) if topic => Verdict::Route,
            (End::Poison, ..) => Verdict::GiveUp,
            (End::Occupied, ..) => Verdict::LeftBehind,
            (End::Abandoned, ..) | (End::Transient, false, _) => Verdict::Unfinished,
            (End::Permanent, _, Mode::LowLatency) => Verdict::Route,
            (End::Permanent, ..) => Verdict::GiveUp,
            (End::Transient, true, Mode::Pipeline) => unreachable!(),
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
            may_defer: bool,
            deferred in proptest::option::of(0..4u32),
            most in proptest::option::of(0..4u32),
        ) {
            let topic = topic || mode == Mode::LowLatency;
            let facts = Facts { end, attempts, running, may_defer, deferred };
            let verdict = Steps::of(mode, max_retries, most, topic).judge(facts, BACKOFF, || 0.5);
            prop_assert_eq!(verdict, expected(mode, max_retries, most, topic, facts));
        }

        /// One event from its first attempt to its verdict: it runs as often as its mode allows, and is never both
        /// failed and done without a word.
        #[test]
        fn an_event_runs_as_often_as_its_mode_allows_and_never_vanishes(
            mode in prop::sample::select(&MODES[..]),
            max_retries in 0..6u32,
            fails in 0..30u32,
        ) {
            let steps = Steps::of(mode, max_retries, None, mode == Mode::LowLatency);
            let mut attempts = 0;
            let verdict = loop {
                attempts += 1;
                let end = if attempts <= fails { End::Transient } else { End::Ok };
                let facts = Facts { end, attempts, running: true, may_defer: false, deferred: None };
                let verdict = steps.judge(facts, BACKOFF, || 0.0);
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
