//! What does the group know of our progress? Watermarks and what is finished above them, committed every
//! `CommitInterval` when they changed, and whenever partitions are given up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::Instant;
use prosody_wire::TopicPartition;
use prosody_wire::group::{AssignmentEpoch, CommitError, CommitOffset, Committer};
use tracing::{debug, warn};

use super::Inner;
use crate::error::{Error, ErrorKind};
use crate::insight::beats::Loop;
use crate::partition::offsets::Snapshot;
use crate::partition::runtime::Partition;

/// Longest time one periodic commit may take.
const COMMIT_TIME: Duration = Duration::from_secs(30);
/// Maps of one commit are this long at most. The coordinator writes a commit as one batch of records, which may have
/// 1 MiB (`message.max.bytes`); partitions without a map only repeat more.
const MAX_MAPS: usize = 512 * 1_024;
/// Time between two looks at what has waited for long.
const SAMPLE: Duration = Duration::from_secs(1);

/// What one commit says, and who is told of its success.
#[derive(Default)]
struct Batch {
    maps: usize,
    offsets: Vec<CommitOffset>,
    partitions: Vec<(Arc<Partition>, Snapshot)>,
}

impl Batch {
    /// The text of a map, or none when the commit holds enough of them.
    fn room_for(&mut self, map: String) -> String {
        let with_it = self.maps + map.len();
        if with_it > MAX_MAPS {
            return String::new();
        }
        self.maps = with_it;
        map
    }
}

/// Commits, one at a time: an older watermark must never be sent after a newer one.
pub(crate) struct Commits {
    committer: Committer,
    turn: tokio::sync::Mutex<Doubt>,
}

/// Whether the group may still forget what it accepted: a commit whose connection broke can be carried out after newer
/// ones. Nobody would commit a quiet partition again, and its next owner would repeat what was finished.
#[derive(Default)]
struct Doubt {
    unanswered: u64,
    until: Option<Instant>,
}

impl Doubt {
    /// Whether what the group accepted is to be said again, after this many commits without an answer.
    fn is_on(&mut self, now: Instant, unanswered: u64) -> bool {
        if unanswered != self.unanswered {
            (self.unanswered, self.until) = (unanswered, Some(now + COMMIT_TIME));
        }
        self.until = self.until.filter(|until| now < *until);
        self.until.is_some()
    }
}

impl Commits {
    pub(crate) fn new(committer: Committer) -> Commits {
        Commits { committer, turn: tokio::sync::Mutex::default() }
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
            let mut doubt = self.turn.lock().await;
            let again = doubt.is_on(clock.now(), self.committer.unanswered());
            let what = |one: &Partition| if again { Some(one.snapshot()) } else { one.uncommitted() };
            self.commit_now(inner, partitions, what).await
        };
        clock.until(deadline, work).await.unwrap_or_else(|_| Err(late()))
    }

    /// Resolves once the group has accepted a commit that was sent after this call: only an owner's is. Never for a
    /// partition that is being given up.
    pub(super) async fn confirm(&self, inner: &Inner, tp: &TopicPartition) {
        let clock = &inner.doors.clock;
        loop {
            let mut open = inner.assignments.open_partitions();
            open.retain(|(_, partition)| partition.tp() == tp);
            if open.is_empty() {
                std::future::pending::<()>().await;
            }
            let work = async {
                let _turn = self.turn.lock().await;
                self.commit_now(inner, open, |partition| Some(partition.snapshot())).await
            };
            match clock.until(clock.now() + COMMIT_TIME, work).await {
                Ok(Ok(())) => return,
                Ok(Err(why)) => {
                    debug!(partition = %tp, "the group does not say that a partition is ours: {why}")
                }
                Err(_) => {}
            }
            clock.sleep(SAMPLE).await;
        }
    }

    async fn commit_now(
        &self,
        inner: &Inner,
        partitions: Vec<(AssignmentEpoch, Arc<Partition>)>,
        what: impl Fn(&Partition) -> Option<Snapshot>,
    ) -> Result<(), Error> {
        let mut epochs: BTreeMap<AssignmentEpoch, Batch> = BTreeMap::new();
        for (epoch, partition) in partitions {
            if let Some(snapshot) = what(&partition) {
                let batch = epochs.entry(epoch).or_default();
                let metadata = batch.room_for(snapshot.map.encode());
                batch.offsets.push(CommitOffset {
                    tp: partition.tp().clone(),
                    offset: snapshot.map.base(),
                    leader_epoch: (snapshot.leader_epoch >= 0).then_some(snapshot.leader_epoch),
                    metadata,
                });
                batch.partitions.push((partition, snapshot));
            }
        }
        let mut result = Ok(());
        for (epoch, Batch { offsets, partitions, .. }) in epochs {
            match self.commit_some(epoch, offsets).await {
                Ok(()) => {
                    inner.counters.commits.one();
                    for (partition, snapshot) in partitions {
                        partition.committed(snapshot);
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

    /// Commits; where the broker wants a shorter text than our map, the watermark alone: what is above it may then be
    /// repeated, but the group goes on.
    async fn commit_some(
        &self,
        epoch: AssignmentEpoch,
        offsets: Vec<CommitOffset>,
    ) -> Result<(), CommitError> {
        match self.committer.commit(epoch, offsets.clone()).await {
            Err(CommitError::MetadataTooLarge(refused)) => {
                debug!(count = refused.len(), "the broker finds maps of finished offsets too long");
                let bare = |one: CommitOffset| CommitOffset { metadata: String::new(), ..one };
                let again = offsets.into_iter().filter(|one| refused.contains(&one.tp)).map(bare);
                self.committer.commit(epoch, again.collect()).await
            }
            result => result,
        }
    }
}

/// Commits every `CommitInterval`. A failure is only logged: the next interval tries again with what is true then.
pub(super) async fn drive(inner: Arc<Inner>) {
    let (clock, interval) = (&inner.doors.clock, inner.config.commit_interval);
    let (mut next, mut aged) = (clock.now() + interval, clock.now());
    loop {
        let now = clock.now();
        inner.beats.beat(Loop::Commits, now);
        clock.sleep_until(next.min(now + SAMPLE)).await;
        let now = clock.now();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_commit_without_an_answer_all_is_said_again_until_no_late_one_can_come() {
        let (mut doubt, start) = (Doubt::default(), prosody_base::Clock::simulated().now());
        let soon = start + COMMIT_TIME / 2;
        assert!(!doubt.is_on(start, 0));
        assert!(doubt.is_on(start, 1) && doubt.is_on(soon, 1));
        assert!(doubt.is_on(soon, 2) && doubt.is_on(start + COMMIT_TIME, 2), "the next one counts from then");
        assert!(!doubt.is_on(soon + COMMIT_TIME, 2));
    }

    #[test]
    fn the_maps_of_one_commit_fit_into_the_batch_that_the_coordinator_writes() {
        let mut batch = Batch::default();
        let longest = "m".repeat(crate::partition::offset_map::MAX_TEXT);
        let sent: Vec<usize> = (0..1_000).map(|_| batch.room_for(longest.clone()).len()).collect();
        assert!(sent.iter().sum::<usize>() <= MAX_MAPS && sent[169] > 0 && sent[170] == 0, "{}", sent.len());
        assert_eq!(batch.room_for("short".to_owned()), "short", "what still fits goes along");
    }
}
