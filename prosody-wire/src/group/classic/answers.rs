//! What does each answer of the coordinator mean?

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use prosody_base::{Instant, sabotaged};

use super::assignors::{Assignor, Member};
use super::machine::{LEADER_PATIENCE, Machine, Phase, UNKNOWN_COUNT};
use crate::error::{DecodeError, Error, ErrorKind};
use crate::group::assignment::{decode_assignment, encode_assignment};
use crate::group::calls::{Answer, Asked, CallId, Effect, Identity, Joined, Offsets, Pending};
use crate::group::config::GroupProtocol;
use crate::group::core::{FIRST_BEAT, Membership, REFUSED_PAUSE};
use crate::group::outbox::Notice;
use crate::group::remedy::Remedy;
use crate::group::subscription::Subscription;
use crate::proto::ErrorCode;
use crate::types::Topic;

impl Machine {
    pub(super) fn take_answer(&mut self, now: Instant, id: CallId, result: Result<Answer, Error>) {
        if let Some(pending) = self.core.calls.remove(&id) {
            match (&pending.asked, result) {
                (Asked::Join, Ok(Answer::MemberId(member_id))) => self.named(now, &pending, member_id),
                (Asked::Join, Ok(Answer::Joined(joined))) => self.joined(now, pending.sent, joined),
                (Asked::Sync, Ok(Answer::Synced(assignment))) => self.synced(now, pending.sent, &assignment),
                (Asked::Join | Asked::Sync, Err(why)) => self.join_failed(now, &pending, why),
                (Asked::Heartbeat, Ok(_)) => {
                    self.proved_alive(pending.sent);
                    self.calm = self.calm.max(pending.sent);
                }
                (Asked::Heartbeat, Err(why)) => {
                    if Remedy::of(&why) == Remedy::Join {
                        self.proved_alive(pending.sent);
                    }
                    self.take_error(now, &why, &pending.identity);
                    if matches!(Remedy::of(&why), Remedy::Find | Remedy::Wait) {
                        let pause = self.core.backoff_after(self.core.attempts);
                        self.next_heartbeat = self.next_heartbeat.min(now + pause);
                    }
                }
                (Asked::Offsets(asked), Ok(Answer::Offsets(offsets))) => {
                    self.offsets(now, *asked, Ok(offsets), &pending.identity);
                }
                (Asked::Offsets(asked), Err(why)) => self.offsets(now, *asked, Err(why), &pending.identity),
                (Asked::Leave, Err(why)) if Remedy::of(&why) == Remedy::Find => {
                    let _ = self.core.lose_coordinator(now, pending.identity.finding);
                }
                (Asked::Leave, _) => self.phase = Phase::Ended,
                (Asked::Join | Asked::Sync, Ok(_)) => self.go_out(now + REFUSED_PAUSE),
                (Asked::Offsets(_), Ok(_)) => self.core.offsets_at = now + REFUSED_PAUSE,
                (Asked::Beat(_) | Asked::SessionTimeout, _) => {}
            }
        }
    }

    fn offsets(&mut self, now: Instant, asked: u64, result: Result<Offsets, Error>, sender: &Identity) {
        if let Some(why) = self.core.offsets(now, asked, result) {
            self.core.offsets_failed(now, &why, sender);
        }
    }

