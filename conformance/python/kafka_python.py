"""kafka-python as an agent of the conformance suite: kafka_python.py HOST:PORT[,...]"""
import concurrent.futures
import logging
import queue
import re
import sys
import threading
import time

import kafka
import kafka.errors
from agent import Refused, data, row, serve
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.structs import OffsetAndMetadata

logging.disable(logging.CRITICAL)
BOOTSTRAP = sys.argv[1].split(",")
STRATEGIES = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor,
              "cooperative-sticky": CooperativeStickyAssignor}
admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP, metadata_max_age_ms=1000)
members = {}


def topic_resource(ask, configs=None):
    return ConfigResource(ConfigResourceType.TOPIC, ask["topic"], configs=configs)


def named(outcome):
    """What the admin client says of one thing: "OK", an error's class or its name."""
    if outcome == "OK" or outcome is kafka.errors.NoError:
        return
    numbered = re.match(r"\[Error (\d+)\]", str(outcome))
    error = getattr(kafka.errors, outcome, None) if isinstance(outcome, str) else outcome
    raise Refused(int(numbered[1]) if numbered else getattr(error, "errno", None), str(outcome))


def create(ask):
    admin.create_topics([NewTopic(ask["topic"], ask["partitions"], ask.get("replication") or -1,
                                  topic_configs=ask.get("configs") or {})], wait_for_metadata=True)


def configs(ask):
    found = admin.describe_configs([topic_resource(ask)], config_filter="all")["topic"][ask["topic"]]
    return {name: one["value"] for name, one in found.items()}


def alter(ask):
    named(admin.alter_configs([topic_resource(ask, {ask["name"]: ask["value"]})], incremental=True)["topic"][ask["topic"]])


def trim(ask):
    place = TopicPartition(ask["topic"], ask["partition"])
    return admin.delete_records({place: ask["offset"]})[place]["low_watermark"]


def topics(ask):
    return {one["name"]: len(one["partitions"]) for one in admin.describe_topics()}


def partitions_of(topic):
    return [TopicPartition(topic, one["partition_index"]) for one in admin.describe_topics([topic])[0]["partitions"]]


def cluster(ask):
    found = admin.describe_cluster()
    return {"brokers": [one["broker_id"] for one in found["brokers"]], "controller": found["controller_id"]}


def group(ask):
    found = admin.describe_groups([ask["group"]])[ask["group"]]
    parts = [one["partitions"] for member in found["members"] for one in member["member_assignment"]["assigned_partitions"]]
    return {"state": found["group_state"], "members": len(found["members"]), "partitions": sum(map(len, parts))}


def committed(ask):
    found = admin.list_group_offsets(ask["group"])[ask["group"]]
    return {str(place.partition): {"offset": at.offset, "metadata": at.metadata}
            for place, at in found.items() if place.topic == ask["topic"]}


def set_offsets(ask):
    to = {TopicPartition(ask["topic"], int(one)): OffsetAndMetadata(offset, "", -1)
          for one, offset in ask["offsets"].items()}
    for outcome in admin.alter_group_offsets(ask["group"], to).values():
        named(outcome)


def offsets(ask):
    spec = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}.get(ask["at"], ask["at"])
    found = admin.list_partition_offsets({place: spec for place in partitions_of(ask["topic"])})
    return {str(place.partition): one.offset for place, one in found.items()}


def produce(ask):
    compression = ask.get("compression", "none")
    ms = ask.get("ms", 15000)
    config = {"acks": ask.get("acks", "all"), "compression_type": None if compression == "none" else compression,
              "enable_idempotence": ask.get("idempotent", False) or "transaction" in ask, "max_request_size": 3_000_000,
              "max_block_ms": ms, "delivery_timeout_ms": ms + 1000, "request_timeout_ms": min(ms, 10000), "linger_ms": 1,
              "allow_auto_create_topics": False}
    if "transaction" in ask:
        config["transactional_id"] = ask["transaction"]
    producer = kafka.KafkaProducer(bootstrap_servers=BOOTSTRAP, **config)
    if "transaction" in ask:
        producer.init_transactions()
        producer.begin_transaction()
    try:
        sent = [producer.send(ask["topic"], data(one.get("value")), key=data(one.get("key")),
                              headers=[(name, data(value)) for name, value in one.get("headers") or []],
                              partition=one.get("partition"), timestamp_ms=one.get("timestamp"))
                for one in ask["records"]]
        done = [one.get(20) for one in sent]
        if ask.get("end") == "commit":
            producer.commit_transaction()
        elif ask.get("end") == "abort":
            producer.abort_transaction()
    finally:
        if "transaction" in ask and "end" not in ask:
            members["open " + ask["transaction"]] = producer
        else:
            producer.close(5)
    return [{"partition": one.partition, "offset": one.offset} for one in done]


def consumer(**more):
    return kafka.KafkaConsumer(bootstrap_servers=BOOTSTRAP, enable_auto_commit=False, metadata_max_age_ms=1000,
                               fetch_max_wait_ms=100, allow_auto_create_topics=False, **more)


def rows(polled):
    return [row(one.topic, one.partition, one.offset, one.timestamp, one.key, one.value, one.headers)
            for batch in polled.values() for one in batch]


