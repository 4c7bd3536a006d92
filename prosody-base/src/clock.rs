//! What time is it, and how do I wait? The only file that asks the operating system or tokio for time.
#![allow(clippy::disallowed_methods, reason = "this file is the door to time")]

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::manual::{Held, Manual};

/// A point on the monotonic clock. Under a paused runtime it moves only when every task waits.
pub type Instant = tokio::time::Instant;

/// Wall time at which every simulated run starts: 2026-01-01T00:00:00Z in milliseconds.
const SIMULATED_EPOCH_MS: i64 = 1_767_225_600_000;

/// A deadline passed before the awaited work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

/// Monotonic and wall time. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    System,
    /// Follows tokio's clock since then.
    Simulated(Instant),
    Manual(Manual),
}

/// See [`Clock::hold`].
#[must_use]
#[derive(Debug)]
pub struct Hold {
    _held: Option<Held>,
}

impl Clock {
    /// The machine's clocks.
    #[must_use]
    pub fn system() -> Clock {
        Clock(Kind::System)
    }

    /// Wall time that follows tokio's clock from a fixed date, so that a seed always sees the same timestamps.
    #[must_use]
    pub fn simulated() -> Clock {
        Clock(Kind::Simulated(Instant::now()))
    }

    /// See [`VirtualTime`](crate::VirtualTime).
    pub(crate) fn manual(hands: Manual) -> Clock {
        Clock(Kind::Manual(hands))
    }

    /// Now, on the monotonic clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            Kind::System | Kind::Simulated(_) => Instant::now(),
            Kind::Manual(hands) => hands.now(),
        }
    }

    /// Milliseconds since the Unix epoch, as Kafka timestamps count them.
    #[must_use]
    pub fn unix_millis(&self) -> i64 {
        match &self.0 {
            Kind::Simulated(origin) => {
                let run = Instant::now().saturating_duration_since(*origin).as_millis();
                SIMULATED_EPOCH_MS.saturating_add(i64::try_from(run).unwrap_or(i64::MAX))
            }
            Kind::Manual(hands) => hands.unix_millis(),
            Kind::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
        }
    }

    /// Nanoseconds since the Unix epoch, as spans count them.
    #[must_use]
    pub fn unix_nanos(&self) -> u64 {
        let since = match &self.0 {
            Kind::Simulated(origin) => {
                let start = Duration::from_millis(SIMULATED_EPOCH_MS.unsigned_abs());
                start.saturating_add(Instant::now().saturating_duration_since(*origin))
            }
            Kind::Manual(hands) => Duration::from_millis(hands.unix_millis().unsigned_abs()),
            Kind::System => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        };
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        match &self.0 {
            Kind::System | Kind::Simulated(_) => tokio::time::sleep(duration).await,
            // A time that is not reached in the life of a process is never reached.
            Kind::Manual(hands) => match hands.now().checked_add(duration) {
                Some(deadline) => hands.sleep_until(deadline).await,
                None => std::future::pending().await,
            },
        }
    }

    /// Waits until `deadline`; returns at once when it has passed.
    pub async fn sleep_until(&self, deadline: Instant) {
        match &self.0 {
            Kind::System | Kind::Simulated(_) => tokio::time::sleep_until(deadline).await,
            Kind::Manual(hands) => hands.sleep_until(deadline).await,
        }
    }

    /// Runs `work` until `deadline`.
    ///
    /// # Errors
    /// [`Elapsed`] when the deadline came first; `work` is dropped then.
    pub async fn until<F: Future>(&self, deadline: Instant, work: F) -> Result<F::Output, Elapsed> {
        match &self.0 {
            Kind::System | Kind::Simulated(_) => {
                tokio::time::timeout_at(deadline, work).await.map_err(|_| Elapsed)
            }
            Kind::Manual(hands) => {
                tokio::select! {
                    biased;
                    output = work => Ok(output),
                    () = hands.sleep_until(deadline) => Err(Elapsed),
                }
            }
        }
    }

    /// Whether somebody moves it; see [`VirtualTime`](crate::VirtualTime).
    #[must_use]
    pub fn is_manual(&self) -> bool {
        matches!(self.0, Kind::Manual(_))
    }

    /// Keeps a clock that somebody moves where it is until the result is dropped: user code runs. Other clocks go on.
    pub fn hold(&self) -> Hold {
        let _held = match &self.0 {
            Kind::System | Kind::Simulated(_) => None,
            Kind::Manual(hands) => Some(hands.hold()),
        };
        Hold { _held }
    }
}
