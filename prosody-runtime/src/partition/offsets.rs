//! Up to which offset is everything finished?
//!
//! Every fetched record takes part: one that will run is *outstanding* until it is finished, everything else (skipped
//! records, poison, compacted gaps) only moves the *position*, the next offset to be read. The watermark is the first
//! outstanding offset, or the position when nothing is outstanding, and it is what a commit says.

use std::collections::VecDeque;

use prosody_base::sabotaged;

/// Proof that an offset was registered, and in which life of the log. A completion from before a reset of the
/// position never finishes a record that was read after it, though their offsets may be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    life: u32,
    offset: i64,
}

#[cfg(test)]
impl Ticket {
    /// The record's offset.
    pub(crate) fn offset(self) -> i64 {
        self.offset
    }
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    ticket: Ticket,
    leader_epoch: i32,
}

/// The offsets of one partition during one assignment.
#[derive(Debug)]
pub(crate) struct Offsets {
    life: u32,
    position: i64,
    /// Leader epoch of what was read last; −1 when unknown.
    read_epoch: i32,
    /// Leader epoch of the newest record below the watermark; −1 when unknown.
    done_epoch: i32,
    /// Ascending. As long as what runs, waits and is looked ahead at, which are all bounded.
    outstanding: VecDeque<Outstanding>,
    /// What the group knows.
    committed: Option<i64>,
}

impl Offsets {
    /// Reading starts at `position`; `committed` says what the group already knows.
    pub(crate) fn new(position: i64, leader_epoch: i32, committed: Option<i64>) -> Offsets {
        let (read_epoch, done_epoch) = (leader_epoch, leader_epoch);
        Offsets { life: 0, position, read_epoch, done_epoch, outstanding: VecDeque::new(), committed }
    }

    /// The next offset to be read; smaller ones were seen in this assignment.
    #[cfg(test)]
    pub(crate) fn position(&self) -> i64 {
        self.position
    }

    /// Registers a record that will run. `None` when its offset was seen before: it must not run again.
    pub(crate) fn register(&mut self, offset: i64, leader_epoch: i32) -> Option<Ticket> {
        if offset < self.position && !sabotaged("rewind-guard") {
            return None;
        }
        let ticket = Ticket { life: self.life, offset };
        self.outstanding.push_back(Outstanding { ticket, leader_epoch });
        self.pass(offset.saturating_add(1), leader_epoch);
        Some(ticket)
    }

    /// Everything below `position` was read, and what is not registered needs no work.
    pub(crate) fn pass(&mut self, position: i64, leader_epoch: i32) {
        if position > self.position {
            self.position = position;
            self.read_epoch = self.read_epoch.max(leader_epoch);
            self.settle();
        }
    }

    /// Finishes a record. Returns whether it was outstanding.
    pub(crate) fn complete(&mut self, ticket: Ticket) -> bool {
        let found = self.outstanding.binary_search_by_key(&ticket.offset, |entry| entry.ticket.offset);
        let Ok(at) = found else { return false };
        if !self.outstanding.get(at).is_some_and(|entry| entry.ticket == ticket) {
            return false;
        }
        if let Some(entry) = self.outstanding.remove(at)
            && at == 0
        {
            self.done_epoch = entry.leader_epoch;
        }
        self.settle();
        true
    }

    /// The log is not what it was, or what we wanted is gone: reading goes on at `position`. Outstanding records from
    /// there on belong to a log that no longer exists; their completions will count for nothing.
    pub(crate) fn reset(&mut self, position: i64, leader_epoch: i32) {
        self.life = self.life.wrapping_add(1);
        while self.outstanding.back().is_some_and(|entry| entry.ticket.offset >= position) {
            self.outstanding.pop_back();
        }
        self.position = position;
        self.read_epoch = leader_epoch;
        self.settle();
    }

    /// The first offset that is not finished.
    pub(crate) fn watermark(&self) -> i64 {
        if sabotaged("watermark-highest-read") {
            return self.position;
        }
        self.outstanding.front().map_or(self.position, |entry| entry.ticket.offset)
    }

