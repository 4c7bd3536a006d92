//! What is sent: a record borrowed from its caller, or owned while it has no batch.

use std::sync::Arc;

use prosody_base::Instant;

use super::completion::Slot;
use crate::types::Topic;

/// A record on its way in, borrowed from the caller.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRecord<'a> {
    /// The topic to write to.
    pub topic: &'a str,
    /// The partition; `None` lets the partitioner choose.
    pub partition: Option<i32>,
    /// The key; `None` is a null key.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a null value (a tombstone).
    pub value: Option<&'a [u8]>,
    /// Headers in order; keys may repeat. Brokers take any bytes as a key, and a null value.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
    /// Milliseconds since 1970; `None` is the time of the call.
    pub timestamp: Option<i64>,
}

/// A record that owns its bytes, because it has no batch yet.
#[derive(Debug)]
pub(crate) struct OwnedRecord {
    pub(crate) topic: Topic,
    pub(super) partition: Option<i32>,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub(super) timestamp: i64,
    pub(super) deadline: Option<Instant>,
    pub(super) size: usize,
    pub(super) slot: Arc<Slot>,
}

/// What a waiting copy costs beside its bytes: its allocations, its slot, the waker of its sender.
const OVERHEAD: usize = 512;

impl OwnedRecord {
    /// Bytes it holds while it waits for memory.
    pub(super) fn held(&self) -> usize {
        self.size.saturating_add(OVERHEAD)
    }

    pub(super) fn new(
        record: &OutgoingRecord<'_>,
        timestamp: i64,
        deadline: Option<Instant>,
        size: usize,
    ) -> OwnedRecord {
        OwnedRecord {
            topic: Topic::from(record.topic),
            partition: record.partition,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .iter()
                .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                .collect(),
            timestamp,
            deadline,
            size,
            slot: Arc::default(),
        }
    }
}

pub(super) fn headers<'a>(
    headers: &'a [(&'a [u8], Option<&'a [u8]>)],
) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone {
    headers.iter().copied()
}
