#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test owns its runtime and its clock"))]
//! Kafka on the wire.
pub mod batch;

mod admin;
mod client;
mod cluster;
mod conn;
mod error;
pub mod fetch;
pub mod group;
mod limits;
mod net;
pub mod produce;
mod proto;
#[cfg(test)]
mod testing;
mod types;
mod wire;

pub use admin::{Admin, ConfigEntry, NewTopic, OffsetAt};
pub use client::{Client, ClientConfig};
pub use error::{DecodeError, Error, ErrorKind};
pub use limits::Limits;
pub use net::{BoxFuture, Connector, PipeConnector, Stream, TcpConnector};
pub use proto::{Disposition, ErrorCode};
pub use types::{BrokerId, IsolationLevel, LeaderEpoch, Offset, Topic, TopicId, TopicPartition};
