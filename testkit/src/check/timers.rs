//! Did timers keep the promises? Each call of a handler says which timers its key has before it does anything, and what
//! it made of them; what it saw must be what ended calls can have left.
//!
//! A call that returned well has its effects all at once, later: when its key goes on at the same member it has had
//! them or never will. Another member may look before that. So a key has a few *possible* states, and every look
//! narrows them. A timer that is lost, comes back, or fires without being there is a state that is not possible.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The seconds for which a key has timers.
pub type Times = BTreeSet<u32>;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields say who and what; Display says the rest")]
pub enum TimerViolation {
    Early { key: (i32, String), time: u32, now_ms: i64 },
    Impossible { key: (i32, String), member: String, firing: Option<u32>, seen: Times, possible: Vec<Times> },
    OwnWrites { key: (i32, String), seen: Times, should: Times },
    Pending { key: (i32, String), times: Times },
    End { key: (i32, String), seen: Times, possible: Vec<Times> },
}

impl fmt::Display for TimerViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimerViolation::Early { key, time, now_ms } => {
                write!(f, "timer: {time} of {key:?} fired early, at {now_ms} ms")
            }
            TimerViolation::Impossible { key, member, firing, seen, possible } => write!(
                f,
                "timer: {member} saw {seen:?} at key {key:?} (firing {firing:?}), possible is {possible:?}"
            ),
            TimerViolation::OwnWrites { key, seen, should } => {
                write!(f, "timer: a call at {key:?} made {should:?} and reads {seen:?} back")
            }
            TimerViolation::Pending { key, times } => {
                write!(f, "timer: {times:?} of {key:?} never fired")
            }
            TimerViolation::End { key, seen, possible } => {
                write!(f, "timer: {key:?} ended with {seen:?}, possible is {possible:?}")
            }
        }
    }
}

/// A call that has ended, whose effects may be there or not.
#[derive(Debug)]
struct Step {
    member: String,
    change: Change,
    /// Its member had lost the partition. The next owner may know the key already when this happens, and sees it at its
    /// next write.
    late: bool,
}

#[derive(Debug)]
enum Change {
    /// It returned well.
    Made { from: Times, to: Times },
    /// It failed, and may have been given up: the timer that brought it is no more, whatever else there is by then.
    GivenUp(u32),
}

impl Step {
    fn of(&self, state: &Times) -> Option<Times> {
        match &self.change {
            Change::Made { from, to } => (from == state).then(|| to.clone()),
            Change::GivenUp(time) => state.contains(time).then(|| {
                let mut left = state.clone();
                left.remove(time);
                left
            }),
        }
    }
}

#[derive(Debug)]
struct Key {
    possible: BTreeSet<Times>,
    steps: Vec<Step>,
}

impl Default for Key {
    fn default() -> Key {
        Key { possible: BTreeSet::from([Times::new()]), steps: Vec::new() }
    }
}

impl Key {
    /// What is possible when any of the open calls may have had its effects.
    fn reachable(&self) -> BTreeSet<Times> {
        let (mut found, mut new) = (self.possible.clone(), Vec::from_iter(self.possible.clone()));
        while let Some(state) = new.pop() {
            for to in self.steps.iter().filter_map(|step| step.of(&state)) {
                if found.insert(to.clone()) {
                    new.push(to);
                }
            }
        }
        found
    }
}

/// Recorder of the timers of one run.
#[derive(Debug, Default)]
pub struct TimerHistory {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    keys: BTreeMap<(i32, String), Key>,
    found: Vec<TimerViolation>,
    fired: u64,
    /// Nothing fails: what a call made is there when it has returned.
    strict: bool,
}

impl TimerHistory {
    /// For a run in which nothing fails: no call comes twice.
    #[must_use]
    pub fn strict() -> TimerHistory {
        TimerHistory { inner: Mutex::new(Inner { strict: true, ..Inner::default() }) }
    }

