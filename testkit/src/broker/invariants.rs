//! What must never have happened? Checks the broker makes of its clients, and of itself.
//!
//! None of them changes an answer: they see what Kafka would let pass.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::{Buf, Bytes};

use super::batch::{Header, wrap_sequence};
use super::topics::lock;

/// Member ids remembered after they left.
const LEFT_MEMBERS: usize = 10_000;
/// Producers whose sequences are followed; later ones are not checked.
const FOLLOWED_PRODUCERS: usize = 100_000;

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A batch entered a log a second time, or out of its producer's order.
    Sequence {
        /// Topic and partition.
        partition: (String, i32),
        /// Producer id and epoch.
        producer: (i64, i16),
        /// The sequence that was due.
        expected: i32,
        /// The sequence that was appended.
        appended: i32,
    },
    /// A leader gave one partition to two members of a generation; or, in the new protocol, a member says that it holds
    /// what another one was given (the first of the two).
    TwoOwners {
        /// The group.
        group: String,
        /// Its generation.
        generation: i32,
        /// Topic and partition.
        partition: (String, i32),
        /// The members.
        members: (String, String),
    },
    /// A member committed the offset of a partition that belongs to another one, or never belonged to it.
    ForeignCommit {
        /// The group.
        group: String,
        /// Generation of the commit.
        generation: i32,
        /// Topic and partition.
        partition: (String, i32),
        /// Who committed.
        member: String,
        /// Who owns it.
        owner: Option<String>,
    },
    /// A member that left its group goes on asking under its old id.
    AfterLeave {
        /// The group.
        group: String,
        /// The member.
        member: String,
        /// The API.
        api: &'static str,
    },
    /// The assignment a leader sent cannot be decoded.
    Assignment {
        /// The group.
        group: String,
        /// Whose assignment.
        member: String,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Sequence { partition: (topic, index), producer, expected, appended } => write!(
                f,
                "{topic}/{index}: producer {} epoch {} appended sequence {appended} where {expected} was due",
                producer.0, producer.1
            ),
            Violation::TwoOwners { group, generation, partition: (topic, index), members } => write!(
                f,
                "group {group} generation {generation}: {topic}/{index} belongs to {} and to {}",
                members.0, members.1
            ),
            Violation::ForeignCommit { group, generation, partition: (topic, index), member, owner } => {
                write!(
                    f,
                    "group {group} generation {generation}: {member} committed {topic}/{index}, which belongs to {}",
                    owner.as_deref().unwrap_or("nobody")
                )
            }
            Violation::AfterLeave { group, member, api } => {
                write!(f, "group {group}: {member} sent {api} after it had left")
            }
            Violation::Assignment { group, member } => {
                write!(f, "group {group}: the assignment of {member} cannot be decoded")
            }
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    violations: Vec<Violation>,
    total: u64,
    /// (topic id, partition, producer) → (epoch, sequence that is due).
    due: BTreeMap<([u8; 16], i32, i64), (i16, i32)>,
    left: BTreeSet<(String, String)>,
}

/// The checks of one cluster.
#[derive(Debug)]
pub(crate) struct Invariants {
    inner: Mutex<Inner>,
    bound: usize,
}

impl Invariants {
    pub(crate) fn new(bound: usize) -> Invariants {
        Invariants { inner: Mutex::default(), bound }
    }

    pub(crate) fn report(&self, violation: Violation) {
        tracing::warn!(%violation, "a client broke a rule");
        let mut inner = lock(&self.inner);
        inner.total += 1;
        if inner.violations.len() < self.bound {
            inner.violations.push(violation);
        }
    }

    pub(crate) fn all(&self) -> Vec<Violation> {
        lock(&self.inner).violations.clone()
    }

