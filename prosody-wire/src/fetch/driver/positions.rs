//! Where does reading begin? Positions that are not known are looked up, one request for each broker.

use std::collections::BTreeMap;

use prosody_base::Instant;

use super::{Driver, Event};
use crate::error::Error;
use crate::fetch::buffer::{Queued, ReaderId};
use crate::fetch::cursor::Lookup;
use crate::fetch::offsets::{self, Ends};
use crate::proto::Disposition;
use crate::types::BrokerId;

impl Driver {
    /// Looks up the positions that are not known, one request for each broker.
    pub(super) fn resolve(&mut self, now: Instant) {
        let mut wanted: BTreeMap<BrokerId, Vec<(ReaderId, Lookup, offsets::Wanted)>> = BTreeMap::new();
        {
            let state = self.shared.state();
            for (id, part) in &state.parts {
                if let (Some(lookup), Some(leader)) = (part.cursor.lookup(), part.leader)
                    && part.retry_at.is_none_or(|at| at <= now)
                {
                    let wanted_part =
                        offsets::Wanted { tp: part.tp.clone(), leader_epoch: part.leader_epoch, lookup };
                    wanted.entry(leader).or_default().push((*id, lookup, wanted_part));
                }
            }
        }
        for (id, wanted) in wanted {
            let broker = self.brokers.entry(id).or_default();
            if broker.resolving || broker.retry_at.is_some_and(|at| at > now) {
                continue;
            }
            broker.resolving = true;
            let asked = wanted.iter().map(|(id, lookup, _)| (*id, *lookup)).collect();
            let parts = wanted.into_iter().map(|(_, _, part)| part).collect::<Vec<_>>();
            let isolation = self.shared.config.isolation;
            self.spawn(move |cluster| async move {
                let result = offsets::ask(&cluster, id, isolation, parts).await;
                Event::Offsets { broker: id, asked, result }
            });
        }
    }

    pub(super) fn found(
        &mut self,
        now: Instant,
        id: BrokerId,
        asked: &[(ReaderId, Lookup)],
        result: Result<Vec<Ends>, Error>,
    ) {
        let failures = self.brokers.get(&id).map_or(0, |broker| broker.failures + 1);
        let wait = self.backoff(failures);
        let broker = self.brokers.entry(id).or_default();
        broker.resolving = false;
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
        let limits = self.shared.cluster.limits().clone();
        let mut refresh = false;
        let mut state = self.shared.state();
        for ((id, lookup), ends) in asked.iter().zip(ends) {
            let Some(part) = state.parts.get_mut(id) else { continue };
            match ends {
                Ends::Found { earliest, latest } => {
                    (part.failures, part.retry_at) = (0, None);
                    match part.cursor.found(*lookup, earliest, latest) {
                        Some(moved) => {
                            part.clear();
                            part.push(Queued::Moved(moved));
                        }
                        // A replica that lags: give it time to catch up.
                        None if *lookup == Lookup::OutOfRange => part.retry_at = Some(now + limits.backoff),
                        None => {}
                    }
                }
                Ends::Failed(code) => {
                    refresh |= code.disposition() == Disposition::RefreshMetadata;
                    let doing = format!("looking up where to read {}", part.tp);
                    part.refused(now, code, Error::broker(doing, code), &limits);
                }
            }
        }
        drop(state);
        if refresh {
            self.shared.cluster.refresh_soon("ListOffsets named an old leader");
        }
    }
}
