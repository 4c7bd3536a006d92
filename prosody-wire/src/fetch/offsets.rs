//! Where does a partition's log begin and end, and where an epoch in it? ListOffsets and OffsetForLeaderEpoch, for the
//! partitions of one broker at once.

use std::collections::BTreeMap;

use super::cursor::Lookup;
use crate::cluster::{Cluster, Lane};
use crate::error::Error;
use crate::proto::{ApiKey, ErrorCode, messages, topic_name, topic_of};
use crate::types::{BrokerId, IsolationLevel, TopicPartition};

/// Timestamps that stand for the ends of the log.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

/// A partition to look up.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) tp: TopicPartition,
    pub(crate) leader_epoch: i32,
    /// The epoch of the last batch that was read.
    pub(crate) last_epoch: i32,
    pub(crate) lookup: Lookup,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Both ends where both were asked for, else the one asked for twice.
    Found {
        earliest: i64,
        latest: i64,
    },
    /// The largest epoch of the log that is not above the one asked for, and the offset behind it.
    Epoch {
        epoch: i32,
        end: i64,
    },
    Failed(ErrorCode),
}

/// Asks `broker`, in the order of `wanted`; over the lane of fetches, or any that is free.
pub(crate) async fn ask(
    cluster: &Cluster,
    broker: BrokerId,
    lane: Lane,
    isolation: IsolationLevel,
    wanted: Vec<Wanted>,
) -> Result<Vec<Ends>, Error> {
    let needs = |timestamp: i64| {
        move |wanted: &&Wanted| match wanted.lookup {
            Lookup::Latest => timestamp == LATEST,
            Lookup::OutOfRange => true,
            Lookup::Earliest | Lookup::Recreated | Lookup::OtherLog => timestamp == EARLIEST,
            Lookup::Epoch => false,
        }
    };
    // Whether a position lies in the log is a question of all its records, committed or not.
    let plain = wanted.iter().any(|wanted| wanted.lookup == Lookup::OutOfRange);
    let isolation = if plain { IsolationLevel::ReadUncommitted } else { isolation };
    let earliest =
        one_end(cluster, broker, lane, isolation, EARLIEST, wanted.iter().filter(needs(EARLIEST))).await?;
    let latest =
        one_end(cluster, broker, lane, isolation, LATEST, wanted.iter().filter(needs(LATEST))).await?;
    let epochs =
        epoch_ends(cluster, broker, wanted.iter().filter(|wanted| wanted.lookup == Lookup::Epoch)).await?;
    let ends = wanted.iter().map(|wanted| {
        if wanted.lookup == Lookup::Epoch {
            return epochs
                .get(&wanted.tp)
                .copied()
                .unwrap_or(Ends::Failed(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        }
        let missing = || Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        let (first, last) = (earliest.get(&wanted.tp).copied(), latest.get(&wanted.tp).copied());
        let both = match wanted.lookup {
            Lookup::Latest => (last, last),
            Lookup::OutOfRange => (first, last),
            Lookup::Earliest | Lookup::Recreated | Lookup::OtherLog | Lookup::Epoch => (first, first),
        };
        match (both.0.unwrap_or_else(missing), both.1.unwrap_or_else(missing)) {
            (Ok(earliest), Ok(latest)) => Ends::Found { earliest, latest },
            (Err(code), _) | (_, Err(code)) => Ends::Failed(code),
        }
    });
    Ok(ends.collect())
}

async fn one_end<'a>(
    cluster: &Cluster,
    broker: BrokerId,
    lane: Lane,
    isolation: IsolationLevel,
    timestamp: i64,
    wanted: impl Iterator<Item = &'a Wanted>,
) -> Result<BTreeMap<TopicPartition, Result<i64, ErrorCode>>, Error> {
    let mut topics: BTreeMap<&str, Vec<messages::list_offsets_request::ListOffsetsPartition>> =
        BTreeMap::new();
    for Wanted { tp, leader_epoch, .. } in wanted {
        let partition = messages::list_offsets_request::ListOffsetsPartition::default()
            .with_partition_index(tp.partition)
            .with_current_leader_epoch(*leader_epoch)
            .with_timestamp(timestamp);
        topics.entry(&tp.topic).or_default().push(partition);
    }
    if topics.is_empty() {
        return Ok(BTreeMap::new());
    }
    let topics = topics.into_iter().map(|(topic, partitions)| {
        messages::list_offsets_request::ListOffsetsTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(partitions)
    });
    let request = messages::ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_isolation_level(match isolation {
            IsolationLevel::ReadUncommitted => 0,
            IsolationLevel::ReadCommitted => 1,
        })
        .with_topics(topics.collect());
    let connection = match lane {
        Lane::Fetch => cluster.connection(broker, lane).await?,
        _ => cluster.short(broker).await?,
    };
    let response = connection.call(&request, cluster.limits().request_timeout).await?;
    let mut found = BTreeMap::new();
    for topic in &response.topics {
        let name = topic_of(&topic.name);
        for partition in &topic.partitions {
            let end = ErrorCode::check(partition.error_code).map(|()| partition.offset);
            found.insert(TopicPartition::new(name.clone(), partition.partition_index), end);
        }
    }
    Ok(found)
}

/// Where the epochs of the last batches end. A broker that cannot say contradicts nothing.
async fn epoch_ends<'a>(
    cluster: &Cluster,
    broker: BrokerId,
    wanted: impl Iterator<Item = &'a Wanted>,
) -> Result<BTreeMap<TopicPartition, Ends>, Error> {
    use messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
    let wanted: Vec<&Wanted> = wanted.collect();
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let connection = cluster.short(broker).await?;
    if connection.version(ApiKey::OffsetForLeaderEpoch).is_none() {
        let kept =
            |wanted: &Wanted| (wanted.tp.clone(), Ends::Epoch { epoch: wanted.last_epoch, end: i64::MAX });
        return Ok(wanted.into_iter().map(kept).collect());
    }
    let mut topics: BTreeMap<&str, Vec<OffsetForLeaderPartition>> = BTreeMap::new();
    for Wanted { tp, leader_epoch, last_epoch, .. } in wanted {
        let partition = OffsetForLeaderPartition::default()
            .with_partition(tp.partition)
            .with_current_leader_epoch(*leader_epoch)
            .with_leader_epoch(*last_epoch);
        topics.entry(&tp.topic).or_default().push(partition);
    }
    let topics = topics.into_iter().map(|(topic, partitions)| {
        OffsetForLeaderTopic::default().with_topic(topic_name(topic)).with_partitions(partitions)
    });
    let request = messages::OffsetForLeaderEpochRequest::default()
        .with_replica_id((-1).into())
        .with_topics(topics.collect());
    let response = connection.call(&request, cluster.limits().request_timeout).await?;
    let mut found = BTreeMap::new();
    for topic in &response.topics {
        let name = topic_of(&topic.topic);
        for partition in &topic.partitions {
            let ends = match ErrorCode::check(partition.error_code) {
                Ok(()) => Ends::Epoch { epoch: partition.leader_epoch, end: partition.end_offset },
                Err(code) => Ends::Failed(code),
            };
            found.insert(TopicPartition::new(name.clone(), partition.partition), ends);
        }
    }
    Ok(found)
}
