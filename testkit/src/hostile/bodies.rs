//! What can be wrong with the messages inside frames: counts, lengths, text, nulls, tagged fields, and what other
//! members of a group wrote?

use super::{Attack, Row};

const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const LIST_OFFSETS: i16 = 2;
const METADATA: i16 = 3;
const OFFSET_COMMIT: i16 = 8;
const OFFSET_FETCH: i16 = 9;
const FIND_COORDINATOR: i16 = 10;
const JOIN_GROUP: i16 = 11;
const HEARTBEAT: i16 = 12;
const LEAVE_GROUP: i16 = 13;
const SYNC_GROUP: i16 = 14;
const CREATE_TOPICS: i16 = 19;
const DELETE_TOPICS: i16 = 20;
const INIT_PRODUCER_ID: i16 = 22;

/// 2^31−1 as a count or length of four bytes, and as a compact one.
pub(super) const ABSURD: [u8; 4] = [0x7f, 0xff, 0xff, 0xff];
pub(super) const COMPACT_ABSURD: [u8; 5] = [0xff, 0xff, 0xff, 0xff, 0x07];
/// An empty list of the old encoding (or no throttling), and of the compact one.
pub(super) const NONE: [u8; 4] = [0; 4];
pub(super) const COMPACT_NONE: u8 = 1;

pub(super) fn row(name: &'static str, api: i16, version: i16, parts: &[&[u8]], text: &'static str) -> Row {
    Row { name, attack: Attack::Body { api, version, body: parts.concat() }, text }
}

pub(super) fn rows() -> Vec<Row> {
    [metadata(), data(), groups(), admin(), members()].concat()
}

fn metadata() -> Vec<Row> {
    let throttle = &NONE;
    // Metadata v12 up to its topics: no throttling, no brokers, no cluster id, controller 0.
    let to_topics: &[u8] = &[0, 0, 0, 0, COMPACT_NONE, 0, 0, 0, 0, 0];
    // One topic "t" without an error, up to its partitions.
    let mut to_partitions = [to_topics, &[2, 0, 0, 2, b't']].concat();
    to_partitions.extend_from_slice(&[0; 17]);
    // One partition, up to its replicas.
    let to_replicas = [&to_partitions[..], &[2], &[0; 2 + 4 + 4 + 4]].concat();
    let broker = |host: &[u8]| [throttle, &[2, 0, 0, 0, 1][..], host].concat();
    let tags = |tagged: &[u8]| [to_topics, &[COMPACT_NONE], tagged].concat();
    let v12 = |name, body: &[u8], text| row(name, METADATA, 12, &[body], text);
    vec![
        row(
            "metadata: broker count",
            METADATA,
            8,
            &[throttle, &ABSURD],
            "field brokers at byte 8: the list claims 2147483647",
        ),
        row(
            "metadata: broker count negative",
            METADATA,
            8,
            &[throttle, &[0xff, 0xff, 0xff, 0xfe]],
            "field brokers at byte 8: the length -2 is negative",
        ),
        row(
            "metadata: cut off",
            METADATA,
            8,
            &[&[0, 0]],
            "field throttle_time_ms at byte 0: the message ends here",
        ),
        v12(
            "metadata: compact broker count",
            &[throttle, &COMPACT_ABSURD[..]].concat(),
            "field brokers at byte 9: the list claims 2147483646",
        ),
        v12(
            "metadata: count without an end",
            &[throttle, &[0x80; 6][..]].concat(),
            "field brokers at byte 9: the variable-length number has no end",
        ),
        v12(
            "metadata: compact count over 32 bits",
            &[throttle, &[0xff, 0xff, 0xff, 0xff, 0x1f][..]].concat(),
            "field brokers at byte 9: the variable-length number has no end",
        ),
        v12(
            "metadata: broker list null",
            &[throttle, &[0][..]].concat(),
            "field brokers at byte 5: null is not allowed",
        ),
        v12(
            "metadata: host length",
            &broker(&[0xff, 0x01, b'h']),
            "field host at byte 11: the value claims 254 bytes",
        ),
        v12("metadata: host not UTF-8", &broker(&[2, 0xff]), "field host at byte 11: the text is not UTF-8"),
        v12("metadata: host null", &broker(&[0]), "field host at byte 10: null is not allowed"),
        v12(
            "metadata: cluster id length",
            &[throttle, &[COMPACT_NONE, 0x7f][..]].concat(),
            "field cluster_id at byte 6: the value claims 126 bytes",
        ),
        v12(
            "metadata: topic count",
            &[to_topics, &COMPACT_ABSURD[..]].concat(),
            "field topics at byte 15: the list claims",
        ),
        v12(
            "metadata: partition count",
            &[&to_partitions[..], &COMPACT_ABSURD].concat(),
            "field partitions at byte 37: the list claims",
        ),
        v12(
            "metadata: replica count",
            &[&to_replicas[..], &COMPACT_ABSURD].concat(),
            "field replica_nodes at byte 52: the list claims",
        ),
        v12(
            "metadata: replicas cut off",
            &[&to_replicas[..], &[3, 0, 0, 0, 1, 0]].concat(),
            "field replica_nodes at byte 48: the message ends here",
        ),
        v12(
            "metadata: tagged field count",
            &tags(&[0xff, 0x7f]),
            "16383 tagged fields are over the limit of 128",
        ),
        v12(
            "metadata: tagged field size",
            &tags(&[1, 9, 0x7f]),
            "field tagged fields at byte 14: the value claims 127 bytes",
        ),
        v12("metadata: tag twice", &tags(&[2, 9, 0, 9, 0]), "tag 9 is out of order"),
        row(
            "metadata: more items than any cluster has",
            METADATA,
            8,
            &[throttle, &600_000_i32.to_be_bytes(), &vec![0; 11 * 600_000]],
            "600000 list items are over the limit",
        ),
        row("metadata: version nobody asked for", METADATA, 99, &[&[0; 30]], "version 99 is not known"),
    ]
}

