//! Does a group keep its promises whatever members do, and in whatever order?
//!
//! Members join, sync, beat, leave, vanish and come back while time passes and the coordinator moves. After each step
//! the machine is compared with what must hold of any group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use prosody_base::{Clock, Instant};

use super::machine::{Effect, Group, Join, Joined, State, Sync, Token};
use super::member::Identity;
use crate::broker::code;

const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
enum Step {
    /// Client `n` joins with the id it has.
    Join(usize),
    Sync(usize),
    Beat(usize),
    Commit(usize),
    Leave(usize),
    /// Client `n` forgets its id, as a restarted process does.
    Restart(usize),
    Wait(u64),
    MoveCoordinator,
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0usize..5;
    prop_oneof![
        4 => client.clone().prop_map(Step::Join),
        4 => client.clone().prop_map(Step::Sync),
        2 => client.clone().prop_map(Step::Beat),
        1 => client.clone().prop_map(Step::Commit),
        1 => client.clone().prop_map(Step::Leave),
        1 => client.prop_map(Step::Restart),
        2 => (0u64..20_000).prop_map(Step::Wait),
        1 => Just(Step::MoveCoordinator),
    ]
}

/// A client as it sees itself. Clients 3 and 4 are static members.
#[derive(Clone, Debug, Default)]
struct Client {
    id: String,
    generation: i32,
    leads: bool,
    members: Vec<String>,
}

struct World {
    group: Group,
    clients: Vec<Client>,
    now: Instant,
    /// Who asked, under which member id, in which life.
    tokens: BTreeMap<Token, (usize, String, u64)>,
    lives: [u64; 5],
    next: Token,
    answered: BTreeSet<Token>,
    /// Generation → its assignment, as the machine announced it.
    assigned: BTreeMap<i32, BTreeMap<String, Bytes>>,
    /// The largest generation since the coordinator moved.
    generation: i32,
}

impl World {
    fn instance(client: usize) -> Option<String> {
        (client >= 3).then(|| format!("static-{client}"))
    }

    fn token(&mut self, client: usize) -> Token {
        self.next += 1;
        self.tokens.insert(self.next, (client, self.clients[client].id.clone(), self.lives[client]));
        self.next
    }

    fn step(&mut self, step: Step) {
        let mut out = Vec::new();
        match step {
            Step::Join(n) => {
                let token = self.token(n);
                let join = Join {
                    token,
                    member_id: self.clients[n].id.clone(),
                    new_id: format!("m{n}-{token}"),
                    instance: World::instance(n),
                    client_id: String::new(),
                    client_host: String::new(),
                    session_timeout: SESSION,
                    rebalance_timeout: REBALANCE,
                    protocol_type: "consumer".into(),
                    protocols: vec![("range".into(), Bytes::new()), (format!("own-{}", n % 2), Bytes::new())],
                    needs_id: n != 0,
                    can_skip: n == 4,
                };
                self.group.join(join, self.now, &mut out);
            }
            Step::Sync(n) => {
                let token = self.token(n);
                let client = self.clients[n].clone();
                // The leader gives every member a partition of its own, named after it.
                let given = client.members.iter().map(|id| (id.clone(), Bytes::from(id.clone())));
                let assignments = if client.leads { given.collect() } else { BTreeMap::new() };
                let sync = Sync {
                    token,
                    member_id: client.id,
                    instance: World::instance(n),
                    generation: client.generation,
                    protocol: None,
                    assignments,
                };
                self.group.sync(sync, self.now, &mut out);
            }
            Step::Beat(n) => {
                let client = self.clients[n].clone();
                let instance = World::instance(n);
                let who = Identity { member_id: &client.id, instance: instance.as_deref() };
                let answer = self.group.heartbeat(who, client.generation, self.now);
                let current = client.generation == self.group.generation();
                let member = self.group.members().contains_key(&client.id);
                assert_eq!(
                    answer == 0 || answer == code::REBALANCE_IN_PROGRESS,
                    member && current,
                    "{answer}"
                );
            }
            Step::Commit(n) => {
                let client = self.clients[n].clone();
                let instance = World::instance(n);
                let who = Identity { member_id: &client.id, instance: instance.as_deref() };
                if self.group.commit(who, client.generation, self.now).is_ok() {
                    let current = client.generation == self.group.generation();
                    assert!(
                        current && self.group.members().contains_key(&client.id),
                        "a stale commit was accepted"
                    );
                }
            }
            Step::Leave(n) => {
                let client = self.clients[n].clone();
                let who = Identity { member_id: &client.id, instance: None };
                if self.group.leave(who, self.now, &mut out) == code::NONE {
                    assert!(!self.group.members().contains_key(&client.id), "it left");
                }
            }
            Step::Restart(n) => {
                self.clients[n] = Client::default();
                self.lives[n] += 1;
            }
            Step::Wait(ms) => {
                let until = self.now + Duration::from_millis(ms);
                while let Some(due) = self.group.deadline().filter(|due| *due <= until) {
                    self.now = self.now.max(due);
                    self.group.tick(self.now, &mut out);
                    assert!(self.group.deadline() != Some(due), "a deadline that never passes");
                }
                self.now = until;
            }
            Step::MoveCoordinator => {
                self.group.relocate(self.now, &mut out);
                self.generation = self.group.generation();
            }
        }
        for effect in out {
            self.see(effect);
        }
        self.check();
    }

