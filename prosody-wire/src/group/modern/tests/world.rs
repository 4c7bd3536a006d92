//! Several members, the coordinator of the broker for tests, a network that delays, cuts and lies, and readers that take
//! their time. Everything follows from one seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use prosody_base::{Clock, Instant, Rng};
use prosody_testkit::broker::group::modern as broker;

use super::network::Delivery;
use crate::error::Error;
use crate::group::config::{GroupConfig, GroupProtocol};
use crate::group::core::{Core, Membership};
use crate::group::event::AssignmentEpoch;
use crate::group::modern::machine::{Machine, Phase};
use crate::group::outbox::Outbox;
use crate::proto::ErrorCode;
use crate::types::TopicPartition;

pub(super) const TIMES: broker::Times =
    broker::Times { session: Duration::from_secs(45), heartbeat: Duration::from_secs(5) };
pub(super) const REBALANCE: Duration = Duration::from_secs(60);
/// One process: a machine and a reader of its events.
pub(super) struct Node {
    pub(super) machine: Machine,
    /// Counts processes of this slot: what was meant for a dead one is not delivered to the next.
    pub(super) life: u64,
    pub(super) outbox: Outbox,
    pub(super) works_on: BTreeMap<TopicPartition, AssignmentEpoch>,
    /// What it was told is lost and did not read of yet.
    pub(super) lost_unread: BTreeSet<TopicPartition>,
    pub(super) stopped_until: Option<Instant>,
    pub(super) inbox: Vec<Delivery>,
    pub(super) instance: Option<String>,
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) start: Instant,
    pub(super) rng: Rng,
    pub(super) nodes: Vec<Node>,
    pub(super) group: broker::Group,
    pub(super) catalog: broker::Catalog,
    /// The broker that coordinates now, and what each node believes.
    pub(super) broker: u64,
    pub(super) believes: Vec<Option<u64>>,
    pub(super) queue: BTreeMap<(Instant, u64), Delivery>,
    pub(super) sequence: u64,
    /// Chance of a fault per message, in percent.
    pub(super) faults: u64,
    pub(super) recreates: bool,
    pub(super) trace: VecDeque<String>,
}

impl World {
    pub(super) fn new(seed: u64, members: usize, faults: u64, recreates: bool) -> World {
        let now = Clock::system().now();
        let mut world = World {
            now,
            start: now,
            rng: Rng::seeded(seed),
            nodes: Vec::new(),
            group: broker::Group::new(0, 100),
            catalog: [("a".to_owned(), ([1; 16], 5)), ("b".to_owned(), ([2; 16], 2))].into(),
            broker: 0,
            believes: vec![None; members],
            queue: BTreeMap::new(),
            sequence: 0,
            faults,
            recreates,
            trace: VecDeque::new(),
        };
        for at in 0..members {
            let node = world.process(at, 0);
            world.nodes.push(node);
            world.with(at, |machine, now| machine.tick(now));
            world.tell_metadata(at);
        }
        world
    }

    pub(super) fn process(&self, at: usize, life: u64) -> Node {
        let mut config = GroupConfig::new("g", ["a".into(), "b".into()]);
        config.protocol = GroupProtocol::Consumer;
        config.instance_id = (at == 2).then(|| "static".to_owned());
        let (instance, backoff) =
            (config.instance_id.clone(), (Duration::from_millis(50), Duration::from_secs(1)));
        let core = Core::new(config, backoff, self.rng.fork(), self.now);
        Node {
            machine: Machine::new(core, self.now),
            life,
            outbox: Outbox::default(),
            works_on: BTreeMap::new(),
            lost_unread: BTreeSet::new(),
            stopped_until: None,
            inbox: Vec::new(),
            instance,
        }
    }

    /// Lets time pass to the next thing that happens, at most until `end`.
    pub(super) fn step(&mut self, end: Instant) -> bool {
        let machines = self.nodes.iter().filter_map(|node| match node.stopped_until {
            Some(until) => Some(until),
            None => node.machine.deadline(),
        });
        let next =
            machines.chain(self.queue.keys().next().map(|key| key.0)).chain(self.group.deadline()).min();
        let Some(next) = next.filter(|at| *at <= end) else {
            self.now = end;
            return false;
        };
        self.now = self.now.max(next);
        self.group.tick(self.now);
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

    pub(super) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.step(end) {}
    }

    pub(super) fn resume(&mut self, at: usize) {
        self.nodes[at].stopped_until = None;
        self.with(at, |machine, now| machine.tick(now));
        for delivery in std::mem::take(&mut self.nodes[at].inbox) {
            self.deliver(delivery);
        }
        self.tell_metadata(at);
    }

