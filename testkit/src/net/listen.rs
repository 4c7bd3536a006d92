//! Who may connect? Listeners of one broker over pipes and over TCP, and the connections they accept.

use std::io;
use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use prosody_base::{Network, PipeListener, Task};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::{Accept, TlsAcceptor};

use super::connection::serve;
use crate::broker::{Call, Shared, Transport, lock, pipe_address};

/// Wait before an address that is still taken is tried again.
const RETRY: Duration = Duration::from_millis(1);
/// Finished connections are swept once a broker remembers this many.
const BEFORE_SWEEP: usize = 256;

/// Listens on the broker's pipe address. One that is still held by the listener being closed is tried until it is free.
pub(crate) fn listen_pipe(shared: &Arc<Shared>, broker: i32) -> Task<()> {
    let listening = shared.network.listen(&pipe_address(broker));
    let (weak, network) = (Arc::downgrade(shared), shared.network.clone());
    let clock = shared.doors.clock.clone();
    shared.doors.spawner.spawn(shared.config.lane, async move {
        let mut listener = match listening {
            Ok(listener) => listener,
            Err(_) => loop {
                match retry(&network, broker) {
                    Some(listener) => break listener,
                    None => clock.sleep(RETRY).await,
                }
            },
        };
        while let Ok(stream) = listener.accept().await {
            if !start(&weak, broker, Transport::Pipe, "127.0.0.1".to_owned(), stream) {
                return;
            }
        }
    })
}

fn retry(network: &Network, broker: i32) -> Option<PipeListener> {
    network.listen(&pipe_address(broker)).ok()
}

/// Listens on 127.0.0.1 at a port, 0 for any; returns the port.
pub(crate) fn listen_tcp(shared: &Arc<Shared>, broker: i32, port: u16) -> io::Result<(Task<()>, u16)> {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let weak = Arc::downgrade(shared);
    let task = shared.doors.spawner.spawn(shared.config.lane, async move {
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(broker, %error, "a listener cannot be registered");
                return;
            }
        };
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // Answers are whole messages: waiting for more bytes would only delay them.
                    let _ = stream.set_nodelay(true);
                    if !start(&weak, broker, Transport::Tcp, peer.ip().to_string(), stream) {
                        return;
                    }
                }
                Err(error) => tracing::warn!(broker, %error, "a connection cannot be accepted"),
            }
        }
    });
    Ok((task, port))
}

/// Starts a connection; `false` when the cluster or the broker is gone.
fn start<S>(weak: &Weak<Shared>, broker: i32, transport: Transport, peer: String, stream: S) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(shared) = weak.upgrade() else { return false };
    let id = shared.next_connection.fetch_add(1, Ordering::Relaxed);
    let bound = shared.limits().connections;
    let mut brokers = lock(&shared.brokers);
    let Some(state) = brokers.get_mut(&broker).filter(|state| state.up) else { return false };
    if state.connections.len() >= BEFORE_SWEEP.min(bound) {
        state.connections.retain(|_, task| !task.is_finished());
    }
    if state.connections.len() >= bound {
        tracing::warn!(broker, bound, "too many connections: a new one is closed");
        return true;
    }
    let call = Call::new(Arc::clone(&shared), broker, id, transport, peer);
    let task = match &shared.config.tls {
        None => shared.doors.spawner.spawn(shared.config.lane, serve(call, stream)),
        Some(tls) => {
            let shake = TlsAcceptor::from(Arc::clone(&tls.0)).accept(stream);
            shared.doors.spawner.spawn(shared.config.lane, serve_tls(call, shake))
        }
    };
    state.connections.insert(id, task);
    true
}

/// Serves what comes after the handshake.
async fn serve_tls<S: AsyncRead + AsyncWrite + Unpin>(call: Call, shake: Accept<S>) {
    let clock = &call.shared.doors.clock;
    let deadline = clock.now() + call.shared.limits().handshake;
    match clock.until(deadline, shake).await {
        Ok(Ok(stream)) => serve(call, stream).await,
        Ok(Err(error)) => tracing::debug!(broker = call.broker, peer = call.peer, %error, "no TLS"),
        Err(_) => tracing::debug!(broker = call.broker, peer = call.peer, "a TLS handshake takes too long"),
    }
}
