//! Which offsets are read next, and who waits for them? Equal requests wait for one read, neighbours are one run, and a
//! partition is read by one fetch at a time. *Pure*.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use prosody_wire::LeaderEpoch;

use super::Place;

/// Offsets that lie this close together are read as one run: what lies between them costs less than another request.
const NEIGHBOUR: i64 = 16;
/// Offsets a run spans at most.
const RUN: i64 = 1_024;
/// Fetches under way at once, each of another partition.
const FETCHES: usize = 8;

/// What to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    pub(super) place: Place,
    pub(super) run: RangeInclusive<i64>,
    /// The newest epoch of a record that is asked for.
    pub(super) leader_epoch: LeaderEpoch,
}

/// How a fetch ended.
#[derive(Debug)]
pub(super) enum Answer {
    /// Every offset of the run below `next` is decided.
    Decided { next: i64 },
    /// Nothing is, and another attempt may decide it.
    Again(String),
    /// Nothing is, and no attempt will decide the first offset.
    Refused(String),
}

/// What those who wait for an offset are told.
#[derive(Debug)]
pub(super) struct Ended<W> {
    pub(super) offset: i64,
    pub(super) waiters: Vec<W>,
    /// `Err` is why it was refused; otherwise the answer decided it.
    pub(super) refused: Option<String>,
}

/// One offset that is waited for.
#[derive(Debug)]
struct Asked<W> {
    waiters: BTreeMap<u64, W>,
    leader_epoch: LeaderEpoch,
    /// Why the last fetch that began at it decided nothing.
    why: Option<String>,
}

/// One partition.
#[derive(Debug)]
struct Line<W> {
    asked: BTreeMap<i64, Asked<W>>,
    is_fetched: bool,
    /// Where the last fetch stopped: the next one begins behind it, so that an offset that cannot be decided holds up nobody.
    after: i64,
}

/// Everything that is waited for. `W` is how somebody who waits is reached.
#[derive(Debug)]
pub(super) struct Plan<W> {
    lines: BTreeMap<Place, Line<W>>,
    fetches: usize,
    tickets: u64,
    /// Whose turn was last.
    turn: Option<Place>,
}

impl<W> Plan<W> {
    pub(super) fn new() -> Plan<W> {
        Plan { lines: BTreeMap::new(), fetches: 0, tickets: 0, turn: None }
    }

    /// Somebody waits for an offset. The ticket takes it back.
    pub(super) fn ask(&mut self, place: &Place, offset: i64, leader_epoch: LeaderEpoch, waiter: W) -> u64 {
        self.tickets += 1;
        let new = || Line { asked: BTreeMap::new(), is_fetched: false, after: i64::MIN };
        let line = self.lines.entry(place.clone()).or_insert_with(new);
        let none = || Asked { waiters: BTreeMap::new(), leader_epoch: -1, why: None };
        let asked = line.asked.entry(offset).or_insert_with(none);
        asked.leader_epoch = asked.leader_epoch.max(leader_epoch);
        asked.waiters.insert(self.tickets, waiter);
        self.tickets
    }

    /// Somebody waits no more: gave up, or was told. Says why the last attempt decided nothing.
    pub(super) fn forget(&mut self, place: &Place, offset: i64, ticket: u64) -> Option<String> {
        let line = self.lines.get_mut(place)?;
        let asked = line.asked.get_mut(&offset)?;
        asked.waiters.remove(&ticket)?;
        let why = asked.why.clone();
        if asked.waiters.is_empty() {
            line.asked.remove(&offset);
        }
        self.sweep(place);
        why
    }

    /// Whether another fetch could begin.
    pub(super) fn has_work(&self) -> bool {
        self.fetches < FETCHES && self.lines.values().any(|line| !line.is_fetched && !line.asked.is_empty())
    }

