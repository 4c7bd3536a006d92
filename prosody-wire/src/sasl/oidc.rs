//! How does a token endpoint give a client its token? OAuth 2.0 client credentials (RFC 6749 4.4, KIP-768): one POST,
//! with the client's id and secret in its Authorization header.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;

use super::bearer::{Token, TokenError, TokenProvider};
use crate::error::{Error, ErrorKind};
use crate::net::{BoxFuture, Connector, Stream, TlsConnector, TlsError, TlsOptions};
use crate::secret::Secret;

/// Longest answer; tokens are a few kilobytes.
const ANSWER_BYTES: usize = 64 << 10;
/// Most header lines of an answer.
const HEADERS: usize = 100;
/// Life of a token whose endpoint does not say how long it counts.
const UNTOLD_LIFE: Duration = Duration::from_secs(300);
/// Longest text of an endpoint that is repeated in an error.
const SAID_CHARS: usize = 300;

/// What an identity provider knows about a client.
#[derive(Clone, Debug)]
pub struct ClientCredentialsConfig {
    /// `https://HOST[:PORT]/PATH` of the token endpoint. `http://` sends the secret unencrypted.
    pub endpoint: String,
    /// The client's id.
    pub client_id: String,
    /// The client's secret. Never printed.
    pub client_secret: Secret,
    /// What it asks for, names separated by spaces; `None` leaves that to the provider.
    pub scope: Option<String>,
}

/// Asks a token endpoint with the client's own credentials. Follows no redirect: the secret goes only where the
/// configuration says.
#[derive(Debug)]
pub struct ClientCredentials {
    config: ClientCredentialsConfig,
    host: String,
    port: u16,
    path: String,
    authority: String,
    connector: Arc<dyn Connector>,
}

