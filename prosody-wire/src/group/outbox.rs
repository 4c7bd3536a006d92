//! What has the group decided that nobody has read yet?
//!
//! A reader may be slow or gone while the group rebalances on. Decisions that undo each other unread are both dropped,
//! so the outbox holds at most, for each partition, one end of an assignment followed by one beginning, and one failure:
//! its bound is twice the partitions of the group, however long nobody reads.

use std::collections::{BTreeSet, VecDeque};

use prosody_base::Instant;

use super::event::{AssignedPartition, AssignmentEpoch};
use crate::error::Error;
use crate::types::TopicPartition;

/// An event before it is handed out.
#[derive(Debug)]
pub(crate) enum Notice {
    Assigned { epoch: AssignmentEpoch, partitions: Vec<AssignedPartition> },
    Revoke { ticket: u64, partitions: Vec<TopicPartition>, deadline: Instant },
    Lost { partitions: Vec<TopicPartition>, why: Error },
    Failed(Error),
}

/// Unread notices, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Outbox(VecDeque<Notice>);

impl Outbox {
    /// Adds a notice. Returns a ticket when it was a revocation of which the reader never saw the assignment: it needs
    /// no acknowledgement of anyone.
    pub(crate) fn push(&mut self, notice: Notice) -> Option<u64> {
        match notice {
            Notice::Revoke { ticket, mut partitions, deadline } => {
                self.unsay_assigned(&mut partitions);
                if partitions.is_empty() {
                    return Some(ticket);
                }
                self.0.push_back(Notice::Revoke { ticket, partitions, deadline });
            }
            Notice::Lost { mut partitions, why } => {
                self.unsay_assigned(&mut partitions);
                // An unread revocation of a lost partition would ask for a drain that can commit nothing.
                let lost: BTreeSet<_> = partitions.iter().cloned().collect();
                for unread in &mut self.0 {
                    if let Notice::Revoke { partitions, .. } = unread {
                        partitions.retain(|one| !lost.contains(one));
                    }
                }
                self.drop_empty();
                if !partitions.is_empty() {
                    self.0.push_back(Notice::Lost { partitions, why });
                }
            }
            Notice::Failed(why) => {
                self.0.retain(|unread| !matches!(unread, Notice::Failed(_)));
                self.0.push_back(Notice::Failed(why));
            }
            assigned @ Notice::Assigned { .. } => self.0.push_back(assigned),
        }
        None
    }

    /// The oldest unread notice.
    pub(crate) fn pop(&mut self) -> Option<Notice> {
        self.0.pop_front()
    }

    /// Takes unread assignments of `partitions` back, and leaves in `partitions` those the reader knows of.
    fn unsay_assigned(&mut self, partitions: &mut Vec<TopicPartition>) {
        let ended: BTreeSet<_> = partitions.iter().cloned().collect();
        let mut unread: BTreeSet<TopicPartition> = BTreeSet::new();
        for notice in &mut self.0 {
            if let Notice::Assigned { partitions, .. } = notice {
                partitions.retain(|one| {
                    let keep = !ended.contains(&one.tp);
                    if !keep {
                        unread.insert(one.tp.clone());
                    }
                    keep
                });
            }
        }
        partitions.retain(|one| !unread.contains(one));
        self.drop_empty();
    }

    fn drop_empty(&mut self) {
        self.0.retain(|notice| match notice {
            Notice::Assigned { partitions, .. } => !partitions.is_empty(),
            Notice::Revoke { partitions, .. } | Notice::Lost { partitions, .. } => !partitions.is_empty(),
            Notice::Failed(_) => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn tp(partition: i32) -> TopicPartition {
        TopicPartition::new("t", partition)
    }

    fn assigned(epoch: u64, partitions: &[i32]) -> Notice {
        let partitions =
            partitions.iter().map(|at| AssignedPartition { tp: tp(*at), committed: None }).collect();
        Notice::Assigned { epoch: AssignmentEpoch(epoch), partitions }
    }

    fn revoke(ticket: u64, partitions: &[i32]) -> Notice {
        let deadline = prosody_base::Clock::system().now();
        Notice::Revoke { ticket, partitions: partitions.iter().map(|at| tp(*at)).collect(), deadline }
    }

    fn lost(partitions: &[i32]) -> Notice {
        let why = Error::new("heartbeat", ErrorKind::Timeout);
        Notice::Lost { partitions: partitions.iter().map(|at| tp(*at)).collect(), why }
    }

    fn drain(outbox: &mut Outbox) -> Vec<String> {
        let name = |notice| match notice {
            Notice::Assigned { partitions, .. } => {
                format!(
                    "+{}",
                    partitions.iter().map(|one| one.tp.partition.to_string()).collect::<Vec<_>>().join(",")
                )
            }
            Notice::Revoke { partitions, .. } => {
                format!(
                    "-{}",
                    partitions.iter().map(|one| one.partition.to_string()).collect::<Vec<_>>().join(",")
                )
            }
            Notice::Lost { partitions, .. } => {
                format!(
                    "!{}",
                    partitions.iter().map(|one| one.partition.to_string()).collect::<Vec<_>>().join(",")
                )
            }
            Notice::Failed(_) => "?".to_owned(),
        };
        std::iter::from_fn(|| outbox.pop()).map(name).collect()
    }

    #[tokio::test]
    async fn what_was_undone_unread_is_never_said() {
        let mut outbox = Outbox::default();
        outbox.push(assigned(1, &[0, 1, 2]));
        assert_eq!(outbox.push(revoke(1, &[1])), Some(1), "nobody has to acknowledge what nobody heard of");
        assert_eq!(outbox.push(lost(&[2])), None);
        assert_eq!(drain(&mut outbox), ["+0"]);
        outbox.push(revoke(2, &[0]));
        outbox.push(lost(&[0]));
        assert_eq!(drain(&mut outbox), ["!0"], "a lost partition is not drained");
    }

    #[tokio::test]
    async fn a_reader_that_never_reads_costs_two_notices_a_partition_at_most() {
        let mut outbox = Outbox::default();
        outbox.push(assigned(0, &[0]));
        outbox.pop();
        for round in 1..1_000 {
            outbox.push(revoke(round, &[0]));
            outbox.push(assigned(round, &[0]));
            outbox.push(Notice::Failed(Error::new("join", ErrorKind::Timeout)));
        }
        assert_eq!(drain(&mut outbox), ["-0", "+0", "?"]);
    }
}
