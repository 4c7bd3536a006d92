//! How does a token endpoint give a client its token? OAuth 2.0 client credentials (RFC 6749 4.4, KIP-768): one POST,
//! with the client's id and secret in its Authorization header.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};

use super::bearer::{Token, TokenError, TokenProvider};
use crate::error::{Error, ErrorKind};
use crate::net::{
    BoxFuture, Connector, EndpointError, HttpAnswer, HttpEndpoint, HttpError, TlsOptions, bare,
};
use crate::secret::Secret;

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
    endpoint: HttpEndpoint,
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
        let wrong = |why: String| {
            let endpoint = bare(&config.endpoint);
            Error::new(format!("token endpoint {endpoint}"), ErrorKind::Config(why))
        };
        let endpoint = HttpEndpoint::new(&config.endpoint, tcp, tls).map_err(|why| match why {
            EndpointError::Url(why) => wrong(why),
            EndpointError::Tls(why) => Error::new("token endpoint", ErrorKind::Tls(why)),
        })?;
        if config.client_id.is_empty() {
            return Err(wrong("the client id is empty".to_owned()));
        }
        Ok(ClientCredentials { config, endpoint })
    }

    async fn ask(&self) -> Result<Token, TokenError> {
        let broken = |why: HttpError| TokenError { why: why.why, retriable: why.retriable };
        let (headers, body) = self.request().map_err(|why| TokenError::refused(self.about(&why)))?;
        let mut connection = self.endpoint.connect().await.map_err(broken)?;
        let HttpAnswer { status, body, .. } =
            self.endpoint.post(&mut connection, &headers, body).await.map_err(broken)?;
        let answer: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        if status == 200 {
            return answer
                .as_ref()
                .and_then(token_in)
                .ok_or_else(|| TokenError::refused(self.about("its answer holds no `access_token`")));
        }
        let field = |name: &str| answer.as_ref()?.get(name)?.as_str().map(|text| self.safe(text));
        let mut why = format!("HTTP {status}");
        for said in [field("error"), field("error_description")].into_iter().flatten() {
            why.push_str(": ");
            why.push_str(&said);
        }
        let retriable = status >= 500 || [408, 429].contains(&status);
        Err(TokenError { why: self.about(&why), retriable })
    }

    fn request(&self) -> Result<([(HeaderName, HeaderValue); 4], Bytes), String> {
        let ClientCredentialsConfig { client_id, client_secret, scope, .. } = &self.config;
        let credentials = format!("{}:{}", form(client_id), form(client_secret.reveal()));
        let mut body = "grant_type=client_credentials".to_owned();
        if let Some(scope) = scope {
            body.push_str("&scope=");
            body.push_str(&form(scope));
        }
        let authorization = format!("Basic {}", BASE64.encode(credentials));
        let headers = [
            (header::ACCEPT, HeaderValue::from_static("application/json")),
            (header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")),
            (header::AUTHORIZATION, HeaderValue::from_str(&authorization).map_err(|why| why.to_string())?),
            (header::CONNECTION, HeaderValue::from_static("close")),
        ];
        Ok((headers, Bytes::from(body)))
    }

    fn about(&self, why: &str) -> String {
        self.endpoint.about(why)
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
