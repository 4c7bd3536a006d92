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
//! The same code as the fuzz targets run, without a fuzzer.

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

/// Replays a target and tells which of the wanted outcomes nothing reaches any more.
fn reaches(target: &str, wanted: &[&str]) {
    let reached = replay(target);
    let missing: Vec<_> = wanted.iter().filter(|outcome| !reached.contains(**outcome)).collect();
    assert!(missing.is_empty(), "{target}: nothing reaches {missing:?}; reached: {reached:?}");
}

#[test]
fn all_targets_are_replayed_here() {
    let here = ["frames", "batches", "gzip", "snappy", "lz4", "zstd", "responses", "groups", "scram"];
    assert_eq!(targets::TARGETS, here);
}

#[test]
fn frames() {
    reaches(
        "frames",
        &[
            "Body",
            "Closed",
            "Correlation",
            "FrameLength",
            "Guard Count",
            "Http",
            "Timeout",
            "Tls",
            "Unsupported",
            "accepted",
        ],
    );
}

#[test]
fn batches() {
    reaches(
        "batches",
        &[
            "accepted true",
            "truncated",
            "Length",
            "Magic",
            "Codec",
            "BaseOffset",
            "LastOffsetDelta",
            "OffsetOverflow",
            "RecordCount",
            "RecordsForBytes",
            "RecordsForOffsets",
            "TrailingBytes",
            "Decompress Malformed",
            "Decompress TooLarge",
            "Record Number",
            "Record Length",
            "Record Truncated",
            "Record Timestamp",
            "Record OffsetDelta",
            "Record OffsetOrder",
            "Record KeyLength",
            "Record ValueLength",
            "Record HeaderCount",
            "Record TooManyHeaders",
            "Record HeaderKeyLength",
            "Record HeaderValueLength",
            "Record TrailingBytes",
            "Message Truncated",
            "Message Size",
            "Message KeyLength",
            "Message ValueLength",
            "Message TrailingBytes",
            "Message MixedMagic",
            "Message Nested",
            "Message Empty",
            "Message Offset",
        ],
    );
}

#[test]
fn decompression() {
    let gzip = [
        "it is not a gzip stream",
        "its gzip stream is cut off",
        "its DEFLATE data is damaged",
        "its gzip length is wrong",
    ];
    let snappy = [
        "its snappy header is cut off",
        "a snappy block is cut off",
        "a snappy block is damaged",
        "a snappy block claims more than it can hold",
    ];
    let lz4 = [
        "it is not an LZ4 frame",
        "it is cut off",
        "its LZ4 frame version is unknown",
        "it needs an LZ4 dictionary",
        "its LZ4 block size is unknown",
        "an LZ4 block is larger than its frame allows",
        "an LZ4 block is damaged",
    ];
    let zstd = ["it is not a zstd frame", "its zstd frame is damaged"];
    for (target, malformed) in [("gzip", &gzip[..]), ("snappy", &snappy), ("lz4", &lz4), ("zstd", &zstd)] {
        reaches(target, &[malformed, &["accepted", "TooLarge"]].concat());
    }
}

#[test]
fn responses() {
    let accepted: Vec<String> =
        prosody_wire::internals::spoken().iter().map(|(api, _, _)| format!("accepted {api}")).collect();
    let guard = ["Short", "Count", "Length", "Negative", "Null", "Utf8", "Varint", "Tags", "TagOrder"];
    let guard: Vec<String> = guard.iter().map(|refusal| format!("Guard {refusal}")).collect();
    let by_hand = ["Body 0", "Body 1", "Body 18"].map(str::to_owned);
    let wanted = [accepted, guard, by_hand.to_vec()].concat();
    reaches("responses", &wanted.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn groups() {
    let wanted = [
        "subscription: accepted",
        "assignment: accepted",
        "subscription: version: cut short",
        "subscription: version: negative",
        "subscription: topics: not UTF-8",
        "subscription: topics: null",
        "subscription: topics: negative count",
        "subscription: topics: count larger than the bytes that remain",
        "subscription: topics: length larger than the bytes that remain",
        "subscription: user data: negative length",
        "subscription: user data: length larger than the bytes that remain",
        "subscription: owned partitions: count larger than the bytes that remain",
        "subscription: generation: cut short",
        "subscription: rack: length larger than the bytes that remain",
        "assignment: version: negative",
        "assignment: assigned partitions: count larger than the bytes that remain",
        "assignment: user data: length larger than the bytes that remain",
    ];
    reaches("groups", &wanted);
}

#[test]
fn scram() {
    let wanted = [
        "accepted",
        "Extra",
        "ForeignNonce",
        "Iterations",
        "Mandatory",
        "Missing",
        "NonceNotExtended",
        "NotText",
        "Refused",
        "Salt",
        "Signature",
        "TooLong",
        "WrongSignature",
    ];
    reaches("scram", &wanted);
}
