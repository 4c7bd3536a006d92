//! What are the records of a batch?

use super::varint::Cursor;
use super::{BatchError, BatchErrorKind, RecordError, legacy};
use bytes::Bytes;

/// Where the parts of one record lie in the bytes of its batch. Owns nothing, so it can be kept anywhere next to one
/// clone of [`super::Batch::data`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSpan {
    /// Absolute offset.
    pub offset: i64,
    /// Milliseconds since 1970; −1 when the record has none (magic 0).
    pub timestamp: i64,
    pub(super) key: Span,
    pub(super) value: Span,
    pub(super) headers: Span,
    pub(super) header_count: u32,
}

/// A range of a batch, or null. Batches are smaller than 2 GiB because their length is an `i32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub(super) const NULL: Span = Span { start: 1, end: 0 };
    pub(super) const EMPTY: Span = Span { start: 0, end: 0 };

    /// The `len` bytes before the last `rest` of `total`.
    #[inline]
    pub(super) fn before(total: usize, rest: usize, len: usize) -> Span {
        let end = total.wrapping_sub(rest);
        Span { start: end.wrapping_sub(len) as u32, end: end as u32 }
    }

    #[inline]
    pub(super) fn of(self, data: &[u8]) -> Option<&[u8]> {
        data.get(self.start as usize..self.end as usize)
    }
}

impl RecordSpan {
    /// The key in `data`, which must be the bytes of the batch this record came from.
    #[must_use]
    #[inline]
    pub fn key<'a>(&self, data: &'a [u8]) -> Option<&'a [u8]> {
        self.key.of(data)
    }

    /// The value in `data`; `None` is a null value (a tombstone), not an empty one.
    #[must_use]
    #[inline]
    pub fn value<'a>(&self, data: &'a [u8]) -> Option<&'a [u8]> {
        self.value.of(data)
    }

    /// The headers in `data`.
    #[must_use]
    #[inline]
    pub fn headers<'a>(&self, data: &'a [u8]) -> Headers<'a> {
        Headers { cursor: Cursor::new(self.headers.of(data).unwrap_or_default()), left: self.header_count }
    }

    /// Bytes of key and value together, a measure of what the record costs.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        let len = |span: Span| span.end.saturating_sub(span.start) as usize;
        len(self.key) + len(self.value)
    }
}

/// One record, borrowed from its batch.
#[derive(Clone, Copy)]
pub struct RecordView<'a> {
    data: &'a Bytes,
    span: RecordSpan,
}

impl<'a> RecordView<'a> {
    /// Absolute offset.
    #[must_use]
    #[inline]
    pub fn offset(&self) -> i64 {
        self.span.offset
    }

    /// Milliseconds since 1970; −1 when the record has none.
    #[must_use]
    #[inline]
    pub fn timestamp(&self) -> i64 {
        self.span.timestamp
    }

    /// The key; `None` when it is null.
    #[must_use]
    #[inline]
    pub fn key(&self) -> Option<&'a [u8]> {
        self.span.key(self.data)
    }

    /// The value; `None` when it is null.
    #[must_use]
    #[inline]
    pub fn value(&self) -> Option<&'a [u8]> {
        self.span.value(self.data)
    }

    /// The headers in the order they were written; keys may repeat.
    #[must_use]
    #[inline]
    pub fn headers(&self) -> Headers<'a> {
        self.span.headers(self.data)
    }

    /// Where its parts lie in the batch.
    #[must_use]
    #[inline]
    pub fn span(&self) -> RecordSpan {
        self.span
    }

    /// The record with a share of the batch's bytes: no copy, one reference counted.
    #[must_use]
    #[inline]
    pub fn to_record(&self) -> Record {
        Record { data: self.data.clone(), span: self.span }
    }
}

impl std::fmt::Debug for RecordView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordView")
            .field("offset", &self.offset())
            .field("timestamp", &self.timestamp())
            .field("key", &self.key().map(<[u8]>::escape_ascii).map(|key| key.to_string()))
            .field("value_bytes", &self.value().map(<[u8]>::len))
            .field("headers", &self.span.header_count)
            .finish()
    }
}

