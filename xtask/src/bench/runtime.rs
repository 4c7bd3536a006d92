//! The rows of the runtime and of .NET. Ours are `prosody-runtime/examples/throughput.rs` and `csharp/benchmarks/Throughput`.

use super::programs::{Program, balanced, median, number, per_cpu_second};
use super::row::{Bar, Row};
use super::{Bench, KEYS, PARTITIONS, Rows, SIZE};
use crate::{run, setup};

const RECORDS: u64 = 5_000_000;
const RECORDS_CSHARP: u64 = 2_000_000;
/// Twenty seconds of 32 handlers that take 20 ms.
const RECORDS_SLOW: u64 = 32_000;
/// Valgrind makes each some fifty times as expensive.
const RECORDS_COUNTED: u64 = 400_000;
/// Tasks that send at once.
const TASKS: u64 = 10_000;
/// CPU seconds per million records that Confluent.Kafka with its worker pool usually costs.
const CONFLUENT: f64 = 1.25;

fn throughput(verb: &str) -> Result<Program, String> {
    Program::ours("throughput", &[verb])
}

/// A no-op handler over records that are there.
pub(super) fn real(bench: &mut Bench) -> Rows {
    let count = bench.count(RECORDS);
    let mut options = bench.filled("runtime", count)?;
    options.extend([("count", count.to_string()), ("keys", KEYS.to_string())]);
    let program = throughput("consume")?;
    let (mut rates, mut peaks) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        let mut options = options.clone();
        options.push(("group", format!("runtime-{round}")));
        let line = program.run(&options)?;
        rates.push(per_cpu_second(&line)?);
        peaks.push(number(&line, "peak_rss_kib")? / 1024.0);
    }
    let row = |case, value, unit, bar| Row::alone("runtime", case, value, unit, bar);
    Ok(vec![
        row(
            "no-op Rust handler, real Kafka, defaults, 10,000 keys",
            median(rates),
            "messages/CPU s",
            Bar::AtLeast(600_000.0 / bench.factor),
        ),
        row(
            "its peak memory at the default fetch budget",
            peaks.into_iter().fold(0.0, f64::max),
            "MiB",
            Bar::AtMost(64.0),
        ),
    ])
}

/// The same on the broker inside the process, producing included.
pub(super) fn mock(bench: &mut Bench) -> Rows {
    let program = throughput("mock")?;
    let options = [
        ("count", bench.count(RECORDS).to_string()),
        ("keys", KEYS.to_string()),
        ("size", SIZE.to_string()),
        ("partitions", PARTITIONS.to_string()),
    ];
    let mut rates = Vec::new();
    for _ in 0..bench.rounds() {
        let line = program.run(&options)?;
        rates.push(number(&line, "records")? / number(&line, "seconds")?);
    }
    Ok(vec![Row::alone(
        "mock",
        "no-op Rust handler on mock, broker and producer included",
        median(rates),
        "messages/s",
        Bar::AtLeast(400_000.0 / bench.factor),
    )])
}

/// Handlers that wait 20 ms: how many of the permits are always at work?
pub(super) fn handlers(bench: &mut Bench) -> Rows {
    let count = bench.count(RECORDS_SLOW);
    let mut options = bench.filled("handlers", count)?;
    options.extend([
        ("count", count.to_string()),
        ("work-ms", "20".to_owned()),
        ("group", "handlers".to_owned()),
    ]);
    let line = throughput("work")?.run(&options)?;
    let (rate, mean) = (number(&line, "per_second")?, number(&line, "mean_ms")? / 1e3);
    Ok(vec![Row::alone(
        "handlers",
        format!("20 ms handlers (measured {:.2} ms), defaults, many keys", mean * 1e3),
        rate,
        "messages/s",
        Bar::AtLeast(0.95 * 32.0 / mean),
    )])
}

