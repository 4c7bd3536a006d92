//! What is one record of a batch, and how does it outlive the batch?

use super::varint::Cursor;
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
    pub(super) data: &'a Bytes,
    pub(super) offset: i64,
    pub(super) timestamp: i64,
    pub(super) fields: Fields<'a>,
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

    /// The headers as they lie in the batch, for [`Headers::read_from`], and their number.
    #[must_use]
    #[inline]
    pub fn raw_headers(&self) -> (&'a [u8], u32) {
        (self.fields.headers, self.fields.header_count)
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

    /// A record of these parts, in memory of its own. `headers` are what [`RecordView::raw_headers`] returned.
    #[must_use]
    pub fn of_parts(
        (offset, timestamp): (i64, i64),
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        (headers, header_count): (&[u8], u32),
    ) -> Record {
        let data = Bytes::from([key.unwrap_or_default(), value.unwrap_or_default(), headers].concat());
        let mut end = 0u32;
        let mut next = |part: Option<&[u8]>| match part {
            Some(part) => {
                let start = end;
                end = end.saturating_add(u32::try_from(part.len()).unwrap_or(u32::MAX));
                Span { start, end }
            }
            None => Span::NULL,
        };
        let (key, value, headers) = (next(key), next(value), next(Some(headers)));
        Record { data, span: RecordSpan { offset, timestamp, key, value, headers, header_count } }
    }

    /// The same record without the rest of its batch: what is kept for long must not keep a thousand others alive.
    #[must_use]
    pub fn copied(&self) -> Record {
        let headers = self.span.headers.get(&self.data).unwrap_or_default();
        let span = (self.offset(), self.timestamp());
        Record::of_parts(span, self.key(), self.value(), (headers, self.span.header_count))
    }

    /// The record as its batch lends it.
    #[must_use]
    pub fn view(&self) -> RecordView<'_> {
        let headers = self.span.headers.get(&self.data).unwrap_or_default();
        let header_count = self.span.header_count;
        let fields = Fields { key: self.key(), value: self.value(), headers, header_count };
        RecordView { data: &self.data, offset: self.offset(), timestamp: self.timestamp(), fields }
    }

    /// The bytes it keeps alive: those of its whole batch, or of a copy.
    #[must_use]
    pub fn data(&self) -> &Bytes {
        &self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_says_what_the_record_says_and_keeps_nothing_else() {
        for (key, value) in [
            (None, None),
            (Some(&b"k"[..]), None),
            (None, Some(&b""[..])),
            (Some(&b""[..]), Some(&b"value"[..])),
        ] {
            // One header "h" = null.
            let headers: &[u8] = &[2, b'h', 1];
            let record = Record::of_parts((7, 1_000), key, value, (headers, 1));
            for record in [record.copied(), record.view().to_record(), record] {
                assert_eq!((record.offset(), record.timestamp()), (7, 1_000));
                assert_eq!((record.key(), record.value()), (key, value));
                let all: Vec<_> = record.headers().collect();
                assert_eq!(all, [HeaderView { key: b"h", value: None }]);
                assert_eq!(
                    record.data().len(),
                    key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len) + 3
                );
            }
        }
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
    /// The headers of a record that was let go: what [`RecordView::raw_headers`] returned, or a copy. Other bytes end
    /// the iteration early.
    #[must_use]
    pub fn read_from(raw: &'a [u8], count: u32) -> Headers<'a> {
        Headers { cursor: Cursor::new(raw), left: count }
    }

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
