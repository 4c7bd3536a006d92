//! What is at this offset, without following the partition? Single records and short runs of them, read from the leader,
//! and the proof that a record is gone. `judge.rs` decides what an answer says (pure); this file asks.
//!
//! A wrong "gone" loses a message, so only these count as proof, each from the leader in the epoch it leads now:
//!
//! - a batch at or behind the offset that does not hold it: compaction took it, its transaction was aborted, or a marker
//!   is in its place;
//! - a log start behind it. OFFSET_OUT_OF_RANGE alone is none: a replica that lags behind says so too, so metadata is
//!   asked for again and then the leader where its log begins;
//! - a topic of another id in its place, which the leader serves.
//!
//! An offset at or behind the end of the log, or in a transaction that is still open, is waited for.

mod judge;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prosody_base::{Instant, sabotaged};

use self::judge::{Judged, judge};
use super::cursor::Lookup;
use super::offsets::{self, Ends};
use super::session::{Key, Params, sessionless};
use super::wire::{self, Ask, PartitionData, TOPIC_IDS, TopicRef};
use crate::batch::{BatchLimits, BufferPool, Decompressor, Record};
use crate::client::Client;
use crate::cluster::{Attempt, Cluster, Lane, TopicMetadata};
use crate::error::{DecodeError, Error, ErrorKind};
use crate::proto::{ApiKey, ErrorCode};
use crate::types::{BrokerId, IsolationLevel, LeaderEpoch, Offset, TopicId, TopicPartition};

/// A run of offsets to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRequest {
    /// Where.
    pub partition: TopicPartition,
    /// The topic the offsets belong to. `None`: whatever has that name.
    pub topic_id: Option<TopicId>,
    /// The first offset wanted.
    pub first: Offset,
    /// The last one, not below the first.
    pub last: Offset,
    /// The leader epoch of the wanted records, −1 when unknown: an answer from an older one proves nothing.
    pub leader_epoch: LeaderEpoch,
    /// Bytes of record batches to ask for, compressed. A larger batch comes all the same.
    pub max_bytes: usize,
}

/// Why an offset has no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The log begins behind it, at this offset: retention, or somebody deleted records.
    BelowLogStart(Offset),
    /// The log covers it without a record that counts: compacted away, aborted, or a marker of a transaction.
    NoRecord,
    /// The topic was deleted, and one of the same name has this id now.
    Recreated(TopicId),
}

/// As the end of a sentence about the record.
impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gone::BelowLogStart(start) => write!(f, "it was deleted: the log begins at offset {start} now"),
            Gone::NoRecord => f.write_str("it was compacted away, or its transaction was aborted"),
            Gone::Recreated(id) => {
                write!(f, "its topic was deleted, and another of that name has the id {id}")
            }
        }
    }
}

/// What is known about the beginning of a run.
#[derive(Clone, Debug)]
pub struct RunAnswer {
    /// The records that are there, in offset order.
    pub records: Vec<RunRecord>,
    /// Every offset of the run below this one is decided: its record is in `records`, or gone. Behind the first offset, and at
    /// most one behind the last.
    pub next: Offset,
    /// Why the decided offsets without a record have none.
    pub gone: Gone,
}

/// A record that was read. Keeps the bytes of its batch alive.
#[derive(Clone, Debug)]
pub struct RunRecord {
    /// The record.
    pub record: Record,
    /// The epoch of the leader that appended it, −1 when unknown.
    pub leader_epoch: LeaderEpoch,
}

/// Reads single records over a client's connections, beside all other requests. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RecordReader {
    cluster: Cluster,
    isolation: IsolationLevel,
    pool: BufferPool,
}

impl RecordReader {
    /// With read committed, records of aborted transactions are gone, and those of open ones are waited for.
    #[must_use]
    pub fn new(client: &Client, isolation: IsolationLevel) -> RecordReader {
        RecordReader { cluster: client.cluster().clone(), isolation, pool: BufferPool::new(1 << 20) }
    }

