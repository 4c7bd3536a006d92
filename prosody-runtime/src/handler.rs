//! What does a user write, and how does a handler's result decide an event's fate?

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use crate::context::Context;
use crate::hosted::Crew;
use crate::message::Message;

/// Bytes of an error's text that are kept; the rest is cut at a character boundary.
const MAX_ERROR_TEXT: usize = 4 * 1024;

/// Processes the events of a subscription.
///
/// Events of one key of one partition arrive one at a time and in offset order; other keys run at the same time on
/// other threads. One handler value serves all of them, so shared state needs its own synchronisation.
///
/// `Ok(())` means the event is done for good, also after a cancellation. Any error means it is not.
pub trait Handler: Send + Sync + 'static {
    /// Called for each message.
    ///
    /// # Errors
    /// A [transient](HandlerError::transient) error is retried until it succeeds in pipeline mode, `MaxRetries` times
    /// in low-latency mode, not at all in best-effort mode; a [permanent](HandlerError::permanent) one never. What is
    /// not retried goes to the failure topic in low-latency mode, and is logged and given up in the others. Every
    /// error type converts with `?` and is transient.
    fn on_message(
        &self,
        context: Context,
        message: Message,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Called when a timer of a key fires.
    ///
    /// # Errors
    /// As [`on_message`](Handler::on_message). The default refuses, so that a timer without a handler is seen and
    /// retried, never silently done.
    fn on_timer(
        &self,
        context: Context,
        timer: Timer,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send {
        let _ = (context, timer);
        async { Err(HandlerError::transient("a timer fired, but this handler has no `on_timer`")) }
    }

    /// Called for a tombstone: a record whose value is null. [`Message::payload`] is empty then.
    ///
    /// # Errors
    /// As [`on_message`](Handler::on_message). The default accepts and does nothing.
    fn on_tombstone(
        &self,
        context: Context,
        message: Message,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send {
        let _ = (context, message);
        async { Ok(()) }
    }

    /// Who runs this handler's workers. `None`, the default, means the library's own threads; a binding whose handlers
    /// belong to threads of another runtime names those. Asked once for each subscription.
    fn crew(&self) -> Option<Arc<dyn Crew>> {
        None
    }
}

/// A timer that fired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    /// The key it belongs to.
    pub key: String,
    /// When it was due, in whole seconds.
    pub time: SystemTime,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// It may: where the mode retries, the event runs again after a backoff.
    Transient,
    /// It cannot: the event is logged and given up.
    Permanent,
}

/// Why a handler did not process its event.
///
/// It does not implement [`std::error::Error`], so that every type that does converts into it with `?`.
#[derive(Clone, PartialEq, Eq)]
pub struct HandlerError {
    class: ErrorClass,
    text: String,
    unreadable: bool,
}

impl HandlerError {
    /// Trying again may help.
    #[must_use]
    pub fn transient(text: impl fmt::Display) -> HandlerError {
        HandlerError::new(ErrorClass::Transient, text)
    }

    /// Trying again cannot help; the event is given up.
    #[must_use]
    pub fn permanent(text: impl fmt::Display) -> HandlerError {
        HandlerError::new(ErrorClass::Permanent, text)
    }

    /// An error of the given class.
    #[must_use]
    pub fn new(class: ErrorClass, text: impl fmt::Display) -> HandlerError {
        let mut text = text.to_string();
        if text.len() > MAX_ERROR_TEXT {
            let end = (0..=MAX_ERROR_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
        }
        HandlerError { class, text, unreadable: false }
    }

    /// Says that the payload could not be parsed. If it is not JSON at all the record counts as poison and is
    /// completed; otherwise this error decides as usual.
    #[must_use]
    pub fn unreadable(mut self) -> HandlerError {
        self.unreadable = true;
        self
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// What went wrong, at most 4 KiB.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    pub(crate) fn is_unreadable(&self) -> bool {
        self.unreadable
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.class, self.text)
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Any error is transient unless said otherwise.
impl<E: std::error::Error> From<E> for HandlerError {
    fn from(error: E) -> HandlerError {
        HandlerError::transient(error)
    }
}
