//! When is what was read of the timers' index looked at again? A former owner of the partition that does not know yet may
//! put rows into slabs which this one has read. *Pure.*

use std::time::Duration;

use prosody_base::sabotaged;
use prosody_state::SlabPosition;

/// All that was read is looked at again this long after the partition was assigned: a former owner has usually stopped.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Second looks: one when a former owner has usually stopped, one when it has at the latest, and one at each slab before
/// it is trimmed.
#[derive(Debug)]
pub(super) struct Looks {
    now: Option<Look>,
    /// When all is due, the latest first.
    all_at: Vec<i64>,
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
    /// For a partition that is assigned now, and whose former owner may write for `late_for` longer.
    pub(super) fn new(now: i64, late_for: Duration) -> Looks {
        let mut all_at =
            Vec::from([late_for.max(LOOK_AGAIN), LOOK_AGAIN].map(|wait| now.saturating_add(millis(wait))));
        all_at.dedup();
        Looks { now: None, all_at, over: 0 }
    }

    /// When all is looked at again.
    pub(super) fn next_at(&self) -> Option<i64> {
        self.all_at.last().copied().filter(|_| !sabotaged("timer-look"))
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
            let all = self.next_at().is_some_and(|at| at <= now);
            let over = self.over.max(watermark) < finished;
            let until = if all { cursor } else { finished.saturating_sub(1) };
            let look = Look { after: SlabPosition::start_of(watermark), until, over: finished };
            self.now = (all || over).then_some(look);
            if all {
                self.all_at.pop();
            }
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
