#!/usr/bin/env python3
"""Do aiokafka and kafka-python trust our broker? Produce, group consume and admin through each.

usage: python_clients.py [--bootstrap] HOST:PORT[,...]
needs: pip install aiokafka kafka-python
The last line is `N passed, N failed`; the exit code is not 0 when something failed.
"""
import argparse
import asyncio
import sys
import time
import traceback
import uuid

import aiokafka
import aiokafka.admin
import kafka
import kafka.admin

RUN = uuid.uuid4().hex[:8]


def name(text):
    return f"py-{text}-{RUN}"


async def aio_round_trip(bootstrap, codec):
    topic = name(f"aio-{codec}")
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([aiokafka.admin.NewTopic(topic, 3, 1)])
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type=codec, enable_idempotence=True)
    await producer.start()
    sent = [f"v{number}" for number in range(500)]
    waits = [await producer.send(topic, value.encode(), key=f"k{number % 9}".encode(), headers=[("h", b"1")])
             for number, value in enumerate(sent)]
    await asyncio.gather(*waits)
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False,
        isolation_level="read_committed")
    await consumer.start()
    seen = []
    while len(seen) < len(sent):
        records = await asyncio.wait_for(consumer.getmany(timeout_ms=500), 20)
        seen += [record.value.decode() for batch in records.values() for record in batch]
    await consumer.commit()
    committed = [await consumer.committed(partition) for partition in consumer.assignment()]
    assert sum(one or 0 for one in committed) == len(sent), committed
    await consumer.stop()
    assert sorted(seen) == sorted(sent)
    await admin.delete_topics([topic])
    await admin.close()


def kafka_python_round_trip(bootstrap):
    topic = name("kp")
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([kafka.admin.NewTopic(topic, 3, 1)])
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks="all", compression_type="gzip")
    for number in range(500):
        producer.send(topic, f"v{number}".encode(), key=f"k{number % 9}".encode())
    producer.flush(30)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest",
                                   enable_auto_commit=False)
    total, deadline = 0, time.time() + 30
    while total < 500:
        assert time.time() < deadline, total
        total += sum(map(len, consumer.poll(500).values()))
    consumer.commit()
    consumer.close()
    admin.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address", nargs="?")
    parser.add_argument("--bootstrap")
    args = parser.parse_args()
    bootstrap = args.bootstrap or args.address or parser.error("an address is needed")
    cases = {f"aiokafka {codec}": lambda codec=codec: asyncio.run(aio_round_trip(bootstrap, codec))
             for codec in [None, "gzip"]}
    cases["kafka-python"] = lambda: kafka_python_round_trip(bootstrap)
    failed = 0
    for title, case in cases.items():
        try:
            case()
            print(f"ok {title}", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED {title}", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
