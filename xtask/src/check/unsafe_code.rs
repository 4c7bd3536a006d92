//! Is `unsafe` where it may be and nowhere else?

use std::fs;
use std::path::Path;

use super::sizes::tracked;
use crate::run;

/// Folders whose job is the boundary between the two languages, and the peers, which nothing of ours links: librdkafka is
/// only fast through its C API.
const ALLOWED: &[&str] = &["prosody-ffi/", "csharp/src/Prosody/Interop/", "benches/peers/"];

pub(super) fn check() -> Result<(), String> {
    let mut problems = Vec::new();
    for path in tracked(&["*.rs", "*.cs"])? {
        if ALLOWED.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        let Ok(text) = fs::read_to_string(run::root().join(&path)) else { continue };
        if is_crate_root(&path) && !text.contains("#![forbid(unsafe_code)]") {
            problems.push(format!("{path}: a crate root without #![forbid(unsafe_code)]"));
        }
        if let Some(line) = keyword_line(&text) {
            problems.push(format!("{path}:{line}: unsafe is for {} alone", ALLOWED.join(", ")));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// `forbid` in a library or program covers its modules; its tests, examples and benches are searched for the word.
fn is_crate_root(path: &str) -> bool {
    let path = Path::new(path);
    path.ends_with("src/lib.rs")
        || path.ends_with("src/main.rs")
        || path.parent().is_some_and(|folder| folder.ends_with("src/bin"))
}

/// The first line that uses the keyword, as opposed to a comment or a lint's name.
fn keyword_line(text: &str) -> Option<usize> {
    /// What follows the keyword where it is one, in both languages.
    const NEXT: [&str; 10] =
        [" {", " fn ", " impl", " extern", " trait", "(", " class", " struct", " static", " partial"];
    text.lines()
        .position(|line| {
            let code = line.trim_start();
            !code.starts_with("//")
                && code.match_indices("unsafe").any(|(at, word)| {
                    let next = code.get(at + word.len()..).unwrap_or_default();
                    NEXT.iter().any(|usage| next.starts_with(usage))
                })
        })
        .map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::{is_crate_root, keyword_line};

    #[test]
    fn the_keyword_is_found_and_talk_about_it_is_not() {
        let keyword = ["un", "safe"].concat();
        assert_eq!(keyword_line(&format!("fn a() {{\n    {keyword} {{ b() }}\n}}")), Some(2));
        assert_eq!(keyword_line(&format!("internal {keyword} static void A()")), Some(1));
        assert_eq!(keyword_line(&format!("// {keyword} fn in a comment\n#![forbid({keyword}_code)]")), None);
    }

    #[test]
    fn crate_roots_are_libraries_and_programs() {
        assert!(is_crate_root("prosody-wire/src/lib.rs"));
        assert!(is_crate_root("testkit/src/bin/prosody-broker.rs"));
        assert!(!is_crate_root("prosody-wire/src/net/mod.rs"));
    }
}
