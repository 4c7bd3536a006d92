//! The faults of a plan, and the proof that each of them struck.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prosody_base::{Doors, Instant, Lane, Rng, Task};
use prosody_testkit::broker::{Action, ApiKey, Match, Outcome, Rule, Told};
use prosody_testkit::sim::{Fault, Plan, Spoil};

use crate::member::Member;
use crate::scene::{GROUP, Scene, TOPIC};

/// Errors by which a broker says that it no longer leads or coordinates.
const MOVED: [i16; 4] = [6, 16, 74, 76];
/// How long a move or a rebalance may take to be noticed by a client.
const NOTICED: Duration = Duration::from_secs(20);

/// How long a kill waits for a moment in which handlers run.
const BUSY: Duration = Duration::from_secs(2);

pub(crate) struct Storm<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) scene: &'a Arc<Scene>,
    pub(crate) doors: &'a Doors,
    pub(crate) members: Vec<Member>,
    started: u64,
    /// Rules whose hits are counted at the end.
    rules: Vec<(&'static str, Rule)>,
    /// Moves and rebalances, proven by what the journal or the group shows later.
    claims: Vec<(&'static str, Instant, i32)>,
    struck: BTreeMap<&'static str, u64>,
    healing: Vec<Task<()>>,
}

impl<'a> Storm<'a> {
    pub(crate) fn new(plan: &'a Plan, scene: &'a Arc<Scene>, doors: &'a Doors) -> Storm<'a> {
        let mut storm = Storm {
            plan,
            scene,
            doors,
            members: Vec::new(),
            started: 0,
            rules: Vec::new(),
            claims: Vec::new(),
            struck: BTreeMap::new(),
            healing: Vec::new(),
        };
        for _ in 0..plan.members {
            storm.join();
        }
        storm
    }

    fn join(&mut self) {
        self.started += 1;
        self.members.push(Member::start(self.started, self.plan, self.scene, self.doors));
    }

    /// Plays every fault at its time, then waits until the last of them has healed.
    pub(crate) async fn play(&mut self) {
        let start = self.doors.clock.now();
        for (at, fault) in self.plan.faults.clone() {
            self.doors.clock.sleep_until(start + at).await;
            self.strike(&fault).await;
        }
        for task in std::mem::take(&mut self.healing) {
            let _ = task.await;
        }
        while self.members.len() < 2 {
            self.join();
        }
    }

    /// Every member leaves in peace, all at once.
    pub(crate) async fn disband(&mut self) {
        let members = std::mem::take(&mut self.members);
        let leaving: Vec<_> = members.into_iter().map(|member| self.leave(member)).collect();
        for member in leaving {
            let _ = member.await;
        }
    }

    fn leave(&self, member: Member) -> Task<()> {
        let scene = Arc::clone(self.scene);
        self.doors.spawner.spawn(Lane::Work, async move { member.leave(&scene).await })
    }

    async fn strike(&mut self, fault: &Fault) {
        let cluster = &self.scene.cluster;
        let once = |api| Match::api(api).times(1);
        let kind = fault.kind();
        tracing::debug!(?fault, "strikes");
        match fault.clone() {
            Fault::CutBefore(api) => self.rule(kind, once(api), Action::CutBefore),
            Fault::CutAfter(api) => self.rule(kind, once(api), Action::CutAfter),
            Fault::Delay(api, by) => self.rule(kind, once(api), Action::Delay(by)),
            Fault::DelayAnswer(api, by) => self.rule(kind, once(api), Action::DelayAnswer(by)),
            Fault::Refuse(api, code) => self.rule(kind, once(api), Action::Error(code)),
            Fault::BrokerRestart { broker, away } => {
                let journal = cluster.journal();
                let open = |entry: &&prosody_testkit::broker::Entry| {
                    entry.broker == broker && entry.outcome == Outcome::Pending
                };
                self.count(kind, u64::from(journal.iter().any(|entry| open(&entry))));
                cluster.stop_broker(broker);
                self.later(away, move |scene| scene.cluster.start_broker(broker));
            }
            Fault::Crash { broker, mute, away } => {
                let rule = cluster.control().on(Match::any().broker(broker), Action::Mute);
                self.rules.push((kind, rule));
                self.later(mute, move |scene| {
                    scene.cluster.control().lift(rule);
                    scene.cluster.stop_broker(broker);
                });
                self.later(mute + away, move |scene| scene.cluster.start_broker(broker));
            }
            Fault::Spoil(api, how) => self.rule(kind, once(api), spoilt(how)),
            Fault::BlackHole(api) => self.rule(kind, once(api), Action::Hang),
            Fault::Throttle(api, by) => self.rule(kind, once(api), Action::Throttle(by)),
            Fault::StaleMetadata { partition, to, nobody, lasts } => {
                let leader = if nobody { Some(-1) } else { cluster.leader(TOPIC, partition) };
                cluster.script_metadata(TOPIC, partition, Told { leader, ..Told::default() });
                cluster.move_leader(TOPIC, partition, to);
                let asked = cluster.control().on(Match::api(ApiKey::METADATA).topic(TOPIC), Action::Observe);
                self.rules.push((kind, asked));
                self.later(lasts, move |scene| {
                    scene.cluster.script_metadata(TOPIC, partition, Told::default());
                    scene.cluster.control().lift(asked);
                });
            }
            Fault::Outage { lasts } => {
                self.scene.fail_handlers(self.doors.clock.now() + lasts);
                self.later(lasts, |_| ());
            }
            Fault::LeaderMove { partition, to } => {
                let moves = cluster.leader(TOPIC, partition) != Some(to);
                cluster.move_leader(TOPIC, partition, to);
                if moves {
                    self.claim(kind);
                }
            }
            Fault::CoordinatorMove { to } => {
                let moves = cluster.coordinator(GROUP) != Some(to);
                cluster.move_coordinator(GROUP, to);
                if moves {
                    self.claim(kind);
                }
            }
            Fault::Join => {
                self.claim(kind);
                self.join();
            }
            Fault::Evict if !self.members.is_empty() => {
                let evicted = self.scene.evict(&self.members[0].name);
                self.count(kind, u64::from(evicted));
            }
            Fault::Leave if self.members.len() > 1 => {
                self.claim(kind);
                let member = self.members.remove(0);
                let leaving = self.leave(member);
                self.healing.push(leaving);
            }
            Fault::Kill { back } if !self.members.is_empty() => {
                let member = self.members.remove(0);
                let until = self.doors.clock.now() + BUSY;
                while self.scene.history.running_of(&member.name) == 0 && self.doors.clock.now() < until {
                    self.doors.clock.sleep(Duration::from_millis(1)).await;
                }
                let running = member.kill(self.scene);
                self.count(kind, u64::from(running > 0));
                self.doors.clock.sleep(back).await;
                self.join();
            }
            Fault::Silence { lasts } if !self.members.is_empty() => {
                let rule =
                    cluster.control().on(Match::any().client(&self.members[0].name), Action::HangAfter);
                self.rules.push((kind, rule));
                self.later(lasts, move |scene| scene.cluster.control().lift(rule));
            }
            Fault::Store { how, lasts } => {
                self.scene.vault.fail(kind, how, self.doors.clock.now() + lasts);
                self.later(lasts, |_| ());
            }
            Fault::Evict | Fault::Leave | Fault::Kill { .. } | Fault::Silence { .. } => {}
        }
    }

    fn rule(&mut self, kind: &'static str, what: Match, action: Action) {
        let rule = self.scene.cluster.control().on(what, action);
        self.rules.push((kind, rule));
    }

    fn later(&mut self, wait: Duration, heal: impl FnOnce(&Scene) + Send + 'static) {
        let (scene, clock) = (Arc::clone(self.scene), self.doors.clock.clone());
        self.healing.push(self.doors.spawner.spawn(Lane::Work, async move {
            clock.sleep(wait).await;
            heal(&scene);
        }));
    }

    fn count(&mut self, kind: &'static str, times: u64) {
        *self.struck.entry(kind).or_default() += times;
    }

    fn claim(&mut self, kind: &'static str) {
        let generation = self.scene.cluster.group(GROUP).map_or(0, |group| group.generation);
        self.claims.push((kind, self.doors.clock.now(), generation));
    }

    /// How often each kind of fault changed something, by the journal and the group.
    pub(crate) fn struck(&mut self) -> BTreeMap<&'static str, u64> {
        for (kind, rule) in std::mem::take(&mut self.rules) {
            let hits = self.scene.cluster.control().hits(rule);
            self.count(kind, u64::from(hits > 0));
        }
        let journal = self.scene.cluster.journal();
        let now = self.scene.cluster.group(GROUP).map_or(0, |group| group.generation);
        for (kind, at, generation) in std::mem::take(&mut self.claims) {
            let seen = match kind {
                "join" | "leave" => now > generation,
                _ => journal
                    .iter()
                    .any(|entry| entry.at >= at && entry.at <= at + NOTICED && MOVED.contains(&entry.error)),
            };
            self.count(kind, u64::from(seen));
        }
        for kind in self.scene.vault.struck() {
            self.count(kind, 1);
        }
        for (kind, times) in self.scene.struck() {
            self.count(kind, times);
        }
        std::mem::take(&mut self.struck)
    }
}

/// What the broker does instead of an answer.
fn spoilt(how: Spoil) -> Action {
    match how {
        Spoil::HalfClose => Action::HalfClose,
        Spoil::Partial(bytes) => Action::PartialWrite(bytes),
        Spoil::Duplicate => Action::DuplicateAnswer,
        Spoil::WrongCorrelation => Action::WrongCorrelation,
        Spoil::AbsurdLength(length) => Action::AbsurdLength(length),
        Spoil::Garbage(seed) => {
            let rng = Rng::seeded(seed);
            let bytes: Vec<u8> = (0..8 + seed).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
            Action::Garbage(Bytes::from(bytes))
        }
    }
}
