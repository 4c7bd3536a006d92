#!/usr/bin/env python3
"""Does librdkafka trust our broker? Produce, group consume and admin through confluent-kafka.

usage: librdkafka.py [--bootstrap] HOST:PORT[,...]
The last line is `N passed, N failed`; the exit code is not 0 when something failed.
needs: pip install confluent-kafka
"""
import argparse
import collections
import sys
import threading
import time
import traceback
import uuid

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType)

RUN = uuid.uuid4().hex[:8]


def name(text):
    return f"rd-{text}-{RUN}"


def wait(futures):
    return {key: future.result(timeout=20) for key, future in futures.items()}


def create(bootstrap, topic, partitions, **config):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait(admin.create_topics([NewTopic(topic, partitions, config=config)]))
    deadline = time.time() + 20
    while topic not in admin.list_topics(timeout=10).topics:
        assert time.time() < deadline, f"{topic} never appeared"
    return admin


def produce(bootstrap, topic, count, keys=50, **config):
    """Returns key -> values in order of sending; every record is acknowledged."""
    sent, acked, failed = collections.defaultdict(list), [], []

    def report(error, message):
        (failed if error else acked).append(error or message.offset())

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, **config})
    for number in range(count):
        key, value = f"k{number % keys}", f"v{number}-" + "x" * (number % 90)
        while True:
            try:
                producer.produce(topic, value, key, headers=[("n", str(number)), ("n", b"2")], on_delivery=report)
                break
            except BufferError:
                producer.poll(0.1)
        sent[key].append(value)
        producer.poll(0)
    assert producer.flush(60) == 0, "records were never acknowledged"
    assert not failed and len(acked) == count, (failed[:3], len(acked), count)
    return sent


