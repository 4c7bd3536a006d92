"""librdkafka, through confluent-kafka, as an agent of the conformance suite: librdkafka.py HOST:PORT[,...]"""
import sys
import time

from agent import Lacks, Refused, data, row, serve
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType)

BOOTSTRAP = sys.argv[1]
COMMON = {"bootstrap.servers": BOOTSTRAP, "topic.metadata.refresh.interval.ms": 1000, "log_level": 2}
admin = AdminClient(dict(COMMON))
members = {}


def refused(error):
    return Refused(error.code(), error.str())


def result(future, within=20):
    try:
        return future.result(within)
    except KafkaException as why:
        raise refused(why.args[0])


def only(futures):
    return result(next(iter(futures.values())))


def create(ask):
    replication = ask.get("replication") or -1
    only(admin.create_topics([NewTopic(ask["topic"], ask["partitions"], replication, config=ask.get("configs") or {})]))
    deadline = time.time() + 10
    while time.time() < deadline:
        known = admin.list_topics(ask["topic"], timeout=10).topics[ask["topic"]].partitions.values()
        if len(known) >= ask["partitions"] and all(one.leader >= 0 for one in known):
            return
        time.sleep(0.02)


def configs(ask):
    found = only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, ask["topic"])]))
    return {name: entry.value for name, entry in found.items()}


def alter(ask):
    entry = ConfigEntry(ask["name"], ask["value"], incremental_operation=AlterConfigOpType.SET)
    only(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, ask["topic"], incremental_configs=[entry])]))


def trim(ask):
    partition = TopicPartition(ask["topic"], ask["partition"], ask["offset"])
    return only(admin.delete_records([partition])).low_watermark


def topics(ask):
    return {name: len(one.partitions) for name, one in admin.list_topics(timeout=10).topics.items()}


def cluster(ask):
    found = result(admin.describe_cluster())
    return {"brokers": [node.id for node in found.nodes], "controller": found.controller and found.controller.id}


def groups(ask):
    found = result(admin.list_consumer_groups())
    return [one.group_id for one in found.valid]


def group(ask):
    found = only(admin.describe_consumer_groups([ask["group"]]))
    assigned = sum(len(one.assignment.topic_partitions) for one in found.members)
    return {"state": found.state.name, "members": len(found.members), "partitions": assigned}


def committed(ask):
    known = admin.list_topics(ask["topic"], timeout=10).topics[ask["topic"]].partitions
    asked = ConsumerGroupTopicPartitions(ask["group"], [TopicPartition(ask["topic"], one) for one in known])
    found = only(admin.list_consumer_group_offsets([asked])).topic_partitions
    return {str(one.partition): {"offset": one.offset, "metadata": one.metadata or ""} for one in found if one.offset >= 0}


def set_offsets(ask):
    to = [TopicPartition(ask["topic"], int(one), offset) for one, offset in ask["offsets"].items()]
    found = only(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(ask["group"], to)]))
    for one in found.topic_partitions:
        if one.error:
            raise refused(one.error)


def offsets(ask):
    at = ask["at"]
    spec = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}.get(at, lambda: OffsetSpec.for_timestamp(at))()
    known = admin.list_topics(ask["topic"], timeout=10).topics[ask["topic"]].partitions
    found = admin.list_offsets({TopicPartition(ask["topic"], one): spec for one in known})
    return {str(partition.partition): result(future).offset for partition, future in found.items()}


def produce(ask):
    config = dict(COMMON, **{"linger.ms": 1, "message.max.bytes": 2_000_000, "topic.metadata.propagation.max.ms": 500,
                             "delivery.timeout.ms": ask.get("ms", 15000)})
    config["compression.type"] = ask.get("compression", "none")
    config["partitioner"] = {"crc32": "consistent_random"}.get(ask.get("partitioner"), "murmur2_random")
    if "acks" in ask:
        config["acks"] = ask["acks"]
    if ask.get("idempotent"):
        config["enable.idempotence"] = True
    if ask.get("transaction"):
        config["transactional.id"] = ask["transaction"]
    producer = Producer(config)
    written, failed = {}, []
    if ask.get("transaction"):
        producer.init_transactions(15)
        producer.begin_transaction()

    def done(number):
        def report(error, message):
            if error:
                failed.append(error)
            else:
                written[number] = {"partition": message.partition(), "offset": message.offset()}
        return report

    for number, one in enumerate(ask["records"]):
        more = {"partition": one["partition"]} if one.get("partition") is not None else {}
        if one.get("timestamp") is not None:
            more["timestamp"] = one["timestamp"]
        try:
            producer.produce(ask["topic"], value=data(one.get("value")), key=data(one.get("key")),
                             headers=[(name, data(value)) for name, value in one.get("headers") or []] or None,
                             on_delivery=done(number), **more)
        except KafkaException as why:
            raise refused(why.args[0])
    producer.flush(20)
    if failed:
        raise refused(failed[0])
    if ask.get("end") == "commit":
        producer.commit_transaction(15)
    elif ask.get("end") == "abort":
        producer.abort_transaction(15)
    elif ask.get("transaction"):
        members["open " + ask["transaction"]] = producer
    return [written[number] for number in range(len(ask["records"]))]


