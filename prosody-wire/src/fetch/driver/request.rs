//! What goes into the next request to a broker, and how is it sent?

use std::sync::Arc;

use prosody_base::Instant;

use super::{Asked, Kind, Reply};
use crate::cluster::{Cluster, Lane};
use crate::error::Error;
use crate::fetch::buffer::{Part, ReaderId, State};
use crate::fetch::plan::expanded;
use crate::fetch::session::{Key, Params, SessionRequest};
use crate::fetch::wire::{self, Ask, TOPIC_IDS};
use crate::proto::ApiKey;
use crate::types::BrokerId;

/// What buffered compressed bytes will need beyond the bytes counted already.
pub(super) fn extra(state: &State) -> usize {
    let more = |part: &Part| expanded(part.queued, part.percent).saturating_sub(part.queued);
    state.parts.values().map(more).sum()
}

/// The partitions for the next request.
pub(super) struct Choice {
    pub(super) asked: Vec<(Asked, Params)>,
    /// How far their batches expand.
    pub(super) percent: usize,
    /// What is free of their shares.
    pub(super) room: usize,
    /// Some of them shall not be redirected to a follower.
    pub(super) leader_alone: bool,
    /// The next records of one of them are there: the broker does not wait for any.
    pub(super) prompt: bool,
}

/// Begins behind `turn`, so that every partition comes first at times. With a `cap`, partitions whose next records are
/// there are taken until as many bytes are asked for.
pub(super) fn choose(
    state: &State,
    broker: BrokerId,
    kind: Kind,
    now: Instant,
    turn: ReaderId,
    share: usize,
    cap: Option<usize>,
) -> Choice {
    let (mut percent, mut room, mut leader_alone, mut due) = (100, 0usize, false, 0usize);
    let mut asked: Vec<(Asked, Params)> = Vec::new();
    let (before, after) =
        (state.parts.range(..=turn), state.parts.range(turn..).filter(|(id, _)| **id != turn));
    for (id, part) in after.chain(before) {
        let is_behind = part.is_behind();
        let taken = match kind {
            Kind::Poll => false,
            Kind::Look => part.looked,
            Kind::Next => part.looked || !is_behind,
        };
        let waits = part.retry_at.is_some_and(|at| at > now);
        if part.source(now) != Some(broker) || waits || taken || part.full || part.asked {
            continue;
        }
        let Some(offset) = part.cursor.position() else { continue };
        // Never more than its share at a time, whatever it may hold: others wait for the same memory.
        let held = part.bytes();
        let free = part.limit.saturating_sub(held).min(share.saturating_sub(held).max(share / 2));
        // Half of its share at a time, where that is more; of a distant broker, all that is free of it.
        let bytes = if cap.is_some() { free } else { share / 2 };
        if is_behind && cap.is_some_and(|cap| due > 0 && due.saturating_add(bytes) > cap) {
            continue;
        }
        due += if is_behind { bytes } else { 0 };
        percent = percent.max(part.percent);
        leader_alone |= part.is_leader_alone(now);
        room = room.saturating_add(free);
        let key =
            Key { topic: Arc::clone(&part.tp.topic), topic_id: part.topic_id, partition: part.tp.partition };
        let params = Params {
            offset,
            leader_epoch: part.leader_epoch,
            last_epoch: part.cursor.last_epoch(),
            max_bytes: part.max_bytes.max(bytes * 100 / part.percent.max(100)),
        };
        asked.push((Asked { id: *id, key, offset, leader_epoch: part.leader_epoch }, params));
    }
    Choice { asked, percent, room, leader_alone, prompt: due > 0 }
}

pub(super) async fn send(
    cluster: &Cluster,
    id: BrokerId,
    kind: Kind,
    ask: Ask<'_>,
    with_ids: bool,
    request: &SessionRequest,
) -> Result<Reply, Error> {
    let connection = match kind {
        Kind::Poll | Kind::Next => cluster.connection(id, Lane::Fetch).await?,
        Kind::Look => cluster.short(id).await?,
    };
    let spoken = connection.require(ApiKey::Fetch)?;
    let version = if with_ids { spoken } else { spoken.min(TOPIC_IDS - 1) };
    let timeout = cluster.limits().request_timeout + ask.max_wait;
    let body =
        connection.call_raw(ApiKey::Fetch, version, wire::request(version, ask, request), timeout).await?;
    Ok(Reply { version, body, connection })
}
