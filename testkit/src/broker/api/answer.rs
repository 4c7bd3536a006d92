//! How is an answer framed, and what does a rule make of it?

use bytes::{BufMut, Bytes, BytesMut};

use crate::broker::Outcome;
use crate::broker::control::Action;
use crate::broker::storage::Segments;

/// What the connection does with a request that was served.
#[derive(Debug)]
pub(crate) struct Fate {
    pub(crate) write: Vec<Bytes>,
    pub(crate) then: Then,
}

/// What follows an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The next request.
    Continue,
    /// The connection is closed.
    Close,
    /// The broker closes its direction and reads on into nothing.
    HalfClose,
    /// The broker reads on into nothing.
    Swallow,
    /// The next request; no answer is written any more.
    Mute,
}

/// The bytes of an answer: length, correlation id, and an empty tag section in flexible versions.
pub(super) fn framed(correlation: i32, flexible: bool, body: Segments) -> Fate {
    let extra = 4 + usize::from(flexible);
    let length = i32::try_from(body.len() + extra).unwrap_or(i32::MAX);
    let mut head = BytesMut::with_capacity(4 + extra);
    head.put_i32(length);
    head.put_i32(correlation);
    if flexible {
        head.put_u8(0);
    }
    let mut write = vec![head.freeze()];
    write.extend(body.finish());
    Fate { write, then: Then::Continue }
}

/// What a rule makes of an answer whose request had its effect.
pub(super) fn struck(action: &Action, correlation: i32, flexible: bool, body: Segments) -> (Outcome, Fate) {
    let silent = |then| Fate { write: Vec::new(), then };
    match action {
        Action::CutAfter => (Outcome::CutAfter, silent(Then::Close)),
        Action::HangAfter => (Outcome::CutAfter, silent(Then::Swallow)),
        Action::HalfClose => (Outcome::CutAfter, silent(Then::HalfClose)),
        Action::Mute => (Outcome::CutAfter, silent(Then::Mute)),
        Action::Error(_) => (Outcome::Refused, framed(correlation, flexible, body)),
        Action::Garbage(bytes) => {
            (Outcome::Spoiled, Fate { write: vec![bytes.clone()], then: Then::Continue })
        }
        Action::Body(bytes) => {
            let mut other = Segments::default();
            other.push(bytes.clone());
            (Outcome::Spoiled, framed(correlation, flexible, other))
        }
        Action::WrongCorrelation => {
            (Outcome::Spoiled, framed(correlation.wrapping_add(1_000_003), flexible, body))
        }
        Action::AbsurdLength(length) => {
            let mut fate = framed(correlation, flexible, body);
            let mut head = BytesMut::from(fate.write.first().map_or(&[][..], |head| head.as_ref()));
            if let Some(stated) = head.get_mut(..4) {
                stated.copy_from_slice(&length.to_be_bytes());
            }
            if let Some(first) = fate.write.first_mut() {
                *first = head.freeze();
            }
            (Outcome::Spoiled, fate)
        }
        Action::PartialWrite(keep) => {
            let whole = framed(correlation, flexible, body).write.concat();
            let kept = whole.get(..*keep).unwrap_or(&whole);
            let write = vec![Bytes::copy_from_slice(kept)];
            (Outcome::Spoiled, Fate { write, then: Then::Close })
        }
        Action::DuplicateAnswer => {
            let mut fate = framed(correlation, flexible, body);
            fate.write.extend(fate.write.clone());
            (Outcome::Spoiled, fate)
        }
        Action::Observe | Action::Delay(_) | Action::DelayAnswer(_) | Action::Throttle(_) => {
            (Outcome::Answered, framed(correlation, flexible, body))
        }
        Action::CutBefore | Action::Hang => (Outcome::Hung, silent(Then::Close)),
    }
}
