//! What went wrong outside a handler, for the reader at 3 a.m.?

use std::fmt;

use prosody_wire::produce::{SendError, SendOutcome};

/// What kind of failure an [`Error`] is, for callers that branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The client has no group id or no topics, so it can send but not subscribe.
    Unconfigured,
    /// The client is subscribed already.
    AlreadySubscribed,
    /// The client was unsubscribed while it subscribed.
    Unsubscribed,
    /// Topics do not exist; [`Error::topics`] lists all of them.
    MissingTopics,
    /// No broker answered before the deadline.
    Unreachable,
    /// The deadline of the call passed.
    Timeout,
    /// A broker refused; [`Error::code`] names its answer.
    Broker,
    /// The input of the call cannot be used.
    Invalid,
    /// The client was closed.
    Closed,
    /// Anything else, described by the text.
    Other,
}

/// A failed call of a [`Client`](crate::Client) or an [`Admin`](crate::Admin).
///
/// The text says what was being done, to which broker, topic or partition, and what came back.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    text: String,
    code: Option<String>,
    topics: Vec<String>,
    retriable: bool,
    may_have_been_written: bool,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error {
            kind,
            text: text.into(),
            code: None,
            topics: Vec::new(),
            retriable: matches!(kind, ErrorKind::Unreachable | ErrorKind::Timeout),
            may_have_been_written: false,
        }
    }

    pub(crate) fn missing_topics(topics: Vec<String>) -> Error {
        let text = format!("subscribing: these topics do not exist: {}", topics.join(", "));
        Error { topics, ..Error::new(ErrorKind::MissingTopics, text) }
    }

    /// An error of the Kafka layer, met while `doing` something.
    pub(crate) fn from_wire(doing: &str, cause: &prosody_wire::Error) -> Error {
        use prosody_wire::ErrorKind as Wire;
        let kind = match cause.kind() {
            Wire::Tls(why) if why.is_retriable() => ErrorKind::Unreachable,
            Wire::Token(why) if why.is_retriable() => ErrorKind::Unreachable,
            Wire::Unreachable { .. } | Wire::Io(_) => ErrorKind::Unreachable,
            Wire::Timeout => ErrorKind::Timeout,
            Wire::Closed(_) => ErrorKind::Closed,
            Wire::Broker(..) => ErrorKind::Broker,
            Wire::Config(_) | Wire::Encode(_) => ErrorKind::Invalid,
            _ => ErrorKind::Other,
        };
        Error {
            code: cause.code().map(|code| code.name().to_owned()),
            retriable: cause.is_retriable(),
            ..Error::new(kind, format!("{doing}: {cause}"))
        }
    }

    /// A record that was not acknowledged.
    pub(crate) fn from_send(doing: &str, cause: &SendError) -> Error {
        let mut error = Error::from_wire(doing, &cause.error);
        error.may_have_been_written = cause.outcome == SendOutcome::Unknown;
        error.text.push_str(match cause.outcome {
            SendOutcome::NotWritten => "; the record was not written",
            SendOutcome::Unknown => "; the record may have been written",
        });
        error
    }

    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Kafka's name of the broker's error, for example `TOPIC_ALREADY_EXISTS`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// The topics that do not exist, when that is the failure.
    #[must_use]
    pub fn topics(&self) -> &[String] {
        &self.topics
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        self.retriable
    }

    /// For a failed send: whether the record may be in the log all the same. `false` means it is certainly not.
    #[must_use]
    pub fn may_have_been_written(&self) -> bool {
        self.may_have_been_written
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
