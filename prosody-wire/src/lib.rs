#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test owns its runtime and its clock"))]
//! Kafka on the wire: everything between a record and a socket, without a C client library.
//!
//! **It is** connections, metadata, a record codec, an idempotent producer, a fetcher, consumer groups and
//! administrative calls, for Apache Kafka 2.1 to 4.x and others that speak its protocol. **It is not** a consumer with
//! handlers: keys, retries, ordering and commits of finished work live in `prosody-runtime`. It knows no clock, thread
//! or randomness of its own: all of them come through [`prosody_base::Doors`], so the whole client runs unchanged on a
//! paused clock over in-memory pipes.
//!
//! ```text
//!   produce ─┐
//!   fetch ───┤             ┌─ lanes ── Connection ─ reader ─┐
//!   group ───┼─▶ cluster ──┤  (up to three for a broker)    ├─ Connector ─▶ TCP or pipe
//!   admin ───┘     │       └─ …          writer ────────────┘   perhaps through TLS
//!                  └─ one refresher of metadata
//! ```
//!
//! | folder or file | question it answers |
//! |---|---|
//! | `client.rs` | where does a user start? |
//! | `produce/` | how does a record get into a log, once and in order? |
//! | `fetch/` | how do records come out of a log, ahead of their reader and within a budget? |
//! | `group/` | which partitions are ours, until when, and what is committed? |
//! | `admin/` | how are topics created, changed and asked about? |
//! | `cluster/` | which broker is responsible, and how is it reached? |
//! | `conn/` | how does a request reach one broker and its answer the caller? |
//! | `net/` | how do a host and a port become a byte stream, perhaps encrypted? |
//! | `batch/` | what is in a record batch? |
//! | `proto/`, `wire.rs` | which message in which version, and what does an error code mean? |
//! | `internals.rs` | where do fuzzers reach private decoders? (feature `internals`, for tests only) |
//! | `sasl/` | how does a client prove who it is? |
//! | `figures.rs` | what has gone on between us and each broker? |
//! | `types.rs`, `error.rs`, `limits.rs`, `secret.rs` | the nouns, the one error, every bound, what is never printed |
//!
//! Every folder keeps its decisions in pure files (they take `now` and events and return what to do) and its awaits in
//! one driver.
//!
//! # Produce
//!
//! A [`produce::Producer`] is idempotent: an acknowledged record is in the log once, in the order of the sends to its
//! partition, and any other end says whether the log can hold it.
//!
//! ```
//! # #![allow(clippy::disallowed_methods)]
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use prosody_base::Doors;
//! use prosody_testkit::ClusterConfig;
//! use prosody_wire::produce::{OutgoingRecord, Producer, ProducerConfig};
//! use prosody_wire::{Client, ClientConfig, NewTopic, PipeConnector};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let doors = Doors::process()?;
//! // A Kafka cluster inside this process. With a real one: TcpConnector and its addresses.
//! let broker = prosody_testkit::Cluster::start(ClusterConfig::default(), doors.clone());
//! let config = ClientConfig::new(broker.bootstrap().split(','));
//! let client = Client::new(config, Arc::new(PipeConnector(broker.network())), doors.clone())?;
//! let deadline = doors.clock.now() + Duration::from_secs(10);
//! client.admin().create_topic(&NewTopic::new("orders").partitions(2), deadline).await?;
//!
//! let producer = Producer::new(&client, ProducerConfig::default());
//! let order = OutgoingRecord {
//!     topic: "orders",
//!     partition: None, // the key's
//!     key: Some(b"customer-7"),
//!     value: Some(br#"{"item":"tea"}"#),
//!     headers: &[(b"source", Some(b"shop"))],
//!     timestamp: None, // now
//! };
//! // The place in the order is taken by the call; awaiting says what became of it.
//! match producer.send(order, Some(deadline)).await {
//!     Ok(written) => assert_eq!((&*written.topic, written.offset), ("orders", 0)),
//!     Err(why) => panic!("{why}"), // with `why.outcome`: not written, or unknown
//! }
//! producer.close(deadline).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Consume
//!
//! A [`group::Group`] says which partitions are ours, a [`fetch::Fetcher`] reads them ahead, and a [`group::Committer`]
//! commits under the epoch of the assignment, so that nothing is committed for a partition that somebody else has.
//!
//! ```
//! # #![allow(clippy::disallowed_methods)]
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use prosody_base::Doors;
//! # use prosody_testkit::{Cluster, ClusterConfig};
//! use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, StartAt};
//! use prosody_wire::group::{CommitOffset, Group, GroupConfig, GroupEvent};
//! # use prosody_wire::{Client, ClientConfig, PipeConnector};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let doors = Doors::process()?;
//! # let broker = Cluster::start(ClusterConfig::default(), doors.clone());
//! # broker.create_topic("orders", 1).map_err(|why| why.1)?;
//! # broker.append("orders", 0, &[(Some(b"customer-7"), Some(b"tea")), (Some(b"customer-9"), Some(b"milk"))]);
//! # let config = ClientConfig::new(broker.bootstrap().split(','));
//! # let client = Client::new(config, Arc::new(PipeConnector(broker.network())), doors.clone())?;
//! let mut group = Group::join(&client, GroupConfig::new("billing", ["orders".into()]));
//! let (committer, fetcher) = (group.committer(), Fetcher::new(&client, FetchConfig::default()));
//! let (epoch, mine) = loop {
//!     match group.event().await {
//!         GroupEvent::Assigned { epoch, partitions } => break (epoch, partitions),
//!         // Finish what runs, commit it, and say so; heartbeats go on meanwhile.
//!         GroupEvent::Revoke { done, .. } => done.done(),
//!         // Stop at once: it is somebody else's already.
//!         GroupEvent::Lost { .. } => {}
//!         GroupEvent::Failed(why) => eprintln!("{why}"),
//!     }
//! };
//! for one in mine {
//!     let start = match one.committed {
//!         Some(at) => StartAt::Offset { offset: at.offset, leader_epoch: at.leader_epoch.unwrap_or(-1) },
//!         None => StartAt::Earliest,
//!     };
//!     let mut reader = fetcher.open(one.tp.clone(), start);
//!     if let FetchItem::Batch(batch) = reader.next().await {
//!         for record in batch.records() {
//!             let record = record?;
//!             println!("{:?} wants {:?}", record.key(), record.value());
//!         }
//!         let offset = batch.last_offset() + 1;
//!         let read = CommitOffset { tp: one.tp, offset, leader_epoch: None, metadata: String::new() };
//!         committer.commit(epoch, vec![read]).await?;
//! #       assert_eq!(offset, 2);
//!     }
//! }
//! group.leave(doors.clock.now() + Duration::from_secs(5)).await;
//! # let committed = broker.group("billing").map(|group| group.offsets.len());
//! # assert_eq!(committed, Some(1));
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! [`Error`] says what was being done, to which broker, topic, partition or group, what came back, and by
//! [`Error::is_retriable`] whether a retry helps. Bugs that other clients had, and the tests that keep them away here, are
//! listed in `docs/bugs-of-others.md`; the protocol's versions in `docs/protocol.md`.

