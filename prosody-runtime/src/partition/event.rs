//! What waits in a key's queue? A message, or a timer that is due.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use prosody_state::TimerKind;

use super::keys::Keyed;
use super::offsets::Ticket;
use super::record::Record;
use crate::handler::Timer;
use crate::timers::DueTimer;

/// One event on its way to the handler.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) what: What,
    /// Attempts that failed so far.
    pub(crate) failures: u32,
    /// It has waited for a while.
    pub(crate) old: bool,
}

/// What an event is.
#[derive(Debug)]
pub(crate) enum What {
    /// A record, and the proof that its offset was registered.
    Message(Ticket, Record),
    /// A timer. It has no offset: what says that it is done is the key record.
    Timer(Box<DueTimer>),
}

/// Which event of a partition, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Position {
    /// The message at this offset.
    Offset(i64),
    /// The timer that was due at this time, in seconds since the Unix epoch.
    Due(u32),
}

impl Event {
    pub(crate) fn message(ticket: Ticket, record: Record) -> Event {
        Event { what: What::Message(ticket, record), failures: 0, old: false }
    }

    pub(crate) fn timer(due: DueTimer) -> Event {
        Event { what: What::Timer(Box::new(due)), failures: 0, old: false }
    }

    pub(crate) fn position(&self) -> Position {
        match &self.what {
            What::Message(_, record) => Position::Offset(record.offset),
            What::Timer(due) => Position::Due(due.id.time.seconds()),
        }
    }

    /// What completes its offset, if it has one.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match &self.what {
            What::Message(ticket, _) => Some(*ticket),
            What::Timer(_) => None,
        }
    }

    /// Whether it brings a deferred event back.
    pub(crate) fn is_retry(&self) -> bool {
        matches!(&self.what, What::Timer(due) if due.id.kind != TimerKind::Application)
    }

    /// Lets go of the batch it was read from.
    pub(crate) fn copy_out(&mut self) {
        if let What::Message(_, record) = &mut self.what {
            record.copy_out();
        }
    }
}

impl Keyed for Event {
    fn key(&self) -> &[u8] {
        match &self.what {
            What::Message(_, record) => record.key(),
            What::Timer(due) => &due.key,
        }
    }
    fn shared_key(&self) -> Bytes {
        match &self.what {
            What::Message(_, record) => record.shared_key(),
            What::Timer(due) => due.key.clone(),
        }
    }
    fn is_message(&self) -> bool {
        matches!(self.what, What::Message(..))
    }
}

/// What a handler sees of a timer.
pub(crate) fn timer_of(due: &DueTimer) -> Timer {
    let time = UNIX_EPOCH + Duration::from_secs(u64::from(due.id.time.seconds()));
    Timer { key: String::from_utf8_lossy(&due.key).into_owned(), time }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Offset(offset) => write!(f, "offset {offset}"),
            Position::Due(time) => write!(f, "timer {time}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands of events wait at a time, and each is moved a few times.
    #[test]
    fn an_event_that_may_be_a_timer_is_as_small_as_a_message() {
        let message = size_of::<Ticket>() + size_of::<Record>();
        assert!(size_of::<Event>() <= message + 8, "{} for {message}", size_of::<Event>());
    }
}
