//! How are topics created, changed and asked about? Calls with a deadline, for tools and set-up; not on any hot path.
//!
//! | file | question |
//! |---|---|
//! | `topics.rs` | create, grow, delete and describe topics |
//! | `offsets.rs` | where do a topic's partitions begin and end? |

mod offsets;
mod topics;

use std::future::Future;
use std::time::Duration;

use prosody_base::Instant;

use crate::cluster::Cluster;
use crate::error::{Error, ErrorKind};
use crate::proto::{Disposition, ErrorCode};

pub use offsets::OffsetAt;
pub use topics::{ConfigEntry, NewTopic};

/// Administrative calls. Each retries what a retry helps (NOT_CONTROLLER, a broker that went away) until its deadline.
#[derive(Clone, Debug)]
pub struct Admin {
    cluster: Cluster,
}

/// What an attempt needs to know of the ones before it.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// Time left until the deadline, at most the request timeout.
    timeout: Duration,
    /// An earlier attempt may have had its effect although it failed.
    unclear: bool,
}

impl Attempt {
    /// For `timeout_ms` fields.
    fn timeout_ms(self) -> i32 {
        i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX)
    }
}

impl Admin {
    pub(crate) fn new(cluster: Cluster) -> Admin {
        Admin { cluster }
    }

    /// Runs attempts until one succeeds, fails for good, or `deadline` passes. The first retry follows at once; each
    /// later one waits for the backoff.
    async fn attempts<T, F>(
        &self,
        doing: &str,
        deadline: Instant,
        mut attempt: impl FnMut(Attempt) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let (doors, limits) = (self.cluster.doors(), self.cluster.limits());
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
                    if error.disposition() == Disposition::RefreshMetadata {
                        self.cluster.refresh_soon("an administrative call failed");
                    }
                    last = error;
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
