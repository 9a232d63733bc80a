"""Clients that live through swaps of a cluster's brokers: producers with a history, a member of a group, readers.

They are librdkafka's (confluent-kafka).
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from tests.waiting import until

LIMIT_SECONDS = 180.0
REQUEST_SECONDS = 10.0
PARTITIONS = 3
PLAIN, COMPACTED, TRANSFERS = "plain", "compacted", "transfers"
TOPICS = {
    PLAIN: {"index.interval.bytes": "500"},
    COMPACTED: {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "1000",
    },
    TRANSFERS: {"index.interval.bytes": "500"},
}
"""Settings of each topic, beside those by which its segments are rolled."""
SMALL_SEGMENTS = {"segment.bytes": "20000"}
SHORT_SEGMENTS = {"segment.ms": "10000"}
"""Segments that are rolled often, where Kafka 4 allows none so small."""
PASSING = {
    confluent_kafka.KafkaError._TIMED_OUT,
    confluent_kafka.KafkaError._NOENT,
    confluent_kafka.KafkaError.NOT_CONTROLLER,
    confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
    confluent_kafka.KafkaError.UNKNOWN_LEADER_EPOCH,
    confluent_kafka.KafkaError.FENCED_LEADER_EPOCH,
}
"""Errors that librdkafka does not call retriable, though its metadata alone may be too old or too new."""
UNKNOWN = {
    confluent_kafka.KafkaError._UNKNOWN_TOPIC,
    confluent_kafka.KafkaError._UNKNOWN_PARTITION,
    confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
}
END = confluent_kafka.KafkaError._PARTITION_EOF


class Record(NamedTuple):
    """A record as a consumer is given it."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


Log = dict[tuple[str, int], dict[int, Record]]
"""By topic and partition: records by offset."""


class History:
    """A history as docs/histories.md says; threads may share it, each operation gets its lines."""

    def __init__(self, path: Path, process: str) -> None:
        self._path, self._process, self._next = path, process, 0
        self._lock = threading.Lock()

    def invoke(self, op: str, **fields: Any) -> int:
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._write("invoke", number, {"op": op, **fields})
        return number

    def end(self, number: int, outcome: str = "ok", **fields: Any) -> None:
        with self._lock:
            self._write(outcome, number, fields)

    def _write(self, kind: str, number: int, fields: Mapping[str, Any]) -> None:
        line = {"type": kind, "process": self._process, "number": number, "time_us": time.time_ns() // 1000}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line | dict(fields)) + "\n")


class Writer:
    """A producer whose records are in a history.

    Args:
        servers: of the cluster.
        name: of the process in the history.
        history: the file.
        settings: of librdkafka, beside idempotence.
    """

    def __init__(self, servers: str, name: str, history: Path, **settings: Any) -> None:
        self._history = History(history, name)
        self.producer: Any = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                # A broker that starts from a snapshot knows a producer's last batch only, so retries of several fail.
                "max.in.flight.requests.per.connection": 1,
                "batch.size": 5_000,
                "message.timeout.ms": settings.get("transaction.timeout.ms", 0),
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
                **settings,
            }
        )
        self.failed: list[str] = []
        self.acknowledged: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
        self._name, self._count, self._transactions = name, 0, 0
        self.transaction: str | None = None
        self.committed: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._in_transaction: list[tuple[str, int, int]] = []

    def send(self, topic: str, partition: int, key: bytes | None = None) -> None:
        """Hand a record with a value of its own to the producer."""
        self._count += 1
        value = f"{self._name} {self._count:06d} " + "x" * (self._count % 70)
        sent = {"topic": topic, "partition": partition, "value": value, "transaction": self.transaction}
        number = self._history.invoke("send", **sent) if topic != COMPACTED else None

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failed.append(f"{self._name}: {error}")
            else:
                self.acknowledged[topic, partition][message.offset()] = value.encode()
                self._in_transaction.append((topic, partition, message.offset()))
            if number is not None:
                outcome = {"outcome": "info"} if error is not None else {"offset": message.offset()}
                self._history.end(number, **outcome)

        def produced() -> bool:
            try:
                self.producer.produce(
                    topic, value, key, partition=partition, on_delivery=delivered, headers=[("by", self._name)]
                )
            except confluent_kafka.KafkaException as raised:
                if raised.args[0].code() not in UNKNOWN:
                    raise
                with suppress(confluent_kafka.KafkaException):
                    self.producer.list_topics(topic, REQUEST_SECONDS)
                return False
            return True

        # A broker that has just started may say that it knows no topic.
        until(produced, LIMIT_SECONDS, f"{self._name} knows partition {partition} of {topic}")
        self.producer.poll(0)

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        assert self.producer.flush(LIMIT_SECONDS) == 0, f"{self._name}: records are not acknowledged"
        assert not self.failed, self.failed[:3]

    def give_up(self) -> None:
        """Drop unacknowledged records: they may have been written."""
        self.producer.purge()
        self.producer.flush(LIMIT_SECONDS)
        self.failed.clear()

    def refresh(self, *topics: str) -> None:
        """Have the producer know all partitions of these topics again; none: of those that are swapped."""

        def knows(topic: str) -> bool:
            return len(self.producer.list_topics(topic, REQUEST_SECONDS).topics[topic].partitions) == PARTITIONS

        for topic in topics or TOPICS:
            until(lambda: retried(lambda: knows(topic)), LIMIT_SECONDS, f"{topic} is known")  # noqa: B023

    def begin(self) -> None:
        """Begin a transaction."""
        self._transactions += 1
        self._in_transaction.clear()
        self.transaction = f"{self._name}-{self._transactions}"
        self.producer.begin_transaction()

    def finish(self, *, commit: bool) -> None:
        """End the transaction; again as long as the error is one that passes."""
        self.flush()
        number = self._history.invoke("commit" if commit else "abort", transaction=self.transaction)
        end = self.producer.commit_transaction if commit else self.producer.abort_transaction
        retried(lambda: end(LIMIT_SECONDS))
        self._history.end(number)
        self.transaction = None
        for topic, partition, offset in self._in_transaction if commit else ():
            self.committed[topic, partition].add(offset)


