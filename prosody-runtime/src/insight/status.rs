//! What is the state of an assigned partition now, and is it stalled? One definition for `/livez`, `is_stalled` and health
//! checks. *Pure.*

use crate::partition::event::Position;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::Instant;

/// Handlers that one line of text names.
const NAMED: usize = 8;

/// One assigned partition as it is now; see [`Client::partitions`](crate::Client::partitions).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionStatus {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition of the topic.
    pub partition: i32,
    /// The first offset that is not finished; the one that is committed next.
    pub watermark: i64,
    /// The offset behind the last record that exists, as the last fetch said; `None` before the first.
    pub end: Option<i64>,
    /// Records that are read and not finished.
    pub unfinished: usize,
    /// Of those, messages that run, wait for a retry, or queue behind their key: what `MaxUncommitted` bounds.
    pub in_progress: usize,
    /// For how long records have been unfinished without one of them finishing; zero while there are none.
    pub standing: Duration,
    /// Handlers that run, the longest first.
    pub running: Vec<RunningHandler>,
    /// Timers that are due: they run, queue behind their key, or wait for room.
    pub timers_due: usize,
    /// Timers kept in memory; the store may have more, of later.
    pub timers_resident: usize,
    /// When the first of those that are due was due, in seconds since the Unix epoch.
    pub oldest_timer: Option<u32>,
    /// How long ago that was.
    pub timers_overdue: Option<Duration>,
    /// Keys with events that are set aside, at most 100,000; those of an earlier owner count once they were met.
    pub deferred_keys: usize,
    /// Age of the oldest of the events that are set aside and next of their key, by the timestamp of its record or the
    /// time of its timer; `None` when there is none, or none was met.
    pub oldest_deferred: Option<Duration>,
    /// Why the store cannot be used just now.
    pub store_error: Option<String>,
    /// A handler has run for longer than `StallThreshold`, or records are unfinished and none of them finished for that
    /// long. A partition with nothing to do is not stalled.
    pub stalled: bool,
}

/// A handler that runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunningHandler {
    /// The key of its message.
    pub key: String,
    /// Which event of its key it is.
    pub position: Position,
    /// For how long.
    pub lasts: Duration,
    /// It was abandoned at the end of an earlier assignment and has not returned; its key waits for it.
    pub abandoned: bool,
}

impl PartitionStatus {
    /// Records that exist and are not finished; `None` before the first fetch.
    #[must_use]
    pub fn lag(&self) -> Option<i64> {
        Some(self.end?.saturating_sub(self.watermark).max(0))
    }

    /// One line for a person: what stands still, for how long, and which handlers run. Keys only when asked for.
    #[must_use]
    pub fn describe(&self, keys: bool) -> String {
        let mut text = format!(
            "{}[{}] at offset {}: {} unfinished, none of them finished for {} s",
            self.topic,
            self.partition,
            self.watermark,
            self.unfinished,
            self.standing.as_secs()
        );
        for running in self.running.iter().take(NAMED) {
            let (position, lasts) = (running.position, running.lasts.as_secs());
            let who = if running.abandoned { "an abandoned handler" } else { "a handler" };
            text.push_str(&format!("; {who} runs {position} for {lasts} s"));
            if keys {
                text.push_str(&format!(" (key {:?})", running.key));
            }
        }
        if let Some(more) = self.running.len().checked_sub(NAMED).filter(|more| *more > 0) {
            text.push_str(&format!("; {more} more handlers run"));
        }
        text
    }
}

/// Without keys, so that it may go anywhere.
impl fmt::Display for PartitionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(false))
    }
}

/// What [`is_stalled`] looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// When the handler that runs longest started.
    pub(crate) runs_since: Option<Instant>,
    /// When a record last finished, or came while none was unfinished; `None` while none is.
    pub(crate) stands_since: Option<Instant>,
}

/// The definition.
pub(crate) fn is_stalled(facts: Facts, now: Instant, threshold: Duration) -> bool {
    let passed =
        |since: Option<Instant>| since.is_some_and(|since| now.saturating_duration_since(since) >= threshold);
    passed(facts.runs_since) || passed(facts.stands_since)
}
