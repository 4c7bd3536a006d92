#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test owns its runtime and its clock"))]
//! The doors every Prosody crate shares: time, randomness, tasks, in-memory pipes, and the guard that bounds what a
//! peer's message may make us allocate.
//!
//! Nothing here knows Kafka's meaning or a client's logic. A driver takes one [`Doors`] value and reaches the outside
//! world only through it, so the whole client runs unchanged on a paused clock with a seeded generator.
//!
//! | file | question it answers |
//! |---|---|
//! | `clock.rs` | what time is it, and how do I wait? |
//! | `manual.rs` | how does time pass when somebody says so? |
//! | `count.rs` | how is something counted without a lock? |
//! | `rng.rs` | where does jitter come from? |
//! | `spawn.rs` | which thread runs this task, and who ends it? |
//! | `guard/` | may a decoder see these bytes? |
//! | `pipe.rs` | how do two ends of one process talk without sockets? |
//! | `sabotage.rs` | which safety checks can be switched off to prove that tests notice? |

mod clock;
mod count;
pub mod guard;
mod manual;
mod pipe;
mod rng;
mod sabotage;
mod spawn;
pub mod watch;

pub use clock::{Clock, Elapsed, Hold, Instant};
pub use count::{Counter, Distribution, Histogram};
pub use manual::{PATIENCE, VirtualTime};
pub use pipe::{Network, PipeListener, PipeStream};
pub use rng::Rng;
pub use sabotage::{GUARDS, SABOTAGE, sabotaged};
pub use spawn::{Lane, Spawner, Task};

/// Everything a driver may use of the outside world besides its connector.
#[derive(Clone, Debug)]
pub struct Doors {
    /// Time.
    pub clock: Clock,
    /// Randomness: jitter and identifiers, never secrets.
    pub rng: Rng,
    /// Tasks.
    pub spawner: Spawner,
}

impl Doors {
    /// The real clock, a generator seeded by the operating system and the process-wide threads.
    ///
    /// # Errors
    /// When the operating system refuses to start a thread.
    pub fn process() -> std::io::Result<Doors> {
        Ok(Doors { clock: Clock::system(), rng: Rng::from_entropy(), spawner: Spawner::process()? })
    }

    /// The real clock, a generator seeded by the operating system, and tasks on the current runtime. A call then changes
    /// threads twice less often, and waits while the runtime's threads are blocked.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn current() -> Doors {
        Doors { clock: Clock::system(), rng: Rng::from_entropy(), spawner: Spawner::current() }
    }

    /// For tests and simulations: tasks on the current runtime, wall time derived from its (possibly paused) clock.
    #[must_use]
    pub fn simulated(seed: u64) -> Doors {
        Doors { clock: Clock::simulated(), rng: Rng::seeded(seed), spawner: Spawner::here() }
    }
}