    /// A handler was called; `seen` are the timers it found, with the one that is firing. `is_owner`: the group takes the
    /// member for one of its own, so nobody else can have written since.
    pub fn started(
        &self,
        member: &str,
        key: (i32, &str),
        firing: Option<u32>,
        seen: &Times,
        is_owner: bool,
        now_ms: i64,
    ) {
        let name = (key.0, key.1.to_owned());
        self.with(|inner| {
            if let Some(time) = firing {
                inner.fired += 1;
                if i64::from(time) * 1_000 > now_ms {
                    inner.found.push(TimerViolation::Early { key: name.clone(), time, now_ms });
                }
            }
            if !is_owner {
                return;
            }
            let key = inner.keys.entry(name.clone()).or_default();
            let reachable = key.reachable();
            if !reachable.contains(seen) {
                let (member, possible) = (member.to_owned(), reachable.into_iter().collect());
                let seen = seen.clone();
                inner.found.push(TimerViolation::Impossible { key: name, member, firing, seen, possible });
            }
            key.steps.retain(|step| step.member != member);
            key.possible = BTreeSet::from([seen.clone()]);
        });
    }

    /// A call is about to return well: it found `from` and made `should` of it, and reads `seen` back.
    pub fn done(&self, member: &str, key: (i32, &str), from: Times, should: Times, seen: &Times) {
        let name = (key.0, key.1.to_owned());
        self.with(|inner| {
            if *seen != should {
                let (seen, should) = (seen.clone(), should.clone());
                inner.found.push(TimerViolation::OwnWrites { key: name.clone(), seen, should });
            }
            let key = inner.keys.entry(name).or_default();
            if inner.strict {
                key.possible = BTreeSet::from([should]);
            } else {
                let change = Change::Made { from, to: should };
                key.steps.push(Step { member: member.to_owned(), change, late: false });
            }
        });
    }

    /// A call failed that the firing of a timer brought, and its member may give the timer up: then it is no more, and
    /// nothing else changed.
    pub fn may_end(&self, member: &str, key: (i32, &str), firing: u32) {
        self.with(|inner| {
            let key = inner.keys.entry((key.0, key.1.to_owned())).or_default();
            key.steps.push(Step { member: member.to_owned(), change: Change::GivenUp(firing), late: false });
        });
    }

    /// A process is gone: what its calls made is there, or never will be.
    pub fn killed(&self, member: &str) {
        self.with(|inner| {
            for key in inner.keys.values_mut() {
                key.possible = key.reachable();
                key.steps.retain(|step| step.member != member || step.late);
            }
        });
    }

    /// A member lost its partitions and need not know it yet: what its calls made may come late.
    pub fn evicted(&self, member: &str) {
        self.with(|inner| {
            let steps = inner.keys.values_mut().flat_map(|key| &mut key.steps);
            steps.filter(|step| step.member == member).for_each(|step| step.late = true);
        });
    }

    /// A call that has just ended began before its member lost the partition, though that may have joined again since:
    /// what it made may come late.
    pub fn late(&self, member: &str, key: (i32, &str)) {
        self.with(|inner| {
            let key = inner.keys.entry((key.0, key.1.to_owned())).or_default();
            key.steps.iter_mut().filter(|step| step.member == member).for_each(|step| step.late = true);
        });
    }

    /// Timers that fired, also those that fired again.
    pub fn fired(&self) -> u64 {
        self.with(|inner| inner.fired)
    }

