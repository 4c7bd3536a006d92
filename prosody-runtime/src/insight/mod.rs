//! What has happened so far, and what goes on now? Counters that cost one addition each.
//!
//! | file | question it answers |
//! |---|---|
//! | `status.rs` | what is the state of a partition, and is it stalled? |
//! | `table.rs` | which metrics exist, and what do they mean? |
//! | `reading.rs` | what do they say at this moment? |
//! | `prometheus.rs`, `quote.rs` | how do they look as text, and how does text look as JSON? |
//! | `beats.rs` | does every loop still go on? |

pub(crate) mod beats;
pub(crate) mod prometheus;
pub(crate) mod quote;
pub(crate) mod reading;
pub(crate) mod status;
pub(crate) mod table;

use prosody_base::{Counter, Histogram};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Live counters of one client.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { pub(crate) handler_time: Histogram, $(pub(crate) $name: Counter),* }

        /// How often things happened since the client was built.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Insight { $($(#[$doc])* pub $name: u64),* }

        impl Counters {
            pub(crate) fn read(&self) -> Insight {
                Insight { $($name: self.$name.get()),* }
            }
        }
    };
}

// One list, or the live and the public struct drift apart.
counters! {
    /// Messages whose handler returned ok.
    handled,
    /// Timers whose handler returned ok.
    timers_handled,
    /// Attempts that failed for a transient reason, panics included.
    failed_attempts,
    /// Handlers that panicked.
    panics,
    /// Attempts that failed for a permanent reason.
    permanent_errors,
    /// Events that count as done although their handler failed. Each wrote one error line.
    given_up,
    /// Of those, timers.
    timers_given_up,
    /// Records written to the failure topic.
    routed,
    /// Of those, timers.
    timers_routed,
    /// Writes to the failure topic that failed and are tried again.
    failed_routes,
    /// Attempts that were asked to cancel because their timeout passed.
    timeouts,
    /// Attempts that were scheduled after a failure.
    retries,
    /// Messages skipped because this group's own application sent them.
    skipped_own,
    /// Messages skipped because of their `type`.
    skipped_type,
    /// Messages skipped because their key and `id` were processed before.
    duplicates,
    /// Records that are no messages: no key, a key that is not UTF-8, a payload that is not JSON.
    poison,
    /// Records with a null value.
    tombstones,
    /// Records that came twice in one assignment and were dropped.
    rewound,
    /// Messages skipped because their key's record said that they were done.
    skipped_done,
    /// Messages skipped because an earlier owner of their partition had finished them.
    skipped_finished,
    /// Handlers that were abandoned at the end of a shutdown.
    abandoned,
    /// Commits the group accepted.
    commits,
    /// Commits that failed.
    failed_commits,
    /// Assignments received.
    assignments,
    /// Partitions lost without notice.
    lost_partitions,
    /// Events that were set aside: failed, or behind one of their key that was.
    deferred,
    /// Deferred messages that were passed over because Kafka has them no more.
    deferred_gone,
    /// Attempts refused because their key took nearly all the time.
    monopolies,
    /// Records that were set aside, needed again and still in memory.
    reload_hits,
    /// Records that were set aside and read from Kafka again.
    reloads,
    /// Records that were set aside and are not in Kafka any more.
    reloads_gone,
    /// Records that could not be read again in time.
    reloads_failed,
    /// Fetches for those records; one can bring many.
    reload_fetches,
    /// Statements the store failed to carry out and that are tried again.
    store_errors,
    /// Of those, statements the store refused for good: no retry helps before somebody repairs it.
    store_refusals,
    /// Batches that another owner of their partition was ahead of.
    conflicts,
    /// Messages sent and acknowledged.
    sent,
    /// Sends that failed.
    failed_sends,
    /// Telemetry events that a broker acknowledged.
    telemetry_sent,
    /// Telemetry events that were dropped because too many waited.
    telemetry_dropped,
    /// Telemetry events that could not be sent.
    telemetry_failed,
    /// Spans that a collector took.
    spans_sent,
    /// Spans that were dropped because too many waited.
    spans_dropped,
    /// Spans that no collector took in time.
    spans_failed,
}
