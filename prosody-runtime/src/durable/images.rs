//! Which keys' records are in memory? Those of all partitions of a subscription share one bound in bytes; absent records
//! are kept, too. *Pure.*

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use prosody_state::KeyImage;

use super::head::Head;

/// What an entry takes besides its key and timers, about.
const ENTRY: usize = 400;
/// What a timer of an image takes besides its trace context, about.
const TIMER: usize = 96;
/// What the place of a deferred message takes, about.
const QUEUED: usize = 64;

/// Images of a client's keys, the rarely used ones dropped first.
#[derive(Debug)]
pub(crate) struct Images {
    /// By assignment, which outside of this file is a number.
    partitions: HashMap<u64, HashMap<Bytes, Entry>>,
    /// Candidates for eviction, oldest first. One whose number is not its entry's is no more.
    order: VecDeque<(u64, u64, Bytes)>,
    next: u64,
    entries: usize,
    bytes: usize,
    limit: usize,
}

/// What is kept of a key.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    pub(super) image: Arc<KeyImage>,
    pub(super) head: Head,
}

#[derive(Debug)]
struct Entry {
    kept: Kept,
    bytes: usize,
    number: u64,
    /// It was asked for since it was last considered for eviction.
    used: bool,
}

impl Images {
    /// Holds about `limit` bytes.
    pub(crate) fn new(limit: usize) -> Images {
        Images { partitions: HashMap::new(), order: VecDeque::new(), next: 0, entries: 0, bytes: 0, limit }
    }

    /// Bytes held now, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&mut self, partition: u64, key: &[u8]) -> Option<&Kept> {
        let entry = self.partitions.get_mut(&partition)?.get_mut(key)?;
        entry.used = true;
        Some(&entry.kept)
    }

    /// Changes what is kept of a key, of which this is the image. What is kept may be the same one, which is then not copied.
    pub(super) fn change(
        &mut self,
        partition: u64,
        key: &Bytes,
        image: Arc<KeyImage>,
        change: impl FnOnce(&mut Kept),
    ) {
        let Some(entry) = self.partitions.get_mut(&partition).and_then(|entries| entries.get_mut(key)) else {
            let mut kept = Kept { image, head: Head::default() };
            change(&mut kept);
            return self.insert(partition, Bytes::copy_from_slice(key), kept);
        };
        if entry.kept.image.version != image.version {
            entry.kept.head = Head::default();
        }
        // Lets go of the other reference.
        entry.kept.image = image;
        change(&mut entry.kept);
        let before = std::mem::replace(&mut entry.bytes, size_of_kept(key, &entry.kept));
        self.bytes = self.bytes + entry.bytes - before;
        entry.used = true;
        self.make_room();
    }

    pub(super) fn take(&mut self, partition: u64, key: &[u8]) -> Option<Kept> {
        let entry = self.partitions.get_mut(&partition)?.remove(key)?;
        self.bytes -= entry.bytes;
        self.entries -= 1;
        self.tidy();
        Some(entry.kept)
    }

    /// Keeps what is known of a key, in place of what was. The key must lie in memory of its own.
    pub(super) fn insert(&mut self, partition: u64, key: Bytes, kept: Kept) {
        self.take(partition, &key);
        let bytes = size_of_kept(&key, &kept);
        self.next += 1;
        self.order.push_back((self.next, partition, key.clone()));
        let entry = Entry { kept, bytes, number: self.next, used: false };
        self.partitions.entry(partition).or_default().insert(key, entry);
        self.bytes += bytes;
        self.entries += 1;
        self.make_room();
        self.tidy();
    }

    /// Drops everything of an assignment.
    pub(super) fn forget(&mut self, partition: u64) {
        let gone = self.partitions.remove(&partition).unwrap_or_default();
        self.entries -= gone.len();
        self.bytes -= gone.values().map(|entry| entry.bytes).sum::<usize>();
        self.tidy();
    }

    fn make_room(&mut self) {
        while self.bytes > self.limit && self.evict_one() {}
    }

    /// `false` when there is nothing left.
    fn evict_one(&mut self) -> bool {
        let Some((number, partition, key)) = self.order.pop_front() else { return false };
        let entries = self.partitions.get_mut(&partition);
        match entries.and_then(|entries| entries.get_mut(&key)).filter(|entry| entry.number == number) {
            Some(entry) if entry.used => {
                entry.used = false;
                self.order.push_back((number, partition, key));
            }
            Some(_) => drop(self.take(partition, &key)),
            None => {}
        }
        true
    }

    fn tidy(&mut self) {
        if self.order.len() > 2 * self.entries + 64 {
            let partitions = &self.partitions;
            self.order.retain(|(number, partition, key)| {
                let entry = partitions.get(partition).and_then(|entries| entries.get(key));
                entry.is_some_and(|entry| entry.number == *number)
            });
        }
    }
}

fn size_of_kept(key: &[u8], Kept { image, head }: &Kept) -> usize {
    let traces: usize = image.timers.values().map(|facts| facts.trace.len()).sum();
    let deferred: usize = image.deferred_timers.values().map(|entry| entry.trace.len()).sum();
    let timers = TIMER * (image.timers.len() + image.deferred_timers.len());
    ENTRY + key.len() + traces + deferred + timers + QUEUED * head.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_there_is_the_newest_and_partitions_share_one_bound(
            steps in prop::collection::vec((0..3u64, 0..12u8, 0..24u8), 0..300),
            limit in 0..20usize,
        ) {
            let mut images = Images::new(limit * (ENTRY + 1));
            let mut newest = HashMap::new();
            for (version, (partition, key, what)) in (1u64..).zip(steps) {
                let bytes = Bytes::copy_from_slice(&[key]);
                match what {
                    0 => {
                        images.forget(partition);
                        newest.retain(|(at, _), _| *at != partition);
                    }
                    1..5 => {
                        images.take(partition, &bytes);
                        newest.remove(&(partition, key));
                    }
                    5..12 => {
                        let image = Arc::new(KeyImage { version, ..KeyImage::default() });
                        images.insert(partition, bytes, Kept { image, head: Head::default() });
                        newest.insert((partition, key), version);
                    }
                    12..15 => {
                        let image = images.get(partition, &bytes).map(|kept| Arc::clone(&kept.image));
                        let address = image.as_ref().map(Arc::as_ptr);
                        images.change(partition, &bytes, image.unwrap_or_default(), |kept| {
                            Arc::make_mut(&mut kept.image).version = version;
                        });
                        newest.insert((partition, key), version);
                        let kept = images.get(partition, &bytes).map(|kept| Arc::as_ptr(&kept.image));
                        prop_assert!(address.is_none() || kept.is_none() || kept == address, "it was copied");
                    }
                    _ => {
                        if let Some(kept) = images.get(partition, &bytes) {
                            prop_assert_eq!(Some(&kept.image.version), newest.get(&(partition, key)));
                        }
                    }
                }
                let held: usize = images.partitions.values().map(HashMap::len).sum();
                prop_assert!(held <= limit && held == images.entries);
                prop_assert_eq!(images.bytes(), held * (ENTRY + 1));
                prop_assert!(images.order.len() <= 2 * held + 65);
                // Nothing goes without need.
                prop_assert!(held == newest.len() || newest.len() > limit);
                if newest.len() > limit {
                    let is_held = |(at, key): &(u64, u8)| {
                        images.partitions.get(at).is_some_and(|entries| entries.contains_key(&[*key][..]))
                    };
                    newest.retain(|at, _| is_held(at));
                }
            }
        }
    }
}
