//! Which fields do the messages have that open a connection and describe the cluster?

use crate::guard::schema::{
    Api, NEVER, blob, flag, int8, int16, int32, int32s, int64, structs, text, texts, uuid,
};

pub(super) const APIS: &[Api] = &[
    Api {
        key: 3,
        name: "Metadata",
        versions: (0, 13),
        flexible: 9,
        request: &[
            structs("topics", &[uuid("topic_id").since(10), text("name").nullable(10)]).nullable(1),
            flag("allow_auto_topic_creation").since(4),
            flag("include_cluster_authorized_operations").since(8).until(10),
            flag("include_topic_authorized_operations").since(8),
        ],
        response: &[
            int32("throttle_time_ms").since(3),
            structs(
                "brokers",
                &[int32("node_id"), text("host"), int32("port"), text("rack").since(1).nullable(1)],
            ),
            text("cluster_id").since(2).nullable(2),
            int32("controller_id").since(1),
            structs(
                "topics",
                &[
                    int16("error_code"),
                    text("name").nullable(12),
                    uuid("topic_id").since(10),
                    flag("is_internal").since(1),
                    structs(
                        "partitions",
                        &[
                            int16("error_code"),
                            int32("partition_index"),
                            int32("leader_id"),
                            int32("leader_epoch").since(7),
                            int32s("replica_nodes"),
                            int32s("isr_nodes"),
                            int32s("offline_replicas").since(5),
                        ],
                    ),
                    int32("topic_authorized_operations").since(8),
                ],
            ),
            int32("cluster_authorized_operations").since(8).until(10),
            int16("error_code").since(13),
        ],
    },
    Api {
        key: 10,
        name: "FindCoordinator",
        versions: (0, 6),
        flexible: 3,
        request: &[text("key").until(3), int8("key_type").since(1), texts("coordinator_keys").since(4)],
        response: &[
            int32("throttle_time_ms").since(1),
            int16("error_code").until(3),
            text("error_message").since(1).until(3).nullable(1),
            int32("node_id").until(3),
            text("host").until(3),
            int32("port").until(3),
            structs(
                "coordinators",
                &[
                    text("key"),
                    int32("node_id"),
                    text("host"),
                    int32("port"),
                    int16("error_code"),
                    text("error_message").nullable(4),
                ],
            )
            .since(4),
        ],
    },
    Api {
        key: 17,
        name: "SaslHandshake",
        versions: (0, 1),
        flexible: NEVER,
        request: &[text("mechanism")],
        response: &[int16("error_code"), texts("mechanisms")],
    },
    Api {
        key: 18,
        name: "ApiVersions",
        versions: (0, 4),
        flexible: 3,
        request: &[text("client_software_name").since(3), text("client_software_version").since(3)],
        response: &[
            int16("error_code"),
            structs("api_keys", &[int16("api_key"), int16("min_version"), int16("max_version")]),
            int32("throttle_time_ms").since(1),
            structs("supported_features", &[text("name"), int16("min_version"), int16("max_version")])
                .since(3)
                .tag(0),
            int64("finalized_features_epoch").since(3).tag(1),
            structs(
                "finalized_features",
                &[text("name"), int16("max_version_level"), int16("min_version_level")],
            )
            .since(3)
            .tag(2),
            flag("zk_migration_ready").since(3).tag(3),
        ],
    },
    Api {
        key: 36,
        name: "SaslAuthenticate",
        versions: (0, 2),
        flexible: 2,
        request: &[blob("auth_bytes")],
        response: &[
            int16("error_code"),
            text("error_message").nullable(0),
            blob("auth_bytes"),
            int64("session_lifetime_ms").since(1),
        ],
    },
];
