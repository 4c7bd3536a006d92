//! Which keys have deferred events, and since when? As far as this owner has met them: a key that an earlier owner set
//! aside counts from the moment its record was read. *Pure.*

use std::collections::HashMap;

use prosody_state::{KeyImage, TimerKind};

use super::deferred::queue_of;

/// Keys counted in one partition; beyond them the count stands still.
const MAX_KEYS: usize = 100_000;

/// The keys of one partition, by hash.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    keys: HashMap<u64, [Since; 2]>,
}

/// The first of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Since {
    /// There is none.
    #[default]
    Nothing,
    /// It was not looked at yet.
    Unknown,
    /// When it came, in milliseconds since the Unix epoch.
    At(i64),
}

impl Waiting {
    /// What the record of a key is now. `first`: the kind of a queue, and when its first event came.
    pub(super) fn update(&mut self, key: u64, image: &KeyImage, first: Option<(TimerKind, i64)>) {
        if image.messages.count == 0 && image.timer_queue.count == 0 {
            self.keys.remove(&key);
            return;
        }
        if self.keys.len() >= MAX_KEYS && !self.keys.contains_key(&key) {
            return;
        }
        let queues = self.keys.entry(key).or_default();
        for (since, kind) in queues.iter_mut().zip([TimerKind::DeferredMessage, TimerKind::DeferredTimer]) {
            let told = first.filter(|(of, _)| *of == kind).map(|(_, at)| Since::At(at));
            *since = match (queue_of(image, kind).count, told, *since) {
                (0, ..) => Since::Nothing,
                (_, Some(told), _) => told,
                (_, None, Since::Nothing) => Since::Unknown,
                (_, None, known) => known,
            };
        }
    }

    /// How many keys, and when the oldest event that waits came.
    pub(super) fn sum(&self) -> (usize, Option<i64>) {
        let times = self.keys.values().flatten().filter_map(|since| match since {
            Since::At(at) => Some(*at),
            Since::Nothing | Since::Unknown => None,
        });
        (self.keys.len(), times.min())
    }
}

#[cfg(test)]
mod tests {
    use prosody_state::Queue;

    use super::*;

    fn image(messages: u32, timers: u32) -> KeyImage {
        let queue = |count| Queue { count, ..Queue::default() };
        KeyImage { messages: queue(messages), timer_queue: queue(timers), ..KeyImage::default() }
    }

    #[test]
    fn a_key_counts_while_one_of_its_queues_holds_something_and_the_oldest_is_the_oldest_of_all() {
        let mut waiting = Waiting::default();
        let (message, timer) = (TimerKind::DeferredMessage, TimerKind::DeferredTimer);
        waiting.update(1, &image(0, 0), None);
        assert_eq!(waiting.sum(), (0, None));
        waiting.update(1, &image(1, 0), None);
        assert_eq!(waiting.sum(), (1, None), "known, and not how old");
        waiting.update(1, &image(2, 0), Some((message, 50)));
        waiting.update(1, &image(3, 0), None);
        waiting.update(2, &image(1, 0), Some((message, 40)));
        assert_eq!(waiting.sum(), (2, Some(40)));
        waiting.update(1, &image(1, 1), Some((timer, 30)));
        assert_eq!(waiting.sum(), (2, Some(30)));
        waiting.update(1, &image(1, 0), None);
        assert_eq!(waiting.sum(), (2, Some(40)));
        waiting.update(2, &image(1, 0), Some((message, 60)));
        assert_eq!(waiting.sum(), (2, Some(50)), "the next of its queue is younger");
        waiting.update(1, &image(0, 0), None);
        waiting.update(2, &image(0, 0), None);
        assert_eq!(waiting.sum(), (0, None));
    }

    #[test]
    fn the_count_is_bounded() {
        let mut waiting = Waiting::default();
        for key in 0..MAX_KEYS as u64 + 10 {
            waiting.update(key, &image(1, 0), None);
        }
        assert_eq!(waiting.sum(), (MAX_KEYS, None));
        waiting.update(0, &image(0, 0), None);
        waiting.update(MAX_KEYS as u64 + 5, &image(1, 0), None);
        assert_eq!(waiting.sum(), (MAX_KEYS, None));
    }
}