    /// Something bad happens to a process, the coordinator or the topics.
    pub(super) fn disturb(&mut self) {
        let at = usize::try_from(self.rng.below(self.nodes.len() as u64)).expect("small");
        match self.rng.below(7) {
            0 => self.restart(at, "is killed and started again"),
            1 => {
                let until = self.now + Duration::from_millis(self.rng.below(80_000));
                self.note(format!("node {at} stops for {:?}", until - self.now));
                self.nodes[at].stopped_until = Some(until);
            }
            2 => {
                self.broker += 1;
                self.note(format!("broker {} coordinates", self.broker));
                self.group.relocate(self.now, TIMES.session);
            }
            3 => self.catalog.get_mut("b").expect("there").1 += 1,
            4 if self.recreates => {
                self.note("topic a is created again".to_owned());
                self.catalog.get_mut("a").expect("there").0[0] += 1;
            }
            5 if self.nodes[at].stopped_until.is_none() && !self.nodes[at].machine.has_ended() => {
                self.note(format!("node {at} leaves"));
                self.nodes[at].works_on.clear();
                self.nodes[at].outbox = Outbox::default();
                self.with(at, Machine::leave);
            }
            _ if self.nodes[at].machine.has_ended() => self.restart(at, "comes back"),
            _ => self.commit(at),
        }
        self.check_owners();
    }

    pub(super) fn restart(&mut self, at: usize, why: &str) {
        self.note(format!("node {at} {why}"));
        let life = self.nodes[at].life + 1;
        self.nodes[at] = self.process(at, life);
        self.believes[at] = None;
        self.with(at, |machine, now| machine.tick(now));
        self.tell_metadata(at);
    }

    /// A commit that reaches the coordinator at once: what it accepts is a commit of the owner.
    pub(super) fn commit(&mut self, at: usize) {
        let node = &self.nodes[at];
        if node.stopped_until.is_some() || self.believes[at] != Some(self.broker) {
            return;
        }
        let Some(sender) = node.machine.committer() else { return };
        let result = self.group.commit(&sender.member_id, sender.generation);
        for partition in node.works_on.keys() {
            let ours = node.machine.core.owned_since(partition).is_some();
            let (id, _) = self.catalog[&*partition.topic];
            let holder = self.group.holder(&(id, partition.partition));
            if result.is_ok() && ours && !self.recreates {
                assert_eq!(holder, Some(sender.member_id.as_str()), "{partition} {}", self.story());
            }
        }
        if let Err(code) = result {
            let why = Error::broker("committing", ErrorCode(code));
            self.with(at, |machine, now| {
                machine.member_error(now, &why, &sender);
                machine.tick(now);
            });
        }
    }

    /// From here on the network is perfect, readers are quick and every process runs.
    pub(super) fn heal(&mut self) {
        self.faults = 0;
        for at in 0..self.nodes.len() {
            self.resume(at);
            if self.nodes[at].machine.has_ended() || self.nodes[at].machine.phase == Phase::Leaving {
                self.restart(at, "is back for good");
            }
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        let owned: usize = self.nodes.iter().map(|node| node.works_on.len()).sum();
        let total: i32 = self.catalog.values().map(|(_, count)| count).sum();
        let loads = self.nodes.iter().map(|node| node.works_on.len());
        let even = loads.clone().max().unwrap_or(0) - loads.min().unwrap_or(0) <= 1;
        i32::try_from(owned) == Ok(total) && even && self.group.members().len() == self.nodes.len()
    }

    pub(super) fn owners(&self) -> Vec<BTreeSet<TopicPartition>> {
        self.nodes.iter().map(|node| node.works_on.keys().cloned().collect()).collect()
    }

    /// No partition is worked on by two processes that run. A loss does not wait for the reader to hear of it.
    pub(super) fn check_owners(&self) {
        let mut owners: BTreeMap<&TopicPartition, usize> = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.stopped_until.is_none()) {
            for partition in node.works_on.keys().filter(|one| !node.lost_unread.contains(one)) {
                if let Some(other) = owners.insert(partition, at).filter(|_| !self.recreates) {
                    panic!("{partition} is worked on by nodes {other} and {at}\n{}", self.story());
                }
            }
        }
    }

    pub(super) fn story(&self) -> String {
        let mut story = self.trace.iter().cloned().collect::<Vec<_>>().join("\n");
        for (at, node) in self.nodes.iter().enumerate() {
            story.push_str(&format!("\nnode {at}: works on {:?}; {:?}", node.works_on, node.machine));
        }
        story.push_str(&format!("\n{:?}", self.group));
        story
    }

    pub(super) fn note(&mut self, what: String) {
        let at = self.now - self.start;
        self.trace.push_back(format!("{at:?} {what}"));
        if self.trace.len() > 120 {
            self.trace.pop_front();
        }
    }

    /// Feeds a machine and carries out what it wants.
    pub(super) fn with(&mut self, at: usize, feed: impl FnOnce(&mut Machine, Instant)) {
        let now = self.now;
        feed(&mut self.nodes[at].machine, now);
        while let Some(effect) = self.nodes[at].machine.core.effect() {
            self.carry_out(at, effect);
        }
        self.read(at);
    }
}
