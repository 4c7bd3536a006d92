//! Which old records does a full log keep? Those that somebody beside it still wants.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

/// Whether anybody wants a record of these offsets, by topic id and partition. Called under the log's lock.
pub type Wants = Box<dyn Fn(&[u8; 16], i32, RangeInclusive<i64>) -> bool + Send + Sync>;

/// Who is asked, once somebody has said so; one for all logs of a cluster.
#[derive(Clone, Default)]
pub struct Keep(Arc<OnceLock<Wants>>);

impl Keep {
    /// Has full logs ask `wants`; the first one counts.
    pub fn ask(&self, wants: Wants) {
        let _ = self.0.set(wants);
    }

    pub(super) fn wants(&self, topic: &[u8; 16], partition: i32, offsets: RangeInclusive<i64>) -> bool {
        self.0.get().is_some_and(|wants| wants(topic, partition, offsets))
    }
}

impl fmt::Debug for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keep").field(&self.0.get().is_some()).finish()
    }
}
