//! Which event of a key may run, and which must wait behind it?
//!
//! One event of a key is out at a time and they leave in the order they came, however long one is retried. A key holds
//! at most `share` admitted messages (the one that is out included); its others are *parked*: they keep their order, but
//! do not count as in progress, so one hot key cannot fill a partition. Whenever a key finishes a message its next parked
//! one takes the place, hence a key has parked messages only while it is full.
//!
//! Timers wait in the same queues and count nowhere here: whoever offers them bounds them, so that neither they nor
//! messages take the places of the other.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use bytes::Bytes;
use prosody_base::sabotaged;

/// Names a key that has an event out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeySlot(u32);

/// What became of an offered event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Offered<T> {
    /// Nothing of its key is out: run it.
    Run(KeySlot, T),
    /// It waits behind its key and counts as in progress.
    Queued,
    /// It waits behind its key, which is full.
    Parked,
}

/// An event that knows its key.
pub(crate) trait Keyed {
    /// The key's bytes.
    fn key(&self) -> &[u8];
    /// The key's bytes, shared with the event.
    fn shared_key(&self) -> Bytes;
    /// Whether it is a message, which counts.
    fn is_message(&self) -> bool;
}

/// The key queues of one partition.
#[derive(Debug)]
pub(crate) struct Keys<T> {
    slots: Vec<Slot<T>>,
    free: Vec<KeySlot>,
    /// First slot of each hash; the slots of equal hashes are chained, and only equal *keys* share a queue.
    index: HashMap<u64, KeySlot, BuildHasherDefault<Identity>>,
    share: u32,
    in_progress: usize,
    parked: usize,
}

#[derive(Debug)]
struct Slot<T> {
    key: Bytes,
    /// The key lies in memory of its own and not in a batch.
    key_copied: bool,
    hash: u64,
    /// Another slot of the same hash.
    chained: Option<KeySlot>,
    waiting: VecDeque<T>,
    /// All its messages, the one that is out included.
    messages: u32,
    out: Out,
}

/// What of a key is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    /// Nothing: the slot is free.
    Free,
    Message,
    Timer,
}

fn out_of(event: &impl Keyed) -> Out {
    if event.is_message() { Out::Message } else { Out::Timer }
}

impl<T: Keyed> Keys<T> {
    /// `share` is at least 1.
    pub(crate) fn new(share: usize) -> Keys<T> {
        Keys {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashMap::default(),
            share: u32::try_from(share.max(1)).unwrap_or(u32::MAX),
            in_progress: 0,
            parked: 0,
        }
    }

    /// Messages that are out or queued; what `MaxUncommitted` bounds.
    pub(crate) fn in_progress(&self) -> usize {
        self.in_progress
    }

    /// Messages that wait behind a full key; what the look-ahead bounds.
    pub(crate) fn parked(&self) -> usize {
        self.parked
    }

    /// The next event of the partition; `hash` is the [`hash`] of its key.
    pub(crate) fn offer(&mut self, hash: u64, event: T) -> Offered<T> {
        let counts = event.is_message();
        let found = self.find(hash, event.key()).filter(|_| !sabotaged("key-exclusive"));
        let Some(found) = found else {
            let slot = self.open(hash, event.shared_key(), out_of(&event));
            return Offered::Run(slot, event);
        };
        let (mut queued, share) = (true, self.share);
        if let Some(slot) = self.slots.get_mut(found.0 as usize) {
            queued = slot.messages < share || !counts;
            slot.messages += u32::from(counts);
            slot.waiting.push_back(event);
        }
        if queued {
            self.in_progress += usize::from(counts);
            Offered::Queued
        } else {
            self.parked += 1;
            Offered::Parked
        }
    }

    /// The event of this key that was out has ended. Returns the next one, which is out now.
    pub(crate) fn finish(&mut self, at: KeySlot) -> Option<T> {
        let slot = self.slots.get_mut(at.0 as usize).filter(|slot| slot.out != Out::Free)?;
        if slot.out == Out::Message {
            if slot.messages > self.share {
                // One that was parked takes the free place.
                self.parked -= 1;
            } else {
                self.in_progress -= 1;
            }
            slot.messages -= 1;
        }
        let next = slot.waiting.pop_front();
        match &next {
            Some(next) => slot.out = out_of(next),
            None => self.close(at),
        }
        next
    }

