//! What handlers of a run do with timers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prosody_base::Rng;
use prosody_runtime::{Context, HandlerError};
use prosody_state::TimerKind;
use prosody_testkit::check::{Standing, TimerHistory, Times};
use prosody_testkit::sim::{KEYS, PARTITIONS};

use crate::scene::Scene;
use crate::vault::Vault;

/// Furthest in the future that a handler schedules, in milliseconds; a little of it is the past.
const FUTURE: u64 = 12_000;
const PAST: u64 = 2_000;

pub(crate) struct Stage {
    pub(crate) history: TimerHistory,
    /// Nothing more is scheduled.
    closed: AtomicBool,
    /// The partition of each key that has timers.
    homes: Mutex<BTreeMap<String, i32>>,
}

impl Stage {
    /// `quiet`: nothing goes wrong.
    pub(crate) fn new(quiet: bool) -> Stage {
        let history = if quiet { TimerHistory::strict() } else { TimerHistory::default() };
        Stage { history, closed: AtomicBool::new(false), homes: Mutex::default() }
    }

    /// Calls make nothing more of their timers from here on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// A key was seen in a partition.
    pub(crate) fn lives(&self, key: &str, partition: i32) {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), partition);
    }

    pub(crate) fn home(&self, key: &str) -> Option<i32> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    pub(crate) async fn verdict(&self, vault: &Vault) -> Vec<String> {
        let homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(homes.len() <= usize::try_from(KEYS).unwrap() + 1, "{homes:?}");
        let mut held = BTreeMap::new();
        for (key, partition) in homes {
            assert!(partition < PARTITIONS);
            let Some(image) = vault.record(partition, &key).await else { continue };
            let timers = image.timers.keys().filter(|id| id.kind == TimerKind::Application);
            let deferred = image.deferred_timers.values().map(|entry| entry.time);
            let times: Times = timers.map(|id| id.time).chain(deferred).map(|time| time.seconds()).collect();
            held.insert((partition, key), times);
        }
        self.history.verdict(&held).iter().map(ToString::to_string).collect()
    }
}

/// Whose call it is.
#[derive(Clone, Copy)]
pub(crate) struct Who<'a> {
    pub(crate) member: &'a str,
    pub(crate) place: (i32, &'a str),
    pub(crate) firing: Option<u32>,
    /// Of its member, when the call began.
    pub(crate) standing: &'a Standing,
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
        let is_owner = matches!(who.standing, Standing::Member(_));
        scene.stage.history.started(who.member, who.place, who.firing, &found, is_owner, now);
        Ok(Calls { who, context, found })
    }

    /// The call fails: a timer whose firing it is may be given up.
    pub(crate) fn may_end(&self, scene: &Scene) {
        let Who { member, place, firing, .. } = self.who;
        if let Some(time) = firing {
            scene.stage.history.may_end(member, place, time);
            self.tell_if_late(scene);
        }
    }

    /// The partition may be somebody else's by now: its member was removed, also when it has joined again since.
    fn tell_if_late(&self, scene: &Scene) {
        let Who { member, place, standing, .. } = self.who;
        if !matches!(scene.standing(member), Standing::Member(_)) {
            scene.stage.history.evicted(member);
        }
        if let Standing::Member(id) = standing
            && !scene.is_over(id)
        {
            return;
        }
        scene.stage.history.late(member, place);
    }

    /// Some calls, and what they should add up to.
    pub(crate) async fn make(&mut self, scene: &Scene, rng: &Rng) -> Result<(), HandlerError> {
        let mut should = self.found.clone();
        if let Some(time) = self.who.firing {
            should.remove(&time);
        }
        // A timer calls less than a message, or there would be no end of them.
        let most = if self.who.firing.is_some() { 2 } else { 4 };
        let calls = if scene.stage.closed.load(Ordering::Relaxed) { 0 } else { rng.below(most) };
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
        self.tell_if_late(scene);
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
