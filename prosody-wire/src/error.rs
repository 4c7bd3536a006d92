//! What went wrong, while doing what, and does a retry help? The one error type of this crate.

use std::fmt;
use std::io;
use std::sync::Arc;

use prosody_base::guard::GuardError;

use crate::net::TlsError;
use crate::proto::{Disposition, ErrorCode};
use crate::sasl::{ScramError, TokenError};

/// A failed operation. Cheap to clone: one broken connection fails many callers.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    doing: String,
    kind: ErrorKind,
    sent: bool,
    last: bool,
}

/// What came back.
#[derive(Clone, Debug)]
pub enum ErrorKind {
    /// The socket or the name resolution failed.
    Io(Arc<io::Error>),
    /// TLS failed: a certificate, a file, or the connection under it.
    Tls(TlsError),
    /// There is no token to show (OAUTHBEARER).
    Token(TokenError),
    /// No answer in time.
    Timeout,
    /// The connection, or the whole client, was closed.
    Closed(&'static str),
    /// What the peer sent cannot be read.
    Decode(DecodeError),
    /// The broker answered with an error code, and perhaps with a text of its own.
    Broker(ErrorCode, Option<String>),
    /// The broker has no version of an API that this client speaks.
    Unsupported {
        /// The API's name.
        api: String,
        /// Lowest and highest version this client speaks.
        ours: (i16, i16),
        /// What the broker offers; `None` when it does not know the API.
        theirs: Option<(i16, i16)>,
    },
    /// No broker could be reached.
    Unreachable {
        /// Each address that was tried, with what came back.
        tried: Vec<String>,
    },
    /// What was asked for is not there yet: why, as a sentence.
    Pending(String),
    /// A queue of this client is full; its bound is named.
    Full(&'static str),
    /// A request could not be written down: a value does not fit the version the broker speaks.
    Encode(String),
    /// The configuration is wrong.
    Config(String),
}

/// Why bytes of a peer were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A frame's length is negative or over the limit.
    FrameLength {
        /// The claimed length in bytes.
        claimed: i32,
        /// The most this client accepts.
        limit: usize,
    },
    /// The peer answers HTTP.
    Http,
    /// The peer speaks TLS and this client does not (or the other way round).
    Tls,
    /// A response to a request that was never sent, or out of order.
    Correlation {
        /// The id of the oldest unanswered request; `None` when there is none.
        expected: Option<i32>,
        /// The id that came.
        got: i32,
    },
    /// The guard refused a body: a count or length claims more than the bytes that remain, or the layout is wrong.
    Guard(GuardError),
    /// The peer does not prove that it knows our password, or breaks the rules of SCRAM.
    Sasl(ScramError),
    /// The body's layout or content is wrong.
    Body(String),
    /// A record batch is wrong.
    Records(String),
}

impl Error {
    /// An error met while `doing` something, which names the broker, topic, partition or group concerned.
    pub fn new(doing: impl Into<String>, kind: ErrorKind) -> Error {
        Error(Box::new(Inner { doing: doing.into(), kind, sent: false, last: false }))
    }

    /// An error code of a broker.
    pub fn broker(doing: impl Into<String>, code: ErrorCode) -> Error {
        Error::new(doing, ErrorKind::Broker(code, None))
    }

    /// A failure of a socket, or of TLS over it.
    pub fn io(doing: impl Into<String>, cause: io::Error) -> Error {
        let kind = match TlsError::of(&cause) {
            Some(tls) => ErrorKind::Tls(tls),
            None => ErrorKind::Io(Arc::new(cause)),
        };
        Error::new(doing, kind)
    }

    /// Bytes of a peer that were refused.
    pub fn decode(doing: impl Into<String>, cause: DecodeError) -> Error {
        Error::new(doing, ErrorKind::Decode(cause))
    }

    /// The same error, knowing whether the request may have reached the broker.
    #[must_use]
    pub fn with_sent(mut self, sent: bool) -> Error {
        self.0.sent = sent;
        self
    }

    /// The same error where no retry helps, although its code may be temporary elsewhere.
    #[must_use]
    pub(crate) fn final_answer(mut self) -> Error {
        self.0.last = true;
        self
    }

    /// The same error, seen from one level up: `doing` replaces what was being done, the old text stays behind it.
    #[must_use]
    pub fn during(mut self, doing: &str) -> Error {
        self.0.doing = format!("{doing}: {}", self.0.doing);
        self
    }

    /// What was being done.
    #[must_use]
    pub fn doing(&self) -> &str {
        &self.0.doing
    }