    /// Keeps a key from running anything until [`finish`](Keys::finish): something of it still runs from an earlier
    /// life of the partition. It counts as a message.
    pub(crate) fn block(&mut self, hash: u64, key: Bytes) -> Option<KeySlot> {
        if self.find(hash, &key).is_some() {
            return None;
        }
        Some(self.open(hash, key, Out::Message))
    }

    /// Forgets everything that waits. What is out stays out.
    pub(crate) fn drop_waiting(&mut self) {
        (self.in_progress, self.parked) = (0, 0);
        for slot in &mut self.slots {
            slot.waiting.clear();
            slot.messages = u32::from(slot.out == Out::Message);
            self.in_progress += usize::from(slot.out == Out::Message);
        }
    }

    /// Keeps the key of a slot in other memory, which lets go of the batch it was read from.
    pub(crate) fn move_key(&mut self, at: KeySlot, key: Bytes) {
        if let Some(slot) = self.slots.get_mut(at.0 as usize).filter(|slot| slot.key == key) {
            slot.key = key;
        }
    }

    /// Shows every event that waits behind its key, and keeps those keys in memory of their own.
    pub(crate) fn each_waiting(&mut self, mut see: impl FnMut(&mut T)) {
        for slot in self.slots.iter_mut().filter(|slot| !slot.waiting.is_empty()) {
            slot.waiting.iter_mut().for_each(&mut see);
            if !slot.key_copied {
                slot.key = Bytes::copy_from_slice(&slot.key);
                slot.key_copied = true;
            }
        }
    }

