//! How is the .NET side built, formatted and tested? Test projects are executables, run once for each framework.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::progress::{doing, say};
use crate::report::{Tally, Verdict};
use crate::{run, setup};

const SOLUTION: &str = "csharp/Prosody.slnx";
const FRAMEWORKS: [&str; 3] = ["net8.0", "net9.0", "net10.0"];

/// Whether the sources follow `.editorconfig` and the analyzers' style rules.
pub(crate) fn format() -> Verdict {
    let dotnet = |arguments: &[&str], log: &str| -> Result<run::Ran, String> {
        run::logged(log, setup::dotnet_command()?.args(arguments).arg(SOLUTION))
    };
    if let Err(why) = setup::dotnet() {
        return Verdict::Skipped(why);
    }
    let formatted = dotnet(&["restore"], "dotnet-restore").and_then(|ran| {
        if !ran.ok {
            return Ok(ran);
        }
        run::logged(
            "dotnet-format",
            setup::dotnet_command()?.args(["format", SOLUTION, "--verify-no-changes", "--no-restore"]),
        )
    });
    match formatted {
        Ok(ran) if ran.ok => Verdict::Passed,
        Ok(ran) => Verdict::Failed(ran.tail(30)),
        Err(why) => Verdict::Failed(why),
    }
}

/// Builds the solution, which builds the native library, and runs every test project on every framework.
pub(crate) fn suite() -> Tally {
    if let Err(why) = setup::dotnet() {
        return Tally::skipped(why);
    }
    doing("dotnet build");
    if let Err(why) = build() {
        say(&why);
        return Tally::failed("the solution does not build");
    }
    // Some tests talk to it; they are skipped where it is missing.
    if let Err(why) = run::program("prosody-broker") {
        say(&why);
        return Tally::failed("the broker does not build");
    }
    let mut tally = Tally::default();
    let programs = programs();
    if programs.is_empty() {
        return Tally::failed(format!("no test program under csharp/tests for {}", FRAMEWORKS.join(", ")));
    }
    for (name, framework, program) in programs {
        doing(&format!("{name} on {framework}"));
        let start = Instant::now();
        match run_tests(&program, &format!("{name}-{framework}")) {
            Ok(counts) => {
                say(&format!(
                    "  {:9}{name} on {framework}: {} passed, {} failed, {} skipped ({:.0} s)",
                    if counts.failed == 0 { "ok" } else { "FAILED" },
                    counts.passed,
                    counts.failed,
                    counts.skipped,
                    start.elapsed().as_secs_f32()
                ));
                tally.add(counts);
            }
            Err(why) => tally.count(&format!("{name} on {framework}"), Verdict::Failed(why), start.elapsed()),
        }
    }
    tally
}

/// Builds everything once.
pub(crate) fn build() -> Result<(), String> {
    run::step("dotnet build", "dotnet-build", setup::dotnet_command()?.args(["build", SOLUTION]))
}

/// Project, framework and executable of every built test project. The programs beside them are what tests start.
fn programs() -> Vec<(String, &'static str, PathBuf)> {
    let mut names: Vec<String> = fs::read_dir(run::root().join("csharp/tests"))
        .map(|entries| {
            entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect()
        })
        .unwrap_or_default();
    names.retain(|name| name.ends_with(".Tests"));
    names.sort();
    let program = |name: &str, framework: &str| {
        run::root().join(format!("csharp/tests/{name}/bin/Debug/{framework}/{name}"))
    };
    names
        .iter()
        .flat_map(|name| FRAMEWORKS.map(|framework| (name.clone(), framework, program(name, framework))))
        .filter(|(_, _, program)| program.is_file())
        .collect()
}

fn run_tests(program: &PathBuf, log: &str) -> Result<Tally, String> {
    let mut command = Command::new(program);
    command.envs(setup::dotnet_environment()?);
    let ran = run::logged(log, command.current_dir(run::root()).arg("--no-progress").arg("--no-ansi"))?;
    let mut tally = read_summary(&ran.output);
    if tally.passed + tally.failed + tally.skipped == 0 {
        return Err(format!("no summary of a test run:\n{}", ran.tail(30)));
    }
    if !ran.ok && tally.failed == 0 {
        return Err(format!("the program failed after its tests:\n{}", ran.tail(30)));
    }
    if tally.failed > 0 {
        say(&ran.tail(60));
    }
    tally
        .failures
        .extend(ran.output.lines().filter_map(|line| Some(line.strip_prefix("failed ")?.to_owned())));
    Ok(tally)
}

/// The testing platform ends with `total:`, `failed:`, `succeeded:` and `skipped:` lines.
fn read_summary(output: &str) -> Tally {
    let count = |name: &str| {
        let mut lines = output.lines().rev();
        lines.find_map(|line| line.trim().strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
    };
    let mut tally = Tally {
        passed: count("succeeded:"),
        failed: count("failed:"),
        skipped: count("skipped:"),
        ..Tally::default()
    };
    tally.reasons.extend(output.lines().filter_map(|line| Some(line.strip_prefix("skipped ")?.to_owned())));
    tally
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_summary_of_the_testing_platform_is_read() {
        let output = "failed A.B (3ms)\n  boom\nskipped A.C (0ms)\n\nTest run summary: Failed! - /x/Prosody.Tests.dll (net8.0|x64)\n  \
            total: 12\n  failed: 1\n  succeeded: 10\n  skipped: 1\n  duration: 1s 020ms\n";
        let tally = super::read_summary(output);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (10, 1, 1));
        assert_eq!(tally.reasons, ["A.C (0ms)"]);
        assert_eq!(super::read_summary("crashed").passed, 0);
    }
}
