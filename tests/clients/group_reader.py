"""A member of a group (librdkafka) that reads, commits, and writes down both (docs/histories.md); ends with its stdin.

    group_reader.py SERVERS GROUP TOPIC HISTORY [INSTANCE]

With INSTANCE it is a static member (KIP-345): the next process of that name takes its place without a rebalance.
It may be killed or paused at any moment. It prints a line for each commit that the coordinator has acknowledged.
``LIBRDKAFKA_DEBUG=cgrp,protocol`` has librdkafka log to stderr what it does.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import confluent_kafka
from tests.clients.copier_history import History

SIZE = 50
LIMIT_SECONDS = 10.0
DEBUG = {"debug": os.environ["LIBRDKAFKA_DEBUG"]} if "LIBRDKAFKA_DEBUG" in os.environ else {"log_level": 2}


class Reader:
    """The reader of a group."""

    def __init__(self, servers: str, group: str, topic: str, history: str, instance: str = "") -> None:
        self._group, self._topic = group, topic
        self._history = History(history, group)
        self._has_moved = False
        self._ends = threading.Event()
        self._consumer: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                "partition.assignment.strategy": "range",
                **({"group.instance.id": instance} if instance else {}),
                **DEBUG,
            }
        )
        self._consumer.subscribe([topic], self._moved, on_revoke=self._moved, on_lost=self._moved)
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()

    def _wait_for_the_end(self) -> None:
        sys.stdin.read()
        self._ends.set()

    def _moved(self, _: Any, __: Any) -> None:
        self._has_moved = True

    def run(self) -> None:
        """Read and commit until stdin ends."""
        read: dict[int, int] = {}
        count = 0
        while not self._ends.is_set():
            message = self._polled()
            if self._has_moved:  # records of partitions that are another member's now are that member's to commit
                self._has_moved, count = False, 0
                read.clear()
                self._read_offsets()
            if message is not None:
                read[message.partition()] = message.offset() + 1
                count += 1
            if read and (message is None or count >= SIZE):
                self._commit(read)
                read, count = {}, 0
        self._consumer.close()

    def _polled(self) -> Any:
        """Return a record or None.

        If partitions were assigned meanwhile the record was read after that: the poll's line comes behind it.
        """
        number = self._history.invoke("poll")
        message = self._consumer.poll(0.1)
        if self._has_moved:
            self._history.end(self._history.invoke("assign"))
            number = self._history.invoke("poll")
        if message is None or message.error() is not None:
            return None
        seen = [message.topic(), message.partition(), message.offset(), message.value().decode()]
        self._history.end(number, records=[seen])
        return message

    def _read_offsets(self) -> None:
        assigned = self._consumer.assignment()
        if not assigned:
            return
        number = self._history.invoke("read-offsets", group=self._group)
        try:
            found = self._consumer.committed(assigned, LIMIT_SECONDS)
        except confluent_kafka.KafkaException:
            self._history.end(number, "info")
            return
        positions = {f"{one.topic}-{one.partition}": one.offset for one in found if one.offset >= 0}
        self._history.end(number, offsets=positions)

    def _commit(self, read: dict[int, int]) -> None:
        positions = {f"{self._topic}-{partition}": offset for partition, offset in read.items()}
        number = self._history.invoke("send-offsets", transaction=None, group=self._group, offsets=positions)
        offsets = [confluent_kafka.TopicPartition(self._topic, partition, offset) for partition, offset in read.items()]
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False)
        except confluent_kafka.KafkaException:  # a rebalance, or a coordinator that moves
            self._history.end(number, "info")
            return
        if any(one.error is not None for one in done):
            self._history.end(number, "info")
            return
        self._history.end(number)
        print(sorted(read.items()), flush=True)


if __name__ == "__main__":
    Reader(*sys.argv[1:]).run()