    /// What came back.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The broker's error code, if one came back.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self.0.kind {
            ErrorKind::Broker(code, _) => Some(code),
            _ => None,
        }
    }

    /// Whether the broker may have received the request without its answer reaching us: its effect is unknown then.
    #[must_use]
    pub fn maybe_sent(&self) -> bool {
        self.0.sent
    }

    /// What helps.
    #[must_use]
    pub fn disposition(&self) -> Disposition {
        if self.0.last {
            return Disposition::Fatal;
        }
        match &self.0.kind {
            ErrorKind::Io(_) | ErrorKind::Timeout | ErrorKind::Closed(_) | ErrorKind::Unreachable { .. } => {
                Disposition::RefreshMetadata
            }
            ErrorKind::Tls(cause) if cause.is_retriable() => Disposition::RefreshMetadata,
            ErrorKind::Full(_) | ErrorKind::Pending(_) => Disposition::Retry,
            ErrorKind::Token(cause) if cause.is_retriable() => Disposition::RefreshMetadata,
            ErrorKind::Broker(code, _) => code.disposition(),
            // A broken frame breaks the connection, not the request: a new connection may work.
            ErrorKind::Decode(
                DecodeError::FrameLength { .. } | DecodeError::Correlation { .. } | DecodeError::Guard(_),
            ) => Disposition::RefreshMetadata,
            ErrorKind::Decode(_)
            | ErrorKind::Tls(_)
            | ErrorKind::Token(_)
            | ErrorKind::Unsupported { .. }
            | ErrorKind::Encode(_)
            | ErrorKind::Config(_) => Disposition::Fatal,
        }
    }

    /// Whether the peer, or this client about the peer, said no for good: a certificate, a password, or TLS on one side
    /// only. Asking another time gives the same answer.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match &self.0.kind {
            ErrorKind::Tls(cause) => !cause.is_retriable(),
            ErrorKind::Token(cause) => !cause.is_retriable(),
            ErrorKind::Decode(DecodeError::Tls | DecodeError::Sasl(_)) => true,
            ErrorKind::Broker(code, _) => matches!(
                *code,
                ErrorCode::UNSUPPORTED_SASL_MECHANISM
                    | ErrorCode::ILLEGAL_SASL_STATE
                    | ErrorCode::SASL_AUTHENTICATION_FAILED
            ),
            _ => false,
        }
    }

    /// Whether the same request may succeed later without anyone changing a setting.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        self.disposition() != Disposition::Fatal
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.doing, self.0.kind)?;
        if self.0.sent {
            f.write_str(" (the request may have reached the broker)")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Io(cause) => write!(f, "{cause}"),
            ErrorKind::Tls(cause) => write!(f, "{cause}"),
            ErrorKind::Token(cause) => write!(f, "{cause}"),
            ErrorKind::Timeout => f.write_str("no answer in time"),
            ErrorKind::Closed(why) => f.write_str(why),
            ErrorKind::Decode(cause) => write!(f, "{cause}"),
            ErrorKind::Broker(code, None) => write!(f, "the broker answered {code}"),
            ErrorKind::Broker(code, Some(text)) => write!(f, "the broker answered {code}: {text}"),
            ErrorKind::Unsupported { api, ours, theirs: Some(theirs) } => write!(
                f,
                "the broker offers {api} v{} to v{}, this client speaks v{} to v{}",
                theirs.0, theirs.1, ours.0, ours.1
            ),
            ErrorKind::Unsupported { api, .. } => write!(f, "the broker does not offer {api}"),
            ErrorKind::Unreachable { tried } => {
                write!(f, "no broker could be reached; tried {}", tried.join("; "))
            }
            ErrorKind::Full(bound) => write!(f, "{bound} is reached"),
            ErrorKind::Encode(why) => write!(f, "the request cannot be encoded: {why}"),
            ErrorKind::Config(why) | ErrorKind::Pending(why) => f.write_str(why),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::FrameLength { claimed, limit } => {
                write!(f, "the peer claims a frame of {claimed} bytes; the limit is {limit}")
            }
            DecodeError::Http => {
                f.write_str("the peer speaks HTTP: this is the port of a web server, not of a Kafka broker")
            }
            DecodeError::Tls => f.write_str(
                "the peer speaks TLS: this listener needs a TLS connection, and this one is plaintext",
            ),
            DecodeError::Correlation { expected: Some(expected), got } => {
                write!(f, "the peer answered request {got} while request {expected} was the oldest one open")
            }
            DecodeError::Correlation { expected: None, got } => {
                write!(f, "the peer answered request {got} while none was open")
            }
            DecodeError::Guard(why) => write!(f, "{why}"),
            DecodeError::Sasl(why) => write!(f, "{why}"),
            DecodeError::Body(why) | DecodeError::Records(why) => f.write_str(why),
        }
    }
}
