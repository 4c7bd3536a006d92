#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "a developer's tool: it measures real time and dials real servers"
)]
//! The commands people type: `cargo xtask help` lists them.
//!
//! | file | question it answers |
//! |---|---|
//! | `args.rs` | what did the user ask for? |
//! | `run.rs` | how do we run a program, and what became of it? |
//! | `leash.rs` | how do children end when we end, however we end? |
//! | `progress.rs` | what does a person see while it works? |
//! | `setup.rs` | which tools are missing, and how do they get here? |
//! | `check.rs`, `check/` | does the tree follow its own rules? |
//! | `test.rs`, `report.rs`, `results.rs` | which suites are there, what came of each, and of its long tier? |
//! | `csharp.rs` | how is the .NET side built, formatted and tested? |
//! | `conform.rs`, `conform/` | do our client and our broker get on with those of others? |
//! | `real.rs`, `real/` | does it hold on a real Apache Kafka? |
//! | `secure.rs` | does a real Kafka let us in by every mechanism, and are we told why when it does not? |
//! | `kafka.rs`, `kafka/` | how does a real Apache Kafka start and stop? |
//! | `bench.rs`, `bench/` | how fast is it, beside its peers and its bars? |
//! | `sim.rs`, `fuzz.rs` | how are the simulator and the fuzzers started? |

mod args;
mod bench;
mod bugs;
mod check;
mod conform;
mod csharp;
mod fuzz;
mod kafka;
mod leash;
mod page;
mod progress;
mod real;
mod report;
mod results;
mod run;
mod secure;
mod setup;
mod sim;
mod test;

use std::process::ExitCode;

use args::Args;

/// What a command ends with when it could not do its work: the text a person needs.
type Outcome = Result<ExitCode, String>;

const HELP: &str = "\
usage: cargo xtask COMMAND

  test [--suite NAME]... [--full]   check, then every suite of both languages; installs what is missing first.
                                    --suite runs one suite (test --list names them), --full the long tier of each,
                                    which alone writes docs/results/
  check [NAME]                      format, lints, dependency bans (deny), layers, sizes, unsafe, docs, both languages
  bench [NAME]... [--quick] [--json FILE]
                                    measures beside peers and bars (bench --list names them): a table, and JSON rows
  sim --seeds A..B                  runs the simulation of client and broker for the seeds A to B-1
  fuzz [TARGET] --seconds N | --executions N [--keep]
                                    fuzzes every target, or one, that long each; --keep saves the smallest corpus
  kafka start [--version 3.9|4] [--brokers N] [--port P] [--secure]
  kafka stop [--version 3.9|4] [--port P]
  kafka status                      real Apache Kafka on this machine (JDK 17 and Maven; data under target/)
  setup                             installs everything the tests need and says what it could not
  help                              this text
";

fn main() -> ExitCode {
    let mut args = Args::new(std::env::args().skip(1));
    let outcome = match args.word().as_deref() {
        Some("test") => test::command(args),
        Some("check") => check::command(args),
        Some("bench") => bench::command(args),
        Some("sim") => sim::command(args),
        Some("fuzz") => fuzz::command(args),
        Some("kafka") => kafka::command(args),
        Some("setup") => setup::command(args),
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some(other) => Err(format!("there is no command `{other}`\n\n{HELP}")),
        None => Err(format!("a command is missing\n\n{HELP}")),
    };
    outcome.unwrap_or_else(|problem| {
        eprintln!("xtask: {problem}");
        ExitCode::from(2)
    })
}