/// One record that keeps the bytes of its batch alive.
#[derive(Clone, Debug)]
pub struct Record {
    data: Bytes,
    span: RecordSpan,
}

impl Record {
    /// The record as a view, with all its accessors.
    #[must_use]
    #[inline]
    pub fn view(&self) -> RecordView<'_> {
        RecordView { data: &self.data, span: self.span }
    }

    /// The value as bytes of its own, sharing the batch.
    #[must_use]
    pub fn value(&self) -> Option<Bytes> {
        self.span.value(&self.data).map(|value| self.data.slice_ref(value))
    }
}

/// The headers of one record: an ordered multimap. Decoded while iterating; nothing is allocated.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    cursor: Cursor<'a>,
    left: u32,
}

/// One header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderView<'a> {
    /// UTF-8 by convention; brokers do not check it.
    pub key: &'a [u8],
    /// `None` when the value is null.
    pub value: Option<&'a [u8]>,
}

impl<'a> Headers<'a> {
    /// The value of the last header with this key: the one that counts where only one is expected.
    #[must_use]
    pub fn last(&self, key: &str) -> Option<&'a [u8]> {
        self.clone().filter(|header| header.key == key.as_bytes()).last().and_then(|header| header.value)
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = HeaderView<'a>;

    fn next(&mut self) -> Option<HeaderView<'a>> {
        self.left = self.left.checked_sub(1)?;
        // The bounds were checked when the record was read; a span of another batch ends the iteration.
        let key_len = usize::try_from(self.cursor.varint()?).ok()?;
        let key = self.cursor.take(key_len)?;
        let value = match self.cursor.varint()? {
            -1 => None,
            len => Some(self.cursor.take(usize::try_from(len).ok()?)?),
        };
        Some(HeaderView { key, value })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// What the marker in a control batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// The producer's transaction was aborted: its records since the first offset do not count.
    Abort,
    /// It was committed.
    Commit,
    /// A marker of another protocol (a leader change, a snapshot), which holds nothing for a consumer.
    Other(i16),
}

impl ControlKind {
    /// Reads the key of a control record: version, then type.
    #[must_use]
    pub fn of(key: &[u8]) -> Option<ControlKind> {
        let mut cursor = Cursor::new(key);
        cursor.i16()?;
        Some(match cursor.i16()? {
            0 => ControlKind::Abort,
            1 => ControlKind::Commit,
            other => ControlKind::Other(other),
        })
    }
}

/// How the bytes of a batch are laid out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Layout {
    V2 { base_timestamp: i64, last_offset_delta: i32, headers_per_record: u32 },
    Legacy(legacy::Shift),
}

/// Reads the records of a batch one after the other. The first error ends it.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    data: &'a Bytes,
    cursor: Cursor<'a>,
    layout: Layout,
    base_offset: i64,
    /// With `LogAppendTime`, the timestamp of every record.
    log_append_time: Option<i64>,
    /// The lowest offset delta the next record may have.
    next_delta: i64,
    index: u32,
    count: u32,
}

