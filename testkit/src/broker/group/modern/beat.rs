//! What does a member say in a heartbeat, and what can be said against it without knowing its group?

use std::collections::BTreeSet;
use std::time::Duration;

use regex_lite::Regex;

use super::{Assignor, JOIN, LEAVE_STATIC, Places, Refusal};
use crate::broker::code;

/// Longest regular expression, in bytes.
const REGEX_BYTES: usize = 1_024;

/// One heartbeat, as it was asked. `None` is a field that did not change.
#[derive(Clone, Debug, Default)]
pub struct Beat {
    /// Chosen by the member.
    pub member_id: String,
    /// The epoch it has; 0 to join, −1 and −2 to leave.
    pub epoch: i32,
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// Where it runs.
    pub rack: Option<String>,
    /// How long it may take to give partitions up.
    pub rebalance_timeout: Option<Duration>,
    /// Topics it wants.
    pub topics: Option<BTreeSet<String>>,
    /// Topics it wants by name; empty for none.
    pub regex: Option<String>,
    /// Which assignor it would like.
    pub assignor: Option<String>,
    /// What it holds.
    pub owned: Option<Places>,
    /// The client's name for itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
}

impl Beat {
    /// Whether it repeats everything, as after a lost answer. The answer then does so too.
    pub(super) fn is_full(&self) -> bool {
        let wants = self.topics.is_some() || self.regex.is_some();
        self.epoch == JOIN || (self.owned.is_some() && self.rebalance_timeout.is_some() && wants)
    }
}

/// What a heartbeat is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beaten {
    /// The member's epoch from now on.
    pub epoch: i32,
    /// What it may hold, when that changed or everything was asked for.
    pub assignment: Option<Places>,
}

/// The expression must match the whole name.
pub(super) fn compile(text: &str) -> Result<Regex, regex_lite::Error> {
    Regex::new(&format!("^(?:{text})$"))
}

/// What can be said against a heartbeat without knowing its group.
pub(super) fn check(beat: &Beat) -> Result<(), Refusal> {
    let invalid = |why: &str| Err((code::INVALID_REQUEST, why.to_owned()));
    if beat.member_id.is_empty() {
        return invalid("a member id is needed");
    }
    match beat.epoch {
        LEAVE_STATIC if beat.instance.is_none() => return invalid("only a static member leaves with -2"),
        JOIN => {
            if beat.rebalance_timeout.is_none() {
                return invalid("whoever joins says its rebalance timeout");
            }
            if beat.topics.is_none() && beat.regex.is_none() {
                return invalid("whoever joins says what it subscribes to");
            }
            if beat.owned.as_ref().is_none_or(|owned| !owned.is_empty()) {
                return invalid("whoever joins owns nothing, and says so");
            }
        }
        epoch if epoch < LEAVE_STATIC => return invalid("no such epoch"),
        _ => {}
    }
    if let Some(assignor) = &beat.assignor
        && Assignor::named(assignor).is_none()
    {
        let why = format!("assignor {assignor} is not served; uniform and range are");
        return Err((code::UNSUPPORTED_ASSIGNOR, why));
    }
    if let Some(text) = &beat.regex
        && !text.is_empty()
        && (text.len() > REGEX_BYTES || compile(text).is_err())
    {
        return Err((code::INVALID_REGULAR_EXPRESSION, format!("{text:?} is no regular expression")));
    }
    Ok(())
}
