//! Which keys' records are in memory? Bounded in bytes; absent records are kept, too. *Pure.*

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use prosody_state::KeyImage;

/// What an entry takes besides its key and timers, about.
const ENTRY: usize = 320;
/// What a timer of an image takes besides its trace context, about.
const TIMER: usize = 96;

/// Images of one partition's keys, the rarely used ones dropped first.
#[derive(Debug)]
pub(crate) struct Images {
    entries: HashMap<Bytes, Entry>,
    /// Candidates for eviction, oldest first. One whose number is not its entry's is no more.
    order: VecDeque<(u64, Bytes)>,
    next: u64,
    bytes: usize,
    limit: usize,
}

#[derive(Debug)]
struct Entry {
    image: Arc<KeyImage>,
    bytes: usize,
    number: u64,
    /// It was asked for since it was last considered for eviction.
    used: bool,
}

impl Images {
    /// Holds about `limit` bytes.
    pub(crate) fn new(limit: usize) -> Images {
        Images { entries: HashMap::new(), order: VecDeque::new(), next: 0, bytes: 0, limit }
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Option<Arc<KeyImage>> {
        let entry = self.entries.get_mut(key)?;
        entry.used = true;
        Some(Arc::clone(&entry.image))
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }

    /// Changes an image and keeps it. What is kept of the key now may be the same image, which is then not copied.
    pub(crate) fn change(
        &mut self,
        key: &Bytes,
        mut image: Arc<KeyImage>,
        change: impl FnOnce(&mut KeyImage),
    ) {
        let Some(entry) = self.entries.get_mut(key) else {
            change(Arc::make_mut(&mut image));
            return self.insert(Bytes::copy_from_slice(key), image);
        };
        // Lets go of the other reference.
        entry.image = image;
        change(Arc::make_mut(&mut entry.image));
        let before = std::mem::replace(&mut entry.bytes, size_of_image(key, &entry.image));
        self.bytes = self.bytes + entry.bytes - before;
        entry.used = true;
        self.make_room();
    }

    /// Keeps the image of a key, in place of an older one. The key must lie in memory of its own.
    pub(crate) fn insert(&mut self, key: Bytes, image: Arc<KeyImage>) {
        self.remove(&key);
        let bytes = size_of_image(&key, &image);
        self.next += 1;
        self.order.push_back((self.next, key.clone()));
        self.entries.insert(key, Entry { image, bytes, number: self.next, used: false });
        self.bytes += bytes;
        self.make_room();
        if self.order.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            let lives = |(number, key): &(u64, Bytes)| entries.get(key).is_some_and(|e| e.number == *number);
            self.order.retain(lives);
        }
    }

    fn make_room(&mut self) {
        while self.bytes > self.limit && self.evict_one() {}
    }

    /// `false` when there is nothing left.
    fn evict_one(&mut self) -> bool {
        let Some((number, key)) = self.order.pop_front() else { return false };
        match self.entries.get_mut(&key).filter(|entry| entry.number == number) {
            Some(entry) if entry.used => {
                entry.used = false;
                self.order.push_back((number, key));
            }
            Some(_) => self.remove(&key),
            None => {}
        }
        true
    }
}

fn size_of_image(key: &[u8], image: &KeyImage) -> usize {
    let traces: usize = image.timers.values().map(|facts| facts.trace.len()).sum();
    let deferred: usize = image.deferred_timers.values().map(|entry| entry.trace.len()).sum();
    ENTRY + key.len() + traces + deferred + TIMER * (image.timers.len() + image.deferred_timers.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_there_is_the_newest_and_the_bound_holds(
            steps in prop::collection::vec((0..30u8, 0..6u8), 0..300),
            limit in 0..20usize,
        ) {
            let mut images = Images::new(limit * (ENTRY + 1));
            let mut newest = HashMap::new();
            for (version, (key, what)) in (1u64..).zip(steps) {
                let bytes = Bytes::copy_from_slice(&[key]);
                match what {
                    0 => {
                        images.remove(&bytes);
                        newest.remove(&key);
                    }
                    1..3 => {
                        let image = KeyImage { version, ..KeyImage::default() };
                        images.insert(bytes, Arc::new(image));
                        newest.insert(key, version);
                    }
                    3 => {
                        let image = images.get(&bytes).unwrap_or_default();
                        let address = Arc::as_ptr(&image);
                        let was_kept = image.version > 0;
                        images.change(&bytes, image, |image| image.version = version);
                        newest.insert(key, version);
                        let kept = images.get(&bytes).filter(|_| was_kept);
                        prop_assert!(kept.is_none_or(|kept| Arc::as_ptr(&kept) == address), "it was copied");
                    }
                    _ => {
                        if let Some(image) = images.get(&bytes) {
                            prop_assert_eq!(Some(&image.version), newest.get(&key));
                        }
                    }
                }
                prop_assert!(images.entries.len() <= limit);
                prop_assert_eq!(images.bytes, images.entries.len() * (ENTRY + 1));
                prop_assert!(images.order.len() <= 2 * images.entries.len() + 65);
                // Nothing goes without need.
                prop_assert!(images.entries.len() == newest.len() || newest.len() > limit);
                if newest.len() > limit {
                    newest.retain(|key, _| images.entries.contains_key(&[*key][..]));
                }
            }
        }
    }
}
