//! How do calls and answers travel between the members and the coordinator? Slowly, and not always.

use std::time::Duration;

use prosody_base::Instant;
use prosody_testkit::broker::group::modern as broker;

use super::world::{REBALANCE, TIMES, World};
use crate::error::{Error, ErrorKind};
use crate::group::calls::{Answer, Beaten, Call, CallId, Effect, Places};
use crate::group::core::{Known, Membership};
use crate::group::event::AssignmentEpoch;
use crate::group::outbox::Notice;
use crate::proto::ErrorCode;
use crate::types::{TopicId, TopicPartition};

/// The longest a message is under way in a bad network, in milliseconds.
pub(super) const SLOW: u64 = 2_000;

#[derive(Debug)]
pub(super) enum What {
    Request { id: CallId, call: Call, broker: u64 },
    Response { id: CallId, result: Result<Answer, Error> },
    Found { broker: u64 },
    Metadata,
    Acknowledge { ticket: u64, partitions: Vec<(TopicPartition, AssignmentEpoch)> },
}

#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) node: usize,
    pub(super) life: u64,
    pub(super) what: What,
}

impl World {
    pub(super) fn carry_out(&mut self, at: usize, effect: Effect) {
        match effect {
            Effect::Find => {
                let broker = self.broker;
                self.post(at, What::Found { broker });
            }
            Effect::Forget => self.believes[at] = None,
            Effect::Refresh(_) => self.post(at, What::Metadata),
            Effect::Send { id, call } => {
                self.note(format!("node {at} sends {id:?} {call:?}"));
                let Some(broker) = self.believes[at] else {
                    panic!("node {at} sends to a coordinator that was not found\n{}", self.story());
                };
                if self.chance() {
                    self.post(at, What::Response { id, result: Err(cut()) });
                } else {
                    self.post(at, What::Request { id, call, broker });
                }
            }
            Effect::Tell(notice) => self.tell(at, notice),
            Effect::Resolve(_) | Effect::Look | Effect::Switch(_) => {
                panic!("{effect:?} of a member that may not switch")
            }
        }
    }

