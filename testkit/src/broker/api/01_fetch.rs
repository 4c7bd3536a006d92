//! API 1, Fetch: versions 4–17.
//!
//! Long poll, sessions (KIP-227), topic ids (13), leader epochs and truncation (KIP-320), read_committed, leader hints
//! (KIP-951). Whole batches only; the first batch of an answer is returned whatever its size. In clusters with racks
//! followers serve consumers, and leaders name the one in the reader's rack (KIP-392); they are never behind.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::fetch_request::FetchRequest;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::sessions::{Plan, Sessions, Told, TopicKey, Wanted};
use crate::broker::storage::{Aborted, LogEnd, Segments};
use crate::broker::topics::{Partition, Topic, lock};
use crate::broker::{ApiKey, code};

#[path = "01_fetch_response.rs"]
mod response;

use self::response::{Piece, write};

pub(super) struct Fetch;

/// What a fetch asks of all its partitions together.
#[derive(Clone, Copy)]
struct Ask<'a> {
    max_bytes: usize,
    committed_only: bool,
    incremental: bool,
    by_id: bool,
    rack: &'a str,
}

/// A partition of the plan with what it names.
struct Target {
    key: (TopicKey, i32),
    wanted: Wanted,
    told: Option<Told>,
    topic: Option<Arc<Topic>>,
    partition: Option<Arc<Partition>>,
}

impl Api for Fetch {
    const KEY: ApiKey = ApiKey::FETCH;
    const VERSIONS: RangeInclusive<i16> = 4..=17;
    type Request = FetchRequest;

    fn scope(call: &Call, request: &FetchRequest, scope: &mut Scope) {
        for topic in &request.topics {
            let key = key(call, topic.topic.as_str(), topic.topic_id.as_bytes());
            for partition in &topic.partitions {
                scope.partition(&name(call, &key), partition.partition);
            }
        }
        if let Some(sessions) = sessions(call)
            && request.session_epoch > 0
        {
            for (key, partition) in lock(&sessions).partitions(request.session_id) {
                scope.partition(&name(call, &key), partition);
            }
        }
    }

    async fn serve(call: &Call, request: FetchRequest) -> Result<Answer, Refused> {
        let Some(sessions) = sessions(call) else { return Err(Refused) };
        let top_level = call.fault.as_ref().map(|fault| fault.code).filter(|code| {
            let of_sessions = [
                code::FETCH_SESSION_ID_NOT_FOUND,
                code::INVALID_FETCH_SESSION_EPOCH,
                code::FETCH_SESSION_TOPIC_ID_ERROR,
            ];
            of_sessions.contains(code)
        });
        let plan = match top_level {
            Some(code) => Err(code),
            None => plan(call, &sessions, &request),
        };
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                let mut out = Segments::default();
                write(call, &mut out, call.noted(error), 0, Vec::new());
                return Ok(Some(out));
            }
        };
        let ask = Ask {
            max_bytes: usize::try_from(request.max_bytes).unwrap_or(0).min(call.shared.limits().fetch_bytes),
            committed_only: request.isolation_level == 1,
            incremental: plan.incremental,
            by_id: call.version >= 13,
            rack: if call.version >= 11 { request.rack_id.as_str() } else { "" },
        };
        let targets: Vec<Target> = plan.partitions.into_iter().map(|planned| target(call, planned)).collect();
        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
        let deadline = call.shared.doors.clock.now() + wait.min(call.shared.limits().fetch_wait);
        let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0);
        loop {
            let read = read(call, &targets, ask);
            let now = call.shared.doors.clock.now();
            if read.bytes >= min_bytes || read.failed || targets.is_empty() || now >= deadline {
                if plan.session != 0 {
                    lock(&sessions).answered(plan.session, &read.said);
                }
                let mut out = Segments::default();
                write(call, &mut out, code::NONE, plan.session, read.pieces);
                return Ok(Some(out));
            }
            // Whatever was appended since `read` is seen: partitions are asked again after they know whom to wake.
            for target in &targets {
                if let Some(partition) = &target.partition {
                    partition.lock().wait(call.connection, &call.waiter);
                }
            }
            if !changed(&targets, &read.ends) {
                let _ = call.shared.doors.clock.until(deadline, call.waiter.notified()).await;
            }
        }
    }
}

