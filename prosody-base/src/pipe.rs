//! How do two ends of one process talk without sockets? A registry of in-memory listeners by address.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::DuplexStream;
use tokio::sync::mpsc;

/// One end of an in-memory connection.
pub type PipeStream = DuplexStream;

/// Bytes each direction of a pipe holds before its writer waits.
const PIPE_BYTES: usize = 256 * 1024;
/// Connections that wait to be accepted before a dialler is refused.
const BACKLOG: usize = 1_024;

/// A network of its own: listeners and dialers meet by `host:port` text, and by nothing else.
#[derive(Clone, Debug, Default)]
pub struct Network(Arc<Mutex<BTreeMap<String, mpsc::Sender<PipeStream>>>>);

impl Network {
    /// Listens on `address`, replacing a listener that was dropped.
    ///
    /// # Errors
    /// `AddrInUse` while another listener of this network holds the address.
    pub fn listen(&self, address: &str) -> io::Result<PipeListener> {
        let (accepted, incoming) = mpsc::channel(BACKLOG);
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if listeners.get(address).is_some_and(|known| !known.is_closed()) {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("{address} is taken in this network"),
            ));
        }
        listeners.insert(address.to_owned(), accepted);
        Ok(PipeListener { incoming })
    }

    /// Dials `address`.
    ///
    /// # Errors
    /// `ConnectionRefused` when nothing listens there or its backlog is full.
    pub fn connect(&self, address: &str) -> io::Result<PipeStream> {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refused =
            |why: &str| io::Error::new(io::ErrorKind::ConnectionRefused, format!("{address}: {why}"));
        let listener = listeners.get(address).ok_or_else(|| refused("nothing listens in this network"))?;
        listener.try_send(far).map_err(|_| refused("the listener is gone or its backlog is full"))?;
        Ok(near)
    }
}

/// Accepts the connections of one address. Dropping it closes the address.
#[derive(Debug)]
pub struct PipeListener {
    incoming: mpsc::Receiver<PipeStream>,
}

impl PipeListener {
    /// The next connection. Never ends by itself: the network keeps the other side.
    pub async fn accept(&mut self) -> io::Result<PipeStream> {
        self.incoming.recv().await.ok_or_else(|| io::Error::other("the network of this listener is gone"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn dialers_meet_listeners_by_address_only() {
        let network = Network::default();
        let refused = network.connect("a:1").expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let mut listener = network.listen("a:1").expect("free");
        assert_eq!(network.listen("a:1").expect_err("taken").kind(), io::ErrorKind::AddrInUse);
        let mut near = network.connect("a:1").expect("listening");
        let mut far = listener.accept().await.expect("dialled");
        near.write_all(b"hi").await.expect("open");
        drop(near);
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).await.expect("closed cleanly");
        assert_eq!(heard, b"hi");
        drop(listener);
        assert!(network.connect("a:1").is_err());
        assert!(network.listen("a:1").is_ok(), "an address is free again once its listener is gone");
    }
}
