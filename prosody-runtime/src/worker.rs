//! What does a worker do? It takes one ready event after the other and runs the user's handler on it. The only file
//! that is compiled once for each handler type, so that a message costs no allocation and no virtual call.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use prosody_base::{Lane, Spawner};

use crate::context::Attempt;
use crate::handler::Handler;
use crate::partition::window::Ending;
use crate::pipeline::verdict::Verdict;
use crate::pipeline::{Fate, Pipeline, process};
use crate::schedule::gate::{Gate, Ready, Running, Seat};
use crate::schedule::routes;

/// Events after which a worker lets other tasks of its thread run.
const TURN: u32 = 64;

/// A gate whose workers run `handler`.
pub(crate) fn gate<H: Handler>(
    handler: H,
    pipeline: Arc<Pipeline>,
    max: usize,
    occupied: Arc<AtomicUsize>,
    spawner: Spawner,
) -> Arc<Gate> {
    let handler = Arc::new(handler);
    let threads = spawner.work_threads();
    let launch = move |gate: &Arc<Gate>, seat: Arc<Seat>| {
        let worker = work(Arc::clone(gate), seat, Arc::clone(&pipeline), Arc::clone(&handler));
        spawner.spawn(Lane::Work, worker).detach();
    };
    Gate::new(max, threads, occupied, Box::new(launch))
}

async fn work<H: Handler>(gate: Arc<Gate>, seat: Arc<Seat>, pipeline: Arc<Pipeline>, handler: Arc<H>) {
    let clock = &pipeline.clock;
    let mut attempt = Arc::new(Attempt::new(clock.clone()));
    let (mut scratch, mut turn) = (Vec::new(), 0u32);
    while let Some(Ready { partition, admitted }) = gate.next(&seat).await {
        let (slot, event) = (admitted.slot, admitted.event);
        attempt = Attempt::renew(attempt, clock.now() + pipeline.timeout);
        let offset = event.record.offset;
        seat.sit(Running { partition: partition.id(), slot, offset, attempt: Arc::clone(&attempt) });
        let is_running = || partition.is_running();
        let Fate { verdict, failure } =
            process(&pipeline, &*handler, partition.tp(), &event, &attempt, &gate, is_running).await;
        seat.rise();
        let ticket = event.ticket;
        match (verdict, &pipeline.failure_topic) {
            (Verdict::Done | Verdict::GiveUp, _) => {
                partition.finish(slot, ticket, Ending::Done, &mut scratch)
            }
            (Verdict::Route, Some(topic)) => {
                routes::write(&pipeline, topic, &gate, partition, (slot, event), failure);
            }
            // Only a mode with a failure topic routes; what could not be routed would not be lost.
            (Verdict::Unfinished | Verdict::Route, _) => {
                partition.finish(slot, ticket, Ending::Unfinished, &mut scratch);
            }
            (Verdict::Retry(wait), _) => {
                if !partition.retry(slot, event, clock.now() + wait) {
                    partition.finish(slot, ticket, Ending::Unfinished, &mut scratch);
                }
            }
            (Verdict::LeftBehind, _) => {
                // The handler goes on outside; what an ending does happens when it says so.
                gate.occupy();
                let gate = Arc::clone(&gate);
                attempt.when_vacant(move || {
                    partition.finish(slot, ticket, Ending::Unfinished, &mut Vec::new());
                    gate.vacated();
                });
            }
        }
        turn += 1;
        if turn.is_multiple_of(TURN) {
            tokio::task::yield_now().await;
        }
    }
}
