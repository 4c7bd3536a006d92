//! How are magic 0 and 1 messages read?
//!
//! Topics written before Kafka 0.11 still hold them, and brokers up to 3.x hand them out as they are. A message set is
//! a run of messages with an offset, a size and a CRC-32 each; a compressed one is a message whose value is another
//! set (KIP-31: with offsets relative to the wrapper's when magic is 1).

use super::header::{BatchHeader, TimestampKind, compression, timestamp_kind};
use super::varint::Cursor;
use super::{BatchErrorKind, Compression, MessageError};

/// From the CRC to an empty key and value: the smallest magic 0 message. Magic 1 has a timestamp more.
pub(super) const SMALLEST_V0: i32 = 14;
pub(super) const SMALLEST_V1: i32 = 22;
/// What the CRC-32 covers begins here: offset, size and the CRC itself come before.
pub(super) const CRC_START: usize = 16;

/// How the offsets inside a set become absolute, and the format all of it must have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shift {
    pub(super) offset: i64,
    pub(super) magic: i8,
    /// With `LogAppendTime`, the timestamp of every message.
    pub(super) log_append_time: Option<i64>,
}

/// One message.
pub(super) struct Message<'a> {
    pub(super) offset: i64,
    attributes: i8,
    pub(super) timestamp: i64,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
}

/// Reads the message at the cursor.
pub(super) fn read_message<'a>(cursor: &mut Cursor<'a>, magic: i8) -> Result<Message<'a>, MessageError> {
    let offset = cursor.i64().ok_or(MessageError::Truncated)?;
    let size = cursor.i32().ok_or(MessageError::Truncated)?;
    let body =
        usize::try_from(size).ok().and_then(|size| cursor.take(size)).ok_or(MessageError::Size(size))?;
    let mut body = Cursor::new(body);
    let (crc, found, attributes) = (body.u32(), body.i8(), body.i8());
    let (Some(_), Some(found), Some(attributes)) = (crc, found, attributes) else {
        return Err(MessageError::Size(size));
    };
    if found != magic {
        return Err(MessageError::MixedMagic(found));
    }
    let timestamp = if magic == 0 { -1 } else { body.i64().ok_or(MessageError::Size(size))? };
    let key = nullable(&mut body, MessageError::KeyLength)?;
    let value = nullable(&mut body, MessageError::ValueLength)?;
    if !body.is_empty() {
        return Err(MessageError::TrailingBytes(body.len()));
    }
    Ok(Message { offset, attributes, timestamp, key, value })
}

fn nullable<'a>(
    body: &mut Cursor<'a>,
    error: fn(i32) -> MessageError,
) -> Result<Option<&'a [u8]>, MessageError> {
    let length = body.i32().ok_or(MessageError::Truncated)?;
    if length == -1 {
        return Ok(None);
    }
    usize::try_from(length).ok().and_then(|len| body.take(len)).map(Some).ok_or_else(|| error(length))
}

/// The outer message as the header of a batch of one, and its value where it is a wrapper.
pub(super) fn read_outer(entry: &[u8], magic: i8) -> Result<(BatchHeader, Option<&[u8]>), BatchErrorKind> {
    let broken = |why| BatchErrorKind::Message { index: 0, why };
    let message = read_message(&mut Cursor::new(entry), magic).map_err(broken)?;
    let attributes = i16::from(message.attributes);
    let compression = compression(attributes)?;
    let offset = super::header::checked_last(message.offset, 0)?;
    let is_wrapper = compression != Compression::None;
    let timestamp_kind = if magic == 0 { TimestampKind::Create } else { timestamp_kind(attributes) };
    let header = BatchHeader {
        base_offset: offset,
        last_offset: offset,
        leader_epoch: -1,
        magic,
        compression,
        timestamp_kind,
        is_transactional: false,
        is_control: false,
        base_timestamp: message.timestamp,
        max_timestamp: message.timestamp,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        record_count: u32::from(!is_wrapper),
    };
    if !is_wrapper {
        return Ok((header, None));
    }
    match message.value {
        Some(value) => Ok((header, Some(value))),
        None => Err(broken(MessageError::Empty)),
    }
}

/// Looks through the set inside a wrapper: how its offsets shift, and what the header now knows.
pub(super) fn open_wrapper(header: &mut BatchHeader, set: &[u8]) -> Result<Shift, BatchErrorKind> {
    let mut cursor = Cursor::new(set);
    let mut index = 0_u32;
    let mut bounds: Option<(i64, i64)> = None;
    while !cursor.is_empty() {
        let broken = |why| BatchErrorKind::Message { index, why };
        let message = read_message(&mut cursor, header.magic).map_err(broken)?;
        if compression(message.attributes.into())? != Compression::None {
            return Err(broken(MessageError::Nested));
        }
        bounds = match bounds {
            None if message.offset >= 0 => Some((message.offset, message.offset)),
            Some((first, last)) if message.offset > last => Some((first, message.offset)),
            _ => return Err(broken(MessageError::Offset)),
        };
        index += 1;
    }
    let Some((first, last)) = bounds else {
        return Err(BatchErrorKind::Message { index: 0, why: MessageError::Empty });
    };
    // Magic 1 counts from its own start and the wrapper has the offset of the last message; magic 0 is absolute.
    let offset = if header.magic == 0 { 0 } else { header.last_offset.wrapping_sub(last) };
    let base_offset = first.wrapping_add(offset);
    if base_offset < 0 || last.wrapping_add(offset) != header.last_offset {
        return Err(BatchErrorKind::Message { index: index.saturating_sub(1), why: MessageError::Offset });
    }
    header.base_offset = base_offset;
    header.record_count = index;
    Ok(Shift { offset, magic: header.magic, log_append_time: header.log_append_time() })
}