impl<'a> Records<'a> {
    pub(super) fn new(
        data: &'a Bytes,
        layout: Layout,
        base_offset: i64,
        log_append_time: Option<i64>,
        count: u32,
    ) -> Records<'a> {
        let cursor = Cursor::new(data);
        Records { data, cursor, layout, base_offset, log_append_time, next_delta: 0, index: 0, count }
    }

    /// The same without the records below `offset`.
    #[cold]
    pub(super) fn starting_at(mut self, offset: i64) -> Records<'a> {
        let mut ahead = self.clone();
        while let Some(Ok(record)) = ahead.next()
            && record.offset() < offset
        {
            self = ahead.clone();
        }
        self
    }

    #[cold]
    fn fail(&mut self, kind: BatchErrorKind) -> Option<Result<RecordView<'a>, BatchError>> {
        self.index = self.count;
        self.cursor = Cursor::new(&[]);
        Some(Err(BatchError { base_offset: self.base_offset, kind }))
    }

    #[inline]
    fn read_v2(
        &mut self,
        base_timestamp: i64,
        last_offset_delta: i32,
        max_headers: u32,
    ) -> Result<RecordSpan, RecordError> {
        let length = self.cursor.varint().ok_or(RecordError::Number)?;
        let length = usize::try_from(length).map_err(|_| RecordError::Length(length))?;
        let mut record = Cursor::new(self.cursor.take(length).ok_or(RecordError::Truncated)?);
        // Positions count from the end of the record, whose place in the batch is now known.
        let end = self.data.len() - self.cursor.len();

        record.u8().ok_or(RecordError::Number)?;
        let timestamp_delta = record.varlong().ok_or(RecordError::Number)?;
        let delta = record.varint().ok_or(RecordError::Number)?;
        if delta < 0 || delta > last_offset_delta {
            return Err(RecordError::OffsetDelta(delta));
        }
        if i64::from(delta) < self.next_delta {
            return Err(RecordError::OffsetOrder(delta));
        }
        self.next_delta = i64::from(delta) + 1;
        let key = nullable(&mut record, end, RecordError::KeyLength)?;
        let value = nullable(&mut record, end, RecordError::ValueLength)?;
        let header_count = record.varint().ok_or(RecordError::Number)?;
        let (headers, header_count) = match header_count {
            0 => (Span::EMPTY, 0),
            count => check_headers(&mut record, end, count, max_headers)?,
        };
        if !record.is_empty() {
            return Err(RecordError::TrailingBytes(record.len()));
        }
        let timestamp = match self.log_append_time {
            Some(time) => time,
            None => base_timestamp.checked_add(timestamp_delta).ok_or(RecordError::Timestamp)?,
        };
        // The header's check left room for every delta up to the last.
        let offset = self.base_offset.wrapping_add(i64::from(delta));
        Ok(RecordSpan { offset, timestamp, key, value, headers, header_count })
    }
}

/// A length-prefixed field that may be null.
#[inline]
fn nullable(record: &mut Cursor<'_>, end: usize, error: fn(i32) -> RecordError) -> Result<Span, RecordError> {
    let length = record.varint().ok_or(RecordError::Number)?;
    if length == -1 {
        return Ok(Span::NULL);
    }
    let taken = usize::try_from(length).ok().and_then(|len| record.take(len)).ok_or_else(|| error(length))?;
    Ok(Span::before(end, record.len(), taken.len()))
}

/// Walks the headers once, so that iterating over them later cannot fail.
fn check_headers(
    record: &mut Cursor<'_>,
    end: usize,
    count: i32,
    max_headers: u32,
) -> Result<(Span, u32), RecordError> {
    let checked = u32::try_from(count).map_err(|_| RecordError::HeaderCount(count))?;
    // A header takes two bytes at least.
    if checked > max_headers || checked as usize > record.len() / 2 {
        return Err(RecordError::TooManyHeaders(count));
    }
    let before = record.len();
    for _ in 0..checked {
        let key = record.varint().ok_or(RecordError::Number)?;
        usize::try_from(key)
            .ok()
            .and_then(|len| record.take(len))
            .ok_or(RecordError::HeaderKeyLength(key))?;
        nullable(record, end, RecordError::HeaderValueLength)?;
    }
    Ok((Span::before(end, record.len(), before - record.len()), checked))
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordView<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Result<RecordView<'a>, BatchError>> {
        if self.index == self.count {
            let trailing = self.cursor.len();
            return if trailing == 0 { None } else { self.fail(BatchErrorKind::TrailingBytes(trailing)) };
        }
        let index = self.index;
        let span = match self.layout {
            Layout::V2 { base_timestamp, last_offset_delta, headers_per_record } => self
                .read_v2(base_timestamp, last_offset_delta, headers_per_record)
                .map_err(|why| BatchErrorKind::Record { index, why }),
            Layout::Legacy(shift) => {
                legacy::read_plain(&mut self.cursor, self.data.len(), shift, self.log_append_time)
                    .map_err(|why| BatchErrorKind::Message { index, why })
            }
        };
        match span {
            Ok(span) => {
                self.index += 1;
                Some(Ok(RecordView { data: self.data, span }))
            }
            Err(kind) => self.fail(kind),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.count - self.index) as usize;
        (0, Some(left.saturating_add(1)))
    }
}

impl std::iter::FusedIterator for Records<'_> {}
