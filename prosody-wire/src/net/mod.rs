//! How are bytes moved? The door between this crate and sockets or in-memory pipes, and TLS over either.

mod connector;
mod tls;

pub use connector::{BoxFuture, Connector, PipeConnector, Stream, TcpConnector};
pub use tls::{TlsConnector, TlsError, TlsFile, TlsIdentity, TlsOptions};
