"""The mock cluster inside librdkafka, as a program: prints nothing before it is asked for its address.

confluent-kafka has no calls for the mock cluster, so the library that it brings is called directly.
"""
import ctypes
import glob
import os

import confluent_kafka
from agent import serve

HERE = os.path.dirname(confluent_kafka.__file__)
lib = ctypes.CDLL(next(iter(glob.glob(os.path.join(HERE, "..", "confluent_kafka.libs", "librdkafka*.so*"))
                            + glob.glob(os.path.join(HERE, "..", "confluent_kafka", ".dylibs", "librdkafka*.dylib")))))
for name in ["rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"]:
    getattr(lib, name).restype = ctypes.c_void_p
lib.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p

text = ctypes.create_string_buffer(512)
handle = ctypes.c_void_p(lib.rd_kafka_new(0, ctypes.c_void_p(lib.rd_kafka_conf_new()), text, 512))
cluster = ctypes.c_void_p(lib.rd_kafka_mock_cluster_new(handle, 3))


def checked(code):
    if code:
        raise RuntimeError(f"error {code} of the mock cluster")


# It offers flexible versions of the group's requests and reads their compact arrays as older ones ("JoinGroupRequest:
# ProtocolCnt 34825071 > max allowed 1000", "read buffer underflow for SyncGroup v4"). librdkafka does not notice, it speaks
# older ones. So the older ones are what it offers here.
for api, highest in [(11, 5), (14, 3), (12, 3)]:
    checked(lib.rd_kafka_mock_set_apiversion(cluster, ctypes.c_int16(api), ctypes.c_int16(0), ctypes.c_int16(highest)))

lib.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, ctypes.c_int32(0))

serve({
    "bootstrap": lambda ask: lib.rd_kafka_mock_cluster_bootstraps(cluster).decode(),
    "create": lambda ask: checked(lib.rd_kafka_mock_topic_create(cluster, ask["topic"].encode(), ask["partitions"], 3)),
})
