"""aiokafka as an agent of the conformance suite: aio_kafka.py HOST:PORT[,...]

Its event loop runs in a thread of its own, so that members send heartbeats while nobody asks for anything.
"""
import asyncio
import logging
import sys
import threading
import time

import aiokafka
import aiokafka.errors
from agent import Lacks, Refused, data, row, serve
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.protocol.group import MemberAssignment
from aiokafka.structs import OffsetAndMetadata

logging.disable(logging.CRITICAL)
BOOTSTRAP = sys.argv[1]
STRATEGIES = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
members = {}
known = {}


async def admin():
    if "admin" not in known:
        known["admin"] = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP, metadata_max_age_ms=1000)
        await known["admin"].start()
    return known["admin"]


def check(code, text=None):
    if code:
        raise Refused(code, f"{aiokafka.errors.for_code(code).__name__} {text or ''}")


async def create(ask):
    answer = await (await admin()).create_topics([NewTopic(
        ask["topic"], ask["partitions"], ask.get("replication") or 1, topic_configs=ask.get("configs") or {})])
    for error in answer.topic_errors:
        check(*error[1:3])


async def delete(ask):
    for _, code in (await (await admin()).delete_topics([ask["topic"]])).topic_error_codes:
        check(code)


async def grow(ask):
    answer = await (await admin()).create_partitions({ask["topic"]: NewPartitions(ask["total"])})
    for error in answer.topic_errors:
        check(*error[1:3])


async def configs(ask):
    answers = await (await admin()).describe_configs([ConfigResource(ConfigResourceType.TOPIC, ask["topic"])])
    code, text, _, _, entries = answers[0].resources[0]
    check(code, text)
    return {entry[0]: entry[1] for entry in entries}


async def alter(ask):
    resource = ConfigResource(ConfigResourceType.TOPIC, ask["topic"], configs={ask["name"]: ask["value"]})
    for answer in await (await admin()).alter_configs([resource]):
        for error in answer.resources:
            check(*error[:2])


async def trim(ask):
    place = TopicPartition(ask["topic"], ask["partition"])
    found = await (await admin()).delete_records({place: RecordsToDelete(ask["offset"])})
    return found[place]


async def topics(ask):
    found = await (await admin()).describe_topics()
    return {one["topic"]: len(one["partitions"]) for one in found}


async def partitions_of(topic):
    return [TopicPartition(topic, number) for number in range((await topics({}))[topic])]


async def cluster(ask):
    found = await (await admin()).describe_cluster()
    return {"brokers": [one["node_id"] for one in found["brokers"]], "controller": found["controller_id"]}


async def groups(ask):
    return [one[0] for one in await (await admin()).list_consumer_groups()]


async def group(ask):
    found = (await (await admin()).describe_consumer_groups([ask["group"]]))[0].groups[0]
    check(found[0])
    assigned = [MemberAssignment.decode(member[-1]) for member in found[5] if member[-1]]
    count = sum(len(partitions) for one in assigned for _, partitions in one.assignment)
    return {"state": found[2], "members": len(found[5]), "partitions": count}


async def committed(ask):
    found = await (await admin()).list_consumer_group_offsets(ask["group"], partitions=await partitions_of(ask["topic"]))
    return {str(place.partition): {"offset": at.offset, "metadata": at.metadata} for place, at in found.items()
            if at.offset >= 0}


async def set_offsets(ask):
    """There is no such request of its admin client; a consumer without a subscription commits as an outsider does."""
    outsider = aiokafka.AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, group_id=ask["group"], enable_auto_commit=False)
    await outsider.start()
    try:
        outsider.assign([TopicPartition(ask["topic"], int(one)) for one in ask["offsets"]])
        await outsider.commit({TopicPartition(ask["topic"], int(one)): offset for one, offset in ask["offsets"].items()})
    finally:
        await outsider.stop()


async def offsets(ask):
    reader = aiokafka.AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP)
    await reader.start()
    try:
        places = await partitions_of(ask["topic"])
        if ask["at"] == "earliest":
            found = await reader.beginning_offsets(places)
        elif ask["at"] == "latest":
            found = await reader.end_offsets(places)
        else:
            dated = await reader.offsets_for_times({place: ask["at"] for place in places})
            found = {place: at.offset if at else -1 for place, at in dated.items()}
    finally:
        await reader.stop()
    return {str(place.partition): offset for place, offset in found.items()}


