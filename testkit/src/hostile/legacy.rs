//! What can be wrong with messages of magic 0 and 1?

use super::craft::Message;
use super::{Attack, Row};

fn row(name: &'static str, message: &Message, text: &'static str) -> Row {
    Row { name, attack: Attack::records(message.bytes()), text }
}

pub(super) fn rows() -> Vec<Row> {
    let good = || Message::good(1, 10);
    let set = |messages: &[Message]| messages.iter().flat_map(Message::bytes).collect::<Vec<u8>>();
    let wrap = |messages: &[Message]| Message::wrapper(1, 100, &set(messages));
    let mut cut = set(&[Message::good(1, 0)]);
    cut.truncate(10);
    vec![
        row("message: checksum", &Message { crc: Some(7), ..good() }, "the one it carries 0x00000007"),
        row(
            "message: size below its format",
            &Message { size: Some(20), ..good() },
            "length field says 20, too little",
        ),
        row("message: codec", &Message { attributes: 6, ..good() }, "compression code 6 does not exist"),
        row("message: offset negative", &Message { offset: -7, ..good() }, "the base offset is negative"),
        row(
            "message: key length",
            &Message { key_length: 1 << 30, ..good() },
            "has key length 1073741824, outside",
        ),
        row(
            "message: value length",
            &Message { value_length: Some(99), ..good() },
            "has value length 99, outside",
        ),
        row(
            "message: trailing bytes",
            &Message { trailing: vec![0; 3], ..good() },
            "has 3 bytes after its last field",
        ),
        row(
            "wrapper: null value",
            &Message { attributes: 1, value: Vec::new(), value_length: Some(-1), ..good() },
            "a compressed wrapper with nothing inside",
        ),
        row("wrapper: nothing inside", &wrap(&[]), "a compressed wrapper with nothing inside"),
        row("wrapper: cut off inside", &Message::wrapper(1, 100, &cut), "message 0 is cut off"),
        row(
            "wrapper: size inside",
            &wrap(&[Message { size: Some(1 << 30), ..good() }]),
            "has size 1073741824, outside",
        ),
        row(
            "wrapper: another format inside",
            &wrap(&[Message::good(0, 0)]),
            "has format 0, unlike its wrapper",
        ),
        row(
            "wrapper: wrapper inside",
            &wrap(&[Message::wrapper(1, 0, &set(&[good()]))]),
            "compressed inside a compressed",
        ),
        row(
            "wrapper: offsets not rising",
            &wrap(&[Message::good(1, 5), Message::good(1, 5)]),
            "message 1 has an offset that is not above",
        ),
        row(
            "wrapper: more offsets than its own",
            &wrap(&[Message::good(1, 0), Message::good(1, 500)]),
            "message 1 has an offset that is not above",
        ),
        row(
            "wrapper: absolute offset unlike its last",
            &Message::wrapper(0, 100, &set(&[Message::good(0, 7)])),
            "message 0 has an offset that is not above",
        ),
    ]
}
