//! Group members against the in-process cluster, over pipes on a paused clock. Rows of reported bugs of other clients
//! are tests of their own; the two lines above each tell what a user saw there.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

mod commits;
mod consumer;
mod faults;
mod joining;
mod negotiation;
mod patterns;
mod support;
