//! What can a client do to the broker of this crate: frames, headers, and requests that claim what they do not hold?

use std::time::Duration;

use prosody_base::Doors;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::bodies::{ABSURD, COMPACT_ABSURD, COMPACT_NONE, NONE};
use super::{Attack, Row};
use crate::{Cluster, ClusterConfig};

/// The topic that the attacked broker has, with one partition.
pub(super) const TOPIC: &str = "t";
/// For the end of the connection, on the paused clock.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a broker, writes these bytes to it on one connection, and waits until the broker ends it. An error is what the
/// broker had against them: why it closed the connection, or else the error code of its last answer, as `error 87: TEXT`
/// with the text of a refused batch. `Ok` when it had nothing against them.
///
/// # Panics
/// When the broker does not serve others any more.
///
/// # Errors
/// See above: for a row of the table, always.
pub async fn attack_broker(bytes: &[u8]) -> Result<(), String> {
    let cluster = Cluster::start(ClusterConfig::default(), Doors::simulated(1));
    let _ = cluster.create_topic(TOPIC, 1);
    let answered = exchange(&cluster, bytes).await;
    // ApiVersions v0 of somebody else: it is answered without an error.
    let hello = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 9, 0xff, 0xff];
    let served = exchange(&cluster, &hello).await;
    assert_eq!(served.get(4..10), Some(&[0, 0, 0, 9, 0, 0][..]), "others are not served any more");
    if let Some(why) = cluster.refusals().pop() {
        return Err(why);
    }
    match cluster.journal().iter().find(|entry| entry.error != 0) {
        Some(entry) => Err(format!("error {}: {}", entry.error, String::from_utf8_lossy(&answered))),
        None => Ok(()),
    }
}

/// Everything the broker answers to these bytes, until it has nothing more to say.
async fn exchange(cluster: &Cluster, bytes: &[u8]) -> Vec<u8> {
    let mut answered = Vec::new();
    if let Ok(stream) = cluster.network().connect("b1:9092") {
        let (mut read, mut write) = tokio::io::split(stream);
        let written = async {
            let _ = write.write_all(bytes).await;
            let _ = write.shutdown().await;
        };
        let both = async { tokio::join!(written, read.read_to_end(&mut answered)) };
        let _ = tokio::time::timeout(PATIENCE, both).await;
    }
    answered
}

/// A frame with its length.
pub(super) fn frame(content: &[u8]) -> Vec<u8> {
    [&(content.len() as i32).to_be_bytes(), content].concat()
}

/// A request without a client id.
pub(super) fn request(api: i16, version: i16, flexible: bool, body: &[u8]) -> Vec<u8> {
    let tags: &[u8] = if flexible { &[0] } else { &[] };
    frame(&[&api.to_be_bytes()[..], &version.to_be_bytes(), &[0, 0, 0, 1, 0xff, 0xff], tags, body].concat())
}

fn raw(name: &'static str, bytes: &[u8], text: &'static str) -> Row {
    Row { name, attack: Attack::Client(bytes.to_vec()), text }
}

fn header(name: &'static str, content: &[u8], text: &'static str) -> Row {
    raw(name, &frame(content), text)
}

/// In a version before compact lengths.
fn old(name: &'static str, api: i16, version: i16, parts: &[&[u8]], text: &'static str) -> Row {
    raw(name, &request(api, version, false, &parts.concat()), text)
}

/// In a version with compact lengths.
fn new(name: &'static str, api: i16, version: i16, parts: &[&[u8]], text: &'static str) -> Row {
    raw(name, &request(api, version, true, &parts.concat()), text)
}

pub(super) fn rows() -> Vec<Row> {
    [frames(), logs(), groups(), others()].concat()
}