    pub(super) fn take_error(&mut self, now: Instant, why: &Error, sender: &Identity) -> bool {
        // While a JoinGroup is open its completion may overtake other answers: those speak of the generation before.
        let current = sender.generation == self.generation && sender.member_id == self.member_id;
        match Remedy::of(why) {
            Remedy::Join => {
                if current && matches!(self.phase, Phase::Stable) {
                    self.rejoin(now);
                } else if current && matches!(self.phase, Phase::Syncing(None)) {
                    // A newer rebalance ends every SyncGroup of this generation: what did not hear of that was lost.
                    self.go_out(now);
                }
            }
            Remedy::NewMember if sender.member_id == self.member_id => {
                self.member_id.clear();
                self.lose(why.clone());
                // An open JoinGroup of the unknown member is answered with the same error.
                if !matches!(self.phase, Phase::Joining) {
                    self.go_out(now);
                }
                return true;
            }
            Remedy::NewGeneration if current && matches!(self.phase, Phase::Stable) => {
                self.lose(why.clone());
                self.go_out(now);
                return true;
            }
            Remedy::NewMember | Remedy::NewGeneration => {}
            Remedy::End => {
                self.fence(why.clone());
                return true;
            }
            Remedy::Find => {
                let was_ours = self.core.lose_coordinator(now, sender.finding);
                // The old coordinator may never answer what it holds of ours.
                if was_ours && matches!(self.phase, Phase::Joining | Phase::Syncing(_)) {
                    self.go_out(now);
                }
            }
            Remedy::Wait => {
                self.core.attempts = self.core.attempts.saturating_add(1);
            }
            Remedy::Report => self.core.tell(Notice::Failed(why.clone())),
        }
        false
    }

    /// The leader divides the partitions it knows and sends everybody's share.
    pub(super) fn divide(&mut self) {
        let Phase::Leading { protocol, members, .. } = &self.phase else { return };
        let wanted = members.iter().flat_map(|member| &member.subscription.topics);
        // A topic that is not known counts as having no partitions; when it appears, that is a change.
        let counts: BTreeMap<Topic, i32> =
            wanted.map(|topic| (topic.clone(), self.counts.get(topic).copied().unwrap_or(0))).collect();
        let protocol = *protocol;
        let shares = protocol.assign(members, &counts, &self.racks);
        let shares =
            shares.into_iter().map(|(member, partitions)| (member, encode_assignment(&partitions))).collect();
        self.led_by_racks = self.racks.of(counts.keys());
        self.led = Some(counts);
        self.phase = Phase::Syncing(Some((protocol, shares)));
    }

    fn named(&mut self, now: Instant, pending: &Pending, member_id: String) {
        // Asked for an id, got one: no failure. A broker that gives none out, or renames a member that has one, must not
        // make us spin.
        let is_given = pending.identity.member_id.is_empty() && !member_id.is_empty();
        let pause = if is_given { Duration::ZERO } else { self.core.pause() };
        self.member_id = member_id;
        self.go_out(now + pause);
    }

    fn joined(&mut self, now: Instant, sent: Instant, joined: Joined) {
        self.member_id = joined.member_id;
        self.generation = joined.generation;
        self.next_heartbeat = now + self.core.config.heartbeat_interval;
        self.proved_alive(sent);
        let named = Assignor::named(&joined.protocol).filter(|one| self.core.config.assignors.contains(one));
        let Some(protocol) = named else {
            let doing = format!("joining group {}", self.core.config.group_id);
            let ours: Vec<_> = self.core.config.assignors.iter().map(|one| one.name()).collect();
            let why = format!(
                "the group uses the protocol {:?}, this member offers {}",
                joined.protocol,
                ours.join(", ")
            );
            self.core.tell(Notice::Failed(Error::new(doing, ErrorKind::Config(why))));
            self.go_out(now + REFUSED_PAUSE);
            return;
        };
        if joined.leader != self.member_id {
            self.phase = Phase::Syncing(Some((protocol, Vec::new())));
            return;
        }
        let members: Vec<Member> =
            joined.members.into_iter().map(|member| self.read_member(member)).collect();
        if joined.skip_assignment {
            let topics = members.iter().flat_map(|member| member.subscription.topics.iter());
            let by = |topic: &Topic| self.counts.get(topic).copied().unwrap_or(UNKNOWN_COUNT);
            self.led_by_racks = self.racks.of(topics.clone());
            self.led = Some(topics.map(|topic| (topic.clone(), by(topic))).collect());
            self.phase = Phase::Syncing(Some((protocol, Vec::new())));
            return;
        }
        self.phase = Phase::Leading { until: now + LEADER_PATIENCE, protocol, members };
        let unknown: Vec<Topic> =
            self.interest().into_iter().filter(|topic| !self.counts.contains_key(topic)).collect();
        if unknown.is_empty() {
            self.divide();
        } else {
            self.core.out.push_back(Effect::Resolve(unknown));
        }
    }

