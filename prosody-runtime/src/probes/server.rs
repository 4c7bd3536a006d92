//! Who accepts connections, and how is a hostile peer bounded? Every connection has a deadline for everything it does,
//! requests have a longest head, and the oldest connection gives way to the newest, so that a probe is always served.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use prosody_base::{Doors, Lane, Task};
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use super::answers::{Answer, answer};
use super::{Members, View, lock};

/// Connections at the same time; one more ends the oldest.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// A connection lasts this long at most, whatever it does: its one request, the answer, and our patience.
pub(super) const CONNECTION_TIME: Duration = Duration::from_secs(10);
/// Bytes of a request's head.
pub(super) const MAX_HEAD: usize = 16 * 1024;
/// Headers of a request.
pub(super) const MAX_HEADERS: usize = 64;
/// Wait after the operating system refused a connection, for want of files perhaps.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until it is dropped; they end with it.
pub(super) async fn serve(listener: TcpListener, members: Members, doors: Doors) {
    let mut connections: VecDeque<Task<()>> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(why) => {
                debug!("a connection to the health probes was not accepted: {why}");
                doors.clock.sleep(PAUSE).await;
                continue;
            }
        };
        connections.retain(|connection| !connection.is_finished());
        while connections.len() >= MAX_CONNECTIONS {
            drop(connections.pop_front());
        }
        let (members, clock) = (Arc::clone(&members), doors.clock.clone());
        let connection = async move {
            let deadline = clock.now() + CONNECTION_TIME;
            let _ = clock.until(deadline, talk(stream, members)).await;
        };
        connections.push_back(doors.spawner.spawn(Lane::Io, connection));
    }
}

/// One request and its answer.
async fn talk(stream: TcpStream, members: Members) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = respond(&request, &members);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).half_close(false).max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    if let Err(why) = http.serve_connection(TokioIo::new(stream), service).await {
        debug!("a connection to the health probes failed: {why}");
    }
}

fn respond(request: &Request<Incoming>, members: &Members) -> Response<Full<Bytes>> {
    let answered = if matches!(*request.method(), Method::GET | Method::HEAD) {
        // Cloned, so that no client is asked under the lock.
        let asks: Vec<_> = lock(members).values().cloned().collect();
        let views: Vec<View> = asks.iter().filter_map(|ask| ask()).collect();
        answer(request.uri().path(), &views)
    } else {
        Answer::text(405, "only GET and HEAD\n")
    };
    let mut response = Response::new(Full::new(Bytes::from(answered.body)));
    *response.status_mut() = StatusCode::from_u16(answered.status).unwrap_or_default();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answered.content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // The page is one file and asks nobody but us: whatever a key contains, nothing else is loaded.
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
             img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    );
    response
}
