//! How does the record batch codec compare with those of other Rust clients, in one run on one machine?
//!
//! `cargo run --release -p peers-codec -- [--quick] [--instructions]` prints one JSON row per line. With `--instructions`
//! it runs itself under callgrind and adds rows that do not depend on the machine.

mod callgrind;
mod counting;
mod cpu;
mod row;
mod subjects;

use row::{Bar, Row};
use std::process::ExitCode;
use std::time::Duration;
use subjects::{Batch, DECODERS, Decoder, ENCODERS, Encoder, RECORDS};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = args.iter().position(|arg| arg == callgrind::CHILD) {
        return callgrind::child(&args[at + 1..]);
    }
    let is_quick = args.iter().any(|arg| arg == "--quick");
    let slice = Duration::from_millis(if is_quick { 20 } else { 150 });
    let rounds = if is_quick { 3 } else { 9 };

    let mut rows = Vec::new();
    decode_times(&mut rows, slice, rounds);
    encode_times(&mut rows, slice, rounds);
    allocations(&mut rows);
    if args.iter().any(|arg| arg == "--instructions") {
        match callgrind::rows() {
            Ok(more) => rows.extend(more),
            Err(why) => {
                eprintln!("no instruction counts: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    rows.iter().for_each(|row| println!("{}", row.json()));
    if rows.iter().all(|row| row.ok()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn decode_times(rows: &mut Vec<Row>, slice: Duration, rounds: usize) {
    let batch = Batch::new(0);
    let mut decoders: Vec<Box<dyn Decoder>> = DECODERS.iter().map(|make| make()).collect();
    let times = interleaved(&mut decoders, slice, rounds, |decoder| decoder.decode(&batch));
    let ours = times[0];
    for (decoder, time) in decoders.iter().zip(&times).skip(1) {
        let bar = match decoder.name() {
            "kafka-protocol" => Bar::AtMostOrRatio(30.0, 0.25),
            _ => Bar::None,
        };
        rows.push(Row::new("decode 1000 x 100 B, CRC on", ours, "ns/record", decoder.name(), *time, bar));
    }
}

fn encode_times(rows: &mut Vec<Row>, slice: Duration, rounds: usize) {
    let batch = Batch::new(0);
    let mut encoders: Vec<Box<dyn Encoder>> = ENCODERS.iter().map(|make| make(&batch)).collect();
    let times = interleaved(&mut encoders, slice, rounds, |encoder| encoder.encode(&batch));
    for (encoder, time) in encoders.iter().zip(&times).skip(1) {
        let bar = match encoder.name() {
            "kafka-protocol" => Bar::Ratio(1.0),
            _ => Bar::None,
        };
        rows.push(Row::new(
            "encode 1000 x 100 B, reused buffer",
            times[0],
            "ns/record",
            encoder.name(),
            *time,
            bar,
        ));
    }
}

/// Median nanoseconds of CPU time per record of each subject. They take turns, and the order turns round every time, so that a
/// slow phase of the machine hits all of them.
fn interleaved<S>(
    subjects: &mut [S],
    slice: Duration,
    rounds: usize,
    mut run: impl FnMut(&mut S) -> u64,
) -> Vec<f64> {
    let mut times = vec![Vec::new(); subjects.len()];
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..subjects.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let started = cpu::time();
            let mut runs = 0_u32;
            let elapsed = loop {
                std::hint::black_box(run(&mut subjects[index]));
                runs += 1;
                let elapsed = cpu::time() - started;
                if elapsed >= slice {
                    break elapsed;
                }
            };
            times[index].push(elapsed.as_nanos() as f64 / f64::from(runs) / RECORDS as f64);
        }
    }
    times.iter_mut().map(|times| median(times)).collect()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn allocations(rows: &mut Vec<Row>) {
    for headers in [0, 3] {
        let batch = Batch::new(headers);
        let counts: Vec<(&str, f64)> = DECODERS
            .iter()
            .map(|make| {
                let mut decoder = make();
                // The first batches make contexts and fill pools.
                (0..3).for_each(|_| drop(decoder.decode(&batch)));
                let before = counting::allocations();
                let batches = 100;
                (0..batches).for_each(|_| drop(std::hint::black_box(decoder.decode(&batch))));
                (decoder.name(), (counting::allocations() - before) as f64 / f64::from(batches))
            })
            .collect();
        for (peer, value) in &counts[1..] {
            let case = format!("allocations to decode 1000 records with {headers} headers");
            rows.push(Row::new(&case, counts[0].1, "per batch", peer, *value, Bar::AtMost(1.0)));
        }
    }
    let compressed = subjects::compressed_allocations();
    for (codec, count) in compressed {
        let case = format!("allocations to decode 1000 records, {codec}");
        rows.push(Row::new(&case, count, "per batch", "", f64::NAN, Bar::AtMost(1.0)));
    }
}
