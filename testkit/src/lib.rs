#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test owns its runtime and its clock"))]
//! A Kafka cluster inside the process, for tests, simulations and mock mode.
//!
//! It shares no code with the client (`prosody-wire`): a broker that shares the client's code agrees with the client's
//! mistakes. It speaks to any Kafka client over TCP and, at the same time, over in-memory pipes on a paused clock.
//!
//! | folder or file | question it answers |
//! |---|---|
//! | `broker/cluster.rs` | what can a test do with a cluster? |
//! | `broker/outages.rs` | how does a test break a cluster? |
//! | `broker/api/NN_name.rs` | which versions of API `NN` are served, how, and with which gaps? |
//! | `broker/storage.rs`, `broker/sequences.rs`, `broker/batch.rs` | what is in a partition's log, and what may be appended? |
//! | `broker/sasl.rs`, `broker/bearer.rs` | who is at the other end of a connection? |
//! | `broker/transactions.rs` | which transactions are open, and how do they end? |
//! | `broker/group/` | who is in a group, who owns what, what is committed? |
//! | `broker/control.rs` | which requests are taken over, and what happens to them? |
//! | `broker/journal.rs`, `broker/invariants.rs` | what was asked, what was done, and what must never have happened? |
//! | `net/` | how do bytes become requests, over pipes and over TCP, perhaps with TLS? |
//! | `port/` | how do other processes and languages look into a cluster, and break it? (HTTP) |
//! | `check/` | did a run keep its promises? |
//! | `sim/` | what goes wrong in a simulated run, and when? |
//! | `hostile/` | what could a peer send that must end in a named error? |
//! | `mock.rs` | which cluster does a client in mock mode talk to? |

pub mod broker;
pub mod check;
pub mod hostile;
pub mod mock;
mod net;
pub mod port;
pub mod sim;

pub use broker::{Cluster, ClusterConfig, ServerSasl};
pub use net::ServerTls;
