//! Rows of docs/bugs-of-others.md once more, on a real Apache Kafka: `cargo xtask test --suite kafka-4` starts one and runs
//! these with `PROSODY_REAL_KAFKA`, its addresses. Without it every test says that it did nothing.
//!
//! Faults are made by the connector of the client under test, which cuts and swallows what goes through it, and by moving
//! leaders: what the broker does is its own.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

mod data;
mod groups;
mod moves;
mod raw;
mod stage;
#[path = "../group/support.rs"]
#[allow(dead_code, reason = "the tests of group/ use the rest")]
mod support;
mod tails;
mod truncation;
mod wires;
