//! Which fields do the messages have that create, change and delete things?

use crate::guard::schema::{Api, flag, int8, int16, int32, int32s, int64, structs, text, texts, uuid};

pub(super) const APIS: &[Api] = &[
    Api {
        key: 19,
        name: "CreateTopics",
        versions: (2, 7),
        flexible: 5,
        request: &[
            structs(
                "topics",
                &[
                    text("name"),
                    int32("num_partitions"),
                    int16("replication_factor"),
                    structs("assignments", &[int32("partition_index"), int32s("broker_ids")]),
                    structs("configs", &[text("name"), text("value").nullable(0)]),
                ],
            ),
            int32("timeout_ms"),
            flag("validate_only"),
        ],
        response: &[
            int32("throttle_time_ms"),
            structs(
                "topics",
                &[
                    text("name"),
                    uuid("topic_id").since(7),
                    int16("error_code"),
                    text("error_message").nullable(0),
                    int16("topic_config_error_code").since(5).tag(0),
                    int32("num_partitions").since(5),
                    int16("replication_factor").since(5),
                    structs(
                        "configs",
                        &[
                            text("name"),
                            text("value").nullable(5),
                            flag("read_only"),
                            int8("config_source"),
                            flag("is_sensitive"),
                        ],
                    )
                    .since(5)
                    .nullable(5),
                ],
            ),
        ],
    },
    Api {
        key: 20,
        name: "DeleteTopics",
        versions: (1, 6),
        flexible: 4,
        request: &[
            structs("topics", &[text("name").nullable(6), uuid("topic_id")]).since(6),
            texts("topic_names").until(5),
            int32("timeout_ms"),
        ],
        response: &[
            int32("throttle_time_ms"),
            structs(
                "responses",
                &[
                    text("name").nullable(6),
                    uuid("topic_id").since(6),
                    int16("error_code"),
                    text("error_message").since(5).nullable(5),
                ],
            ),
        ],
    },
    Api {
        key: 21,
        name: "DeleteRecords",
        versions: (0, 2),
        flexible: 2,
        request: &[
            structs(
                "topics",
                &[text("name"), structs("partitions", &[int32("partition_index"), int64("offset")])],
            ),
            int32("timeout_ms"),
        ],
        response: &[
            int32("throttle_time_ms"),
            structs(
                "topics",
                &[
                    text("name"),
                    structs(
                        "partitions",
                        &[int32("partition_index"), int64("low_watermark"), int16("error_code")],
                    ),
                ],
            ),
        ],
    },
    Api {
        key: 32,
        name: "DescribeConfigs",
        versions: (1, 4),
        flexible: 4,
        request: &[
            structs(
                "resources",
                &[int8("resource_type"), text("resource_name"), texts("configuration_keys").nullable(0)],
            ),
            flag("include_synonyms"),
            flag("include_documentation").since(3),
        ],
        response: &[
            int32("throttle_time_ms"),
            structs(
                "results",
                &[
                    int16("error_code"),
                    text("error_message").nullable(0),
                    int8("resource_type"),
                    text("resource_name"),
                    structs(
                        "configs",
                        &[
                            text("name"),
                            text("value").nullable(0),
                            flag("read_only"),
                            int8("config_source"),
                            flag("is_sensitive"),
                            structs("synonyms", &[text("name"), text("value").nullable(0), int8("source")]),
                            int8("config_type").since(3),
                            text("documentation").since(3).nullable(3),
                        ],
                    ),
                ],
            ),
        ],
    },
    Api {
        key: 33,
        name: "AlterConfigs",
        versions: (0, 2),
        flexible: 2,
        request: &[
            structs(
                "resources",
                &[
                    int8("resource_type"),
                    text("resource_name"),
                    structs("configs", &[text("name"), text("value").nullable(0)]),
                ],
            ),
            flag("validate_only"),
        ],
        response: &[
            int32("throttle_time_ms"),
            structs(
                "responses",
                &[
                    int16("error_code"),
                    text("error_message").nullable(0),
                    int8("resource_type"),
                    text("resource_name"),
                ],
            ),
        ],
    },
    Api {
        key: 37,
        name: "CreatePartitions",
        versions: (0, 3),
        flexible: 2,
        request: &[
            structs(
                "topics",
                &[text("name"), int32("count"), structs("assignments", &[int32s("broker_ids")]).nullable(0)],
            ),
            int32("timeout_ms"),
            flag("validate_only"),
        ],
        response: &[
            int32("throttle_time_ms"),
            structs("results", &[text("name"), int16("error_code"), text("error_message").nullable(0)]),
        ],
    },
    Api {
        key: 44,
        name: "IncrementalAlterConfigs",
        versions: (0, 1),
        flexible: 1,
        request: &[
            structs(
                "resources",
                &[
                    int8("resource_type"),
                    text("resource_name"),
                    structs("configs", &[text("name"), int8("config_operation"), text("value").nullable(0)]),
                ],
            ),
            flag("validate_only"),
        ],
        response: &[
            int32("throttle_time_ms"),
            structs(
                "responses",
                &[
                    int16("error_code"),
                    text("error_message").nullable(0),
                    int8("resource_type"),
                    text("resource_name"),
                ],
            ),
        ],
    },
    Api {
        key: 60,
        name: "DescribeCluster",
        versions: (0, 2),
        flexible: 0,
        request: &[
            flag("include_cluster_authorized_operations"),
            int8("endpoint_type").since(1),
            flag("include_fenced_brokers").since(2),
        ],
        response: &[
            int32("throttle_time_ms"),
            int16("error_code"),
            text("error_message").nullable(0),
            int8("endpoint_type").since(1),
            text("cluster_id"),
            int32("controller_id"),
            structs(
                "brokers",
                &[
                    int32("broker_id"),
                    text("host"),
                    int32("port"),
                    text("rack").nullable(0),
                    flag("is_fenced").since(2),
                ],
            ),
            int32("cluster_authorized_operations"),
        ],
    },
];
