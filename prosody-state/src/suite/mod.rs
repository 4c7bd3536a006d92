//! What must every store be proven to do? The same for each of them.
//!
//! | file | question it answers |
//! |---|---|
//! | `statements.rs` | do any statements do what a naive model does? |
//! | `owners.rs` | do crashes, lost answers and second owners change nothing about the end? |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    clippy::missing_panics_doc,
    reason = "a test suite"
)]

mod owners;
mod statements;

pub use owners::{crash_anywhere, two_owners};
pub use statements::any_statements;