    /// A batch of an idempotent producer entered a log. Called under the partition's lock, so in log order.
    pub(crate) fn appended(&self, topic: (&str, [u8; 16]), partition: i32, header: &Header) {
        if header.producer_id < 0 || header.is_control() {
            return;
        }
        let mut inner = lock(&self.inner);
        let key = (topic.1, partition, header.producer_id);
        let next = wrap_sequence(header.last_sequence(), 1);
        let due = match inner.due.get(&key) {
            Some((epoch, due)) if *epoch == header.producer_epoch => *due,
            Some((epoch, _)) if *epoch < header.producer_epoch => 0,
            Some((_, due)) => *due,
            None if inner.due.len() >= FOLLOWED_PRODUCERS => return,
            // What came before may have been deleted with its state: the first sequence seen counts.
            None => header.base_sequence,
        };
        inner.due.insert(key, (header.producer_epoch, next));
        drop(inner);
        if due != header.base_sequence {
            self.report(Violation::Sequence {
                partition: (topic.0.to_owned(), partition),
                producer: (header.producer_id, header.producer_epoch),
                expected: due,
                appended: header.base_sequence,
            });
        }
    }

    /// A log lost its newest records: producers may send them again.
    pub(crate) fn truncated(&self, topic: [u8; 16], partition: i32) {
        lock(&self.inner).due.retain(|(of, index, _), _| (*of, *index) != (topic, partition));
    }

    /// A member of a group of the new protocol says that it holds these partitions of others.
    pub(crate) fn holds(
        &self,
        (group, epoch, member): (&str, i32, &str),
        foreign: impl Iterator<Item = ((String, i32), String)>,
    ) {
        for (partition, other) in foreign {
            let (group, members) = (group.to_owned(), (other, member.to_owned()));
            self.report(Violation::TwoOwners { group, generation: epoch, partition, members });
        }
    }

    /// A member of the current generation commits a partition that `owner` owns.
    pub(crate) fn commits(
        &self,
        (group, generation, member): (&str, i32, &str),
        (topic, partition): (&str, i32),
        owner: Option<&str>,
    ) {
        if owner != Some(member) {
            self.report(Violation::ForeignCommit {
                group: group.to_owned(),
                generation,
                partition: (topic.to_owned(), partition),
                member: member.to_owned(),
                owner: owner.map(str::to_owned),
            });
        }
    }

    pub(crate) fn left(&self, group: &str, member: &str) {
        let mut inner = lock(&self.inner);
        if inner.left.len() < LEFT_MEMBERS {
            inner.left.insert((group.to_owned(), member.to_owned()));
        }
    }

    /// A member joins under an id of its own choice, perhaps one that left before.
    pub(crate) fn joins(&self, group: &str, member: &str) {
        lock(&self.inner).left.remove(&(group.to_owned(), member.to_owned()));
    }

    /// A member asks for something: it must not have left before.
    pub(crate) fn asks(&self, group: &str, member: &str, api: &'static str) {
        if member.is_empty() {
            return;
        }
        let gone = {
            let inner = lock(&self.inner);
            !inner.left.is_empty() && inner.left.contains(&(group.to_owned(), member.to_owned()))
        };
        if gone {
            self.report(Violation::AfterLeave { group: group.to_owned(), member: member.to_owned(), api });
        }
    }
}

/// Who owns which partition of a group. A partition that a new generation gives to nobody stays with its last owner,
/// who may still commit what it finished: that is how cooperative members hand over.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    owners: BTreeMap<(Arc<str>, i32), String>,
}

impl Owners {
    pub(crate) fn assigned(
        &mut self,
        group: &str,
        generation: i32,
        assignments: &BTreeMap<String, Bytes>,
        invariants: &Invariants,
    ) {
        let mut given: BTreeMap<(Arc<str>, i32), &String> = BTreeMap::new();
        for (member, assignment) in assignments {
            let Some(partitions) = decode_assignment(assignment) else {
                let (group, member) = (group.to_owned(), member.clone());
                invariants.report(Violation::Assignment { group, member });
                continue;
            };
            for partition in partitions {
                if let Some(other) = given.insert(partition.clone(), member)
                    && other != member
                {
                    invariants.report(Violation::TwoOwners {
                        group: group.to_owned(),
                        generation,
                        partition: (partition.0.as_ref().to_owned(), partition.1),
                        members: (other.clone(), member.clone()),
                    });
                }
            }
        }
        for (partition, member) in given {
            self.owners.insert(partition, member.clone());
        }
    }

