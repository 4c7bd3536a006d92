//! How fast is it, beside its peers and its bars?
//!
//! Programs run in processes of their own, ours and the peer's in the order A B B A, and the medians of at least three
//! rounds are compared within one run. Absolute bars are scaled by how fast this machine is (`bench/calibrate.rs`).

mod calibrate;
mod codec;
mod delay;
mod distance;
mod peers;
mod programs;
mod row;
mod runtime;
mod waits;
mod wire;

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::{Value, json};

use crate::Outcome;
use crate::args::Args;
use crate::kafka::{Cluster, Version};
use crate::progress::{doing, say};
use row::Row;

/// A port that no test and no person's `kafka start` uses.
const PORT: u16 = 19_592;
/// What the rows on a real broker use.
const PARTITIONS: u16 = 8;
const KEYS: u64 = 10_000;
const SIZE: u64 = 100;

/// What the benches of one run share.
pub(crate) struct Bench {
    /// A tenth of the records and one round: to see that it works, not how fast it is.
    pub(crate) quick: bool,
    /// The Java client and Confluent.Kafka, too.
    pub(crate) all_peers: bool,
    /// How much slower this machine is than the one the absolute bars were set on.
    pub(crate) factor: f64,
    kafka: Option<Cluster>,
    topics: u32,
}

type Rows = Result<Vec<Row>, String>;

struct Named {
    name: &'static str,
    about: &'static str,
    run: fn(&mut Bench) -> Rows,
}

const BENCHES: &[Named] = &[
    Named {
        name: "codec",
        about: "record batches beside kafka-protocol, rskafka and krafka",
        run: codec::rows,
    },
    Named { name: "produce", about: "the idempotent producer beside other clients", run: wire::produce },
    Named {
        name: "consume",
        about: "raw consuming beside other clients, its memory, its cost to the broker",
        run: wire::consume,
    },
    Named { name: "send", about: "one awaited send at a time, beside other clients", run: wire::send },
    Named {
        name: "first",
        about: "a fresh group's first record, and its end, beside other clients",
        run: wire::first,
    },
    Named { name: "distant", about: "time added to each round trip", run: distance::distant },
    Named { name: "idle", about: "the memory of 1,000 idle partitions", run: distance::idle },
    Named { name: "broker", about: "the testkit broker on one core", run: distance::broker },
    Named {
        name: "runtime",
        about: "a no-op Rust handler on a real Kafka, and its memory",
        run: runtime::real,
    },
    Named { name: "mock", about: "the same on the embedded broker", run: runtime::mock },
    Named { name: "handlers", about: "handlers that take 20 ms", run: runtime::handlers },
    Named {
        name: "allocations",
        about: "what the runtime allocates for a message",
        run: runtime::allocations,
    },
    Named { name: "sends", about: "awaited sends of many tasks", run: runtime::sends },
    Named { name: "latency", about: "from a send to the handler, idle", run: waits::latency },
    Named { name: "hot", about: "short keys beside one with long handlers", run: waits::hot },
    Named { name: "grant", about: "a permit while 10,000 events wait", run: waits::grant },
    Named { name: "timers", about: "timers on the memory store", run: waits::timers },
    Named {
        name: "csharp",
        about: "a C# handler beside Confluent.Kafka with a keyed worker pool",
        run: runtime::csharp,
    },
];

/// `cargo xtask bench [NAME]... [--quick] [--all-peers] [--json FILE] [--list]`
pub(crate) fn command(mut args: Args) -> Outcome {
    let json = args.value("--json")?;
    let (quick, list, all_peers) = (args.flag("--quick"), args.flag("--list"), args.flag("--all-peers"));
    let mut names = Vec::new();
    while let Some(name) = args.word() {
        names.push(name);
    }
    args.end()?;
    if list {
        for bench in BENCHES {
            println!("{:14} {}", bench.name, bench.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(unknown) = names.iter().find(|name| BENCHES.iter().all(|bench| bench.name != **name)) {
        return Err(format!("there is no bench `{unknown}`; `cargo xtask bench --list` names them"));
    }
    doing("calibrating");
    let factor = calibrate::factor();
    say(&format!("this machine takes {factor:.2} × the time of the one the absolute bars were set on"));
    let mut bench = Bench { quick, all_peers, factor, kafka: None, topics: 0 };
    let mut rows = Vec::new();
    let mut complete = true;
    for named in
        BENCHES.iter().filter(|bench| names.is_empty() || names.iter().any(|name| name == bench.name))
    {
        let start = Instant::now();
        doing(named.name);
        match (named.run)(&mut bench) {
            Ok(found) => {
                for row in found {
                    say(&row.line());
                    rows.push(row);
                }
            }
            Err(why) => {
                complete = false;
                say(&format!("{:14} FAILED: {why}", named.name));
            }
        }
        doing(&format!("{} took {:.0} s", named.name, start.elapsed().as_secs_f32()));
    }
    drop(bench);
    doing("");
    if let Some(file) = json {
        let all: Vec<Value> = rows.iter().map(Row::json).collect();
        fs::write(&file, format!("{:#}\n", json!(all))).map_err(|problem| format!("{file}: {problem}"))?;
    }
    let met = rows.iter().filter(|row| row.ok()).count();
    say(&format!("{met} of {} rows meet their bar", rows.len()));
    Ok(if complete && met == rows.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Bench {
    /// The bootstrap address of a real broker, started for the first bench that asks.
    fn kafka(&mut self) -> Result<String, String> {
        if self.kafka.is_none() {
            self.kafka = Some(Cluster::start(Version::named("4")?, 1, PORT)?);
        }
        Ok(self.kafka.as_ref().map(Cluster::bootstrap).unwrap_or_default())
    }

    /// CPU seconds of that broker so far.
    fn broker_cpu(&self) -> Result<f64, String> {
        self.kafka.as_ref().and_then(Cluster::cpu_seconds).ok_or("no broker runs".to_owned())
    }

    fn count(&self, full: u64) -> u64 {
        if self.quick { full / 10 } else { full }
    }

    fn rounds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }

    /// A topic name that nothing in this run has used.
    fn fresh(&mut self, what: &str) -> String {
        self.topics += 1;
        format!("{what}-{}", self.topics)
    }
}
