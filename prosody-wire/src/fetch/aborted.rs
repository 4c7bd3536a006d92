//! Which batches of one answer belong to transactions that were aborted (KIP-98)? Pure.

use std::collections::BTreeSet;

use super::wire::Aborted;
use crate::batch::BatchHeader;

/// What an answer's list of aborted transactions means for its batches.
#[derive(Debug, Default)]
pub(super) struct AbortedRecords {
    /// Sorted by first offset, last first.
    ahead: Vec<Aborted>,
    /// Producers whose transaction at this place was aborted.
    open: BTreeSet<i64>,
}

impl AbortedRecords {
    /// `list` in any order.
    pub(super) fn new(mut list: Vec<Aborted>) -> AbortedRecords {
        list.sort_by_key(|aborted| std::cmp::Reverse(aborted.first_offset));
        AbortedRecords { ahead: list, open: BTreeSet::new() }
    }

    /// Whether the records of a batch belong to an aborted transaction. Called once for each batch, in order.
    pub(super) fn holds(&mut self, header: &BatchHeader) -> bool {
        while let Some(next) = self.ahead.last()
            && next.first_offset <= header.last_offset
        {
            self.open.insert(next.producer_id);
            self.ahead.pop();
        }
        header.is_transactional && !header.is_control && self.open.contains(&header.producer_id)
    }

    /// An abort marker of this producer came by.
    pub(super) fn ended(&mut self, producer_id: i64) {
        self.open.remove(&producer_id);
    }
}
