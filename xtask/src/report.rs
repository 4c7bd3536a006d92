//! What came of each suite? Counts, reasons and the lines a run ends with.

use std::time::Duration;

use crate::progress::say;

/// What one test came to.
#[derive(Debug)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

impl From<Result<(), String>> for Verdict {
    fn from(result: Result<(), String>) -> Verdict {
        match result {
            Ok(()) => Verdict::Passed,
            Err(why) => Verdict::Failed(why),
        }
    }
}

/// The counts of one suite, with what a person needs to act on them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    pub(crate) failures: Vec<String>,
    pub(crate) reasons: Vec<String>,
    /// Counts worth keeping: seeds, faults, executions.
    pub(crate) facts: Vec<String>,
    /// A person asked for a part of the suite: it is no result of the suite.
    pub(crate) is_part: bool,
}

impl Tally {
    /// A whole suite that could not run.
    pub(crate) fn skipped(why: impl Into<String>) -> Tally {
        Tally { skipped: 1, reasons: vec![why.into()], ..Tally::default() }
    }

    /// A whole suite that failed before its first test.
    pub(crate) fn failed(why: impl Into<String>) -> Tally {
        Tally { failed: 1, failures: vec![why.into()], ..Tally::default() }
    }

    /// Adds the counts of a part.
    pub(crate) fn add(&mut self, part: Tally) {
        self.passed += part.passed;
        self.failed += part.failed;
        self.skipped += part.skipped;
        self.failures.extend(part.failures);
        self.reasons.extend(part.reasons);
        self.facts.extend(part.facts);
    }

    /// Counts one named test and prints its line.
    pub(crate) fn count(&mut self, name: &str, verdict: Verdict, took: Duration) {
        let seconds = took.as_secs_f32();
        match verdict {
            Verdict::Passed => {
                self.passed += 1;
                say(&format!("  ok       {name} ({seconds:.1} s)"));
            }
            Verdict::Failed(why) => {
                self.failed += 1;
                say(&format!("  FAILED   {name} ({seconds:.1} s)\n{}", indent(&why)));
                self.failures.push(format!("{name}: {}", why.lines().next().unwrap_or_default()));
            }
            Verdict::Skipped(why) => {
                self.skipped += 1;
                say(&format!("  skipped  {name}: {why}"));
                self.reasons.push(format!("{name}: {why}"));
            }
        }
    }

    /// Adds what `cargo test` printed: its `test result:` lines and the names of what failed.
    pub(crate) fn add_cargo_test(&mut self, output: &str) {
        for line in output.lines() {
            if let Some(counts) = line.strip_prefix("test result: ") {
                self.passed += number_before(counts, " passed");
                self.failed += number_before(counts, " failed");
                self.skipped += number_before(counts, " ignored");
            } else if let Some(test) = line.strip_prefix("test ") {
                if let Some(name) = test.strip_suffix(" ... FAILED") {
                    self.failures.push(name.to_owned());
                } else if let Some((name, why)) = test.split_once(" ... ignored") {
                    self.reasons.push(format!("{name}{why}"));
                }
            }
        }
    }
}

/// The number that stands right before `word` in `text`, 0 without one.
pub(crate) fn number_before(text: &str, word: &str) -> u64 {
    text.split_once(word)
        .and_then(|(before, _)| before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .unwrap_or(0)
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

/// Prints the end of a run: suites, failures, skipped suites with their reasons, and the sum as the very last line.
/// True when the run counts as green; with `strict` a skipped test makes it red.
pub(crate) fn close(suites: &[(&str, Tally, Duration)], strict: bool) -> bool {
    say("");
    for (name, tally, took) in suites {
        let mark = if tally.failed > 0 { "FAILED" } else { "ok" };
        let Tally { passed, failed, skipped, .. } = tally;
        say(&format!(
            "{name:20} {mark:7} {passed} passed, {failed} failed, {skipped} skipped ({:.0} s)",
            took.as_secs_f32()
        ));
    }
    for (name, tally, _) in suites {
        for failure in &tally.failures {
            say(&format!("failed: {name}: {failure}"));
        }
    }
    for (name, tally, _) in suites {
        for reason in &tally.reasons {
            say(&format!("skipped: {name}: {reason}"));
        }
    }
    let sum = |of: fn(&Tally) -> u64| suites.iter().map(|(_, tally, _)| of(tally)).sum::<u64>();
    let (passed, failed, skipped) = (sum(|t| t.passed), sum(|t| t.failed), sum(|t| t.skipped));
    let (failed, skipped) = if strict { (failed + skipped, 0) } else { (failed, skipped) };
    if strict && suites.iter().any(|(_, tally, _)| tally.skipped > 0) {
        say("with CI=true what is skipped counts as failed");
    }
    say(&format!("{passed} passed, {failed} failed, {skipped} skipped"));
    failed == 0 && passed > 0
}

#[cfg(test)]
mod tests {
    use super::{Tally, close};
    use std::time::Duration;

    const OUTPUT: &str = "running 3 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest a::d ... ignored, needs a broker\n\
        test result: FAILED. 12 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
        test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.00s\n";

    #[test]
    fn the_lines_of_cargo_test_are_summed_over_its_binaries() {
        let mut tally = Tally::default();
        tally.add_cargo_test(OUTPUT);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (42, 1, 1));
        assert_eq!(tally.failures, ["a::c"]);
        assert_eq!(tally.reasons, ["a::d, needs a broker"]);
    }

    #[test]
    fn a_skipped_suite_is_green_for_a_person_and_red_for_ci() {
        let suites = || {
            vec![
                ("one", Tally { passed: 3, ..Tally::default() }, Duration::ZERO),
                ("two", Tally::skipped("no JDK"), Duration::ZERO),
            ]
        };
        assert!(close(&suites(), false));
        assert!(!close(&suites(), true));
    }

    #[test]
    fn a_run_without_a_single_test_is_not_green() {
        assert!(!close(&[("none", Tally::default(), Duration::ZERO)], false));
    }
}
