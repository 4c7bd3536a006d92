//! Which events does the memory store remember, and which does it forget?

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use prosody_base::Instant;

use crate::event_id::EventId;

/// Most event ids kept; the ones remembered first go first.
const MAX_REMEMBERED: usize = 1_000_000;
/// Parts with a lock each: every event of every partition comes by here.
const PARTS: usize = 16;

/// Event ids, each until a time.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    parts: [Mutex<Part>; PARTS],
}

#[derive(Debug, Default)]
struct Part {
    events: HashMap<EventId, Until>,
    /// In the order in which they were remembered; one that was remembered again counts at its last place only.
    order: VecDeque<(EventId, u64)>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Until {
    time: Instant,
    /// Of its last place in the order.
    number: u64,
}

impl Remembered {
    fn part(&self, id: EventId) -> MutexGuard<'_, Part> {
        // Ids are hashes: any of their bits are as good as any other.
        let [first, ..] = &self.parts;
        let [bits, ..] = id.0.to_le_bytes();
        let part = self.parts.get(usize::from(bits) % PARTS).unwrap_or(first);
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().unwrap_or_else(PoisonError::into_inner).events.len()).sum()
    }

    pub(crate) fn contains(&self, id: EventId, now: Instant) -> bool {
        self.part(id).events.get(&id).is_some_and(|until| until.time > now)
    }

    pub(crate) fn insert(&self, id: EventId, time: Instant) {
        let mut part = self.part(id);
        let number = part.next;
        part.next += 1;
        part.events.insert(id, Until { time, number });
        part.order.push_back((id, number));
        let Part { events, order, .. } = &mut *part;
        let counts = |(id, number): &(EventId, u64), events: &HashMap<EventId, Until>| {
            events.get(id).is_some_and(|until| until.number == *number)
        };
        while events.len() > MAX_REMEMBERED / PARTS
            && let Some(oldest) = order.pop_front()
        {
            if counts(&oldest, events) {
                events.remove(&oldest.0);
            }
        }
        if order.len() > 2 * MAX_REMEMBERED / PARTS {
            order.retain(|place| counts(place, events));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_go_and_what_is_remembered_again_is_young_again() {
        let (remembered, now) = (Remembered::default(), Instant::now());
        let until = now + Duration::from_secs(1);
        // All in one part.
        let id = |n: usize| EventId((n as u128) << 8);
        let most = MAX_REMEMBERED / PARTS;
        for n in 0..most {
            remembered.insert(id(n), until);
        }
        for _ in 0..3 {
            remembered.insert(id(0), until);
        }
        assert_eq!(remembered.len(), most);
        remembered.insert(id(most), until);
        assert_eq!(remembered.len(), most);
        assert!(remembered.contains(id(0), now) && !remembered.contains(id(1), now));
        assert!(remembered.contains(id(2), now) && !remembered.contains(id(2), until));
        for n in 0..10 * most {
            remembered.insert(id(n % 2), until);
        }
        let places = remembered.part(id(0)).order.len();
        assert!(places <= 2 * most, "{places} places of {most} events");
    }
}