    /// What to commit: watermark and leader epoch, unless the group knows it.
    pub(crate) fn uncommitted(&self) -> Option<(i64, i32)> {
        let watermark = self.watermark();
        (self.committed != Some(watermark)).then_some((watermark, self.done_epoch))
    }

    /// The group knows `watermark` now.
    pub(crate) fn committed(&mut self, watermark: i64) {
        self.committed = Some(watermark);
    }

    /// Records that are registered and not finished.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    fn settle(&mut self) {
        if self.outstanding.is_empty() {
            self.done_epoch = self.read_epoch;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_completion_from_before_a_reset_does_not_finish_the_new_record_of_its_offset() {
        // A log was truncated to 5 while record 7 ran; the new record 7 must not count as done when the old one ends.
        let mut offsets = Offsets::new(5, 1, Some(5));
        let old = offsets.register(7, 1).unwrap();
        offsets.reset(5, 2);
        let new = offsets.register(7, 2).unwrap();
        assert!(!offsets.complete(old));
        assert_eq!(offsets.watermark(), 7);
        assert!(offsets.complete(new));
        assert_eq!(offsets.uncommitted(), Some((8, 2)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Register { gap: u8, epoch: u8 },
        Pass { gap: u8 },
        Rewind { back: u8 },
        Complete { which: prop::sample::Index },
        Commit,
        Reset { to: u8 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..4u8, 0..2u8).prop_map(|(gap, epoch)| Step::Register { gap, epoch }),
            2 => (0..6u8).prop_map(|gap| Step::Pass { gap }),
            1 => (1..9u8).prop_map(|back| Step::Rewind { back }),
            6 => any::<prop::sample::Index>().prop_map(|which| Step::Complete { which }),
            1 => Just(Step::Commit),
            1 => any::<u8>().prop_map(|to| Step::Reset { to }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// The model keeps every record that was ever registered in a map, finished or not.
        #[test]
        fn the_watermark_is_the_first_offset_that_is_not_finished(steps in prop::collection::vec(step(), 0..120)) {
            let mut offsets = Offsets::new(100, 0, None);
            let (mut position, mut epoch) = (100i64, 0i32);
            let mut unfinished: BTreeMap<i64, Ticket> = BTreeMap::new();
            let mut stale: Vec<Ticket> = Vec::new();
            let mut committed = None;
            for step in steps {
                match step {
                    Step::Register { gap, epoch: grown } => {
                        epoch += i32::from(grown);
                        let offset = position + i64::from(gap);
                        let ticket = offsets.register(offset, epoch).expect("a new offset");
                        unfinished.insert(offset, ticket);
                        position = offset + 1;
                    }
                    Step::Pass { gap } => {
                        position += i64::from(gap);
                        offsets.pass(position, epoch);
                    }
                    Step::Rewind { back } => {
                        prop_assert_eq!(offsets.register(position - i64::from(back), epoch), None);
                        offsets.pass(position - i64::from(back), epoch);
                    }
                    Step::Complete { which } => {
                        let tickets: Vec<Ticket> = unfinished.values().copied().chain(stale.clone()).collect();
                        if !tickets.is_empty() {
                            let ticket = tickets[which.index(tickets.len())];
                            let known = unfinished.get(&ticket.offset()) == Some(&ticket);
                            prop_assert_eq!(offsets.complete(ticket), known);
                            if known {
                                unfinished.remove(&ticket.offset());
                                stale.push(ticket);
                            }
                        }
                    }
                    Step::Commit => {
                        if let Some((watermark, _)) = offsets.uncommitted() {
                            offsets.committed(watermark);
                            committed = Some(watermark);
                        }
                    }
                    Step::Reset { to } => {
                        position = i64::from(to);
                        stale.extend(unfinished.split_off(&position).into_values());
                        offsets.reset(position, epoch);
                    }
                }
                let expected = unfinished.keys().next().copied().unwrap_or(position);
                prop_assert_eq!(offsets.watermark(), expected);
                prop_assert_eq!(offsets.position(), position);
                prop_assert_eq!(offsets.outstanding(), unfinished.len());
                prop_assert_eq!(offsets.uncommitted().map(|(at, _)| at), Some(expected).filter(|at| committed != Some(*at)));
                prop_assert!(offsets.done_epoch <= epoch);
            }
        }
    }
}
