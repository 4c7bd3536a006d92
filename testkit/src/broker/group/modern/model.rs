//! Does a group of the new protocol keep its promises whatever members do, and in whatever order?
//!
//! Members beat, forget answers, hold on to what they should give up, restart, leave and change their minds while topics
//! grow and time passes. After each step the machine is compared with what must hold of any group, and at the end, when
//! everybody behaves, the group settles.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use prosody_base::{Clock, Instant};

use super::{Assignor, Beat, Catalog, Group, Places, Standing, Times};
use crate::broker::code;

const TIMES: Times = Times { session: Duration::from_secs(45), heartbeat: Duration::from_secs(5) };
const REBALANCE: Duration = Duration::from_secs(30);
const CLIENTS: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    /// Client `n` beats; whether it repeats everything, gives up what it should, and hears the answer.
    Beat {
        n: usize,
        full: bool,
        obeys: bool,
        hears: bool,
    },
    Commit(usize),
    /// Client `n` leaves, for good or to be back.
    Leave(usize, bool),
    /// Client `n` is a new process.
    Restart(usize),
    /// Client `n` wants other topics, or another assignor.
    Change(usize, u8),
    Grow,
    Recreate,
    Wait(u64),
    MoveCoordinator,
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0..CLIENTS;
    prop_oneof![
        12 => (n.clone(), any::<bool>(), prop::bool::weighted(0.8), prop::bool::weighted(0.8))
            .prop_map(|(n, full, obeys, hears)| Step::Beat { n, full, obeys, hears }),
        2 => n.clone().prop_map(Step::Commit),
        1 => (n.clone(), any::<bool>()).prop_map(|(n, back)| Step::Leave(n, back)),
        1 => n.clone().prop_map(Step::Restart),
        1 => (n, any::<u8>()).prop_map(|(n, what)| Step::Change(n, what)),
        1 => Just(Step::Grow),
        1 => Just(Step::Recreate),
        2 => (0u64..20_000).prop_map(Step::Wait),
        1 => Just(Step::MoveCoordinator),
    ]
}

/// A client as it sees itself. Clients 3 and 4 are static members, client 2 subscribes by expression.
#[derive(Clone, Debug)]
struct Client {
    n: usize,
    id: String,
    epoch: i32,
    /// What it was last told to hold, and what it holds.
    told: Places,
    owned: Places,
    what: u8,
    changed: bool,
}

impl Client {
    fn new(n: usize, life: u32) -> Client {
        let none = Places::new();
        Client {
            n,
            id: format!("m{n}-{life}"),
            epoch: 0,
            told: none.clone(),
            owned: none,
            what: 0,
            changed: false,
        }
    }

    fn beat(&self, full: bool) -> Beat {
        let full = full || self.epoch == 0 || self.changed;
        let topics: BTreeSet<String> = match self.what % 3 {
            0 => ["a", "b"].map(str::to_owned).into(),
            1 => ["a"].map(str::to_owned).into(),
            _ => ["b", "none"].map(str::to_owned).into(),
        };
        let by_name = self.n != 2;
        Beat {
            member_id: self.id.clone(),
            epoch: self.epoch,
            instance: (self.n >= 3).then(|| format!("static-{}", self.n)),
            rebalance_timeout: full.then_some(REBALANCE),
            topics: (full && by_name).then_some(topics),
            regex: (full && !by_name).then(|| "[ab]".to_owned()),
            assignor: full.then(|| if self.what.is_multiple_of(2) { "uniform" } else { "range" }.to_owned()),
            owned: full.then(|| self.owned.clone()).or_else(|| Some(self.owned.clone())),
            ..Beat::default()
        }
    }
}

struct World {
    group: Group,
    catalog: Catalog,
    clients: Vec<Client>,
    now: Instant,
    lives: u32,
    epochs: (i32, i32),
}

impl World {
    fn new() -> World {
        World {
            group: Group::new(7, 100),
            catalog: [("a".to_owned(), ([1; 16], 5)), ("b".to_owned(), ([2; 16], 2))].into(),
            clients: (0..CLIENTS).map(|n| Client::new(n, 0)).collect(),
            now: Clock::system().now(),
            lives: 0,
            epochs: (7, 7),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Beat { n, full, obeys, hears } => self.beat(n, full, obeys, hears),
            Step::Commit(n) => {
                let client = &self.clients[n];
                let member = self.group.members().get(&client.id);
                let current = member.is_some_and(|member| member.epoch == client.epoch);
                assert_eq!(self.group.commit(&client.id, client.epoch).is_ok(), current);
            }
            Step::Leave(n, back) => {
                let client = self.clients[n].clone();
                let epoch = if back && client.n >= 3 { -2 } else { -1 };
                let beat = Beat { epoch, ..client.beat(false) };
                if self.group.heartbeat(beat, &self.catalog, TIMES, self.now).is_ok() {
                    let member = self.group.members().get(&client.id);
                    assert_eq!(member.map(|member| member.epoch), (epoch == -2).then_some(-2));
                }
                self.restart(n);
            }
            Step::Restart(n) => self.restart(n),
            Step::Change(n, what) => {
                self.clients[n].what = what;
                self.clients[n].changed = true;
            }
            Step::Grow => self.catalog.get_mut("b").expect("there").1 += 1,
            Step::Recreate => self.catalog.get_mut("a").expect("there").0[0] += 1,
            Step::Wait(ms) => self.wait(Duration::from_millis(ms)),
            Step::MoveCoordinator => self.group.relocate(self.now, TIMES.session),
        }
        self.check();
    }

