//! What did the long tier of each suite come to, and when? `docs/results/SUITE.json`, written by `test --full` alone.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::report::Tally;
use crate::run;

/// Keeps the counts of a suite that passed.
pub(crate) fn write(suite: &str, tally: &Tally, took: Duration) -> Result<(), String> {
    let mut git = Command::new("git");
    git.current_dir(run::root()).args(["rev-parse", "--short=12", "HEAD"]);
    let commit = run::stdout_of(&mut git)?;
    let text = json!({
        "suite": suite,
        "command": format!("cargo xtask test --suite {suite} --full"),
        "commit": commit.trim(),
        "passed": tally.passed,
        "failed": tally.failed,
        "skipped": tally.skipped,
        "seconds": took.as_secs(),
        "counts": tally.facts,
    });
    let folder = run::root().join("docs/results");
    let file = folder.join(format!("{suite}.json"));
    let told = |problem| format!("{}: {problem}", file.display());
    fs::create_dir_all(&folder).map_err(told)?;
    fs::write(&file, format!("{text:#}\n")).map_err(told)
}
