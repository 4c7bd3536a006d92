//! CONFIGURATION.md says what the table of options says.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

use std::fmt::Write as _;

use prosody_runtime::{OPTIONS, OptionSpec, Support};

const HEAD: &str = "\
# Configuration

An option set in code wins over its environment variable, which wins over its default. A blank variable counts as unset,
and so does `none` where none is the default, except for secrets, which may be that word.
Durations read like `15s`, `250ms` or `1h 30m`; sizes are bytes or carry KiB, MiB or GiB; lists are separated by commas; a
text has at most 1,024 bytes.
All problems of a configuration are reported in one error, each with its option and variable. A variable that starts with
`PROSODY_` and is none of these is a warning that names the nearest one.

This page is generated from the table of options in `prosody-runtime/src/config/table.rs`; after a change there run
`PROSODY_TESTS_UPDATE=1 cargo test -p prosody-runtime --test configuration`.

| option | variable | default | values | what it does |
|---|---|---|---|---|
";

const MISSING: &str = "
## Not in this version

These names are known and their features are not there yet. Building a client fails when one asks for something; the values
listed ask for nothing and are accepted.

| option | variable | accepted | what it will do |
|---|---|---|---|
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    let missing = |spec: &&OptionSpec| matches!(spec.support, Support::OffOnly(_));
    for spec in OPTIONS.iter().filter(|spec| !missing(spec)) {
        let OptionSpec { name, variable, default, rule, doc, .. } = spec;
        writeln!(page, "| {name} | `{variable}` | {default} | {rule} | {doc} |").unwrap();
    }
    page.push_str(MISSING);
    for spec in OPTIONS.iter().filter(missing) {
        let OptionSpec { name, variable, doc, .. } = spec;
        let Support::OffOnly(off) = spec.support else { continue };
        let off: Vec<String> = off.iter().map(|value| format!("`{value}`")).collect();
        writeln!(page, "| {name} | `{variable}` | {} | {doc} |", off.join(", ")).unwrap();
    }
    page
}

#[test]
fn the_page_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../CONFIGURATION.md");
    if std::env::var_os("PROSODY_TESTS_UPDATE").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page(),
        "CONFIGURATION.md differs from the table; run PROSODY_TESTS_UPDATE=1 cargo test -p prosody-runtime --test configuration"
    );
}

#[test]
fn names_and_variables_are_unique_and_regular() {
    let mut seen = std::collections::BTreeSet::new();
    for spec in OPTIONS {
        assert!(seen.insert(spec.name) && seen.insert(spec.variable), "{spec:?} twice");
        assert!(
            spec.variable.starts_with("PROSODY_") && spec.variable == spec.variable.to_uppercase(),
            "{spec:?}"
        );
        assert!(spec.doc.ends_with('.') && !spec.default.is_empty() && !spec.rule.is_empty(), "{spec:?}");
        assert!(std::ptr::eq(OptionSpec::find(spec.name).unwrap(), OptionSpec::find(spec.variable).unwrap()));
    }
}
