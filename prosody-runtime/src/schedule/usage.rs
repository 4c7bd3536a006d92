//! How much execution time did keys and classes take lately?
//!
//! A second of execution counts half after [`HALF_LIFE`]. Everything decays alike, so nothing is ever touched to decay:
//! new time is weighed up instead, by a scale that doubles every half-life, and moves to a new origin long before it
//! overflows. A key that runs all the time has about 173 s (`HALF_LIFE / ln 2`), and none has more.

use std::time::Duration;

use prosody_base::Instant;

use super::fair::Class;

/// Seconds after which execution time counts half.
const HALF_LIFE: f64 = 120.0;
/// Keys whose time is known, in sets of [`SET`]; where a set is full, its smallest is forgotten.
pub(crate) const TRACKED_KEYS: usize = 8_192;
const SET: usize = 8;
/// The scale stands still this long: its error is a hundred-thousandth, and a short event needs no exponential.
const TICK: Duration = Duration::from_millis(1);
/// Half-lives after which the scale gets a new origin.
const REBASE: f64 = 100.0;
/// Seconds that a class is charged for its first grant, before anything is known.
const FIRST_GUESS: f64 = 0.001;
/// The share of one event in what its class typically takes.
const LEARNING: f64 = 0.125;

/// Execution time by key and by class. Values named `weighed` are seconds times the scale of the moment.
#[derive(Debug)]
pub(crate) struct Usage {
    keys: Vec<(u64, f64)>,
    classes: [f64; 2],
    typical: [f64; 2],
    origin: Instant,
    moved: Instant,
    scale: f64,
}

impl Usage {
    pub(crate) fn new(now: Instant) -> Usage {
        let keys = vec![(0, 0.0); TRACKED_KEYS];
        Usage { keys, classes: [0.0; 2], typical: [FIRST_GUESS; 2], origin: now, moved: now, scale: 1.0 }
    }

    /// Moves time on. Returns what everything weighed must be multiplied with, in the rare case that it must.
    pub(crate) fn advance(&mut self, now: Instant) -> Option<f64> {
        if now.saturating_duration_since(self.moved) < TICK {
            return None;
        }
        self.moved = now;
        self.scale = self.scale_at(now);
        if self.scale < REBASE.exp2() {
            return None;
        }
        let factor = self.scale.recip();
        self.keys.iter_mut().for_each(|(_, weighed)| *weighed *= factor);
        self.classes.iter_mut().for_each(|weighed| *weighed *= factor);
        (self.origin, self.scale) = (now, 1.0);
        Some(factor)
    }

    /// The weighed time of a key; 0 when it is not known.
    pub(crate) fn of_key(&self, key: u64) -> f64 {
        self.set(key).iter().find(|(known, _)| *known == key).map_or(0.0, |(_, weighed)| *weighed)
    }

    /// The weighed time of a class.
    pub(crate) fn of_class(&self, class: Class) -> f64 {
        let [normal, failure] = self.classes;
        if class == Class::Normal { normal } else { failure }
    }

    /// Lifts a class to a weighed time, if it has less.
    pub(crate) fn lift(&mut self, class: Class, weighed: f64) {
        let total = class.pick(&mut self.classes);
        *total = total.max(weighed);
    }

    pub(crate) fn seconds(&self, weighed: f64) -> f64 {
        weighed / self.scale
    }

    /// Charges a class what its events typically take; [`spend`](Usage::spend) puts it right. Without it all permits
    /// that are granted before the first one comes back would go to one class. Returns the seconds.
    pub(crate) fn charge(&mut self, class: Class) -> f64 {
        let guess = *class.pick(&mut self.typical);
        *class.pick(&mut self.classes) += guess * self.scale;
        guess
    }

    /// An event ran from `from` until `now`; `charged` is what [`charge`](Usage::charge) returned at `from`.
    pub(crate) fn spend(&mut self, key: u64, class: Class, from: Instant, now: Instant, charged: f64) {
        let ran = now.saturating_duration_since(from);
        let seconds = ran.as_secs_f64();
        let (then, weighed) = if ran < TICK {
            (self.scale, seconds * self.scale)
        } else {
            // The integral: what a long handler did first has decayed when it ends.
            let then = self.scale_at(from);
            (then, (self.scale_at(now) - then) * HALF_LIFE / std::f64::consts::LN_2)
        };
        let total = class.pick(&mut self.classes);
        *total = (*total + weighed - charged * then).max(0.0);
        let typical = class.pick(&mut self.typical);
        *typical += (seconds - *typical) * LEARNING;
        self.add(key, weighed);
    }

    fn add(&mut self, key: u64, weighed: f64) {
        let at = Usage::set_start(key);
        let Some(set) = self.keys.get_mut(at..at + SET) else { return };
        if let Some((_, known)) = set.iter_mut().find(|(known, _)| *known == key) {
            *known += weighed;
        } else if let Some(least) = set.iter_mut().min_by(|a, b| a.1.total_cmp(&b.1)) {
            *least = (key, weighed);
        }
    }

    fn set(&self, key: u64) -> &[(u64, f64)] {
        let at = Usage::set_start(key);
        self.keys.get(at..at + SET).unwrap_or_default()
    }

    fn set_start(key: u64) -> usize {
        #[allow(clippy::cast_possible_truncation, reason = "it is a hash")]
        let hash = key as usize;
        hash % (TRACKED_KEYS / SET) * SET
    }

    fn scale_at(&self, at: Instant) -> f64 {
        let after = at.saturating_duration_since(self.origin).as_secs_f64();
        let before = self.origin.saturating_duration_since(at).as_secs_f64();
        ((after - before) / HALF_LIFE).exp2()
    }
}
