//! Which messages are the same event? Those of one key whose payloads have the same `id`.

use twox_hash::XxHash3_128;

/// Parts up to this many bytes in all are put together without an allocation.
const SMALL: usize = 512;

/// Names an event for deduplication.
///
/// XXH3, 128 bits, over: `IdempotenceVersion`, the cluster id, the group, the topic, the partition (i32, big-endian), the
/// key and the `id`, each as its length in bytes (u32, big-endian) and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u128);

/// What the ids of one group have in common.
#[derive(Clone, Debug)]
pub struct EventScope(Vec<u8>);

impl EventScope {
    /// The group of a cluster; another version makes every event a new one.
    #[must_use]
    pub fn new(version: &str, cluster: &str, group: &str) -> EventScope {
        let mut bytes = Vec::new();
        for part in [version, cluster, group] {
            bytes.extend(length(part.as_bytes()));
            bytes.extend(part.as_bytes());
        }
        EventScope(bytes)
    }

    /// The event of this `id` and key in a partition.
    #[must_use]
    pub fn event(&self, topic: &str, partition: i32, key: &[u8], id: &[u8]) -> EventId {
        let partition = partition.to_be_bytes();
        let parts = [topic.as_bytes(), &partition, key, id];
        let lengths = parts.map(length);
        let pieces = [&self.0[..]].into_iter();
        let pieces = pieces.chain(lengths.iter().zip(parts).flat_map(|(length, part)| [&length[..], part]));
        let mut small = [0; SMALL];
        let mut filled = 0;
        for piece in pieces.clone() {
            if let Some(room) = small.get_mut(filled..filled + piece.len()) {
                room.copy_from_slice(piece);
            }
            filled += piece.len();
        }
        EventId(match small.get(..filled) {
            Some(all) => XxHash3_128::oneshot(all),
            None => XxHash3_128::oneshot(&pieces.collect::<Vec<_>>().concat()),
        })
    }
}

/// Kafka's keys and payloads are shorter than 4 GiB.
fn length(part: &[u8]) -> [u8; 4] {
    u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by another program, from the documented bytes.
    #[test]
    fn the_ids_of_events_are_frozen() {
        let long = "x".repeat(1_000);
        let golden = [
            (
                ("1", "cluster-1", "group"),
                ("topic", 0, "key", "msg-123"),
                0xcc1e_317c_01a7_387e_2195_f0d0_9247_ed9b,
            ),
            (("", "", ""), ("", i32::MAX, "", ""), 0x587a_c292_7256_559d_c315_2301_98f4_aa15),
            (
                ("2", "MkU3OEVBNTcwNTJENDM2Qk", "größe"),
                ("orders.v1", 63, "k", long.as_str()),
                0x8170_523a_adc6_1120_ddbd_197d_b563_6b7b,
            ),
        ];
        for ((version, cluster, group), (topic, partition, key, id), expected) in golden {
            let scope = EventScope::new(version, cluster, group);
            let EventId(found) = scope.event(topic, partition, key.as_bytes(), id.as_bytes());
            assert_eq!(found, expected, "{found:#034x}");
        }
    }

    #[test]
    fn every_part_counts_and_joined_parts_do_not_meet() {
        let event = |version, cluster, group, topic, partition, key: &str, id: &str| {
            let scope = EventScope::new(version, cluster, group);
            scope.event(topic, partition, key.as_bytes(), id.as_bytes())
        };
        let base = event("v", "c", "g", "t", 0, "k", "id");
        assert_eq!(base, event("v", "c", "g", "t", 0, "k", "id"));
        for other in [
            event("w", "c", "g", "t", 0, "k", "id"),
            event("v", "d", "g", "t", 0, "k", "id"),
            event("v", "c", "h", "t", 0, "k", "id"),
            event("v", "c", "g", "u", 0, "k", "id"),
            event("v", "c", "g", "t", 1, "k", "id"),
            event("v", "c", "g", "t", 0, "ki", "d"),
            event("v", "c", "g", "t", 0, "k", "ie"),
            event("vc", "", "g", "t", 0, "k", "id"),
        ] {
            assert_ne!(base, other);
        }
    }
}
