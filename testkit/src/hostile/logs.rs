//! What can be wrong with the answers to Fetch, Produce and the questions about offsets?

use super::Row;
use super::bodies::{ABSURD, COMPACT_ABSURD, COMPACT_NONE, NONE, row};

const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const LIST_OFFSETS: i16 = 2;
const INIT_PRODUCER_ID: i16 = 22;
const OFFSET_FOR_LEADER_EPOCH: i16 = 23;

pub(super) fn rows() -> Vec<Row> {
    [fetch(), produce(), offsets()].concat()
}

fn fetch() -> Vec<Row> {
    // v11: throttle, error, session; then one topic "t".
    let to_topics: &[u8] = &[0; 10];
    let to_partition = [to_topics, &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1]].concat();
    let old = |name, body: &[u8], text| row(name, FETCH, 11, &[body], text);
    // v13: one topic by its id, one partition, nothing aborted, no replica, no records: up to its tagged fields.
    let to_tags =
        [to_topics, &[2], &[9; 16], &[2], &[0; 30], &[COMPACT_NONE], &[0; 4], &[COMPACT_NONE]].concat();
    let new = |name, body: &[u8], text| row(name, FETCH, 13, &[&to_tags, body], text);
    // The same without tagged fields, up to those of the message.
    let nodes = |name, body: &[u8], text| row(name, FETCH, 16, &[&to_tags, &[0, 0], body], text);
    vec![
        old("fetch: session cut off", &[0; 8], "session_id needs 4 bytes, 2 remain"),
        old(
            "fetch: topic name length",
            &[to_topics, &[0, 0, 0, 1, 0x7f, 0xff, b't']].concat(),
            "topic name needs 32767 bytes, 1 remain",
        ),
        old(
            "fetch: topic without a name",
            &[to_topics, &[0, 0, 0, 1, 0xff, 0xff, 0]].concat(),
            "topic name is null",
        ),
        old(
            "fetch: topic name not UTF-8",
            &[to_topics, &[0, 0, 0, 1, 0, 1, 0xff]].concat(),
            "topic name is not UTF-8",
        ),
        old(
            "fetch: topic count negative",
            &[to_topics, &[0xff, 0xff, 0xff, 0xf0]].concat(),
            "topics has the length -16",
        ),
        old(
            "fetch: aborted transaction cut off",
            &[&to_partition[..], &[0; 30], &[0, 0, 0, 1], &[0; 15]].concat(),
            "aborted_transactions claims 1 elements, 15 bytes remain",
        ),
        old(
            "fetch: replica hint cut off",
            &[&to_partition[..], &[0; 30], &[0xff; 4], &[0; 2]].concat(),
            "preferred_read_replica needs 4 bytes, 2 remain",
        ),
        row(
            "fetch: topic id cut off",
            FETCH,
            13,
            &[to_topics, &[2], &[9; 15]],
            "topic_id needs 16 bytes, 15 remain",
        ),
        row(
            "fetch: compact count without an end",
            FETCH,
            13,
            &[to_topics, &[0xff; 5]],
            "topics is longer than 32 bits",
        ),
        row(
            "fetch: compact count over 32 bits",
            FETCH,
            13,
            &[to_topics, &[0xff, 0xff, 0xff, 0xff, 0x1f]],
            "topics is longer than 32 bits",
        ),
        new(
            "fetch: tagged field count",
            &[0xff, 0xff, 3, 0, 0],
            "65535 tagged fields are claimed, 2 bytes remain",
        ),
        new("fetch: tag without an end", &[&[1][..], &[0xff; 6]].concat(), "tag is longer than 32 bits"),
        new("fetch: tag size without an end", &[&[1, 0][..], &[0xff; 6]].concat(), "tagged field is longer"),
        new("fetch: divergence cut off", &[1, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0, 0], "end_offset needs 8 bytes"),
        new(
            "fetch: leader hint cut off",
            &[1, 1, 6, 0, 0, 0, 1, 0, 0, 0, 0, 0],
            "leader_epoch needs 4 bytes",
        ),
        nodes(
            "fetch: address count",
            &[&[1, 0, 5][..], &COMPACT_ABSURD].concat(),
            "node_endpoints claims 2147483646 elements",
        ),
        nodes(
            "fetch: address without a host",
            &[&[1, 0, 12, 2, 0, 0, 0, 1, 0][..], &[0; 8]].concat(),
            "host is null",
        ),
        nodes(
            "fetch: address with an absurd rack",
            &[1, 0, 14, 2, 0, 0, 0, 1, 2, b'h', 0, 0, 0, 1, 0x60, 0, 0],
            "rack needs 95 bytes",
        ),
    ]
}

