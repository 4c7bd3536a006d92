//! A classic group coordinator as a value: what a broker does, without network or time of its own. Written from the
//! protocol's documentation, not from the client.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use prosody_base::Instant;

use crate::error::Error;
use crate::group::calls::{Answer, Call, Joined};
use crate::group::event::CommittedOffset;
use crate::proto::ErrorCode;
use crate::types::TopicPartition;

/// A request that waits for the rest of the group: who asked, and its number there.
pub(super) type Waiting = (usize, u64);

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum State {
    #[default]
    Empty,
    Preparing,
    Completing,
    Stable,
}

#[derive(Debug)]
struct Member {
    metadata: Bytes,
    session_ends: Instant,
    joining: Option<Waiting>,
    syncing: Option<Waiting>,
    assignment: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Coordinator {
    state: State,
    pub(super) generation: i32,
    members: BTreeMap<String, Member>,
    /// Ids given out and not used yet.
    promised: BTreeMap<String, Instant>,
    leader: String,
    prepare_until: Option<Instant>,
    next_id: u64,
    pub(super) offsets: BTreeMap<TopicPartition, i64>,
    /// Members that were dropped because they did not rejoin in time, and when.
    pub(super) evicted: BTreeMap<String, Instant>,
    session: Duration,
    rebalance: Duration,
}

/// Answers that became due, each for one waiting request.
pub(super) type Due = Vec<(Waiting, Result<Answer, Error>)>;

fn refuse(code: ErrorCode) -> Result<Answer, Error> {
    Err(Error::broker("asking the model coordinator", code))
}

impl Coordinator {
    pub(super) fn new(session: Duration, rebalance: Duration) -> Coordinator {
        Coordinator { session, rebalance, ..Coordinator::default() }
    }

    /// Carries out a request; answers, its own and others', are appended to `due`.
    pub(super) fn serve(&mut self, now: Instant, from: Waiting, call: &Call, due: &mut Due) {
        let answer = match call {
            Call::Join { member_id, metadata, .. } => self.join(now, from, member_id, metadata, due),
            Call::Sync { member_id, generation, assignments, .. } => {
                self.sync(now, from, member_id, *generation, assignments, due)
            }
            Call::Heartbeat { member_id, generation } => Some(self.heartbeat(now, member_id, *generation)),
            Call::Leave { member_id } => {
                self.promised.remove(member_id);
                if self.members.remove(member_id).is_some() {
                    self.prepare(now, due);
                }
                Some(Ok(Answer::Left))
            }
            Call::Offsets { partitions, .. } => {
                let row = |tp: &TopicPartition| {
                    let offset = self.offsets.get(tp).copied();
                    let committed = offset.map(|offset| CommittedOffset {
                        offset,
                        leader_epoch: None,
                        metadata: String::new(),
                    });
                    (tp.clone(), Ok(committed))
                };
                Some(Ok(Answer::Offsets(partitions.iter().map(row).collect())))
            }
            Call::Beat(_) | Call::SessionTimeout => panic!("{call:?} of a classic member"),
        };
        if let Some(answer) = answer {
            due.push((from, answer));
        }
        self.progress(now, due);
    }