fn sessions(call: &Call) -> Option<Arc<std::sync::Mutex<Sessions>>> {
    lock(&call.shared.brokers).get(&call.broker).map(|broker| Arc::clone(&broker.sessions))
}

fn key(call: &Call, name: &str, id: &[u8; 16]) -> TopicKey {
    if call.version >= 13 {
        TopicKey { id: *id, name: String::new() }
    } else {
        TopicKey { id: [0; 16], name: name.to_owned() }
    }
}

fn name(call: &Call, key: &TopicKey) -> String {
    if key.name.is_empty() {
        call.shared.topic_by_id(&key.id).map_or_else(String::new, |topic| topic.name.as_ref().to_owned())
    } else {
        key.name.clone()
    }
}

fn plan(call: &Call, sessions: &std::sync::Mutex<Sessions>, request: &FetchRequest) -> Result<Plan, i16> {
    let mut listed = Vec::new();
    for topic in &request.topics {
        let key = key(call, topic.topic.as_str(), topic.topic_id.as_bytes());
        for partition in &topic.partitions {
            let wanted = Wanted {
                offset: partition.fetch_offset,
                max_bytes: partition.partition_max_bytes,
                leader_epoch: if call.version >= 9 { partition.current_leader_epoch } else { -1 },
                last_fetched_epoch: if call.version >= 12 { partition.last_fetched_epoch } else { -1 },
            };
            listed.push((key.clone(), partition.partition, wanted));
        }
    }
    let mut forgotten = Vec::new();
    for topic in &request.forgotten_topics_data {
        let key = key(call, topic.topic.as_str(), topic.topic_id.as_bytes());
        forgotten.extend(topic.partitions.iter().map(|partition| (key.clone(), *partition)));
    }
    let mut sessions = lock(sessions);
    let (id, epoch) = if call.version >= 7 { (request.session_id, request.session_epoch) } else { (0, -1) };
    let mut new_id = 0;
    while epoch == 0 && (new_id == 0 || sessions.contains(new_id)) {
        new_id = i32::try_from(call.shared.doors.rng.below(i32::MAX as u64)).unwrap_or(0);
    }
    sessions.plan((id, epoch), call.version >= 13, listed, &forgotten, new_id)
}

fn target(call: &Call, planned: (TopicKey, i32, Wanted, Option<Told>)) -> Target {
    let (key, index, wanted, told) = planned;
    let topic =
        if key.name.is_empty() { call.shared.topic_by_id(&key.id) } else { call.shared.topic(&key.name) };
    let partition = topic.as_ref().and_then(|topic| topic.partition(index));
    Target { key: (key, index), wanted, told, topic, partition }
}

/// One pass over all partitions.
struct Read {
    pieces: Vec<Piece>,
    said: Vec<(TopicKey, i32, Told, bool)>,
    ends: Vec<Option<(i32, i32, LogEnd)>>,
    bytes: usize,
    failed: bool,
}

fn read(call: &Call, targets: &[Target], ask: Ask<'_>) -> Read {
    let mut read = Read {
        pieces: Vec::new(),
        said: Vec::with_capacity(targets.len()),
        ends: Vec::with_capacity(targets.len()),
        bytes: 0,
        failed: false,
    };
    for target in targets {
        let (piece, seen) = match one(call, target, ask, read.bytes) {
            Ok((piece, seen)) => (piece, Some(seen)),
            Err(piece) => (*piece, None),
        };
        read.ends.push(seen);
        read.bytes += piece.bytes();
        read.failed |= piece.error != code::NONE || piece.diverging.is_some() || piece.preferred.is_some();
        let told = Told { high_watermark: piece.ends.end, start: piece.ends.start };
        let (key, index) = &target.key;
        let news = piece.bytes() > 0
            || piece.error != code::NONE
            || piece.diverging.is_some()
            || piece.preferred.is_some()
            || target.told != Some(told);
        if piece.error == code::NONE {
            read.said.push((key.clone(), *index, told, piece.bytes() > 0));
        }
        if news || !ask.incremental {
            read.pieces.push(piece);
        }
    }
    read
}

type Seen = (i32, i32, LogEnd);

