//! What can be wrong with answers about topics, settings, groups and the cluster?

use super::Row;
use super::bodies::{ABSURD, COMPACT_ABSURD, COMPACT_NONE, NONE, row};

const DESCRIBE_GROUPS: i16 = 15;
const LIST_GROUPS: i16 = 16;
const CREATE_TOPICS: i16 = 19;
const DELETE_TOPICS: i16 = 20;
const DELETE_RECORDS: i16 = 21;
const DESCRIBE_CONFIGS: i16 = 32;
const CREATE_PARTITIONS: i16 = 37;
const DELETE_GROUPS: i16 = 42;
const INCREMENTAL_ALTER_CONFIGS: i16 = 44;
const DESCRIBE_CLUSTER: i16 = 60;
const CONSUMER_GROUP_DESCRIBE: i16 = 69;

pub(super) fn rows() -> Vec<Row> {
    [topics(), settings(), groups(), consumer_groups(), cluster()].concat()
}

fn topics() -> Vec<Row> {
    // CreateTopics v7: one topic "t" with its id and no error text, up to its partitions.
    let to_partitions = [&NONE[..], &[2, 2, b't'], &[0; 16], &[0, 0], &[0]].concat();
    // The same up to its tagged fields: partitions, replication, no settings.
    let to_tags = [&to_partitions[..], &[0, 0, 0, 1, 0, 1, COMPACT_NONE]].concat();
    let to_configs = [&to_partitions[..], &[0, 0, 0, 1, 0, 1]].concat();
    let v7 = |name, body: &[u8], text| row(name, CREATE_TOPICS, 7, &[body], text);
    vec![
        v7(
            "create topics: topic id cut off",
            &[&NONE[..], &[2, 2, b't', 9, 9, 9]].concat(),
            "field topic_id at byte 7: the message ends here",
        ),
        v7(
            "create topics: setting count",
            &[&to_configs[..], &COMPACT_ABSURD].concat(),
            "field configs at byte 37: the list claims",
        ),
        v7(
            "create topics: setting without a name",
            &[&to_configs[..], &[2, 0], &[0; 8]].concat(),
            "field name at byte 34: null is not allowed",
        ),
        v7(
            "create topics: setting with an absurd value",
            &[&to_configs[..], &[2, 2, b'n', 0x70], &[0; 8]].concat(),
            "field value at byte 36: the value claims 111 bytes",
        ),
        v7(
            "create topics: tagged error longer than it is",
            &[&to_tags[..], &[1, 0, 5, 0, 0, 0, 0, 0]].concat(),
            "tagged field 0 is 3 bytes too long",
        ),
        v7(
            "create topics: tagged error shorter than it is",
            &[&to_tags[..], &[1, 0, 1, 0, 0, 0]].concat(),
            "field topic_config_error_code at byte 38: the message ends here",
        ),
        row(
            "delete topics: topic name length",
            DELETE_TOPICS,
            4,
            &[&NONE, &[2, 0x60, b't', 0, 0, 0]],
            "field name at byte 6: the value claims 95 bytes",
        ),
        row(
            "delete topics: error text length",
            DELETE_TOPICS,
            5,
            &[&NONE, &[2, 2, b't', 0, 0, 0x60]],
            "field error_message at byte 10: the value claims 95 bytes",
        ),
        row(
            "grow topics: count",
            CREATE_PARTITIONS,
            1,
            &[&NONE, &ABSURD],
            "field results at byte 8: the list claims",
        ),
        row(
            "grow topics: topic name null",
            CREATE_PARTITIONS,
            1,
            &[&NONE, &[0, 0, 0, 1, 0xff, 0xff, 0, 0]],
            "field name at byte 10: null is not allowed",
        ),
        row(
            "grow topics: error text not UTF-8",
            CREATE_PARTITIONS,
            1,
            &[&NONE, &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0xff]],
            "field error_message at byte 16: the text is not UTF-8",
        ),
        row(
            "delete records: topic count",
            DELETE_RECORDS,
            1,
            &[&NONE, &ABSURD],
            "field topics at byte 8: the list claims",
        ),
        row(
            "delete records: partition count",
            DELETE_RECORDS,
            1,
            &[&NONE, &[0, 0, 0, 1, 0, 1, b't'], &ABSURD],
            "field partitions at byte 15: the list claims",
        ),
        row(
            "delete records: mark cut off",
            DELETE_RECORDS,
            1,
            &[&NONE, &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]],
            "field low_watermark at byte 19: the message ends here",
        ),
    ]
}

