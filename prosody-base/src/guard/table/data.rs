//! Which fields do the messages have that carry records, and those about offsets in logs?

use crate::guard::schema::{
    Api, Field, blob, flag, int8, int16, int32, int32s, int64, object, structs, text, uuid,
};

pub(super) const APIS: &[Api] = &[
    Api {
        key: 0,
        name: "Produce",
        versions: (3, 13),
        flexible: 9,
        request: &[
            text("transactional_id").nullable(3),
            int16("acks"),
            int32("timeout_ms"),
            structs(
                "topic_data",
                &[
                    text("name").until(12),
                    uuid("topic_id").since(13),
                    structs("partition_data", &[int32("index"), blob("records").nullable(3)]),
                ],
            ),
        ],
        response: &[
            structs(
                "responses",
                &[
                    text("name").until(12),
                    uuid("topic_id").since(13),
                    structs(
                        "partition_responses",
                        &[
                            int32("index"),
                            int16("error_code"),
                            int64("base_offset"),
                            int64("log_append_time_ms"),
                            int64("log_start_offset").since(5),
                            structs(
                                "record_errors",
                                &[int32("batch_index"), text("batch_index_error_message").nullable(8)],
                            )
                            .since(8),
                            text("error_message").since(8).nullable(8),
                            object("current_leader", LEADER).since(10).tag(0),
                        ],
                    ),
                ],
            ),
            int32("throttle_time_ms"),
            structs("node_endpoints", NODE).since(10).tag(0),
        ],
    },
    Api {
        key: 1,
        name: "Fetch",
        versions: (4, 18),
        flexible: 12,
        request: &[
            text("cluster_id").since(12).nullable(12).tag(0),
            int32("replica_id").until(14),
            object("replica_state", &[int32("replica_id"), int64("replica_epoch")]).since(15).tag(1),
            int32("max_wait_ms"),
            int32("min_bytes"),
            int32("max_bytes"),
            int8("isolation_level"),
            int32("session_id").since(7),
            int32("session_epoch").since(7),
            structs(
                "topics",
                &[
                    text("topic").until(12),
                    uuid("topic_id").since(13),
                    structs(
                        "partitions",
                        &[
                            int32("partition"),
                            int32("current_leader_epoch").since(9),
                            int64("fetch_offset"),
                            int32("last_fetched_epoch").since(12),
                            int64("log_start_offset").since(5),
                            int32("partition_max_bytes"),
                            uuid("replica_directory_id").since(17).tag(0),
                            int64("high_watermark").since(18).tag(1),
                        ],
                    ),
                ],
            ),
            structs(
                "forgotten_topics_data",
                &[text("topic").until(12), uuid("topic_id").since(13), int32s("partitions")],
            )
            .since(7),
            text("rack_id").since(11),
        ],
        response: &[
            int32("throttle_time_ms"),
            int16("error_code").since(7),
            int32("session_id").since(7),
            structs(
                "responses",
                &[
                    text("topic").until(12),
                    uuid("topic_id").since(13),
                    structs(
                        "partitions",
                        &[
                            int32("partition_index"),
                            int16("error_code"),
                            int64("high_watermark"),
                            int64("last_stable_offset"),
                            int64("log_start_offset").since(5),
                            object("diverging_epoch", &[int32("epoch"), int64("end_offset")])
                                .since(12)
                                .tag(0),
                            object("current_leader", LEADER).since(12).tag(1),
                            object("snapshot_id", &[int64("end_offset"), int32("epoch")]).since(12).tag(2),
                            structs("aborted_transactions", &[int64("producer_id"), int64("first_offset")])
                                .nullable(4),
                            int32("preferred_read_replica").since(11),
                            blob("records").nullable(4),
                        ],
                    ),
                ],
            ),
            structs("node_endpoints", NODE).since(16).tag(0),
        ],
    },
    Api {
        key: 2,
        name: "ListOffsets",
        versions: (1, 10),
        flexible: 6,
        request: &[
            int32("replica_id"),
            int8("isolation_level").since(2),
            structs(
                "topics",
                &[
                    text("name"),
                    structs(
                        "partitions",
                        &[
                            int32("partition_index"),
                            int32("current_leader_epoch").since(4),
                            int64("timestamp"),
                        ],
                    ),
                ],
            ),
            int32("timeout_ms").since(10),
        ],
        response: &[
            int32("throttle_time_ms").since(2),
            structs(
                "topics",
                &[
                    text("name"),
                    structs(
                        "partitions",
                        &[
                            int32("partition_index"),
                            int16("error_code"),
                            int64("timestamp"),
                            int64("offset"),
                            int32("leader_epoch").since(4),
                        ],
                    ),
                ],
            ),
        ],
    },
    Api {
        key: 22,
        name: "InitProducerId",
        versions: (0, 5),
        flexible: 2,
        request: &[
            text("transactional_id").nullable(0),
            int32("transaction_timeout_ms"),
            int64("producer_id").since(3),
            int16("producer_epoch").since(3),
        ],
        response: &[
            int32("throttle_time_ms"),
            int16("error_code"),
            int64("producer_id"),
            int16("producer_epoch"),
        ],
    },
    Api {
        key: 24,
        name: "AddPartitionsToTxn",
        versions: (0, 3),
        flexible: 3,
        request: &[
            text("transactional_id"),
            int64("producer_id"),
            int16("producer_epoch"),
            structs("topics", &[text("name"), int32s("partitions")]),
        ],
        response: &[
            int32("throttle_time_ms"),
            structs(
                "results_by_topic",
                &[
                    text("name"),
                    structs(
                        "results_by_partition",
                        &[int32("partition_index"), int16("partition_error_code")],
                    ),
                ],
            ),
        ],
    },
    Api {
        key: 26,
        name: "EndTxn",
        versions: (0, 4),
        flexible: 3,
        request: &[
            text("transactional_id"),
            int64("producer_id"),
            int16("producer_epoch"),
            flag("committed"),
        ],
        response: &[int32("throttle_time_ms"), int16("error_code")],
    },
    Api {
        key: 23,
        name: "OffsetForLeaderEpoch",
        versions: (2, 4),
        flexible: 4,
        request: &[
            int32("replica_id").since(3),
            structs(
                "topics",
                &[
                    text("topic"),
                    structs(
                        "partitions",
                        &[int32("partition"), int32("current_leader_epoch"), int32("leader_epoch")],
                    ),
                ],
            ),
        ],
        response: &[
            int32("throttle_time_ms"),
            structs(
                "topics",
                &[
                    text("topic"),
                    structs(
                        "partitions",
                        &[
                            int16("error_code"),
                            int32("partition"),
                            int32("leader_epoch"),
                            int64("end_offset"),
                        ],
                    ),
                ],
            ),
        ],
    },
];

/// A leader hint (KIP-951).
const LEADER: &[Field] = &[int32("leader_id"), int32("leader_epoch")];

/// The address of a hinted leader.
const NODE: &[Field] = &[int32("node_id"), text("host"), int32("port"), text("rack").nullable(0)];
