//! How does a client prove who it is? Mechanisms as messages in and out, without a connection. `conn/login.rs` carries
//! them.
//!
//! | file | question |
//! |---|---|
//! | `scram.rs` | how do both sides prove that they know a password without sending it? (RFC 5802) |
//! | `bearer.rs` | what is a token, and how is it shown and refused? (RFC 7628) |
//! | `tokens.rs` | which token counts now, and who asks for the next one in time? (driver) |
//! | `oidc.rs` | how does a token endpoint give a client its token? (client credentials) |

pub(crate) mod bearer;
mod oidc;
pub(crate) mod scram;
pub(crate) mod tokens;

use std::fmt;
use std::sync::Arc;

use prosody_base::Doors;

use crate::limits::Limits;
use crate::secret::Secret;
pub use bearer::{FixedToken, Token, TokenError, TokenProvider};
pub use oidc::{ClientCredentials, ClientCredentialsConfig};
pub use scram::ScramError;
use tokens::Tokens;

/// How a password is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslMechanism {
    /// The password itself is sent. Only sensible inside TLS.
    Plain,
    /// Challenge and response with SHA-256. The broker proves that it knows the password too.
    ScramSha256,
    /// The same with SHA-512.
    ScramSha512,
}

impl SaslMechanism {
    /// Its name on the wire: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

impl fmt::Display for SaslMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who the client is to the brokers.
#[derive(Clone, Debug)]
pub enum Sasl {
    /// A user with a password: PLAIN or SCRAM.
    Password(Credentials),
    /// Whoever its tokens say: OAUTHBEARER (KIP-255). One client asks for one token at a time and shares it between its
    /// connections.
    Bearer(Arc<dyn TokenProvider>),
}

/// A user and a password, used as their UTF-8 bytes, without SASLprep, which is what Apache Kafka does on its side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// How the proof is made.
    pub mechanism: SaslMechanism,
    /// The user's name; not empty, without NUL.
    pub user: String,
    /// The user's password; without NUL.
    pub password: Secret,
}

impl Sasl {
    /// Why no broker could ever accept this, if so.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        let Sasl::Password(Credentials { user, password, .. }) = self else { return None };
        if user.is_empty() {
            return Some("the SASL user is empty");
        }
        let separated = user.contains('\0') || password.reveal().contains('\0');
        separated.then_some("a SASL user or password contains NUL, which separates them on the wire")
    }
}

impl Credentials {
    /// The one message of PLAIN (RFC 4616): no authorization id, user, password.
    pub(crate) fn plain(&self) -> Vec<u8> {
        format!("\0{}\0{}", self.user, self.password.reveal()).into_bytes()
    }
}

/// What the connections of one client share.
#[derive(Debug)]
pub(crate) enum Login {
    Password(Credentials),
    Bearer(Box<Tokens>),
}

impl Login {
    pub(crate) fn new(sasl: &Sasl, limits: &Limits, doors: &Doors) -> Login {
        match sasl {
            Sasl::Password(credentials) => Login::Password(credentials.clone()),
            Sasl::Bearer(provider) => {
                Login::Bearer(Box::new(Tokens::new(Arc::clone(provider), limits.clone(), doors.clone())))
            }
        }
    }
}