def consume(bootstrap, topic, count, group=None, seconds=60, **config):
    """Reads `count` records; returns key -> values in order of reading, and the consumer."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group or name("group-" + uuid.uuid4().hex[:4]),
                         "auto.offset.reset": "earliest", "enable.auto.commit": False, **config})
    consumer.subscribe([topic])
    seen, total, deadline = collections.defaultdict(list), 0, time.time() + seconds
    while total < count:
        assert time.time() < deadline, f"{total} of {count} records after {seconds} s"
        for message in consumer.consume(500, 0.5):
            assert not message.error(), message.error()
            assert message.headers()[1] == ("n", b"2"), message.headers()
            seen[message.key().decode()].append(message.value().decode())
            total += 1
    return seen, consumer


def test_every_compression_round_trips(bootstrap):
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"]:
        topic = name(codec)
        create(bootstrap, topic, 3)
        sent = produce(bootstrap, topic, 2000, **{"compression.type": codec})
        seen, consumer = consume(bootstrap, topic, 2000)
        consumer.close()
        assert seen == sent, codec


def test_acks_and_older_requests(bootstrap):
    topic = name("acks")
    create(bootstrap, topic, 1)
    total = 0
    for acks in ["0", "1", "all"]:
        produce(bootstrap, topic, 300, **{"enable.idempotence": False, "acks": acks})
        total += 300
    _, consumer = consume(bootstrap, topic, total)
    consumer.close()


def test_commits_survive_a_restart_of_the_consumer(bootstrap):
    topic, group = name("commit"), name("commit")
    create(bootstrap, topic, 4)
    produce(bootstrap, topic, 1000)
    _, consumer = consume(bootstrap, topic, 1000, group)
    positions = consumer.position(consumer.assignment())
    positions = [TopicPartition(topic, one.partition, one.offset, f"text of {one.partition}") for one in positions]
    consumer.commit(offsets=positions, asynchronous=False)
    committed = consumer.committed([TopicPartition(topic, index) for index in range(4)], timeout=10)
    assert sum(one.offset for one in committed) == 1000, committed
    assert [one.metadata for one in committed] == [f"text of {index}" for index in range(4)], committed
    consumer.close()
    produce(bootstrap, topic, 500)
    seen, consumer = consume(bootstrap, topic, 500, group)
    consumer.close()
    assert sum(map(len, seen.values())) == 500


def test_a_group_shares_and_hands_over(bootstrap, strategy):
    topic, group = name("share-" + strategy), name("share-" + strategy)
    create(bootstrap, topic, 6)
    count, seen, lock, stop = 6000, collections.defaultdict(list), threading.Lock(), threading.Event()
    owned = collections.defaultdict(set)

    def member(index, leave_after):
        consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "partition.assignment.strategy": strategy,
            "session.timeout.ms": 6000, "heartbeat.interval.ms": 200})
        consumer.subscribe([topic])
        mine = 0
        while not stop.is_set() and (leave_after is None or mine < leave_after):
            batch = [message for message in consumer.consume(100, 0.1) if not message.error()]
            with lock:
                for message in batch:
                    owned[index].add(message.partition())
                    seen[message.key().decode()].append(message.value().decode())
            mine += len(batch)
            if batch:
                try:
                    consumer.commit(asynchronous=False)
                except Exception as error:  # a rebalance between reading and committing
                    code = error.args[0].code()
                    assert code in (KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS,
                                    KafkaError.UNKNOWN_MEMBER_ID, KafkaError._NO_OFFSET), error
        consumer.close()

    threads = [threading.Thread(target=member, args=(index, 500 if index == 2 else None)) for index in range(3)]
    for thread in threads:
        thread.start()
    sent = produce(bootstrap, topic, count)
    deadline = time.time() + 60
    everything = sum(map(len, sent.values()))
    while True:
        with lock:
            distinct = sum(len(set(values)) for values in seen.values())
        if distinct >= everything:
            break
        assert time.time() < deadline, f"{distinct} of {everything}"
        time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a consumer does not close"
    assert all(set(seen[key]) == set(sent[key]) for key in sent)


def test_a_static_member_comes_back_without_a_rebalance(bootstrap):
    topic, group = name("static"), name("static")
    admin = create(bootstrap, topic, 2)
    produce(bootstrap, topic, 10)
    static = {"group.instance.id": "one", "session.timeout.ms": 10000}
    _, consumer = consume(bootstrap, topic, 10, group, **static)
    consumer.commit(asynchronous=False)
    first = consumer.memberid()
    consumer.close()
    produce(bootstrap, topic, 10)
    seen, consumer = consume(bootstrap, topic, 10, group, **static)
    assert consumer.memberid() != first
    described = wait(admin.describe_consumer_groups([group]))[group]
    assert [member.group_instance_id for member in described.members] == ["one"], described.members
    consumer.close()


def test_admin(bootstrap):
    topic, group = name("admin"), name("admin-group")
    admin = create(bootstrap, topic, 2, **{"retention.ms": "1234567"})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = wait(admin.describe_configs([resource]))[resource]
    assert configs["retention.ms"].value == "1234567" and configs["cleanup.policy"].value == "delete"
    for bad in [NewTopic(topic, 2), NewTopic("no spaces", 1), NewTopic(name("zero"), 0)]:
        try:
            wait(admin.create_topics([bad]))
            raise AssertionError(f"{bad.topic} was created")
        except Exception as error:
            assert not isinstance(error, AssertionError), error
    wait(admin.create_partitions([NewPartitions(topic, 5)]))
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 5
    produce(bootstrap, topic, 200)
    _, consumer = consume(bootstrap, topic, 200, group)
    consumer.commit(asynchronous=False)
    listed = admin.list_consumer_groups().result(20)
    assert group in [one.group_id for one in listed.valid], listed.valid
    described = wait(admin.describe_consumer_groups([group]))[group]
    assert described.state.name == "STABLE" and len(described.members) == 1, described
    assert len(described.members[0].assignment.topic_partitions) == 5
    consumer.close()
    partition = TopicPartition(topic, 0)
    latest = wait(admin.list_offsets({partition: OffsetSpec.latest()}))[partition].offset
    first = wait(admin.list_offsets({partition: OffsetSpec.for_timestamp(1000)}))[partition].offset
    assert latest > 0 and first == 0, (latest, first)
    low = wait(admin.delete_records([TopicPartition(topic, 0, 1)]))
    assert [one.low_watermark for one in low.values()] == [1]
    wait(admin.delete_consumer_groups([group]))
    wait(admin.delete_topics([topic]))
    deadline = time.time() + 20
    while topic in admin.list_topics(timeout=10).topics:
        assert time.time() < deadline, "the topic is still listed"


def test_large_messages(bootstrap):
    topic = name("large")
    create(bootstrap, topic, 1, **{"max.message.bytes": "4000000"})
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 5_000_000})
    outcome = []
    producer.produce(topic, b"y" * 3_000_000, on_delivery=lambda error, message: outcome.append(error))
    producer.produce(topic, b"y" * 4_500_000, on_delivery=lambda error, message: outcome.append(error))
    producer.flush(30)
    assert sorted(error.code() if error else 0 for error in outcome) == [0, KafkaError.MSG_SIZE_TOO_LARGE], outcome
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name("large"), "auto.offset.reset": "earliest",
                         "fetch.message.max.bytes": 100_000})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    assert message and len(message.value()) == 3_000_000, "a batch larger than the limit was not returned whole"
    consumer.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address", nargs="?")
    parser.add_argument("--bootstrap")
    args = parser.parse_args()
    bootstrap = args.bootstrap or args.address or parser.error("an address is needed")
    cases = {case.__name__: case for case in [
        test_every_compression_round_trips, test_acks_and_older_requests,
        test_commits_survive_a_restart_of_the_consumer, test_a_static_member_comes_back_without_a_rebalance,
        test_admin, test_large_messages]}
    for strategy in ["range", "roundrobin", "cooperative-sticky"]:
        cases[f"test_a_group_shares_and_hands_over {strategy}"] = (
            lambda bootstrap, strategy=strategy: test_a_group_shares_and_hands_over(bootstrap, strategy))
    failed = 0
    for title, case in cases.items():
        started = time.time()
        try:
            case(bootstrap)
            print(f"ok {title} {time.time() - started:.1f} s", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED {title}", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
