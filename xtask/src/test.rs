//! Which suites are there, and how does each run?

use std::process::ExitCode;
use std::time::Instant;

use crate::args::Args;
use crate::progress::{doing, say};
use crate::report::{self, Tally};
use crate::{Outcome, check, conform, csharp, fuzz, page, real, results, run, secure, sim};

/// How much of a suite runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// The slice that every run of CI does.
    Ci,
    /// Everything, `--full`.
    Full,
}

/// A named group of tests with one way to run it.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(Tier) -> Tally,
}

/// Every suite, in the order a run takes them: what fails fastest first.
const SUITES: &[Suite] = &[
    Suite {
        name: "check",
        about: "format, lints, bans, layers, sizes, docs (the same as `cargo xtask check`)",
        run: |_| check::suite(),
    },
    Suite {
        name: "rust",
        about: "unit, property and integration tests of every crate, and simulated runs",
        run: rust,
    },
    Suite { name: "fuzz", about: "every fuzz target for a while", run: fuzz::suite },
    Suite {
        name: "sabotage",
        about: "each safety check switched off, and noticed by the simulation or by a test",
        run: sim::sabotage,
    },
    Suite { name: "page", about: "the live page of the probes in headless Chromium", run: |_| page::suite() },
    Suite {
        name: "csharp",
        about: "the .NET package on net8.0, net9.0 and net10.0",
        run: |_| csharp::suite(),
    },
    Suite {
        name: "conformance",
        about: "a matrix of behaviours: our client with five brokers, seven clients with our broker",
        run: conform::suite,
    },
    Suite {
        name: "kafka-3.9",
        about: "both quick starts, members, kills, restarts on Apache Kafka 3.9",
        run: |_| real::suite("3.9"),
    },
    Suite { name: "kafka-4", about: "the same on Apache Kafka 4", run: |_| real::suite("4") },
    Suite {
        name: "kill",
        about: "members killed and frozen beyond their session, in each mode, on Apache Kafka 4",
        run: real::strikes,
    },
    Suite {
        name: "bounce",
        about: "members and brokers restarted one after the other: eager, cooperative and KIP-848, on three brokers",
        run: real::bounces,
    },
    Suite {
        name: "kafka-secure",
        about: "TLS, mTLS, PLAIN, SCRAM and OAUTHBEARER on Apache Kafka 4, good and bad",
        run: |_| secure::suite(),
    },
];

/// Whether there is a suite of this name.
pub(crate) fn has_suite(name: &str) -> bool {
    SUITES.iter().any(|suite| suite.name == name)
}

/// `cargo xtask test [--suite NAME]... [--full] [--list]`
pub(crate) fn command(mut args: Args) -> Outcome {
    let full = args.flag("--full");
    let list = args.flag("--list");
    let wanted = args.values("--suite")?;
    args.end()?;
    if list {
        for suite in SUITES {
            println!("{:20} {}", suite.name, suite.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(unknown) = wanted.iter().find(|name| SUITES.iter().all(|suite| suite.name != **name)) {
        return Err(format!("there is no suite `{unknown}`; `cargo xtask test --list` names them"));
    }
    let tier = if full { Tier::Full } else { Tier::Ci };
    let chosen: Vec<&Suite> = SUITES
        .iter()
        .filter(|suite| wanted.is_empty() || wanted.iter().any(|name| name == suite.name))
        .collect();
    let mut done = Vec::new();
    for (at, suite) in chosen.iter().enumerate() {
        say(&format!("[{}/{}] {}", at + 1, chosen.len(), suite.name));
        let start = Instant::now();
        let (tally, took) = ((suite.run)(tier), start.elapsed());
        if full && tally.failed == 0 && !tally.is_part {
            results::write(suite.name, &tally, took)?;
        }
        done.push((suite.name, tally, took));
    }
    let strict = std::env::var("CI").is_ok_and(|value| value == "true");
    Ok(if report::close(&done, strict) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn rust(tier: Tier) -> Tally {
    doing("cargo test --workspace");
    let mut tally = cargo_test_in(tier, "rust", &["--workspace"]);
    if tier == Tier::Full {
        doing("simulated runs");
        tally.add(sim::full());
    }
    tally
}

/// Runs `cargo test` with these arguments and counts what it says.
pub(crate) fn cargo_test(log: &str, arguments: &[&str]) -> Tally {
    cargo_test_in(Tier::Ci, log, arguments)
}

/// The same. Property tests draw the same cases in every run of CI, so that it judges the commit and not its luck; `--full`
/// draws new ones.
fn cargo_test_in(tier: Tier, log: &str, arguments: &[&str]) -> Tally {
    let mut command = run::cargo();
    command.arg("test").args(["--no-fail-fast"]).args(arguments);
    if tier == Tier::Ci {
        command.env("PROPTEST_RNG_SEED", "1");
    }
    let ran = match run::logged(log, &mut command) {
        Ok(ran) => ran,
        Err(why) => return Tally::failed(why),
    };
    let mut tally = Tally::default();
    tally.add_cargo_test(&ran.output);
    if !ran.ok {
        say(&ran.tail(80));
        if tally.failed == 0 {
            tally.failed = 1;
            tally.failures.push("it does not build, or a test ended its process".to_owned());
        }
    }
    tally
}
