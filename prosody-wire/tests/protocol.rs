//! docs/protocol.md lists what this client speaks, as the table of the code has it.
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

use prosody_base::guard::api_name;
use prosody_wire::internals::spoken;

const HEAD: &str = "\
# What is spoken

Each connection asks its broker for its versions (ApiVersions, KIP-511) and uses the highest that both know. Floors are what
Kafka 2.1 offers, ceilings what Kafka 4 offers. A broker whose range does not meet ours gets an error that shows both.

This page is generated from the table in `prosody-wire/src/proto/versions.rs`; after a change there run
`PROSODY_TESTS_UPDATE=1 cargo test -p prosody-wire --test protocol`.

| API | key | versions | what is used of it |
|---|---|---|---|
";

const TAIL: &str = "
## What members tell each other

| what | versions | KIPs |
|---|---|---|
| consumer protocol subscription | writes 3, reads any | KIP-429 (owned partitions), KIP-792 (generation; also in the user data, where older leaders look), KIP-881 (rack) |
| consumer protocol assignment | writes 0, reads any | |

## Group protocols

`GroupProtocol=auto` speaks the consumer protocol (KIP-848) where the coordinator serves ConsumerGroupHeartbeat 1 and the group
has no classic members, and the classic one after UNSUPPORTED_VERSION (an older broker, or one whose feature level is older)
or GROUP_ID_NOT_FOUND (classic members, and no migration). Apache Kafka 4 takes members of both protocols into one group;
Kafka 3.9 does not serve version 1.
";

/// What this client uses of each API.
const USED: &[(&str, &str)] = &[
    (
        "Produce",
        "idempotent batches (KIP-98), batches too large are split (KIP-126), new leaders in answers (KIP-951)",
    ),
    (
        "Fetch",
        "sessions (KIP-227), leader epochs (KIP-320), closest replica (KIP-392), topic ids (KIP-516), new leaders in answers (KIP-951)",
    ),
    ("ListOffsets", "leader epochs (KIP-320), committed records only (KIP-98)"),
    ("Metadata", "leader epochs (KIP-320), topic ids (KIP-516), back to the bootstrap addresses (KIP-1102)"),
    ("OffsetCommit", "leader epochs (KIP-320), static members (KIP-345), member epochs (KIP-848)"),
    (
        "OffsetFetch",
        "open transactions are waited for (KIP-447), groups in one request (KIP-709), member epochs (KIP-848)",
    ),
    ("FindCoordinator", "several keys in one request (KIP-699)"),
    (
        "JoinGroup",
        "static members (KIP-345), member ids before joining (KIP-394), skipped assignment (KIP-814)",
    ),
    ("Heartbeat", "static members (KIP-345)"),
    ("LeaveGroup", "several members in one request (KIP-345), the reason (KIP-800)"),
    ("SyncGroup", "static members (KIP-345), the protocol's name (KIP-559)"),
    ("DescribeGroups", "classic groups, and what a group divides by that refuses a member"),
    ("ListGroups", "states of groups (KIP-518)"),
    ("SaslHandshake", "mechanisms in frames (KIP-152)"),
    ("ApiVersions", "name and version of the client, fallback to version 0 (KIP-511)"),
    ("CreateTopics", "the broker's defaults (KIP-464)"),
    ("DeleteTopics", "by name"),
    ("DeleteRecords", "KIP-107"),
    ("InitProducerId", "idempotent producers (KIP-98), recovery by a new epoch (KIP-360)"),
    ("OffsetForLeaderEpoch", "truncation is noticed (KIP-320)"),
    ("DescribeConfigs", "settings of topics (KIP-133) and the session timeout of groups (KIP-848)"),
    ("SaslAuthenticate", "sessions that end and are renewed (KIP-368)"),
    ("CreatePartitions", "KIP-195"),
    ("DeleteGroups", "KIP-229"),
    ("IncrementalAlterConfigs", "settings of topics, one at a time (KIP-339)"),
    ("DescribeCluster", "brokers, controller and cluster id (KIP-700)"),
    (
        "ConsumerGroupHeartbeat",
        "the consumer group protocol (KIP-848); member ids of our own choice (KIP-1082)",
    ),
    ("ConsumerGroupDescribe", "groups of the consumer protocol (KIP-848)"),
];

fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut rows = spoken();
    rows.sort_unstable();
    for (key, low, high) in rows {
        let name = api_name(key).expect("guarded");
        let used = USED.iter().find(|row| row.0 == name).map(|row| row.1);
        let used = used.unwrap_or_else(|| panic!("{name} is spoken: say in this test what is used of it"));
        let versions = if low == high { low.to_string() } else { format!("{low}–{high}") };
        writeln!(page, "| {name} | {key} | {versions} | {used} |").unwrap();
    }
    page.push_str(TAIL);
    page
}

#[test]
fn the_page_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/protocol.md");
    let expected = page();
    if std::env::var("PROSODY_TESTS_UPDATE").is_ok() {
        std::fs::write(path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/protocol.md differs from the table; run PROSODY_TESTS_UPDATE=1 cargo test -p prosody-wire --test protocol"
    );
}

#[test]
fn what_is_said_of_an_api_is_said_of_one_that_is_spoken() {
    let names: Vec<_> = spoken().into_iter().filter_map(|(key, ..)| api_name(key)).collect();
    assert!(USED.iter().all(|(name, _)| names.contains(name)));
}
