//! What a member's handler does: it works, fails, hangs and panics as the plan says, and tells the history of it.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use prosody_base::Rng;
use prosody_runtime::{Assignment, Context, ErrorClass, Handler, HandlerError, Message, Timer};
use prosody_testkit::check::Standing;
use prosody_testkit::sim::Mode;

use crate::scene::Scene;
use crate::timers::{Calls, Who};

/// Share of slow handler calls, in percent: records of one key wait behind them, rebalances and drains meet them.
const SLOW: u64 = 4;
/// Longest a slow call works; shorter than a drain may last, and than [`TIMEOUT`].
const SLOW_WORK: Duration = Duration::from_millis(3_500);
/// `Timeout` of every member.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(4);
/// Longest a call works that does not care whether it is cancelled: beyond its timeout and any drain.
const STUBBORN: Duration = Duration::from_secs(12);
/// How often a call that hangs looks whether what it waits for is back.
const LOOK: Duration = Duration::from_millis(250);
/// Share of calls that fail during an outage, in percent.
const OUTAGE: u64 = 95;

pub(crate) struct Work {
    pub(crate) member: String,
    pub(crate) scene: Arc<Scene>,
    pub(crate) rng: Rng,
    /// Longest a call works.
    pub(crate) work: Duration,
    /// In percent.
    pub(crate) failing: u64,
    /// In a thousand.
    pub(crate) unruly: u64,
    pub(crate) permits: usize,
    pub(crate) mode: Mode,
    pub(crate) timers: bool,
    /// What the member says it owns.
    pub(crate) owned: Assignment,
}

/// Notes the end of a call whatever ends it: a result, a panic, or the drop of its future.
struct Running<'a> {
    work: &'a Work,
    place: (i32, i64),
    key: &'a str,
    /// It may be dropped: it takes longer than a drain has to wait.
    long: bool,
    /// It ended by itself.
    ended: bool,
    /// It failed, and its mode does not try it again.
    given_up: bool,
    done: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Work { member, scene, .. } = self.work;
        tracing::debug!(member, place = ?self.place, self.ended, self.done, self.given_up, "ends");
        if !self.ended {
            scene.dropped(member);
            if !self.long {
                scene.history.abandoned(member, self.place, self.key);
            }
        }
        scene.history.ended(member, self.place, self.key, self.done);
        if self.given_up {
            scene.history.given_up(self.place);
        }
    }
}

impl Handler for Work {
    async fn on_message(&self, context: Context, message: Message) -> Result<(), HandlerError> {
        self.scene.stage.lives(message.key(), message.partition());
        let place = (message.partition(), message.offset());
        self.run(&context, place, message.key(), None).await
    }

    async fn on_timer(&self, context: Context, timer: Timer) -> Result<(), HandlerError> {
        let time = timer.time.duration_since(UNIX_EPOCH)?.as_secs();
        let partition = self.scene.stage.home(&timer.key).unwrap_or(-1);
        let place = (partition, -1 - i64::try_from(time)?);
        self.run(&context, place, &timer.key, Some(u32::try_from(time)?)).await
    }
}

impl Work {
    async fn run(
        &self,
        context: &Context,
        place: (i32, i64),
        key: &str,
        firing: Option<u32>,
    ) -> Result<(), HandlerError> {
        let Work { member, scene, rng, .. } = self;
        let standing = self.begin(place, key);
        let (long, ended, given_up, done) = (false, false, false, false);
        let mut running = Running { work: self, place, key, long, ended, given_up, done };
        let who = Who { member, place: (place.0, key), firing, standing: &standing };
        // The records that are appended at the end have one key in every partition: their timers would have no name.
        let mut calls = match self.timers && key != "last" {
            true => match Calls::begin(scene, context, who).await {
                Ok(calls) => Some(calls),
                Err(why) => return self.fails(running, None, why),
            },
            false => None,
        };
        let longest = if rng.below(100) < SLOW { SLOW_WORK } else { self.work };
        let (time, luck) = (longest.mul_f64(rng.unit()), rng.below(100));
        let unruly = (rng.below(1_000) < self.unruly).then(|| rng.below(4));
        match unruly {
            None => scene.clock.sleep(time).await,
            Some(0) => {
                scene.clock.sleep(time).await;
                scene.strikes("handler-panic");
                let _ = self.fails(running, calls.as_ref(), HandlerError::transient("it panics"));
                std::panic::resume_unwind(Box::new("the plan says so"));
            }
            Some(1) => {
                scene.strikes("handler-hang");
                running.long = true;
                while scene.is_stormy() {
                    scene.clock.sleep(LOOK).await;
                }
            }
            Some(2) => {
                running.long = true;
                scene.clock.sleep(STUBBORN.mul_f64(rng.unit())).await;
                if context.should_cancel() {
                    scene.strikes("handler-ignores-cancellation");
                }
            }
            Some(_) => {
                context.cancelled().await;
                scene.strikes("handler-waits-for-cancellation");
                if rng.below(2) == 0 {
                    return self.fails(running, calls.as_ref(), HandlerError::transient("it was cancelled"));
                }
            }
        }
        let outage = scene.is_outage() && luck < OUTAGE;
        if outage || luck < self.failing {
            let never = !outage && rng.below(4) == 0;
            scene.strikes(if never { "handler-permanent" } else { "handler-transient" });
            let error = if never { HandlerError::permanent } else { HandlerError::transient };
            return self.fails(running, calls.as_ref(), error("the plan says so"));
        }
        if let Some(calls) = &mut calls
            && let Err(why) = calls.make(scene, rng).await
        {
            return self.fails(running, Some(calls), why);
        }
        (running.ended, running.done) = (true, true);
        Ok(())
    }

    /// Tells that a call began; what its member is to the group.
    fn begin(&self, place: (i32, i64), key: &str) -> Standing {
        let Work { member, scene, .. } = self;
        scene.bury();
        let standing = scene.standing(member);
        tracing::debug!(member, ?standing, ?place, key, "starts");
        scene.history.started(member, standing.clone(), place, key, |id| scene.is_over(id));
        if !self.owned.clone().now().iter().any(|(_, partition)| *partition == place.0) {
            scene.history.started_unowned(member, place);
        }
        let at_once = scene.history.running_of(member);
        if at_once > self.permits {
            scene.complain(format!("bounds: {member} runs {at_once} handlers of {}", self.permits));
        }
        standing
    }

    fn fails(
        &self,
        mut running: Running<'_>,
        calls: Option<&Calls<'_>>,
        why: HandlerError,
    ) -> Result<(), HandlerError> {
        running.ended = true;
        let never = why.class() == ErrorClass::Permanent;
        // What goes to the failure topic is found there.
        running.given_up = running.place.1 >= 0
            && match self.mode {
                Mode::Pipeline => never,
                Mode::LowLatency => false,
                Mode::BestEffort => true,
            };
        if let Some(calls) = calls
            && (never || self.mode != Mode::Pipeline)
        {
            calls.may_end(&self.scene);
        }
        Err(why)
    }
}
