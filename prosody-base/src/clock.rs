//! What time is it, and how do I wait? The only file that asks the operating system or tokio for time.
#![allow(clippy::disallowed_methods, reason = "this file is the door to time")]

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point on the monotonic clock. Under a paused runtime it moves only when every task waits.
pub type Instant = tokio::time::Instant;

/// Wall time at which every simulated run starts: 2026-01-01T00:00:00Z in milliseconds.
const SIMULATED_EPOCH_MS: i64 = 1_767_225_600_000;

/// A deadline passed before the awaited work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

/// Monotonic and wall time. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Start of a simulated run; `None` asks the operating system for wall time.
    origin: Option<Instant>,
}

impl Clock {
    /// The machine's clocks.
    #[must_use]
    pub fn system() -> Clock {
        Clock { origin: None }
    }

    /// Wall time that follows tokio's clock from a fixed date, so that a seed always sees the same timestamps.
    #[must_use]
    pub fn simulated() -> Clock {
        Clock { origin: Some(Instant::now()) }
    }

    /// Now, on the monotonic clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// Milliseconds since the Unix epoch, as Kafka timestamps count them.
    #[must_use]
    pub fn unix_millis(&self) -> i64 {
        match self.origin {
            Some(origin) => {
                let run = Instant::now().saturating_duration_since(origin).as_millis();
                SIMULATED_EPOCH_MS.saturating_add(i64::try_from(run).unwrap_or(i64::MAX))
            }
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
        }
    }

    /// Nanoseconds since the Unix epoch, as spans count them.
    #[must_use]
    pub fn unix_nanos(&self) -> u64 {
        let since = match self.origin {
            Some(origin) => {
                let start = Duration::from_millis(SIMULATED_EPOCH_MS.unsigned_abs());
                start.saturating_add(Instant::now().saturating_duration_since(origin))
            }
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        };
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Waits until `deadline`; returns at once when it has passed.
    pub async fn sleep_until(&self, deadline: Instant) {
        tokio::time::sleep_until(deadline).await;
    }

    /// Runs `work` until `deadline`.
    ///
    /// # Errors
    /// [`Elapsed`] when the deadline came first; `work` is dropped then.
    pub async fn until<F: Future>(&self, deadline: Instant, work: F) -> Result<F::Output, Elapsed> {
        tokio::time::timeout_at(deadline, work).await.map_err(|_| Elapsed)
    }
}
