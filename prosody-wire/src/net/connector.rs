//! How does a host and a port become a byte stream? The only file that opens sockets.
#![allow(clippy::disallowed_methods, reason = "this file is the door to sockets")]

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use prosody_base::Network;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Share of one address where a name has several: one that swallows packets must not use up the others' time.
const ADDRESS_SHARE: Duration = Duration::from_secs(2);

/// A future behind a pointer, so that a trait object can return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a connection reads from and writes to.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens byte streams. Asked anew at every attempt, so it must not remember addresses. The caller sets the deadline by
/// dropping the future.
pub trait Connector: Send + Sync + Debug {
    /// A stream to `host:port`, ready to be written to.
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;
}

/// TCP. Resolves the name at every attempt, tries every address it has, and sends small frames at once (TCP_NODELAY).
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpConnector;

impl Connector for TcpConnector {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = match host.parse::<IpAddr>() {
                Ok(literal) => vec![SocketAddr::new(literal, port)],
                Err(_) => tokio::net::lookup_host((host, port)).await?.collect(),
            };
            let mut causes = Vec::new();
            let mut kind = io::ErrorKind::NotFound;
            let share = if addresses.len() > 1 { ADDRESS_SHARE } else { Duration::MAX };
            for address in addresses {
                let connected = tokio::time::timeout(share, TcpStream::connect(address)).await;
                match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        return Ok(Box::new(stream) as Box<dyn Stream>);
                    }
                    Err(cause) => {
                        kind = cause.kind();
                        causes.push(format!("{address}: {cause}"));
                    }
                }
            }
            if causes.is_empty() {
                causes.push("the name has no address".to_owned());
            }
            Err(io::Error::new(kind, causes.join(", ")))
        })
    }
}

/// In-memory pipes of one [`Network`]: tests, simulation and mock mode run the same code over them.
#[derive(Clone, Debug, Default)]
pub struct PipeConnector(pub Network);

impl Connector for PipeConnector {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let stream = self.0.connect(&format!("{host}:{port}"))?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}
