//! What are the records of a batch?

use super::varint::{Cursor, unzigzag32};
use super::{BatchError, BatchErrorKind, MessageError, RecordError, legacy};
use bytes::Bytes;

/// Where the parts of one record lie in the bytes of its batch. Owns nothing, so it can be kept anywhere next to one
/// clone of [`super::Batch::data`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSpan {
    /// Absolute offset.
    pub offset: i64,
    /// Milliseconds since 1970; −1 when the record has none (magic 0).
    pub timestamp: i64,
    key: Span,
    value: Span,
    headers: Span,
    header_count: u32,
}

/// A range of a batch, or null. Batches are smaller than 2 GiB because their length is an `i32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    const NULL: Span = Span { start: 1, end: 0 };

    /// Where `part`, a slice of `data`, lies in it.
    #[inline]
    fn of(data: &[u8], part: Option<&[u8]>) -> Span {
        let Some(part) = part else { return Span::NULL };
        let start = (part.as_ptr() as usize).wrapping_sub(data.as_ptr() as usize);
        Span { start: start as u32, end: start.wrapping_add(part.len()) as u32 }
    }

    #[inline]
    fn get(self, data: &[u8]) -> Option<&[u8]> {
        data.get(self.start as usize..self.end as usize)
    }
}

impl RecordSpan {
    /// The key in `data`, which must be the bytes of the batch this record came from.
    #[must_use]
    #[inline]
    pub fn key<'a>(&self, data: &'a [u8]) -> Option<&'a [u8]> {
        self.key.get(data)
    }

    /// The value in `data`; `None` is a null value (a tombstone), not an empty one.
    #[must_use]
    #[inline]
    pub fn value<'a>(&self, data: &'a [u8]) -> Option<&'a [u8]> {
        self.value.get(data)
    }

    /// The headers in `data`.
    #[must_use]
    #[inline]
    pub fn headers<'a>(&self, data: &'a [u8]) -> Headers<'a> {
        Headers { cursor: Cursor::new(self.headers.get(data).unwrap_or_default()), left: self.header_count }
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
    offset: i64,
    timestamp: i64,
    fields: Fields<'a>,
}

/// The parts of a record as slices: checked once, when the record is read.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: &'a [u8],
    pub(super) header_count: u32,
}

impl<'a> RecordView<'a> {
    /// Absolute offset.
    #[must_use]
    #[inline]
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Milliseconds since 1970; −1 when the record has none.
    #[must_use]
    #[inline]
    pub fn timestamp(&self) -> i64 {
        self.timestamp
    }

    /// The key; `None` when it is null.
    #[must_use]
    #[inline]
    pub fn key(&self) -> Option<&'a [u8]> {
        self.fields.key
    }

    /// The value; `None` when it is null (a tombstone), which is not the same as empty.
    #[must_use]
    #[inline]
    pub fn value(&self) -> Option<&'a [u8]> {
        self.fields.value
    }

    /// The headers in the order they were written; keys may repeat.
    #[must_use]
    #[inline]
    pub fn headers(&self) -> Headers<'a> {
        Headers { cursor: Cursor::new(self.fields.headers), left: self.fields.header_count }
    }

    /// Where its parts lie in the batch.
    #[must_use]
    #[inline]
    pub fn span(&self) -> RecordSpan {
        RecordSpan {
            offset: self.offset,
            timestamp: self.timestamp,
            key: Span::of(self.data, self.fields.key),
            value: Span::of(self.data, self.fields.value),
            headers: Span::of(self.data, Some(self.fields.headers)),
            header_count: self.fields.header_count,
        }
    }

    /// The record with a share of the batch's bytes: no copy, one reference counted.
    #[must_use]
    #[inline]
    pub fn to_record(&self) -> Record {
        Record { data: self.data.clone(), span: self.span() }
    }
}