fn data() -> Vec<Row> {
    // Fetch v11: throttle, error, session; one topic "t" with one partition up to its aborted transactions.
    let to_topics: &[u8] = &[0; 10];
    let to_aborted = [to_topics, &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1], &[0; 30]].concat();
    let to_records = [&to_aborted[..], &[0xff; 4], &[0; 4]].concat();
    // Produce v8: one topic "t" with one partition up to its record errors.
    let to_errors = [&[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1][..], &[0; 30]].concat();
    // Produce v10: the same without an error text, up to the tagged leader of the partition.
    let to_leader = [&[2, 2, b't', 2][..], &[0; 30], &[COMPACT_NONE, 0]].concat();
    vec![
        row("fetch: topic count", FETCH, 11, &[to_topics, &ABSURD], "topics claims 2147483647 elements"),
        row(
            "fetch: partition count",
            FETCH,
            11,
            &[to_topics, &[0, 0, 0, 1, 0, 1, b't'], &ABSURD],
            "partitions claims 2147483647 elements",
        ),
        row(
            "fetch: aborted transaction count",
            FETCH,
            11,
            &[&to_aborted, &ABSURD, &[0; 8]],
            "aborted_transactions claims 2147483647 elements",
        ),
        row("fetch: records length", FETCH, 11, &[&to_records, &ABSURD], "records needs 2147483647 bytes"),
        row(
            "fetch: records length negative",
            FETCH,
            11,
            &[&to_records, &[0xff, 0xff, 0xff, 0xfb]],
            "records has the length -5",
        ),
        row("produce: topic count", PRODUCE, 8, &[&ABSURD], "topics claims 2147483647 elements"),
        row(
            "produce: record error count",
            PRODUCE,
            8,
            &[&to_errors, &ABSURD],
            "record_errors claims 2147483647 elements",
        ),
        row(
            "produce: leader hint longer than it is",
            PRODUCE,
            10,
            &[&to_leader, &[1, 0, 20], &[0; 8]],
            "tagged field needs 20 bytes",
        ),
        row("offsets by time: topic count", LIST_OFFSETS, 4, &[&NONE, &ABSURD], "field topics at byte 8"),
        row(
            "offsets by time: topic name null",
            LIST_OFFSETS,
            4,
            &[&NONE, &[0, 0, 0, 1, 0xff, 0xff]],
            "field name at byte 10: null is not allowed",
        ),
        row(
            "producer id: cut off",
            INIT_PRODUCER_ID,
            1,
            &[&[0; 9]],
            "field producer_id at byte 6: the message ends here",
        ),
    ]
}

fn groups() -> Vec<Row> {
    // JoinGroup v5 up to its members: throttle, error, generation, protocol, leader, member id.
    let to_members: &[u8] = &[0; 16];
    let member: &[u8] = &[0, 0, 0, 1, 0, 1, b'm', 0xff, 0xff];
    vec![
        row(
            "find coordinator: count",
            FIND_COORDINATOR,
            4,
            &[&NONE, &COMPACT_ABSURD],
            "field coordinators at byte 9",
        ),
        row(
            "find coordinator: error text length",
            FIND_COORDINATOR,
            2,
            &[&NONE, &[0, 0, 0x7f, 0xff]],
            "field error_message at byte 8: the value claims 32767",
        ),
        row("join: member count", JOIN_GROUP, 5, &[to_members, &ABSURD], "field members at byte 20"),
        row(
            "join: member metadata length",
            JOIN_GROUP,
            5,
            &[to_members, member, &ABSURD],
            "field metadata at byte 29: the value claims",
        ),
        row(
            "join: member metadata null",
            JOIN_GROUP,
            5,
            &[to_members, member, &[0xff; 4]],
            "field metadata at byte 29: null is not allowed",
        ),
        row(
            "sync: assignment length",
            SYNC_GROUP,
            3,
            &[&[0; 6], &ABSURD],
            "field assignment at byte 10: the value claims",
        ),
        row(
            "heartbeat: cut off",
            HEARTBEAT,
            3,
            &[&[0; 5]],
            "field error_code at byte 4: the message ends here",
        ),
        row("leave: member count", LEAVE_GROUP, 3, &[&[0; 6], &ABSURD], "field members at byte 10"),
        row(
            "committed offsets: group count",
            OFFSET_FETCH,
            8,
            &[&NONE, &COMPACT_ABSURD],
            "field groups at byte 9",
        ),
        row(
            "committed offsets: topic count",
            OFFSET_FETCH,
            6,
            &[&NONE, &COMPACT_ABSURD],
            "field topics at byte 9",
        ),
        row("commit: topic count", OFFSET_COMMIT, 7, &[&NONE, &ABSURD], "field topics at byte 8"),
        row(
            "commit: partition count",
            OFFSET_COMMIT,
            7,
            &[&NONE, &[0, 0, 0, 1, 0, 1, b't'], &ABSURD],
            "field partitions at byte 15",
        ),
    ]
}

