//! What handlers of a run do with timers, and the store that keeps them: shared by all members like the brokers, and as
//! unreliable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prosody_base::{Clock, Doors, Instant, Rng};
use prosody_runtime::{Context, HandlerError};
use prosody_state::{Fault, Faulty, KeyStore, MemoryStore, SegmentId, Statement, TimerKind};
use prosody_testkit::check::{TimerHistory, Times};
use prosody_testkit::sim::{KEYS, PARTITIONS, Plan, StoreFault};

use crate::member::{GROUP, Scene, TOPIC};

/// The cluster's id, which is part of a segment's name.
pub(crate) const CLUSTER: &str = "prosody-testkit";
/// Longest a statement waits that a fault holds up.
const SLOW_STORE: u64 = 3_000;
/// Furthest in the future that a handler schedules, in milliseconds; a little of it is the past.
const FUTURE: u64 = 12_000;
const PAST: u64 = 2_000;

/// A time in which the store fails.
struct Window {
    kind: &'static str,
    how: StoreFault,
    until: Instant,
    hits: u64,
}

pub(crate) struct Stage {
    pub(crate) history: TimerHistory,
    memory: Arc<MemoryStore>,
    faulty: Arc<Faulty>,
    windows: Arc<Mutex<Vec<Window>>>,
    /// The partition of each key that has timers.
    homes: Mutex<BTreeMap<String, i32>>,
}

impl Stage {
    pub(crate) fn new(doors: &Doors, plan: &Plan) -> Stage {
        let memory = Arc::new(MemoryStore::new(doors.clock.clone()));
        let windows = Arc::new(Mutex::new(Vec::new()));
        let hook = {
            // A stream of its own: plans without timers draw nothing.
            let (clock, rng) = (doors.clock.clone(), Rng::seeded(plan.seed ^ 0xFA17));
            let windows = Arc::clone(&windows);
            move |_: Statement| fault(&windows, &clock, &rng)
        };
        let inner: Arc<dyn KeyStore> = Arc::clone(&memory) as Arc<dyn KeyStore>;
        let faulty = Arc::new(Faulty::new(inner, doors.clock.clone(), Arc::new(hook)));
        let quiet = plan.faults.iter().all(|(_, fault)| matches!(fault.kind(), "join" | "leave"));
        let history = if quiet { TimerHistory::strict() } else { TimerHistory::default() };
        Stage { history, memory, faulty, windows, homes: Mutex::default() }
    }

    pub(crate) fn store(&self) -> Arc<dyn KeyStore> {
        Arc::clone(&self.faulty) as Arc<dyn KeyStore>
    }

    /// The store fails from now on until then.
    pub(crate) fn fail(&self, kind: &'static str, how: StoreFault, until: Instant) {
        let window = Window { kind, how, until, hits: 0 };
        self.windows.lock().unwrap_or_else(PoisonError::into_inner).push(window);
    }

    /// The faults that a statement felt.
    pub(crate) fn struck(&self) -> Vec<&'static str> {
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.iter().filter(|window| window.hits > 0).map(|window| window.kind).collect()
    }

    /// A key was seen in a partition.
    pub(crate) fn lives(&self, key: &str, partition: i32) {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), partition);
    }

    pub(crate) fn home(&self, key: &str) -> Option<i32> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    /// Timers that have not fired.
    pub(crate) fn pending(&self) -> usize {
        self.memory.pending()
    }

    pub(crate) async fn verdict(&self) -> Vec<String> {
        let homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(homes.len() <= usize::try_from(KEYS).unwrap() + 1, "{homes:?}");
        let mut held = BTreeMap::new();
        for (key, partition) in homes {
            assert!(partition < PARTITIONS);
            let segment = SegmentId::new(CLUSTER, GROUP, TOPIC, partition);
            // A partition that nobody ever owned has no segment.
            let Ok(image) = self.memory.load(segment, key.as_bytes()).await else { continue };
            let timers = image.timers.keys().filter(|id| id.kind == TimerKind::Application);
            let times: Times = timers.map(|id| id.time.seconds()).collect();
            held.insert((partition, key), times);
        }
        self.history.verdict(&held).iter().map(ToString::to_string).collect()
    }
}

/// What becomes of a statement now.
fn fault(windows: &Mutex<Vec<Window>>, clock: &Clock, rng: &Rng) -> Fault {
    let now = clock.now();
    let mut windows = windows.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(window) = windows.iter_mut().find(|window| now < window.until) else { return Fault::None };
    if rng.below(2) == 0 {
        return Fault::None;
    }
    window.hits += 1;
    let wait = Duration::from_millis(rng.below(SLOW_STORE));
    match window.how {
        StoreFault::Fail => Fault::Fail,
        StoreFault::LoseAnswer => Fault::ApplyThenTimeOut,
        StoreFault::Delay => Fault::Delay(wait),
        StoreFault::DelayAnswer => Fault::ApplyThenDelay(wait),
    }
}

/// Whose call it is.
#[derive(Clone, Copy)]
pub(crate) struct Who<'a> {
    pub(crate) member: &'a str,
    pub(crate) place: (i32, &'a str),
    pub(crate) firing: Option<u32>,
    pub(crate) is_owner: bool,
}

/// What one call of a handler finds and makes.
pub(crate) struct Calls<'a> {
    who: Who<'a>,
    context: &'a Context,
    found: Times,
}

impl<'a> Calls<'a> {
    /// Looks which timers there are, before anything else.
    pub(crate) async fn begin(
        scene: &Scene,
        context: &'a Context,
        who: Who<'a>,
    ) -> Result<Calls<'a>, HandlerError> {
        let mut found = read(context)?;
        if let Some(time) = who.firing
            && !found.insert(time)
        {
            return Err(HandlerError::transient("the timer that is firing is listed as scheduled"));
        }
        let now = scene.clock.unix_millis();
        scene.stage.history.started(who.member, who.place, who.firing, &found, who.is_owner, now);
        Ok(Calls { who, context, found })
    }

    /// Some calls, and what they should add up to.
    pub(crate) async fn make(&mut self, scene: &Scene, rng: &Rng) -> Result<(), HandlerError> {
        let mut should = self.found.clone();
        if let Some(time) = self.who.firing {
            should.remove(&time);
        }
        // A timer calls less than a message, or there would be no end of them.
        let calls = rng.below(if self.who.firing.is_some() { 2 } else { 4 });
        for _ in 0..calls {
            let now = u64::try_from(scene.clock.unix_millis()).unwrap();
            let at = now + rng.below(FUTURE + PAST) - PAST;
            let rounded = u32::try_from((at + 500) / 1_000).unwrap();
            let time = UNIX_EPOCH + Duration::from_millis(at);
            match rng.below(6) {
                0 => {
                    self.context.clear_and_schedule(time).await?;
                    should = BTreeSet::from([rounded]);
                }
                1 => {
                    if let Some(known) = should.pop_first() {
                        self.context.unschedule(system_time(known)).await?;
                    }
                }
                2 => {
                    self.context.clear_scheduled().await?;
                    should.clear();
                }
                _ => {
                    self.context.schedule(time).await?;
                    should.insert(rounded);
                }
            }
        }
        let seen = read(self.context)?;
        let Who { member, place, .. } = self.who;
        scene.stage.history.done(member, place, std::mem::take(&mut self.found), should, &seen);
        Ok(())
    }
}

fn read(context: &Context) -> Result<Times, HandlerError> {
    let times = context.scheduled()?;
    Ok(times.into_iter().map(seconds).collect())
}

fn seconds(time: SystemTime) -> u32 {
    u32::try_from(time.duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

fn system_time(seconds: u32) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.into())
}
