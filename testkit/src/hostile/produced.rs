//! What can be wrong with a batch that a client produces to the broker of this crate?

use super::bodies::NONE;
use super::clients::request;
use super::craft::{Batch, Record};
use super::{Attack, Row, bombs};

const PRODUCE: i16 = 0;
const LIST_OFFSETS: i16 = 2;
const GZIP: i16 = 1;

/// Produce v8 of these records, or of none, to the broker's topic, with acks = all.
fn produce(records: Option<&[u8]>) -> Vec<u8> {
    let length = records.map_or(-1, |records| records.len() as i32);
    let body = [
        &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0][..],
        &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0],
        &length.to_be_bytes(),
        records.unwrap_or_default(),
    ];
    request(PRODUCE, 8, false, &body.concat())
}

/// ListOffsets v1 of the first record at or after a time: the broker looks into its batches.
fn search() -> Vec<u8> {
    let row = [&[0xff; 4][..], &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1], &NONE, &5_i64.to_be_bytes()];
    request(LIST_OFFSETS, 1, false, &row.concat())
}

fn row(name: &'static str, batch: &[u8], text: &'static str) -> Row {
    Row { name, attack: Attack::Client(produce(Some(batch))), text }
}

/// A batch whose header is good, and a search by time, which looks inside.
fn searched(batch: &Batch) -> Vec<u8> {
    [produce(Some(&batch.bytes())), search()].concat()
}

pub(super) fn rows() -> Vec<Row> {
    let good = Batch { base_offset: 0, ..Batch::good() };
    let bytes = good.bytes();
    let changed = |change: fn(&mut Batch)| {
        let mut batch = good.clone();
        change(&mut batch);
        batch.bytes()
    };
    let count = "error 87: ";
    vec![
        Row { name: "produced: no records", attack: Attack::Client(produce(None)), text: "error 87: " },
        row("produced: nothing", &[], "one whole batch was expected"),
        row("produced: cut short", &bytes[..bytes.len() - 1], "one whole batch was expected"),
        row("produced: two batches", &bytes.repeat(2), "one whole batch was expected"),
        row("produced: length of its own", &changed(|batch| batch.length = Some(3)), "one whole batch was"),
        row("produced: format", &changed(|batch| batch.magic = 1), "magic 2 was expected"),
        row(
            "produced: checksum",
            &changed(|batch| batch.crc = Some(7)),
            "the CRC of the batch does not match",
        ),
        row(
            "produced: count negative",
            &changed(|batch| batch.count = -1),
            "count and last offset delta of the batch disagree",
        ),
        row(
            "produced: last offset far away",
            &changed(|batch| batch.last_offset_delta = 9),
            "count and last offset delta of the batch disagree",
        ),
        row("produced: marker of a transaction", &changed(|batch| batch.attributes = 0x20), count),
        Row {
            name: "produced: bomb that is searched by time",
            attack: Attack::ClientBomb(|| {
                // One good record: the byte behind its header is the first one of its value, the last zero its header count.
                let value = 100 << 20;
                let record = Record { value_length: Some(value), ..Record::default() };
                let length = record.bytes().len() as i64 - 1 + value;
                let record = Record { length: Some(length), ..record };
                let bomb = bombs::gzip_bomb(&record.bytes(), value as usize);
                searched(&Batch { base_offset: 0, ..Batch::compressed(GZIP, bomb) })
            }),
            text: "error 2: ",
        },
        Row {
            name: "produced: more records than a decoder can hold",
            attack: Attack::ClientBomb(|| {
                let count = 9_000_000;
                let records = bombs::gzip(&Record::default().bytes().repeat(9_000_000));
                let batch = Batch::compressed(GZIP, records);
                searched(&Batch { base_offset: 0, count, last_offset_delta: count - 1, ..batch })
            }),
            text: "error 2: ",
        },
    ]
}