fn produce() -> Vec<Row> {
    // v8: one topic "t", one partition, up to its record errors.
    let to_errors = [&[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1][..], &[0; 30]].concat();
    let v8 = |name, body: &[u8], text| row(name, PRODUCE, 8, &[body], text);
    // v10: one topic, one partition, no errors: the end of the topic, then throttle and tagged fields.
    let to_nodes = [&[2, 2, b't', 2][..], &[0; 30], &[COMPACT_NONE, 0, 0, 0], &NONE].concat();
    vec![
        v8("produce: topic without a name", &[0, 0, 0, 1, 0xff, 0xff, 0], "topic name is null"),
        v8(
            "produce: partition count",
            &[&[0, 0, 0, 1, 0, 1, b't'][..], &ABSURD].concat(),
            "partitions claims 2147483647 elements",
        ),
        v8(
            "produce: reason of a record length",
            &[&to_errors[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0x7f, 0xff]].concat(),
            "batch_index_error_message needs 32767 bytes",
        ),
        v8(
            "produce: reason not UTF-8",
            &[&to_errors[..], &NONE, &[0, 1, 0xff]].concat(),
            "error_message is not UTF-8",
        ),
        v8(
            "produce: throttling cut off",
            &[&to_errors[..], &NONE, &[0xff, 0xff, 0, 0]].concat(),
            "throttle_time_ms needs 4 bytes, 2 remain",
        ),
        row(
            "produce: address count",
            PRODUCE,
            10,
            &[&to_nodes, &[1, 0, 5], &COMPACT_ABSURD],
            "node_endpoints claims 2147483646 elements",
        ),
        row(
            "produce: leader hint cut off",
            PRODUCE,
            10,
            &[&[2, 2, b't', 2], &[0; 30], &[COMPACT_NONE, 0], &[1, 0, 3, 0, 0, 1]],
            "leader_id needs 4 bytes, 3 remain",
        ),
    ]
}

fn offsets() -> Vec<Row> {
    let topic: &[u8] = &[0, 0, 0, 1, 0, 1, b't'];
    vec![
        row(
            "offsets by time: partition count",
            LIST_OFFSETS,
            4,
            &[&NONE, topic, &ABSURD],
            "field partitions at byte 15: the list claims",
        ),
        row(
            "offsets by time: offset cut off",
            LIST_OFFSETS,
            4,
            &[&NONE, topic, &[0, 0, 0, 1], &[0; 18]],
            "field offset at byte 29: the message ends here",
        ),
        row(
            "offsets by time: tagged fields behind a partition",
            LIST_OFFSETS,
            6,
            &[&NONE, &[2, 2, b't', 2], &[0; 26], &[0xff, 1]],
            "255 tagged fields are over the limit",
        ),
        row(
            "ends of epochs: topic count",
            OFFSET_FOR_LEADER_EPOCH,
            3,
            &[&NONE, &ABSURD],
            "field topics at byte 8: the list claims",
        ),
        row(
            "ends of epochs: topic without a name",
            OFFSET_FOR_LEADER_EPOCH,
            3,
            &[&NONE, &[0, 0, 0, 1, 0xff, 0xff]],
            "field topic at byte 10: null is not allowed",
        ),
        row(
            "ends of epochs: partition count",
            OFFSET_FOR_LEADER_EPOCH,
            3,
            &[&NONE, topic, &ABSURD],
            "field partitions at byte 15: the list claims",
        ),
        row(
            "ends of epochs: end cut off",
            OFFSET_FOR_LEADER_EPOCH,
            3,
            &[&NONE, topic, &[0, 0, 0, 1], &[0; 12]],
            "field end_offset at byte 25: the message ends here",
        ),
        row(
            "producer id: epoch cut off",
            INIT_PRODUCER_ID,
            1,
            &[&[0; 15]],
            "field producer_epoch at byte 14: the message ends here",
        ),
    ]
}
