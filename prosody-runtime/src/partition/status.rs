//! What does an assigned partition look like from outside, at this moment?

use std::sync::Arc;
use std::time::Duration;

use prosody_base::Instant;

use prosody_state::Time;

use super::event::Position;
use super::runtime::Partition;
use crate::insight::status::{Facts, PartitionStatus, RunningHandler, is_stalled};
use crate::schedule::gate::Running;

impl Partition {
    /// `running` is what the gate says runs, of all partitions; `end` what the last fetch said.
    pub(crate) fn status(
        &self,
        running: &[Running],
        end: Option<i64>,
        now: Instant,
        threshold: Duration,
    ) -> PartitionStatus {
        let abandoned = self.abandoned();
        let core = self.lock();
        let (offsets, unfinished) = (core.window.offsets(), core.window.offsets().outstanding());
        let mine = running.iter().filter(|running| running.partition == self.id());
        let mut handlers: Vec<(Instant, RunningHandler)> = mine
            .map(|running| {
                let key = String::from_utf8_lossy(core.window.key(running.slot)).into_owned();
                handler(key, running.position, running.since, now, false)
            })
            .chain(
                abandoned.into_iter().map(|(key, position, since)| handler(key, position, since, now, true)),
            )
            .collect();
        handlers.sort_by_key(|(since, running)| (*since, running.position));
        let facts = Facts {
            runs_since: handlers.first().map(|(since, _)| *since),
            stands_since: (unfinished > 0).then_some(core.moved),
        };
        let health = self.durable().map(|durable| durable.health()).unwrap_or_default();
        let timers = health.timers;
        PartitionStatus {
            timers_due: timers.due,
            timers_resident: timers.resident,
            oldest_timer: timers.oldest_due.map(Time::seconds),
            timers_overdue: health.overdue,
            deferred_keys: health.deferred_keys,
            oldest_deferred: health.oldest_deferred,
            store_error: timers.store_error,
            topic: Arc::clone(&self.tp().topic),
            partition: self.tp().partition,
            watermark: offsets.watermark(),
            end,
            unfinished,
            in_progress: core.window.in_progress(),
            standing: facts.stands_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
            running: handlers.into_iter().map(|(_, running)| running).collect(),
            stalled: is_stalled(facts, now, threshold),
        }
    }
}

fn handler(
    key: String,
    position: Position,
    since: Instant,
    now: Instant,
    abandoned: bool,
) -> (Instant, RunningHandler) {
    let lasts = now.saturating_duration_since(since);
    (since, RunningHandler { key, position, lasts, abandoned })
}