    fn see(&mut self, effect: Effect) {
        match effect {
            Effect::Joined(token, joined) => {
                let (n, _, life) = self.once(token);
                if life != self.lives[n] {
                    return;
                }
                let Joined { error, generation, leader, member_id, members, .. } = *joined;
                match error {
                    code::NONE => {
                        assert!(
                            members.is_empty() || leader == member_id,
                            "only the leader hears of the others"
                        );
                        let members: Vec<String> = members.into_iter().map(|(id, ..)| id).collect();
                        let leads = !members.is_empty();
                        self.clients[n] = Client { id: member_id, generation, leads, members };
                    }
                    code::MEMBER_ID_REQUIRED => self.clients[n].id = member_id,
                    code::UNKNOWN_MEMBER_ID | code::FENCED_INSTANCE_ID => self.clients[n] = Client::default(),
                    _ => {}
                }
            }
            Effect::Synced(token, error, assignment) => {
                let (n, id, _) = self.once(token);
                // A static member that came back gets what its former self was given.
                let own = assignment.is_empty() || assignment == id.as_bytes() || n >= 3;
                assert!(error != code::NONE || own, "the assignment of somebody else: {assignment:?}");
            }
            Effect::Assigned(generation, given) => {
                let mut owners = BTreeSet::new();
                for assignment in given.values().filter(|assignment| !assignment.is_empty()) {
                    assert!(owners.insert(assignment.clone()), "two owners in generation {generation}");
                }
                self.assigned.insert(generation, given);
            }
        }
    }

    fn once(&mut self, token: Token) -> (usize, String, u64) {
        assert!(self.answered.insert(token), "request {token} is answered twice");
        self.tokens[&token].clone()
    }

    fn check(&mut self) {
        let group = &self.group;
        assert!(group.generation() >= self.generation, "a generation goes back");
        self.generation = group.generation();
        assert_eq!(
            group.members().is_empty(),
            matches!(group.state(), State::Empty) || group.members().is_empty()
        );
        match group.state() {
            State::Empty => assert!(group.members().is_empty()),
            State::Stable => {
                for (id, member) in group.members() {
                    assert!(member.join.is_none() && member.sync.is_none(), "{id} waits in a stable group");
                }
            }
            State::PreparingRebalance | State::CompletingRebalance => {
                assert!(group.deadline().is_some(), "a rebalance that nothing ends");
            }
        }
        let mut instances = BTreeSet::new();
        for instance in group.members().values().filter_map(|member| member.instance.clone()) {
            assert!(instances.insert(instance.clone()), "two members under {instance}");
        }
        for member in group.members().values() {
            let waits = [member.join, member.sync].into_iter().flatten();
            assert!(waits.into_iter().all(|token| !self.answered.contains(&token)));
        }
    }

    /// Every request is answered in the end, and when everyone is gone the group is empty.
    fn end(mut self) {
        for _ in 0..20 {
            self.step(Step::Wait(60_000));
        }
        let open: Vec<_> = self.tokens.keys().filter(|token| !self.answered.contains(token)).collect();
        assert!(open.is_empty(), "never answered: {open:?} in {:?}", self.group.state());
        assert_eq!(self.group.state(), State::Empty);
        assert_eq!(self.group.deadline(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_group_keeps_its_promises(steps in prop::collection::vec(step(), 0..60)) {
        let mut world = World {
            group: Group::new(Duration::ZERO, 100),
            clients: vec![Client::default(); 5],
            now: Clock::system().now(),
            tokens: BTreeMap::new(),
            lives: [0; 5],
            next: 0,
            answered: BTreeSet::new(),
            assigned: BTreeMap::new(),
            generation: 0,
        };
        for step in steps {
            world.step(step);
        }
        world.end();
    }
}
