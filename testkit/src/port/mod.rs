//! How does a test in another process or language look into a cluster, and break it? HTTP and JSON over what
//! [`Cluster`] can do.
//!
//! | file | question |
//! |---|---|
//! | `mod.rs` | who may ask, how much, and for how long? (the server) |
//! | `routes.rs` | what does a request ask for? |
//! | `batches.rs` | what can be put into a log? |
//! | `rules.rs` | how are a match and an action written in JSON? |
//! | `views.rs` | how are topics, groups and the journal written in JSON? |
//!
//! docs/broker.md is the manual; a test runs every line of it.

mod batches;
mod routes;
mod rules;
mod views;

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prosody_base::{Clock, Lane, Spawner, Task};
use tokio::net::{TcpListener, TcpStream};

use crate::Cluster;
pub use routes::{Answer, answer};

/// Connections at a time; the oldest goes when one more comes.
const CONNECTIONS: usize = 64;
/// Longest request body.
const BODY_BYTES: usize = 1 << 20;
/// Longest request line with headers, and most header lines.
const HEAD_BYTES: usize = 16 << 10;
const HEADERS: usize = 64;
/// Longest life of a connection, waiting for a rule included.
const LIFE: Duration = Duration::from_secs(120);
/// A request's head, and its body, arrive within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// An open control port; closes when dropped.
#[derive(Debug)]
pub struct ControlPort {
    port: u16,
    _accepting: Task<()>,
}

impl ControlPort {
    /// Listens on 127.0.0.1 at a port, 0 for any free one. Whoever can reach it can do everything with the cluster.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn open(cluster: &Arc<Cluster>, port: u16) -> io::Result<ControlPort> {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let doors = &cluster.shared.doors;
        let accepting = accept(Arc::clone(cluster), listener, doors.spawner.clone(), doors.clock.clone());
        Ok(ControlPort { port, _accepting: doors.spawner.spawn(cluster.shared.config.lane, accepting) })
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

async fn accept(cluster: Arc<Cluster>, listener: StdListener, spawner: Spawner, clock: Clock) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the control port cannot be registered"),
    };
    let lane: Lane = cluster.shared.config.lane;
    let mut open: Vec<Task<()>> = Vec::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|task| !task.is_finished());
                if open.len() >= CONNECTIONS {
                    open.remove(0);
                }
                open.push(spawner.spawn(lane, serve(Arc::clone(&cluster), stream, clock.clone())));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection of the control port cannot be accepted");
                clock.sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn serve(cluster: Arc<Cluster>, stream: TcpStream, clock: Clock) {
    let deadline = clock.now() + LIFE;
    let service = service_fn(|request| {
        let (cluster, clock) = (Arc::clone(&cluster), clock.clone());
        async move { Ok::<_, Infallible>(respond(&cluster, &clock, request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .half_close(true);
    let served = http.serve_connection(TokioIo::new(stream), service);
    match clock.until(deadline, served).await {
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection of the control port ended"),
    }
}

async fn respond(cluster: &Cluster, clock: &Clock, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = clock.until(clock.now() + PATIENCE, Limited::new(body, BODY_BYTES).collect()).await;
    let answer = match body {
        Ok(Ok(body)) => {
            let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
            answer(cluster, head.method.as_str(), path, query, &body.to_bytes()).await
        }
        Ok(Err(_)) => Answer::wrong(400, format!("a body is at most {BODY_BYTES} bytes and whole")),
        Err(_) => Answer::wrong(408, format!("the body did not come within {PATIENCE:?}")),
    };
    let mut text = answer.body;
    text.push('\n');
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if answer.is_json { "application/json" } else { "text/plain; charset=utf-8" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
