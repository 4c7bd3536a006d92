//! Who leads a partition, and where does reading begin? Positions that are not known are looked up, one request for each broker.

use std::collections::BTreeMap;
use std::time::Duration;

use prosody_base::Instant;

use super::{Driver, Event};
use crate::cluster::{Lane, Metadata};
use crate::error::Error;
use crate::fetch::buffer::{Part, Queued, ReaderId};
use crate::fetch::cursor::Lookup;
use crate::fetch::offsets::{self, Ends};
use crate::proto::Disposition;
use crate::types::{BrokerId, LeaderEpoch};

/// How long a partition may be without a leader before the log is told: an election takes less.
const LEADERLESS: Duration = Duration::from_secs(10);

/// Lookups of positions that one broker may have from us at once. Partitions are opened one after the other: a second one
/// need not wait for the answer to the first.
pub(super) const LOOKUPS: u8 = 4;

impl Driver {
    /// Looks up the positions that are not known, one request for each broker.
    pub(super) fn resolve(&mut self, now: Instant) {
        let mut wanted: BTreeMap<BrokerId, Vec<(ReaderId, Lookup, offsets::Wanted)>> = BTreeMap::new();
        {
            let state = self.shared.state();
            for (id, part) in state.parts.iter().filter(|(_, part)| !part.resolving) {
                if let (Some(lookup), Some(leader)) = (part.cursor.lookup(), part.leader)
                    && part.retry_at.is_none_or(|at| at <= now)
                {
                    let wanted_part = offsets::Wanted {
                        tp: part.tp.clone(),
                        leader_epoch: part.leader_epoch,
                        last_epoch: part.cursor.last_epoch(),
                        lookup,
                    };
                    wanted.entry(leader).or_default().push((*id, lookup, wanted_part));
                }
            }
        }
        for (id, wanted) in wanted {
            let broker = self.brokers.entry(id).or_default();
            if broker.resolving >= LOOKUPS || broker.retry_at.is_some_and(|at| at > now) {
                continue;
            }
            broker.resolving += 1;
            // Where heartbeats go they are waited for. The lane of fetches is needed next, and free but for polls.
            let lane = if broker.polling { Lane::Coordination } else { Lane::Fetch };
            let asked: Vec<(ReaderId, Lookup, LeaderEpoch)> =
                wanted.iter().map(|(id, lookup, part)| (*id, *lookup, part.leader_epoch)).collect();
            {
                let mut state = self.shared.state();
                for (id, ..) in &asked {
                    if let Some(part) = state.parts.get_mut(id) {
                        part.resolving = true;
                    }
                }
            }
            let parts = wanted.into_iter().map(|(_, _, part)| part).collect::<Vec<_>>();
            let isolation = self.shared.config.isolation;
            self.spawn(move |cluster| async move {
                let result = offsets::ask(&cluster, id, lane, isolation, parts).await;
                Event::Offsets { broker: id, asked, result }
            });
        }
    }

    pub(super) fn found(
        &mut self,
        now: Instant,
        id: BrokerId,
        asked: &[(ReaderId, Lookup, LeaderEpoch)],
        result: Result<Vec<Ends>, Error>,
    ) {
        let failures = self.brokers.get(&id).map_or(0, |broker| broker.failures + 1);
        let wait = self.backoff(failures);
        let broker = self.brokers.entry(id).or_default();
        broker.resolving = broker.resolving.saturating_sub(1);
        {
            let mut state = self.shared.state();
            for (id, ..) in asked {
                if let Some(part) = state.parts.get_mut(id) {
                    part.resolving = false;
                }
            }
        }
        let ends = match result {
            Ok(ends) => {
                (broker.failures, broker.retry_at) = (0, None);
                ends
            }
            Err(error) => {
                tracing::debug!(%error, "positions are not known yet");
                (broker.failures, broker.retry_at) = (failures, Some(now + wait));
                self.shared.cluster.refresh_soon("ListOffsets failed");
                return;
            }
        };
        let mut refresh = false;
        let mut state = self.shared.state();
        for ((id, lookup, leader_epoch), ends) in asked.iter().zip(ends) {
            let Some(part) = state.parts.get_mut(id) else { continue };
            match ends {
                Ends::Found { earliest, latest } => {
                    let moved = part.cursor.found(*lookup, earliest, latest);
                    if moved.is_none() && *lookup == Lookup::OutOfRange {
                        // A replica that lags: give it time to catch up.
                        part.put_off(now, &self.shared.cluster);
                        continue;
                    }
                    (part.failures, part.retry_at) = (0, None);
                    if let Some(moved) = moved {
                        if matches!(lookup, Lookup::Recreated | Lookup::OtherLog) {
                            part.clear();
                        }
                        part.push(Queued::Moved(moved));
                    }
                }
                Ends::Epoch { epoch, end } => {
                    (part.failures, part.retry_at) = (0, None);
                    if let Some(moved) = part.cursor.epoch_ends(*leader_epoch, epoch, end) {
                        part.push(Queued::Moved(moved));
                    }
                }
                Ends::Failed(code) => {
                    refresh |= code.disposition() == Disposition::RefreshMetadata;
                    let doing = format!("looking up where to read {}", part.tp);
                    part.refused(now, code, Error::broker(doing, code), &self.shared.cluster);
                }
            }
        }
        drop(state);
        if refresh {
            self.shared.cluster.refresh_soon("ListOffsets named an old leader");
        }
    }
}

impl Part {
    pub(super) fn follow(&mut self, metadata: &Metadata) {
        let topic = metadata.topic(&self.tp.topic);
        let known = topic.and_then(|topic| topic.partition(self.tp.partition));
        let before = (self.leader, self.leader_epoch);
        self.leader = known.and_then(|known| known.leader);
        if let (Some(topic), Some(known)) = (topic, known) {
            self.leader_epoch = known.leader_epoch;
            if before != (self.leader, self.leader_epoch) {
                self.replica = None;
            }
            if self.topic_id != topic.id {
                self.topic_id = topic.id.or(self.topic_id);
                self.cursor.topic(topic.id);
                self.retry_at = None;
            }
        }
    }

    /// Says so, once, when it has had no leader for a while: a topic that is gone is not read, and nobody else would tell.
    pub(super) fn mind_leader(&mut self, now: Instant) {
        if self.leader.is_some() {
            (self.leaderless, self.leaderless_told) = (None, false);
        } else if now.saturating_duration_since(*self.leaderless.get_or_insert(now)) >= LEADERLESS
            && !std::mem::replace(&mut self.leaderless_told, true)
        {
            tracing::warn!(
                partition = %self.tp,
                "not read for {} s: it has no leader, or its topic is gone; reading goes on when it is back",
                LEADERLESS.as_secs()
            );
        }
    }
}
