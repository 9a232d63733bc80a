"""A reader of committed records (librdkafka) that writes its history, while copiers write."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
from tests.clients.copier_history import History
from tests.integration.copiers import LIMIT_SECONDS, PARTITIONS


@contextlib.contextmanager
def reading(topic: str, servers: str, path: Path) -> Iterator[None]:
    """Read a topic of copies as a reader of committed records does, from the beginning to the end, with its history."""
    history, ends = History(str(path), "reader"), threading.Event()
    consumer: Any = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )

    def read() -> None:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        history.end(history.invoke("assign"))
        is_last = False
        while not is_last:
            is_last = ends.is_set()
            number = history.invoke("poll")
            given = consumer.consume(500, timeout=2.0 if is_last else 0.2)
            records = [
                [one.topic(), one.partition(), one.offset(), one.value().decode()] for one in given if not one.error()
            ]
            history.end(number, records=records)
        consumer.close()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(LIMIT_SECONDS)
        history.close()
