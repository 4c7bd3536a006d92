//! What does each answer of the coordinator mean?

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use prosody_base::{Instant, sabotaged};

use super::assignors::{Assignor, Member};
use super::calls::{Answer, Asked, CallId, Identity, Joined, Pending, Phase};
use super::machine::{FIRST_BEAT, LEADER_PATIENCE, Machine, REFUSED_PAUSE, UNKNOWN_COUNT};
use crate::error::{DecodeError, Error, ErrorKind};
use crate::group::assignment::{decode_assignment, encode_assignment};
use crate::group::event::{AssignedPartition, CommittedOffset};
use crate::group::outbox::Notice;
use crate::group::subscription::Subscription;
use crate::proto::{Disposition, ErrorCode};
use crate::types::{Topic, TopicPartition};

/// What an error asks of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Find the coordinator again.
    Find,
    /// The same again, later.
    Wait,
    /// The group is rebalancing: join it.
    Join,
    /// The coordinator does not know us.
    NewMember,
    /// Another generation came without us.
    NewGeneration,
    /// Somebody else runs with our instance id.
    End,
    /// Tell the reader; try again much later.
    Report,
}

impl Remedy {
    pub(crate) fn of(error: &Error) -> Remedy {
        match error.code() {
            Some(ErrorCode::UNKNOWN_MEMBER_ID) => Remedy::NewMember,
            Some(ErrorCode::ILLEGAL_GENERATION) => Remedy::NewGeneration,
            Some(ErrorCode::REBALANCE_IN_PROGRESS) => Remedy::Join,
            Some(ErrorCode::FENCED_INSTANCE_ID) => Remedy::End,
            Some(code) => match code.disposition() {
                Disposition::FindCoordinator => Remedy::Find,
                Disposition::Retry | Disposition::RefreshMetadata | Disposition::Rejoin => Remedy::Wait,
                Disposition::Fatal => Remedy::Report,
            },
            // No answer, or none that can be read: another connection, perhaps another broker.
            None if error.is_retriable() => Remedy::Find,
            None => Remedy::Report,
        }
    }
}

