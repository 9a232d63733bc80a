"""The producers of a scenario: records sent, their responses, and the history of both.

Every produce is in a history from its hand-over on, for the accountant at the end; so are the records of
transactional producers, whether committed or not. A file may hold several producers: one for each
topic and acks level, and one for the transactions in each topic.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.history import HistoryWriter
from tidegauge_client.partition_queue import RecordMetadata
from tidegauge_lab.scenario.broker_steps import Produce
from tidegauge_lab.scenario.cluster_connections import ACKNOWLEDGED, NO_RESPONSE, UNKNOWN, ClusterConnections, Response

HISTORY = "history.jsonl"
_ACKS = {-1: "all", 0: "0", 1: "1"}


@dataclass(frozen=True, slots=True)
class _Producer:
    """A producer of a history file, with its count of records."""

    path: Path
    history: HistoryWriter
    numbers: Iterator[int] = field(default_factory=itertools.count)


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that a transactional producer was given."""

    value: str
    timestamp_ms: int
    at: TopicPartition
    number: int


class Senders:
    """All producers of a run.

    Args:
        connections: send.
        directory: where the histories are written.
    """

    def __init__(self, connections: ClusterConnections, directory: Path) -> None:
        self._connections = connections
        self._directory = directory
        self._producers: dict[tuple[str, str, int, bool], _Producer] = {}
        self._futures: dict[str, Future[Response]] = {}

    def send(self, step: Produce, at: TopicPartition, value: str, broker_id: int, wait_ms: int) -> Future[Response]:
        """Send one record to a broker; the future is its response, which is noted as well."""
        producer = self._producer(step.history or HISTORY, at.topic, step.acks)
        number = next(producer.numbers)
        timestamp_ms = time.time_ns() // 1_000_000
        producer.history.invoked(number, None, value.encode(), at.partition, timestamp_ms)
        future = self._connections.produce(at, value, timestamp_ms, step.acks, broker_id, wait_ms)
        self._futures[value] = future
        future.add_done_callback(lambda done: _note(producer.history, number, at, done))
        return future

    def invoked(self, at: TopicPartition, value: str) -> Sent:
        """Note a record that a transactional producer is about to be given."""
        producer = self._producer(HISTORY, at.topic, -1, is_idempotent=True)
        sent = Sent(value, time.time_ns() // 1_000_000, at, next(producer.numbers))
        producer.history.invoked(sent.number, None, value.encode(), at.partition, sent.timestamp_ms)
        return sent

    def acknowledged(self, sent: Sent, offset: int) -> None:
        """Note that a record of a transactional producer was appended."""
        history = self._producer(HISTORY, sent.at.topic, -1, is_idempotent=True).history
        history.acknowledged(sent.number, RecordMetadata(sent.at.topic, sent.at.partition, offset, -1))

    def failed(self, sent: Sent, error: str) -> None:
        """Note that a record of a transactional producer failed, by its client's name for the error."""
        code = ErrorCode[error] if error in ErrorCode.__members__ else ErrorCode.NETWORK_EXCEPTION
        problem = TidegaugeError(code)
        history = self._producer(HISTORY, sent.at.topic, -1, is_idempotent=True).history
        history.failed(sent.number, problem, is_definite=problem.definite)

    def responses(self) -> dict[str, str]:
        """Return the responses so far, by value."""
        return {
            value: future.result().state if future.done() else NO_RESPONSE for value, future in self._futures.items()
        }

    def histories(self) -> list[Path]:
        """Return the history files."""
        return sorted({producer.path for producer in self._producers.values()})

    def close(self) -> None:
        """Nothing is noted any more."""
        for producer in self._producers.values():
            producer.history.close()

    def _producer(self, name: str, topic: str, acks: int, *, is_idempotent: bool = False) -> _Producer:
        key = (name, topic, acks, is_idempotent)
        if key not in self._producers:
            path = self._directory / name
            writer = HistoryWriter(path, topic, _ACKS[acks], is_idempotent=is_idempotent)
            writer.sends_to(self._connections.topic_identity(topic))
            self._producers[key] = _Producer(path, writer)
        return self._producers[key]


def _note(history: HistoryWriter, number: int, at: TopicPartition, done: Future[Response]) -> None:
    """Write a response into the history of its record."""
    if done.cancelled() or done.exception() is not None:
        return
    response = done.result()
    if response.state == ACKNOWLEDGED:
        history.acknowledged(number, RecordMetadata(at.topic, at.partition, response.offset, -1))
        return
    code = ErrorCode.NETWORK_EXCEPTION if response.state == UNKNOWN else ErrorCode[response.state]
    problem = TidegaugeError(code, response.message)
    history.failed(number, problem, is_definite=problem.definite)