/// Allocations of the client process for each message: the difference between two runs, as valgrind counts them.
pub(super) fn allocations(bench: &mut Bench) -> Rows {
    if !run::on_path("valgrind") {
        return Err("valgrind counts the allocations and is not installed".to_owned());
    }
    let program = throughput("consume")?;
    let mut count = |messages: u64| {
        let mut options = bench.filled("allocations", messages)?;
        options.extend([
            ("count", messages.to_string()),
            ("keys", KEYS.to_string()),
            ("group", format!("allocations-{messages}")),
        ]);
        program.allocations(&options)
    };
    let (few, most) = (RECORDS_COUNTED / 2, RECORDS_COUNTED);
    let each = (count(most)? - count(few)?) / (most - few) as f64;
    Ok(vec![Row::alone(
        "allocations",
        "allocations of the client, no-op Rust handler, real Kafka",
        each,
        "per message",
        Bar::AtMost(1.0),
    )])
}

/// Many tasks that each await their send before the next.
pub(super) fn sends(bench: &mut Bench) -> Rows {
    let program = throughput("sends")?;
    let mut rates = Vec::new();
    for _ in 0..bench.rounds() {
        let mut options = bench.topic("sends")?;
        options.extend([("count", bench.count(RECORDS).to_string()), ("tasks", TASKS.to_string())]);
        let line = program.run(&options)?;
        rates.push(number(&line, "records")? / number(&line, "seconds")?);
    }
    Ok(vec![Row::alone(
        "sends",
        "awaited sends of 10,000 tasks, 100 B, real Kafka",
        median(rates),
        "messages/s",
        Bar::AtLeast(300_000.0 / bench.factor),
    )])
}

/// A C# handler that deserializes JSON and returns, beside Confluent.Kafka with a keyed worker pool.
pub(super) fn csharp(bench: &mut Bench) -> Rows {
    let project = run::root().join("csharp/benchmarks/Throughput");
    let mut build = setup::dotnet_command()?;
    build.args(["build", "--configuration", "Release"]).arg(&project);
    run::step("building the .NET bench", "build-throughput", &mut build)?;
    let program = |verb: &str| -> Result<Program, String> {
        let path = project.join("bin/Release/net10.0/Throughput");
        let environment = setup::dotnet_environment()?;
        Ok(Program { path, words: vec![verb.to_owned()], environment })
    };
    let count = bench.count(RECORDS_CSHARP);
    let options = vec![
        ("bootstrap", bench.kafka()?),
        ("topic", bench.fresh("csharp")),
        ("count", count.to_string()),
        ("size", SIZE.to_string()),
        ("keys", KEYS.to_string()),
    ];
    program("fill")?.run(&options)?;
    let (ours, theirs) = (program("prosody")?, program("confluent")?);
    let (value, peer) = balanced(
        bench.rounds(),
        || per_cpu_second(&ours.run(&options)?),
        || per_cpu_second(&theirs.run(&options)?),
    )?;
    let row = |case, value, unit, bar| Row::alone("csharp", case, value, unit, bar);
    let case = "C# handler that deserializes 100 B JSON, real Kafka";
    let compared = Row {
        peer: Some(("Confluent.Kafka, keyed workers".to_owned(), peer)),
        objection: bench.slow(peer, CONFLUENT),
        ..row(case, value, "messages/CPU s", Bar::Ratio(0.7))
    };
    let (added, allocated) = layer(bench.rounds(), &ours, &program("json")?, &options)?;
    Ok(vec![
        compared,
        row("added by the C# layer", added, "µs/message", Bar::AtMost(0.7 * bench.factor)),
        row("allocated beside the payload", allocated, "B/message", Bar::AtMost(320.0)),
    ])
}

/// What .NET adds to the runtime and to deserializing, in microseconds of CPU a message, and the bytes it allocates for one:
/// the medians of runs in turns on the same topic.
fn layer(
    rounds: usize,
    ours: &Program,
    json: &Program,
    options: &[(&str, String)],
) -> Result<(f64, f64), String> {
    let runtime = throughput("consume")?;
    let (mut added, mut allocated) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut grouped = options.to_vec();
        grouped.push(("group", format!("layer-{round}-{}", std::process::id())));
        let (below, whole, payload) = (runtime.run(&grouped)?, ours.run(options)?, json.run(options)?);
        let cost = |line| Ok::<f64, String>(1e6 / per_cpu_second(line)?);
        added.push(cost(&whole)? - cost(&below)? - cost(&payload)?);
        allocated.push(number(&whole, "bytes_per_record")? - number(&payload, "bytes_per_record")?);
    }
    Ok((median(added), median(allocated)))
}
