//! What is a timer that is due, and how does it end?

use bytes::Bytes;
use prosody_state::{SlabPosition, TimerId, Writer};

/// A timer that is due. Whether its key still has it is known at the head of the key's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueTimer {
    pub(crate) key: Bytes,
    pub(crate) id: TimerId,
    pub(crate) nonce: u64,
    /// Where its row is.
    pub(crate) slab: u32,
    /// Who put the row there.
    pub(crate) writer: Writer,
}

impl DueTimer {
    pub(super) fn at(&self) -> SlabPosition {
        SlabPosition { slab: self.slab, id: self.id, key: self.key.clone(), nonce: self.nonce }
    }
}

/// How a timer that was offered has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerEnd {
    /// A batch that deletes or replaces it was applied.
    Fired,
    /// Its key does not have it, and nobody can still commit the batch that would have put it.
    Void,
    /// It stays in the store, for the next owner.
    Kept,
}
