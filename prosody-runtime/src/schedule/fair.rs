//! Which waiting event runs next? Pure: whoever calls says what time it is.
//!
//! The priority of an event is `V(key) − WaitWeight · min(wait / MaxWait, 1)²` in seconds, the lowest first, where
//! `V(key)` is the execution time its key took lately (`usage.rs`). It changes with time for every waiting event, so no
//! order of all of them holds. Two facts help: while an event waits, its key does not run, so `V` only decays; and among
//! events of equal `V` the oldest is first, always. Events therefore wait in lanes by `V` at the time they came, each a
//! queue, and a grant compares only the heads: at most [`LANES`] of them, however many wait.
//!
//! Within a lane `V` differs by less than a third of an octave, and the head has decayed longest. So the event that is
//! chosen is at most 26 % of the best one's `V`, plus two [`FLOOR`]s, behind the best one. Less than a floor counts as 0.

use std::collections::VecDeque;
use std::time::Duration;

use prosody_base::Instant;

use super::usage::Usage;

/// Queues of each class: one below the floor, and three for each octave of virtual time up to 1,000 s.
const LANES: usize = 64;
const PER_OCTAVE: f64 = 3.0;
/// Seconds of virtual time below which keys are equal. Less is not worth a detour: an event that is passed keeps the batch
/// it was read from, and with handlers of microseconds the detours would hold twice the memory.
pub(crate) const FLOOR: f64 = 0.016;

/// The user's options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// The share of retries, strictly between 0 and 1, while both classes wait.
    pub(crate) failure_weight: f64,
    pub(crate) max_wait: Duration,
    /// Seconds.
    pub(crate) wait_weight: f64,
}

/// Whether an event runs for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Normal,
    /// A retry.
    Failure,
}

impl Class {
    pub(crate) fn pick<T>(self, [normal, failure]: &mut [T; 2]) -> &mut T {
        if self == Class::Normal { normal } else { failure }
    }
}

/// What a permit was granted for. It goes back with [`Selector::release`], exactly once.
#[derive(Debug)]
pub(crate) struct Grant {
    key: u64,
    class: Class,
    /// When.
    pub(crate) at: Instant,
    charged: f64,
}

/// Waiting events, each an item of the caller's.
#[derive(Debug)]
pub(crate) struct Selector<T> {
    policy: Policy,
    usage: Usage,
    classes: [Lanes<T>; 2],
}

#[derive(Debug)]
struct Lanes<T> {
    lanes: Vec<VecDeque<Waiting<T>>>,
    /// A bit for each lane in which something waits.
    occupied: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    key: u64,
    since: Instant,
    /// The key's virtual time, weighed as in `usage.rs`.
    weighed: f64,
    item: T,
}

impl<T> Selector<T> {
    pub(crate) fn new(policy: Policy, now: Instant) -> Selector<T> {
        let lanes = || Lanes { lanes: (0..LANES).map(|_| VecDeque::new()).collect(), occupied: 0 };
        Selector { policy, usage: Usage::new(now), classes: [lanes(), lanes()] }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.classes.iter().all(|lanes| lanes.occupied == 0)
    }

    /// How many events wait.
    pub(crate) fn len(&self) -> usize {
        self.classes.iter().flat_map(|lanes| &lanes.lanes).map(VecDeque::len).sum()
    }

    /// An event waits from `now` on. `key` names its key within the process; two keys that share a name only share
    /// their virtual time.
    pub(crate) fn push(&mut self, key: u64, class: Class, now: Instant, item: T) {
        self.advance(now);
        if class.pick(&mut self.classes).occupied == 0 {
            self.join(class);
        }
        let weighed = self.usage.of_key(key);
        let lane = lane_of(self.usage.seconds(weighed));
        class.pick(&mut self.classes).push(lane, Waiting { key, since: now, weighed, item });
    }

