//! Where is one partition being read, and what moves that place? Pure.

use prosody_base::sabotaged;

use super::validate::Walk;
use crate::types::{LeaderEpoch, Offset, TopicId};

/// Where reading starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// At this offset, such as a committed one.
    Offset {
        /// The first offset wanted.
        offset: Offset,
        /// The leader epoch of the record before it, −1 when unknown. Lets the broker notice that the log was
        /// truncated since (KIP-320).
        leader_epoch: LeaderEpoch,
    },
    /// At the oldest record.
    Earliest,
    /// Behind the newest record.
    Latest,
}

/// Why the position has to be looked up with ListOffsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Reading begins at the oldest record.
    Earliest,
    /// Reading begins behind the newest record.
    Latest,
    /// The broker refused the position: OFFSET_OUT_OF_RANGE.
    OutOfRange,
    /// The topic was deleted and made again: the old position means nothing.
    Recreated,
    /// Whether the log still has what was read: where the epoch of the last batch ends (KIP-320).
    Epoch,
    /// The log has never reached the epoch of the last batch: it is another one, and the old position means nothing.
    OtherLog,
}

/// A position that changed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) from: Offset,
    pub(crate) to: Offset,
    pub(crate) why: &'static str,
}

/// The position of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The next offset to fetch, once it is known.
    position: Offset,
    /// The leader epoch of the last batch, −1 for none.
    last_epoch: LeaderEpoch,
    /// The leader epoch under which the last batch is known to be in the log.
    proven: LeaderEpoch,
    lookup: Option<Lookup>,
    /// The topic this position belongs to.
    topic_id: Option<TopicId>,
}

impl Cursor {
    pub(crate) fn new(start: StartAt) -> Cursor {
        let (position, last_epoch, lookup) = match start {
            StartAt::Offset { offset, leader_epoch } => (offset.max(0), leader_epoch, None),
            StartAt::Earliest => (0, -1, Some(Lookup::Earliest)),
            StartAt::Latest => (0, -1, Some(Lookup::Latest)),
        };
        Cursor { position, last_epoch, proven: -1, lookup, topic_id: None }
    }

    /// The offset to fetch; `None` while it has to be looked up.
    pub(crate) fn position(&self) -> Option<Offset> {
        match self.lookup {
            None => Some(self.position),
            Some(_) => None,
        }
    }

    pub(crate) fn last_epoch(&self) -> LeaderEpoch {
        self.last_epoch
    }

    pub(crate) fn lookup(&self) -> Option<Lookup> {
        self.lookup
    }

    /// Metadata knows the topic under this id. Another id than before means another log.
    pub(crate) fn topic(&mut self, id: Option<TopicId>) {
        let Some(id) = id else { return };
        if self.topic_id.is_some_and(|known| known != id) {
            // A start that was never resolved stays what it was.
            self.lookup =
                self.lookup.filter(|lookup| *lookup != Lookup::OutOfRange).or(Some(Lookup::Recreated));
            self.last_epoch = -1;
        }
        self.topic_id = Some(id);
    }

    /// Records fetched from `from` were taken over. False, and nothing moved, when the position is another one by now.
    pub(crate) fn advance(&mut self, from: Offset, walk: Walk) -> bool {
        if self.position() != Some(from) {
            return false;
        }
        self.position = self.position.max(walk.next);
        if walk.last_epoch >= 0 {
            self.last_epoch = walk.last_epoch;
        }
        true
    }

    /// What the reader holds is thrown away, and fetched again from here.
    pub(crate) fn rewind(&mut self, to: Offset) {
        if self.lookup.is_none() {
            self.position = to;
            self.last_epoch = -1;
        }
    }

    /// The broker answered OFFSET_OUT_OF_RANGE to a fetch from `from`.
    pub(crate) fn out_of_range(&mut self, from: Offset) {
        if self.position() == Some(from) {
            self.lookup = Some(Lookup::OutOfRange);
        }
    }

    /// The log and what was read part ways at `end`, the end of `epoch` there (KIP-320).
    pub(crate) fn truncated(&mut self, from: Offset, epoch: LeaderEpoch, end: Offset) -> Option<Moved> {
        if self.position() != Some(from) {
            return None;
        }
        self.last_epoch = epoch;
        if end >= from || end < 0 {
            return None;
        }
        self.position = end;
        Some(Moved { from, to: end, why: "the log was truncated after a leader change" })
    }

    /// Under this leader, whose Fetch cannot say so itself, is the last batch still there? If that is not known it has to be
    /// asked, and what was fetched meanwhile is fetched again.
    pub(crate) fn is_proven(&mut self, leader_epoch: LeaderEpoch) -> bool {
        if self.last_epoch >= 0 && self.proven != leader_epoch && self.lookup.is_none() {
            self.lookup = Some(Lookup::Epoch);
            return false;
        }
        self.proven = leader_epoch;
        true
    }

    /// The leader of `leader_epoch` answered `Lookup::Epoch`: its log has `epoch` at most, until `end`. Both are −1 when it
    /// knows no such epoch.
    pub(crate) fn epoch_ends(
        &mut self,
        leader_epoch: LeaderEpoch,
        epoch: LeaderEpoch,
        end: Offset,
    ) -> Option<Moved> {
        if self.lookup != Some(Lookup::Epoch) {
            return None;
        }
        if epoch < 0 || end < 0 {
            self.lookup = Some(Lookup::OtherLog);
            return None;
        }
        (self.lookup, self.proven) = (None, leader_epoch);
        self.truncated(self.position, epoch, end)
    }

