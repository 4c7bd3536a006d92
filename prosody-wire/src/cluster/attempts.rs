//! How often is a call to the cluster tried? Until it succeeds, fails for good, or its deadline passes.

use std::future::Future;
use std::time::Duration;

use prosody_base::Instant;

use super::Cluster;
use crate::error::{Error, ErrorKind};
use crate::proto::{Disposition, ErrorCode};

/// What an attempt needs to know of the ones before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// Time left until the deadline, at most the request timeout.
    pub(crate) timeout: Duration,
    /// An earlier attempt may have had its effect although it failed.
    pub(crate) unclear: bool,
}

impl Attempt {
    /// For `timeout_ms` fields.
    pub(crate) fn timeout_ms(self) -> i32 {
        i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX)
    }
}

impl Cluster {
    /// Runs attempts until one succeeds, fails for good, or `deadline` passes. The first retry follows at once, or with
    /// fresh metadata where that helps; each later one waits for the backoff, too.
    pub(crate) async fn attempts<T, F>(
        &self,
        doing: &str,
        deadline: Instant,
        mut attempt: impl FnMut(Attempt) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let (doors, limits) = (self.doors(), self.limits());
        let mut unclear = false;
        let mut last = Error::new("waiting for a broker", ErrorKind::Timeout);
        for number in 0.. {
            let now = doors.clock.now();
            let timeout = deadline.saturating_duration_since(now).min(limits.request_timeout);
            if timeout.is_zero() {
                break;
            }
            match doors.clock.until(deadline, attempt(Attempt { timeout, unclear })).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) if error.is_retriable() => {
                    unclear |= error.maybe_sent() || error.code() == Some(ErrorCode::REQUEST_TIMED_OUT);
                    // What the deadline cut off says less than what failed before it.
                    if number == 0 || doors.clock.now() < deadline {
                        last = error;
                    }
                    if last.disposition() == Disposition::RefreshMetadata {
                        // Its own failure shows at the next attempt.
                        let _ = self.refresh(deadline).await;
                    }
                }
                Ok(Err(error)) => return Err(error.during(doing)),
                Err(_) => break,
            }
            if number > 0 {
                let wait = doors.rng.backoff(limits.backoff, limits.backoff_max, number - 1);
                doors.clock.sleep_until(deadline.min(doors.clock.now() + wait)).await;
            }
        }
        Err(last.during(&format!("{doing} (deadline passed)")))
    }
}
