//! What can be wrong with the header of a record batch?

use super::craft::{Batch, Record};
use super::{Attack, Row};

fn row(name: &'static str, batch: Batch, text: &'static str) -> Row {
    Row { name, attack: Attack::records(batch.bytes()), text }
}

pub(super) fn rows() -> Vec<Row> {
    let good = Batch::good;
    let gap = Record { offset_delta: 1, ..Record::default() };
    vec![
        row(
            "batch: length below every header",
            Batch { length: Some(13), ..good() },
            "length field says 13, too little",
        ),
        row(
            "batch: length negative",
            Batch { length: Some(i32::MIN), ..good() },
            "length field says -2147483648, too little",
        ),
        row(
            "batch: length below the header of its own format",
            Batch { length: Some(48), ..good() },
            "length field says 48, too little",
        ),
        row("batch: format", Batch { magic: 3, ..good() }, "record format (magic) 3 does not exist"),
        row("batch: checksum", Batch { crc: Some(0xdead_beef), ..good() }, "the one it carries 0xdeadbeef"),
        row("batch: codec", Batch { attributes: 5, ..good() }, "compression code 5 does not exist"),
        row(
            "batch: base offset negative",
            Batch { base_offset: -1, ..good() },
            "the base offset is negative",
        ),
        row(
            "batch: last offset delta negative",
            Batch { last_offset_delta: -1, count: 0, records: Vec::new(), ..good() },
            "the last offset delta -1 is negative",
        ),
        row(
            "batch: last offset overflows",
            Batch { base_offset: i64::MAX - 5, last_offset_delta: 10, ..good() },
            "does not fit into 63 bits",
        ),
        row(
            "batch: no offset left after the last",
            Batch { base_offset: i64::MAX, ..good() },
            "does not fit into 63 bits",
        ),
        row("batch: record count negative", Batch { count: -1, ..good() }, "the record count -1 is negative"),
        row(
            "batch: more records than bytes",
            Batch { count: i32::MAX, last_offset_delta: i32::MAX - 1, ..good() },
            "2147483647 records cannot fit into 7 bytes",
        ),
        row(
            "batch: more records than offsets",
            Batch { last_offset_delta: 0, ..Batch::of(&[Record::default(), gap]) },
            "2 records do not fit a last offset delta of 0",
        ),
        row(
            "batch: bytes after its last record",
            Batch { count: 1, ..Batch::of(&[Record::default(), Record::default()]) },
            "7 bytes follow its last record",
        ),
        row(
            "batch: fewer records than counted",
            Batch {
                records: vec![12, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
                count: 2,
                last_offset_delta: 1,
                ..good()
            },
            "record 1 has a number that is cut off",
        ),
    ]
}
