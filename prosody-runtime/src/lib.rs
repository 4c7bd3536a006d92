#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test owns its runtime and its clock"))]
//! Kafka events per key, in order: from fetched records to handled events.
//!
//! ```text
//!  fetch buffer            one partition                          the client
//! ┌────────────┐  reader  ┌──────────────────────────────┐  gate  ┌─────────────────────────┐
//! │ batches,   │─────────▶│ window: offsets, key queues  │───────▶│ workers: MaxConcurrency │
//! │ zero-copy  │  filters │ one event of a key at a time │        │ pipeline ▶ your handler │
//! └────────────┘          └───────────────▲──────────────┘        └───────────┬─────────────┘
//!                                         └───────── done, retry, unfinished ─┘
//!    watermark, offset map ──▶ offset commit, every CommitInterval and whenever a partition is given up
//! ```
//!
//! Messages of one key of one partition reach the handler one at a time and in order; other keys run at the same time. A
//! failing message is retried with backoff while its key waits and the others go on: without end in pipeline mode, a few
//! times and then into a failure topic in low-latency mode, not at all in best-effort mode. An offset is committed only when
//! every earlier record of its partition is finished, so nothing is lost when a process dies. The commit also says what
//! is finished above it: a partition that changes hands in peace repeats nothing, and after a crash only what ended since
//! the last commit comes again.
//!
//! ```
//! use prosody_runtime::{Client, Context, Handler, HandlerError, Message};
//!
//! struct MyHandler(tokio::sync::mpsc::Sender<String>);
//!
//! impl Handler for MyHandler {
//!     async fn on_message(&self, _context: Context, message: Message) -> Result<(), HandlerError> {
//!         let text = std::str::from_utf8(message.payload())?; // an error is transient unless said otherwise
//!         self.0.send(text.to_owned()).await?;
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder()
//!     .mock(true) // a broker inside this process; or .bootstrap_servers(["localhost:9092"])
//!     .group_id("my-application")
//!     .source_system("my-application-source") // other than the group id, to handle what we send ourselves
//!     .subscribed_topics(["my-topic"])
//!     .build()?;
//! let (handled, mut messages) = tokio::sync::mpsc::channel(1);
//! client.subscribe(MyHandler(handled)).await?;
//! client.send("my-topic", "message-key", br#"{"content":"Hello, Kafka!"}"#).await?;
//! assert_eq!(messages.recv().await.as_deref(), Some(r#"{"content":"Hello, Kafka!"}"#));
//! client.unsubscribe().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | where | question it answers |
//! |---|---|
//! | `client.rs`, `admin.rs` | what does an application hold? |
//! | `handler.rs`, `message.rs`, `context.rs` | what does a handler see, and what does its result mean? |
//! | `config/` | which options exist, and are they usable together? |
//! | `hosted.rs` | what does a binding need whose handlers run on threads of another runtime? |
//! | `consumer/` | how does a subscription begin, share partitions, commit and end? |
//! | `partition/` | which records of a partition may run, and what is finished? |
//! | `schedule/`, `worker.rs` | which event runs next, and on what? |
//! | `timers/` | which timers of a partition are due, and who brings them to their keys? |
//! | `pipeline/` | what happens to a message, in which order? |
//! | `loader/` | what is in a record that was set aside? |
//! | `probes/` | how does a running consumer answer health checks, and show itself? |
//! | `telemetry/` | who tells the telemetry topic what happens? |
//! | `trace/` | who caused an event, and how does whoever it causes learn of it? |
//! | `json.rs` | which `id` and `type` does a payload have, and is it JSON? |
//! | `mock.rs`, `insight/`, `error.rs` | the broker inside; what has happened so far; what went wrong |

mod admin;
mod client;
mod config;
mod consumer;
mod context;
mod durable;
mod error;
mod handler;
mod hosted;
mod insight;
mod json;
mod loader;
mod message;
mod mock;
mod partition;
mod pipeline;
mod probes;
mod schedule;
mod telemetry;
mod timers;
mod trace;
mod worker;

pub use admin::Admin;
pub use client::{Assignment, Client, ClientBuilder, ConsumerState, Delivery};
pub use config::{
    Compression, ConfigError, GroupProtocol, IsolationLevel, Mode, OPTIONS, OptionSpec, Options, Partitioner,
    Problem, SaslMechanism, SecurityProtocol, SpanRelation, Support,
};
pub use context::{Context, Occupancy};
pub use error::{Error, ErrorKind};
pub use handler::{ErrorClass, Handler, HandlerError, Timer};
pub use hosted::{Crew, Share, Worker};
pub use insight::Insight;
pub use insight::prometheus::prometheus_text;
pub use insight::reading::{Reading, Sample, Value};
pub use insight::status::{PartitionStatus, RunningHandler};
pub use insight::table::{METRICS, MetricKind, MetricSpec};
pub use message::Message;
#[cfg(feature = "mock")]
pub use mock::VirtualCluster;
pub use partition::event::Position;
pub use prosody_wire::{BoxFuture, FixedToken, Token, TokenError, TokenProvider};
pub use trace::{Lineage, TraceContext};

/// Compiles and runs the Rust in docs/security.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/security.md")]
struct Manual;
