#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]
//! Encryption and authentication against the in-process broker, over pipes on the paused clock.

mod certificates;
mod locked;
mod oauth;
mod platform;
mod sasl;
mod tls;