def retried(call: Any) -> Any:
    """Call again as long as librdkafka says that it may pass."""
    end = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            return call()
        except confluent_kafka.KafkaException as problem:
            error = problem.args[0]
            passes = error.retriable() or error.code() in PASSING
            if not passes or time.monotonic() > end:
                raise


class Member:
    """A member of a group of its own, from before a swap until after it.

    Its session is longer than a swap: a coordinator that has loaded the group grants it again. Whether it stays a
    member is asked of the coordinator: librdkafka may wait for ever for one that has died.

    Args:
        servers: of the cluster.
        group: its group.
    """

    def __init__(self, servers: str, group: str) -> None:
        self.group = group
        settings = {"session.timeout.ms": 170_000, "max.poll.interval.ms": 3_600_000, "auto.offset.reset": "earliest"}
        self._consumer = consumer_of(servers, group, committed=True, **settings)
        self._consumer.subscribe([PLAIN])
        until(self._is_member, LIMIT_SECONDS, f"{group} has its member")
        retried(lambda: self._consumer.commit(asynchronous=False))

    def _is_member(self) -> bool:
        return bool(self._consumer.consume(10, timeout=0.5)) and len(self._consumer.assignment()) == PARTITIONS

    @property
    def id(self) -> str:
        """The id that the coordinator gave it."""
        return str(self._consumer.memberid())

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


def consumer_of(servers: str, group: str, *, committed: bool, **settings: Any) -> Any:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
            **settings,
        }
    )


def read_all(servers: str, positions: Sequence[Any], *, committed: bool) -> Log:
    """Read partitions from their positions to the high watermarks that they have now.

    A reader of committed data gets there when no transaction is open; its own question would return the last stable
    offsets.
    """
    consumer = consumer_of(servers, "reader", committed=False)
    ends = {
        (one.topic, one.partition): retried(lambda one=one: consumer.get_watermark_offsets(one, timeout=20.0))[1]
        for one in positions
    }
    consumer.close()
    consumer = consumer_of(servers, "reader", committed=committed, **{"auto.offset.reset": "earliest"})
    found: Log = {at: {} for at in ends}
    reached = dict.fromkeys(ends, -1)
    consumer.assign(list(positions))

    def at_end() -> bool:
        for message in consumer.consume(5_000, timeout=0.2):
            if message.error() is not None:
                assert message.error().code() == END, message.error()
                reached[message.topic(), message.partition()] = message.offset()
                continue
            headers = tuple(message.headers() or ())
            record = Record(message.key(), message.value(), message.timestamp()[1], headers)
            found[message.topic(), message.partition()][message.offset()] = record
        return all(reached[at] >= end for at, end in ends.items())

    try:
        until(at_end, LIMIT_SECONDS, f"everything is read up to {ends}")
    finally:
        consumer.close()
    return found