impl std::fmt::Debug for RecordView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordView")
            .field("offset", &self.offset())
            .field("timestamp", &self.timestamp())
            .field("key", &self.key().map(<[u8]>::escape_ascii).map(|key| key.to_string()))
            .field("value_bytes", &self.value().map(<[u8]>::len))
            .field("headers", &self.fields.header_count)
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
    /// Absolute offset.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.span.offset
    }

    /// Milliseconds since 1970; −1 when the record has none.
    #[must_use]
    pub fn timestamp(&self) -> i64 {
        self.span.timestamp
    }

    /// The key; `None` when it is null.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.span.key(&self.data)
    }

    /// The value; `None` when it is null.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.span.value(&self.data)
    }

    /// The headers in the order they were written; keys may repeat.
    #[must_use]
    pub fn headers(&self) -> Headers<'_> {
        self.span.headers(&self.data)
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

    #[inline]
    fn next(&mut self) -> Option<HeaderView<'a>> {
        if self.left == 0 { None } else { self.read() }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl<'a> Headers<'a> {
    fn read(&mut self) -> Option<HeaderView<'a>> {
        self.left -= 1;
        // The bounds were checked when the record was read; a span of another batch ends the iteration.
        let key_len = usize::try_from(self.cursor.varint()?).ok()?;
        let key = self.cursor.take(key_len)?;
        let value = match self.cursor.varint()? {
            -1 => None,
            len => Some(self.cursor.take(usize::try_from(len).ok()?)?),
        };
        Some(HeaderView { key, value })
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
    V2(Rules),
    Legacy(legacy::Shift),
}

/// What the records of a v2 batch must keep to, and count from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    pub(super) base_timestamp: i64,
    /// All ones, or 0 when every record has the base timestamp (`LogAppendTime`).
    pub(super) timestamp_mask: i64,
    pub(super) last_offset_delta: i32,
    pub(super) headers_per_record: u32,
}

/// Reads the records of a batch one after the other. The first error ends it.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    data: &'a Bytes,
    cursor: Cursor<'a>,
    layout: Layout,
    base_offset: i64,
    /// The offset delta of the record before, −1 at the start.
    last_delta: i32,
    left: u32,
    count: u32,
}

impl<'a> Records<'a> {
    pub(super) fn new(data: &'a Bytes, layout: Layout, base_offset: i64, count: u32) -> Records<'a> {
        Records { data, cursor: Cursor::new(data), layout, base_offset, last_delta: -1, left: count, count }
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
        self.left = 0;
        self.cursor = Cursor::new(&[]);
        Some(Err(BatchError { base_offset: self.base_offset, kind }))
    }

    #[inline]
    fn read_v2(&mut self, rules: Rules) -> Result<RecordView<'a>, RecordError> {
        // Zig-zag: what must not be negative is even, and half of it is the number.
        let length = self.cursor.unsigned().ok_or(RecordError::Number)?;
        if length & 1 != 0 {
            return Err(RecordError::Length(unzigzag32(length)));
        }
        let mut record = Cursor::new(self.cursor.take(length as usize / 2).ok_or(RecordError::Truncated)?);

        let (timestamp_delta, delta, key_length) = match record.three_short() {
            Some([time, delta, key]) => (unzigzag32(time).into(), unzigzag32(delta), key),
            None => start_of(&mut record)?,
        };
        // The delta before is −1 or more, so this refuses negative ones too.
        if delta <= self.last_delta || delta > rules.last_offset_delta {
            return Err(match delta {
                0.. if delta <= rules.last_offset_delta => RecordError::OffsetOrder(delta),
                _ => RecordError::OffsetDelta(delta),
            });
        }
        self.last_delta = delta;
        let key = nullable(&mut record, key_length, RecordError::KeyLength)?;
        let value_length = record.unsigned().ok_or(RecordError::Number)?;
        let value = nullable(&mut record, value_length, RecordError::ValueLength)?;
        let (headers, header_count) = match record.rest() {
            // The byte that most records end with: no headers.
            [0] => (&[][..], 0),
            _ => check_headers(&mut record, rules.headers_per_record)?,
        };
        let timestamp_delta = timestamp_delta & rules.timestamp_mask;
        let timestamp = rules.base_timestamp.checked_add(timestamp_delta).ok_or(RecordError::Timestamp)?;
        // The header's check left room for every delta up to the last.
        let offset = self.base_offset.wrapping_add(i64::from(delta));
        let fields = Fields { key, value, headers, header_count };
        Ok(RecordView { data: self.data, offset, timestamp, fields })
    }

