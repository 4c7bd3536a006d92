//! Which events were finished lately? In memory, in every mode; a store remembers them for longer and for other processes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prosody_base::Instant;
use prosody_state::EventId;

/// Remembers the newest events of a client, across its partitions and subscriptions.
pub(crate) struct Dedup {
    size: usize,
    ttl: Duration,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    times: HashMap<EventId, Instant>,
    /// Oldest first; one that was remembered again stands at its first place.
    order: VecDeque<EventId>,
}

impl Dedup {
    /// At most `size` events, each for `ttl`.
    pub(crate) fn new(size: usize, ttl: Duration) -> Dedup {
        Dedup { size: size.max(1), ttl, seen: Mutex::default() }
    }

    /// Whether it was remembered within the time events are remembered for.
    pub(crate) fn seen(&self, event: EventId, now: Instant) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.times.get(&event).is_some_and(|then| now.saturating_duration_since(*then) <= self.ttl)
    }

    /// Remembers it, and forgets the oldest beyond the size.
    pub(crate) fn remember(&self, event: EventId, now: Instant) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.times.insert(event, now).is_none() {
            seen.order.push_back(event);
            if seen.order.len() > self.size
                && let Some(oldest) = seen.order.pop_front()
            {
                seen.times.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn remembers_the_newest_for_their_time() {
        let dedup = Dedup::new(2, Duration::from_secs(60));
        let [a, b, c] = [1, 2, 3].map(EventId);
        let now = Instant::now();
        assert!(!dedup.seen(a, now));
        for event in [a, b, a, c] {
            dedup.remember(event, now);
        }
        assert!(!dedup.seen(a, now), "beyond the size the oldest goes");
        assert!(dedup.seen(b, now) && dedup.seen(c, now));
        assert!(!dedup.seen(c, now + Duration::from_secs(61)));
    }
}
