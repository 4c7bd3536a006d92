//! Which fields do the messages of consumer groups have?

use crate::guard::schema::{
    Api, Field, NEVER, blob, flag, int8, int16, int32, int32s, int64, object, structs, text, texts, uuid,
};

pub(super) const APIS: &[Api] = &[
    Api {
        key: 8,
        name: "OffsetCommit",
        versions: (2, 9),
        flexible: 8,
        request: &[
            text("group_id"),
            int32("generation_id_or_member_epoch"),
            text("member_id"),
            text("group_instance_id").since(7).nullable(7),
            int64("retention_time_ms").until(4),
            structs(
                "topics",
                &[
                    text("name"),
                    structs(
                        "partitions",
                        &[
                            int32("partition_index"),
                            int64("committed_offset"),
                            int32("committed_leader_epoch").since(6),
                            text("committed_metadata").nullable(0),
                        ],
                    ),
                ],
            ),
        ],
        response: &[
            int32("throttle_time_ms").since(3),
            structs(
                "topics",
                &[text("name"), structs("partitions", &[int32("partition_index"), int16("error_code")])],
            ),
        ],
    },
    Api {
        key: 9,
        name: "OffsetFetch",
        versions: (1, 9),
        flexible: 6,
        request: &[
            text("group_id").until(7),
            structs("topics", &[text("name"), int32s("partition_indexes")]).until(7).nullable(2),
            structs(
                "groups",
                &[
                    text("group_id"),
                    text("member_id").since(9).nullable(9),
                    int32("member_epoch").since(9),
                    structs("topics", &[text("name"), int32s("partition_indexes")]).nullable(8),
                ],
            )
            .since(8),
            flag("require_stable").since(7),
        ],
        response: &[
            int32("throttle_time_ms").since(3),
            structs("topics", COMMITTED).until(7),
            int16("error_code").since(2).until(7),
            structs("groups", &[text("group_id"), structs("topics", COMMITTED), int16("error_code")])
                .since(8),
        ],
    },
    Api {
        key: 11,
        name: "JoinGroup",
        versions: (0, 9),
        flexible: 6,
        request: &[
            text("group_id"),
            int32("session_timeout_ms"),
            int32("rebalance_timeout_ms").since(1),
            text("member_id"),
            text("group_instance_id").since(5).nullable(5),
            text("protocol_type"),
            structs("protocols", &[text("name"), blob("metadata")]),
            text("reason").since(8).nullable(8),
        ],
        response: &[
            int32("throttle_time_ms").since(2),
            int16("error_code"),
            int32("generation_id"),
            text("protocol_type").since(7).nullable(7),
            text("protocol_name").nullable(7),
            text("leader"),
            flag("skip_assignment").since(9),
            text("member_id"),
            structs(
                "members",
                &[text("member_id"), text("group_instance_id").since(5).nullable(5), blob("metadata")],
            ),
        ],
    },
    Api {
        key: 12,
        name: "Heartbeat",
        versions: (0, 4),
        flexible: 4,
        request: &[
            text("group_id"),
            int32("generation_id"),
            text("member_id"),
            text("group_instance_id").since(3).nullable(3),
        ],
        response: &[int32("throttle_time_ms").since(1), int16("error_code")],
    },
    Api {
        key: 13,
        name: "LeaveGroup",
        versions: (0, 5),
        flexible: 4,
        request: &[
            text("group_id"),
            text("member_id").until(2),
            structs(
                "members",
                &[
                    text("member_id"),
                    text("group_instance_id").nullable(3),
                    text("reason").since(5).nullable(5),
                ],
            )
            .since(3),
        ],
        response: &[
            int32("throttle_time_ms").since(1),
            int16("error_code"),
            structs(
                "members",
                &[text("member_id"), text("group_instance_id").nullable(3), int16("error_code")],
            )
            .since(3),
        ],
    },
    Api {
        key: 14,
        name: "SyncGroup",
        versions: (0, 5),
        flexible: 4,
        request: &[
            text("group_id"),
            int32("generation_id"),
            text("member_id"),
            text("group_instance_id").since(3).nullable(3),
            text("protocol_type").since(5).nullable(5),
            text("protocol_name").since(5).nullable(5),
            structs("assignments", &[text("member_id"), blob("assignment")]),
        ],
        response: &[
            int32("throttle_time_ms").since(1),
            int16("error_code"),
            text("protocol_type").since(5).nullable(5),
            text("protocol_name").since(5).nullable(5),
            blob("assignment"),
        ],
    },
    Api {
        key: 15,
        name: "DescribeGroups",
        versions: (0, 6),
        flexible: 5,
        request: &[texts("groups"), flag("include_authorized_operations").since(3)],
        response: &[
            int32("throttle_time_ms").since(1),
            structs(
                "groups",
                &[
                    int16("error_code"),
                    text("error_message").since(6).nullable(6),
                    text("group_id"),
                    text("group_state"),
                    text("protocol_type"),
                    text("protocol_data"),
                    structs(
                        "members",
                        &[
                            text("member_id"),
                            text("group_instance_id").since(4).nullable(4),
                            text("client_id"),
                            text("client_host"),
                            blob("member_metadata"),
                            blob("member_assignment"),
                        ],
                    ),
                    int32("authorized_operations").since(3),
                ],
            ),
        ],
    },
    Api {
        key: 16,
        name: "ListGroups",
        versions: (0, 5),
        flexible: 3,
        request: &[texts("states_filter").since(4), texts("types_filter").since(5)],
        response: &[
            int32("throttle_time_ms").since(1),
            int16("error_code"),
            structs(
                "groups",
                &[
                    text("group_id"),
                    text("protocol_type"),
                    text("group_state").since(4),
                    text("group_type").since(5),
                ],
            ),
        ],
    },
    Api {
        key: 42,
        name: "DeleteGroups",
        versions: (0, 2),
        flexible: 2,
        request: &[texts("groups_names")],
        response: &[int32("throttle_time_ms"), structs("results", &[text("group_id"), int16("error_code")])],
    },
    Api {
        key: 47,
        name: "OffsetDelete",
        versions: (0, 0),
        flexible: NEVER,
        request: &[
            text("group_id"),
            structs("topics", &[text("name"), structs("partitions", &[int32("partition_index")])]),
        ],
        response: &[
            int16("error_code"),
            int32("throttle_time_ms"),
            structs(
                "topics",
                &[text("name"), structs("partitions", &[int32("partition_index"), int16("error_code")])],
            ),
        ],
    },
    Api {
        key: 68,
        name: "ConsumerGroupHeartbeat",
        versions: (0, 1),
        flexible: 0,
        request: &[
            text("group_id"),
            text("member_id"),
            int32("member_epoch"),
            text("instance_id").nullable(0),
            text("rack_id").nullable(0),
            int32("rebalance_timeout_ms"),
            texts("subscribed_topic_names").nullable(0),
            text("subscribed_topic_regex").since(1).nullable(1),
            text("server_assignor").nullable(0),
            structs("topic_partitions", &[uuid("topic_id"), int32s("partitions")]).nullable(0),
        ],
        response: &[
            int32("throttle_time_ms"),
            int16("error_code"),
            text("error_message").nullable(0),
            text("member_id").nullable(0),
            int32("member_epoch"),
            int32("heartbeat_interval_ms"),
            object("assignment", &[structs("topic_partitions", &[uuid("topic_id"), int32s("partitions")])])
                .nullable(0),
        ],
    },
    Api {
        key: 69,
        name: "ConsumerGroupDescribe",
        versions: (0, 1),
        flexible: 0,
        request: &[texts("group_ids"), flag("include_authorized_operations")],
        response: &[
            int32("throttle_time_ms"),
            structs(
                "groups",
                &[
                    int16("error_code"),
                    text("error_message").nullable(0),
                    text("group_id"),
                    text("group_state"),
                    int32("group_epoch"),
                    int32("assignment_epoch"),
                    text("assignor_name"),
                    structs(
                        "members",
                        &[
                            text("member_id"),
                            text("instance_id").nullable(0),
                            text("rack_id").nullable(0),
                            int32("member_epoch"),
                            text("client_id"),
                            text("client_host"),
                            texts("subscribed_topic_names"),
                            text("subscribed_topic_regex").nullable(0),
                            object("assignment", NAMED_PLACES),
                            object("target_assignment", NAMED_PLACES),
                            int8("member_type").since(1),
                        ],
                    ),
                    int32("authorized_operations"),
                ],
            ),
        ],
    },
];

/// Partitions with the ids and names of their topics.
const NAMED_PLACES: &[Field] =
    &[structs("topic_partitions", &[uuid("topic_id"), text("topic_name"), int32s("partitions")])];

/// Committed offsets of one topic.
const COMMITTED: &[Field] = &[
    text("name"),
    structs(
        "partitions",
        &[
            int32("partition_index"),
            int64("committed_offset"),
            int32("committed_leader_epoch").since(5),
            text("metadata").nullable(0),
            int16("error_code"),
        ],
    ),
];