    pub(super) fn tell(&mut self, at: usize, notice: Notice) {
        self.note(format!("node {at} hears {notice:?}"));
        let revoked = match &notice {
            Notice::Revoke { deadline, partitions, .. } => {
                let core = &self.nodes[at].machine.core;
                let epoch =
                    |one: &TopicPartition| core.owned_since(one).expect("announced until acknowledged");
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
            self.post_at(deadline, at, What::Acknowledge { ticket: 0, partitions });
        }
    }

    /// The reader reads, sometimes.
    pub(super) fn read(&mut self, at: usize) {
        if self.nodes[at].stopped_until.is_some() || (self.faults > 0 && self.rng.below(4) == 0) {
            return;
        }
        self.nodes[at].lost_unread.clear();
        while let Some(notice) = self.nodes[at].outbox.pop() {
            match notice {
                Notice::Assigned { partitions, epoch } => {
                    self.nodes[at].works_on.extend(partitions.into_iter().map(|one| (one.tp, epoch)));
                }
                Notice::Lost { partitions, .. } => {
                    self.nodes[at].works_on.retain(|one, _| !partitions.contains(one));
                }
                Notice::Revoke { ticket, partitions, deadline } => {
                    let never = self.faults > 0 && self.rng.below(20) == 0;
                    let longest = if self.faults > 0 { self.rng.below(70_000) } else { 20 };
                    let when = self.now + Duration::from_millis(longest);
                    let works_on = &self.nodes[at].works_on;
                    let epoch = |one| works_on.get(&one).map(|epoch| (one, *epoch));
                    let partitions = partitions.into_iter().filter_map(epoch).collect();
                    if !never && when < deadline {
                        self.post_at(when, at, What::Acknowledge { ticket, partitions });
                    }
                }
                Notice::Failed(why) if why.code() == Some(ErrorCode::UNRELEASED_INSTANCE_ID) => {}
                Notice::Failed(why) => panic!("nothing here needs a person: {why}\n{}", self.story()),
            }
        }
    }

    pub(super) fn deliver(&mut self, delivery: Delivery) {
        let Delivery { node, life, what } = delivery;
        if let What::Request { id, call, broker } = what {
            let result = self.serve(node, call, broker);
            let result = if self.chance() { Err(cut()) } else { result };
            let when = self.later();
            self.post_as(when, Delivery { node, life, what: What::Response { id, result } });
            return;
        }
        if life != self.nodes[node].life {
            return;
        }
        if self.nodes[node].stopped_until.is_some() {
            // A stopped process finds its messages when it runs again.
            self.nodes[node].inbox.push(Delivery { node, life, what });
            return;
        }
        match what {
            What::Request { .. } => {}
            What::Response { id, result } => {
                self.note(format!("node {node} gets {id:?} {result:?}"));
                self.with(node, |machine, now| machine.answered(now, id, result));
            }
            What::Found { broker } => {
                let result = if self.chance() { Err(cut()) } else { Ok(()) };
                if result.is_ok() {
                    self.believes[node] = Some(broker);
                }
                self.with(node, |machine, now| machine.found(now, result));
            }
            What::Metadata => self.tell_metadata(node),
            What::Acknowledge { ticket, partitions } => {
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

    pub(super) fn serve(&mut self, node: usize, call: Call, broker: u64) -> Result<Answer, Error> {
        let refuse = |code| Err(Error::broker("asking", ErrorCode(code)));
        if broker != self.broker {
            return refuse(ErrorCode::NOT_COORDINATOR.0);
        }
        if self.chance() {
            return refuse([7, 14, 15, 16][usize::try_from(self.rng.below(4)).expect("small")]);
        }
        match call {
            Call::Beat(beat) => {
                let owned = beat.owned.map(|owned| {
                    owned
                        .into_iter()
                        .flat_map(|(id, some)| some.into_iter().map(move |one| (id.0, one)))
                        .collect()
                });
                let beat = broker::Beat {
                    member_id: beat.member_id,
                    epoch: beat.epoch,
                    instance: self.nodes[node].instance.clone(),
                    rebalance_timeout: beat.full.is_some().then_some(REBALANCE),
                    topics: beat.full.is_some().then(|| ["a", "b"].map(str::to_owned).into()),
                    owned,
                    ..broker::Beat::default()
                };
                match self.group.heartbeat(beat, &self.catalog, TIMES, self.now) {
                    Ok(beaten) => Ok(Answer::Beaten(Beaten {
                        epoch: beaten.epoch,
                        interval: TIMES.heartbeat,
                        assignment: beaten.assignment.map(|places| {
                            let mut named = Places::new();
                            for (id, partition) in places {
                                named.entry(TopicId(id)).or_default().push(partition);
                            }
                            named
                        }),
                    })),
                    Err((code, _)) => refuse(code),
                }
            }
            Call::Offsets { partitions, member } => {
                let (id, epoch) = member.expect("members say who they are");
                match self.group.read(Some(&id), epoch) {
                    Ok(()) => {
                        Ok(Answer::Offsets(partitions.into_iter().map(|one| (one, Ok(None))).collect()))
                    }
                    Err(code) => refuse(code),
                }
            }
            Call::SessionTimeout => Ok(Answer::SessionTimeout(Some(TIMES.session))),
            other => panic!("{other:?} of a member of the new protocol"),
        }
    }

    pub(super) fn tell_metadata(&mut self, at: usize) {
        if self.nodes[at].stopped_until.is_some() {
            return;
        }
        let known = |(topic, (id, count)): (&String, &([u8; 16], i32))| {
            (topic.as_str().into(), Known { id: Some(TopicId(*id)), partitions: *count, ..Known::default() })
        };
        let topics = self.catalog.iter().map(known).collect();
        self.with(at, |machine, now| machine.metadata(now, &topics));
    }

    pub(super) fn chance(&mut self) -> bool {
        self.faults > 0 && self.rng.below(100) < self.faults
    }

    pub(super) fn later(&mut self) -> Instant {
        let slow = self.chance();
        self.now + Duration::from_millis(1 + if slow { self.rng.below(SLOW) } else { self.rng.below(3) })
    }

    pub(super) fn post(&mut self, node: usize, what: What) {
        let when = self.later();
        self.post_at(when, node, what);
    }

    pub(super) fn post_at(&mut self, when: Instant, node: usize, what: What) {
        let life = self.nodes[node].life;
        self.post_as(when, Delivery { node, life, what });
    }

    pub(super) fn post_as(&mut self, when: Instant, delivery: Delivery) {
        self.sequence += 1;
        self.queue.insert((when, self.sequence), delivery);
    }
}

fn cut() -> Error {
    Error::new("asking the coordinator", ErrorKind::Closed("the connection broke"))
}
