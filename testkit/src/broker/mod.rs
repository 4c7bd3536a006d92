//! What is a cluster made of? The parts and their public names.

mod api;
pub mod batch;
pub mod bearer;
mod cluster;
mod config;
pub mod control;
pub mod group;
mod invariants;
pub mod journal;
pub mod keys;
mod observe;
mod outages;
pub(crate) mod sasl;
pub mod sequences;
pub mod sessions;
mod state;
pub mod storage;
mod topics;
pub(crate) mod transactions;

pub(crate) use api::{Call, Fate, Then, serve_frame};
pub use cluster::Cluster;
pub use config::{AS_VERSIONS, ClusterConfig, Limits, VersionCap};
pub use control::{Action, Control, Match, Rule};
pub use invariants::Violation;
pub use journal::{Entry, Outcome};
pub use keys::{ApiKey, code};
pub use observe::CommitSeen;
pub use sasl::ServerSasl;
pub use sequences::UnknownProducer;
pub use state::Told;
pub(crate) use state::{Shared, Transport, pipe_address};
pub use storage::LogEnd;
pub(crate) use topics::lock;
