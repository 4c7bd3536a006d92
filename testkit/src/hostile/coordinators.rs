//! What can be wrong with what a coordinator says to members, and what a broker says of itself?

use super::Row;
use super::bodies::{ABSURD, COMPACT_ABSURD, COMPACT_NONE, NONE, row};

const METADATA: i16 = 3;
const OFFSET_COMMIT: i16 = 8;
const OFFSET_FETCH: i16 = 9;
const FIND_COORDINATOR: i16 = 10;
const JOIN_GROUP: i16 = 11;
const HEARTBEAT: i16 = 12;
const LEAVE_GROUP: i16 = 13;
const SYNC_GROUP: i16 = 14;
const SASL_HANDSHAKE: i16 = 17;
const API_VERSIONS: i16 = 18;
const SASL_AUTHENTICATE: i16 = 36;
const CONSUMER_GROUP_HEARTBEAT: i16 = 68;

pub(super) fn rows() -> Vec<Row> {
    [cluster(), joining(), committed(), consumer_protocol()].concat()
}

fn cluster() -> Vec<Row> {
    // Metadata v12 up to its topics: no throttling, no brokers, no cluster id, controller 0.
    let to_topics: &[u8] = &[0, 0, 0, 0, COMPACT_NONE, 0, 0, 0, 0, 0];
    // One topic "t" and one partition, up to its replicas in sync.
    let mut to_isr = [to_topics, &[2, 0, 0, 2, b't'], &[0; 17], &[2], &[0; 14]].concat();
    to_isr.push(COMPACT_NONE);
    let v12 = |name, body: &[u8], text| row(name, METADATA, 12, &[body], text);
    let more_apis = [&[0, 0][..], &1_025_i32.to_be_bytes(), &[0; 6 * 1_025]].concat();
    vec![
        v12(
            "metadata: rack length",
            &[&NONE[..], &[2, 0, 0, 0, 1, 2, b'h', 0, 0, 0, 1, 0x60]].concat(),
            "field rack at byte 16: the value claims 95 bytes",
        ),
        v12(
            "metadata: tagged fields behind a broker",
            &[&NONE[..], &[2, 0, 0, 0, 1, 2, b'h', 0, 0, 0, 1, 0, 0xff, 1]].concat(),
            "255 tagged fields are over the limit",
        ),
        v12(
            "metadata: cluster id not UTF-8",
            &[&NONE[..], &[COMPACT_NONE, 2, 0xff]].concat(),
            "field cluster_id at byte 7: the text is not UTF-8",
        ),
        v12(
            "metadata: topic name length",
            &[to_topics, &[2, 0, 0, 0x60]].concat(),
            "field name at byte 14: the value claims 95 bytes",
        ),
        v12(
            "metadata: topic id cut off",
            &[to_topics, &[2, 0, 0, 2, b't'], &[0; 15]].concat(),
            "field topic_id at byte 15: the message ends here",
        ),
        v12(
            "metadata: count of replicas in sync",
            &[&to_isr[..], &COMPACT_ABSURD].concat(),
            "field isr_nodes at byte 53: the list claims",
        ),
        v12(
            "metadata: count of replicas that are offline",
            &[&to_isr[..], &[COMPACT_NONE], &COMPACT_ABSURD].concat(),
            "field offline_replicas at byte 54: the list claims",
        ),
        v12(
            "metadata: tag size without an end",
            &[to_topics, &[COMPACT_NONE, 1, 9], &[0xff; 6]].concat(),
            "field tagged fields at byte 18: the variable-length number has no end",
        ),
        row(
            "versions: tagged fields inside the list",
            API_VERSIONS,
            3,
            &[&[0, 0, 2, 0, 3, 0, 0, 0, 9, 1, 0, 1, 0]],
            "has tagged fields inside its list",
        ),
        row("versions: more APIs than the limit", API_VERSIONS, 0, &[&more_apis], "claims more APIs than it"),
        row(
            "versions: refused",
            API_VERSIONS,
            0,
            &[&[0, 42, 0, 0, 0, 0]],
            "ApiVersions answered INVALID_REQUEST",
        ),
        row(
            "sasl: mechanism not UTF-8",
            SASL_HANDSHAKE,
            1,
            &[&[0, 33, 0, 0, 0, 1, 0, 1, 0xff]],
            "field mechanisms at byte 9: the text is not UTF-8",
        ),
        row(
            "sasl: error text length",
            SASL_AUTHENTICATE,
            1,
            &[&[0, 58, 0x7f, 0xff]],
            "field error_message at byte 4: the value claims 32767",
        ),
        row(
            "sasl: life of the session cut off",
            SASL_AUTHENTICATE,
            1,
            &[&[0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0]],
            "field session_lifetime_ms at byte 8: the message ends here",
        ),
    ]
}