fn one(call: &Call, target: &Target, ask: Ask<'_>, taken: usize) -> Result<(Piece, Seen), Box<Piece>> {
    let (key, index) = &target.key;
    let failed = |error: i16| Box::new(Piece::failed(key.clone(), *index, call.noted(error)));
    let Some(topic) = &target.topic else {
        return Err(failed(if ask.by_id {
            code::UNKNOWN_TOPIC_ID
        } else {
            code::UNKNOWN_TOPIC_OR_PARTITION
        }));
    };
    if let Some(error) = call.fault_at(&topic.name, *index) {
        return Err(failed(error));
    }
    let Some(partition) = &target.partition else { return Err(failed(code::UNKNOWN_TOPIC_OR_PARTITION)) };
    let inner = partition.lock();
    let wanted = &target.wanted;
    let hint = (inner.leader, inner.epoch);
    let stale = |error| {
        let mut piece = failed(error);
        piece.leader = Some(hint);
        piece
    };
    let replicas = call.shared.replicas(*index, topic.replication);
    let config = &call.shared.config;
    let serves_followers = call.version >= 11 && !config.racks.is_empty() && inner.leader != -1;
    if inner.leader != call.broker && !(serves_followers && replicas.contains(&call.broker)) {
        return Err(stale(code::NOT_LEADER_OR_FOLLOWER));
    }
    if wanted.leader_epoch != -1 && wanted.leader_epoch < inner.epoch {
        return Err(stale(code::FENCED_LEADER_EPOCH));
    }
    if wanted.leader_epoch > inner.epoch {
        return Err(failed(code::UNKNOWN_LEADER_EPOCH));
    }
    let ends = inner.log.ends();
    let mut piece = Piece::empty(key.clone(), *index, ends);
    let seen = (inner.leader, inner.epoch, ends);
    if wanted.last_fetched_epoch >= 0 {
        let (epoch, end) = inner.log.epoch_end(wanted.last_fetched_epoch);
        if epoch == -1 {
            let mut piece = failed(code::OFFSET_OUT_OF_RANGE);
            piece.ends = ends;
            return Err(piece);
        }
        if epoch != wanted.last_fetched_epoch || end < wanted.offset {
            piece.diverging = Some((epoch, end));
            return Ok((piece, seen));
        }
    }
    if wanted.offset < ends.start || wanted.offset > ends.end {
        let mut piece = failed(code::OFFSET_OUT_OF_RANGE);
        piece.ends = ends;
        return Err(piece);
    }
    if inner.leader == call.broker && !ask.rack.is_empty() && config.rack(call.broker) != Some(ask.rack) {
        let alive = call.shared.alive();
        let near = |broker: &&i32| config.rack(**broker) == Some(ask.rack) && alive.contains(broker);
        if let Some(follower) = replicas.iter().find(near) {
            piece.preferred = Some(*follower);
            return Ok((piece, seen));
        }
    }
    let room = ask.max_bytes.saturating_sub(taken);
    let max_bytes = usize::try_from(wanted.max_bytes).unwrap_or(0).min(room);
    let limit = if ask.committed_only { ends.stable } else { ends.end };
    let run = inner.log.run(wanted.offset, limit, max_bytes, taken == 0);
    if ask.committed_only {
        piece.aborted = Some(inner.log.aborted(wanted.offset, run));
    }
    inner.log.write(run, &mut piece.records);
    Ok((piece, seen))
}

/// Whether a partition is not any more as it was read.
fn changed(targets: &[Target], ends: &[Option<Seen>]) -> bool {
    targets.iter().zip(ends).any(|(target, seen)| {
        let now = target.partition.as_ref().map(|partition| {
            let inner = partition.lock();
            (inner.leader, inner.epoch, inner.log.ends())
        });
        now != *seen
    })
}

/// Distinct leaders that an answer hints at.
fn hinted(pieces: &[Piece]) -> BTreeSet<i32> {
    pieces
        .iter()
        .filter_map(|piece| piece.leader)
        .map(|(leader, _)| leader)
        .filter(|leader| *leader >= 0)
        .collect()
}

/// Aborted transactions as the answer carries them; `None` outside read_committed.
type AbortedList = Option<Vec<Aborted>>;
