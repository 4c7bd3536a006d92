//! Whose memory is it when a reader waits and there is none left?

use std::sync::atomic::Ordering;
use std::time::Duration;

use prosody_base::Instant;

use super::Driver;
use crate::fetch::buffer::{Part, Queued};
use crate::types::Offset;

/// A reader whose broker is near waits for the others to read on; only after this long more memory is used for it.
pub(super) const HESITATION: Duration = Duration::from_millis(200);
/// Where memory is short, records that wait for their reader give way to others after this long.
pub(super) const TURN: Duration = Duration::from_secs(1);

impl Driver {
    /// Every request that may start has been started. Whoever found no memory gets some in time.
    pub(super) fn share_out(&mut self, now: Instant) {
        let starved = self.starved.is_some();
        self.shared.budget.starved.store(starved, Ordering::Relaxed);
        if !starved {
            self.starved_at = None;
            return;
        }
        let for_long = now.saturating_duration_since(*self.starved_at.get_or_insert(now));
        // Where nothing is held, a poll that waits at a broker has reserved the memory, and nobody will read on.
        let patient = self.shared.budget.held() > 0 && for_long < HESITATION;
        let more = !patient && (self.widen() || self.take_turns(now));
        if more {
            self.shared.ring();
        }
        if more || for_long >= TURN {
            self.starved_at = Some(now);
        }
    }

    /// A reader waits, and the window holds what others do not read: more of the budget is used. False when all of it is.
    fn widen(&mut self) -> bool {
        let (window, budget) = (self.shared.window(), self.shared.config.buffer_bytes);
        let widens = window < budget && self.shared.state().parts.values().any(Part::waits);
        if widens {
            let wider = window.saturating_mul(2);
            if let Some(broker) = self.starved.and_then(|id| self.brokers.get_mut(&id)) {
                broker.wanted = wider;
            }
            self.shared.set_window(wider);
        }
        widens
    }

    /// A reader waits, and all memory is in use: partitions whose next records have waited for their reader for a turn give
    /// them up and fetch them again later. All of them at once, since an answer holds its memory until nothing of it is
    /// buffered, and there may be many partitions in it. The one case in which data is fetched twice.
    fn take_turns(&self, now: Instant) -> bool {
        let mut state = self.shared.state();
        if !state.parts.values().any(Part::waits) {
            return false;
        }
        let mut given_up = false;
        for part in state.parts.values_mut() {
            if let Some(from) = unread(part, now) {
                part.cursor.rewind(from);
                part.clear();
                part.retry_at = Some(now + HESITATION);
                given_up = true;
            }
        }
        given_up
    }
}

/// Where a partition begins again if its reader has not come for a turn for what there is.
fn unread(part: &Part, now: Instant) -> Option<Offset> {
    let only_records = part.queue.iter().all(|item| matches!(item, Queued::Records(_)));
    match part.queue.front() {
        Some(Queued::Records(first)) if only_records && now.saturating_duration_since(first.at) >= TURN => {
            Some(first.from)
        }
        _ => None,
    }
}
