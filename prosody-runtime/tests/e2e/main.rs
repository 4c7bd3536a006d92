//! The whole client against the in-process broker: over pipes, on a paused clock, unless a test says otherwise.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::type_complexity,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]

mod collector;
mod dedup_store;
mod deferral;
mod deferral_bounds;
mod delivery;
mod extremes;
mod failure_topic;
mod failures;
mod fairness;
mod filters;
mod handover;
mod insight;
mod lifecycle;
mod memory;
mod mock;
mod modes;
mod options;
mod probes;
mod propagation;
mod security;
mod segments;
mod shutdown;
mod stage;
mod stories;
mod telemetry;
mod threads;
mod timers;
mod timers_store;
mod traces;
mod waiting;
mod world;
