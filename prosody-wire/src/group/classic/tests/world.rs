//! Several members, one model coordinator, a network that delays, cuts and lies, and readers that take their time.
//! Everything follows from one seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prosody_base::{Clock, Instant, Rng};

use super::coordinator::{Coordinator, Due, Waiting};
use super::network::{Delivery, SLOW};
use crate::group::calls::CallId;
use crate::group::classic::machine::Machine;
use crate::group::config::GroupConfig;
use crate::group::core::{Core, Known, Membership};
use crate::group::event::AssignmentEpoch;
use crate::group::outbox::{Notice, Outbox};
use crate::types::{Topic, TopicPartition};

pub(super) const SESSION: Duration = Duration::from_secs(45);
pub(super) const REBALANCE: Duration = Duration::from_secs(60);
const HEARTBEAT: Duration = Duration::from_secs(3);
/// More than the longest case takes: beyond it something is due again and again without getting done.
const STEPS: u32 = 20_000;

/// One process: a machine and a reader of its events.
pub(super) struct Node {
    pub(super) machine: Machine,
    /// Counts processes of this slot: what was meant for a dead one is not delivered to the next.
    pub(super) life: u64,
    pub(super) outbox: Outbox,
    /// What the reader works on.
    pub(super) works_on: BTreeMap<TopicPartition, AssignmentEpoch>,
    /// What it was told is lost and did not read of yet.
    pub(super) lost_unread: BTreeSet<TopicPartition>,
    /// Its connection for JoinGroup and SyncGroup: to which broker, and when what was sent last arrives. Nothing overtakes
    /// on it.
    pub(super) coordination: Option<(u64, Instant)>,
    pub(super) stopped_until: Option<Instant>,
    /// What arrived while it was stopped.
    pub(super) inbox: Vec<Delivery>,
    pub(super) left: bool,
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) start: Instant,
    pub(super) steps: u32,
    pub(super) rng: Rng,
    pub(super) nodes: Vec<Node>,
    pub(super) coordinator: Coordinator,
    /// The broker that coordinates now.
    pub(super) broker: u64,
    /// What each node believes to be the coordinator.
    pub(super) believes: Vec<Option<u64>>,
    pub(super) queue: BTreeMap<(Instant, u64), Delivery>,
    pub(super) sequence: u64,
    pub(super) waiting: BTreeMap<Waiting, (u64, CallId)>,
    pub(super) next_waiting: u64,
    pub(super) topics: BTreeMap<Topic, i32>,
    /// Chance of a fault per message, in percent.
    pub(super) faults: u64,
    pub(super) eager: bool,
    pub(super) trace: Vec<String>,
}

impl World {
    pub(super) fn new(seed: u64, members: usize, faults: u64, eager: bool) -> World {
        let now = Clock::system().now();
        let mut world = World {
            now,
            start: now,
            steps: 0,
            rng: Rng::seeded(seed),
            nodes: Vec::new(),
            coordinator: Coordinator::new(SESSION, REBALANCE),
            broker: 0,
            believes: vec![None; members],
            queue: BTreeMap::new(),
            sequence: 0,
            waiting: BTreeMap::new(),
            next_waiting: 0,
            topics: BTreeMap::from([("a".into(), 5), ("b".into(), 2)]),
            faults,
            eager,
            trace: Vec::new(),
        };
        for at in 0..members {
            let node = world.process(0);
            world.nodes.push(node);
            world.with(at, |machine, now| machine.tick(now));
        }
        world
    }

    pub(super) fn process(&self, life: u64) -> Node {
        let mut config = GroupConfig::new("g", self.topics.keys().cloned());
        if self.eager {
            config.assignors.push(crate::group::classic::Assignor::Range);
        }
        let backoff = (Duration::from_millis(50), Duration::from_secs(1));
        let core = Core::new(config, backoff, self.rng.fork(), self.now);
        let machine = Machine::new(core, self.now);
        Node {
            machine,
            life,
            outbox: Outbox::default(),
            works_on: BTreeMap::new(),
            lost_unread: BTreeSet::new(),
            coordination: None,
            stopped_until: None,
            inbox: Vec::new(),
            left: false,
        }
    }

