//! How is a partition given up? In three phases: *draining*, at once: nothing new starts; *cancelling*, after 80 % of the
//! time: handlers are asked to end; *terminating*, at its end: handlers are abandoned and named.

use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Clock, Instant, Lane, sabotaged};
use prosody_wire::group::Group;
use tracing::{info, warn};

use super::Inner;
use super::assign::Leaving;
use crate::error::Error;
use crate::partition::runtime::Partition;

/// Time kept back of a rebalance's deadline for the commit.
const COMMIT_RESERVE: Duration = Duration::from_secs(2);
/// Longest wait for the last commit and for the farewell to the group.
const FAREWELL: Duration = Duration::from_secs(5);
/// Keys named in one log line.
const NAMED: usize = 8;

/// When the phases begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Phases {
    cancelling: Instant,
    terminating: Instant,
}

impl Phases {
    fn new(now: Instant, timeout: Duration, deadline: Option<Instant>) -> Phases {
        let latest = deadline.map(|deadline| {
            let reserved = deadline.checked_sub(COMMIT_RESERVE).unwrap_or(now);
            reserved.saturating_duration_since(now)
        });
        let time = latest.map_or(timeout, |latest| latest.min(timeout));
        Phases { cancelling: now + time / 5 * 4, terminating: now + time }
    }
}

/// Gives partitions up, all at the same time, and commits what they finished unless they are lost.
pub(super) async fn give_up(
    inner: &Arc<Inner>,
    leaving: Vec<Leaving>,
    deadline: Option<Instant>,
    commit: bool,
) -> Result<(), Error> {
    let now = inner.doors.clock.now();
    let phases = Phases::new(now, inner.config.shutdown_timeout, deadline);
    let drains: Vec<_> = leaving
        .iter()
        .map(|leaving| {
            let (partition, clock) = (Arc::clone(&leaving.partition), inner.doors.clock.clone());
            let counters = Arc::clone(&inner.counters);
            inner.doors.spawner.spawn(Lane::Io, async move {
                counters.abandoned.add(drain(&partition, &clock, phases).await as u64);
            })
        })
        .collect();
    for drained in drains {
        let _ = drained.await;
    }
    let committed = if commit {
        let partitions = leaving.iter().map(|leaving| (leaving.epoch, Arc::clone(&leaving.partition)));
        let latest = deadline.unwrap_or_else(|| inner.doors.clock.now() + FAREWELL);
        inner.commits.commit(inner, partitions.collect(), latest).await
    } else {
        Ok(())
    };
    for leaving in &leaving {
        leaving.partition.close();
    }
    committed
}

/// Goes through the phases; how many handlers were abandoned.
async fn drain(partition: &Partition, clock: &Clock, phases: Phases) -> usize {
    partition.drain();
    if sabotaged("drain-waits") || clock.until(phases.cancelling, partition.ended()).await.is_ok() {
        return 0;
    }
    info!(partition = %partition.tp(), "handlers are asked to end: their partition is being given up");
    partition.cancel();
    if clock.until(phases.terminating, partition.ended()).await.is_ok() {
        return 0;
    }
    let left = partition.close();
    if !left.is_empty() {
        let named: Vec<String> =
            left.iter().take(NAMED).map(|(key, position)| format!("{key:?} at {position}")).collect();
        warn!(
            partition = %partition.tp(),
            count = left.len(),
            keys = named.join(", "),
            "handlers still run at the end of ShutdownTimeout and are abandoned; their events stay unfinished"
        );
    }
    left.len()
}

/// Ends a subscription: gives everything up, commits and leaves the group.
pub(super) async fn end(inner: &Arc<Inner>, group: Group) -> Result<(), Error> {
    let all = inner.assignments.take_all();
    let result = give_up(inner, all, None, true).await;
    inner.assignments.all_left().await;
    inner.shared.gate.close();
    group.leave(inner.doors.clock.now() + FAREWELL).await;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rebalance_that_ends_sooner_than_shutdown_timeout_shortens_the_phases() {
        let (now, timeout) = (Instant::now(), Duration::from_secs(30));
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(Phases::new(now, timeout, None), Phases { cancelling: at(24), terminating: at(30) });
        assert_eq!(
            Phases::new(now, timeout, Some(at(12))),
            Phases { cancelling: at(8), terminating: at(10) }
        );
        assert_eq!(Phases::new(now, timeout, Some(at(1))), Phases { cancelling: now, terminating: now });
    }
}
