//! Does every test exist that a page of the documentation names? A rule whose test is gone is no rule any more.

use std::fs;

use crate::{bugs, run};

/// Pages that name tests, each as `path::name` between backticks.
const PAGES: &[&str] = &["docs/rules.md", "docs/guarantees.md", bugs::PAGE];

pub(super) fn check() -> Result<(), String> {
    let mut problems = Vec::new();
    for page in PAGES {
        let text =
            fs::read_to_string(run::root().join(page)).map_err(|problem| format!("{page}: {problem}"))?;
        let named = named_tests(&text);
        if named.is_empty() {
            problems.push(format!("{page} names no test at all"));
        }
        for (file, test) in named {
            match fs::read_to_string(run::root().join(file)) {
                Err(problem) => problems.push(format!("{page} names {file}: {problem}")),
                Ok(source) if !has_test(&source, test) => {
                    problems.push(format!("{page} names {test}, which {file} does not have"));
                }
                Ok(_) => {}
            }
        }
        let unknown = named_suites(&text).filter(|suite| !crate::test::has_suite(suite));
        problems.extend(unknown.map(|suite| format!("{page} names the suite {suite}, which there is not")));
        problems.extend(untested_rows(&text).iter().map(|row| format!("{page}: no test is named in: {row}")));
    }
    problems.extend(bugs::problems()?);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// What is written as `path::name`.
fn named_tests(page: &str) -> Vec<(&str, &str)> {
    page.split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|code| code.split_once("::"))
        .filter(|(file, _)| file.contains('/'))
        .collect()
}

/// What is written as `--suite name`.
fn named_suites(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("--suite "))
}

/// Rows of a table that name no test, headings apart.
fn untested_rows(page: &str) -> Vec<&str> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| test |"));
    rows.filter(|row| named_tests(row).is_empty()).collect()
}

/// A Rust function or a C# method of that name.
fn has_test(source: &str, name: &str) -> bool {
    let ends = |rest: &str| rest.starts_with(['(', '<']);
    ["fn ", "void ", "Task "].iter().any(|before| {
        let wanted = format!("{before}{name}");
        source.match_indices(&wanted).any(|(at, _)| source.get(at + wanted.len()..).is_some_and(ends))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_found_by_its_whole_name_in_both_languages() {
        assert!(has_test("    async fn it_works() {", "it_works"));
        assert!(has_test("    public async Task It_works() {", "It_works"));
        assert!(has_test("    public void It_works(int a)", "It_works"));
        assert!(!has_test("    fn it_works_well() {", "it_works"));
        assert!(!has_test("    // it_works()", "it_works"));
    }

    #[test]
    fn tests_are_named_in_backticks_and_a_row_without_one_is_found() {
        let page = "| rule | test |\n|---|---|\n| one `x` | `a/b.rs::c`, `d/e.cs::F` |\n| two | soon |\n";
        assert_eq!(named_tests(page), [("a/b.rs", "c"), ("d/e.cs", "F")]);
        assert_eq!(untested_rows(page), ["| two | soon |"]);
        assert_eq!(named_suites("see `--suite a-b` and `--suite c`").collect::<Vec<_>>(), ["a-b", "c"]);
    }
}
