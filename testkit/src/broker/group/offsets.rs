//! What has a group committed?

use std::sync::Arc;

/// A committed offset as it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    pub(crate) offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: Arc<str>,
}

/// A committed offset as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset to read.
    pub offset: i64,
    /// Leader epoch of the record before it, −1 when the client gave none.
    pub leader_epoch: i32,
    /// The client's text.
    pub metadata: String,
}

impl Committed {
    pub(crate) fn public(&self) -> CommittedOffset {
        CommittedOffset {
            offset: self.offset,
            leader_epoch: self.leader_epoch,
            metadata: self.metadata.as_ref().to_owned(),
        }
    }
}
