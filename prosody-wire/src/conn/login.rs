//! Who are we to this broker? SaslHandshake and SaslAuthenticate, when a connection opens and again before the broker's
//! session ends (KIP-368).

use std::sync::{Arc, Weak};
use std::time::Duration;

use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use prosody_base::{Doors, Instant};

use super::{Handle, decode, encode};
use crate::error::{DecodeError, Error, ErrorKind};
use crate::proto::{ApiKey, ErrorCode, Request, messages as m, text, versions};
use crate::sasl::bearer;
use crate::sasl::scram::{Scram, ScramError};
use crate::sasl::tokens::Tokens;
use crate::sasl::{Credentials, Login, SaslMechanism};
use crate::secret::Secret;

/// Iterations between two chances for other tasks of the thread: a few milliseconds.
const PIECE: u32 = 4_096;
/// Shortest time between two proofs on one connection, whatever lifetime the broker claims.
const SHORTEST_SESSION: Duration = Duration::from_secs(1);
/// Longest text of a peer that is repeated in an error.
const SAID_CHARS: usize = 500;

/// Proves who we are. Returns how long the broker lets this count; `None` for ever.
pub(super) async fn log_in(
    connection: &Handle,
    login: &Login,
    deadline: Instant,
) -> Result<Option<Duration>, Error> {
    let millis = match login {
        Login::Password(credentials) => by_password(connection, credentials, deadline).await?,
        Login::Bearer(tokens) => by_token(connection, tokens, deadline).await?,
    };
    Ok(u64::try_from(millis).ok().filter(|millis| *millis > 0).map(Duration::from_millis))
}

async fn by_password(connection: &Handle, who: &Credentials, deadline: Instant) -> Result<i64, Error> {
    let Credentials { mechanism, user, password } = who;
    let doing = format!("authenticating user `{user}` by {mechanism}");
    let exchange = Exchange { connection, doing, secret: password, deadline };
    exchange.shake(mechanism.name()).await?;
    match nonce().and_then(|nonce| Scram::new(*mechanism, user, nonce)) {
        None if *mechanism == SaslMechanism::Plain => Ok(exchange.say(who.plain()).await?.1),
        None => Err(exchange.failed(ErrorKind::Config("this machine gives no randomness".into()))),
        Some(scram) => {
            let (challenge, _) = exchange.say(scram.first()).await?;
            let salting = scram.challenged(&challenge, password.reveal());
            let mut salting = salting.map_err(|why| exchange.refused(why))?;
            while !salting.advance(PIECE) {
                tokio::task::yield_now().await;
            }
            let (last, expected) = salting.finish();
            let (signature, lifetime) = exchange.say(last).await?;
            expected.check(&signature).map_err(|why| exchange.refused(why))?;
            Ok(lifetime)
        }
    }
}

async fn by_token(connection: &Handle, tokens: &Tokens, deadline: Instant) -> Result<i64, Error> {
    let doing = "authenticating by OAUTHBEARER".to_owned();
    let peer = || connection.shared.machine().peer().to_owned();
    let token = tokens.current(deadline).await;
    let token = token.map_err(|why| why.during(&format!("{doing} at {}", peer())))?;
    let exchange = Exchange { connection, doing, secret: token.secret(), deadline };
    exchange.shake("OAUTHBEARER").await?;
    let answer = exchange.say(token.message()).await;
    if answer.as_ref().is_ok_and(|(said, _)| said.is_empty()) {
        return Ok(answer?.1);
    }
    if answer.as_ref().map_or_else(Error::is_refusal, |_| true) {
        tokens.refused(&token);
    }
    let (said, _) = answer?;
    // The reason came as a message of the exchange, which wants an answer before the broker refuses (RFC 7628 3.2.3).
    let _ = exchange.say(vec![1]).await;
    let said = exchange.safe(&bearer::refusal(&said));
    Err(exchange.failed(ErrorKind::Broker(ErrorCode::SASL_AUTHENTICATION_FAILED, Some(said))))
}

/// 144 bits nobody can guess; `None` when the operating system has none to give.
fn nonce() -> Option<String> {
    let mut bytes = [0; 18];
    rand::fill(&mut bytes).ok().map(|()| BASE64.encode(bytes))
}