fn frames() -> Vec<Row> {
    let metadata = |rest: &[u8]| [&[0, 3, 0, 12, 0, 0, 0, 1, 0xff, 0xff][..], rest].concat();
    vec![
        raw("client: frame length negative", &[0xff; 4], "a frame of -1 bytes; the limit is 104857600"),
        raw("client: frame length over the limit", b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes"),
        header("client: no API", &[], "a header that ends in its API key"),
        header("client: no version", &[0, 18, 0], "a header that ends in its version"),
        header("client: no correlation id", &[0, 18, 0, 3, 0], "a header that ends in its correlation id"),
        header("client: no client id", &[0, 3, 0, 0, 0, 0, 0, 1], "a header that ends in its client id"),
        header(
            "client: client id longer than its frame",
            &[0, 3, 0, 0, 0, 0, 0, 1, 127, 255],
            "a header whose client id claims 32767 bytes, 0 remain",
        ),
        header(
            "client: client id of a negative length",
            &[0, 3, 0, 0, 0, 0, 0, 1, 255, 254],
            "a header whose client id claims -2 bytes",
        ),
        header(
            "client: tagged fields of a header",
            &metadata(&[65, 0]),
            "a header with 65 tagged fields; the limit is 64",
        ),
        header(
            "client: tag without an end",
            &metadata(&[1, 255, 255, 255, 255, 255]),
            "whose tag has no end",
        ),
        header(
            "client: size of a tagged field",
            &metadata(&[1, 0, 99, 0]),
            "a header whose tagged field claims 99 bytes, 1 remain",
        ),
        old("client: unknown API", 99, 0, &[], "(99) v0 is not served"),
        new("client: version that does not exist", 3, 77, &[], "Metadata(3) v77 is not served"),
    ]
}

fn logs() -> Vec<Row> {
    let topic: &[u8] = &[0, 0, 0, 1, 0, 1, b't'];
    // Fetch v4 up to its topics: replica, wait, bytes, isolation. Version 12 has a session too.
    let (fetch_4, fetch_12): (&[u8], &[u8]) = (&[0; 17], &[0; 25]);
    vec![
        old(
            "client: topic count of Produce",
            0,
            8,
            &[&[0xff, 0xff], &[0; 6], &ABSURD],
            "field topic_data at",
        ),
        old(
            "client: partition count of Produce",
            0,
            8,
            &[&[0xff, 0xff], &[0; 6], topic, &ABSURD],
            "field partition_data at",
        ),
        old(
            "client: length of records",
            0,
            8,
            &[&[0xff, 0xff], &[0; 6], topic, &[0, 0, 0, 1, 0, 0, 0, 0], &ABSURD],
            "field records at byte 27: the value claims 2147483647",
        ),
        old("client: topic count of Fetch", 1, 4, &[fetch_4, &ABSURD], "field topics at byte 21"),
        old(
            "client: partition count of Fetch",
            1,
            4,
            &[fetch_4, topic, &ABSURD],
            "field partitions at byte 28",
        ),
        new(
            "client: topics that are forgotten",
            1,
            12,
            &[fetch_12, &[COMPACT_NONE], &COMPACT_ABSURD],
            "field forgotten_topics_data at byte 31",
        ),
        new(
            "client: rack of a reader",
            1,
            12,
            &[fetch_12, &[COMPACT_NONE, COMPACT_NONE, 2, 0xff]],
            "field rack_id at byte 29: the text is not UTF-8",
        ),
        old("client: topic count of ListOffsets", 2, 1, &[&[0xff; 4], &ABSURD], "field topics at byte 8"),
        old(
            "client: topic without a name in ListOffsets",
            2,
            1,
            &[&[0xff; 4], &[0, 0, 0, 1, 0xff, 0xff]],
            "field name at byte 10: null is not allowed",
        ),
        old(
            "client: topic count of OffsetForLeaderEpoch",
            23,
            3,
            &[&[0xff; 4], &ABSURD],
            "field topics at byte 8",
        ),
        old("client: topic count of DeleteRecords", 21, 1, &[&ABSURD], "field topics at byte 4"),
        old(
            "client: name of a transaction",
            22,
            0,
            &[&[0x7f, 0xff]],
            "field transactional_id at byte 2: the value claims 32767",
        ),
        old(
            "client: topics of a transaction",
            24,
            0,
            &[&[0, 1, b'x'], &[0; 10], &ABSURD],
            "field topics at byte 17",
        ),
        old(
            "client: transaction that ends nowhere",
            26,
            0,
            &[&[0, 1, b'x'], &[0; 10]],
            "field committed at byte 13",
        ),
    ]
}

fn groups() -> Vec<Row> {
    let group: &[u8] = &[0, 1, b'g'];
    // JoinGroup v5 up to its protocols: group, times, no member id, no instance, protocol type.
    let to_protocols = [group, &[0; 8], &[0, 0, 0xff, 0xff, 0, 1, b'c']].concat();
    // OffsetCommit v7: group, generation, no member id, no instance; one topic with one partition, offset and epoch.
    let to_topics = [group, &[0; 4], &[0, 0, 0xff, 0xff]].concat();
    let to_metadata = [&to_topics[..], &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1], &[0; 16]].concat();
    vec![
        old("client: topic count of OffsetCommit", 8, 7, &[&to_topics, &ABSURD], "field topics at byte 15"),
        old(
            "client: metadata of a commit",
            8,
            7,
            &[&to_metadata, &[0x7f, 0xff]],
            "field committed_metadata at byte 40: the value claims 32767",
        ),
        new("client: group count of OffsetFetch", 9, 8, &[&COMPACT_ABSURD], "field groups at byte 5"),
        new(
            "client: partition count of OffsetFetch",
            9,
            8,
            &[&[2, 2, b'g', 2, 2, b't'], &COMPACT_ABSURD],
            "field partition_indexes at byte 11",
        ),
        new(
            "client: key count of FindCoordinator",
            10,
            4,
            &[&[0], &COMPACT_ABSURD],
            "field coordinator_keys at",
        ),
        old(
            "client: protocol count of JoinGroup",
            11,
            5,
            &[&to_protocols, &ABSURD],
            "field protocols at byte 22",
        ),
        old(
            "client: metadata of a protocol",
            11,
            5,
            &[&to_protocols, &[0, 0, 0, 1, 0, 1, b'p'], &ABSURD],
            "field metadata at byte 29: the value claims 2147483647",
        ),
        old(
            "client: group of a heartbeat",
            12,
            0,
            &[&[0, 9, b'g']],
            "field group_id at byte 2: the value claims 9",
        ),
        old("client: member count of LeaveGroup", 13, 3, &[group, &ABSURD], "field members at byte 7"),
        old(
            "client: assignment count of SyncGroup",
            14,
            0,
            &[group, &NONE, &[0, 0], &ABSURD],
            "field assignments at byte 13",
        ),
        old(
            "client: assignment of a member",
            14,
            0,
            &[group, &NONE, &[0, 0, 0, 0, 0, 1, 0, 1, b'm'], &ABSURD],
            "field assignment at byte 20: the value claims",
        ),
        old("client: group count of DescribeGroups", 15, 0, &[&ABSURD], "field groups at byte 4"),
        new("client: states of ListGroups", 16, 4, &[&COMPACT_ABSURD], "field states_filter at byte 5"),
        old("client: group count of DeleteGroups", 42, 0, &[&ABSURD], "field groups_names at byte 4"),
        old("client: topic count of OffsetDelete", 47, 0, &[group, &ABSURD], "field topics at byte 7"),
        new(
            "client: topics of a consumer heartbeat",
            68,
            0,
            &[&[2, b'g', 2, b'm'], &NONE, &[0, 0], &NONE, &COMPACT_ABSURD],
            "field subscribed_topic_names at byte 19",
        ),
        new(
            "client: partitions of a consumer heartbeat",
            68,
            0,
            &[&[2, b'g', 2, b'm'], &NONE, &[0, 0], &NONE, &[0, 0, 2], &[9; 16], &COMPACT_ABSURD],
            "field partitions at byte 38",
        ),
        new(
            "client: group count of ConsumerGroupDescribe",
            69,
            0,
            &[&COMPACT_ABSURD],
            "field group_ids at byte 5",
        ),
    ]
}

