"""A consumer of a scenario: an unmodified Kafka client in a process of its own, which obeys a line at a time.

    python -m tidegauge_lab.scenario.consumer_process ERRORS '{"library": ..., "topic": ..., "settings": {...}}'

Commands are JSON objects on standard input, one a line: ``{"do": "consume", "count": 2, "limit_seconds": 60}``,
``commit`` (``"offsets": {"story-0": 1}``: these), ``busy``, ``poll``, ``problem``, ``close``. Each gets one line of
JSON: ``{"values": [...]}``, ``{"committed": {...}}``, ``{"error": NAME, "message": ...}`` or ``{}``. ``problem`` waits
for the fatal error with which the client ends its work. The process ends when its standard input does, or after
``close``.

Between commands the client polls with its partitions paused, so that it takes part in rebalances; after ``busy``, and
after ``consume`` with ``busy``, it polls no more until the next command.
"""

from __future__ import annotations

import importlib
import json
import queue
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

POLL_SECONDS = 0.1
_FATAL = "Fatal error: "
"""librdkafka's words before the description of the error that is fatal."""
_ERROR_CODES = 150
"""Kafka's error codes are below it."""


class Failed(Exception):
    """The client refuses; the name of its error, and what it says."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class Client(Protocol):
    """A library's consumer."""

    def idle(self) -> None:
        """Poll once, and get no records."""

    def poll(self, count: int) -> list[str]:
        """Poll once for at most so many records; return their values."""
        ...

    def commit(self, offsets: Mapping[str, int] | None = None) -> dict[str, int]:
        """Commit the positions, or these offsets by partition, and return the committed offsets by partition.

        Raises:
            Failed: the commit failed.
        """
        ...

    def problem(self) -> Failed | None:
        """Return the fatal error that the client has reported, if it has."""
        ...

    def close(self) -> None:
        """Leave the group."""


class Confluent:
    """librdkafka's consumer."""

    def __init__(self, topic: str, settings: dict[str, Any]) -> None:
        self._library: Any = importlib.import_module("confluent_kafka")
        self._is_idle = True
        self._is_incremental = settings.get("group.protocol") == "consumer"
        self._problem: Failed | None = None
        self._consumer = self._library.Consumer({**settings, "error_cb": self._noted})
        self._consumer.subscribe([topic], on_assign=self._assigned)

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        # Before the poll in which they are assigned returns a record of them.
        if self._is_incremental:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        if self._is_idle:
            consumer.pause(partitions)

    def _noted(self, error: Any) -> None:
        is_fatal = error.fatal() or error.code() == self._library.KafkaError._FATAL  # noqa: SLF001 - its public name
        if is_fatal and self._problem is None:
            self._problem = Failed(self._cause(error.str()) or error.name(), error.str())

    def _cause(self, message: str) -> str:
        """Name the broker's error in a fatal error's message, which has its description alone."""
        made = (self._library.KafkaError(code) for code in range(1, _ERROR_CODES))
        return next((one.name() for one in made if f"{_FATAL}{one.str()}" in message), "")

    def problem(self) -> Failed | None:
        """Return the client's first fatal error."""
        return self._problem

    def idle(self) -> None:
        """Pause assigned partitions, and poll."""
        self._is_idle = True
        self._consumer.pause(self._consumer.assignment())
        self._polled(1)

    def poll(self, count: int) -> list[str]:
        """Resume assigned partitions, and poll."""
        self._is_idle = False
        self._consumer.resume(self._consumer.assignment())
        return self._polled(count)

    def _polled(self, count: int) -> list[str]:
        """Poll once; errors are events, such as a session that has ended, unless they are fatal."""
        values: list[str] = []
        for message in self._consumer.consume(count, POLL_SECONDS):
            if message.error() is None:
                values.append(message.value().decode())
            else:
                self._noted(message.error())
        return values

    def commit(self, offsets: Mapping[str, int] | None = None) -> dict[str, int]:
        """Commit the positions, or these offsets."""
        try:
            done = self._consumer.commit(
                offsets=None if offsets is None else [self._offset(at, one) for at, one in offsets.items()],
                asynchronous=False,
            )
        except self._library.KafkaException as problem:
            raise Failed(problem.args[0].name(), problem.args[0].str()) from None
        for one in done:
            if one.error is not None:
                raise Failed(one.error.name(), one.error.str())
        return {f"{one.topic}-{one.partition}": one.offset for one in done if one.offset >= 0}

    def _offset(self, partition: str, offset: int) -> Any:
        topic, _, number = partition.rpartition("-")
        return self._library.TopicPartition(topic, int(number), offset)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


