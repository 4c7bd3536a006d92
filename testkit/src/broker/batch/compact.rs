//! What does the log cleaner leave of a batch? Its header with base offset and last offset, and fewer records.

use bytes::{BufMut, Bytes, BytesMut};

use super::build::put_varint;
use super::{HEADER, Record, header, records};

/// Attributes without the compression.
const PLAIN: i16 = !0x07;

/// The batch without the records that `keep` refuses, stored plain; `None` when none is left. What cannot be decoded stays
/// as it is, and so does a control batch.
#[must_use]
pub fn without(batch: &Bytes, keep: impl Fn(&Record) -> bool) -> Option<Bytes> {
    let (Ok(header), Ok(all)) = (header(batch), records(batch)) else { return Some(batch.clone()) };
    let kept: Vec<&Record> = all.iter().filter(|record| keep(record)).collect();
    if header.is_control() || kept.len() == all.len() {
        return Some(batch.clone());
    }
    if kept.is_empty() {
        return None;
    }
    let mut out = BytesMut::from(batch.get(..HEADER).unwrap_or_default());
    let mut one = BytesMut::new();
    for record in &kept {
        one.clear();
        one.put_i8(0);
        let own_time = if header.is_log_append_time() { 0 } else { record.timestamp - header.base_timestamp };
        put_varint(&mut one, own_time);
        put_varint(&mut one, record.offset - header.base_offset);
        put_field(&mut one, record.key.as_deref());
        put_field(&mut one, record.value.as_deref());
        put_varint(&mut one, record.headers.len() as i64);
        for (name, value) in &record.headers {
            put_field(&mut one, Some(name));
            put_field(&mut one, value.as_deref());
        }
        put_varint(&mut out, one.len() as i64);
        out.put_slice(&one);
    }
    let length = i32::try_from(out.len() - 12).unwrap_or(i32::MAX);
    let count = i32::try_from(kept.len()).unwrap_or(i32::MAX);
    put_at(&mut out, 8, &length.to_be_bytes());
    put_at(&mut out, 21, &(header.attributes & PLAIN).to_be_bytes());
    put_at(&mut out, 57, &count.to_be_bytes());
    let crc = crc32c::crc32c(out.get(21..).unwrap_or_default());
    put_at(&mut out, 17, &crc.to_be_bytes());
    Some(out.freeze())
}

fn put_at(out: &mut BytesMut, at: usize, bytes: &[u8]) {
    if let Some(place) = out.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn put_field(out: &mut BytesMut, field: Option<&[u8]>) {
    put_varint(out, field.map_or(-1, |field| field.len() as i64));
    out.put_slice(field.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::super::NewBatch;
    use super::*;

    #[test]
    fn what_is_left_keeps_its_offsets_and_the_batch_its_ends() {
        let batch = NewBatch {
            attributes: 0,
            producer_id: 7,
            producer_epoch: 0,
            base_sequence: 0,
            timestamp: 1_000,
            records: &[(Some(b"a"), Some(b"1")), (Some(b"b"), None), (Some(b"c"), Some(b"3"))],
        }
        .encode();
        let left = without(&batch, |record| record.offset == 1).expect("one is left");
        let after = header(&left).expect("a batch");
        assert_eq!((after.length, after.count, after.last_offset_delta), (left.len(), 1, 2));
        let [record] = &records(&left).expect("its checksum is new")[..] else { panic!("one record") };
        assert_eq!((record.offset, record.key.as_deref(), &record.value), (1, Some(&b"b"[..]), &None));
        assert_eq!(record.timestamp, 1_000);
        assert_eq!(without(&batch, |_| true), Some(batch.clone()));
        assert_eq!(without(&batch, |_| false), None);
    }
}