    /// The key of a slot, for messages to people.
    pub(crate) fn key(&self, at: KeySlot) -> &[u8] {
        self.slots.get(at.0 as usize).map_or(&[], |slot| &slot.key)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<KeySlot> {
        let mut at = self.index.get(&hash).copied();
        while let Some(found) = at {
            let slot = self.slots.get(found.0 as usize)?;
            if slot.key == key {
                return Some(found);
            }
            at = slot.chained;
        }
        None
    }

    fn open(&mut self, hash: u64, key: Bytes, out: Out) -> KeySlot {
        let at = self.free.pop().unwrap_or_else(|| {
            let at = KeySlot(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
            let (key, waiting, out) = (Bytes::new(), VecDeque::new(), Out::Free);
            self.slots.push(Slot { key, key_copied: false, hash, chained: None, waiting, messages: 0, out });
            at
        });
        let chained = self.index.insert(hash, at);
        if let Some(slot) = self.slots.get_mut(at.0 as usize) {
            (slot.key, slot.hash, slot.chained, slot.out) = (key, hash, chained, out);
            slot.messages = u32::from(out == Out::Message);
            slot.key_copied = false;
        }
        self.in_progress += usize::from(out == Out::Message);
        at
    }

    fn close(&mut self, at: KeySlot) {
        let Some(slot) = self.slots.get_mut(at.0 as usize) else { return };
        (slot.key, slot.out) = (Bytes::new(), Out::Free);
        let (hash, behind) = (slot.hash, slot.chained.take());
        let first = self.index.get(&hash).copied();
        if first == Some(at) {
            match behind {
                Some(next) => self.index.insert(hash, next),
                None => self.index.remove(&hash),
            };
        } else {
            let mut before = first;
            while let Some(slot) = before.and_then(|before| self.slots.get_mut(before.0 as usize)) {
                if slot.chained == Some(at) {
                    slot.chained = behind;
                    break;
                }
                before = slot.chained;
            }
        }
        self.free.push(at);
    }
}

/// The index's keys are hashes already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Hashes a key with a seed that peers do not know: two rounds of multiply and fold for every eight bytes.
pub(crate) fn hash(seed: u64, key: &[u8]) -> u64 {
    let fold = |a: u64, b: u64| {
        let wide = u128::from(a) * u128::from(b);
        #[allow(clippy::cast_possible_truncation, reason = "folding both halves is the point")]
        let folded = (wide as u64) ^ ((wide >> 64) as u64);
        folded
    };
    let (words, tail) = key.as_chunks::<8>();
    let mut state = seed ^ 0x9E37_79B9_7F4A_7C15;
    for word in words {
        state = fold(state ^ u64::from_le_bytes(*word), 0xA24B_AED4_963E_E407);
    }
    let mut last = [0u8; 8];
    for (to, from) in last.iter_mut().zip(tail) {
        *to = *from;
    }
    state = fold(state ^ u64::from_le_bytes(last), 0x9FB2_1C65_1E98_DF25);
    fold(state ^ key.len() as u64, seed | 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl Keyed for (u8, u32) {
        /// Every third event is a timer.
        fn is_message(&self) -> bool {
            !self.1.is_multiple_of(3)
        }
        fn key(&self) -> &[u8] {
            std::slice::from_ref(&self.0)
        }
        fn shared_key(&self) -> Bytes {
            Bytes::copy_from_slice(self.key())
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Offer(u8),
        Finish(prop::sample::Index),
        DropWaiting,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..6u8).prop_map(Step::Offer),
            8 => any::<prop::sample::Index>().prop_map(Step::Finish),
            1 => Just(Step::DropWaiting),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// The model is a list of numbers for each key; keys share hashes on purpose.
        #[test]
        fn one_event_of_a_key_is_out_and_they_leave_in_order(
            share in 1..5usize,
            steps in prop::collection::vec(step(), 0..150),
        ) {
            let mut keys: Keys<(u8, u32)> = Keys::new(share);
            let mut model: BTreeMap<u8, VecDeque<u32>> = BTreeMap::new();
            let mut out: Vec<(KeySlot, u8, u32)> = Vec::new();
            let messages = |queue: &VecDeque<u32>| queue.iter().filter(|number| (0, **number).is_message()).count();
            for (number, step) in (0u32..).zip(steps) {
                match step {
                    Step::Offer(key) => {
                        let queue = model.entry(key).or_default();
                        let offered = keys.offer(u64::from(key % 2), (key, number));
                        match offered {
                            Offered::Run(slot, (run, first)) => {
                                prop_assert!(queue.is_empty() && (run, first) == (key, number));
                                out.push((slot, key, number));
                            }
                            Offered::Queued => {
                                prop_assert!(!queue.is_empty());
                                prop_assert!(messages(queue) < share || !(key, number).is_message());
                            }
                            Offered::Parked => prop_assert!(messages(queue) >= share),
                        }
                        queue.push_back(number);
                    }
                    Step::Finish(which) if !out.is_empty() => {
                        let (slot, key, number) = out.swap_remove(which.index(out.len()));
                        prop_assert_eq!(keys.key(slot), &[key]);
                        let queue = model.get_mut(&key).expect("known");
                        prop_assert_eq!(queue.pop_front(), Some(number));
                        let next = keys.finish(slot);
                        prop_assert_eq!(next, queue.front().map(|number| (key, *number)));
                        if let Some((key, number)) = next {
                            out.push((slot, key, number));
                        }
                    }
                    Step::Finish(_) => {}
                    Step::DropWaiting => {
                        keys.drop_waiting();
                        model.values_mut().for_each(|queue| queue.truncate(1));
                    }
                }
                let admitted: usize = model.values().map(|queue| messages(queue).min(share)).sum();
                let all: usize = model.values().map(messages).sum();
                prop_assert_eq!((keys.in_progress(), keys.parked()), (admitted, all - admitted));
                prop_assert_eq!(out.len(), model.values().filter(|queue| !queue.is_empty()).count());
            }
            while let Some((slot, key, _)) = out.pop() {
                if let Some((_, next)) = keys.finish(slot) {
                    out.push((slot, key, next));
                }
            }
            prop_assert_eq!((keys.in_progress, keys.parked, keys.index.len()), (0, 0, 0));
        }

        #[test]
        fn the_hash_depends_on_seed_length_and_every_byte(key in prop::collection::vec(any::<u8>(), 0..40), at in any::<prop::sample::Index>()) {
            prop_assert_ne!(hash(1, &key), hash(2, &key));
            let mut longer = key.clone();
            longer.push(0);
            prop_assert_ne!(hash(1, &key), hash(1, &longer));
            if !key.is_empty() {
                let mut other = key.clone();
                other[at.index(key.len())] ^= 1;
                prop_assert_ne!(hash(1, &key), hash(1, &other));
            }
        }
    }

    #[test]
    fn a_blocked_key_runs_nothing_until_it_is_finished() {
        let mut keys: Keys<(u8, u32)> = Keys::new(4);
        let blocked = keys.block(9, Bytes::from_static(b"k")).expect("free");
        assert_eq!(keys.block(9, Bytes::from_static(b"k")), None);
        assert_eq!(keys.offer(9, (b'k', 1)), Offered::Queued);
        assert!(matches!(keys.offer(9, (b'o', 2)), Offered::Run(_, (b'o', 2))));
        assert_eq!(keys.finish(blocked), Some((b'k', 1)));
        assert_eq!(keys.finish(blocked), None);
    }
}