class KafkaPython:
    """kafka-python's consumer, which follows the Java client."""

    def __init__(self, topic: str, settings: dict[str, Any]) -> None:
        library: Any = importlib.import_module("kafka")
        self._error: Any = importlib.import_module("kafka.errors").KafkaError
        named = {name.replace(".", "_"): _value(value) for name, value in settings.items()}
        self._is_idle = True
        self._consumer = library.KafkaConsumer(**named)
        self._consumer.subscribe([topic], listener=self._listener(library))
        # A leader that learns of its topic after it has joined joins again, and a poll whose time is up meanwhile
        # leaves kafka-python 3.0 without partitions and heartbeats: need_rejoin() is false before SyncGroup is done.
        self._consumer.topics()

    def _listener(self, library: Any) -> Any:
        client = self

        class Pausing(library.ConsumerRebalanceListener):  # type: ignore[misc]  # a class of a library without types
            def on_partitions_revoked(self, revoked: Any) -> None:
                """Do nothing."""

            def on_partitions_assigned(self, assigned: Any) -> None:
                client.assigned(assigned)

        return Pausing()

    def assigned(self, partitions: Any) -> None:
        """Pause assigned partitions before the same poll returns a record of them."""
        if self._is_idle:
            self._consumer.pause(*partitions)

    def idle(self) -> None:
        """Pause assigned partitions, and poll."""
        self._is_idle = True
        self._consumer.pause(*self._consumer.assignment())
        self._consumer.poll(timeout_ms=int(POLL_SECONDS * 1000))

    def poll(self, count: int) -> list[str]:
        """Resume assigned partitions, and poll."""
        self._is_idle = False
        self._consumer.resume(*self._consumer.assignment())
        found = self._consumer.poll(timeout_ms=int(POLL_SECONDS * 1000), max_records=count)
        return [record.value.decode() for records in found.values() for record in records]

    def problem(self) -> Failed | None:
        """Return None: this client raises its errors from the call that fails."""
        return None

    def commit(self, offsets: Mapping[str, int] | None = None) -> dict[str, int]:
        """Commit the positions.

        Raises:
            Failed: the commit failed, or offsets are given.
        """
        if offsets is not None:
            raise Failed("UnsupportedOperation", "offsets of one's own are committed by confluent-kafka alone here")
        try:
            self._consumer.commit()
        except self._error as problem:
            raise Failed(type(problem).__name__, str(problem)) from None
        return {f"{at.topic}-{at.partition}": self._consumer.position(at) for at in self._consumer.assignment()}

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


def _value(text: str) -> Any:
    """Return a setting for kafka-python: a number, a boolean, or a text."""
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if text.isdigit() else text


def _commands() -> queue.Queue[dict[str, Any] | None]:
    """Return the commands as they arrive; None is the end."""
    found: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            found.put(json.loads(line))
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    return found


def _consume(client: Client, count: int, limit_seconds: float) -> dict[str, Any]:
    deadline = time.monotonic() + limit_seconds
    values: list[str] = []
    while len(values) < count and time.monotonic() < deadline:
        values += client.poll(count - len(values))
    return {"values": values}


def _problem(client: Client, limit_seconds: float) -> dict[str, Any]:
    """Poll until the client has reported a fatal error; return it, or nothing if it is late."""
    deadline = time.monotonic() + limit_seconds
    while (found := client.problem()) is None and time.monotonic() < deadline:
        client.idle()
    return {} if found is None else {"error": found.name, "message": str(found)}


def obey(client: Client, command: dict[str, Any]) -> dict[str, Any]:
    """Do what a command says; return its response."""
    try:
        match command["do"]:
            case "consume":
                return _consume(client, command["count"], command["limit_seconds"])
            case "commit":
                return {"committed": client.commit(command.get("offsets"))}
            case "problem":
                return _problem(client, command["limit_seconds"])
            case "close":
                client.close()
    except Failed as problem:
        return {"error": problem.name, "message": str(problem)}
    return {}


def main() -> None:
    """Run the consumer that the command line describes."""
    made = json.loads(sys.argv[2])
    topic, settings = made["topic"], made["settings"]
    client: Client = (
        Confluent(topic, settings) if made["library"] == "confluent-kafka" else KafkaPython(topic, settings)
    )
    commands = _commands()
    is_busy = False
    while True:
        try:
            command = commands.get(block=is_busy)
        except queue.Empty:
            client.idle()
            continue
        if command is None:
            return
        sys.stdout.write(json.dumps(obey(client, command)) + "\n")
        sys.stdout.flush()
        if command["do"] == "close":
            return
        is_busy = command["do"] == "busy" or bool(command.get("busy")) or (is_busy and command["do"] == "commit")


if __name__ == "__main__":
    main()
