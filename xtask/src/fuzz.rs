//! How are the fuzzers started? `fuzz/` is a workspace of its own; libFuzzer comes with its `libfuzzer-sys`, and stable
//! Rust knows the instrumentation, so nothing has to be installed.
//!
//! New inputs are collected under `target/xtask/fuzz/TARGET`; `fuzz/corpus/TARGET` is read and, with `--keep`, replaced
//! by its seeds and the fewest inputs that reach more. What a finding needs to be repeated lies in `fuzz/artifacts`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::args::Args;
use crate::progress::doing;
use crate::report::{Tally, Verdict};
use crate::test::Tier;
use crate::{Outcome, run};

const TARGETS: [&str; 9] =
    ["frames", "batches", "gzip", "snappy", "lz4", "zstd", "responses", "groups", "scram"];
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// What cargo-fuzz passes too, without the sanitizers that need a nightly compiler: the code under test is safe Rust.
const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Inputs longer than this say nothing new.
const LONGEST_INPUT: u32 = 4096;

/// What every run of CI spends on a target.
const SMOKE: Effort = Effort::Seconds(3);
/// What the long tier gives a target.
const LONG: Effort = Effort::Executions(10_000_000);

/// How long a target is fuzzed.
#[derive(Clone, Copy, Debug)]
enum Effort {
    Seconds(u64),
    Executions(u64),
}

/// `cargo xtask fuzz [TARGET] --seconds N | --executions N [--keep]`
pub(crate) fn command(mut args: Args) -> Outcome {
    let effort = match (args.number("--seconds")?, args.number("--executions")?) {
        (Some(seconds), None) => Effort::Seconds(seconds),
        (None, Some(executions)) => Effort::Executions(executions),
        _ => return Err("fuzz needs either --seconds N or --executions N, for each target".to_owned()),
    };
    let keep = args.flag("--keep");
    let word = args.word();
    args.end()?;
    let targets: Vec<&str> = match &word {
        None => TARGETS.to_vec(),
        Some(word) => {
            let known = TARGETS.into_iter().find(|target| target == word);
            vec![
                known
                    .ok_or_else(|| format!("there is no target {word}; there are {}", TARGETS.join(", ")))?,
            ]
        }
    };
    build()?;
    let mut findings = 0;
    for target in targets {
        doing(&format!("fuzzing {target}"));
        let (found, line) = fuzz(target, effort)?;
        println!("{line}");
        findings += u32::from(found);
        if keep && !found {
            minimise(target)?;
        }
    }
    println!("fuzz: {findings} targets with findings");
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every target, as one suite.
pub(crate) fn suite(tier: Tier) -> Tally {
    if !run::on_path("c++") {
        return Tally::skipped("libFuzzer needs a C++ compiler named c++ on PATH");
    }
    if let Err(why) = build() {
        return Tally::failed(why);
    }
    let effort = if tier == Tier::Full { LONG } else { SMOKE };
    let mut tally = Tally::default();
    for target in TARGETS {
        doing(&format!("fuzzing {target}"));
        let start = Instant::now();
        let verdict = match fuzz(target, effort) {
            Ok((false, line)) => {
                tally.facts.push(line);
                Verdict::Passed
            }
            Ok((true, line)) | Err(line) => Verdict::Failed(line),
        };
        tally.count(target, verdict, start.elapsed());
    }
    tally
}

fn build() -> Result<(), String> {
    let mut cargo = run::cargo();
    cargo.current_dir(run::root().join("fuzz")).env("RUSTFLAGS", INSTRUMENTATION).args([
        "build",
        "--release",
        "--bins",
        "--target",
        TRIPLE,
        "--locked",
    ]);
    run::step("building the fuzz targets", "fuzz-build", &mut cargo)
}

fn program(target: &str) -> Command {
    let folder = run::root().join("fuzz");
    let mut command = Command::new(folder.join("target").join(TRIPLE).join("release").join(target));
    command.current_dir(folder);
    command
}

fn collected(target: &str) -> Result<PathBuf, String> {
    Ok(run::scratch("fuzz")?.join(target))
}

/// Whether something was found, and a line about it.
fn fuzz(target: &str, effort: Effort) -> Result<(bool, String), String> {
    let collected = collected(target)?;
    let folders = [collected.clone(), run::root().join("fuzz/artifacts"), saved(target)];
    for folder in &folders {
        std::fs::create_dir_all(folder).map_err(|problem| format!("{}: {problem}", folder.display()))?;
    }
    let mut command = program(target);
    command
        .arg(match effort {
            Effort::Seconds(seconds) => format!("-max_total_time={seconds}"),
            Effort::Executions(executions) => format!("-runs={executions}"),
        })
        .arg(format!("-max_len={LONGEST_INPUT}"))
        .args(["-rss_limit_mb=512", "-malloc_limit_mb=128", "-timeout=10", "-print_final_stats=1"])
        .arg(format!("-artifact_prefix=artifacts/{target}-"))
        .arg(collected)
        .arg(saved(target));
    let ran = run::logged(&format!("fuzz-{target}"), &mut command)?;
    let stat = |name: &str| {
        let value = ran.output.lines().find_map(|line| line.strip_prefix(name));
        value.map_or("?", |value| value.trim_start_matches(':').trim()).to_owned()
    };
    let executed = stat("stat::number_of_executed_units");
    if ran.ok {
        return Ok((false, format!("fuzz {target}: {executed} executions, no finding")));
    }
    Ok((true, format!("fuzz {target}: FOUND after {executed} executions\n{}", ran.tail(30))))
}

fn saved(target: &str) -> PathBuf {
    run::root().join("fuzz/corpus").join(target)
}

/// Replaces the saved corpus by its seeds (`seed-*`, chosen by hand) and the fewest inputs that reach what they do not.
fn minimise(target: &str) -> Result<(), String> {
    let smallest = run::scratch("fuzz")?.join(format!("{target}.min"));
    let told = |problem: std::io::Error| format!("saving the corpus of {target}: {problem}");
    let _ = std::fs::remove_dir_all(&smallest);
    copy(&saved(target), &smallest, |name| name.starts_with("seed-")).map_err(told)?;
    let mut command = program(target);
    // Places reached count, not how often: a tenth of the files.
    command.args(["-merge=1", "-use_counters=0", "-max_len=4096"]);
    command.arg(&smallest).arg(saved(target)).arg(collected(target)?);
    run::step("minimising the corpus", "fuzz-merge", &mut command)?;
    std::fs::remove_dir_all(saved(target)).map_err(told)?;
    copy(&smallest, &saved(target), |_| true).map_err(told)?;
    std::fs::remove_dir_all(&smallest).map_err(told)
}

fn copy(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if wanted(&entry.file_name().to_string_lossy()) {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
