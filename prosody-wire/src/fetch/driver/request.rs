//! What goes into the next request to a broker, and how is it sent?

use std::sync::Arc;

use prosody_base::Instant;

use super::{Asked, Kind, Reply};
use crate::cluster::{Cluster, Lane};
use crate::error::Error;
use crate::fetch::buffer::{Part, State};
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
}

/// Begins at another partition each time.
pub(super) fn choose(
    state: &State,
    broker: BrokerId,
    kind: Kind,
    now: Instant,
    rotation: usize,
    share: usize,
) -> Choice {
    let (mut percent, mut room, mut leader_alone) = (100, 0usize, false);
    let mut asked = Vec::new();
    for (id, part) in &state.parts {
        let due = part.retry_at.is_none_or(|at| at <= now);
        let taken = part.full || part.asked || (kind == Kind::Look && part.looked);
        if part.source(now) != Some(broker) || !due || taken {
            continue;
        }
        let Some(offset) = part.cursor.position() else { continue };
        percent = percent.max(part.percent);
        leader_alone |= part.is_leader_alone(now);
        room = room.saturating_add(share.saturating_sub(part.bytes()));
        let key =
            Key { topic: Arc::clone(&part.tp.topic), topic_id: part.topic_id, partition: part.tp.partition };
        let params = Params {
            offset,
            leader_epoch: part.leader_epoch,
            last_epoch: part.cursor.last_epoch(),
            // Half of its share at a time, where that is more.
            max_bytes: part.max_bytes.max(share / 2 * 100 / part.percent.max(100)),
        };
        asked.push((Asked { id: *id, key, offset, leader_epoch: part.leader_epoch }, params));
    }
    let count = asked.len().max(1);
    asked.rotate_left(rotation % count);
    Choice { asked, percent, room, leader_alone }
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
        Kind::Poll => cluster.connection(id, Lane::Fetch).await?,
        Kind::Look => cluster.short(id).await?,
    };
    let spoken = connection.require(ApiKey::Fetch)?;
    let version = if with_ids { spoken } else { spoken.min(TOPIC_IDS - 1) };
    let timeout = cluster.limits().request_timeout + ask.max_wait;
    let body =
        connection.call_raw(ApiKey::Fetch, version, wire::request(version, ask, request), timeout).await?;
    Ok(Reply { version, body, connection })
}
