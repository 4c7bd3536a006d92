//! How does a running consumer answer `/readyz`, `/livez`, `/metrics` and `/`? One HTTP server for each port of the process,
//! which lives while a client that named the port is subscribed.
//!
//! | file | question it answers |
//! |---|---|
//! | `answers.rs` | what is answered to which path? (pure) |
//! | `server.rs` | who accepts connections, and how is a hostile peer bounded? |
//! | `page.html` | the live page: one file, no network but `status.json` beside it |

mod answers;
mod server;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use prosody_base::{Doors, Task};
use tokio::net::TcpListener;

use crate::error::{Error, ErrorKind};
use crate::insight::reading::Reading;
use crate::insight::status::PartitionStatus;

/// What a client says about itself when it is asked.
pub(crate) struct View {
    pub(crate) reading: Reading,
    pub(crate) topics: Vec<String>,
    pub(crate) assigned: usize,
    pub(crate) partitions: Vec<PartitionStatus>,
    /// Loops that missed their heartbeat.
    pub(crate) missed: Vec<String>,
    /// Whether keys may be shown.
    pub(crate) details: bool,
}

/// Asks a client; `None` when it is gone.
pub(crate) type Ask = Arc<dyn Fn() -> Option<View> + Send + Sync>;

/// Clients by their number.
type Members = Arc<std::sync::Mutex<BTreeMap<u64, Ask>>>;

/// Where the server of a client listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// `None` is every interface.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

struct Server {
    members: Members,
    task: Task<()>,
}

/// The servers of this process. The lock is held while one starts or ends, so that a port is free once its last client
/// has left.
static SERVERS: tokio::sync::Mutex<BTreeMap<SocketAddr, Server>> =
    tokio::sync::Mutex::const_new(BTreeMap::new());

/// Answers for a client from now on.
///
/// # Errors
/// When the port cannot be listened on; names it and the options.
pub(crate) async fn join(doors: &Doors, place: Place, number: u64, ask: Ask) -> Result<SocketAddr, Error> {
    let mut servers = SERVERS.lock().await;
    let at = SocketAddr::new(place.address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), place.port);
    // What was left behind by a client that was killed answers nothing.
    servers.retain(|_, server| !server.task.is_finished());
    if let Some(server) = servers.get(&at) {
        lock(&server.members).insert(number, ask);
        return Ok(at);
    }
    let listener = listen(place, at).await.map_err(|why| refused(at, &why))?;
    let members = Members::default();
    lock(&members).insert(number, ask);
    let task = server::serve(listener, Arc::clone(&members), doors.clone());
    let task = doors.spawner.spawn(prosody_base::Lane::Io, task);
    servers.insert(at, Server { members, task });
    Ok(at)
}

/// Answers no longer for a client. The last one closes the port.
pub(crate) async fn leave(at: SocketAddr, number: u64) {
    let mut servers = SERVERS.lock().await;
    let Some(server) = servers.get(&at) else { return };
    let nobody = {
        let mut members = lock(&server.members);
        members.remove(&number);
        members.is_empty()
    };
    if nobody && let Some(server) = servers.remove(&at) {
        server.task.abort();
        let _ = server.task.await;
    }
}

/// Every interface is IPv6 and IPv4 together, or IPv4 where a machine has nothing else.
async fn listen(place: Place, at: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(at).await {
        Err(why) if place.address.is_none() && why.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(SocketAddr::new(IpAddr::from([0, 0, 0, 0]), place.port)).await
        }
        bound => bound,
    }
}

fn refused(at: SocketAddr, why: &io::Error) -> Error {
    let cause = match why.kind() {
        io::ErrorKind::AddrInUse => "another process uses it".to_owned(),
        _ => why.to_string(),
    };
    let text = format!(
        "subscribing: the health probes cannot listen on port {} ({at}): {cause}. Choose another ProbePort \
         (PROSODY_PROBE_PORT), or 0 for no probes",
        at.port()
    );
    Error::new(ErrorKind::Invalid, text)
}

fn lock(members: &Members) -> std::sync::MutexGuard<'_, BTreeMap<u64, Ask>> {
    members.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