    /// Decides at least the first offset of the run, and those behind it that the same answer decides. Retries what a retry
    /// helps: leaders that move, brokers that are away, records that are not there yet.
    ///
    /// # Errors
    /// What no retry helps (TOPIC_AUTHORIZATION_FAILED, a damaged batch), and at `deadline` the last cause. Whether the record
    /// is there is unknown then.
    pub async fn read(&self, run: &RunRequest, deadline: Instant) -> Result<RunAnswer, Error> {
        let doing = format!("reading {} at offset {}", run.partition, run.first);
        // What asked for too little raises it for the attempts behind it.
        let max_bytes = AtomicUsize::new(run.max_bytes);
        let attempt = |_: Attempt| self.attempt(run, &max_bytes, deadline);
        self.cluster.attempts(&doing, deadline, attempt).await
    }

    async fn attempt(
        &self,
        run: &RunRequest,
        max_bytes: &AtomicUsize,
        deadline: Instant,
    ) -> Result<RunAnswer, Error> {
        let topic = self.cluster.topic(&run.partition.topic, deadline).await?;
        if let Some(other) = other_topic(run, &topic) {
            return self.prove_recreated(run, other, deadline).await;
        }
        let leader = leader(run, &topic)?;
        let data = self.fetch(run, leader, topic.id, max_bytes.load(Ordering::Relaxed)).await?;
        if data.error == ErrorCode::OFFSET_OUT_OF_RANGE {
            if sabotaged("gone-proof") {
                return Ok(all_gone(run, run.last, Gone::NoRecord));
            }
            return self.prove_deleted(run, topic.id, deadline).await;
        }
        ErrorCode::check(data.error.0).map_err(|code| Error::broker(asking(leader.0), code))?;
        let limits = self.cluster.limits();
        let limits = BatchLimits {
            decompressed_bytes: limits.batch_bytes,
            headers_per_record: u32::try_from(limits.headers).unwrap_or(u32::MAX),
        };
        let pending = |why: String| Err(Error::new(asking(leader.0), ErrorKind::Pending(why)));
        let mut decompressor = Decompressor::new(self.pool.clone());
        match judge(data, (run.first, run.last), self.isolation, limits, &mut decompressor) {
            Judged::Decided(answer) => Ok(answer),
            Judged::Pending(why) => pending(why),
            Judged::TooLarge => {
                let more = max_bytes.load(Ordering::Relaxed).saturating_mul(4);
                max_bytes.store(more.min(self.cluster.limits().frame_bytes), Ordering::Relaxed);
                pending("its batch is larger than what was asked for".to_owned())
            }
            Judged::Damaged(why) => {
                Err(Error::decode(asking(leader.0), DecodeError::Records(why.to_string())))
            }
        }
    }

    /// One Fetch, outside any session, of what is there now.
    async fn fetch(
        &self,
        run: &RunRequest,
        (leader, leader_epoch): (BrokerId, LeaderEpoch),
        topic_id: Option<TopicId>,
        max_bytes: usize,
    ) -> Result<PartitionData, Error> {
        let connection = self.cluster.short(leader).await?;
        let spoken = connection.require(ApiKey::Fetch)?;
        let version = if topic_id.is_some() { spoken } else { spoken.min(TOPIC_IDS - 1) };
        let TopicPartition { topic, partition } = run.partition.clone();
        let key = Key { topic, topic_id, partition };
        let params = Params { offset: run.first, leader_epoch, last_epoch: -1, max_bytes };
        let ask = Ask { max_wait: Duration::ZERO, max_bytes, isolation: self.isolation, rack: "" };
        let request = wire::request(version, ask, &sessionless(vec![(key, params)]));
        // A call that times out ends its connection and whatever else is under way there, so a short deadline is no timeout.
        let timeout = self.cluster.limits().request_timeout;
        let body = connection.call_raw(ApiKey::Fetch, version, request, timeout).await?;
        let answer = wire::response(version, &body).map_err(|why| {
            connection.close("a Fetch response could not be read");
            Error::decode(format!("Fetch v{version} to broker {leader}"), why)
        })?;
        connection.throttle(answer.throttle);
        ErrorCode::check(answer.error).map_err(|code| Error::broker(asking(leader), code))?;
        let about = |data: &PartitionData| {
            data.partition == run.partition.partition
                && match &data.topic {
                    TopicRef::Name(name) => *name == run.partition.topic,
                    TopicRef::Id(id) => topic_id == Some(*id),
                }
        };
        let missing = || {
            let why = "the answer says nothing about the partition; the broker may be throttling".to_owned();
            Error::new(asking(leader), ErrorKind::Pending(why))
        };
        answer.partitions.into_iter().find(about).ok_or_else(missing)
    }

