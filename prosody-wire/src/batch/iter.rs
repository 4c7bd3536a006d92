//! What are the records of a batch?

use super::record::{Fields, RecordView};
use super::varint::{Cursor, unzigzag32};
use super::{BatchError, BatchErrorKind, MessageError, RecordError, legacy};
use bytes::Bytes;

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
