//! How are bytes moved? The door between this crate and sockets or in-memory pipes.

mod connector;

pub use connector::{BoxFuture, Connector, PipeConnector, Stream, TcpConnector};
