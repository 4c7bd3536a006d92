//! How are the blobs that group members exchange read and written without trusting them?
//!
//! Subscriptions and assignments travel through the broker unread: what arrives was written by another member, which
//! may be of another language, broken or hostile. Every length and count is checked against the bytes that remain
//! before anything is allocated, and against [`MAX_ENTRIES`].

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::types::{Topic, TopicPartition};

/// Topics, or partitions over all topics, that one member's blob may name. A group with more partitions than this
/// cannot be balanced by a client anyway.
pub(crate) const MAX_ENTRIES: usize = 1 << 18;

/// A blob that does not follow the consumer protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// The field that could not be read.
    pub(crate) field: &'static str,
    /// What was wrong with it.
    pub(crate) why: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

/// Reads big-endian primitives from the front of a slice.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn i16(&mut self, field: &'static str) -> Result<i16, Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed { field, why: "cut short" })?;
        self.0 = rest;
        Ok(i16::from_be_bytes(*head))
    }

    pub(crate) fn i32(&mut self, field: &'static str) -> Result<i32, Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed { field, why: "cut short" })?;
        self.0 = rest;
        Ok(i32::from_be_bytes(*head))
    }

    /// A string that may be null; the length is bounded by the bytes that remain.
    pub(crate) fn nullable_string(&mut self, field: &'static str) -> Result<Option<&'a str>, Malformed> {
        let length = self.i16(field)?;
        if length == -1 {
            return Ok(None);
        }
        let bytes = self.take(usize::try_from(length).ok(), field)?;
        std::str::from_utf8(bytes).map(Some).map_err(|_| Malformed { field, why: "not UTF-8" })
    }

    pub(crate) fn string(&mut self, field: &'static str) -> Result<&'a str, Malformed> {
        self.nullable_string(field)?.ok_or(Malformed { field, why: "null" })
    }

    pub(crate) fn nullable_bytes(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, Malformed> {
        let length = self.i32(field)?;
        if length == -1 {
            return Ok(None);
        }
        self.take(usize::try_from(length).ok(), field).map(Some)
    }

    /// The count of an array whose elements take at least `smallest` bytes each. A null array is empty.
    pub(crate) fn count(&mut self, smallest: usize, field: &'static str) -> Result<usize, Malformed> {
        let count = self.i32(field)?;
        if count == -1 {
            return Ok(0);
        }
        let count = usize::try_from(count).map_err(|_| Malformed { field, why: "negative count" })?;
        if count > self.0.len() / smallest {
            return Err(Malformed { field, why: "count larger than the bytes that remain" });
        }
        if count > MAX_ENTRIES {
            return Err(Malformed { field, why: "more entries than a member may have" });
        }
        Ok(count)
    }

    /// `[topic [partition]]`, the layout both blobs share. Duplicates and negative partitions are refused.
    pub(crate) fn partitions(&mut self, field: &'static str) -> Result<Vec<TopicPartition>, Malformed> {
        let mut found = Vec::new();
        for _ in 0..self.count(6, field)? {
            let topic: Topic = self.string(field)?.into();
            let partitions = self.count(4, field)?;
            if found.len().saturating_add(partitions) > MAX_ENTRIES {
                return Err(Malformed { field, why: "more entries than a member may have" });
            }
            for _ in 0..partitions {
                let partition = self.i32(field)?;
                if partition < 0 {
                    return Err(Malformed { field, why: "negative partition" });
                }
                found.push(TopicPartition { topic: topic.clone(), partition });
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    fn take(&mut self, length: Option<usize>, field: &'static str) -> Result<&'a [u8], Malformed> {
        let length = length.ok_or(Malformed { field, why: "negative length" })?;
        let (head, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(Malformed { field, why: "length larger than the bytes that remain" })?;
        self.0 = rest;
        Ok(head)
    }
}

/// Writes what [`Reader`] reads. Topic names have at most 249 bytes; a text no Kafka string can hold is written empty
/// rather than with a wrong length.
#[derive(Default)]
pub(crate) struct Writer(BytesMut);

impl Writer {
    pub(crate) fn i16(&mut self, value: i16) {
        self.0.put_i16(value);
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.0.put_i32(value);
    }

    pub(crate) fn string(&mut self, value: &str) {
        let (length, text) = i16::try_from(value.len()).map_or((0, ""), |length| (length, value));
        self.0.put_i16(length);
        self.0.put_slice(text.as_bytes());
    }

    pub(crate) fn nullable_string(&mut self, value: Option<&str>) {
        match value {
            Some(text) => self.string(text),
            None => self.0.put_i16(-1),
        }
    }

    pub(crate) fn nullable_bytes(&mut self, value: Option<&[u8]>) {
        match value {
            Some(bytes) => {
                self.count(bytes.len());
                self.0.put_slice(bytes);
            }
            None => self.0.put_i32(-1),
        }
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.0.put_i32(i32::try_from(count).unwrap_or(i32::MAX));
    }

    /// `[topic [partition]]`; `partitions` must be sorted so that each topic appears once.
    pub(crate) fn partitions(&mut self, partitions: &[TopicPartition]) {
        let topics = partitions.chunk_by(|a, b| a.topic == b.topic);
        self.count(topics.clone().count());
        for of_topic in topics {
            if let Some(first) = of_topic.first() {
                self.string(&first.topic);
            }
            self.count(of_topic.len());
            for one in of_topic {
                self.i32(one.partition);
            }
        }
    }

    pub(crate) fn finish(self) -> Bytes {
        self.0.freeze()
    }
}
