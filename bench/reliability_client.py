"""The Kafka client of ``reliability.py``: librdkafka writes numbered records without a pause, and reads each again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITION = "reliability-0"
_PAUSE_SECONDS = 0.02
_AWAIT_SECONDS = 0.05


def write_first(servers: str, topic: str, bound_seconds: float) -> None:
    """Create a topic of one partition with three replicas, two of them at least in sync; write one record.

    Raises:
        TimeoutError: the record is not acknowledged by all replicas in time.
    """
    new = NewTopic(topic, num_partitions=1, replication_factor=3, config={"min.insync.replicas": "2"})
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([new])[topic].result(bound_seconds)
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "log_level": 0})
    producer.produce(topic, b"first", partition=0, on_delivery=_noting(failures))
    if producer.flush(bound_seconds) or failures:
        raise TimeoutError(f"the first record was not acknowledged: {failures}")


class Writer:
    """A producer in a thread of its own; acknowledged records are checked against the log.

    Args:
        servers: ``host:port,host:port``.
        topic: it writes into partition 0 of it.
        bound_seconds: how long a record may wait for its acknowledgement, and a read for a record.
    """

    def __init__(self, servers: str, topic: str, bound_seconds: float) -> None:
        self._topic = topic
        self._bound_seconds = bound_seconds
        self._acknowledged: dict[int, bytes] = {}
        self._failures: list[str] = []
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._sent = 0
        self._done = 0
        self._next = 1  # offset 0 is the start's
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        self._producer: Any = Producer({**settings, "delivery.timeout.ms": int(bound_seconds * 1000)})
        self._consumer: Any = Consumer(
            {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
        )
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._consumer.assign([TopicPartition(self._topic, 0, self._next)])
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._consumer.close()

    def raise_if_ended(self) -> None:
        """Raise what the producer reported.

        Raises:
            RuntimeError: a record was given up.
        """
        if self._failures:
            raise RuntimeError(f"the producer gave up a record: {self._failures[0]}")

    def check(self) -> tuple[int, int, int]:
        """Wait for a record that is sent from now on; read up to it.

        Returns:
            How many records were acknowledged since the last check, how many of them are not at their offset, how
            many are there that were not acknowledged.

        Raises:
            RuntimeError: the producer gave up a record.
            TimeoutError: no record was acknowledged, or none could be read, in time.
        """
        end = self._offset_of_a_new_record()
        found: dict[int, bytes] = {}
        while self._next <= end:
            message = self._consumer.poll(self._bound_seconds)
            if message is None:
                raise TimeoutError(f"no record to read at {self._next} within {self._bound_seconds:g} s")
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            found[message.offset()] = message.value()
            self._next = message.offset() + 1
        with self._lock:
            wanted = {offset: value for offset, value in self._acknowledged.items() if offset <= end}
            self._acknowledged = {offset: value for offset, value in self._acknowledged.items() if offset > end}
        lost = sum(found.get(offset) != value for offset, value in wanted.items())
        return len(wanted), lost, len(found.keys() - wanted.keys())

    def _offset_of_a_new_record(self) -> int:
        with self._lock:
            target = self._sent + 1
        deadline = time.monotonic() + self._bound_seconds
        while True:
            self.raise_if_ended()
            with self._lock:
                if self._done >= target:
                    return max(self._acknowledged)
            if time.monotonic() > deadline:
                raise TimeoutError(f"record {target} was not acknowledged within {self._bound_seconds:g} s")
            time.sleep(_AWAIT_SECONDS)

    def _write(self) -> None:
        while not self._ends.is_set():
            with self._lock:
                self._sent += 1
                value = b"%d" % self._sent
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._on_delivery)
            self._producer.poll(0)
            time.sleep(_PAUSE_SECONDS)
        self._producer.flush(self._bound_seconds)

    def _on_delivery(self, error: Any, message: Any) -> None:
        with self._lock:
            self._done += 1
            if error is not None:
                self._failures.append(str(error))
            else:
                self._acknowledged[message.offset()] = message.value()


def _noting(failures: list[str]) -> Callable[[Any, Any], None]:
    def note(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    return note
