#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]
//! Does every input the fuzzers have kept still end as an outcome, and are all outcomes still reached?
//!
//! The same code as the fuzz targets run, without a fuzzer. What has to be reached is read from the sources: a variant that
//! is added there and that nothing reaches is missed here.

use std::collections::BTreeSet;
use std::path::PathBuf;

#[path = "../../fuzz/src/targets.rs"]
mod targets;

fn replay(target: &str) -> BTreeSet<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 5, "{} holds {} inputs", folder.display(), files.len());
    files.iter().map(|file| targets::run(target, &std::fs::read(file).unwrap())).collect()
}

/// Replays a target and tells which of the wanted outcomes nothing reaches.
fn reaches(target: &str, wanted: impl IntoIterator<Item = String>) {
    let reached = replay(target);
    let missing: Vec<_> = wanted.into_iter().filter(|outcome| !reached.contains(outcome)).collect();
    assert!(missing.is_empty(), "{target}: nothing reaches {missing:?}; reached: {reached:?}");
}

fn source(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The variants of an enum, without those that this target cannot reach.
fn variants(file: &str, name: &str, not_here: &[&str]) -> Vec<String> {
    let source = source(file);
    let body = source.split_once(&format!("pub enum {name} {{\n")).expect("the enum is there").1;
    let body = body.split_once("\n}").expect("it ends").0;
    let starts =
        |line: &&str| line.strip_prefix("    ").is_some_and(|rest| rest.starts_with(char::is_uppercase));
    let name = |line: &str| line.trim().chars().take_while(char::is_ascii_alphanumeric).collect::<String>();
    let all: Vec<String> = body.lines().filter(starts).map(name).collect();
    for excused in not_here {
        assert!(all.iter().any(|one| one == excused), "{excused} is no variant of it");
    }
    assert!(all.len() > 1, "{file}: {all:?}");
    all.into_iter().filter(|one| !not_here.contains(&one.as_str())).collect()
}

/// The texts that follow `before` in a source, without those that cannot be provoked by input.
fn texts(file: &str, before: &str, not_here: &[&str]) -> Vec<String> {
    let source = source(file);
    let texts = source.split(before).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    let texts: Vec<String> = texts.filter(|text| !not_here.contains(&text.as_str())).collect();
    assert!(!texts.is_empty(), "{file}");
    texts
}

fn named(prefix: &str, names: Vec<String>) -> impl Iterator<Item = String> {
    names.into_iter().map(move |name| format!("{prefix}{name}"))
}

const ERRORS: &str = "src/error.rs";
const BATCHES: &str = "src/batch/error.rs";

#[test]
fn all_targets_are_replayed_here() {
    let here = ["frames", "batches", "gzip", "snappy", "lz4", "zstd", "responses", "groups", "scram"];
    assert_eq!(targets::TARGETS, here);
}

#[test]
fn frames() {
    // Nobody says who it is here, and nothing is fetched; the guard has names of its own.
    let decoded = variants(ERRORS, "DecodeError", &["Guard", "Sasl", "Records"]);
    // One connection that is there, one request.
    let elsewhere =
        ["Io", "Tls", "Token", "Decode", "Broker", "Unreachable", "Pending", "Full", "Encode", "Config"];
    let other = variants(ERRORS, "ErrorKind", &elsewhere);
    let accepted = ["accepted".to_owned(), "Guard Count".to_owned()];
    reaches("frames", decoded.into_iter().chain(other).chain(accepted));
}

#[test]
fn batches() {
    // Checksums are always repaired: a fuzzer would get no further.
    let batch = variants(BATCHES, "BatchErrorKind", &["Crc", "Decompress", "Record", "Message"]);
    let inside = named("Decompress ", variants(BATCHES, "DecompressError", &[]))
        .chain(named("Record ", variants(BATCHES, "RecordError", &[])))
        .chain(named("Message ", variants(BATCHES, "MessageError", &[])));
    let good = ["accepted true", "truncated"].map(str::to_owned);
    reaches("batches", batch.into_iter().chain(inside).chain(good));
}

#[test]
fn decompression() {
    let files = [("gzip", "gzip"), ("snappy", "snappy"), ("lz4", "lz4"), ("zstd", "zstandard")];
    for (target, file) in files {
        let file = format!("src/batch/compress/{file}.rs");
        let malformed = texts(&file, "Malformed(\"", &["no memory for a zstd context"]);
        reaches(target, malformed.into_iter().chain(["accepted", "TooLarge"].map(str::to_owned)));
    }
}

#[test]
fn responses() {
    let spoken = prosody_wire::internals::spoken();
    let accepted = spoken.iter().map(|(api, _, _)| format!("accepted {api}"));
    // What is asked for is known; half a million items are no input for a fuzzer, but a row of the hostile table.
    let elsewhere = ["UnknownApi", "UnknownVersion", "TooMany"];
    let refused = variants("../prosody-base/src/guard/mod.rs", "Refusal", &elsewhere);
    let by_hand = ["Body 0", "Body 1", "Body 18"].map(str::to_owned);
    reaches("responses", accepted.chain(named("Guard ", refused)).chain(by_hand));
}

#[test]
fn groups() {
    let reached = replay("groups");
    let any = |wanted: &str| reached.iter().any(|outcome| outcome.contains(wanted));
    for name in ["subscription: accepted", "assignment: accepted"] {
        assert!(any(name), "{name}");
    }
    // A megabyte is no input for a fuzzer; the hostile table has two rows for it.
    let whys = texts("src/group/wire.rs", "why: \"", &["more entries than a member may have"]);
    let fields =
        ["version", "topics", "user data", "owned partitions", "generation", "rack", "assigned partitions"];
    for wanted in whys.iter().map(String::as_str).chain(fields) {
        assert!(any(&format!(": {wanted}")), "nothing reaches {wanted}; reached: {reached:?}");
    }
}

#[test]
fn scram() {
    let refused = variants("src/sasl/scram.rs", "ScramError", &[]);
    reaches("scram", refused.into_iter().chain(["accepted".to_owned()]));
}
