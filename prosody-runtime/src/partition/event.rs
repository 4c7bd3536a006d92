//! What waits in a key's queue? A message, or a timer that is due.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use prosody_state::{Time, TimerKind};

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
    /// The first of a key's deferred events, with the timer that brings it back.
    Retry(Box<Retry>),
}

/// A deferred event that is tried again.
#[derive(Debug)]
pub(crate) struct Retry {
    pub(crate) due: Box<DueTimer>,
    /// Its number in its queue.
    pub(crate) number: u64,
    /// How often it was tried again before.
    pub(crate) retries: u32,
    pub(crate) entry: Entry,
}

/// What was deferred.
#[derive(Debug)]
pub(crate) enum Entry {
    Message(Record),
    Timer(Time),
    /// A message at this offset that is not to run any more, and why.
    Gone(i64, String),
    /// A message at this offset that could not be read, and why.
    Unread(i64, String),
    /// A message at this offset that this assignment had processed when somebody else set it aside.
    Void(i64),
}

/// What a handler is called for.
pub(crate) enum Subject<'a> {
    Message(&'a Record),
    Timer(Time),
    /// A record that is not here.
    Nothing,
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
            What::Retry(retry) => match &retry.entry {
                Entry::Message(record) => Position::Offset(record.offset),
                Entry::Gone(offset, _) | Entry::Unread(offset, _) | Entry::Void(offset) => {
                    Position::Offset(*offset)
                }
                Entry::Timer(time) => Position::Due(time.seconds()),
            },
        }
    }

    /// What a handler is called for.
    pub(crate) fn subject(&self) -> Subject<'_> {
        match &self.what {
            What::Message(_, record) => Subject::Message(record),
            What::Timer(due) => Subject::Timer(due.id.time),
            What::Retry(retry) => match &retry.entry {
                Entry::Message(record) => Subject::Message(record),
                Entry::Timer(time) => Subject::Timer(*time),
                Entry::Gone(..) | Entry::Unread(..) | Entry::Void(_) => Subject::Nothing,
            },
        }
    }

    /// How often it was tried again before, when it was deferred.
    pub(crate) fn deferred(&self) -> Option<u32> {
        match &self.what {
            What::Retry(retry) => Some(retry.retries),
            What::Message(..) | What::Timer(_) => None,
        }
    }

    /// The timer that brought it, if one did.
    pub(crate) fn due(&self) -> Option<&DueTimer> {
        match &self.what {
            What::Message(..) => None,
            What::Timer(due) => Some(due),
            What::Retry(retry) => Some(&retry.due),
        }
    }

    /// What completes its offset, if it has one.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match &self.what {
            What::Message(ticket, _) => Some(*ticket),
            What::Timer(_) | What::Retry(_) => None,
        }
    }

    /// Whether it brings a deferred event back.
    pub(crate) fn is_retry(&self) -> bool {
        self.due().is_some_and(|due| due.id.kind != TimerKind::Application)
    }

    /// The timer alone of a deferred event; any other as it is.
    pub(crate) fn without_entry(self) -> Event {
        match self.what {
            What::Retry(retry) => Event { what: What::Timer(retry.due), failures: 0, old: self.old },
            what => Event { what, ..self },
        }
    }

    /// Lets go of the batch it was read from; see [`Record::copy_out`].
    pub(crate) fn copy_out(&mut self) -> usize {
        if let What::Message(_, record) = &mut self.what { record.copy_out() } else { 0 }
    }

    /// See [`Record::copied`].
    pub(crate) fn copied(&self) -> usize {
        if let What::Message(_, record) = &self.what { record.copied() } else { 0 }
    }
}

impl Keyed for Event {
    fn key(&self) -> &[u8] {
        match &self.what {
            What::Message(_, record) => record.key(),
            What::Timer(due) => &due.key,
            What::Retry(retry) => &retry.due.key,
        }
    }
    fn shared_key(&self) -> Bytes {
        match &self.what {
            What::Message(_, record) => record.shared_key(),
            What::Timer(due) => due.key.clone(),
            What::Retry(retry) => retry.due.key.clone(),
        }
    }
    fn is_message(&self) -> bool {
        matches!(self.what, What::Message(..))
    }
}

/// What a handler sees of a timer.
pub(crate) fn timer_of(key: &[u8], time: Time) -> Timer {
    let time = UNIX_EPOCH + Duration::from_secs(u64::from(time.seconds()));
    Timer { key: String::from_utf8_lossy(key).into_owned(), time }
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
