//! Is every bug on the page of others' bugs told by a test that fails when its guard is switched off?

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::progress::doing;
use crate::report::Tally;
use crate::run;

pub(crate) const PAGE: &str = "docs/bugs-of-others.md";
/// Where the guards are listed.
const LIST: &str = "prosody-base/src/sabotage.rs";
/// A test that is red has said so long before; one that hangs is red too.
const PATIENCE: Duration = Duration::from_secs(120);

/// One row of the page.
#[derive(Debug, PartialEq, Eq)]
struct Row<'a> {
    guard: &'a str,
    /// File and name of its first test.
    file: &'a str,
    test: &'a str,
}

/// What is wrong with the page, beside what is checked of every page that names tests.
pub(crate) fn problems() -> Result<Vec<String>, String> {
    let read =
        |path: &str| fs::read_to_string(run::root().join(path)).map_err(|why| format!("{path}: {why}"));
    let (page, list) = (read(PAGE)?, read(LIST)?);
    let mut problems = Vec::new();
    for row in rows(&page) {
        if !list.contains(&format!("(\"{}\",", row.guard)) {
            problems.push(format!("{PAGE}: the guard `{}` is not in {LIST}", row.guard));
        }
        let told = fs::read_to_string(run::root().join(row.file)).map(|source| header(&source, row.test));
        if told.is_ok_and(|lines| lines < 2) {
            problems
                .push(format!("{PAGE}: {} of {} does not tell its story in two lines", row.test, row.file));
        }
    }
    Ok(problems)
}

/// The first test of each row is run twice: it passes, and with its guard switched off it fails.
pub(crate) fn suite() -> Tally {
    doing("the tests of the page of others' bugs");
    let page = match fs::read_to_string(run::root().join(PAGE)) {
        Ok(page) => page,
        Err(why) => return Tally::failed(format!("{PAGE}: {why}")),
    };
    let programs = match programs() {
        Ok(programs) => programs,
        Err(why) => return Tally::failed(why),
    };
    let mut tally = Tally::default();
    for row in rows(&page) {
        doing(&format!("without {}", row.guard));
        let start = Instant::now();
        let name = format!("{} without {}", row.test, row.guard);
        tally.count(&name, noticed(&row, &programs).into(), start.elapsed());
    }
    tally
}

fn noticed(row: &Row<'_>, programs: &BTreeMap<String, PathBuf>) -> Result<(), String> {
    let (folder, target) = target(row.file);
    let program = programs.get(&format!("{folder}/{target}"));
    let program = program.ok_or_else(|| format!("{folder} has no tests named {target}"))?;
    let run = |sabotage: &str| run_test(folder, program, row.test, sabotage);
    match (run("")?, run(row.guard)?) {
        (true, false) => Ok(()),
        (false, _) => Err("it fails as it is".to_owned()),
        (true, true) => Err("it passes although its guard is switched off".to_owned()),
    }
}

/// Whether the test passes, in a process of its own.
fn run_test(folder: &str, program: &PathBuf, test: &str, sabotage: &str) -> Result<bool, String> {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).arg(program).arg(test);
    // The same cases in every run.
    command.env("RUST_BACKTRACE", "0").env("PROPTEST_RNG_SEED", "1").env("PROSODY_SABOTAGE", sabotage);
    let ran = run::logged("bugs", command.current_dir(run::root().join(folder)))?;
    let any = |how: &str| ran.output.lines().any(|line| line.starts_with("test ") && line.ends_with(how));
    match (ran.ok, any(" ... ok")) {
        (true, false) => Err(format!("{test} was not run by {}", program.display())),
        (ok, _) => Ok(ok),
    }
}

/// Test programs by their crate's folder and target, in a build whose guards can be switched off.
fn programs() -> Result<BTreeMap<String, PathBuf>, String> {
    let mut cargo = run::cargo();
    cargo.args([
        "test",
        "--workspace",
        "--features",
        "sabotage",
        "--no-run",
        "--message-format",
        "json",
        "--lib",
    ]);
    for target in ["admin", "bugs", "e2e", "fetch", "group", "produce", "security"] {
        cargo.args(["--test", target]);
    }
    let text = run::stdout_of(&mut cargo)?;
    let mut programs = BTreeMap::new();
    for line in text.lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        let field = |name: &str| value.pointer(name).and_then(serde_json::Value::as_str);
        let folder = field("/manifest_path").and_then(|path| path.rsplit('/').nth(1));
        if let (Some(folder), Some(program), Some(name)) =
            (folder, field("/executable"), field("/target/name"))
        {
            programs.insert(format!("{folder}/{name}"), PathBuf::from(program));
        }
    }
    Ok(programs)
}

/// `prosody-wire/tests/group/faults.rs` is part of that folder's target `group`, `prosody-wire/src/…` of its library.
fn target(file: &str) -> (&str, String) {
    let (folder, rest) = file.split_once('/').unwrap_or((file, ""));
    let target = match rest.strip_prefix("tests/") {
        Some(rest) => {
            rest.split_once('/').map_or(rest.trim_end_matches(".rs"), |(target, _)| target).to_owned()
        }
        None => folder.replace('-', "_"),
    };
    (folder, target)
}

fn rows(page: &str) -> Vec<Row<'_>> {
    page.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Row<'_>> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
    let [_, _, _, guard, tests] = cells[..] else { return None };
    let (file, test) = tests.split('`').nth(1)?.split_once("::")?;
    Some(Row { guard: guard.strip_prefix('`')?.strip_suffix('`')?, file, test })
}

/// Lines of documentation above a test.
fn header(source: &str, test: &str) -> usize {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.contains(&format!("fn {test}("))).unwrap_or(0);
    let above = lines.iter().take(at).rev().skip_while(|line| line.starts_with("#["));
    above.take_while(|line| line.starts_with("///")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_guard_and_a_first_test() {
        let page = "| a | b | c | `guard` | `prosody-wire/tests/x/y.rs::z`, `q/r.rs::s` |\n| a | b |\n";
        let row = Row { guard: "guard", file: "prosody-wire/tests/x/y.rs", test: "z" };
        assert_eq!(rows(page), [row]);
        assert_eq!(target("prosody-wire/tests/x/y.rs"), ("prosody-wire", "x".to_owned()));
        assert_eq!(target("prosody-wire/tests/fetch.rs"), ("prosody-wire", "fetch".to_owned()));
        assert_eq!(target("prosody-wire/src/conn/tests.rs"), ("prosody-wire", "prosody_wire".to_owned()));
    }

    #[test]
    fn the_story_is_the_comment_above_the_attributes() {
        let source = "/// no\n\n/// One.\n/// Two.\n#[tokio::test]\n#[ignore]\nasync fn it() {}\n";
        assert_eq!((header(source, "it"), header("fn it() {}", "it")), (2, 0));
    }
}