fn settings() -> Vec<Row> {
    // DescribeConfigs v1: one result without an error, of topic "t", up to its settings.
    let to_configs = [&NONE[..], &[0, 0, 0, 1, 0, 0, 0xff, 0xff, 2, 0, 1, b't']].concat();
    // One setting "n" without a value, up to its synonyms.
    let to_synonyms = [&to_configs[..], &[0, 0, 0, 1, 0, 1, b'n', 0xff, 0xff, 0, 0, 0]].concat();
    let v1 = |name, body: &[u8], text| row(name, DESCRIBE_CONFIGS, 1, &[body], text);
    vec![
        v1("settings: count", &[NONE, ABSURD].concat(), "field results at byte 8: the list claims"),
        v1(
            "settings: error text length",
            &[&NONE[..], &[0, 0, 0, 1, 0, 0, 0x7f, 0xff]].concat(),
            "field error_message at byte 12: the value claims 32767",
        ),
        v1(
            "settings: resource without a name",
            &[&NONE[..], &[0, 0, 0, 1, 0, 0, 0xff, 0xff, 2, 0xff, 0xff]].concat(),
            "field resource_name at byte 15: null is not allowed",
        ),
        v1(
            "settings: entry count",
            &[&to_configs[..], &ABSURD].concat(),
            "field configs at byte 20: the list claims",
        ),
        v1(
            "settings: entry without a name",
            &[&to_configs[..], &[0, 0, 0, 1, 0xff, 0xff]].concat(),
            "field name at byte 22: null is not allowed",
        ),
        v1(
            "settings: value length",
            &[&to_configs[..], &[0, 0, 0, 1, 0, 1, b'n', 0x7f, 0xff]].concat(),
            "field value at byte 25: the value claims 32767",
        ),
        v1(
            "settings: synonym count",
            &[&to_synonyms[..], &ABSURD].concat(),
            "field synonyms at byte 32: the list claims",
        ),
        v1(
            "settings: synonym source cut off",
            &[&to_synonyms[..], &[0, 0, 0, 1, 0, 1, b's', 0xff, 0xff]].concat(),
            "field source at byte 37: the message ends here",
        ),
        row(
            "settings: documentation length",
            DESCRIBE_CONFIGS,
            3,
            &[&to_synonyms, &NONE, &[1, 0x7f, 0xff]],
            "field documentation at byte 35: the value claims 32767",
        ),
        row(
            "changed settings: count",
            INCREMENTAL_ALTER_CONFIGS,
            0,
            &[&NONE, &ABSURD],
            "field responses at byte 8: the list claims",
        ),
        row(
            "changed settings: error text not UTF-8",
            INCREMENTAL_ALTER_CONFIGS,
            0,
            &[&NONE, &[0, 0, 0, 1, 0, 0, 0, 1, 0xc3]],
            "field error_message at byte 13: the text is not UTF-8",
        ),
        row(
            "changed settings: resource name length",
            INCREMENTAL_ALTER_CONFIGS,
            0,
            &[&NONE, &[0, 0, 0, 1, 0, 0, 0xff, 0xff, 2, 0x7f, 0xff]],
            "field resource_name at byte 15: the value claims 32767",
        ),
    ]
}

