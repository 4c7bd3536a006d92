//! How is a program measured? In a process of its own that ends with one JSON line about itself.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::run;

/// A bench program and the words that never change.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) words: Vec<String>,
    pub(crate) environment: Vec<(OsString, OsString)>,
}

impl Program {
    /// An example of the workspace, built for measuring.
    pub(crate) fn ours(example: &str, words: &[&str]) -> Result<Program, String> {
        Ok(Program {
            path: run::example(example, run::Profile::Release)?,
            words: owned(words),
            environment: Vec::new(),
        })
    }

    /// A program of benches/peers.
    pub(crate) fn peer(package: &str, words: &[&str]) -> Result<Program, String> {
        let mut build = run::cargo();
        build.current_dir(run::root().join("benches/peers")).args([
            "build",
            "--quiet",
            "--release",
            "--package",
            package,
        ]);
        run::step(&format!("building {package}"), &format!("build-{package}"), &mut build)?;
        Ok(Program {
            path: run::root().join("benches/peers/target/release").join(package),
            words: owned(words),
            environment: Vec::new(),
        })
    }

    /// Runs it and returns the JSON object of its last line.
    pub(crate) fn run(&self, options: &[(&str, String)]) -> Result<Value, String> {
        let mut command = Command::new(&self.path);
        command.args(&self.words).envs(self.environment.iter().map(|(name, value)| (name, value)));
        for (name, value) in options {
            command.arg(format!("--{name}")).arg(value);
        }
        let text = run::stdout_of(&mut command)?;
        let last = text.lines().last().unwrap_or_default();
        serde_json::from_str(last).map_err(|problem| format!("{}: `{last}`: {problem}", self.path.display()))
    }
}

impl Program {
    /// Runs it under valgrind, and returns how often it allocated.
    pub(crate) fn allocations(&self, options: &[(&str, String)]) -> Result<f64, String> {
        let mut command = Command::new("valgrind");
        command.args(["--tool=memcheck", "--leak-check=no", "--undef-value-errors=no"]);
        command.arg(&self.path).args(&self.words);
        for (name, value) in options {
            command.arg(format!("--{name}")).arg(value);
        }
        let ran = run::logged("allocations", &mut command)?;
        // `total heap usage: 1,234 allocs, 1,230 frees, 56,789 bytes allocated`
        let usage = ran.output.lines().find_map(|line| line.split_once("total heap usage: "));
        let count = usage.and_then(|(_, usage)| usage.split_once(" allocs")?.0.replace(',', "").parse().ok());
        count.filter(|_| ran.ok).ok_or_else(|| format!("counting allocations failed:\n{}", ran.tail(20)))
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A number of a program's line.
pub(crate) fn number(line: &Value, field: &str) -> Result<f64, String> {
    line.get(field).and_then(Value::as_f64).ok_or_else(|| format!("no {field} in {line}"))
}

/// Records per CPU second of the client.
pub(crate) fn per_cpu_second(line: &Value) -> Result<f64, String> {
    Ok(number(line, "records")? / number(line, "cpu_seconds")?)
}

/// The middle value.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Runs two measurements `rounds` times each, in the order A B B A A B …, and returns the medians.
pub(crate) fn balanced(
    rounds: usize,
    mut ours: impl FnMut() -> Result<f64, String>,
    mut theirs: impl FnMut() -> Result<f64, String>,
) -> Result<(f64, f64), String> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            a.push(ours()?);
            b.push(theirs()?);
        } else {
            b.push(theirs()?);
            a.push(ours()?);
        }
    }
    Ok((median(a), median(b)))
}
