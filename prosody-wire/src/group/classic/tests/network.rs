//! How do calls and answers travel between the members and the model coordinator? Slowly, and not always.

use std::time::Duration;

use prosody_base::Instant;

use super::coordinator::Due;
use super::world::{Node, World};
use crate::error::{Error, ErrorKind};
use crate::group::calls::{Answer, Call, CallId, Effect};
use crate::group::classic::machine::Machine;
use crate::group::core::Membership;
use crate::group::event::AssignmentEpoch;
use crate::group::outbox::Notice;
use crate::proto::ErrorCode;
use crate::types::TopicPartition;

/// The longest a message is under way in a bad network, in milliseconds.
pub(super) const SLOW: u64 = 2_000;

pub(super) enum Delivery {
    Request { node: usize, life: u64, id: CallId, call: Call, broker: u64 },
    Response { node: usize, life: u64, id: CallId, result: Result<Answer, Error> },
    Found { node: usize, life: u64, broker: u64 },
    Resolved { node: usize, life: u64 },
    Acknowledge { node: usize, life: u64, ticket: u64, partitions: Vec<(TopicPartition, AssignmentEpoch)> },
}

impl World {
    pub(super) fn carry_out(&mut self, at: usize, effect: Effect) {
        let life = self.nodes[at].life;
        match effect {
            Effect::Find => {
                let broker = self.broker;
                let when = self.later();
                self.post(when, Delivery::Found { node: at, life, broker });
            }
            Effect::Forget => self.believes[at] = None,
            Effect::Send { id, call } => {
                self.note(format!("node {at} sends {id:?} {call:?}"));
                let Some(broker) = self.believes[at] else {
                    panic!("node {at} sends to a coordinator that was not found\n{}", self.story());
                };
                let mut when = self.later();
                if matches!(call, Call::Join { .. } | Call::Sync { .. }) {
                    let before = self.nodes[at].coordination.filter(|(to, _)| *to == broker);
                    when = before.map_or(when, |(_, last)| when.max(last));
                    self.nodes[at].coordination = Some((broker, when));
                }
                if self.chance() {
                    // Lost before the broker saw it.
                    self.post(when, Delivery::Response { node: at, life, id, result: Err(cut()) });
                } else {
                    self.post(when, Delivery::Request { node: at, life, id, call, broker });
                }
            }
            Effect::Refresh(_) | Effect::Look | Effect::Switch(_) => panic!("{effect:?} of a classic member"),
            Effect::Resolve(_) => {
                let when = self.later();
                self.post(when, Delivery::Resolved { node: at, life });
            }
            Effect::Tell(notice) => {
                self.note(format!("node {at} hears {notice:?}"));
                let revoked = match &notice {
                    Notice::Revoke { deadline, partitions, .. } => {
                        let machine = &self.nodes[at].machine;
                        let epoch = |one: &TopicPartition| {
                            machine.core().owned_since(one).expect("announced until acknowledged")
                        };
                        Some((*deadline, partitions.iter().map(|one| (one.clone(), epoch(one))).collect()))
                    }
                    Notice::Lost { partitions, .. } => {
                        self.nodes[at].lost_unread.extend(partitions.iter().cloned());
                        None
                    }
                    _ => None,
                };
                if let Some(needless) = self.nodes[at].outbox.push(notice) {
                    self.with(at, |machine, now| machine.acknowledged(now, needless));
                } else if let Some((deadline, partitions)) = revoked {
                    // At the deadline the reader stops by itself, acknowledged or not.
                    self.post(deadline, Delivery::Acknowledge { node: at, life, ticket: 0, partitions });
                }
            }
        }
    }

    pub(super) fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Request { node, life, id, call, broker } => {
                let code = if broker != self.broker {
                    Some(ErrorCode::NOT_COORDINATOR)
                } else if self.chance() {
                    let codes = [
                        ErrorCode::NOT_COORDINATOR,
                        ErrorCode::COORDINATOR_NOT_AVAILABLE,
                        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
                        ErrorCode::REQUEST_TIMED_OUT,
                    ];
                    codes.get(usize::try_from(self.rng.below(4)).expect("small")).copied()
                } else {
                    None
                };
                if let Some(code) = code {
                    let when = self.later();
                    let result = Err(Error::broker("asking", code));
                    return self.post(when, Delivery::Response { node, life, id, result });
                }
                self.next_waiting += 1;
                let waiting = (node, self.next_waiting);
                self.waiting.insert(waiting, (life, id));
                let mut due = Due::new();
                self.coordinator.serve(self.now, waiting, &call, &mut due);
                self.answer(due);
            }
            _ if delivery.is_stale(&self.nodes) => {}
            // A stopped process finds its messages when it runs again.
            _ if self.nodes[delivery.node()].stopped_until.is_some() => {
                let node = delivery.node();
                self.nodes[node].inbox.push(delivery);
            }
            Delivery::Response { node, id, result, .. } => {
                self.note(format!("node {node} gets {id:?} {result:?}"));
                self.with(node, |machine, now| machine.answered(now, id, result));
            }
            Delivery::Found { node, broker, .. } => {
                let result = if self.chance() { Err(cut()) } else { Ok(()) };
                if result.is_ok() {
                    self.believes[node] = Some(broker);
                }
                self.with(node, |machine, now| machine.found(now, result));
            }
            Delivery::Resolved { node, .. } => {
                self.tell_metadata(node);
                self.with(node, Machine::resolved);
            }
            Delivery::Acknowledge { node, ticket, partitions, .. } => {
                self.with(node, |machine, now| machine.tick(now));
                // What a later assignment brought back is worked on anew.
                let works_on = &mut self.nodes[node].works_on;
                for (partition, epoch) in partitions {
                    if works_on.get(&partition) == Some(&epoch) {
                        works_on.remove(&partition);
                    }
                }
                self.with(node, |machine, now| machine.acknowledged(now, ticket));
            }
        }
    }

    pub(super) fn answer(&mut self, due: Due) {
        for (waiting, result) in due {
            let Some((life, id)) = self.waiting.remove(&waiting) else { continue };
            let result = if self.chance() { Err(cut()) } else { result };
            let when = self.later();
            self.post(when, Delivery::Response { node: waiting.0, life, id, result });
        }
    }

    pub(super) fn chance(&mut self) -> bool {
        self.faults > 0 && self.rng.below(100) < self.faults
    }

    pub(super) fn later(&mut self) -> Instant {
        let slow = self.chance();
        self.now + Duration::from_millis(1 + if slow { self.rng.below(SLOW) } else { self.rng.below(3) })
    }

    pub(super) fn post(&mut self, at: Instant, delivery: Delivery) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), delivery);
    }
}

impl Delivery {
    pub(super) fn node(&self) -> usize {
        match self {
            Delivery::Request { node, .. }
            | Delivery::Response { node, .. }
            | Delivery::Found { node, .. }
            | Delivery::Resolved { node, .. }
            | Delivery::Acknowledge { node, .. } => *node,
        }
    }

    pub(super) fn is_stale(&self, nodes: &[Node]) -> bool {
        match self {
            Delivery::Request { life, .. }
            | Delivery::Response { life, .. }
            | Delivery::Found { life, .. }
            | Delivery::Resolved { life, .. }
            | Delivery::Acknowledge { life, .. } => *life != nodes[self.node()].life,
        }
    }
}

fn cut() -> Error {
    Error::new("asking the model coordinator", ErrorKind::Closed("the connection broke"))
}
