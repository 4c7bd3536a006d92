//! What the scheduler promises: fairness between keys, a share for retries, an end to every wait, and no idle permit.
//! Time is a number here, so an hour takes a moment.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;
use prosody_base::Clock;

use super::super::usage::TRACKED_KEYS;
use super::*;

const POLICY: Policy = Policy { failure_weight: 0.3, max_wait: Duration::from_secs(120), wait_weight: 200.0 };
const MS: Duration = Duration::from_millis(1);
/// What a key that always runs has, in seconds.
const MOST: f64 = 120.0 / std::f64::consts::LN_2;

/// A key that always has another event: the next one waits as soon as one has run.
#[derive(Clone, Copy)]
struct Busy {
    class: Class,
    takes: Duration,
    /// When its first event comes.
    from: Duration,
}

/// One event of a [`Busy`] key, by the key's number.
struct Past {
    key: usize,
    start: Duration,
}

/// Runs busy keys on some permits. A permit that is free while something waits fails the test.
fn busy(permits: usize, keys: &[Busy], time: Duration) -> Vec<Past> {
    let begin = Clock::system().now();
    let mut selector = Selector::new(POLICY, begin);
    // Keys come (`None`) and events end.
    let mut next: BinaryHeap<Reverse<(Duration, usize)>> = BinaryHeap::new();
    let mut running: Vec<Option<Grant>> = keys.iter().map(|_| None).collect();
    let (mut free, mut past) = (permits, Vec::new());
    next.extend(keys.iter().enumerate().map(|(key, busy)| Reverse((busy.from, key))));
    while let Some(Reverse((now, key))) = next.pop().filter(|Reverse((now, _))| *now < time) {
        if let Some(grant) = running[key].take() {
            selector.release(&grant, begin + now);
            free += 1;
        }
        selector.push(key as u64, keys[key].class, begin + now, key);
        while free > 0 && next.peek().is_none_or(|Reverse((at, _))| *at > now) && !selector.is_empty() {
            let (key, grant) = selector.pop(begin + now).expect("something waits");
            past.push(Past { key, start: now });
            running[key] = Some(grant);
            next.push(Reverse((now + keys[key].takes, key)));
            free -= 1;
        }
    }
    past
}

/// The share of retries in the execution time of what started between `from` and `to`.
fn failure_share(past: &[Past], keys: &[Busy], from: Duration, to: Duration) -> f64 {
    let time = |class| -> f64 {
        let of = past.iter().filter(|past| keys[past.key].class == class && (from..to).contains(&past.start));
        of.map(|past| keys[past.key].takes.as_secs_f64()).sum()
    };
    time(Class::Failure) / (time(Class::Failure) + time(Class::Normal))
}

#[test]
fn a_key_of_long_events_does_not_hold_up_a_thousand_short_ones() {
    let short = Busy { class: Class::Normal, takes: MS, from: Duration::ZERO };
    let mut keys = vec![short; 1_001];
    keys[0].takes = 100 * MS;
    let (from, to) = (Duration::from_secs(60), Duration::from_secs(120));
    let past: Vec<Past> = busy(1, &keys, to).into_iter().filter(|past| past.start >= from).collect();
    let long = past.iter().filter(|past| past.key == 0).count();
    // In turn it would run every 1.1 s, which is 55 times and a tenth of the time.
    assert!((1..20).contains(&long), "{long}");
    let mut counts = vec![0usize; keys.len()];
    past.iter().for_each(|past| counts[past.key] += 1);
    let (least, most) = (counts.iter().skip(1).min().unwrap(), counts.iter().max().unwrap());
    assert!(*least >= 55 && most - least <= 2, "{least} to {most}");
}

fn mixed(failures_from: Duration) -> Vec<Busy> {
    let normal = (0..300).map(|n| (Class::Normal, 5 + n % 45, Duration::ZERO));
    let failure = (0..300).map(|n| (Class::Failure, 20 + n % 180, failures_from));
    normal.chain(failure).map(|(class, ms, from)| Busy { class, takes: MS * ms, from }).collect()
}