pub mod batch;

mod admin;
mod client;
mod cluster;
mod conn;
mod error;
pub mod fetch;
mod figures;
pub mod group;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod limits;
mod net;
pub mod produce;
mod proto;
mod sasl;
mod secret;
#[cfg(test)]
mod testing;
mod types;
mod wire;

pub use admin::{
    Admin, ClusterDescription, ConfigEntry, GroupDescription, GroupMember, ListedGroup, NewTopic, OffsetAt,
};
pub use client::{Client, ClientConfig};
pub use error::{DecodeError, Error, ErrorKind};
pub use figures::BrokerFigures;
pub use limits::Limits;
pub use net::{
    BoxFuture, Connector, EndpointError, HttpAnswer, HttpConnection, HttpEndpoint, HttpError, PipeConnector,
    Stream, TcpConnector, TlsConnector, TlsError, TlsFile, TlsIdentity, TlsOptions,
};
pub use proto::{Disposition, ErrorCode};
pub use sasl::{
    ClientCredentials, ClientCredentialsConfig, Credentials, FixedToken, Sasl, SaslMechanism, ScramError,
    Token, TokenError, TokenProvider,
};
pub use secret::Secret;
pub use types::{BrokerId, IsolationLevel, LeaderEpoch, Offset, Topic, TopicId, TopicPartition};
