//! Which topics are meant by the ids of an assignment, and which of them can be taken up now?
//!
//! The coordinator names topics by id and may know one before our metadata does: such a partition is held back until the
//! name is known. A topic that was deleted and created again has another id, and its partitions are other partitions: the
//! old ones are given up first, so that no position of the old topic is used on the new one.

use std::collections::BTreeMap;

use prosody_base::sabotaged;

use crate::group::calls;
use crate::types::{Topic, TopicId, TopicPartition};

/// The assignment and the names of its topics.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// What we shall hold, as the coordinator said last.
    target: calls::Places,
    /// Names, also of topics that metadata has forgotten while the coordinator has not.
    names: BTreeMap<TopicId, Topic>,
    /// Which of two topics of one name is meant by what we hold.
    ids: BTreeMap<Topic, TopicId>,
}

/// What of an assignment can be taken up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    /// Sorted, each once.
    pub(super) partitions: Vec<TopicPartition>,
    /// Some topics have no name yet.
    pub(super) is_waiting: bool,
}

impl Places {
    /// Another assignment.
    pub(super) fn assign(&mut self, target: calls::Places) {
        self.target = target;
    }

    /// Whether this is more than what is assigned.
    pub(super) fn is_more(&self, held: &calls::Places) -> bool {
        let given = |id, partition: &i32| self.target.get(id).is_some_and(|some| some.contains(partition));
        !held.iter().all(|(id, held)| held.iter().all(|partition| given(id, partition)))
    }

    /// Nothing is assigned, and no name is remembered for what was.
    pub(super) fn clear(&mut self) {
        self.target.clear();
    }

    /// Whether anything of this topic is assigned.
    pub(super) fn is_assigned(&self, id: &TopicId) -> bool {
        self.target.contains_key(id)
    }

    /// Assigned topics without a name.
    pub(super) fn nameless(&self) -> Vec<TopicId> {
        self.target.keys().filter(|id| !self.names.contains_key(id)).copied().collect()
    }

    /// Metadata knows this id. Older ones of the same name are forgotten unless the assignment or what we hold is of them.
    pub(super) fn learn(&mut self, topic: Topic, id: TopicId) {
        if self.names.get(&id) == Some(&topic) {
            return;
        }
        let is_used = |id: &TopicId| self.target.contains_key(id) || self.ids.get(&topic) == Some(id);
        self.names.retain(|known, name| *name != topic || is_used(known));
        self.names.insert(id, topic);
    }

    /// What can be taken up while `holds` says of which topics something is held, or being given up.
    pub(super) fn resolve(&mut self, holds: impl Fn(&str) -> bool) -> Resolved {
        let mut resolved = Resolved::default();
        for (id, partitions) in &self.target {
            let Some(topic) = self.names.get(id) else {
                resolved.is_waiting = !sabotaged("unknown-topic-held");
                continue;
            };
            let old = self.ids.get(topic).filter(|old| *old != id);
            if old.is_some_and(|old| holds(topic) || self.target.contains_key(old)) {
                continue;
            }
            self.ids.insert(topic.clone(), *id);
            let here = partitions.iter().map(|partition| TopicPartition::new(topic.clone(), *partition));
            resolved.partitions.extend(here);
        }
        resolved.partitions.sort_unstable();
        resolved.partitions.dedup();
        resolved
    }

    /// Whether something of the assignment waits for partitions of an older topic of the same name.
    pub(super) fn is_blocked(&self) -> bool {
        let other = |id: &TopicId| self.names.get(id).is_some_and(|topic| self.ids.get(topic) != Some(id));
        self.target.keys().any(other)
    }

    /// Held partitions by the ids of their topics, each list sorted.
    pub(super) fn named(&self, held: Vec<TopicPartition>) -> calls::Places {
        let mut named = calls::Places::new();
        for one in held {
            if let Some(id) = self.ids.get(&one.topic) {
                named.entry(*id).or_default().push(one.partition);
            }
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> TopicId {
        TopicId([n; 16])
    }

    fn target(rows: &[(u8, &[i32])]) -> calls::Places {
        rows.iter().map(|(n, partitions)| (id(*n), partitions.to_vec())).collect()
    }

    #[test]
    fn an_id_without_a_name_waits_and_a_new_topic_of_an_old_name_waits_for_the_old_one() {
        let mut places = Places::default();
        places.learn("a".into(), id(1));
        places.assign(target(&[(1, &[0, 1]), (2, &[0])]));
        let first = places.resolve(|_| false);
        assert_eq!(first.partitions, [TopicPartition::new("a", 0), TopicPartition::new("a", 1)]);
        assert!(first.is_waiting);
        // A member that has nothing yet is told of its topic's name before it is given any of it.
        places.assign(target(&[]));
        places.assign(target(&[(1, &[0, 1])]));
        assert!(!places.resolve(|_| true).is_waiting);
        // The topic is created again: metadata knows, then the coordinator.
        places.learn("a".into(), id(3));
        assert_eq!(places.resolve(|_| true).partitions.len(), 2, "the old one, as long as it is assigned");
        places.assign(target(&[(3, &[0])]));
        assert_eq!(places.resolve(|_| true).partitions, [], "first the old one goes");
        assert!(places.is_blocked());
        let held = vec![TopicPartition::new("a", 0), TopicPartition::new("a", 1)];
        assert_eq!(places.named(held), target(&[(1, &[0, 1])]));
        assert_eq!(places.resolve(|_| false).partitions, [TopicPartition::new("a", 0)]);
        assert!(!places.is_blocked());
        assert_eq!(places.named(vec![TopicPartition::new("a", 0)]), target(&[(3, &[0])]));
    }
}
