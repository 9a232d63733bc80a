"""A transactional producer of a scenario: a real client in a process of its own, which obeys a line at a time.

    python -m tidegauge_lab.scenario.producer_process ERRORS '{"library": ..., "settings": {...}}'

Commands are JSON objects on standard input, one a line: ``{"do": "init", "limit_seconds": 60}``, ``begin``,
``{"do": "send", "topic": "story", "partition": 0, "records": [["m1", TIMESTAMP_MS]], "limit_seconds": 60}``,
``{"do": "send_offsets", "group": "g", "offsets": [["story-0", 5]]}``, ``commit``, ``abort``. Each gets one line of
JSON: ``{}``, ``{"error": NAME, "message": ...}``, and after ``send`` also
``{"records": [{"offset": 4}, {"error": NAME, "message": ...}]}``. The process ends when its standard input does.

A call that the client says may be repeated is repeated until its time is over, as applications do.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin_groups import OffsetAndMetadata
from tidegauge_client.group.group_consumer import GroupMetadata
from tidegauge_lab.scenario.transactions_v2 import TransactionsV2


class Failed(Exception):
    """The client refuses; the name of its error, and what it says."""

    def __init__(self, name: str, message: str, *, may_repeat: bool = False) -> None:
        super().__init__(message)
        self.name = name
        self.may_repeat = may_repeat


class Client(Protocol):
    """A library's transactional producer. Every method raises ``Failed``, or a ``TidegaugeError`` that is final."""

    def init(self, limit_seconds: float) -> None:
        """Take over the transactional id."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(
        self, topic: str, partition: int, records: Sequence[tuple[str, int]], limit_seconds: float
    ) -> list[dict[str, Any]]:
        """Send records, each with its timestamp in ms, one after the other; return the outcome of each."""
        ...

    def send_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]], limit_seconds: float) -> None:
        """Add offsets of a group to the transaction, each with its topic and partition; no member commits them."""

    def commit(self, limit_seconds: float) -> None:
        """Commit the open transaction."""

    def abort(self, limit_seconds: float) -> None:
        """Abort the open transaction."""


class Confluent:
    """librdkafka's producer."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._library: Any = importlib.import_module("confluent_kafka")
        self._servers = settings["bootstrap.servers"]
        self._producer = self._library.Producer(settings)

    def _call(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except self._library.KafkaException as problem:
            error = problem.args[0]
            raise Failed(error.name(), error.str(), may_repeat=error.retriable()) from None

    def init(self, limit_seconds: float) -> None:
        """InitProducerId, repeated as long as the transaction before is being aborted."""
        self._call(lambda: self._producer.init_transactions(limit_seconds))

    def begin(self) -> None:
        """Begin; nothing is sent."""
        self._call(self._producer.begin_transaction)

    def send(
        self, topic: str, partition: int, records: Sequence[tuple[str, int]], limit_seconds: float
    ) -> list[dict[str, Any]]:
        """Send, and wait for the delivery report of each record before the next."""
        return [self._send(topic, partition, value, at_ms, limit_seconds) for value, at_ms in records]

    def _send(self, topic: str, partition: int, value: str, at_ms: int, limit_seconds: float) -> dict[str, Any]:
        reported: list[dict[str, Any]] = []

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                reported.append({"offset": message.offset()})
            else:
                reported.append({"error": error.name(), "message": error.str()})

        try:
            self._producer.produce(topic, value.encode(), partition=partition, timestamp=at_ms, on_delivery=delivered)
        except self._library.KafkaException as problem:
            error = problem.args[0]
            return {"error": error.name(), "message": error.str()}
        deadline = time.monotonic() + limit_seconds
        while not reported and time.monotonic() < deadline:
            # A fatal error is raised before the reports of the records that fail with it.
            with contextlib.suppress(self._library.KafkaException):
                self._producer.poll(0.1)
        return reported[0] if reported else {"error": "_TIMED_OUT", "message": "there was no delivery report"}

    def send_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]], limit_seconds: float) -> None:
        """Add offsets to the transaction; a consumer that never subscribes has the metadata of no member."""
        consumer = self._library.Consumer({"bootstrap.servers": self._servers, "group.id": group, "log_level": 0})
        positions = [self._library.TopicPartition(*one) for one in offsets]
        metadata = consumer.consumer_group_metadata()
        try:
            self._call(lambda: self._producer.send_offsets_to_transaction(positions, metadata, limit_seconds))
        finally:
            consumer.close()

    def commit(self, limit_seconds: float) -> None:
        """Commit."""
        self._call(lambda: self._producer.commit_transaction(limit_seconds))

    def abort(self, limit_seconds: float) -> None:
        """Abort."""
        self._call(lambda: self._producer.abort_transaction(limit_seconds))