impl Machine {
    /// An answer came, or is known never to come. Answers to requests that were given up are ignored.
    pub(crate) fn answered(&mut self, now: Instant, id: CallId, result: Result<Answer, Error>) {
        if let Some(pending) = self.calls.remove(&id) {
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
                    self.member_error(now, &why, &pending.identity);
                    if matches!(Remedy::of(&why), Remedy::Find | Remedy::Wait) {
                        let pause = self.backoff_after(self.attempts);
                        self.next_heartbeat = self.next_heartbeat.min(now + pause);
                    }
                }
                (Asked::Offsets(asked), Ok(Answer::Offsets(offsets))) => {
                    self.offsets(now, *asked, offsets, &pending.identity)
                }
                (Asked::Offsets(asked), Err(_)) if sabotaged("group-offset-error") => {
                    let rows = self.holdings.fetching().1.into_iter().map(|tp| (tp, Ok(None)));
                    self.offsets(now, *asked, rows.collect(), &pending.identity);
                }
                (Asked::Offsets(_), Err(why)) => self.offsets_failed(now, &why, &pending.identity),
                (Asked::Leave, Err(why)) if Remedy::of(&why) == Remedy::Find => {
                    let _ = self.lose_coordinator(now, pending.identity.finding);
                }
                (Asked::Leave, _) => self.phase = Phase::Ended,
                (Asked::Join | Asked::Sync, Ok(_)) => self.go_out(now + REFUSED_PAUSE),
                (Asked::Offsets(_), Ok(_)) => self.offsets_at = now + REFUSED_PAUSE,
            }
        }
        self.tick(now);
    }

    /// A heartbeat or a commit, sent as `sender`, was refused. Says whether the sender's membership is over.
    pub(crate) fn member_error(&mut self, now: Instant, why: &Error, sender: &Identity) -> bool {
        // While a JoinGroup is open its completion may overtake other answers: those speak of the generation before.
        let current = sender.generation == self.generation && sender.member_id == self.member_id;
        match Remedy::of(why) {
            Remedy::Join => {
                if current && matches!(self.phase, Phase::Stable) {
                    self.rejoin(now);
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
                let was_ours = self.lose_coordinator(now, sender.finding);
                // The old coordinator may never answer what it holds of ours.
                if was_ours
                    && why.code().is_some()
                    && matches!(self.phase, Phase::Joining | Phase::Syncing(_))
                {
                    self.go_out(now);
                }
            }
            Remedy::Wait => {
                self.attempts = self.attempts.saturating_add(1);
            }
            Remedy::Report => self.tell(Notice::Failed(why.clone())),
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
        let shares = protocol.assign(members, &counts);
        let shares =
            shares.into_iter().map(|(member, partitions)| (member, encode_assignment(&partitions))).collect();
        self.led = Some(counts);
        self.phase = Phase::Syncing(Some((protocol, shares)));
    }

    fn named(&mut self, now: Instant, pending: &Pending, member_id: String) {
        // Asked for an id, got one: no failure. A broker that renames a member that has an id must not make us spin.
        let pause = if pending.identity.member_id.is_empty() { Duration::ZERO } else { self.pause() };
        self.member_id = member_id;
        self.go_out(now + pause);
    }

    fn joined(&mut self, now: Instant, sent: Instant, joined: Joined) {
        self.member_id = joined.member_id;
        self.generation = joined.generation;
        self.next_heartbeat = now + self.config.heartbeat_interval;
        self.proved_alive(sent);
        let named = Assignor::named(&joined.protocol).filter(|one| self.config.assignors.contains(one));
        let Some(protocol) = named else {
            let doing = format!("joining group {}", self.config.group_id);
            let ours: Vec<_> = self.config.assignors.iter().map(|one| one.name()).collect();
            let why = format!(
                "the group uses the protocol {:?}, this member offers {}",
                joined.protocol,
                ours.join(", ")
            );
            self.tell(Notice::Failed(Error::new(doing, ErrorKind::Config(why))));
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
            self.resolve(unknown);
        }
    }

    /// A member whose subscription cannot be read gets nothing; the group goes on without it.
    fn read_member(&mut self, (id, instance_id, metadata): (String, Option<String>, Bytes)) -> Member {
        let subscription = Subscription::decode(&metadata).unwrap_or_else(|why| {
            let doing = format!("reading the subscription of member {id} of group {}", self.config.group_id);
            self.tell(Notice::Failed(Error::decode(doing, DecodeError::Body(why.to_string()))));
            Subscription::default()
        });
        Member { id, instance_id, subscription }
    }

    fn synced(&mut self, now: Instant, sent: Instant, assignment: &[u8]) {
        self.proved_alive(sent);
        let mut assigned = match decode_assignment(assignment) {
            Ok(assigned) => assigned,
            Err(why) => {
                let doing = format!("reading our assignment in group {}", self.config.group_id);
                self.tell(Notice::Failed(Error::decode(doing, DecodeError::Body(why.to_string()))));
                self.go_out(now + REFUSED_PAUSE);
                return;
            }
        };
        // A leader of another make may give us what we never asked for.
        assigned.retain(|one| self.config.topics.binary_search(&one.topic).is_ok());
        self.held_generation = self.generation;
        self.calm = self.calm.max(sent);
        self.attempts = 0;
        self.beat = FIRST_BEAT;
        self.next_heartbeat = now + self.config.heartbeat_interval.min(FIRST_BEAT);
        self.offsets_at = now;
        self.rejoin_when_drained = self.claimed.iter().any(|one| assigned.binary_search(one).is_err());
        self.phase = Phase::Stable;
        let deadline = now + self.config.drain_time();
        if let Some((ticket, partitions)) = self.holdings.reconcile(assigned, deadline) {
            self.tell(Notice::Revoke { ticket, partitions, deadline });
        }
    }

    fn join_failed(&mut self, now: Instant, pending: &Pending, why: Error) {
        let pause = match Remedy::of(&why) {
            Remedy::NewMember => {
                if pending.identity.member_id == self.member_id {
                    self.member_id.clear();
                }
                self.lose(why);
                self.pause()
            }
            Remedy::NewGeneration => {
                self.lose(why);
                self.pause()
            }
            Remedy::End => return self.fence(why),
            Remedy::Find => {
                let _ = self.lose_coordinator(now, pending.identity.finding);
                Duration::ZERO
            }
            Remedy::Join | Remedy::Wait => self.pause(),
            Remedy::Report => {
                let why = if why.code() == Some(ErrorCode::INCONSISTENT_GROUP_PROTOCOL) {
                    self.name_both_sides(&why)
                } else {
                    why
                };
                self.pause_after(&why)
            }
        };
        self.go_out(now + pause);
    }

    /// The broker does not say what the others offer; saying what we offer is half the answer.
    fn name_both_sides(&self, why: &Error) -> Error {
        let ours: Vec<_> = self.config.assignors.iter().map(|one| one.name()).collect();
        why.clone().during(&format!(
            "this member offers {}; the members of the group have none of these in common",
            ours.join(", ")
        ))
    }

    fn offsets(
        &mut self,
        now: Instant,
        asked: u64,
        offsets: Vec<(TopicPartition, Result<Option<CommittedOffset>, Error>)>,
        sender: &Identity,
    ) {
        let mut known = Vec::new();
        let mut failed = None;
        for (tp, offset) in offsets {
            if !self.holdings.is_waiting(&tp, asked) {
                continue;
            }
            match offset {
                Ok(committed) => known.push(AssignedPartition { tp, committed }),
                Err(why) => failed = Some(why),
            }
        }
        if !known.is_empty() {
            let epoch = self.holdings.own(known.iter().map(|one| &one.tp));
            self.tell(Notice::Assigned { epoch, partitions: known });
        }
        match failed {
            Some(why) => self.offsets_failed(now, &why, sender),
            None => {
                self.offset_attempts = 0;
                // What the answer left out is asked for again, but not in a tight loop.
                let left_out = self.holdings.is_waiting_since(asked);
                self.offsets_at = if left_out { now + REFUSED_PAUSE } else { now };
            }
        }
    }

    /// No error ever means "nothing committed": the partition waits until its offset is known.
    fn offsets_failed(&mut self, now: Instant, why: &Error, sender: &Identity) {
        self.offset_attempts = self.offset_attempts.saturating_add(1);
        let mut pause = self.backoff_after(self.offset_attempts);
        match Remedy::of(why) {
            Remedy::Find => {
                let _ = self.lose_coordinator(now, sender.finding);
            }
            Remedy::Report => {
                self.tell(Notice::Failed(why.clone()));
                pause = REFUSED_PAUSE;
            }
            _ => {}
        }
        self.offsets_at = now + pause;
    }

    fn proved_alive(&mut self, sent: Instant) {
        self.alive = self.alive.max(sent);
        if matches!(self.phase, Phase::Stable) {
            self.attempts = 0;
        }
    }
}
