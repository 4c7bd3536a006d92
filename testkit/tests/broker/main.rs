//! Does the broker do what Kafka does? One program, so that it is linked once.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

mod alter_configs;
mod apis;
mod common;
mod consumer_groups;
mod faults;
mod fetching;
mod groups;
mod hostile;
mod port;
mod transactions;
mod versions;
