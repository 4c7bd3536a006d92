//! Does the tree follow its own rules? Format, lints, dependency bans, layers, sizes, `unsafe`, docs.

mod layers;
mod rules;
mod sizes;
mod unsafe_code;

use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::args::Args;
use crate::progress::doing;
use crate::report::{self, Tally, Verdict};
use crate::{Outcome, csharp, run, setup};

type Check = fn() -> Verdict;

/// Every rule that a script can check, cheapest first.
const CHECKS: &[(&str, Check)] = &[
    ("format: cargo fmt", || cargo("fmt", &["fmt", "--all", "--check"])),
    ("sizes: files over 400 lines are listed with a reason", || sizes::check().into()),
    ("unsafe: only in prosody-ffi and csharp/src/Prosody/Interop", || unsafe_code::check().into()),
    ("layers: dependencies point one way", || layers::check().into()),
    ("rules: every test that a page of docs/ names exists", || rules::check().into()),
    ("deny: bans, licenses, sources", deny),
    ("lints: cargo clippy", || {
        cargo("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    }),
    ("docs: cargo doc", || {
        let mut command = run::cargo();
        command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
        verdict("doc", &mut command)
    }),
    ("format: dotnet format", csharp::format),
];

/// `cargo xtask check [NAME]`
pub(crate) fn command(mut args: Args) -> Outcome {
    let name = args.word();
    args.end()?;
    let wanted = name.as_deref().unwrap_or_default();
    known(wanted)?;
    let start = Instant::now();
    let tally = run_checks(wanted);
    let strict = std::env::var("CI").is_ok_and(|value| value == "true");
    let green = report::close(&[("check", tally, start.elapsed())], strict);
    Ok(if green { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All checks, each counted as one test.
pub(crate) fn suite() -> Tally {
    run_checks("")
}

/// A mistyped name would run nothing, and nothing is never red.
fn known(wanted: &str) -> Result<(), String> {
    if CHECKS.iter().any(|(name, _)| name.starts_with(wanted)) {
        return Ok(());
    }
    let names: Vec<&str> = CHECKS.iter().map(|(name, _)| *name).collect();
    Err(format!("there is no check {wanted}; there are:\n  {}", names.join("\n  ")))
}

fn run_checks(wanted: &str) -> Tally {
    let mut tally = Tally::default();
    for (name, check) in CHECKS.iter().filter(|(name, _)| name.starts_with(wanted)) {
        doing(name);
        let start = Instant::now();
        let verdict = check();
        tally.count(name, verdict, start.elapsed());
    }
    tally
}

fn cargo(log: &str, arguments: &[&str]) -> Verdict {
    verdict(log, run::cargo().args(arguments))
}

fn verdict(log: &str, command: &mut Command) -> Verdict {
    match run::logged(&format!("check-{log}"), command) {
        Ok(ran) if ran.ok => Verdict::Passed,
        Ok(ran) => Verdict::Failed(ran.tail(60)),
        Err(why) => Verdict::Failed(why),
    }
}

fn deny() -> Verdict {
    match setup::cargo_deny() {
        Err(why) => Verdict::Skipped(why),
        Ok(tool) => {
            // The binary is called directly: cargo need not find it on PATH.
            let mut command = Command::new(tool);
            command.current_dir(run::root()).args(["--workspace", "check", "bans", "licenses", "sources"]);
            verdict("deny", &mut command)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo xtask check clippy` ran no check and said ok: the name is `lints: cargo clippy`.
    #[test]
    fn a_check_that_does_not_exist_is_an_error_that_names_those_that_do() {
        assert_eq!(known(""), Ok(()));
        assert_eq!(known("lints"), Ok(()));
        let refused = known("clippy").expect_err("no check begins with that");
        assert!(refused.contains("lints: cargo clippy"), "{refused}");
    }
}