    /// Takes the event that runs next.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(T, Grant)> {
        self.advance(now);
        let class = self.next_class()?;
        let waiting = class.pick(&mut self.classes).pop(now, &self.policy, &self.usage)?;
        let charged = self.usage.charge(class);
        Some((waiting.item, Grant { key: waiting.key, class, at: now, charged }))
    }

    /// A permit comes back: its event ran until `now`.
    pub(crate) fn release(&mut self, grant: &Grant, now: Instant) {
        self.advance(now);
        self.usage.spend(grant.key, grant.class, grant.at, now, grant.charged);
    }

    /// Takes back what `wanted` chooses.
    pub(crate) fn take(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for lanes in &mut self.classes {
            for (number, lane) in lanes.lanes.iter_mut().enumerate() {
                for waiting in std::mem::take(lane) {
                    if wanted(&waiting.item) {
                        taken.push(waiting.item);
                    } else {
                        lane.push_back(waiting);
                    }
                }
                if lane.is_empty() {
                    lanes.occupied &= !(1 << number);
                }
            }
        }
        taken
    }

    fn next_class(&self) -> Option<Class> {
        let [normal, failure] = &self.classes;
        match (normal.occupied != 0, failure.occupied != 0) {
            (false, false) => None,
            (true, false) => Some(Class::Normal),
            (false, true) => Some(Class::Failure),
            (true, true) => {
                let weight = self.policy.failure_weight;
                let normal = self.usage.of_class(Class::Normal) * weight;
                let failure = self.usage.of_class(Class::Failure) * (1.0 - weight);
                Some(if normal <= failure { Class::Normal } else { Class::Failure })
            }
        }
    }

    /// The first event of a class waits: the class joins where the other one is. It is not owed the time for which it
    /// had nothing to do, else the first burst of retries after a quiet day would hold every permit for a minute.
    fn join(&mut self, class: Class) {
        let weight = self.policy.failure_weight;
        let (other, per_other) = match class {
            Class::Normal => (Class::Failure, (1.0 - weight) / weight),
            Class::Failure => (Class::Normal, weight / (1.0 - weight)),
        };
        self.usage.lift(class, self.usage.of_class(other) * per_other);
    }

    fn advance(&mut self, now: Instant) {
        if let Some(factor) = self.usage.advance(now) {
            let lanes = self.classes.iter_mut().flat_map(|lanes| &mut lanes.lanes);
            lanes.flatten().for_each(|waiting| waiting.weighed *= factor);
        }
    }
}

impl<T> Lanes<T> {
    fn push(&mut self, lane: usize, waiting: Waiting<T>) {
        if let Some(queue) = self.lanes.get_mut(lane) {
            queue.push_back(waiting);
            self.occupied |= 1 << lane;
        }
    }

    fn pop(&mut self, now: Instant, policy: &Policy, usage: &Usage) -> Option<Waiting<T>> {
        let best = if self.occupied.is_power_of_two() {
            self.occupied.trailing_zeros() as usize
        } else {
            self.best(now, policy, usage)?
        };
        let queue = self.lanes.get_mut(best)?;
        let waiting = queue.pop_front();
        if queue.is_empty() {
            self.occupied &= !(1 << best);
        }
        waiting
    }

    /// The lane whose head has the lowest priority, the older one of equals.
    fn best(&self, now: Instant, policy: &Policy, usage: &Usage) -> Option<usize> {
        let heads = self.lanes.iter().enumerate().filter_map(|(lane, queue)| {
            let head = queue.front()?;
            let wait = now.saturating_duration_since(head.since);
            Some((priority(usage.seconds(head.weighed), wait, policy), head.since, lane))
        });
        let best = heads.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        best.map(|(_, _, lane)| lane)
    }
}

/// Seconds; the lowest runs first.
fn priority(seconds: f64, wait: Duration, policy: &Policy) -> f64 {
    let waited = (wait.as_secs_f64() / policy.max_wait.as_secs_f64()).min(1.0);
    let seconds = if seconds < FLOOR { 0.0 } else { seconds };
    seconds - policy.wait_weight * waited * waited
}

fn lane_of(seconds: f64) -> usize {
    if seconds < FLOOR {
        return 0;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and bounded")]
    let lane = ((seconds / FLOOR).log2() * PER_OCTAVE) as usize;
    (lane + 1).min(LANES - 1)
}

#[cfg(test)]
#[path = "fair_tests.rs"]
mod tests;
