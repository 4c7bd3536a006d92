//! Was a message of this key and id processed before?
//!
//! Ids are remembered as 128-bit fingerprints, so memory is bounded whatever peers send: two independent keyed hashes,
//! whose keys nobody outside the process knows. A false match would need about 2^115 messages at the default size.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prosody_base::{Instant, Rng};

/// Remembers the newest ids of a client, across its partitions and subscriptions.
pub(crate) struct Dedup {
    keys: [u64; 2],
    version: String,
    size: usize,
    ttl: Duration,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    times: HashMap<u128, Instant, std::hash::BuildHasherDefault<Fold>>,
    /// Oldest first; a fingerprint that was remembered again stands at its first place.
    order: VecDeque<u128>,
}

/// What stands for one message's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u128);

impl Dedup {
    pub(crate) fn new(size: usize, ttl: Duration, version: &str, rng: &Rng) -> Dedup {
        let keys = [rng.next_u64(), rng.next_u64()];
        Dedup { keys, version: version.to_owned(), size: size.max(1), ttl, seen: Mutex::default() }
    }

    /// The fingerprint of an id within its topic and key.
    pub(crate) fn fingerprint(&self, topic: &str, key: &[u8], id: &[u8]) -> Fingerprint {
        let half = |secret: u64| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(secret);
            for part in [self.version.as_bytes(), topic.as_bytes(), key, id] {
                hasher.write_usize(part.len());
                hasher.write(part);
            }
            hasher.finish()
        };
        let [first, second] = self.keys;
        Fingerprint(u128::from(half(first)) << 64 | u128::from(half(second)))
    }

    /// Whether it was remembered within the time ids are remembered for.
    pub(crate) fn seen(&self, fingerprint: Fingerprint, now: Instant) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.times.get(&fingerprint.0).is_some_and(|then| now.saturating_duration_since(*then) <= self.ttl)
    }

    /// Remembers it, and forgets the oldest beyond the size.
    pub(crate) fn remember(&self, fingerprint: Fingerprint, now: Instant) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.times.insert(fingerprint.0, now).is_none() {
            seen.order.push_back(fingerprint.0);
            if seen.order.len() > self.size
                && let Some(oldest) = seen.order.pop_front()
            {
                seen.times.remove(&oldest);
            }
        }
    }
}

/// Fingerprints are hashes already.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u128(&mut self, fingerprint: u128) {
        #[allow(clippy::cast_possible_truncation, reason = "half of a fingerprint is a hash")]
        let half = fingerprint as u64;
        self.0 = half;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn remembers_the_newest_for_their_time() {
        let dedup = Dedup::new(2, Duration::from_secs(60), "1", &Rng::seeded(1));
        let print = |id: &str| dedup.fingerprint("t", b"k", id.as_bytes());
        let now = Instant::now();
        assert!(!dedup.seen(print("a"), now));
        for id in ["a", "b", "a", "c"] {
            dedup.remember(print(id), now);
        }
        assert!(!dedup.seen(print("a"), now), "beyond the size the oldest goes");
        assert!(dedup.seen(print("b"), now) && dedup.seen(print("c"), now));
        assert!(!dedup.seen(print("c"), now + Duration::from_secs(61)));
    }

    #[test]
    fn topic_key_id_and_version_all_count() {
        let rng = Rng::seeded(1);
        let one = Dedup::new(2, Duration::MAX, "1", &rng);
        let mut two = Dedup::new(2, Duration::MAX, "2", &rng);
        two.keys = one.keys;
        let base = one.fingerprint("t", b"k", b"id");
        assert_eq!(base, one.fingerprint("t", b"k", b"id"));
        for other in [
            one.fingerprint("u", b"k", b"id"),
            one.fingerprint("t", b"ki", b"d"),
            one.fingerprint("t", b"k", b"ie"),
            two.fingerprint("t", b"k", b"id"),
        ] {
            assert_ne!(base, other);
        }
    }
}