    fn restart(&mut self, n: usize) {
        self.lives += 1;
        let what = self.clients[n].what;
        self.clients[n] = Client { what, ..Client::new(n, self.lives) };
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.group.deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.group.tick(self.now);
            assert!(self.group.deadline() != Some(due), "a deadline that never passes");
        }
        self.now = until;
    }

    fn beat(&mut self, n: usize, full: bool, obeys: bool, hears: bool) {
        if obeys {
            let client = &mut self.clients[n];
            client.owned = client.told.clone();
        }
        let client = self.clients[n].clone();
        let known = self.group.members().get(&client.id).cloned();
        let result = self.group.heartbeat(client.beat(full), &self.catalog, TIMES, self.now);
        if result.is_ok()
            && let Some(before) = known.filter(|before| before.standing == Standing::Revoking)
            && !client.owned.is_disjoint(&before.revoking)
        {
            let after = &self.group.members()[&client.id];
            assert_eq!(
                (after.epoch, &after.revoking),
                (before.epoch, &before.revoking),
                "nothing before it lets go"
            );
        }
        if !hears {
            return;
        }
        let client = &mut self.clients[n];
        client.changed = false;
        match result {
            Ok(beaten) => {
                assert!(beaten.epoch >= client.epoch, "an epoch goes back");
                client.epoch = beaten.epoch;
                client.told = beaten.assignment.unwrap_or_else(|| client.told.clone());
            }
            Err((code::FENCED_MEMBER_EPOCH | code::UNKNOWN_MEMBER_ID | code::FENCED_INSTANCE_ID, _)) => {
                self.restart(n);
            }
            Err((code::UNRELEASED_INSTANCE_ID, _)) => {}
            Err((error, why)) => panic!("{error}: {why}"),
        }
    }

    fn check(&mut self) {
        let group = &self.group;
        let epochs = group.epochs();
        assert!(epochs.0 >= self.epochs.0 && epochs.1 >= self.epochs.1 && epochs.1 <= epochs.0, "{epochs:?}");
        self.epochs = epochs;
        let (mut holders, mut targets) = (BTreeMap::new(), BTreeMap::new());
        let mut instances = BTreeSet::new();
        for (id, member) in group.members() {
            for place in member.assigned.union(&member.revoking) {
                assert_eq!(holders.insert(*place, id), None, "two members hold {place:?}");
            }
            for place in group.target(id) {
                assert_eq!(targets.insert(place, id), None, "two members shall have {place:?}");
            }
            assert!(member.epoch <= epochs.1);
            assert_eq!(
                member.revoke_by.is_some(),
                member.standing == Standing::Revoking && member.epoch >= 0
            );
            assert!(member.assigned.is_disjoint(&member.revoking));
            if let Some(instance) = &member.instance {
                assert!(instances.insert(instance), "two members under {instance}");
            }
        }
    }

    /// From here on everybody behaves: a while later everything that is wanted is held once, evenly, and epochs rest.
    fn end(mut self) {
        for _ in 0..24 {
            for n in 0..CLIENTS {
                self.step(Step::Beat { n, full: true, obeys: true, hears: true });
            }
            self.step(Step::Wait(5_000));
        }
        assert_eq!(self.group.state(), "Stable");
        let epochs = self.group.epochs();
        for client in &self.clients {
            let member = &self.group.members()[&client.id];
            assert_eq!(
                (client.epoch, &client.told, &client.owned),
                (epochs.1, &member.assigned, &member.assigned)
            );
        }
        let wanted: i32 = self.group.topics.values().map(|(_, count)| count).sum();
        let held: usize = self.clients.iter().map(|client| client.owned.len()).sum();
        assert_eq!(i32::try_from(held), Ok(wanted));
        if self.group.assignor() == Assignor::Uniform
            && self.clients.iter().all(|client| client.what % 3 == 0)
        {
            let loads = self.clients.iter().map(|client| client.owned.len());
            assert!(loads.clone().max().unwrap_or(0) - loads.min().unwrap_or(0) <= 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_group_keeps_its_promises(steps in prop::collection::vec(step(), 0..60)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.end();
    }
}

/// Members one by one, then one fewer: nobody loses what it need not.
#[test]
fn the_uniform_assignor_moves_no_more_than_it_must() {
    let mut world = World::new();
    world.catalog = [("a".to_owned(), ([1; 16], 12))].into();
    let settle = |world: &mut World, who: &[usize]| {
        for _ in 0..4 {
            who.iter().for_each(|n| world.beat(*n, true, true, true));
        }
    };
    settle(&mut world, &[0]);
    settle(&mut world, &[0, 1]);
    let before: Vec<Places> = world.clients.iter().map(|client| client.owned.clone()).collect();
    assert_eq!((before[0].len(), before[1].len()), (6, 6));
    settle(&mut world, &[0, 1, 2]);
    assert!(
        [0, 1]
            .iter()
            .all(|n| world.clients[*n].owned.len() == 4 && world.clients[*n].owned.is_subset(&before[*n]))
    );
    world.step(Step::Leave(1, false));
    let before = world.clients[0].owned.clone();
    settle(&mut world, &[0, 2]);
    assert!(before.is_subset(&world.clients[0].owned) && world.clients[0].owned.len() == 6);
}