async def produce(ask):
    compression = ask.get("compression", "none")
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=BOOTSTRAP, acks=ask.get("acks", "all"), linger_ms=1, max_request_size=3_000_000,
        compression_type=None if compression == "none" else compression, request_timeout_ms=ask.get("ms", 15000),
        enable_idempotence=ask.get("idempotent", False) or "transaction" in ask, transactional_id=ask.get("transaction"))
    await producer.start()
    try:
        if "transaction" in ask:
            await producer.begin_transaction()
        sent = [await producer.send(ask["topic"], data(one.get("value")), key=data(one.get("key")),
                                    partition=one.get("partition"), timestamp_ms=one.get("timestamp"),
                                    headers=[(name, data(value)) for name, value in one.get("headers") or []])
                for one in ask["records"]]
        done = [await one for one in sent]
        if ask.get("end") == "commit":
            await producer.commit_transaction()
        elif ask.get("end") == "abort":
            await producer.abort_transaction()
    finally:
        if "transaction" in ask and "end" not in ask:
            members["open " + ask["transaction"]] = producer
        else:
            await producer.stop()
    return [{"partition": one.partition, "offset": one.offset} if one else {} for one in done]


def rows(polled):
    return [row(one.topic, one.partition, one.offset, one.timestamp, one.key, one.value, one.headers)
            for batch in polled.values() for one in batch]


async def read(ask):
    more = {"isolation_level": "read_committed" if ask.get("committed") else "read_uncommitted"}
    if "max_bytes" in ask:
        more.update(fetch_max_bytes=ask["max_bytes"], max_partition_fetch_bytes=ask["max_bytes"])
    reader = aiokafka.AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest", fetch_max_wait_ms=100,
                                       enable_auto_commit=False, **more)
    await reader.start()
    try:
        place = TopicPartition(ask["topic"], ask["partition"])
        reader.assign([place])
        if ask["offset"] == "earliest":
            await reader.seek_to_beginning(place)
        elif ask["offset"] == "latest":
            await reader.seek_to_end(place)
        else:
            reader.seek(place, ask["offset"])
        found, deadline = [], time.time() + ask.get("ms", 15000) / 1000
        while len(found) < ask["count"] and time.time() < deadline:
            found += rows(await reader.getmany(timeout_ms=100))
        return found
    finally:
        await reader.stop()


async def join(ask):
    more = {"session_timeout_ms": ask.get("session_ms", 30000), "heartbeat_interval_ms": 300,
            "auto_offset_reset": ask.get("reset", "earliest"), "group_id": ask["group"]}
    if "strategy" in ask:
        if ask["strategy"] not in STRATEGIES:
            raise Lacks(f"no {ask['strategy']}")
        more["partition_assignment_strategy"] = [STRATEGIES[ask["strategy"]]]
    if "instance" in ask:
        more["group_instance_id"] = ask["instance"]
    member = aiokafka.AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, enable_auto_commit=False, metadata_max_age_ms=1000,
                                       fetch_max_wait_ms=100, rebalance_timeout_ms=10000, **more)
    if ask.get("pattern"):
        member.subscribe(pattern=ask["pattern"])
    else:
        member.subscribe(ask["topics"])
    members[ask["member"]] = member
    # It waits for its assignment here, and for others to join: nobody waits for it to start.
    known[ask["member"]] = asyncio.ensure_future(member.start())


async def poll(ask):
    member, starting = members[ask["member"]], known[ask["member"]]
    await asyncio.wait([starting], timeout=ask["ms"] / 1000)
    if not starting.done():
        return {"records": [], "assigned": []}
    starting.result()
    found = rows(await member.getmany(timeout_ms=ask["ms"]))
    if found and ask.get("commit"):
        ends = {TopicPartition(one["topic"], one["partition"]): one["offset"] + 1 for one in found}
        try:
            await member.commit(ends)
        except (aiokafka.errors.CommitFailedError, aiokafka.errors.IllegalStateError):
            found = []  # taken away meanwhile: they are for the next owner
    return {"records": found, "assigned": [[one.topic, one.partition] for one in member.assignment()]}


async def commit(ask):
    await members[ask["member"]].commit({
        TopicPartition(one["topic"], one["partition"]): OffsetAndMetadata(one["offset"], one.get("metadata", ""))
        for one in ask["offsets"]})


async def leave(ask):
    known.pop(ask["member"]).cancel()
    await members.pop(ask["member"]).stop()


def on_the_loop(operation):
    def run(ask):
        try:
            return asyncio.run_coroutine_threadsafe(operation(ask), loop).result(ask.get("ms", 15000) / 1000 + 20)
        except aiokafka.errors.CommitFailedError as why:  # its word for the three errors of a member that is none
            raise Refused(aiokafka.errors.UnknownMemberIdError.errno, str(why))
        except aiokafka.errors.KafkaError as why:
            raise Refused(getattr(why, "errno", None), f"{type(why).__name__}: {why}")
    return run


serve({operation.__name__: on_the_loop(operation) for operation in [
    create, delete, grow, configs, alter, trim, topics, cluster, groups, group, committed, set_offsets, offsets, produce,
    read, join, poll, commit, leave]})
