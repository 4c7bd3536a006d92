//! How many instructions does a record cost, whatever the machine is doing?
//!
//! This program runs itself under callgrind twice for each subject, with few and with many batches; the difference
//! holds the batches alone, without start-up and without what is made once.

use crate::row::{Bar, Row};
use crate::subjects::{Batch, DECODERS, ENCODERS, RECORDS};
use std::process::{Command, ExitCode};

/// The argument that makes this program a child that only works.
pub const CHILD: &str = "--callgrind-child";
const FEW: u64 = 5;
const MANY: u64 = 45;

/// `decode|encode INDEX BATCHES`
pub fn child(args: &[String]) -> ExitCode {
    let [what, index, batches] = args else { return ExitCode::FAILURE };
    let (Ok(index), Ok(batches)) = (index.parse::<usize>(), batches.parse::<u64>()) else {
        return ExitCode::FAILURE;
    };
    let batch = Batch::new(0);
    if what == "decode" {
        let mut decoder = DECODERS[index]();
        (0..batches).for_each(|_| drop(std::hint::black_box(decoder.decode(&batch))));
    } else {
        let mut encoder = ENCODERS[index](&batch);
        (0..batches).for_each(|_| drop(std::hint::black_box(encoder.encode(&batch))));
    }
    ExitCode::SUCCESS
}

/// The rows, or why there are none.
pub fn rows() -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for what in ["decode", "encode"] {
        let batch = Batch::new(0);
        let names: Vec<&str> = match what {
            "decode" => DECODERS.iter().map(|make| make().name()).collect(),
            _ => ENCODERS.iter().map(|make| make(&batch).name()).collect(),
        };
        let mut counts = Vec::new();
        for index in 0..names.len() {
            let instructions = collected(what, index, MANY)? - collected(what, index, FEW)?;
            counts.push(instructions as f64 / ((MANY - FEW) * RECORDS as u64) as f64);
        }
        for (name, count) in names.iter().zip(&counts).skip(1) {
            let bar = if what == "decode" { Bar::AtMost(250.0) } else { Bar::None };
            let case = format!("{what} 1000 x 100 B, instructions");
            rows.push(Row::new(&case, counts[0], "instr/record", name, *count, bar));
        }
    }
    Ok(rows)
}

fn collected(what: &str, index: usize, batches: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([CHILD, what, &index.to_string(), &batches.to_string()])
        .output()
        .map_err(|error| format!("valgrind does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("valgrind ended with {}: {text}", output.status));
    }
    let count = text.lines().find_map(|line| line.split("Collected :").nth(1));
    count.and_then(|count| count.trim().parse().ok()).ok_or(format!("no count in what valgrind said: {text}"))
}