    /// The next fetch; partitions take turns.
    pub(super) fn start(&mut self) -> Option<Fetch> {
        if self.fetches >= FETCHES {
            return None;
        }
        let waits = |line: &Line<W>| !line.is_fetched && !line.asked.is_empty();
        let behind =
            self.lines.iter().filter(|(place, _)| self.turn.as_ref().is_none_or(|turn| *place > turn));
        let place = behind.chain(self.lines.iter()).find(|(_, line)| waits(line))?.0.clone();
        let line = self.lines.get_mut(&place)?;
        let behind = line.after.checked_add(1).and_then(|from| line.asked.range(from..).next());
        let (first, asked) = behind.or_else(|| line.asked.first_key_value())?;
        let (mut last, mut leader_epoch) = (*first, asked.leader_epoch);
        for (offset, asked) in line.asked.range(first..) {
            if offset.saturating_sub(last) > NEIGHBOUR || offset.saturating_sub(*first) >= RUN {
                break;
            }
            last = *offset;
            leader_epoch = leader_epoch.max(asked.leader_epoch);
        }
        let run = *first..=last;
        line.is_fetched = true;
        self.fetches += 1;
        self.turn = Some(place.clone());
        Some(Fetch { place, run, leader_epoch })
    }

    /// A fetch ended: who is to be told.
    pub(super) fn answered(&mut self, fetch: &Fetch, answer: Answer) -> Vec<Ended<W>> {
        self.fetches -= 1;
        let first = *fetch.run.start();
        let Some(line) = self.lines.get_mut(&fetch.place) else { return Vec::new() };
        line.is_fetched = false;
        let mut ended = Vec::new();
        match answer {
            Answer::Decided { next } => {
                line.after = next.saturating_sub(1);
                // Epochs that came in behind the question were not part of it.
                let decided = line.asked.range(first..next.max(first));
                let decided = decided.filter(|(_, asked)| asked.leader_epoch <= fetch.leader_epoch);
                let decided: Vec<i64> = decided.map(|(offset, _)| *offset).collect();
                for offset in decided {
                    let waiters =
                        line.asked.remove(&offset).map(|asked| asked.waiters.into_values().collect());
                    ended.extend(waiters.map(|waiters| Ended { offset, waiters, refused: None }));
                }
            }
            Answer::Again(why) => {
                line.after = first;
                if let Some(asked) = line.asked.get_mut(&first) {
                    asked.why = Some(why);
                }
            }
            Answer::Refused(why) => {
                line.after = first;
                ended.extend(line.asked.remove(&first).map(|asked| Ended {
                    offset: first,
                    waiters: asked.waiters.into_values().collect(),
                    refused: Some(why),
                }));
            }
        }
        self.sweep(&fetch.place);
        ended
    }

    fn sweep(&mut self, place: &Place) {
        if self.lines.get(place).is_some_and(|line| line.asked.is_empty() && !line.is_fetched) {
            self.lines.remove(place);
        }
    }

    /// Offsets that are waited for.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lines.values().map(|line| line.asked.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prosody_wire::TopicPartition;

    use super::*;

    fn place(n: i32) -> Place {
        Place { partition: TopicPartition::new("t", n), topic_id: None }
    }

    /// A scan that asks for everything at once costs one fetch, whoever else asks for the same.
    #[test]
    fn consecutive_offsets_are_one_run_and_equal_ones_one_read() {
        let mut plan = Plan::new();
        for offset in (0..1_000).chain(200..400) {
            plan.ask(&place(0), offset, 3, offset);
        }
        plan.ask(&place(0), 5_000, 4, 0);
        let fetch = plan.start().expect("work");
        assert_eq!(fetch, Fetch { place: place(0), run: 0..=999, leader_epoch: 3 });
        assert!(plan.start().is_none(), "one fetch of a partition at a time");
        let ended = plan.answered(&fetch, Answer::Decided { next: 1_000 });
        assert_eq!(ended.iter().map(|ended| ended.waiters.len()).sum::<usize>(), 1_200);
        assert_eq!(plan.start().expect("the rest").run, 5_000..=5_000);
    }

    #[test]
    fn an_offset_that_cannot_be_decided_holds_up_nobody() {
        let mut plan = Plan::new();
        let ticket = plan.ask(&place(0), 7, -1, 'a');
        plan.ask(&place(0), 100, -1, 'b');
        let fetch = plan.start().expect("work");
        assert!(plan.answered(&fetch, Answer::Again("an open transaction".into())).is_empty());
        let next = plan.start().expect("work");
        assert_eq!(next.run, 100..=100, "the other one first");
        assert_eq!(plan.answered(&next, Answer::Refused("no".into())).len(), 1);
        assert_eq!(plan.start().expect("again").run, 7..=7);
        assert_eq!(plan.forget(&place(0), 7, ticket).as_deref(), Some("an open transaction"));
    }