def rows(messages):
    found = []
    for one in messages:
        if one.error():
            if one.error().code() in (-191, 3):  # the end of a partition; a topic that is not there yet
                continue
            raise refused(one.error())
        found.append(row(one.topic(), one.partition(), one.offset(), one.timestamp()[1], one.key(), one.value(), one.headers()))
    return found


def read(ask):
    config = dict(COMMON, **{"group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "earliest",
                             "fetch.wait.max.ms": 200,
                             "isolation.level": "read_committed" if ask.get("committed") else "read_uncommitted"})
    if "max_bytes" in ask:
        config["fetch.message.max.bytes"] = ask["max_bytes"]
    consumer = Consumer(config)
    at = {"earliest": -2, "latest": -1}.get(ask["offset"], ask["offset"])
    consumer.assign([TopicPartition(ask["topic"], ask["partition"], at)])
    found, deadline = [], time.time() + ask.get("ms", 15000) / 1000
    while len(found) < ask["count"] and time.time() < deadline:
        found += rows(consumer.consume(100, min(0.1, max(0, deadline - time.time()))))
    consumer.close()
    return found


def join(ask):
    config = dict(COMMON, **{
        "group.id": ask["group"], "enable.auto.commit": False, "auto.offset.reset": ask.get("reset", "earliest"),
        "heartbeat.interval.ms": 300, "session.timeout.ms": ask.get("session_ms", 30000), "fetch.wait.max.ms": 100,
        "partition.assignment.strategy": ask.get("strategy", "range,roundrobin")})
    if ask.get("instance"):
        config["group.instance.id"] = ask["instance"]
    consumer = Consumer(config)
    consumer.subscribe([ask["pattern"]] if ask.get("pattern") else ask["topics"])
    members[ask["member"]] = consumer


def poll(ask):
    consumer = members[ask["member"]]
    found = rows(consumer.consume(500, ask["ms"] / 1000))
    if found and ask.get("commit"):
        commit_all(consumer, found)
    return {"records": found, "assigned": [[one.topic, one.partition] for one in consumer.assignment()]}


def commit_all(consumer, found):
    ends = {(one["topic"], one["partition"]): one["offset"] + 1 for one in found}
    try:
        consumer.commit(offsets=[TopicPartition(*place, offset) for place, offset in ends.items()], asynchronous=False)
    except KafkaException as why:
        raise refused(why.args[0])


def commit(ask):
    rows = [TopicPartition(one["topic"], one["partition"], one["offset"], metadata=one.get("metadata", ""))
            for one in ask["offsets"]]
    try:
        done = members[ask["member"]].commit(offsets=rows, asynchronous=False)
    except KafkaException as why:
        raise refused(why.args[0])
    for one in done:
        if one.error:
            raise refused(one.error)


serve({
    "create": create, "configs": configs, "alter": alter, "trim": trim, "topics": topics, "cluster": cluster,
    "groups": groups, "group": group, "committed": committed, "set_offsets": set_offsets, "offsets": offsets,
    "produce": produce, "read": read, "join": join, "poll": poll, "commit": commit,
    "delete": lambda ask: only(admin.delete_topics([ask["topic"]])),
    "grow": lambda ask: only(admin.create_partitions([NewPartitions(ask["topic"], ask["total"])])),
    "drop_group": lambda ask: only(admin.delete_consumer_groups([ask["group"]])),
    "leave": lambda ask: members.pop(ask["member"]).close(),
})
