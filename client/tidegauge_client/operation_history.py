"""The history of a client's operations, in the format that docs/histories.md describes for any client.

``produce --transactional-id --history`` and ``consume --history`` write it, and ``tidegauge verify --transactions``
judges it.

Rules:
    1. The line of a send, a commit or an abort is in the file before the operation begins. The lines of a poll are
       written when it has returned records: before that nothing has been read.
    2. A commit or an abort that failed is of unknown outcome: an earlier attempt of the same call may have had an
       effect.
    3. A jump of a consumer's positions is an ``assign``, which comes before the poll in which it happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tidegauge.errors import TidegaugeError
from tidegauge_client.group.listener import Partitions, RebalanceListener
from tidegauge_client.history_file import AppendedLines
from tidegauge_client.isolation import IsolationLevel
from tidegauge_client.metadata import TopicIdentity
from tidegauge_client.partition_queue import RecordMetadata
from tidegauge_client.sent_record import FAIL, INFO, INVOKE, OK
from tidegauge_client.subscription import ConsumerRecord


def value_text(value: bytes | None) -> str:
    """Return a record's value as text, with escapes for bytes that are not UTF-8."""
    return (value or b"").decode(errors="backslashreplace")


class OperationHistory(AppendedLines):
    """Appends the operations of one run of one client."""

    _next_number = 0

    def invoke(self, op: str, time_us: int | None = None, **fields: Any) -> int:
        """Note that an operation is about to begin, or began at a time; return its number."""
        number = self._next_number
        self._next_number += 1
        self._note(INVOKE, number, time_us, op=op, **fields)
        return number

    def end(self, number: int, outcome: str, **fields: Any) -> None:
        """Note the outcome of an operation: ``ok``, ``fail`` or ``info``."""
        self._note(outcome, number, None, **fields)

    def _note(self, kind: str, number: int, time_us: int | None, **fields: Any) -> None:
        line: dict[str, Any] = {"type": kind, "process": self.writer, "number": number}
        self.append({**line, "time_us": self.now_us() if time_us is None else time_us, **fields})


class TransactionHistory(OperationHistory):
    """Appends what one producer sends in its transactions, and how they end.

    Args:
        path: the file.
        topic: the topic of the records.
    """

    def __init__(self, path: Path, topic: str) -> None:
        super().__init__(path)
        self._topic = topic
        self._transactions = 0
        self._numbers: dict[int, int] = {}

    def begun(self) -> None:
        """Note that the records from now on are in another transaction."""
        self._transactions += 1

    @property
    def _transaction(self) -> str:
        """The name of the transaction; a transactional id alone may belong to several runs."""
        return f"{self.writer}-{self._transactions}"

    def sends_to(self, identity: TopicIdentity) -> None:
        """Take the topic's identity as ``HistoryWriter`` does; this format has none."""

    def invoked(
        self, number: int, key: bytes | None, value: bytes | None, partition: int | None, timestamp_ms: int
    ) -> None:
        """Note that a record is about to be handed over (rule 1)."""
        del key, timestamp_ms
        self._numbers[number] = self.invoke(
            "send",
            topic=self._topic,
            partition=partition,
            value=value_text(value),
            transaction=self._transaction,
        )

    def acknowledged(self, number: int, where: RecordMetadata) -> None:
        """Note that the record was acknowledged."""
        self.end(self._numbers.pop(number), OK, partition=where.partition, offset=where.offset)

    def failed(self, number: int, problem: TidegaugeError, *, is_definite: bool) -> None:
        """Note that the record failed, definitely or with unknown outcome."""
        self.end(self._numbers.pop(number), FAIL if is_definite else INFO, error=problem.code.name)

    def ending(self, *, is_commit: bool) -> int:
        """Note that the transaction is about to be committed or aborted; return the operation's number."""
        return self.invoke("commit" if is_commit else "abort", transaction=self._transaction)

    def ended(self, number: int, problem: TidegaugeError | None = None) -> None:
        """Note what came of it (rule 2)."""
        if problem is None:
            self.end(number, OK)
        else:
            self.end(number, INFO, error=problem.code.name)


class PollHistory(OperationHistory, RebalanceListener):
    """Appends what one consumer was given; listens to the rebalances of its group.

    Args:
        path: the file.
        isolation_level: of the consumer.
    """

    def __init__(self, path: Path, isolation_level: IsolationLevel) -> None:
        super().__init__(path)
        self._isolation_level = isolation_level

    def on_partitions_assigned(self, partitions: Partitions = ()) -> None:
        """Note that the consumer's positions may be anywhere from here on (rule 3)."""
        del partitions
        self.end(self.invoke("assign"), OK)

    def polled(self, begun_us: int, records: Iterable[ConsumerRecord]) -> None:
        """Note what a poll that began at a time has returned; one without records is left out (rule 1)."""
        given = [[one.topic, one.partition, one.offset, value_text(one.value)] for one in records]
        if given:
            self.end(self.invoke("poll", begun_us, isolation=self._isolation_level), OK, records=given)