    /// The leader called the first offset out of range. Gone only if the log of the leader that metadata names from now on
    /// begins behind it.
    async fn prove_deleted(
        &self,
        run: &RunRequest,
        asked: Option<TopicId>,
        deadline: Instant,
    ) -> Result<RunAnswer, Error> {
        let topic = self.fresh(run, deadline).await?;
        let (leader, leader_epoch) = leader(run, &topic)?;
        let asking = |leader: BrokerId| format!("ListOffsets to broker {leader}");
        let pending = |why: String| Err(Error::new(asking(leader), ErrorKind::Pending(why)));
        if topic.id != asked {
            return pending("the topic was created again meanwhile".to_owned());
        }
        let (tp, lookup) = (run.partition.clone(), Lookup::OutOfRange);
        let wanted = offsets::Wanted { tp, leader_epoch, last_epoch: -1, lookup };
        let ends =
            offsets::ask(&self.cluster, leader, Lane::Coordination, self.isolation, vec![wanted]).await?;
        match ends.first() {
            Some(Ends::Found { earliest, .. }) if run.first < *earliest => {
                Ok(all_gone(run, *earliest - 1, Gone::BelowLogStart(*earliest)))
            }
            Some(Ends::Found { latest, .. }) if run.first >= *latest => {
                pending(format!("the log ends at offset {latest}"))
            }
            Some(Ends::Found { earliest, latest }) => {
                pending(format!("it is out of range, and the log holds {earliest} to {latest}"))
            }
            Some(Ends::Failed(code)) => Err(Error::broker(asking(leader), *code)),
            Some(Ends::Epoch { .. }) | None => pending("nothing is known about the log's ends".to_owned()),
        }
    }

    /// Metadata names another topic id. Gone only if it still does when asked again and the leader serves that topic.
    async fn prove_recreated(
        &self,
        run: &RunRequest,
        other: TopicId,
        deadline: Instant,
    ) -> Result<RunAnswer, Error> {
        let topic = self.fresh(run, deadline).await?;
        if other_topic(run, &topic) != Some(other) {
            let doing = format!("looking up topic {}", run.partition.topic);
            return Err(Error::broker(doing, ErrorCode::INCONSISTENT_TOPIC_ID));
        }
        // Leader epochs begin anew with the topic.
        let leader = leader(&RunRequest { leader_epoch: -1, ..run.clone() }, &topic)?;
        let data = self.fetch(run, leader, Some(other), run.max_bytes).await?;
        match data.error {
            ErrorCode::NONE | ErrorCode::OFFSET_OUT_OF_RANGE => {
                Ok(all_gone(run, run.last, Gone::Recreated(other)))
            }
            code => Err(Error::broker(asking(leader.0), code)),
        }
    }

    /// The topic as a broker describes it in an answer to a question of now.
    async fn fresh(&self, run: &RunRequest, deadline: Instant) -> Result<Arc<TopicMetadata>, Error> {
        self.cluster.refresh(deadline).await?;
        self.cluster.topic(&run.partition.topic, deadline).await
    }
}

fn asking(leader: BrokerId) -> String {
    format!("Fetch to broker {leader}")
}

/// The id of another topic that has the name now.
fn other_topic(run: &RunRequest, topic: &TopicMetadata) -> Option<TopicId> {
    topic.id.filter(|id| run.topic_id.is_some_and(|wanted| wanted != *id))
}

/// Who leads the partition, and since which epoch: never one before the record's own.
fn leader(run: &RunRequest, topic: &TopicMetadata) -> Result<(BrokerId, LeaderEpoch), Error> {
    let refused = |code| Error::broker(format!("looking up the leader of {}", run.partition), code);
    let row = topic.partition(run.partition.partition);
    let row = row.ok_or_else(|| refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))?;
    let leader = row.leader.ok_or_else(|| refused(ErrorCode::LEADER_NOT_AVAILABLE))?;
    if row.leader_epoch >= 0 && run.leader_epoch > row.leader_epoch {
        return Err(refused(ErrorCode::UNKNOWN_LEADER_EPOCH));
    }
    Ok((leader, row.leader_epoch))
}

/// No offset of the run up to `last` has a record.
fn all_gone(run: &RunRequest, last: Offset, gone: Gone) -> RunAnswer {
    RunAnswer { records: Vec::new(), next: run.last.min(last).saturating_add(1), gone }
}