fn joining() -> Vec<Row> {
    // JoinGroup v7 up to the protocol: throttle, error, generation, no type.
    let to_protocol = [&NONE[..], &[0, 0, 0, 0, 0, 7, 0]].concat();
    vec![
        row(
            "find coordinator: key length",
            FIND_COORDINATOR,
            4,
            &[&NONE, &[2, 0x60]],
            "field key at byte 6: the value claims 95 bytes",
        ),
        row(
            "find coordinator: host not UTF-8",
            FIND_COORDINATOR,
            4,
            &[&NONE, &[2, 2, b'g', 0, 0, 0, 1, 2, 0xff]],
            "field host at byte 13: the text is not UTF-8",
        ),
        row(
            "find coordinator: host null",
            FIND_COORDINATOR,
            2,
            &[&NONE, &[0, 0, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xff]],
            "field host at byte 14: null is not allowed",
        ),
        row(
            "find coordinator: port cut off",
            FIND_COORDINATOR,
            2,
            &[&NONE, &[0, 0, 0xff, 0xff, 0, 0, 0, 1, 0, 1, b'h', 0, 0]],
            "field port at byte 15: the message ends here",
        ),
        row(
            "join: protocol name length",
            JOIN_GROUP,
            7,
            &[&to_protocol, &[0x60]],
            "field protocol_name at byte 12: the value claims 95 bytes",
        ),
        row(
            "join: leader null",
            JOIN_GROUP,
            7,
            &[&to_protocol, &[2, b'p', 0]],
            "field leader at byte 14: null is not allowed",
        ),
        row(
            "join: own id not UTF-8",
            JOIN_GROUP,
            7,
            &[&to_protocol, &[2, b'p', COMPACT_NONE, 2, 0xff]],
            "field member_id at byte 16: the text is not UTF-8",
        ),
        row(
            "join: instance of a member length",
            JOIN_GROUP,
            5,
            &[&[0; 16], &[0, 0, 0, 1, 0, 1, b'm', 0x7f, 0xff]],
            "field group_instance_id at byte 25: the value claims 32767",
        ),
        row(
            "join: generation cut off",
            JOIN_GROUP,
            5,
            &[&NONE, &[0, 0, 0, 0]],
            "field generation_id at byte 6: the message ends here",
        ),
        row(
            "sync: protocol name not UTF-8",
            SYNC_GROUP,
            5,
            &[&NONE, &[0, 0, 0, 2, 0xff]],
            "field protocol_name at byte 9: the text is not UTF-8",
        ),
        row(
            "sync: assignment null",
            SYNC_GROUP,
            3,
            &[&[0; 6], &[0xff; 4]],
            "field assignment at byte 10: null is not allowed",
        ),
        row(
            "heartbeat: tagged field count",
            HEARTBEAT,
            4,
            &[&NONE, &[0, 0, 0xff, 1]],
            "255 tagged fields are over the limit",
        ),
        row(
            "leave: member id length",
            LEAVE_GROUP,
            3,
            &[&[0; 6], &[0, 0, 0, 1, 0x7f, 0xff]],
            "field member_id at byte 12: the value claims 32767",
        ),
    ]
}

