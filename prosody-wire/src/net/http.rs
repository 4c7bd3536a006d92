//! How does one request reach an HTTP server, over TLS or without? For token endpoints and collectors of traces: POSTs to
//! one address, whose whole answer fits in memory. Follows no redirect: what is secret goes only where the configuration
//! says.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;

use super::{Connector, TlsConnector, TlsError, TlsOptions};

/// Longest answer.
const ANSWER_BYTES: usize = 64 << 10;
/// Most header lines of an answer.
const HEADERS: usize = 100;
/// Longest text of a URL that is repeated in an error.
const SAID_CHARS: usize = 300;

/// An address to POST to.
#[derive(Debug)]
pub struct HttpEndpoint {
    host: String,
    port: u16,
    path: String,
    authority: HeaderValue,
    /// The URL without what may be secret in it.
    shown: String,
    connector: Arc<dyn Connector>,
}

/// What a server answered.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// Its status code.
    pub status: u16,
    /// Its `Retry-After`, when that is a number of seconds.
    pub retry_after: Option<u64>,
    /// At most 64 KiB.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub struct HttpError {
    /// What was asked, and what came back.
    pub why: String,
    /// Whether trying again can help.
    pub retriable: bool,
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// A connection that may serve another request.
pub struct HttpConnection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Moves the bytes; has to be polled while a request is out.
    moves: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for HttpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpConnection")
    }
}

impl HttpEndpoint {
    /// Reads `http[s]://HOST[:PORT][/PATH]`. `tcp` opens the streams; TLS with `tls` comes over it for `https`.
    ///
    /// # Errors
    /// Why it is no such URL, or which file of `tls` cannot be used.
    pub fn new(url: &str, tcp: Arc<dyn Connector>, tls: TlsOptions) -> Result<HttpEndpoint, EndpointError> {
        let wrong = |why: &str| EndpointError::Url(why.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("user and password do not belong into the URL"));
        }
        let (connector, port): (Arc<dyn Connector>, u16) = match uri.scheme_str() {
            Some("http") => (tcp, 80),
            Some("https") => (Arc::new(TlsConnector::new(tcp, tls).map_err(EndpointError::Tls)?), 443),
            _ => return Err(wrong("it begins neither with https:// nor with http://")),
        };
        Ok(HttpEndpoint {
            // A connector takes an address of IPv6 without its brackets.
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(port),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| wrong("it names no host"))?,
            shown: bare(url),
            connector,
        })
    }

    /// The URL without what may be secret in it: for logs and errors.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// An error about this address.
    pub(crate) fn about(&self, why: &str) -> String {
        format!("{}: {why}", self.shown)
    }

    /// Opens a connection. The caller bounds the time.
    ///
    /// # Errors
    /// When nobody answers, or not as HTTP over TLS should be.
    pub async fn connect(&self) -> Result<HttpConnection, HttpError> {
        let stream = self.connector.connect(&self.host, self.port).await.map_err(|cause| {
            let (why, retriable) = match TlsError::of(&cause) {
                Some(tls) => (tls.to_string(), tls.is_retriable()),
                None => (cause.to_string(), true),
            };
            HttpError { why: self.about(&why), retriable }
        })?;
        let mut http = http1::Builder::new();
        http.max_buf_size(ANSWER_BYTES).max_headers(HEADERS);
        let made = http.handshake(TokioIo::new(stream)).await;
        let (sender, connection) =
            made.map_err(|why| HttpError { why: self.about(&why.to_string()), retriable: true })?;
        let moves = Box::pin(async move {
            let _ = connection.await;
        });
        Ok(HttpConnection { sender, moves })
    }

    /// Sends one request and reads its whole answer. The caller bounds the time, and drops the connection when the answer
    /// asks for that.
    ///
    /// # Errors
    /// When the connection breaks or the answer is no HTTP or too long.
    pub async fn post(
        &self,
        connection: &mut HttpConnection,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<HttpAnswer, HttpError> {
        let failed = |why: String| HttpError { why: self.about(&why), retriable: true };
        let mut request = Request::post(&self.path)
            .header(header::HOST, &self.authority)
            .header(header::USER_AGENT, concat!("prosody/", env!("CARGO_PKG_VERSION")));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).map_err(|why| failed(why.to_string()))?;
        let HttpConnection { sender, moves } = connection;
        let asked = async move {
            sender.ready().await.map_err(|why| why.to_string())?;
            let answer = sender.send_request(request).await.map_err(|why| why.to_string())?;
            let status = answer.status().as_u16();
            let retry_after = answer.headers().get(header::RETRY_AFTER);
            let retry_after = retry_after.and_then(|text| text.to_str().ok()?.trim().parse().ok());
            let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
            let body = body.map_err(|why| match why.downcast::<hyper::Error>() {
                Ok(why) => why.to_string(),
                Err(_) => format!("its answer is longer than {ANSWER_BYTES} bytes"),
            })?;
            Ok(HttpAnswer { status, retry_after, body: body.to_bytes() })
        };
        let mut asked = std::pin::pin!(asked);
        let answered: Result<HttpAnswer, String> = tokio::select! {
            biased;
            answer = &mut asked => answer,
            // The answer may be whole although its connection ended badly; if it is not, it knows why.
            () = &mut *moves => {
                *moves = Box::pin(std::future::pending());
                asked.await
            }
        };
        answered.map_err(failed)
    }
}

impl HttpConnection {
    /// Whether it can carry another request, as far as is known.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }
}

/// What is wrong with an endpoint.
#[derive(Debug)]
pub enum EndpointError {
    /// With its URL.
    Url(String),
    /// With a file that TLS needs.
    Tls(TlsError),
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndpointError::Url(why) => f.write_str(why),
            EndpointError::Tls(why) => why.fmt(f),
        }
    }
}

/// A URL without what may be secret in it: a user before its host, a query behind its path.
pub(crate) fn bare(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let host_at = rest.find('/').unwrap_or(rest.len());
    let rest = match rest.get(..host_at).and_then(|host| host.rfind('@')) {
        Some(at) => rest.get(at + 1..).unwrap_or_default(),
        None => rest,
    };
    let text = if scheme.is_empty() { rest.to_owned() } else { format!("{scheme}://{rest}") };
    text.chars().take(SAID_CHARS).collect()
}
