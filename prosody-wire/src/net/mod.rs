//! How are bytes moved? The door between this crate and sockets or in-memory pipes, and TLS or HTTP over either.

mod connector;
mod http;
mod tls;

pub use connector::{BoxFuture, Connector, PipeConnector, Stream, TcpConnector};
pub(crate) use http::bare;
pub use http::{EndpointError, HttpAnswer, HttpConnection, HttpEndpoint, HttpError};
pub use tls::{TlsConnector, TlsError, TlsFile, TlsIdentity, TlsOptions};
