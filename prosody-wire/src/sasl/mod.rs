//! How does a client prove who it is? Mechanisms as messages in and out, without a connection. `conn/login.rs` carries
//! them.
//!
//! | file | question |
//! |---|---|
//! | `scram.rs` | how do both sides prove that they know a password without sending it? (RFC 5802) |

pub(crate) mod scram;

use std::fmt;

use crate::secret::Secret;
pub use scram::ScramError;

/// How the proof is made.
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

/// Who the client is to the brokers. User and password are used as their UTF-8 bytes, without SASLprep, which is what
/// Apache Kafka does on its side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sasl {
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
        if self.user.is_empty() {
            return Some("the SASL user is empty");
        }
        let separated = self.user.contains('\0') || self.password.reveal().contains('\0');
        separated.then_some("a SASL user or password contains NUL, which separates them on the wire")
    }

    /// The one message of PLAIN (RFC 4616): no authorization id, user, password.
    pub(crate) fn plain(&self) -> Vec<u8> {
        format!("\0{}\0{}", self.user, self.password.reveal()).into_bytes()
    }

    /// A peer's text without our secret, should it send that back, and not without end.
    pub(crate) fn safe(&self, text: &str) -> String {
        let secret = self.password.reveal();
        let text = if secret.is_empty() { text.to_owned() } else { text.replace(secret, "***") };
        text.chars().take(500).collect()
    }
}
