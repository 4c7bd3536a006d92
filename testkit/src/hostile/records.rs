//! What can be wrong with one record of a batch?

use super::craft::{Batch, Record, varint};
use super::{Attack, Row};

fn row(name: &'static str, record: Record, text: &'static str) -> Row {
    batch(name, Batch::of(&[record]), text)
}

fn batch(name: &'static str, batch: Batch, text: &'static str) -> Row {
    Row { name, attack: Attack::records(batch.bytes()), text }
}

/// Headers with these key and value lengths, and as many bytes as `there` says.
fn header(key: i64, value: i64, there: usize) -> Record {
    let mut headers = Vec::new();
    varint(&mut headers, key);
    varint(&mut headers, value);
    headers.resize(headers.len() + there, b'h');
    Record { header_count: 1, headers, ..Record::default() }
}

pub(super) fn rows() -> Vec<Row> {
    let good = Record::default;
    let second = |delta| Record { offset_delta: delta, ..good() };
    let endless = Batch { records: vec![0x80; 7], ..Batch::good() };
    let mut long_time = vec![2 * 17, 0];
    long_time.extend_from_slice(&[0x80; 11]);
    long_time.extend_from_slice(&[0, 0, 1, 1, 0]);
    vec![
        batch("record: length without an end", endless, "record 0 has a number that is cut off or too long"),
        batch(
            "record: timestamp number too long",
            Batch { records: long_time, ..Batch::good() },
            "record 0 has a number that is cut off or too long",
        ),
        row(
            "record: length negative",
            Record { length: Some(-3), ..good() },
            "record 0 has the negative length -3",
        ),
        row(
            "record: length beyond the batch",
            Record { length: Some(2_000_000_000), ..good() },
            "record 0 runs past the end",
        ),
        row(
            "record: timestamp overflows",
            Record { timestamp_delta: i64::MAX, ..good() },
            "record 0 has a timestamp that does not fit",
        ),
        row("record: offset delta negative", second(-1), "record 0 has offset delta -1, outside its batch"),
        batch(
            "record: offset delta beyond the batch",
            Batch::of(&[good(), second(2)]),
            "record 1 has offset delta 2, outside its batch",
        ),
        batch(
            "record: offset twice",
            Batch::of(&[good(), second(0)]),
            "record 1 has offset delta 0, not above the one before",
        ),
        row(
            "record: key length beyond the record",
            Record { key_length: Some(1 << 30), ..good() },
            "record 0 has key length 1073741824, outside",
        ),
        row(
            "record: key length below null",
            Record { key_length: Some(-2), ..good() },
            "record 0 has key length -2, outside",
        ),
        row(
            "record: value length beyond the record",
            Record { value_length: Some(1 << 30), ..good() },
            "record 0 has value length 1073741824, outside",
        ),
        row(
            "record: value length below null",
            Record { value_length: Some(-2), ..good() },
            "record 0 has value length -2, outside",
        ),
        row(
            "record: header count negative",
            Record { header_count: -1, ..good() },
            "record 0 has the negative header count -1",
        ),
        row(
            "record: more headers than bytes",
            Record { header_count: 4_000, ..good() },
            "record 0 claims 4000 headers, more than are allowed",
        ),
        row(
            "record: more headers than the limit",
            Record { header_count: 5_000, headers: vec![0; 10_000], ..good() },
            "record 0 claims 5000 headers, more than are allowed",
        ),
        row("record: header key null", header(-1, 0, 0), "record 0 has header key length -1, outside"),
        row("record: header key length", header(99, 0, 3), "record 0 has header key length 99, outside"),
        row("record: header value length", header(0, 99, 3), "record 0 has header value length 99, outside"),
        row(
            "record: header value below null",
            header(0, -2, 0),
            "record 0 has header value length -2, outside",
        ),
        row("record: bytes after its headers", header(0, 0, 3), "record 0 has 3 bytes after its last field"),
    ]
}