    fn read_legacy(&mut self, shift: legacy::Shift) -> Result<RecordView<'a>, MessageError> {
        let message = legacy::read_message(&mut self.cursor, shift.magic)?;
        let offset = message.offset.checked_add(shift.offset).ok_or(MessageError::Offset)?;
        let timestamp = shift.log_append_time.unwrap_or(message.timestamp);
        let fields = Fields { key: message.key, value: message.value, headers: &[], header_count: 0 };
        Ok(RecordView { data: self.data, offset, timestamp, fields })
    }
}

/// Timestamp delta, offset delta and key length (as written) of any size, behind the attributes, no bit of which has a
/// meaning yet.
#[cold]
fn start_of(record: &mut Cursor<'_>) -> Result<(i64, i32, u32), RecordError> {
    let fields = (|| {
        record.u8()?;
        Some((record.varlong()?, record.varint()?, record.unsigned()?))
    })();
    fields.ok_or(RecordError::Number)
}

/// A field whose length, as written, is known; it may be null.
#[inline(always)]
fn nullable<'a>(
    record: &mut Cursor<'a>,
    length: u32,
    error: fn(i32) -> RecordError,
) -> Result<Option<&'a [u8]>, RecordError> {
    // Zig-zag again: one is −1.
    if length == 1 {
        return Ok(None);
    }
    let field = if length & 1 == 0 { record.take(length as usize / 2) } else { None };
    field.map(Some).ok_or_else(|| error(unzigzag32(length)))
}

/// Reads the header count and walks the headers once, so that iterating over them later cannot fail.
fn check_headers<'a>(record: &mut Cursor<'a>, max_headers: u32) -> Result<(&'a [u8], u32), RecordError> {
    let count = record.varint().ok_or(RecordError::Number)?;
    let checked = u32::try_from(count).map_err(|_| RecordError::HeaderCount(count))?;
    let headers = record.rest();
    // A header takes two bytes at least.
    if checked > max_headers || checked as usize > headers.len() / 2 {
        return Err(RecordError::TooManyHeaders(count));
    }
    for _ in 0..checked {
        let key = record.varint().ok_or(RecordError::Number)?;
        let taken = usize::try_from(key).ok().and_then(|len| record.take(len));
        taken.ok_or(RecordError::HeaderKeyLength(key))?;
        let value = record.unsigned().ok_or(RecordError::Number)?;
        nullable(record, value, RecordError::HeaderValueLength)?;
    }
    if !record.is_empty() {
        return Err(RecordError::TrailingBytes(record.len()));
    }
    Ok((headers, checked))
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordView<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Result<RecordView<'a>, BatchError>> {
        if self.left == 0 {
            let trailing = self.cursor.len();
            return if trailing == 0 { None } else { self.fail(BatchErrorKind::TrailingBytes(trailing)) };
        }
        let index = self.count - self.left;
        let record = match self.layout {
            Layout::V2(rules) => self.read_v2(rules).map_err(|why| BatchErrorKind::Record { index, why }),
            Layout::Legacy(shift) => {
                self.read_legacy(shift).map_err(|why| BatchErrorKind::Message { index, why })
            }
        };
        match record {
            Ok(record) => {
                self.left -= 1;
                Some(Ok(record))
            }
            Err(kind) => self.fail(kind),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some((self.left as usize).saturating_add(1)))
    }
}

impl std::iter::FusedIterator for Records<'_> {}
