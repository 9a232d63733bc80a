"""A member of a consumer group in a process of its own, to be killed at any moment.

kafka-python leaves sockets to the garbage collector, and a member that is killed must not take the tests with it.

    group_member.py confluent|aiokafka|kafka-python SERVERS GROUP TOPIC

Prints a JSON object a line: {"assigned": [partitions]} after each rebalance, {"committed": {partition: offset}} after
each commit that the coordinator has acknowledged. It commits after every batch of records that it reads, until it is
which ends at the end of its standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

SESSION_MS = 6_000
"""As short as group.min.session.timeout.ms allows."""


def say(**fields: Any) -> None:
    """Print a line."""
    print(json.dumps(fields), flush=True)


def end_of_input() -> threading.Event:
    """Return an event that is set when standard input ends."""
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    return ended


def confluent(servers: str, group: str, topic: str, ended: threading.Event) -> None:
    """Run librdkafka's consumer."""
    import confluent_kafka  # noqa: PLC0415 - one library in a process

    def assigned(_consumer: Any, partitions: list[Any]) -> None:
        say(assigned=sorted(one.partition for one in partitions))

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": "range",
        }
    )
    consumer.subscribe([topic], on_assign=assigned)
    while not ended.is_set():
        read = {}
        for message in consumer.consume(50, 0.2):
            if message.error() is None:
                read[message.partition()] = message.offset() + 1
        if not read:
            continue
        offsets = [confluent_kafka.TopicPartition(topic, at, offset) for at, offset in read.items()]
        try:
            done = consumer.commit(offsets=offsets, asynchronous=False)
        except confluent_kafka.KafkaException:
            continue  # a rebalance, or a coordinator that moves
        say(committed={one.partition: one.offset for one in done if one.error is None})
    consumer.close()


async def aio(servers: str, group: str, topic: str, ended: threading.Event) -> None:
    """Run aiokafka's consumer."""
    import aiokafka  # noqa: PLC0415 - one library in a process
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # noqa: PLC0415
    from aiokafka.errors import KafkaError  # noqa: PLC0415

    class Assigned(aiokafka.ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            """Do nothing."""

        async def on_partitions_assigned(self, assigned: Any) -> None:
            say(assigned=sorted(one.partition for one in assigned))

    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    consumer.subscribe([topic], listener=Assigned())
    await consumer.start()
    while not ended.is_set():
        batches = await consumer.getmany(timeout_ms=200, max_records=50)
        offsets = {at: records[-1].offset + 1 for at, records in batches.items() if records}
        if not offsets:
            continue
        try:
            await consumer.commit(offsets)
        except KafkaError:
            continue
        say(committed={at.partition: offset for at, offset in offsets.items()})
    await consumer.stop()


def kafka_python(servers: str, group: str, topic: str, ended: threading.Event) -> None:
    """Run kafka-python's consumer."""
    import kafka  # noqa: PLC0415 - one library in a process
    from kafka.coordinator.assignors.range import RangePartitionAssignor  # noqa: PLC0415
    from kafka.errors import KafkaError  # noqa: PLC0415
    from kafka.structs import OffsetAndMetadata  # noqa: PLC0415

    class Assigned(kafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            """Do nothing."""

        def on_partitions_assigned(self, assigned: Any) -> None:
            say(assigned=sorted(one.partition for one in assigned))

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers.split(","),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    consumer.subscribe([topic], listener=Assigned())
    while not ended.is_set():
        batches = consumer.poll(timeout_ms=200, max_records=50)
        offsets = {at: OffsetAndMetadata(records[-1].offset + 1, "", -1) for at, records in batches.items() if records}
        if not offsets:
            continue
        try:
            consumer.commit(offsets)
        except KafkaError:
            continue
        say(committed={at.partition: one.offset for at, one in offsets.items()})
    consumer.close()


def main() -> None:
    """Run the member that the command line names."""
    library, servers, group, topic = sys.argv[1:]
    ended = end_of_input()
    if library == "aiokafka":
        asyncio.run(aio(servers, group, topic, ended))
    else:
        {"confluent": confluent, "kafka-python": kafka_python}[library](servers, group, topic, ended)


if __name__ == "__main__":
    main()