impl ClientCredentials {
    /// Checks the configuration. `tcp` opens the streams; TLS with `tls` comes over it when the endpoint is `https`.
    ///
    /// # Errors
    /// When the endpoint is no such URL, or a file of `tls` cannot be used.
    pub fn new(
        config: ClientCredentialsConfig,
        tcp: Arc<dyn Connector>,
        tls: TlsOptions,
    ) -> Result<ClientCredentials, Error> {
        let wrong = |why: &str| {
            let endpoint = bare(&config.endpoint);
            Error::new(format!("token endpoint {endpoint}"), ErrorKind::Config(why.to_owned()))
        };
        let uri: Uri = config.endpoint.parse().map_err(|_| wrong("it is no URL"))?;
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("user and password do not belong into the URL"));
        }
        let (connector, port): (Arc<dyn Connector>, u16) = match uri.scheme_str() {
            Some("http") => (tcp, 80),
            Some("https") => {
                let encrypted = TlsConnector::new(tcp, tls);
                let encrypted = encrypted.map_err(|why| Error::new("token endpoint", ErrorKind::Tls(why)))?;
                (Arc::new(encrypted), 443)
            }
            _ => return Err(wrong("it begins neither with https:// nor with http://")),
        };
        // A connector takes an address of IPv6 without its brackets.
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(port);
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let authority = authority.to_string();
        if config.client_id.is_empty() {
            return Err(wrong("the client id is empty"));
        }
        Ok(ClientCredentials { config, host, port, path, authority, connector })
    }

    async fn ask(&self) -> Result<Token, TokenError> {
        let failed = |why: String| TokenError::unavailable(self.about(&why));
        let stream = self.connector.connect(&self.host, self.port).await.map_err(|cause| {
            let (why, retriable) = match TlsError::of(&cause) {
                Some(tls) => (tls.to_string(), tls.is_retriable()),
                None => (cause.to_string(), true),
            };
            TokenError { why: self.about(&why), retriable }
        })?;
        let request = self.request().map_err(|why| TokenError::refused(self.about(&why)))?;
        let (status, body) = exchange(stream, request).await.map_err(|why| failed(why.0))?;
        let answer: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        if status == StatusCode::OK {
            return answer
                .as_ref()
                .and_then(token_in)
                .ok_or_else(|| TokenError::refused(self.about("its answer holds no `access_token`")));
        }
        let field = |name: &str| answer.as_ref()?.get(name)?.as_str().map(|text| self.safe(text));
        let mut why = format!("HTTP {}", status.as_u16());
        for said in [field("error"), field("error_description")].into_iter().flatten() {
            why.push_str(": ");
            why.push_str(&said);
        }
        let again = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
        let retriable = status.is_server_error() || again;
        Err(TokenError { why: self.about(&why), retriable })
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, String> {
        let ClientCredentialsConfig { client_id, client_secret, scope, .. } = &self.config;
        let credentials = format!("{}:{}", form(client_id), form(client_secret.reveal()));
        let mut body = "grant_type=client_credentials".to_owned();
        if let Some(scope) = scope {
            body.push_str("&scope=");
            body.push_str(&form(scope));
        }
        Request::post(&self.path)
            .header(header::HOST, &self.authority)
            .header(header::USER_AGENT, concat!("prosody/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::AUTHORIZATION, format!("Basic {}", BASE64.encode(credentials)))
            .header(header::CONNECTION, "close")
            .body(Full::new(Bytes::from(body)))
            .map_err(|why| why.to_string())
    }

    fn about(&self, why: &str) -> String {
        format!("{}: {why}", bare(&self.config.endpoint))
    }

    /// A peer's text without our secret, should it send that back, in one line and not without end.
    fn safe(&self, text: &str) -> String {
        self.config.client_secret.hide(text).chars().filter(|c| !c.is_control()).take(SAID_CHARS).collect()
    }
}

impl TokenProvider for ClientCredentials {
    fn token(&self) -> BoxFuture<'_, Result<Token, TokenError>> {
        Box::pin(self.ask())
    }
}

/// The endpoint without what may be secret in it: a user before its host, a query behind its path.
fn bare(endpoint: &str) -> String {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let host_at = rest.find('/').unwrap_or(rest.len());
    let rest = match rest.get(..host_at).and_then(|host| host.rfind('@')) {
        Some(at) => rest.get(at + 1..).unwrap_or_default(),
        None => rest,
    };
    let text = if scheme.is_empty() { rest.to_owned() } else { format!("{scheme}://{rest}") };
    text.chars().take(SAID_CHARS).collect()
}

/// A text in a form (`application/x-www-form-urlencoded`), as RFC 6749 wants it in the Authorization header too.
fn form(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'*' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn token_in(answer: &serde_json::Value) -> Option<Token> {
    let value = answer.get("access_token")?.as_str()?;
    let told = answer.get("expires_in").and_then(|told| {
        // A number, which some write as a text.
        told.as_u64().or_else(|| told.as_str()?.trim().parse().ok())
    });
    let life = told.filter(|seconds| *seconds > 0).map_or(UNTOLD_LIFE, Duration::from_secs);
    Some(Token::new(value).lifetime(life))
}

/// What broke an exchange, in words.
struct Broken(String);

impl<E: fmt::Display> From<E> for Broken {
    fn from(why: E) -> Broken {
        Broken(why.to_string())
    }
}

/// One request and its whole answer on a connection of its own. The caller bounds the time.
async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), Broken> {
    let mut http = http1::Builder::new();
    http.max_buf_size(ANSWER_BYTES).max_headers(HEADERS);
    let (mut sender, connection) = http.handshake(TokioIo::new(stream)).await?;
    let asked = async move {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
        let body = body.map_err(|why| match why.downcast::<hyper::Error>() {
            Ok(why) => Broken::from(why),
            Err(_) => Broken(format!("its answer is longer than {ANSWER_BYTES} bytes")),
        })?;
        Ok((status, body.to_bytes()))
    };
    let mut asked = std::pin::pin!(asked);
    tokio::select! {
        biased;
        answer = &mut asked => answer,
        // The answer may be whole although its connection ended badly; if it is not, it knows why.
        _ = connection => asked.await,
    }
}