    #[derive(Clone, Debug)]
    enum Op {
        /// A record's epoch follows from its offset, as in a log.
        Ask {
            place: i32,
            offset: i64,
        },
        Forget(prop::sample::Index),
        Start,
        /// A fetch that is under way ends; `decides` offsets of its run, at least one.
        End {
            which: prop::sample::Index,
            decides: i64,
            how: u8,
        },
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let ask = (0..12, 0..60i64).prop_map(|(place, offset)| Op::Ask { place, offset });
        let end = (any::<prop::sample::Index>(), 1..40i64, 0..4u8)
            .prop_map(|(which, decides, how)| Op::End { which, decides, how });
        let forget = any::<prop::sample::Index>().prop_map(Op::Forget);
        proptest::collection::vec(prop_oneof![5 => ask, 1 => forget, 3 => Just(Op::Start), 3 => end], 1..80)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whoever waits is told once, by a fetch that asked for the offset in its epoch, and only then or never again.
        #[test]
        fn everybody_who_waits_is_told_once(ops in ops()) {
            let mut plan = Plan::new();
            let epoch = |offset: i64| i32::try_from(offset / 20).expect("small");
            // What is waited for: (ticket, place, offset). The waiter is its own ticket.
            let mut waits: Vec<(u64, i32, i64)> = Vec::new();
            let mut fetches: Vec<Fetch> = Vec::new();
            let mut number = 0;
            for op in ops {
                match op {
                    Op::Ask { place: at, offset } => {
                        number += 1;
                        let ticket = plan.ask(&place(at), offset, epoch(offset), number);
                        prop_assert_eq!(ticket, number);
                        waits.push((ticket, at, offset));
                    }
                    Op::Forget(which) if !waits.is_empty() => {
                        let (ticket, at, offset) = waits.swap_remove(which.index(waits.len()));
                        plan.forget(&place(at), offset, ticket);
                    }
                    Op::Start => {
                        let idle = |at: i32| fetches.iter().all(|fetch| fetch.place != place(at));
                        let work = fetches.len() < FETCHES && waits.iter().any(|wait| idle(wait.1));
                        prop_assert_eq!(plan.has_work(), work);
                        let fetch = plan.start();
                        prop_assert_eq!(fetch.is_some(), work, "a fetch begins when one can");
                        if let Some(fetch) = fetch {
                            let (first, last) = (*fetch.run.start(), *fetch.run.end());
                            prop_assert!(first <= last && last - first <= RUN + NEIGHBOUR);
                            for end in [first, last] {
                                let known = |wait: &(u64, i32, i64)| place(wait.1) == fetch.place && wait.2 == end;
                                prop_assert!(waits.iter().any(known), "nobody asked for {end}");
                            }
                            fetches.push(fetch);
                        }
                    }
                    Op::End { which, decides, how } if !fetches.is_empty() => {
                        let fetch = fetches.swap_remove(which.index(fetches.len()));
                        let (first, last) = (*fetch.run.start(), *fetch.run.end());
                        let next = (first + decides).min(last + 1);
                        let answer = match how {
                            0 | 1 => Answer::Decided { next },
                            2 => Answer::Again("not yet".into()),
                            _ => Answer::Refused("no".into()),
                        };
                        let told = match how {
                            0 | 1 => first..next,
                            2 => 0..0,
                            _ => first..first + 1,
                        };
                        let is_told = |wait: &(u64, i32, i64)| {
                            let old = how < 2 && epoch(wait.2) > fetch.leader_epoch;
                            place(wait.1) == fetch.place && told.contains(&wait.2) && !old
                        };
                        let (expected, rest): (Vec<_>, Vec<_>) = waits.into_iter().partition(is_told);
                        waits = rest;
                        let ended = plan.answered(&fetch, answer);
                        let mut got: Vec<u64> = ended.into_iter().flat_map(|ended| ended.waiters).collect();
                        got.sort_unstable();
                        let mut expected: Vec<u64> = expected.iter().map(|wait| wait.0).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(got, expected);
                    }
                    _ => {}
                }
            }
            let mut offsets: Vec<_> = waits.iter().map(|wait| (wait.1, wait.2)).collect();
            offsets.sort_unstable();
            offsets.dedup();
            prop_assert_eq!(plan.waiting(), offsets.len());
        }
    }
}
