#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test owns its runtime and its clock"))]
//! Kafka events per key, in order: from fetched records to handled events.

mod admin;
mod client;
mod config;
mod consumer;
mod context;
mod error;
mod handler;
mod insight;
mod json;
mod message;
mod mock;
mod partition;
mod pipeline;
mod schedule;
mod worker;

pub use admin::Admin;
pub use client::{Client, ClientBuilder, ConsumerState, Delivery};
pub use config::{
    Compression, ConfigError, IsolationLevel, Mode, OPTIONS, OptionSpec, Options, Partitioner, Problem,
    Support,
};
pub use context::{Context, Occupancy};
pub use error::{Error, ErrorKind};
pub use handler::{ErrorClass, Handler, HandlerError, Timer};
pub use insight::Insight;
pub use message::Message;