class Own:
    """Tidegauge's producer."""

    def __init__(self, settings: dict[str, Any]) -> None:
        sync: Any = importlib.import_module("tidegauge_client.sync")
        named = {name.replace(".", "_"): _value(value) for name, value in settings.items()}
        self._producer: Any = sync.SyncProducer(**named)
        self._producer.start()

    def _call(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except TidegaugeError as problem:
            raise _failed(problem) from None

    def init(self, limit_seconds: float) -> None:
        """InitProducerId; the client's own max_block_ms limits it."""
        del limit_seconds
        self._call(self._producer.init_transactions)

    def begin(self) -> None:
        """Begin; nothing is sent."""
        self._call(self._producer.begin_transaction)

    def send(
        self, topic: str, partition: int, records: Sequence[tuple[str, int]], limit_seconds: float
    ) -> list[dict[str, Any]]:
        """Send, and wait for the acknowledgement of each record before the next."""
        found: list[dict[str, Any]] = []
        for value, at_ms in records:
            try:
                future = self._producer.send(topic, value.encode(), partition=partition, timestamp_ms=at_ms)
                found.append({"offset": future.result(limit_seconds).offset})
            except TidegaugeError as problem:
                found.append({"error": problem.code.name, "message": problem.message})
            except TimeoutError:
                found.append({"error": "REQUEST_TIMED_OUT", "message": "there was no acknowledgement"})
        return found

    def send_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]], limit_seconds: float) -> None:
        """Add offsets to the transaction."""
        del limit_seconds
        positions = {TopicPartition(topic, number): OffsetAndMetadata(offset) for topic, number, offset in offsets}
        metadata = GroupMetadata(group, -1, "", None)
        self._call(lambda: self._producer.send_offsets_to_transaction(positions, metadata))

    def commit(self, limit_seconds: float) -> None:
        """Commit."""
        del limit_seconds
        self._call(self._producer.commit_transaction)

    def abort(self, limit_seconds: float) -> None:
        """Abort."""
        del limit_seconds
        self._call(self._producer.abort_transaction)


def _value(text: str) -> Any:
    """Return a setting as Tidegauge's producer wants it: a number, or a text."""
    return int(text) if text.isdigit() else text


def _failed(problem: TidegaugeError) -> Failed:
    return Failed(problem.code.name, problem.message, may_repeat=problem.code is ErrorCode.REQUEST_TIMED_OUT)


def _repeated(call: Callable[[float], None], limit_seconds: float) -> None:
    deadline = time.monotonic() + limit_seconds
    while True:
        try:
            call(max(0.1, deadline - time.monotonic()))
        except Failed as problem:
            if not problem.may_repeat or time.monotonic() >= deadline:
                raise
        else:
            return


def obey(client: Client, command: dict[str, Any]) -> dict[str, Any]:
    """Do what a command says; return its response."""
    limit_seconds: float = command.get("limit_seconds", 60.0)
    try:
        match command["do"]:
            case "init":
                _repeated(client.init, limit_seconds)
            case "begin":
                client.begin()
            case "send":
                return _sent(client, command, limit_seconds)
            case "send_offsets":
                named = [(TopicPartition.parse(at), offset) for at, offset in command["offsets"]]
                given = [(at.topic, at.partition, offset) for at, offset in named]
                _repeated(partial(client.send_offsets, command["group"], given), limit_seconds)
            case "commit":
                _repeated(client.commit, limit_seconds)
            case "abort":
                _repeated(client.abort, limit_seconds)
    except Failed as problem:
        return {"error": problem.name, "message": str(problem)}
    except TidegaugeError as problem:
        return {"error": problem.code.name, "message": problem.message}
    return {}


def _sent(client: Client, command: dict[str, Any], limit_seconds: float) -> dict[str, Any]:
    records = [(value, at_ms) for value, at_ms in command["records"]]
    found = client.send(command["topic"], command["partition"], records, limit_seconds)
    failed = next((one for one in found if "error" in one), None)
    first = {} if failed is None else {"error": failed["error"], "message": failed["message"]}
    return {**first, "records": found}


LIBRARIES: Mapping[str, Callable[[dict[str, Any]], Client]] = {
    "confluent-kafka": Confluent,
    "tidegauge": Own,
    "transactions-v2": TransactionsV2,
}


def main() -> None:
    """Run the producer that the command line describes."""
    made = json.loads(sys.argv[2])
    settings = made["settings"]
    client: Client = LIBRARIES[made["library"]](settings)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(obey(client, json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
