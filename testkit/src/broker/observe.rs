//! Who wants to know of a commit at the moment it takes effect? One observer a test may set.

use std::fmt;
use std::sync::OnceLock;

/// An offset commit that was accepted.
#[derive(Clone, Copy, Debug)]
pub struct CommitSeen<'a> {
    /// The group.
    pub group: &'a str,
    /// The client id of the connection it came on.
    pub client: &'a str,
    /// The connection it came on; later ones have greater numbers.
    pub connection: u64,
    /// Topic and partition.
    pub partition: (&'a str, i32),
    /// The next offset to read.
    pub offset: i64,
}

type Observer = Box<dyn Fn(CommitSeen<'_>) + Send + Sync>;

/// Set at most once; free when it is not.
#[derive(Default)]
pub(crate) struct Observers(OnceLock<Observer>);

impl Observers {
    pub(crate) fn set(&self, observer: Observer) -> bool {
        self.0.set(observer).is_ok()
    }

    pub(crate) fn committed(&self, seen: CommitSeen<'_>) {
        if let Some(observer) = self.0.get() {
            observer(seen);
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observers").field(&self.0.get().is_some()).finish()
    }
}