def read(ask):
    more = {"isolation_level": "read_committed" if ask.get("committed") else "read_uncommitted"}
    if "max_bytes" in ask:
        more.update(fetch_max_bytes=ask["max_bytes"], max_partition_fetch_bytes=ask["max_bytes"])
    reader = consumer(auto_offset_reset="earliest", group_id=None, **more)
    place = TopicPartition(ask["topic"], ask["partition"])
    reader.assign([place])
    if ask["offset"] == "earliest":
        reader.seek_to_beginning(place)
    elif ask["offset"] == "latest":
        reader.seek_to_end(place)
        reader.position(place)
    else:
        reader.seek(place, ask["offset"])
    found, deadline = [], time.time() + ask.get("ms", 15000) / 1000
    while len(found) < ask["count"] and time.time() < deadline:
        found += rows(reader.poll(100))
    reader.close()
    return found


class Member(kafka.ConsumerRebalanceListener):
    """A consumer with a thread that polls for long: a join that ends between two polls is never applied by this client,
    which then has no partitions for good."""

    POLL_MS = 500

    def __init__(self, ask):
        more = {"session_timeout_ms": ask["session_ms"], "heartbeat_interval_ms": 300,
                "auto_offset_reset": ask.get("reset", "earliest"), "group_id": ask["group"]}
        if "strategy" in ask:
            more["partition_assignment_strategy"] = [STRATEGIES[ask["strategy"]]]
        if "instance" in ask:
            more["group_instance_id"] = ask["instance"]
        self.consumer = consumer(**more)
        if ask.get("pattern"):
            self.consumer.subscribe(pattern=ask["pattern"], listener=self)
        else:
            self.consumer.subscribe(ask["topics"], listener=self)
        self.orders, self.records, self.assigned, self.failed, self.gone = queue.Queue(), [], [], None, set()
        self.lock = threading.Lock()
        threading.Thread(target=self.run, daemon=True).start()

    def on_partitions_revoked(self, revoked):
        with self.lock:
            self.gone.update((one.topic, one.partition) for one in revoked)
            self.assigned = [one for one in self.assigned if one not in revoked]
            gone = {(one.topic, one.partition) for one in revoked}
            self.records = [one for one in self.records if (one["topic"], one["partition"]) not in gone]

    def on_partitions_assigned(self, assigned):
        with self.lock:
            self.assigned = [*self.assigned, *(one for one in assigned if one not in self.assigned)]

    def run(self):
        while True:
            try:
                while True:
                    order, done = self.orders.get_nowait()
                    try:
                        done.set_result(order())
                    except Exception as why:
                        done.set_exception(why)
                    if order == self.consumer.close:
                        return
            except queue.Empty:
                pass
            try:
                polled = rows(self.consumer.poll(self.POLL_MS))
            except Exception as why:
                self.failed = why
                continue
            with self.lock:
                self.records += polled

    def call(self, order):
        """Runs in the consumer's thread: the consumer is not for several."""
        done = concurrent.futures.Future()
        self.orders.put((order, done))
        return done.result(30)


def join(ask):
    members[ask["member"]] = Member(ask)


def poll(ask):
    member, deadline = members[ask["member"]], time.time() + ask["ms"] / 1000
    while not member.records and time.time() < deadline:
        time.sleep(0.01)
    if member.failed:
        raise member.failed
    with member.lock:
        found, member.records = member.records, []
        member.gone.clear()
    if found and ask.get("commit"):
        def kept():
            return [one for one in found if (one["topic"], one["partition"]) not in member.gone]

        def commit_what_is_still_ours():
            ends = {TopicPartition(one["topic"], one["partition"]): OffsetAndMetadata(one["offset"] + 1, "", -1)
                    for one in kept()}
            if ends:  # a commit of nothing is one of everything that was fetched
                member.consumer.commit(ends)

        try:
            member.call(commit_what_is_still_ours)
            found = kept()
        except (kafka.errors.CommitFailedError, kafka.errors.RebalanceInProgressError):
            with member.lock:  # the group is being divided: they are offered again if they stay here
                found, member.records = [], kept() + member.records
    with member.lock:
        return {"records": found, "assigned": [[one.topic, one.partition] for one in member.assigned]}


def commit(ask):
    member = members[ask["member"]]
    ends = {TopicPartition(one["topic"], one["partition"]): OffsetAndMetadata(one["offset"], one.get("metadata", ""), -1)
            for one in ask["offsets"]}
    member.call(lambda: member.consumer.commit(ends))


def leave(ask):
    member = members.pop(ask["member"])
    member.call(member.consumer.close)


def coded(operation):
    def run(ask):
        try:
            return operation(ask)
        except kafka.errors.BrokerResponseError as why:
            raise Refused(why.errno, str(why))
    return run


serve({name: coded(operation) for name, operation in {
    "create": create, "configs": configs, "alter": alter, "trim": trim, "topics": topics, "cluster": cluster,
    "group": group, "committed": committed, "set_offsets": set_offsets, "offsets": offsets,
    "produce": produce, "read": read, "join": join, "poll": poll, "commit": commit,
    "delete": lambda ask: admin.delete_topics([ask["topic"]]) and None,
    "grow": lambda ask: admin.create_partitions({ask["topic"]: NewPartitions(ask["total"])}) and None,
    "groups": lambda ask: [one["group_id"] for one in admin.list_groups()],
    "drop_group": lambda ask: named(admin.delete_groups([ask["group"]])[ask["group"]]),
    "leave": leave,
}.items()})