    /// Everything that broke a promise, judged against what the store holds when all timers are due and all work is done.
    pub fn verdict(&self, store: &BTreeMap<(i32, String), Times>) -> Vec<TimerViolation> {
        self.with(|inner| {
            let mut found = inner.found.clone();
            let (nothing, none) = (Times::new(), Key::default());
            let all: BTreeSet<&(i32, String)> = inner.keys.keys().chain(store.keys()).collect();
            for name in all {
                let seen = store.get(name).unwrap_or(&nothing);
                if !seen.is_empty() {
                    found.push(TimerViolation::Pending { key: name.clone(), times: seen.clone() });
                }
                let possible = inner.keys.get(name).unwrap_or(&none).reachable();
                if !possible.contains(seen) {
                    let (seen, possible) = (seen.clone(), possible.into_iter().collect());
                    found.push(TimerViolation::End { key: name.clone(), seen, possible });
                }
            }
            found.truncate(16);
            found
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (i32, &str) = (0, "k");

    fn times<const N: usize>(times: [u32; N]) -> Times {
        Times::from(times)
    }

    fn held<const N: usize>(held: [u32; N]) -> BTreeMap<(i32, String), Times> {
        BTreeMap::from([((0, "k".to_owned()), times(held))])
    }

    /// m1 puts 5 and returns well.
    fn one_timer() -> TimerHistory {
        let history = TimerHistory::default();
        history.started("m1", KEY, None, &times([]), true, 0);
        history.done("m1", KEY, times([]), times([5]), &times([5]));
        history
    }

    #[test]
    fn a_timer_that_fires_once_is_fine_and_may_fire_again_where_its_end_is_unknown() {
        let history = one_timer();
        history.started("m1", KEY, Some(5), &times([5]), true, 5_000);
        history.done("m1", KEY, times([5]), times([]), &times([]));
        history.started("m2", KEY, Some(5), &times([5]), true, 5_001);
        history.killed("m1");
        history.done("m2", KEY, times([5]), times([]), &times([]));
        assert_eq!(history.verdict(&held([])), []);
        assert_eq!(history.fired(), 2);
    }

    #[test]
    fn a_timer_whose_handler_failed_is_there_or_given_up() {
        for left in [times([5]), times([])] {
            let history = one_timer();
            history.started("m1", KEY, Some(5), &times([5]), true, 5_000);
            history.may_end("m1", KEY, 5);
            history.started("m1", KEY, None, &left, true, 6_000);
            let found = history.verdict(&BTreeMap::from([((0, "k".to_owned()), left.clone())]));
            assert_eq!(found.len(), left.len(), "{found:?}");
        }
    }

    #[test]
    fn what_an_evicted_member_made_may_come_when_the_next_owner_has_looked() {
        for lost in ["the partition", "it while the call ran", "nothing"] {
            let history = one_timer();
            match lost {
                "the partition" => history.evicted("m1"),
                "it while the call ran" => history.late("m1", KEY),
                _ => {}
            }
            history.killed("m1");
            history.started("m2", KEY, None, &times([]), true, 0);
            history.done("m2", KEY, times([]), times([7]), &times([7]));
            history.started("m2", KEY, None, &times([5]), true, 0);
            history.started("m2", KEY, Some(5), &times([5]), true, 5_000);
            history.done("m2", KEY, times([5]), times([]), &times([]));
            assert_eq!(history.verdict(&held([])).is_empty(), lost != "nothing");
        }
    }

    #[test]
    fn each_broken_promise_is_named() {
        let early = one_timer();
        early.started("m1", KEY, Some(5), &times([5]), true, 4_999);
        assert!(matches!(
            early.verdict(&held([5]))[..],
            [TimerViolation::Early { .. }, TimerViolation::Pending { .. }]
        ));
        // Lost: the same member goes on and it was there.
        let lost = one_timer();
        lost.started("m1", KEY, None, &times([5]), true, 0);
        lost.started("m1", KEY, None, &times([]), true, 0);
        assert!(matches!(lost.verdict(&held([]))[..], [TimerViolation::Impossible { .. }]));
        // Void: it has fired and been seen to be gone.
        let void = one_timer();
        void.started("m1", KEY, Some(5), &times([5]), true, 5_000);
        void.done("m1", KEY, times([5]), times([]), &times([]));
        void.started("m1", KEY, None, &times([]), true, 5_000);
        void.started("m2", KEY, Some(5), &times([5]), true, 5_000);
        assert!(matches!(
            void.verdict(&held([]))[..],
            [TimerViolation::Impossible { .. }, TimerViolation::End { .. }]
        ));
        let unread = TimerHistory::default();
        unread.done("m1", KEY, times([]), times([5]), &times([]));
        assert!(matches!(unread.verdict(&held([]))[..], [TimerViolation::OwnWrites { .. }]));
        // Where nothing fails it is there at once.
        let strict = TimerHistory::strict();
        strict.done("m1", KEY, times([]), times([5]), &times([5]));
        strict.started("m2", KEY, None, &times([]), true, 0);
        assert!(matches!(strict.verdict(&held([]))[..], [TimerViolation::Impossible { .. }]));
    }
}