fn others() -> Vec<Row> {
    let topic: &[u8] = &[0, 0, 0, 1, 0, 1, b't'];
    vec![
        old("client: topic count of Metadata", 3, 1, &[&ABSURD], "field topics at byte 4"),
        old("client: mechanism of SaslHandshake", 17, 1, &[&[0x7f, 0xff]], "field mechanism at byte 2"),
        new(
            "client: name of the software",
            18,
            3,
            &[&COMPACT_ABSURD],
            "field client_software_name at byte 5",
        ),
        old("client: topic count of CreateTopics", 19, 2, &[&ABSURD], "field topics at byte 4"),
        old(
            "client: assignment count of CreateTopics",
            19,
            2,
            &[topic, &[0; 6], &ABSURD],
            "field assignments at byte 17",
        ),
        old(
            "client: replica count of CreateTopics",
            19,
            2,
            &[topic, &[0; 6], &[0, 0, 0, 1, 0, 0, 0, 0], &ABSURD],
            "field broker_ids at byte 25",
        ),
        old(
            "client: setting count of CreateTopics",
            19,
            2,
            &[topic, &[0; 6], &NONE, &ABSURD],
            "field configs at byte 21",
        ),
        old("client: topic count of DeleteTopics", 20, 1, &[&ABSURD], "field topic_names at byte 4"),
        old("client: resource count of DescribeConfigs", 32, 1, &[&ABSURD], "field resources at byte 4"),
        old(
            "client: key count of DescribeConfigs",
            32,
            1,
            &[&[0, 0, 0, 1, 2, 0, 1, b't'], &ABSURD],
            "field configuration_keys at byte 12",
        ),
        old("client: resource count of AlterConfigs", 33, 0, &[&ABSURD], "field resources at byte 4"),
        old("client: length of a token", 36, 0, &[&ABSURD], "field auth_bytes at byte 4: the value claims"),
        old("client: topic count of CreatePartitions", 37, 0, &[&ABSURD], "field topics at byte 4"),
        old(
            "client: setting count of IncrementalAlterConfigs",
            44,
            0,
            &[&[0, 0, 0, 1, 2, 0, 1, b't'], &ABSURD],
            "field configs at byte 12",
        ),
        new(
            "client: nothing of DescribeCluster",
            60,
            0,
            &[],
            "field include_cluster_authorized_operations at",
        ),
    ]
}
