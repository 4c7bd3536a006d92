//! What went wrong, in the form .NET reads? An owned error whose head is a [`PrError`].

use std::sync::atomic::{AtomicU32, Ordering};

use prosody_runtime::{Error, ErrorClass, ErrorKind, HandlerError};

use crate::abi::{
    PR_ERROR_ARGUMENT, PR_ERROR_CLOSED, PR_ERROR_KAFKA, PR_ERROR_STATE, PR_ERROR_STORE, PR_ERROR_TIMEOUT,
    PR_FLAG_MAYBE_WRITTEN, PR_FLAG_TRANSIENT, PrBytes, PrError,
};

/// Errors given out and not freed.
static LIVE: AtomicU32 = AtomicU32::new(0);

/// A failure on its way to .NET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// `PR_ERROR_*`.
    pub(crate) kind: i32,
    /// Whether a retry may help.
    pub(crate) transient: bool,
    /// Whether a record may have been written.
    pub(crate) maybe_written: bool,
    /// Kafka's name of the error, or nothing.
    pub(crate) code: String,
    /// The text of the exception.
    pub(crate) message: String,
}

impl Failure {
    /// A failure without a Kafka code that a retry does not help.
    pub(crate) fn new(kind: i32, message: impl Into<String>) -> Failure {
        Failure { kind, transient: false, maybe_written: false, code: String::new(), message: message.into() }
    }

    /// Hands the failure over to .NET, which gives it back to [`free`].
    pub(crate) fn into_raw(self) -> *mut PrError {
        let flags = if self.transient { PR_FLAG_TRANSIENT } else { 0 }
            | if self.maybe_written { PR_FLAG_MAYBE_WRITTEN } else { 0 };
        let mut owned = Box::new(Owned {
            head: PrError {
                size: size_of::<PrError>() as u32,
                kind: self.kind,
                flags,
                code: PrBytes::NONE,
                message: PrBytes::NONE,
            },
            code: self.code.into_boxed_str(),
            message: self.message.into_boxed_str(),
        });
        owned.head.code = PrBytes::of(owned.code.as_bytes());
        owned.head.message = PrBytes::of(owned.message.as_bytes());
        LIVE.fetch_add(1, Ordering::Relaxed);
        Box::into_raw(owned).cast::<PrError>()
    }
}

/// What a timer call of a handler says.
pub(crate) fn of_store(error: &HandlerError) -> Failure {
    let mut failure = Failure::new(PR_ERROR_STORE, error.text());
    failure.transient = error.class() == ErrorClass::Transient;
    failure
}

/// What a call of a client says.
pub(crate) fn failed(error: Error) -> Failure {
    Failure {
        kind: match error.kind() {
            ErrorKind::Unconfigured | ErrorKind::AlreadySubscribed | ErrorKind::Unsubscribed => {
                PR_ERROR_STATE
            }
            ErrorKind::Invalid => PR_ERROR_ARGUMENT,
            ErrorKind::Unreachable | ErrorKind::Timeout => PR_ERROR_TIMEOUT,
            ErrorKind::Closed => PR_ERROR_CLOSED,
            _ => PR_ERROR_KAFKA,
        },
        transient: error.is_retriable(),
        maybe_written: error.may_have_been_written(),
        code: error.code().unwrap_or_default().to_owned(),
        message: error.to_string(),
    }
}

/// The head comes first, so that a pointer to it is a pointer to the whole.
#[repr(C)]
struct Owned {
    head: PrError,
    code: Box<str>,
    message: Box<str>,
}

/// Frees what [`Failure::into_raw`] gave out; null is ignored.
///
/// # Safety
/// `error` is null or was given out by [`Failure::into_raw`] and not freed since.
pub(crate) unsafe fn free(error: *mut PrError) {
    if !error.is_null() {
        // SAFETY: by the contract above this is the head of an `Owned` made by `Box::into_raw`, and nobody else has it.
        drop(unsafe { Box::from_raw(error.cast::<Owned>()) });
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Errors given out and not freed.
pub(crate) fn live() -> u32 {
    LIVE.load(Ordering::Relaxed)
}