/// Proves it again and again at 80 to 90 % of the time the broker gives, while the connection lives. Other requests wait
/// meanwhile: a broker takes none between the two messages.
pub(super) async fn stay(connection: Weak<Handle>, login: Arc<Login>, doors: Doors, mut lifetime: Duration) {
    loop {
        let wait = lifetime.mul_f64(0.8 + 0.1 * doors.rng.unit()).max(SHORTEST_SESSION);
        doors.clock.sleep(wait).await;
        let Some(connection) = connection.upgrade() else { return };
        let left = lifetime.saturating_sub(wait).max(SHORTEST_SESSION);
        let deadline = doors.clock.now() + left;
        if let Login::Bearer(tokens) = &*login {
            // Whoever has to wait for a token does not make others wait; a failure is met again below.
            let _ = tokens.current(deadline).await;
        }
        connection.shared.machine().hold(true);
        let again = log_in(&connection, &login, deadline).await;
        connection.shared.machine().hold(false);
        connection.shared.ring();
        match again {
            Ok(Some(next)) => lifetime = next,
            Ok(None) => return,
            Err(error) => return connection.shared.close(&error),
        }
    }
}

struct Exchange<'a> {
    connection: &'a Handle,
    doing: String,
    secret: &'a Secret,
    deadline: Instant,
}

impl Exchange<'_> {
    async fn shake(&self, mechanism: &str) -> Result<(), Error> {
        let request = m::SaslHandshakeRequest::default().with_mechanism(text(mechanism));
        let answer = self.ask(&request).await?;
        ErrorCode::check(answer.error_code).map_err(|code| {
            let offered: Vec<&str> = answer.mechanisms.iter().map(|name| name.as_str()).collect();
            let offered = format!("the broker offers {}", offered.join(", "));
            self.failed(ErrorKind::Broker(code, Some(self.safe(&offered))))
        })
    }

    /// One message of ours for one of theirs, with the lifetime of the session in milliseconds.
    async fn say(&self, token: Vec<u8>) -> Result<(Bytes, i64), Error> {
        let request = m::SaslAuthenticateRequest::default().with_auth_bytes(token.into());
        let answer = self.ask(&request).await?;
        ErrorCode::check(answer.error_code).map_err(|code| {
            let said = answer.error_message.as_ref().map(|said| self.safe(said.as_str()));
            self.failed(ErrorKind::Broker(code, said))
        })?;
        Ok((answer.auth_bytes, answer.session_lifetime_ms))
    }

    async fn ask<R: Request>(&self, request: &R) -> Result<R::Response, Error> {
        let offered = &self.connection.offered;
        let step = |kind| self.failed(kind).during(&format!("{:?}", R::API));
        let version = offered.negotiate(R::API).ok_or_else(|| {
            let (ours, theirs) = (versions::spoken(R::API).unwrap_or((0, -1)), offered.range(R::API));
            self.failed(ErrorKind::Unsupported { api: format!("{:?}", R::API), ours, theirs })
        })?;
        let body = encode(request, version).map_err(|why| step(ErrorKind::Encode(why)))?;
        let left = self.deadline.saturating_duration_since(self.connection.clock.now());
        let answer = self.connection.send(R::API, version, body, left).await;
        let mut answer = answer.map_err(|why| step(why.kind().clone()))?;
        decode::<R>(version, &mut answer).map_err(|why| step(ErrorKind::Decode(why)))
    }

    /// A peer's text without our secret, should it send that back, and not without end.
    fn safe(&self, text: &str) -> String {
        self.secret.hide(text).chars().take(SAID_CHARS).collect()
    }

    fn refused(&self, why: ScramError) -> Error {
        self.failed(ErrorKind::Decode(DecodeError::Sasl(why)))
    }

    fn failed(&self, kind: ErrorKind) -> Error {
        let peer = self.connection.shared.machine().peer().to_owned();
        Error::new(format!("{} at {peer}", self.doing), kind)
    }
}

/// The APIs of an exchange.
pub(super) const APIS: [ApiKey; 2] = [ApiKey::SaslHandshake, ApiKey::SaslAuthenticate];
