#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test owns its runtime and its clock"))]
//! Kafka on the wire.
pub mod batch;