    /// A member whose subscription cannot be read gets nothing; the group goes on without it.
    fn read_member(&mut self, (id, instance_id, metadata): (String, Option<String>, Bytes)) -> Member {
        let subscription = Subscription::decode(&metadata).unwrap_or_else(|why| {
            let doing =
                format!("reading the subscription of member {id} of group {}", self.core.config.group_id);
            self.core.tell(Notice::Failed(Error::decode(doing, DecodeError::Body(why.to_string()))));
            Subscription::default()
        });
        Member { id, instance_id, subscription }
    }

    fn synced(&mut self, now: Instant, sent: Instant, assignment: &[u8]) {
        self.proved_alive(sent);
        let mut assigned = match decode_assignment(assignment) {
            Ok(assigned) => assigned,
            Err(why) => {
                let doing = format!("reading our assignment in group {}", self.core.config.group_id);
                self.core.tell(Notice::Failed(Error::decode(doing, DecodeError::Body(why.to_string()))));
                self.go_out(now + REFUSED_PAUSE);
                return;
            }
        };
        // A leader of another make may give us what we never asked for.
        assigned.retain(|one| self.subscribed.binary_search(&one.topic).is_ok());
        self.held_generation = self.generation;
        self.calm = self.calm.max(sent);
        self.core.attempts = 0;
        self.beat = FIRST_BEAT;
        self.next_heartbeat = now + self.core.config.heartbeat_interval.min(FIRST_BEAT);
        self.rejoin_when_drained = self.claimed.iter().any(|one| assigned.binary_search(one).is_err());
        self.phase = Phase::Stable;
        self.core.look_again(now);
        self.core.reconcile(now, assigned, now + self.core.config.drain_time());
    }

    fn join_failed(&mut self, now: Instant, pending: &Pending, why: Error) {
        let pause = match Remedy::of(&why) {
            Remedy::NewMember => {
                if pending.identity.member_id == self.member_id {
                    self.member_id.clear();
                }
                self.lose(why);
                self.core.pause()
            }
            Remedy::NewGeneration => {
                self.lose(why);
                self.core.pause()
            }
            Remedy::End => return self.fence(why),
            Remedy::Find => {
                let _ = self.core.lose_coordinator(now, pending.identity.finding);
                Duration::ZERO
            }
            Remedy::Join | Remedy::Wait => self.core.pause(),
            Remedy::Report => {
                if why.code() != Some(ErrorCode::INCONSISTENT_GROUP_PROTOCOL) || sabotaged("offers-named") {
                    self.core.pause_after(&why)
                } else {
                    if self.core.config.protocol == GroupProtocol::Auto {
                        // Perhaps it has members of the consumer protocol now.
                        self.core.out.push_back(Effect::Switch(now + REFUSED_PAUSE));
                    }
                    let why = self.name_offers(&why);
                    self.core.pause_after(&why)
                }
            }
        };
        self.go_out(now + pause);
    }

    /// The broker does not say what is wrong; what the group divides by was asked for where it is known.
    fn name_offers(&self, why: &Error) -> Error {
        let ours: Vec<_> = self.core.config.assignors.iter().map(|one| one.name()).collect();
        why.clone().during(&format!(
            "this member offers {}; the members of the group have none of these in common, or speak the consumer protocol",
            ours.join(", ")
        ))
    }

    fn proved_alive(&mut self, sent: Instant) {
        self.core.alive = self.core.alive.max(sent);
        if matches!(self.phase, Phase::Stable) {
            self.core.attempts = 0;
        }
    }
}