fn committed() -> Vec<Row> {
    // OffsetFetch v8: one group "g" with one topic "t".
    let to_topic = [&NONE[..], &[2, 2, b'g', 2, 2, b't']].concat();
    // One partition up to its metadata: offset and leader epoch.
    let to_metadata = [&to_topic[..], &[2], &[0; 16]].concat();
    let v8 = |name, body: &[u8], text| row(name, OFFSET_FETCH, 8, &[body], text);
    vec![
        v8(
            "committed offsets: group without a name",
            &[&NONE[..], &[2, 0]].concat(),
            "field group_id at byte 6: null is not allowed",
        ),
        v8(
            "committed offsets: topic name not UTF-8",
            &[&NONE[..], &[2, 2, b'g', 2, 2, 0xff]].concat(),
            "field name at byte 10: the text is not UTF-8",
        ),
        v8(
            "committed offsets: partition count",
            &[&to_topic[..], &COMPACT_ABSURD].concat(),
            "field partitions at byte 15: the list claims",
        ),
        v8(
            "committed offsets: metadata length",
            &[&to_metadata[..], &[0x60]].concat(),
            "field metadata at byte 28: the value claims 95 bytes",
        ),
        v8(
            "committed offsets: error cut off",
            &[&to_metadata[..], &[0, 0]].concat(),
            "field error_code at byte 28: the message ends here",
        ),
        row(
            "commit: topic without a name",
            OFFSET_COMMIT,
            7,
            &[&NONE, &[0, 0, 0, 1, 0xff, 0xff]],
            "field name at byte 10: null is not allowed",
        ),
        row(
            "commit: error cut off",
            OFFSET_COMMIT,
            7,
            &[&NONE, &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0, 0]],
            "field error_code at byte 19: the message ends here",
        ),
    ]
}

fn consumer_protocol() -> Vec<Row> {
    // Up to the assignment: throttle, error, no text, no member id, epoch, interval.
    let to_assignment = [&NONE[..], &[0, 0, 0, 0], &[0; 8]].concat();
    let v0 = |name, body: &[u8], text| row(name, CONSUMER_GROUP_HEARTBEAT, 0, &[body], text);
    vec![
        v0(
            "consumer heartbeat: error text length",
            &[&NONE[..], &[0, 0, 0x60]].concat(),
            "field error_message at byte 7: the value claims 95 bytes",
        ),
        v0(
            "consumer heartbeat: member id not UTF-8",
            &[&NONE[..], &[0, 0, 0, 2, 0xff]].concat(),
            "field member_id at byte 9: the text is not UTF-8",
        ),
        v0(
            "consumer heartbeat: interval cut off",
            &[&NONE[..], &[0, 0, 0, 0], &[0; 7]].concat(),
            "field heartbeat_interval_ms at byte 12: the message ends here",
        ),
        v0(
            "consumer heartbeat: topic count",
            &[&to_assignment[..], &[1], &COMPACT_ABSURD].concat(),
            "field topic_partitions at byte 22: the list claims",
        ),
        v0(
            "consumer heartbeat: topic id cut off",
            &[&to_assignment[..], &[1, 2], &[9; 15]].concat(),
            "field topic_id at byte 18: the message ends here",
        ),
        v0(
            "consumer heartbeat: partition count",
            &[&to_assignment[..], &[1, 2], &[9; 16], &COMPACT_ABSURD].concat(),
            "field partitions at byte 39: the list claims",
        ),
        v0(
            "consumer heartbeat: partitions cut off",
            &[&to_assignment[..], &[1, 2], &[9; 16], &[3], &[0; 7]].concat(),
            "field partitions at byte 35: the message ends here",
        ),
        row(
            "consumer heartbeat: version nobody asked for",
            CONSUMER_GROUP_HEARTBEAT,
            9,
            &[&to_assignment, &ABSURD],
            "version 9 is not known",
        ),
    ]
}
