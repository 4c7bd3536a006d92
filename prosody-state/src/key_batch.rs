//! What does one event change in its key's record? All of it or nothing.

use crate::key_image::{DeferredMessage, DeferredTimer, Last, TimerFacts, TimerId};

/// A timer to put, in place of one of the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutTimer {
    /// Which one.
    pub id: TimerId,
    /// What is kept of it.
    pub facts: TimerFacts,
}

/// A timer to delete, as the image has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteTimer {
    /// Which one.
    pub id: TimerId,
    /// Its nonce; a timer of another nonce stays.
    pub nonce: u64,
    /// Where its row is.
    pub slab: u32,
}

/// The changes of one event. An empty batch still counts the version up, which ends what earlier writers may commit.
///
/// Deletes come first: a timer both deleted and put is put. Appended entries get the queue's numbers from its tail on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyBatch {
    /// The message that is done now, or deferred.
    pub last: Option<Last>,
    /// Timers that are no more.
    pub delete_timers: Vec<DeleteTimer>,
    /// Timers that are new.
    pub put_timers: Vec<PutTimer>,
    /// Messages put at the end of the queue.
    pub append_messages: Vec<DeferredMessage>,
    /// Numbers of messages taken out of the queue.
    pub remove_messages: Vec<u64>,
    /// How often the queue's head has been tried, from now on.
    pub message_retries: Option<u32>,
    /// Application timers put at the end of the queue.
    pub append_timers: Vec<DeferredTimer>,
    /// Numbers of timers taken out of the queue.
    pub remove_timers: Vec<u64>,
    /// How often the queue's head has been tried, from now on.
    pub timer_retries: Option<u32>,
}

impl KeyBatch {
    /// Whether it changes nothing but the version.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == KeyBatch::default()
    }
}
