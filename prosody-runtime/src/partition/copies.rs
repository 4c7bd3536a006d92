//! How much memory do copies of waiting records take? What waits for long lets go of the fetch buffer, or a few stuck keys
//! would hold all of it; its copies are bounded like the buffer itself, over all partitions of a subscription.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The copies of one partition, of those of its subscription.
#[derive(Debug)]
pub(crate) struct Copies {
    /// Bytes of all partitions.
    all: Arc<AtomicUsize>,
    most: usize,
    own: usize,
}

impl Copies {
    /// At most `most` bytes, but for what one partition reads at once.
    pub(crate) fn bounded(most: usize) -> Copies {
        Copies { all: Arc::default(), most, own: 0 }
    }

    /// Those of another partition under the same bound.
    pub(crate) fn of_another(&self) -> Copies {
        Copies { all: Arc::clone(&self.all), most: self.most, own: 0 }
    }

    pub(crate) fn take(&mut self, bytes: usize) {
        if bytes > 0 {
            self.own += bytes;
            self.all.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.own);
        // Most messages never waited: they do not touch what partitions share.
        if bytes > 0 {
            self.own -= bytes;
            self.all.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn give_all_back(&mut self) {
        self.give_back(self.own);
    }

    /// Whether the partition reads no more until some of its own copies are gone. One that has none may read.
    pub(crate) fn are_enough(&self) -> bool {
        self.own > 0 && self.all.load(Ordering::Relaxed) >= self.most
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.give_all_back();
    }
}
