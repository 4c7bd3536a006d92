//! Which broker is asked, over which lane, when one in particular or any will do?

use std::sync::Arc;

use prosody_base::sabotaged;

use super::Inner;
use super::lanes::{Address, Dial, Lane, Reach, Target, outcome};
use crate::conn::Connection;
use crate::error::{Error, ErrorKind};
use crate::proto::{ApiKey, ErrorCode};
use crate::types::BrokerId;

/// Requests that may wait at the broker for minutes and hold up everything behind them.
const LONG_REQUESTS: &[ApiKey] = &[ApiKey::JoinGroup, ApiKey::SyncGroup];

impl Inner {
    pub(super) fn address(&self, broker: BrokerId) -> Option<Address> {
        let known = self.metadata.borrow();
        known.brokers.get(&broker).map(|node| (Arc::clone(&node.host), node.port))
    }

    pub(super) async fn connection(&self, broker: BrokerId, lane: Lane) -> Result<Connection, Error> {
        let Some(address) = self.address(broker) else {
            self.ask();
            let doing = format!("connecting to broker {broker}, which metadata does not know");
            return Err(Error::broker(doing, ErrorCode::BROKER_NOT_AVAILABLE));
        };
        match self.lanes.reach(Target::Broker(broker), lane, &address) {
            Reach::Open(connection) => Ok(connection),
            Reach::Dialing(dial) => {
                let result = outcome(dial).await;
                if result.is_err() {
                    self.ask(); // the broker may have moved
                }
                result
            }
        }
    }

    pub(super) async fn short(&self, broker: BrokerId) -> Result<Connection, Error> {
        let connection = self.connection(broker, Lane::Coordination).await?;
        if connection.has_open(LONG_REQUESTS) {
            return self.connection(broker, Lane::Produce).await;
        }
        Ok(connection)
    }

    pub(super) async fn any(&self) -> Result<Connection, Error> {
        let brokers: Vec<(Target, Address)> = {
            let known = self.metadata.borrow();
            let nodes = known.brokers.values();
            nodes.map(|node| (Target::Broker(node.id), (Arc::clone(&node.host), node.port))).collect()
        };
        let seeds = self.seeds.iter().enumerate().map(|(at, address)| (Target::Seed(at), address.clone()));
        let mut candidates = self.rotated(brokers);
        if candidates.is_empty() || !sabotaged("rebootstrap") {
            candidates.extend(self.rotated(seeds.collect()));
        }
        for (target, address) in &candidates {
            for lane in [Lane::Coordination, Lane::Produce] {
                if let Some(connection) = self.lanes.open(*target, lane, address)
                    && !connection.has_open(LONG_REQUESTS)
                {
                    return Ok(connection);
                }
            }
        }
        self.first_to_answer(candidates).await
    }

    /// A refusal for good (a certificate, TLS on one side only) is the error when nobody answers: it is definite, and what
    /// the others said is not.
    ///
    /// Dials one candidate after the other; the next starts when the last failed or took its share of time, and the
    /// first that answers wins. So a broker that swallows packets costs its share, not the whole connect timeout.
    async fn first_to_answer(&self, candidates: Vec<(Target, Address)>) -> Result<Connection, Error> {
        let mut finished = self.lanes.finished.subscribe();
        let mut dials: Vec<Dial> = Vec::new();
        let mut tried = Vec::new();
        let mut refused = None;
        let mut candidates = candidates.into_iter();
        loop {
            let next = candidates.next();
            let more = next.is_some();
            if let Some((target, address)) = next {
                // A connection that is busy with a long request does not answer; use the lane beside it.
                let busy = |lane| {
                    let open = self.lanes.open(target, lane, &address);
                    open.is_some_and(|connection| connection.has_open(LONG_REQUESTS))
                };
                let lane = if busy(Lane::Coordination) { Lane::Produce } else { Lane::Coordination };
                match self.lanes.reach(target, lane, &address) {
                    Reach::Open(connection) => return Ok(connection),
                    Reach::Dialing(dial) => dials.push(dial),
                }
            }
            let share = self.doors.clock.now() + self.config.limits.dial_stagger;
            loop {
                finished.borrow_and_update();
                let mut open = Vec::with_capacity(dials.len());
                for dial in dials.drain(..) {
                    let result = dial.borrow().clone();
                    match result {
                        Some(Ok(connection)) => return Ok(connection),
                        Some(Err(error)) => {
                            tried.push(error.to_string());
                            refused = refused.or_else(|| error.is_refusal().then_some(error));
                        }
                        None if dial.has_changed().is_err() => {}
                        None => open.push(dial),
                    }
                }
                dials = open;
                if dials.is_empty() {
                    break;
                }
                let waited = if more {
                    self.doors.clock.until(share, finished.changed()).await.is_err()
                } else {
                    let _ = finished.changed().await;
                    false
                };
                if waited {
                    break;
                }
            }
            if !more && dials.is_empty() {
                let nobody = || Error::new("looking for a broker", ErrorKind::Unreachable { tried });
                return Err(refused.unwrap_or_else(nobody));
            }
        }
    }

    fn rotated<T>(&self, mut items: Vec<T>) -> Vec<T> {
        let by = self.doors.rng.below(u64::try_from(items.len()).unwrap_or(0));
        items.rotate_left(usize::try_from(by).unwrap_or(0));
        items
    }
}