    /// Expires sessions and rebalances.
    pub(super) fn tick(&mut self, now: Instant, due: &mut Due) {
        self.promised.retain(|_, until| *until > now);
        let silent: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| {
                member.session_ends <= now && member.joining.is_none() && member.syncing.is_none()
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in &silent {
            self.members.remove(id);
        }
        if !silent.is_empty() {
            self.prepare(now, due);
        }
        self.progress(now, due);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let sessions =
            self.members.values().filter(|member| member.joining.is_none() && member.syncing.is_none());
        sessions.map(|member| member.session_ends).chain(self.prepare_until).min()
    }

    pub(super) fn is_stable(&self, members: usize) -> bool {
        self.state == State::Stable && self.members.len() == members
    }

    /// A new broker takes the group over: it knows what was stored, but whoever waited is told to look elsewhere.
    pub(super) fn moved(&mut self, now: Instant, due: &mut Due) {
        for member in self.members.values_mut() {
            member.session_ends = now + self.session;
            for waiting in [member.joining.take(), member.syncing.take()].into_iter().flatten() {
                due.push((waiting, refuse(ErrorCode::NOT_COORDINATOR)));
            }
        }
    }

    fn join(
        &mut self,
        now: Instant,
        from: Waiting,
        id: &str,
        metadata: &Bytes,
        due: &mut Due,
    ) -> Option<Result<Answer, Error>> {
        if id.is_empty() {
            self.next_id += 1;
            let id = format!("member-{:04}", self.next_id);
            self.promised.insert(id.clone(), now + self.session);
            return Some(Ok(Answer::MemberId(id)));
        }
        let is_new = self.promised.remove(id).is_some();
        if !is_new && !self.members.contains_key(id) {
            return Some(refuse(ErrorCode::UNKNOWN_MEMBER_ID));
        }
        let session_ends = now + self.session;
        let fresh = Member {
            metadata: metadata.clone(),
            session_ends,
            joining: None,
            syncing: None,
            assignment: Bytes::new(),
        };
        let member = self.members.entry(id.to_owned()).or_insert(fresh);
        let unchanged = member.metadata == metadata;
        member.metadata.clone_from(metadata);
        member.session_ends = session_ends;
        let repeats = match self.state {
            State::Stable => unchanged && id != self.leader,
            State::Completing => unchanged,
            State::Empty | State::Preparing => false,
        };
        if repeats && !is_new {
            return Some(Ok(Answer::Joined(self.joined(id))));
        }
        // A second JoinGroup of a member replaces the first.
        let before = member.joining.replace(from);
        due.extend(before.map(|waiting| (waiting, refuse(ErrorCode::UNKNOWN_MEMBER_ID))));
        if self.state != State::Preparing {
            self.prepare(now, due);
        }
        None
    }

    fn sync(
        &mut self,
        now: Instant,
        from: Waiting,
        id: &str,
        generation: i32,
        assignments: &[(String, Bytes)],
        due: &mut Due,
    ) -> Option<Result<Answer, Error>> {
        let (state, current, session) = (self.state, self.generation, self.session);
        let Some(member) = self.members.get_mut(id) else {
            return Some(refuse(ErrorCode::UNKNOWN_MEMBER_ID));
        };
        if generation != current {
            return Some(refuse(ErrorCode::ILLEGAL_GENERATION));
        }
        match state {
            State::Empty => Some(refuse(ErrorCode::UNKNOWN_MEMBER_ID)),
            State::Preparing => Some(refuse(ErrorCode::REBALANCE_IN_PROGRESS)),
            State::Stable => {
                member.session_ends = now + session;
                Some(Ok(Answer::Synced(member.assignment.clone())))
            }
            State::Completing => {
                member.syncing = Some(from);
                if id == self.leader {
                    for (id, assignment) in assignments {
                        if let Some(member) = self.members.get_mut(id) {
                            member.assignment.clone_from(assignment);
                        }
                    }
                    self.state = State::Stable;
                    for member in self.members.values_mut() {
                        member.session_ends = now + session;
                        if let Some(waiting) = member.syncing.take() {
                            due.push((waiting, Ok(Answer::Synced(member.assignment.clone()))));
                        }
                    }
                }
                None
            }
        }
    }

    fn heartbeat(&mut self, now: Instant, id: &str, generation: i32) -> Result<Answer, Error> {
        let Some(member) = self.members.get_mut(id) else { return refuse(ErrorCode::UNKNOWN_MEMBER_ID) };
        if generation != self.generation {
            return refuse(ErrorCode::ILLEGAL_GENERATION);
        }
        member.session_ends = now + self.session;
        if self.state == State::Preparing {
            refuse(ErrorCode::REBALANCE_IN_PROGRESS)
        } else {
            Ok(Answer::Heartbeat)
        }
    }

    fn prepare(&mut self, now: Instant, due: &mut Due) {
        for member in self.members.values_mut() {
            due.extend(
                member.syncing.take().map(|waiting| (waiting, refuse(ErrorCode::REBALANCE_IN_PROGRESS))),
            );
        }
        self.state = if self.members.is_empty() { State::Empty } else { State::Preparing };
        self.prepare_until = (!self.members.is_empty()).then(|| now + self.rebalance);
    }

    /// Ends the joining phase when everybody is there or its time is up.
    fn progress(&mut self, now: Instant, due: &mut Due) {
        if self.state != State::Preparing {
            return;
        }
        let late = self.prepare_until.is_some_and(|until| until <= now);
        if !late && self.members.values().any(|member| member.joining.is_none()) {
            return;
        }
        for (id, _) in self.members.extract_if(.., |_, member| member.joining.is_none()) {
            self.evicted.insert(id, now);
        }
        self.prepare_until = None;
        if self.members.is_empty() {
            self.state = State::Empty;
            return;
        }
        self.generation += 1;
        self.state = State::Completing;
        if !self.members.contains_key(&self.leader) {
            self.leader = self.members.keys().next().cloned().unwrap_or_default();
        }
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let answer = Ok(Answer::Joined(self.joined(&id)));
            let session = self.session;
            if let Some(member) = self.members.get_mut(&id) {
                member.session_ends = now + session;
                member.assignment = Bytes::new();
                due.extend(member.joining.take().map(|waiting| (waiting, answer)));
            }
        }
    }

    fn joined(&self, id: &str) -> Joined {
        let all =
            || self.members.iter().map(|(id, member)| (id.clone(), None, member.metadata.clone())).collect();
        Joined {
            generation: self.generation,
            protocol: "cooperative-sticky".to_owned(),
            leader: self.leader.clone(),
            member_id: id.to_owned(),
            skip_assignment: false,
            members: if id == self.leader { all() } else { Vec::new() },
        }
    }
}
