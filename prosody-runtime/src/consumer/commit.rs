//! What does the group know of our progress? Watermarks, committed every `CommitInterval` when they changed, and
//! whenever partitions are given up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::Instant;
use prosody_wire::group::{AssignmentEpoch, CommitError, CommitOffset, Committer};
use tracing::{debug, warn};

use super::Inner;
use crate::error::{Error, ErrorKind};
use crate::partition::runtime::Partition;

/// Longest time one periodic commit may take.
const COMMIT_TIME: Duration = Duration::from_secs(30);
/// Longest time between two looks at which partitions went on.
const SAMPLE: Duration = Duration::from_secs(1);

/// What one commit says, and who is told of its success.
#[derive(Default)]
struct Batch {
    offsets: Vec<CommitOffset>,
    partitions: Vec<(Arc<Partition>, i64)>,
}

/// Commits, one at a time: an older watermark must never arrive after a newer one.
pub(crate) struct Commits {
    committer: Committer,
    turn: tokio::sync::Mutex<()>,
}

impl Commits {
    pub(crate) fn new(committer: Committer) -> Commits {
        Commits { committer, turn: tokio::sync::Mutex::new(()) }
    }

    /// Commits what these partitions finished and the group does not know, at the latest at `deadline`.
    pub(super) async fn commit(
        &self,
        inner: &Inner,
        partitions: Vec<(AssignmentEpoch, Arc<Partition>)>,
        deadline: Instant,
    ) -> Result<(), Error> {
        let late = || Error::new(ErrorKind::Timeout, "committing offsets: the group did not answer in time");
        let clock = &inner.doors.clock;
        let work = async {
            let _turn = self.turn.lock().await;
            self.commit_now(inner, partitions).await
        };
        clock.until(deadline, work).await.unwrap_or_else(|_| Err(late()))
    }

    async fn commit_now(
        &self,
        inner: &Inner,
        partitions: Vec<(AssignmentEpoch, Arc<Partition>)>,
    ) -> Result<(), Error> {
        let mut epochs: BTreeMap<AssignmentEpoch, Batch> = BTreeMap::new();
        for (epoch, partition) in partitions {
            if let Some((offset, leader_epoch)) = partition.uncommitted() {
                let batch = epochs.entry(epoch).or_default();
                batch.offsets.push(CommitOffset {
                    tp: partition.tp().clone(),
                    offset,
                    leader_epoch: (leader_epoch >= 0).then_some(leader_epoch),
                    metadata: String::new(),
                });
                batch.partitions.push((partition, offset));
            }
        }
        let mut result = Ok(());
        for (epoch, Batch { offsets, partitions }) in epochs {
            match self.committer.commit(epoch, offsets).await {
                Ok(()) => {
                    inner.counters.commits.one();
                    for (partition, offset) in partitions {
                        partition.committed(offset);
                    }
                }
                Err(why) => {
                    inner.counters.failed_commits.one();
                    result = Err(error_of(&why));
                }
            }
        }
        result
    }
}

/// Commits every `CommitInterval`. A failure is only logged: the next interval tries again with what is true then.
pub(super) async fn drive(inner: Arc<Inner>) {
    let (clock, interval) = (&inner.doors.clock, inner.config.commit_interval);
    let (mut next, mut aged) = (clock.now() + interval, clock.now());
    loop {
        let now = clock.now();
        clock.sleep_until(next.min(now + SAMPLE)).await;
        let now = clock.now();
        inner.assignments.sample(now);
        let open = inner.assignments.open_partitions();
        if now >= aged + SAMPLE {
            aged = now;
            open.iter().for_each(|(_, partition)| partition.age());
        }
        if now < next {
            continue;
        }
        next = now + interval;
        if let Err(why) = inner.commits.commit(&inner, open, now + COMMIT_TIME).await {
            match why.kind() {
                // A rebalance took the partition away meanwhile; its new owner goes on from what was committed.
                ErrorKind::Other => debug!("{why}"),
                _ => warn!("{why}"),
            }
        }
    }
}

fn error_of(why: &CommitError) -> Error {
    let kind = match why {
        CommitError::NotOwned(_) | CommitError::Fenced(_) => ErrorKind::Other,
        CommitError::TimedOut(_) => ErrorKind::Timeout,
        CommitError::MetadataTooLarge(_) | CommitError::Refused(_) => ErrorKind::Broker,
        CommitError::Closed => ErrorKind::Closed,
    };
    Error::new(kind, format!("committing offsets: {why}"))
}
