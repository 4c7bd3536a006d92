//! What does a worker do? It takes one ready event after the other and runs the user's handler on it. The only file
//! that is compiled once for each handler type, so that a message costs no allocation and no virtual call.

use std::sync::Arc;

use prosody_base::{Lane, Spawner};

use crate::context::Attempt;
use crate::durable::settle::{self, Effects, Ended};
use crate::handler::Handler;
use crate::hosted::Worker;
use crate::partition::keys::Keyed;
use crate::partition::window::Ending;
use crate::pipeline::verdict::Verdict;
use crate::pipeline::{Fate, Pipeline, process};
use crate::schedule::fair::Policy;
use crate::schedule::gate::{Gate, Occupied, Ran, Ready, Running, Seat};
use crate::schedule::routes;

/// Events after which a worker lets other tasks of its thread run.
const TURN: u32 = 64;

/// A gate whose workers run `handler`.
pub(crate) fn gate<H: Handler>(
    handler: H,
    pipeline: Arc<Pipeline>,
    permits: (usize, Policy),
    occupied: Arc<Occupied>,
    spawner: Spawner,
) -> Arc<Gate> {
    let crew = handler.crew();
    let handler = Arc::new(handler);
    let (threads, clock) = (spawner.work_threads(), pipeline.clock.clone());
    let launch = move |gate: &Arc<Gate>, seat: Arc<Seat>| {
        let worker = work(Arc::clone(gate), seat, Arc::clone(&pipeline), Arc::clone(&handler));
        match &crew {
            Some(crew) => Arc::clone(crew).employ(Worker::new(gate, &pipeline.clock, worker)),
            None => spawner.spawn(Lane::Work, worker).detach(),
        }
    };
    Gate::new(permits, threads, occupied, clock, Box::new(launch))
}

async fn work<H: Handler>(gate: Arc<Gate>, seat: Arc<Seat>, pipeline: Arc<Pipeline>, handler: Arc<H>) {
    let clock = &pipeline.clock;
    let mut attempt = Arc::new(Attempt::new(clock.clone()));
    let (mut scratch, mut turn) = (Vec::new(), 0u32);
    let (mut ran, mut now) = (None, clock.now());
    while let Some((Ready { partition, admitted }, grant)) = gate.next(&seat, ran.take(), now).await {
        let slot = admitted.slot;
        attempt = Attempt::renew(attempt, grant.at + pipeline.timeout);
        let (position, since) = (admitted.event.position(), grant.at);
        seat.sit(Running { partition: partition.id(), slot, position, since, attempt: Arc::clone(&attempt) });
        let Fate { verdict, failure, event } =
            process(&pipeline, &*handler, &partition, &admitted, &attempt, &gate).await;
        seat.rise();
        // Nothing of it counts unless it ended well, and its handles are dead from here on.
        let asked = if partition.durable().is_some() { attempt.close() } else { None };
        now = clock.now();
        if failure.attempts > 0 {
            pipeline.counters.handler_time.record(now.saturating_duration_since(since));
        }
        let ticket = admitted.event.ticket();
        if let Some(monopoly) = &pipeline.monopoly {
            let key = || partition.key_name(admitted.event.key());
            monopoly.ran(key, now.saturating_duration_since(since), now);
        }
        ran = Some(Ran { grant, until: now });
        match (verdict, &pipeline.failure_topic) {
            (Verdict::Done, _) => {
                let told = asked.is_some() && pipeline.telemetry.is_some();
                let effects = Effects::Succeeded(asked, if told { attempt.place.here() } else { None });
                let ended = Ended { effects, event };
                settle::end(&gate, partition, admitted, ended, &mut scratch, &mut ran).await;
            }
            (Verdict::GiveUp, _) => {
                let ended = Ended { effects: Effects::Failed, event };
                settle::end(&gate, partition, admitted, ended, &mut scratch, &mut ran).await;
            }
            (Verdict::Defer, _) => {
                let tried = admitted.event.deferred().map_or(0, |tried| tried.saturating_add(1));
                let effects = Effects::Deferred(pipeline.deferral.wait(tried, pipeline.rng.unit()));
                pipeline.counters.deferred.one();
                settle::end(&gate, partition, admitted, effects.into(), &mut scratch, &mut ran).await;
            }
            (Verdict::Route, Some(topic)) => {
                let failed = (failure, attempt.place.here());
                routes::write(&pipeline, topic, &gate, partition, admitted, failed);
            }
            // Only a mode with a failure topic routes; what could not be routed would not be lost.
            (Verdict::Unfinished | Verdict::Route, _) => {
                partition.finish(slot, ticket, Ending::Unfinished, &mut scratch, &mut ran);
            }
            (Verdict::Retry(wait), _) => {
                pipeline.counters.retries.one();
                if !partition.retry(admitted, now + wait) {
                    partition.finish(slot, ticket, Ending::Unfinished, &mut scratch, &mut ran);
                }
            }
            (Verdict::LeftBehind, _) => {
                // The handler goes on outside; what an ending does happens when it says so.
                gate.occupy();
                let (gate, clock, mut ran) = (Arc::clone(&gate), clock.clone(), ran.take());
                attempt.when_vacant(move || {
                    ran.iter_mut().for_each(|ran| ran.until = clock.now());
                    partition.finish(slot, ticket, Ending::Unfinished, &mut Vec::new(), &mut ran);
                    gate.vacated(ran);
                });
            }
        }
        turn += 1;
        if turn.is_multiple_of(TURN) {
            tokio::task::yield_now().await;
            now = clock.now();
        }
    }
}