    /// ListOffsets answered `lookup` with the log's start and end. Says when a known position was given up for another.
    pub(crate) fn found(&mut self, lookup: Lookup, earliest: Offset, latest: Offset) -> Option<Moved> {
        if self.lookup != Some(lookup) {
            return None;
        }
        self.lookup = None;
        let from = self.position;
        let why = match lookup {
            Lookup::Earliest => {
                self.position = earliest;
                return None;
            }
            Lookup::Latest => {
                self.position = latest;
                return None;
            }
            // A replica that lagged behind, or a log that has grown since.
            Lookup::OutOfRange if (earliest..=latest).contains(&from) && !sabotaged("out-of-range-asked") => {
                // Or a log without the epoch of the last batch, which a Fetch is refused for in the same words.
                self.lookup = (self.last_epoch >= 0).then_some(Lookup::Epoch);
                return None;
            }
            Lookup::OutOfRange => "the offset is out of range",
            Lookup::Recreated => "the topic was deleted and created again",
            Lookup::OtherLog => "the log does not know the leader epoch of what was read last",
            Lookup::Epoch => return None,
        };
        self.position = earliest;
        self.last_epoch = -1;
        Some(Moved { from, to: earliest, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        /// A response to a fetch from this far behind the position (0: the right one), covering so many offsets.
        Data {
            behind: i64,
            covers: i64,
        },
        OutOfRange {
            behind: i64,
        },
        Truncated {
            to: i64,
        },
        Recreated,
        Found {
            earliest: i64,
            latest: i64,
        },
        /// Another leader, whose Fetch does not say where epochs end.
        Leader {
            epoch: i32,
        },
        EpochEnds {
            epoch: i32,
            end: i64,
        },
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            4 => (0i64..3, 0i64..9).prop_map(|(behind, covers)| Op::Data { behind, covers }),
            1 => (0i64..3).prop_map(|behind| Op::OutOfRange { behind }),
            1 => (-1i64..60).prop_map(|to| Op::Truncated { to }),
            1 => Just(Op::Recreated),
            2 => (0i64..30, 0i64..60).prop_map(|(earliest, more)| Op::Found { earliest, latest: earliest + more }),
            1 => (0i32..4).prop_map(|epoch| Op::Leader { epoch }),
            2 => (-1i32..4, -1i64..60).prop_map(|(epoch, end)| Op::EpochEnds { epoch, end }),
        ];
        proptest::collection::vec(op, 0..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_position_moves_back_only_with_a_notice(ops in ops(), start in 0i64..40) {
            let mut cursor = Cursor::new(StartAt::Offset { offset: start, leader_epoch: -1 });
            cursor.topic(Some(TopicId([1; 16])));
            // What a reader would know: the next offset it expects.
            let (mut expected, mut generation) = (start, 1);
            for op in ops {
                match op {
                    Op::Data { behind, covers } => {
                        let before = cursor.position();
                        let from = before.unwrap_or(expected) - behind;
                        let walk = Walk { complete: 1, next: from + covers, last_epoch: 3, compressed: false };
                        let taken = cursor.advance(from, walk);
                        prop_assert_eq!(taken, before == Some(from), "an answer to an old question is dropped");
                        if taken {
                            expected = from + covers;
                        }
                    }
                    Op::OutOfRange { behind } => cursor.out_of_range(expected - behind),
                    Op::Truncated { to } => {
                        if let Some(moved) = cursor.truncated(expected, 2, to) {
                            prop_assert!(moved.from == expected && moved.to < expected);
                            expected = moved.to;
                        }
                    }
                    Op::Recreated => {
                        generation += 1;
                        cursor.topic(Some(TopicId([generation; 16])));
                        prop_assert_eq!(cursor.position(), None);
                    }
                    Op::Found { earliest, latest } => {
                        if let Some(lookup) = cursor.lookup() {
                            let moved = cursor.found(lookup, earliest, latest);
                            let stays = lookup == Lookup::Epoch
                                || lookup == Lookup::OutOfRange && (earliest..=latest).contains(&expected);
                            prop_assert_eq!(moved.is_none(), stays);
                            if let Some(moved) = moved {
                                prop_assert_eq!((moved.from, moved.to), (expected, earliest));
                                expected = earliest;
                            }
                        }
                    }
                    Op::Leader { epoch } => {
                        let knows = cursor.position().is_some();
                        prop_assert!(knows || cursor.is_proven(epoch), "one question at a time");
                        prop_assert_eq!(cursor.is_proven(epoch) || cursor.lookup() == Some(Lookup::Epoch), true);
                    }
                    Op::EpochEnds { epoch, end } => {
                        let asked = cursor.lookup() == Some(Lookup::Epoch);
                        if let Some(moved) = cursor.epoch_ends(3, epoch, end) {
                            prop_assert!(asked && (moved.from, moved.to) == (expected, end) && end < expected);
                            expected = end;
                        }
                        prop_assert_ne!(cursor.lookup(), Some(Lookup::Epoch));
                    }
                }
                if let Some(position) = cursor.position() {
                    prop_assert_eq!(position, expected);
                }
            }
        }
    }

    #[test]
    fn a_start_that_was_not_resolved_yet_is_no_reset() {
        let mut cursor = Cursor::new(StartAt::Latest);
        cursor.topic(Some(TopicId([1; 16])));
        cursor.topic(Some(TopicId([2; 16])));
        assert_eq!(cursor.lookup(), Some(Lookup::Latest));
        assert_eq!(cursor.found(Lookup::Earliest, 3, 9), None, "an answer to another question");
        assert_eq!(cursor.position(), None);
        assert_eq!(cursor.found(Lookup::Latest, 3, 9), None);
        assert_eq!(cursor.position(), Some(9));
    }
}