fn admin() -> Vec<Row> {
    vec![
        row("create topics: count", CREATE_TOPICS, 4, &[&NONE, &ABSURD], "field topics at byte 8"),
        row(
            "create topics: error text not UTF-8",
            CREATE_TOPICS,
            4,
            &[&NONE, &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0xc0]],
            "field error_message at byte 16: the text is not UTF-8",
        ),
        row("delete topics: count", DELETE_TOPICS, 4, &[&NONE, &COMPACT_ABSURD], "field responses at byte 9"),
    ]
}

/// What other members of a group wrote travels through the broker as it is.
fn members() -> Vec<Row> {
    let subscription =
        |name, bytes: &[u8], text| Row { name, attack: Attack::Subscription(bytes.to_vec()), text };
    let assignment =
        |name, bytes: &[u8], text| Row { name, attack: Attack::Assignment(bytes.to_vec()), text };
    let v1: &[u8] = &[0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    let v3 = [&[0, 3][..], &v1[2..], &[0; 4]].concat();
    // One more than 2^18: topics without a name, and partitions 0 of one topic.
    let many = (1_i32 << 18) + 1;
    let topics = [&[0, 0][..], &many.to_be_bytes(), &vec![0; 2 * many as usize]].concat();
    let one_topic: &[u8] = &[0, 0, 0, 0, 0, 1, 0, 1, b't'];
    let partitions = [one_topic, &many.to_be_bytes(), &vec![0; 4 * many as usize]].concat();
    // Two topics, together over 2^18.
    let half = many / 2 + 1;
    let of = |name: u8| [&[0, 1, name][..], &half.to_be_bytes(), &vec![0; 4 * half as usize]].concat();
    let two_topics = [&[0, 0, 0, 0, 0, 2][..], &of(b't'), &of(b'u')].concat();
    vec![
        subscription("subscription: nothing", &[], "version: cut short"),
        subscription("subscription: version negative", &[0xff, 0xff], "version: negative"),
        subscription("subscription: topic count", &[&[0, 0][..], &ABSURD].concat(), "topics: count larger"),
        subscription("subscription: topic length", &[0, 0, 0, 0, 0, 1, 0x7f, 0xff], "topics: length larger"),
        subscription("subscription: topic not UTF-8", &[0, 0, 0, 0, 0, 1, 0, 1, 0xff], "topics: not UTF-8"),
        subscription("subscription: topic null", &[0, 0, 0, 0, 0, 1, 0xff, 0xff], "topics: null"),
        subscription(
            "subscription: user data length",
            &[&[0, 0], &NONE[..], &ABSURD].concat(),
            "user data: length larger",
        ),
        subscription(
            "subscription: owned topic count",
            &[v1, &ABSURD].concat(),
            "owned partitions: count larger",
        ),
        subscription(
            "subscription: owned partition count",
            &[v1, &[0, 0, 0, 1, 0, 1, b't'], &ABSURD].concat(),
            "owned partitions: count larger",
        ),
        subscription(
            "subscription: generation cut off",
            &[&v3[..], &[0, 0]].concat(),
            "generation: cut short",
        ),
        subscription(
            "subscription: rack length",
            &[&v3[..], &[0, 0, 0, 1, 0x7f, 0xff]].concat(),
            "rack: length larger",
        ),
        subscription(
            "subscription: more topics than a member may have",
            &topics,
            "topics: more entries than",
        ),
        assignment(
            "assignment: more partitions than a member may have",
            &partitions,
            "assigned partitions: more entries than",
        ),
        assignment(
            "assignment: more partitions in all than a member may have",
            &two_topics,
            "assigned partitions: more entries than",
        ),
        assignment(
            "assignment: partition negative",
            &[one_topic, &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]].concat(),
            "assigned partitions: negative partition",
        ),
        assignment("assignment: version negative", &[0x80, 0], "version: negative"),
        assignment(
            "assignment: topic count",
            &[&[0, 0][..], &ABSURD].concat(),
            "assigned partitions: count larger",
        ),
        assignment(
            "assignment: partition count",
            &[&[0, 0, 0, 0, 0, 1, 0, 1, b't'][..], &ABSURD].concat(),
            "assigned partitions: count larger",
        ),
        assignment(
            "assignment: user data length",
            &[&[0, 0], &NONE[..], &ABSURD].concat(),
            "user data: length larger",
        ),
    ]
}
