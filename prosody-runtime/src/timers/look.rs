//! When is what was read of the timers' index looked at again? A former owner of the partition that does not know yet may
//! put rows into slabs which this one has read. *Pure.*

use std::time::Duration;

use prosody_base::sabotaged;
use prosody_state::SlabPosition;

/// All that was read is looked at again this long after the partition was assigned. An owner that lost it stops by itself
/// when its session is over, and its statements end within 30 s.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Second looks: one when a former owner has stopped, and one at each slab before it is trimmed.
#[derive(Debug)]
pub(super) struct Looks {
    now: Option<Look>,
    /// When all is due.
    all_at: i64,
    /// Slabs before this one were looked at after their end.
    over: u32,
}

#[derive(Debug)]
struct Look {
    after: SlabPosition,
    until: u32,
    over: u32,
}

impl Looks {
    pub(super) fn new(now: i64) -> Looks {
        Looks { now: None, all_at: now.saturating_add(millis(LOOK_AGAIN)), over: 0 }
    }

    /// What is read next, behind a position and to the end of a slab, if anything is. All slabs from `watermark` to
    /// `cursor` have been read, and those before `finished` are over.
    pub(super) fn next(
        &mut self,
        watermark: u32,
        cursor: u32,
        finished: u32,
        now: i64,
    ) -> Option<(SlabPosition, u32)> {
        if sabotaged("timer-look") {
            return None;
        }
        if self.now.is_none() {
            let (all, over) = (self.all_at <= now, self.over.max(watermark) < finished);
            let until = if all { cursor } else { finished.saturating_sub(1) };
            let look = Look { after: SlabPosition::start_of(watermark), until, over: finished };
            self.now = (all || over).then_some(look);
            self.all_at = if all { i64::MAX } else { self.all_at };
        }
        self.now.as_ref().map(|look| (look.after.clone(), look.until))
    }

    /// It was read: up to `last`, or to its end.
    pub(super) fn found(&mut self, last: Option<SlabPosition>) {
        match (last, &mut self.now) {
            (Some(last), Some(look)) => look.after = last,
            (_, look) => self.over = look.take().map_or(0, |look| look.over).max(self.over),
        }
    }
}

pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
