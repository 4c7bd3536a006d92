//! Whose records are these? One segment is one partition of one topic, as one group of one cluster processes it.

use std::fmt;

use uuid::Uuid;

use crate::time::Time;

/// The namespace of our name-based UUIDs. Never changes: every stored row is found by it.
const NAMESPACE: Uuid = Uuid::from_u128(0x7a6f_1c5e_93d2_4b0a_8e47_50d3_b6f2_9c18);

/// Names a segment in every table.
///
/// A UUIDv5 over: the cluster id, the group and the topic, each as its length in bytes (u32, big-endian) and its UTF-8
/// bytes, and then the partition (i32, big-endian).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId([u8; 16]);

impl SegmentId {
    /// The segment of this partition.
    #[must_use]
    pub fn new(cluster: &str, group: &str, topic: &str, partition: i32) -> SegmentId {
        let mut name = Vec::with_capacity(cluster.len() + group.len() + topic.len() + 16);
        for part in [cluster, group, topic] {
            // Kafka's names are at most 32 KiB.
            name.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            name.extend(part.as_bytes());
        }
        name.extend(partition.to_be_bytes());
        SegmentId(*Uuid::new_v5(&NAMESPACE, &name).as_bytes())
    }

    /// The bytes of the UUID.
    #[must_use]
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_bytes(self.0).fmt(f)
    }
}

impl fmt::Debug for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What the owner of a segment knows when it gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// The topic's id; all zero when brokers have none.
    pub topic: [u8; 16],
    /// Which partition of it this is.
    pub partition: i32,
    /// The topic's partitions.
    pub partitions: u32,
    /// What its group has committed for it, if anything.
    pub committed: Option<i64>,
    /// Seconds of a timer slab; counts for the segment's first owner only.
    pub slab_seconds: u32,
    /// The present second: where the timers of a new segment begin.
    pub now: Time,
}

/// A segment's row, as its new owner found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRow {
    /// Whether any key may have a record. Nobody needs to look for the records of an unmarked segment.
    pub marked: bool,
    /// The topic's id when it was last acquired, before this time.
    pub topic: [u8; 16],
    /// The topic's partitions when it was last acquired, before this time.
    pub partitions: u32,
    /// What the group had committed when it was last acquired, before this time.
    pub committed: Option<i64>,
    /// How often it was acquired while the group had committed nothing, before this time.
    pub incarnation: u32,
    /// Seconds of a timer slab, as the first owner fixed them.
    pub slab_seconds: u32,
    /// The first slab that may hold timers.
    pub watermark: u32,
}

impl SegmentRow {
    /// What acquiring it leaves.
    #[must_use]
    pub fn acquired(self, facts: &SegmentFacts) -> SegmentRow {
        let SegmentFacts { topic, partitions, committed, .. } = *facts;
        let incarnation = self.incarnation.saturating_add(u32::from(committed.is_none()));
        SegmentRow { topic, partitions, committed, incarnation, ..self }
    }

    /// Tells the log of the partition from that of another topic of the same name: the topic's id, or the incarnation where
    /// brokers have no ids. They delete what is committed together with the topic.
    #[must_use]
    pub fn log(&self) -> [u8; 16] {
        if self.topic == [0; 16] { u128::from(self.incarnation).to_be_bytes() } else { self.topic }
    }
}

#[cfg(test)]
mod tests {
    use super::SegmentId;

    /// Computed by another program from the documented bytes.
    #[test]
    fn the_ids_of_segments_are_frozen() {
        let golden = [
            (("cluster-1", "group", "topic", 0), "25776f43-f848-5cbc-b98a-9d59e663dcdc"),
            (("", "", "", i32::MAX), "fca119f9-5712-54f9-89b8-dce38a9c238b"),
            (("MkU3OEVBNTcwNTJENDM2Qk", "größe", "orders.v1", 63), "cb25d33e-52ef-5f54-8c3d-4c96da372868"),
        ];
        for ((cluster, group, topic, partition), id) in golden {
            assert_eq!(SegmentId::new(cluster, group, topic, partition).to_string(), id);
        }
    }

    #[test]
    fn names_that_only_meet_when_joined_are_different_segments() {
        assert_ne!(SegmentId::new("a", "bc", "d", 0), SegmentId::new("ab", "c", "d", 0));
        assert_ne!(SegmentId::new("a", "b", "cd", 0), SegmentId::new("a", "bc", "d", 0));
        assert_ne!(SegmentId::new("a", "b", "c", 0), SegmentId::new("a", "b", "c", 1));
    }
}
