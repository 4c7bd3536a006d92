//! Where is a timer found by its time? In the slab its row was put in: a stretch of time, an hour by default.

use bytes::Bytes;

use crate::key_image::{TimerId, Writer};
use crate::time::Time;

/// Seconds of a slab in a new segment.
pub const SLAB_SECONDS: u32 = 3_600;

/// The place of a timer's row in the index; rows of a segment are read in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlabPosition {
    /// Its slab, which is never before the segment's watermark: `floor(max(time, now, watermark) / slab seconds)`.
    pub slab: u32,
    /// The timer within its key; earlier times first.
    pub id: TimerId,
    /// The timer's key.
    pub key: Bytes,
    /// Tells it from another timer of the same key, kind and time.
    pub nonce: u64,
}

/// A row of the index. It is live iff the key's record holds that timer with that nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabRow {
    /// Where it is.
    pub at: SlabPosition,
    /// Who put it there.
    pub writer: Writer,
    /// The trace context of the event that scheduled it; empty when there was none.
    pub trace: Bytes,
}

impl SlabPosition {
    /// Before every row of a slab.
    #[must_use]
    pub fn start_of(slab: u32) -> SlabPosition {
        SlabPosition { slab, id: TimerId::FIRST, key: Bytes::new(), nonce: 0 }
    }
}

impl Time {
    /// The slab this second lies in.
    #[must_use]
    pub fn slab(self, slab_seconds: u32) -> u32 {
        self.seconds() / slab_seconds.max(1)
    }
}