    /// Lets time pass to the next thing that happens, at most until `end`.
    pub(super) fn step(&mut self, end: Instant) -> bool {
        let machines = self.nodes.iter().filter_map(|node| match node.stopped_until {
            Some(until) => Some(until),
            None => node.machine.deadline(),
        });
        let next = machines
            .chain(self.queue.keys().next().map(|key| key.0))
            .chain(self.coordinator.deadline())
            .min();
        let Some(next) = next.filter(|at| *at <= end) else {
            self.now = end;
            return false;
        };
        self.now = self.now.max(next);
        self.steps += 1;
        assert!(self.steps <= STEPS, "does not come to an end\n{}", self.story());
        let mut due = Due::new();
        self.coordinator.tick(self.now, &mut due);
        self.answer(due);
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let delivery = entry.remove();
            self.deliver(delivery);
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].stopped_until.is_some_and(|until| until <= self.now) {
                self.resume(at);
            }
            let runs = self.nodes[at].stopped_until.is_none();
            if runs && self.nodes[at].machine.deadline().is_some_and(|deadline| deadline <= self.now) {
                self.with(at, |machine, now| machine.tick(now));
            }
        }
        self.check_owners();
        true
    }

    pub(super) fn resume(&mut self, at: usize) {
        self.nodes[at].stopped_until = None;
        self.with(at, |machine, now| machine.tick(now));
        for delivery in std::mem::take(&mut self.nodes[at].inbox) {
            self.deliver(delivery);
        }
        self.tell_metadata(at);
    }

    pub(super) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.step(end) {}
    }

    /// Something bad happens to a process, the coordinator or the topics.
    pub(super) fn disturb(&mut self) {
        let at = usize::try_from(self.rng.below(self.nodes.len() as u64)).expect("small");
        match self.rng.below(6) {
            0 => {
                self.note(format!("node {at} is killed and started again"));
                let life = self.nodes[at].life + 1;
                self.nodes[at] = self.process(life);
                self.believes[at] = None;
                self.with(at, |machine, now| machine.tick(now));
            }
            1 => {
                let until = self.now + Duration::from_millis(self.rng.below(80_000));
                self.note(format!("node {at} stops for {:?}", until - self.now));
                self.nodes[at].stopped_until = Some(until);
            }
            2 => {
                self.broker += 1;
                self.note(format!("broker {} coordinates", self.broker));
                let mut due = Due::new();
                self.coordinator.moved(self.now, &mut due);
                self.answer(due);
            }
            3 => {
                *self.topics.get_mut("b").expect("there") += 1;
                self.note("topic b grows".to_owned());
                for at in 0..self.nodes.len() {
                    self.tell_metadata(at);
                }
            }
            4 if !self.nodes[at].left && self.nodes[at].stopped_until.is_none() => {
                self.note(format!("node {at} leaves and joins anew"));
                self.nodes[at].works_on.clear();
                self.nodes[at].outbox = Outbox::default();
                self.with(at, Machine::leave);
                self.nodes[at].left = true;
            }
            _ => {
                // A node whose farewell was sent comes back.
                if self.nodes[at].left {
                    let life = self.nodes[at].life + 1;
                    self.nodes[at] = self.process(life);
                    self.with(at, |machine, now| machine.tick(now));
                }
            }
        }
        self.check_owners();
    }

    /// From here on the network is perfect, readers are quick and every process runs.
    pub(super) fn heal(&mut self) {
        self.faults = 0;
        for at in 0..self.nodes.len() {
            self.resume(at);
            if self.nodes[at].left {
                let life = self.nodes[at].life + 1;
                self.nodes[at] = self.process(life);
            }
            self.with(at, |machine, now| machine.tick(now));
            self.tell_metadata(at);
        }
    }

    /// Everybody is in, everything is owned once, and loads differ by at most one.
    pub(super) fn is_settled(&self) -> bool {
        let owned: usize = self.nodes.iter().map(|node| node.works_on.len()).sum();
        let total = usize::try_from(self.topics.values().sum::<i32>()).expect("small");
        let loads = self.nodes.iter().map(|node| node.works_on.len());
        let even = self.eager || loads.clone().max().unwrap_or(0) - loads.min().unwrap_or(0) <= 1;
        owned == total && even && self.coordinator.is_stable(self.nodes.len())
    }

    pub(super) fn owners(&self) -> Vec<BTreeSet<TopicPartition>> {
        self.nodes.iter().map(|node| node.works_on.keys().cloned().collect()).collect()
    }

    /// No partition is worked on by two processes that run. A process that was dropped for not rejoining in time learns
    /// it with its next heartbeat: the protocol has no earlier way to say so. Nor does a loss wait for the reader to hear
    /// of it.
    pub(super) fn check_owners(&self) {
        let mut owners: BTreeMap<&TopicPartition, usize> = BTreeMap::new();
        let learns_within = HEARTBEAT + Duration::from_millis(4 * SLOW);
        let running = |node: &&Node| node.stopped_until.is_none();
        let informed = |node: &Node| {
            let identity = node.machine.identity();
            let evicted = self.coordinator.evicted.get(&identity.member_id);
            evicted.is_none_or(|at| self.now > *at + learns_within)
        };
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| running(node) && informed(node)) {
            for partition in node.works_on.keys().filter(|one| !node.lost_unread.contains(one)) {
                if let Some(other) = owners.insert(partition, at) {
                    panic!("{partition} is worked on by nodes {other} and {at}\n{}", self.story());
                }
            }
        }
    }

    pub(super) fn story(&self) -> String {
        let from = self.trace.len().saturating_sub(120);
        let mut story = self.trace[from..].join("\n");
        for (at, node) in self.nodes.iter().enumerate() {
            story.push_str(&format!("\nnode {at}: works on {:?}; {:?}", node.works_on, node.machine));
        }
        story.push_str(&format!("\n{:?}", self.coordinator));
        story
    }

    pub(super) fn note(&mut self, what: String) {
        let at = self.now - self.start;
        self.trace.push(format!("{at:?} {what}"));
    }

    /// Feeds a machine and carries out what it wants. A stopped process does nothing.
    pub(super) fn with(&mut self, at: usize, feed: impl FnOnce(&mut Machine, Instant)) {
        let now = self.now;
        feed(&mut self.nodes[at].machine, now);
        while let Some(effect) = self.nodes[at].machine.core_mut().effect() {
            self.carry_out(at, effect);
        }
        self.read(at);
    }

    /// The reader reads, sometimes.
    pub(super) fn read(&mut self, at: usize) {
        if self.nodes[at].stopped_until.is_some() || (self.faults > 0 && self.rng.below(4) == 0) {
            return;
        }
        let life = self.nodes[at].life;
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
                    let drain =
                        Duration::from_millis(if self.faults > 0 { self.rng.below(70_000) } else { 20 });
                    let works_on = &self.nodes[at].works_on;
                    let partitions = partitions
                        .into_iter()
                        .filter_map(|one| {
                            works_on.get_key_value(&one).map(|(one, epoch)| (one.clone(), *epoch))
                        })
                        .collect();
                    if !never && self.now + drain < deadline {
                        let when = self.now + drain;
                        self.post(when, Delivery::Acknowledge { node: at, life, ticket, partitions });
                    }
                }
                Notice::Failed(why) => panic!("nothing here needs a person: {why}\n{}", self.story()),
            }
        }
    }

    pub(super) fn tell_metadata(&mut self, at: usize) {
        if self.nodes[at].stopped_until.is_some() {
            return;
        }
        let known = |(topic, count): (&Topic, &i32)| {
            (topic.clone(), Known { partitions: *count, ..Known::default() })
        };
        let topics = self.topics.iter().map(known).collect();
        self.with(at, |machine, now| machine.metadata(now, &topics));
    }
}
