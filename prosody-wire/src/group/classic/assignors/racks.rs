//! Who is near which partition, and does it matter? (KIP-881)
//!
//! A member is near a partition that has a replica in its rack: it can read from there (KIP-392). A member without a rack
//! is near everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Member;
use crate::types::Topic;

/// The racks of a partition's replicas.
pub(crate) type RackSet = BTreeSet<Arc<str>>;

/// The racks of the replicas of each partition, for topics that have any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Racks(BTreeMap<Topic, Vec<RackSet>>);

impl Racks {
    /// Where the replicas of a topic are now; `racks[n]` is of partition n.
    pub(crate) fn learn(&mut self, topic: &Topic, racks: &[RackSet]) {
        if racks.iter().all(BTreeSet::is_empty) {
            self.0.remove(topic);
        } else if self.0.get(topic).is_none_or(|known| known != racks) {
            self.0.insert(topic.clone(), racks.to_vec());
        }
    }

    /// Only these topics.
    pub(crate) fn of<'a>(&self, topics: impl Iterator<Item = &'a Topic>) -> Racks {
        Racks(topics.filter_map(|topic| Some((topic.clone(), self.0.get(topic)?.clone()))).collect())
    }

    fn partition(&self, topic: &str, partition: i32) -> Option<&RackSet> {
        self.0.get(topic)?.get(usize::try_from(partition).ok()?)
    }

    /// Whether the member would have to read the partition from another rack.
    pub(super) fn is_far(&self, member: &Member, topic: &str, partition: i32) -> bool {
        let Some(rack) = member.subscription.rack.as_deref() else { return false };
        !self.partition(topic, partition).is_some_and(|racks| racks.contains(rack))
    }

    /// Whether it can make a difference who gets which partition of these topics: some member is in a rack that has
    /// replicas, and not every partition has replicas in every rack.
    pub(super) fn matter<'a>(
        &self,
        members: &[&Member],
        topics: impl Iterator<Item = (&'a Topic, &'a i32)>,
    ) -> bool {
        let none = RackSet::new();
        let mut each = Vec::new();
        for (topic, count) in topics {
            each.extend((0..*count).map(|partition| self.partition(topic, partition).unwrap_or(&none)));
        }
        let all: BTreeSet<&str> = each.iter().flat_map(|racks| racks.iter().map(AsRef::as_ref)).collect();
        let near = members.iter().filter_map(|member| member.subscription.rack.as_deref());
        near.into_iter().any(|rack| all.contains(rack)) && each.iter().any(|racks| racks.len() < all.len())
    }
}