#[test]
fn retries_get_their_share_and_no_more_while_both_classes_wait() {
    let keys = mixed(Duration::ZERO);
    let past = busy(32, &keys, Duration::from_secs(100));
    for second in (0..100).step_by(10) {
        let (from, to) = (Duration::from_secs(second), Duration::from_secs(second + 10));
        let share = failure_share(&past, &keys, from, to);
        assert!((0.25..=0.35).contains(&share), "{share} from second {second}");
    }
}

/// By total time alone a burst of retries after a quiet hour would be owed three tenths of that hour, and hold every
/// permit for a minute.
#[test]
fn a_class_is_not_owed_the_time_for_which_it_had_nothing_to_do() {
    let begin = Duration::from_secs(600);
    let keys = mixed(begin);
    let past = busy(32, &keys, begin + Duration::from_secs(10));
    assert!(failure_share(&past, &keys, Duration::ZERO, begin) == 0.0);
    let share = failure_share(&past, &keys, begin, begin + Duration::from_secs(10));
    assert!((0.25..=0.35).contains(&share), "{share}");
}

#[test]
fn the_busiest_key_waits_no_longer_than_the_longest_wait() {
    let begin = Clock::system().now();
    let mut selector = Selector::new(POLICY, begin);
    selector.push(1, Class::Normal, begin, true);
    let (_, grant) = selector.pop(begin).unwrap();
    let start = begin + Duration::from_secs(3_600);
    selector.release(&grant, start);
    assert!((selector.usage.seconds(selector.usage.of_key(1)) - MOST).abs() < 1.0);
    // Twenty keys that never ran before are always there.
    selector.push(1, Class::Normal, start, true);
    let (mut now, mut fresh) = (start, 2..);
    for key in fresh.by_ref().take(20) {
        selector.push(key, Class::Normal, now, false);
    }
    loop {
        let (it, grant) = selector.pop(now).unwrap();
        if it {
            break;
        }
        now += 100 * MS;
        selector.release(&grant, now);
        selector.push(fresh.next().unwrap(), Class::Normal, now, false);
    }
    let waited = now - start;
    assert!(waited <= POLICY.max_wait && waited > POLICY.max_wait / 2, "{waited:?}");
}

#[test]
fn what_is_known_of_keys_is_bounded_and_the_busiest_stay_known() {
    let mut now = Clock::system().now();
    let mut selector = Selector::new(POLICY, now);
    for key in 0..20 * TRACKED_KEYS as u64 {
        selector.push(key, Class::Normal, now, ());
        let (_, grant) = selector.pop(now).unwrap();
        let takes = if key == 7 { Duration::from_secs(10) } else { Duration::from_micros(10) };
        now += takes;
        selector.release(&grant, now);
    }
    let of = |key| selector.usage.seconds(selector.usage.of_key(key));
    assert!(of(7) > 9.0, "{}", of(7));
    let known = (0..20 * TRACKED_KEYS as u64).filter(|key| of(*key) > 0.0).count();
    assert!(known <= TRACKED_KEYS, "{known}");
}

#[derive(Clone, Debug)]
enum Step {
    Push(u64, bool),
    Pop,
    Release(prop::sample::Index),
    Pass(Duration),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..40u64, prop::bool::weighted(0.4)).prop_map(|(key, failure)| Step::Push(key, failure)),
        6 => Just(Step::Pop),
        5 => any::<prop::sample::Index>().prop_map(Step::Release),
        2 => (0..3_000u64).prop_map(|us| Step::Pass(Duration::from_micros(us))),
        2 => (0..60_000u64).prop_map(|ms| Step::Pass(MS * u32::try_from(ms).unwrap())),
        1 => (0..900u64).prop_map(|s| Step::Pass(Duration::from_secs(s))),
    ]
}

/// The same rules with lists, and decay computed from scratch.
#[derive(Default)]
struct Naive {
    waiting: Vec<(u64, Class, Duration)>,
    /// Key, class, start, and what the class was charged.
    running: Vec<(u64, Class, Duration, f64)>,
    runs: Vec<(u64, Duration, Duration)>,
    totals: [(f64, Duration); 2],
    typical: [Option<f64>; 2],
}

fn decay(from: Duration, to: Duration) -> f64 {
    (-(to - from).as_secs_f64() / 120.0).exp2()
}