fn groups() -> Vec<Row> {
    // DescribeGroups v0: one group "g" in no state, up to its members.
    let to_members = [0, 0, 0, 1, 0, 0, 0, 1, b'g', 0, 0, 0, 0, 0, 0];
    // One member "m" of client "c" at host "h", up to its metadata.
    let to_metadata = [&to_members[..], &[0, 0, 0, 1, 0, 1, b'm', 0, 1, b'c', 0, 1, b'h']].concat();
    let v0 = |name, body: &[u8], text| row(name, DESCRIBE_GROUPS, 0, &[body], text);
    vec![
        v0("groups: count", &ABSURD, "field groups at byte 4: the list claims"),
        v0(
            "groups: state not UTF-8",
            &[0, 0, 0, 1, 0, 0, 0, 1, b'g', 0, 1, 0xff, 0, 0],
            "field group_state at byte 12: the text is not UTF-8",
        ),
        v0(
            "groups: name of the assignor length",
            &[0, 0, 0, 1, 0, 0, 0, 1, b'g', 0, 0, 0, 0, 0x7f, 0xff],
            "field protocol_data at byte 15: the value claims 32767",
        ),
        v0(
            "groups: member count",
            &[&to_members[..], &ABSURD].concat(),
            "field members at byte 19: the list claims",
        ),
        v0(
            "groups: member without an id",
            &[&to_members[..], &[0, 0, 0, 1, 0xff, 0xff]].concat(),
            "field member_id at byte 21: null is not allowed",
        ),
        v0(
            "groups: member metadata length",
            &[&to_metadata[..], &ABSURD].concat(),
            "field member_metadata at byte 32: the value claims 2147483647",
        ),
        v0(
            "groups: member assignment length",
            &[&to_metadata[..], &NONE, &ABSURD].concat(),
            "field member_assignment at byte 36: the value claims 2147483647",
        ),
        row("listed groups: count", LIST_GROUPS, 0, &[&[0, 0], &ABSURD], "field groups at byte 6: the list"),
        row(
            "listed groups: group without a name",
            LIST_GROUPS,
            0,
            &[&[0, 0, 0, 0, 0, 1, 0xff, 0xff]],
            "field group_id at byte 8: null is not allowed",
        ),
        row(
            "listed groups: state length",
            LIST_GROUPS,
            4,
            &[&NONE, &[0, 0, 2, 2, b'g', 1, 0x60]],
            "field group_state at byte 11: the value claims 95 bytes",
        ),
        row(
            "deleted groups: count",
            DELETE_GROUPS,
            1,
            &[&NONE, &ABSURD],
            "field results at byte 8: the list claims",
        ),
        row(
            "deleted groups: name not UTF-8",
            DELETE_GROUPS,
            1,
            &[&NONE, &[0, 0, 0, 1, 0, 1, 0xff]],
            "field group_id at byte 11: the text is not UTF-8",
        ),
    ]
}

fn consumer_groups() -> Vec<Row> {
    // ConsumerGroupDescribe v0: one group "g" without error, state, epochs and assignor, up to its members.
    let to_members = [&NONE[..], &[2, 0, 0, 0, 2, b'g', 1], &[0; 8], &[1]].concat();
    // One member "m" of client "c" that subscribed to nothing, up to what it is assigned.
    let member = [2, 2, b'm', 0, 0, 0, 0, 0, 0, 2, b'c', 1, COMPACT_NONE, 0];
    let to_assignment = [&to_members[..], &member].concat();
    let v0 = |name, body: &[u8], text| row(name, CONSUMER_GROUP_DESCRIBE, 0, &[body], text);
    vec![
        v0(
            "consumer groups: count",
            &[&NONE[..], &COMPACT_ABSURD].concat(),
            "field groups at byte 9: the list claims",
        ),
        v0(
            "consumer groups: member count",
            &[&to_members[..], &COMPACT_ABSURD].concat(),
            "field members at byte 25: the list claims",
        ),
        v0(
            "consumer groups: member without an id",
            &[&to_members[..], &[2, 0]].concat(),
            "field member_id at byte 22: null is not allowed",
        ),
        v0(
            "consumer groups: count of assigned topics",
            &[&to_assignment[..], &COMPACT_ABSURD].concat(),
            "field topic_partitions at byte 39: the list claims",
        ),
        v0(
            "consumer groups: assigned topic without a name",
            &[&to_assignment[..], &[2], &[7; 16], &[0]].concat(),
            "field topic_name at byte 52: null is not allowed",
        ),
    ]
}

fn cluster() -> Vec<Row> {
    // DescribeCluster v0 up to its brokers: no error, cluster "c", controller 0.
    let to_brokers = [&NONE[..], &[0, 0, 0, 2, b'c', 0, 0, 0, 0]].concat();
    let v0 = |name, body: &[u8], text| row(name, DESCRIBE_CLUSTER, 0, &[body], text);
    vec![
        v0(
            "cluster: error text length",
            &[&NONE[..], &[0, 0, 0x60]].concat(),
            "field error_message at byte 7: the value claims 95 bytes",
        ),
        v0(
            "cluster: without an id",
            &[&NONE[..], &[0, 0, 0, 0]].concat(),
            "field cluster_id at byte 8: null is not allowed",
        ),
        v0(
            "cluster: broker count",
            &[&to_brokers[..], &COMPACT_ABSURD].concat(),
            "field brokers at byte 18: the list claims",
        ),
        v0(
            "cluster: broker without a host",
            &[&to_brokers[..], &[2, 0, 0, 0, 1, 0]].concat(),
            "field host at byte 19: null is not allowed",
        ),
        v0(
            "cluster: rack not UTF-8",
            &[&to_brokers[..], &[2, 0, 0, 0, 1, 2, b'h', 0, 0, 0, 1, 2, 0xff]].concat(),
            "field rack at byte 26: the text is not UTF-8",
        ),
    ]
}
