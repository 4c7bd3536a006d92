//! Which metrics exist, and what do they mean? The one table: Prometheus text, the Meter of .NET and docs/operations.md
//! come from it.

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows; starts again at 0 with the client.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How often something took how long.
    Histogram,
}

/// One metric.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricSpec {
    /// Its name in Prometheus text. Every sample also has the labels `client` and `group`.
    pub name: &'static str,
    /// How it behaves.
    pub kind: MetricKind,
    /// What one of it is: `messages`, `seconds`, `bytes`, …
    pub unit: &'static str,
    /// Names of its own labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
    /// What to be alerted on; empty where nothing is.
    pub alert: &'static str,
}

macro_rules! metrics {
    ($($id:ident = $kind:ident $name:literal in $unit:literal by $labels:expr, $help:literal, $alert:literal;)*) => {
        $(pub(crate) static $id: MetricSpec = MetricSpec {
            name: $name, kind: MetricKind::$kind, unit: $unit, labels: &$labels, help: $help, alert: $alert,
        };)*

        /// Every metric, in the order in which they are listed and written.
        pub static METRICS: &[&MetricSpec] = &[$(&$id),*];
    };
}

metrics! {
    MESSAGES = Counter "prosody_messages_total" in "messages" by ["outcome"],
        "Messages that are finished: `ok`, `given_up` (their handler failed; an error line says which) or `routed` (they are in the failure topic).",
        "any rate of `given_up`";
    TIMERS = Counter "prosody_timers_total" in "timers" by ["outcome"],
        "Timers that fired and are finished: `ok`, `given_up` or `routed`, as for messages.",
        "any rate of `given_up`";
    ATTEMPTS_FAILED = Counter "prosody_attempts_failed_total" in "attempts" by ["class"],
        "Attempts that failed, by what the error said about another try: `transient` (panics included) or `permanent`.",
        "rate above a tenth of `prosody_messages_total`";
    PANICS = Counter "prosody_handler_panics_total" in "attempts" by [],
        "Handlers that panicked.",
        "any";
    TIMEOUTS = Counter "prosody_handler_timeouts_total" in "attempts" by [],
        "Attempts that were asked to cancel because `Timeout` passed.",
        "any lasting rate";
    ABANDONED = Counter "prosody_handlers_abandoned_total" in "handlers" by [],
        "Handlers that still ran at the end of `ShutdownTimeout`.",
        "any: a handler ignores its cancellation";
    RETRIES = Counter "prosody_retries_total" in "attempts" by [],
        "Attempts that were scheduled after a failure.",
        "";
    HANDLER_TIME = Histogram "prosody_handler_duration_seconds" in "seconds" by [],
        "From the grant of a permit to the end of the attempt.",
        "the 99th percentile close to `Timeout`";
    SKIPPED = Counter "prosody_skipped_total" in "records" by ["reason"],
        "Records that never reached a handler: `own` (sent by this group's application), `type` (not in `AllowedEvents`), `finished` (an earlier owner finished them), `done` (their effects are stored) or `seen` (read twice in one assignment).",
        "";
    STORE_ERRORS = Counter "prosody_store_errors_total" in "statements" by ["category"],
        "Statements the store failed to carry out (`transient`), or refused so that no retry helps before it is repaired (`refused`); they are tried again while their key waits.",
        "any rate of `transient` for minutes, any `refused` (keys wait)";
    STORE_CONFLICTS = Counter "prosody_store_conflicts_total" in "batches" by [],
        "Batches that another owner of their partition was ahead of; their events run again if the partition is ours.",
        "any rate beyond rebalances";
    DEDUP_HITS = Counter "prosody_dedup_hits_total" in "messages" by [],
        "Messages skipped because their key and `id` were processed before.",
        "";
    POISON = Counter "prosody_poison_total" in "records" by [],
        "Records that are no messages: no key, a key that is not UTF-8, a payload that is not JSON.",
        "any: a producer is broken";
    TOMBSTONES = Counter "prosody_tombstones_total" in "records" by [],
        "Records with a null value.",
        "";
    FAILURE_WRITES = Counter "prosody_failure_topic_writes_total" in "records" by ["result"],
        "Writes to the failure topic: `ok`, or `failed` and tried again.",
        "any rate of `ok` (somebody must look at them); `failed` for minutes (keys wait)";
    DEFERRED = Counter "prosody_deferred_total" in "events" by [],
        "Events that were set aside, each time: their handler failed, or an event of their key before them is set aside.",
        "a lasting rate";
    DEFERRED_GONE = Counter "prosody_deferred_gone_total" in "messages" by [],
        "Deferred messages that were passed over because Kafka has them no more. A warning says which.",
        "any: retention is shorter than the wait";
    MONOPOLIES = Counter "prosody_monopolies_total" in "attempts" by [],
        "Attempts refused because their key took more than `MonopolizationThreshold` of the execution time.",
        "any";
    RELOADS = Counter "prosody_reloads_total" in "records" by ["result"],
        "Records that were set aside and needed again: from `memory`, from `kafka`, `gone` (no longer in Kafka) or `failed` (not read within `LoaderSeekTimeout`; tried again).",
        "any `gone`: retention is shorter than what waits; a lasting rate of `failed`";
    RELOAD_FETCHES = Counter "prosody_reload_fetches_total" in "requests" by [],
        "Fetches for those records. One fetch can bring many.",
        "";
    PERMITS_USED = Gauge "prosody_permits_in_use" in "permits" by [],
        "Permits taken by running handlers, abandoned ones included.",
        "equal to `prosody_permits` for long while `prosody_ready` grows: raise `MaxConcurrency` or add instances";
    PERMITS = Gauge "prosody_permits" in "permits" by [],
        "`MaxConcurrency`.",
        "";
    READY = Gauge "prosody_ready" in "messages" by [],
        "Messages that could run and wait for a permit.",
        "";
    RETRIES_WAITING = Gauge "prosody_retries_waiting" in "messages" by [],
        "Messages that wait for their next attempt, each with its key.",
        "more than a few for long";
    ASSIGNED = Gauge "prosody_partitions_assigned" in "partitions" by [],
        "Partitions this client owns.",
        "0 for minutes, or the sum over the group below the number of partitions";
    OWNED_CACHE = Gauge "prosody_owned_cache_bytes" in "bytes" by [],
        "Memory that records of keys take, about; `StateOwnedCacheSize` bounds it.",
        "at the bound while the store is busy with reads: raise `StateOwnedCacheSize`";
    LAG = Gauge "prosody_partition_lag" in "records" by ["topic", "partition"],
        "Records of a partition that exist and are not finished, as the last fetch knew.",
        "growing for longer than a deployment takes";
    UNFINISHED = Gauge "prosody_partition_unfinished" in "records" by ["topic", "partition"],
        "Records of a partition that are read and not finished.",
        "";
    IN_PROGRESS = Gauge "prosody_partition_in_progress" in "messages" by ["topic", "partition"],
        "Messages of a partition that run, wait for a retry or queue behind their key; `MaxUncommitted` bounds them.",
        "at the bound for long: something holds the partition";
    TIMERS_DUE = Gauge "prosody_partition_timers_due" in "timers" by ["topic", "partition"],
        "Timers of a partition that are due: they run, queue behind their key, or wait for room.",
        "growing for long: timers fire later than they were meant to";
    TIMERS_OVERDUE = Gauge "prosody_partition_timers_overdue_seconds" in "seconds" by ["topic", "partition"],
        "For how long the first of the due timers of a partition has been due; 0 when none is.",
        "above a minute, beyond what handlers take: keys or permits are held, or the store is away";
    DEFERRED_KEYS = Gauge "prosody_partition_deferred_keys" in "keys" by ["topic", "partition"],
        "Keys of a partition with events that are set aside, at most 100,000. Those of an earlier owner count once their next event or retry came.",
        "growing for long: what handlers depend on fails for more and more keys";
    DEFERRED_OLDEST = Gauge "prosody_partition_deferred_oldest_seconds" in "seconds" by ["topic", "partition"],
        "Age of the oldest event that is set aside and the next of its key, by the timestamp of its record or the time of its timer; 0 when there is none.",
        "above the longest outage you accept, and well below the topic's retention: what Kafka deletes is lost";
    STANDING = Gauge "prosody_partition_standing_seconds" in "seconds" by ["topic", "partition"],
        "For how long records of a partition have been unfinished without one of them finishing.",
        "half of `StallThreshold`";
    STALLED = Gauge "prosody_partition_stalled" in "partitions" by ["topic", "partition"],
        "1 when the partition is stalled: a handler runs for longer than `StallThreshold`, or nothing finished for that long.",
        "1";
    REBALANCES = Counter "prosody_rebalances_total" in "assignments" by [],
        "Assignments received from the group.",
        "more than one in ten minutes without a deployment";
    LOST = Counter "prosody_partitions_lost_total" in "partitions" by [],
        "Partitions lost without notice: the session expired or the member was fenced.",
        "any: the process stood still, or the network did";
    COMMITS = Counter "prosody_commits_total" in "commits" by ["result"],
        "Offset commits: `ok` or `failed`.",
        "`failed` for minutes: after a restart everything since comes again";
    SENT = Counter "prosody_sent_total" in "messages" by ["result"],
        "Messages the application sent: `ok` (acknowledged) or `failed`.",
        "any rate of `failed`";
    TELEMETRY = Counter "prosody_telemetry_events_total" in "events" by ["result"],
        "Events for the telemetry topic: `ok` (acknowledged), `dropped` (too many waited) or `failed`.",
        "";
    SPANS = Counter "prosody_spans_total" in "spans" by ["result"],
        "Spans for the collector: `ok` (it took them), `dropped` (too many waited) or `failed`.",
        "any lasting rate of `dropped` or `failed`: traces have gaps";
    BROKER_TIME = Histogram "prosody_broker_request_duration_seconds" in "seconds" by ["broker", "request"],
        "From the writing of a request to its answer: `produce`, `fetch` (a broker holds one back while there is nothing to fetch) or `other`.",
        "the 99th percentile of `produce` above a second";
    BROKER_IN_FLIGHT = Gauge "prosody_broker_requests_in_flight" in "requests" by ["broker"],
        "Requests that are written and not answered.",
        "";
    BROKER_BYTES = Counter "prosody_broker_bytes_total" in "bytes" by ["broker", "direction"],
        "Bytes of requests (`sent`) and answers (`received`), compressed as they travel.",
        "";
    BROKER_CONNECTS = Counter "prosody_broker_connects_total" in "connections" by ["broker", "result"],
        "Connections opened (`ok`) and attempts that failed (`failed`).",
        "`failed` for minutes, or `ok` without an end";
    BROKER_THROTTLED = Counter "prosody_broker_throttled_seconds_total" in "seconds" by ["broker"],
        "How long brokers asked this client to keep away (quotas).",
        "any lasting rate";
}
