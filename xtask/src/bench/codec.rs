//! The rows of the record codec: `benches/peers/codec` measures all codecs in one process and judges its rows by itself.

use std::process::Command;

use serde_json::Value;

use super::programs::Program;
use super::row::{Bar, Row};
use super::{Bench, Rows};
use crate::run;

pub(super) fn rows(bench: &mut Bench) -> Rows {
    let program = Program::peer("peers-codec", &[])?;
    let mut command = Command::new(&program.path);
    if bench.quick {
        command.arg("--quick");
    }
    if run::on_path("valgrind") {
        command.arg("--instructions");
    }
    let mut rows = Vec::new();
    // Its exit code says whether all rows are ok; the rows say it too.
    run::lines_of(&mut command, |line| {
        if let Some(row) = serde_json::from_str(line).ok().as_ref().and_then(row) {
            rows.push(row);
        }
    })?;
    if rows.is_empty() { Err("peers-codec printed no rows".to_owned()) } else { Ok(rows) }
}

fn row(line: &Value) -> Option<Row> {
    let number = |field: &str| line.get(field).and_then(Value::as_f64);
    let text = |field: &str| line.get(field).and_then(Value::as_str);
    let peer = text("peer").map(str::to_owned).zip(number("peer_value"));
    Some(Row {
        bench: "codec",
        case: text("case")?.to_owned(),
        value: number("value")?,
        unit: text("unit")?.to_owned(),
        peer,
        bar: Bar::Judged { bar: text("bar").map(str::to_owned), ok: line.get("ok")?.as_bool()? },
        objection: None,
    })
}
