//! What does a handler see of a record?

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

/// One record of a topic. Cheap to clone: key and payload are views of the buffer it was fetched in.
#[derive(Clone)]
pub struct Message {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    /// The records of its batch, or a copy of this record alone.
    pub(crate) data: Bytes,
    /// Checked to be UTF-8 before a message is made.
    pub(crate) key: Range<u32>,
    /// `None` is a tombstone.
    pub(crate) payload: Option<Range<u32>>,
}

impl Message {
    /// A message that came from no broker, for tests of handlers.
    #[must_use]
    pub fn new(
        topic: &str,
        partition: i32,
        offset: i64,
        timestamp: i64,
        key: &str,
        payload: &[u8],
    ) -> Message {
        let data = Bytes::from([key.as_bytes(), payload].concat());
        let end = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let (key_end, payload_end) = (end(key.len()), end(data.len()));
        let topic = Arc::from(topic);
        let payload = Some(key_end..payload_end);
        Message { topic, partition, offset, timestamp, data, key: 0..key_end, payload }
    }

    /// The topic's name.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The topic's name, shared.
    #[must_use]
    pub fn topic_shared(&self) -> &Arc<str> {
        &self.topic
    }

    /// The partition of the topic.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// The position in the partition.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// When the record was created or appended, as its topic is configured, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn timestamp_millis(&self) -> i64 {
        self.timestamp
    }

    /// [`timestamp_millis`](Message::timestamp_millis) as a point in time; the epoch when it is negative.
    #[must_use]
    pub fn timestamp(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(u64::try_from(self.timestamp).unwrap_or(0))
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        std::str::from_utf8(self.key_bytes()).unwrap_or_default()
    }

    /// The JSON text as it was sent; empty for a tombstone.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.payload.as_ref().map_or(&[], |range| slice(&self.data, range))
    }

    /// The payload without a copy, for code that outlives the message. It keeps the whole fetched batch in memory.
    #[must_use]
    pub fn payload_shared(&self) -> Bytes {
        self.data.slice_ref(self.payload())
    }

    /// Whether the value is null, which is not the same as the JSON text `null`.
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        self.payload.is_none()
    }

    pub(crate) fn key_bytes(&self) -> &[u8] {
        slice(&self.data, &self.key)
    }
}

/// Ranges come from a checked batch; one that does not fit reads as empty instead of ending the process.
pub(crate) fn slice<'a>(data: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    data.get(range.start as usize..range.end as usize).unwrap_or_default()
}

/// Position and sizes; never the payload, which may hold what must not reach a log.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]@{} key {:?}", self.topic, self.partition, self.offset, self.key())?;
        if self.is_tombstone() { f.write_str(" tombstone") } else { write!(f, " {} B", self.payload().len()) }
    }
}