impl Naive {
    fn of_key(&self, key: u64, now: Duration) -> f64 {
        let runs = self.runs.iter().filter(|(of, _, _)| *of == key);
        runs.map(|(_, from, to)| MOST * (decay(*to, now) - decay(*from, now))).sum()
    }
    fn total(&mut self, class: Class, now: Duration) -> &mut f64 {
        let (total, at) = class.pick(&mut self.totals);
        *total *= decay(*at, now);
        *at = now;
        total
    }
    fn guess(&mut self, class: Class) -> f64 {
        class.pick(&mut self.typical).unwrap_or(0.001)
    }
    /// Total over weight.
    fn level(&mut self, class: Class, now: Duration) -> f64 {
        *self.total(class, now) / if class == Class::Normal { 0.7 } else { 0.3 }
    }
    fn priority(&self, (key, _, since): (u64, Class, Duration), now: Duration) -> f64 {
        let waited = ((now - since).as_secs_f64() / 120.0).min(1.0);
        self.of_key(key, now) - 200.0 * waited * waited
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_chooses_what_a_search_of_all_events_would_within_the_width_of_a_lane(
        steps in prop::collection::vec(step(), 0..150),
    ) {
        let begin = Clock::system().now();
        let (mut selector, mut naive) = (Selector::new(POLICY, begin), Naive::default());
        let (mut now, mut grants) = (Duration::ZERO, Vec::new());
        for step in steps {
            match step {
                Step::Pass(time) => now += time,
                Step::Push(key, failure) => {
                    let class = if failure { Class::Failure } else { Class::Normal };
                    let waits = naive.waiting.iter().any(|waiting| waiting.0 == key);
                    if waits || naive.running.iter().any(|running| running.0 == key) {
                        continue;
                    }
                    if naive.waiting.iter().all(|waiting| waiting.1 != class) {
                        let other = if failure { Class::Normal } else { Class::Failure };
                        let least = naive.level(other, now) * if failure { 0.3 } else { 0.7 };
                        let total = naive.total(class, now);
                        *total = total.max(least);
                    }
                    naive.waiting.push((key, class, now));
                    selector.push(key, class, begin + now, key);
                }
                Step::Pop => {
                    let popped = selector.pop(begin + now);
                    prop_assert_eq!(popped.is_some(), !naive.waiting.is_empty(), "work conservation");
                    let Some((key, grant)) = popped else { continue };
                    let at = naive.waiting.iter().position(|waiting| waiting.0 == key).expect("it waits");
                    let (chosen, class) = (naive.waiting[at], naive.waiting[at].1);
                    if naive.waiting.iter().any(|waiting| waiting.1 != class) {
                        let other = if class == Class::Normal { Class::Failure } else { Class::Normal };
                        let (mine, others) = (naive.level(class, now), naive.level(other, now));
                        prop_assert!(mine <= others * 1.001 + FLOOR, "{class:?}: {mine} > {others}");
                    }
                    let got = naive.priority(chosen, now);
                    for waiting in naive.waiting.iter().filter(|waiting| waiting.1 == class) {
                        let allowed = naive.priority(*waiting, now)
                            + 0.261 * naive.of_key(waiting.0, now) + 2.0 * FLOOR + 1e-4;
                        prop_assert!(got <= allowed, "{chosen:?} {got} and not {waiting:?} {allowed} at {now:?}");
                    }
                    naive.waiting.remove(at);
                    let guess = naive.guess(class);
                    *naive.total(class, now) += guess;
                    naive.running.push((key, class, now, guess));
                    grants.push(grant);
                }
                Step::Release(which) if !grants.is_empty() => {
                    let which = which.index(grants.len());
                    selector.release(&grants.remove(which), begin + now);
                    let (key, class, from, charged) = naive.running.remove(which);
                    naive.runs.push((key, from, now));
                    let more = MOST * (1.0 - decay(from, now)) - charged * decay(from, now);
                    let total = naive.total(class, now);
                    *total = (*total + more).max(0.0);
                    let (guess, took) = (naive.guess(class), (now - from).as_secs_f64());
                    *class.pick(&mut naive.typical) = Some(guess + (took - guess) / 8.0);
                }
                Step::Release(_) => {}
            }
        }
    }
}
