//! Is every source file small enough to read in one go, or listed with the reason why not?

use std::collections::BTreeMap;
use std::fs;

use crate::run;

/// A file over this many lines answers more than one question, or says why not.
const LINES: usize = 400;
/// `path reason` lines.
const LIST: &str = "xtask/oversized.txt";

pub(super) fn check() -> Result<(), String> {
    let sizes: BTreeMap<String, usize> = tracked(&["*.rs", "*.cs", "*.py", "*.java", "*.go", "*.mjs"])?
        .into_iter()
        .filter_map(|path| {
            Some((path.clone(), fs::read_to_string(run::root().join(&path)).ok()?.lines().count()))
        })
        .collect();
    let listed =
        fs::read_to_string(run::root().join(LIST)).map_err(|problem| format!("{LIST}: {problem}"))?;
    let problems = violations(&sizes, &listed);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

fn violations(sizes: &BTreeMap<String, usize>, listed: &str) -> Vec<String> {
    let reasons: BTreeMap<&str, &str> = listed
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .collect();
    let mut problems = Vec::new();
    for (path, lines) in sizes.iter().filter(|(_, lines)| **lines > LINES) {
        if !reasons.contains_key(path.as_str()) {
            problems
                .push(format!("{path} has {lines} lines: split it, or list it in {LIST} with the reason"));
        }
    }
    for (path, reason) in reasons {
        if reason.trim().is_empty() {
            problems.push(format!("{LIST}: {path} has no reason"));
        }
        if sizes.get(path).is_none_or(|lines| *lines <= LINES) {
            problems.push(format!("{LIST}: {path} is no longer over {LINES} lines; take it off the list"));
        }
    }
    problems
}

/// The files git knows, new ones that are not ignored included.
pub(super) fn tracked(patterns: &[&str]) -> Result<Vec<String>, String> {
    let mut git = std::process::Command::new("git");
    git.current_dir(run::root())
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--"])
        .args(patterns);
    Ok(run::stdout_of(&mut git)?.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::violations;

    #[test]
    fn a_long_file_needs_a_reason_and_a_short_one_must_leave_the_list() {
        let sizes = [("a.rs", 401), ("b.rs", 400), ("c.rs", 900)]
            .map(|(path, lines)| (path.to_owned(), lines))
            .into();
        assert_eq!(violations(&sizes, "# comment\nc.rs one table\n").len(), 1, "a.rs");
        assert!(violations(&sizes, "a.rs one machine\nc.rs one table\n").is_empty());
        assert_eq!(violations(&sizes, "a.rs one machine\nb.rs was long\nc.rs one table\n").len(), 1, "b.rs");
        assert_eq!(violations(&sizes, "a.rs\nc.rs one table\n").len(), 1, "no reason");
    }
}