    /// A member of the current generation commits a partition.
    pub(crate) fn commits(
        &self,
        who: (&str, i32, &str),
        (topic, partition): (&Arc<str>, i32),
        invariants: &Invariants,
    ) {
        let owner = self.owners.get(&(Arc::clone(topic), partition));
        invariants.commits(who, (topic, partition), owner.map(String::as_str));
    }

    /// A static member came back with a new id and takes over what its old one owned.
    pub(crate) fn renamed(&mut self, old: &str, new: &str) {
        for owner in self.owners.values_mut().filter(|owner| owner.as_str() == old) {
            new.clone_into(owner);
        }
    }
}

/// The partitions of a `ConsumerProtocolAssignment`, `None` when the bytes are none. An empty assignment is empty.
pub(crate) fn decode_assignment(bytes: &Bytes) -> Option<Vec<(Arc<str>, i32)>> {
    let mut at = bytes.clone();
    if at.is_empty() {
        return Some(Vec::new());
    }
    let _version = at.try_get_i16().ok()?;
    let mut partitions = Vec::new();
    for _ in 0..at.try_get_i32().ok()? {
        let length = usize::try_from(at.try_get_i16().ok()?).ok()?;
        if length > at.len() {
            return None;
        }
        let topic: Arc<str> = std::str::from_utf8(&at.split_to(length)).ok()?.into();
        for _ in 0..at.try_get_i32().ok()? {
            partitions.push((Arc::clone(&topic), at.try_get_i32().ok()?));
        }
    }
    Some(partitions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::batch::{NewBatch, header};

    /// The header of a batch with two records.
    fn two(epoch: i16, base_sequence: i32) -> Header {
        let (producer_id, producer_epoch) = (7, epoch);
        let records = &[(None, Some(&b"v"[..])); 2];
        let batch =
            NewBatch { attributes: 0, producer_id, producer_epoch, base_sequence, timestamp: 1, records };
        header(&batch.encode()).expect("a batch")
    }

    #[test]
    fn what_is_appended_twice_or_out_of_order_is_noticed() {
        let invariants = Invariants::new(10);
        let append = |epoch, sequence| invariants.appended(("t", [1; 16]), 0, &two(epoch, sequence));
        for (epoch, sequence) in [(0, 0), (0, 2), (1, 0)] {
            append(epoch, sequence);
        }
        assert_eq!(invariants.all(), [], "in order, and again from 0 in a new epoch");
        for (epoch, sequence, expected) in [(1, 0, 2), (1, 6, 2), (2, 3, 0)] {
            append(epoch, sequence);
            let found = invariants.all().pop();
            let partition = ("t".to_owned(), 0);
            let wanted =
                Violation::Sequence { partition, producer: (7, epoch), expected, appended: sequence };
            assert_eq!(found, Some(wanted));
        }
        invariants.truncated([1; 16], 0);
        append(2, 3);
        assert_eq!(invariants.all().len(), 3, "what a log has lost comes again");
    }

    #[test]
    fn an_assignment_that_cannot_be_read_is_noticed() {
        let invariants = Invariants::new(10);
        let given = [("a", &[0, 0, 0, 0, 0, 1, 0, 9, b't'][..]), ("b", &[][..])];
        let given = given.map(|(member, bytes)| (member.to_owned(), Bytes::from_static(bytes)));
        Owners::default().assigned("g", 1, &given.into(), &invariants);
        let (group, member) = ("g".to_owned(), "a".to_owned());
        assert_eq!(invariants.all(), [Violation::Assignment { group, member }]);
    }
}
