"""A member of a consumer group in a process of its own, to be killed at any moment.

kafka-python leaves sockets to the garbage collector, and a member that is killed must not take the tests with it.

    group_member.py LIBRARY SERVERS GROUP TOPIC [SESSION_MS [ASSIGNOR]]

LIBRARY is confluent, confluent-consumer, aiokafka, kafka-python or tidegauge.
``confluent-consumer`` is librdkafka's member of the consumer protocol (KIP-848), whose times and assignor are the
coordinator's; it prints all that it has whenever that has changed.
Prints a JSON object a line: {"assigned": [partitions]} after each rebalance (with the assignor cooperative-sticky those
that came in addition, and {"revoked": [partitions]}), {"committed": {partition: offset}} after each commit that the
coordinator has acknowledged. It commits after every batch of records that it reads, and ends with
its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import Mapping
from typing import Any

POLL_MS = 2_000
"""Longer than a rebalance takes, so that none is left half done by a poll whose time is up."""
SESSION_MS = int(sys.argv[5]) if len(sys.argv) > 5 else 6_000
"""By default as short as group.min.session.timeout.ms allows."""
METADATA_MS = 5_000
"""aiokafka's reset to the earliest offset asks for no new metadata where the leader has changed."""
ASSIGNOR = sys.argv[6] if len(sys.argv) > 6 else "range"
"""Of confluent and tidegauge; the others have range."""


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

    def revoked(_consumer: Any, partitions: list[Any]) -> None:
        say(revoked=sorted(one.partition for one in partitions))

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": ASSIGNOR,
        }
    )
    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
    while not ended.is_set():
        read = {}
        for message in consumer.consume(50, 0.2):
            if message.error() is None:
                read[message.partition()] = message.offset() + 1
        if not read:
            continue
        commit(consumer, topic, read)
    consumer.close()


def commit(consumer: Any, topic: str, read: Mapping[int, int]) -> None:
    """Commit librdkafka's positions by partition, and say which ones arrived.

    A commit that meets a rebalance, or a coordinator that moves, is not repeated.
    """
    import confluent_kafka  # noqa: PLC0415 - one library in a process

    offsets = [confluent_kafka.TopicPartition(topic, at, offset) for at, offset in read.items()]
    with contextlib.suppress(confluent_kafka.KafkaException):
        done = consumer.commit(offsets=offsets, asynchronous=False)
        say(committed={one.partition: one.offset for one in done if one.error is None})


def confluent_consumer(servers: str, group: str, topic: str, ended: threading.Event) -> None:
    """Run librdkafka's consumer in the consumer protocol."""
    import confluent_kafka  # noqa: PLC0415 - one library in a process

    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "group.protocol": "consumer",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    before: list[int] | None = None
    while not ended.is_set():
        messages = [one for one in consumer.consume(50, 0.2) if one.error() is None]
        now = sorted(one.partition for one in consumer.assignment())
        if now != before:
            before = now
            say(assigned=now)
        if not messages:
            continue
        read = {one.partition(): one.offset() + 1 for one in messages}
        commit(consumer, topic, read)
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
        metadata_max_age_ms=METADATA_MS,
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
    # A leader that learns of its topic after it has joined joins again, and a poll whose time is up meanwhile leaves
    # kafka-python 3.0 without partitions and heartbeats for good: need_rejoin() is false before the response to
    # SyncGroup is taken (its ConsumerCoordinator.need_rejoin and BaseCoordinator.join_group_async).
    consumer.topics()
    while not ended.is_set():
        batches = consumer.poll(timeout_ms=POLL_MS, max_records=50)
        offsets = {at: OffsetAndMetadata(records[-1].offset + 1, "", -1) for at, records in batches.items() if records}
        if not offsets:
            continue
        try:
            consumer.commit(offsets)
        except KafkaError:
            continue
        say(committed={at.partition: one.offset for at, one in offsets.items()})
    consumer.close()


def tidegauge(servers: str, group: str, topic: str, ended: threading.Event) -> None:
    """Run Tidegauge's own consumer, over gRPC."""
    from tidegauge_client import RebalanceListener, TidegaugeError  # noqa: PLC0415 - one library in a process
    from tidegauge_client.group.sync import SyncGroupConsumer  # noqa: PLC0415

    class Assigned(RebalanceListener):
        def on_partitions_assigned(self, partitions: Any) -> None:
            say(assigned=sorted(one.partition for one in partitions))

        def on_partitions_revoked(self, partitions: Any) -> None:
            say(revoked=sorted(one.partition for one in partitions))

    with SyncGroupConsumer(
        servers,
        group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=[ASSIGNOR],
    ) as consumer:
        consumer.subscribe([topic], listener=Assigned())
        while not ended.is_set():
            records = consumer.poll(200, 50)
            read = {record.partition: record.offset + 1 for record in records}
            try:
                consumer.commit_sync()
            except TidegaugeError:
                continue  # a rebalance, or a coordinator that moves
            if read:
                say(committed=read)


def main() -> None:
    """Run the member that the command line names."""
    library, servers, group, topic = sys.argv[1:5]
    ended = end_of_input()
    if library == "aiokafka":
        asyncio.run(aio(servers, group, topic, ended))
    else:
        run = {
            "confluent": confluent,
            "confluent-consumer": confluent_consumer,
            "kafka-python": kafka_python,
            "tidegauge": tidegauge,
        }[library]
        run(servers, group, topic, ended)


if __name__ == "__main__":
    main()
