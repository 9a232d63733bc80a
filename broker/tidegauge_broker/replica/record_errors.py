"""The records of a producer's batch that break a rule, and the one error that refuses the batch (KIP-467).

Rules (LogValidator.processRecordErrors):
    1. Each record is looked at, and has at most one error; a batch with any is refused as a whole.
    2. One record whose time is wrong makes the error of the batch INVALID_TIMESTAMP; else it is INVALID_RECORD, and its
       message shows the first three.
    3. At most ``MAX_RECORD_ERRORS`` records of a request are named (Kafka names all): a small compressed batch may hold
       millions. Of a batch that would exceed it together with those before none is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError

MAX_RECORD_ERRORS = 10_000
_SHOWN = 3


class RecordError(NamedTuple):
    """Why a record is refused; ``batch_index`` is its place in the batch."""

    batch_index: int
    message: str

    def __str__(self) -> str:
        """Return what RecordError.toString does."""
        return f"RecordError(batchIndex={self.batch_index}, message='{self.message}')"


class RecordsRefused(TidegaugeError):
    """A batch is refused because of some of its records (RecordValidationException)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class NamedRecords:
    """Holds the limit of one request; rule 3."""

    def __init__(self) -> None:
        self._count = 0

    def within_limit(self, errors: Sequence[RecordError]) -> Sequence[RecordError]:
        """Return these errors, counted; none of them if they would exceed the limit."""
        if self._count + len(errors) > MAX_RECORD_ERRORS:
            return ()
        self._count += len(errors)
        return errors


class RecordErrors:
    """Collects the errors of a batch's records; see the module."""

    def __init__(self) -> None:
        self._named: list[RecordError] = []
        self._count = 0
        self._has_wrong_time = False

    def add(self, batch_index: int, message: str) -> None:
        """Note a record's error."""
        self._count += 1
        if self._count <= MAX_RECORD_ERRORS:
            self._named.append(RecordError(batch_index, message))

    def add_time(self, batch_index: int, message: str) -> None:
        """Note that a record's time is wrong; rule 2."""
        self._has_wrong_time = True
        self.add(batch_index, message)

    def raise_any(self) -> None:
        """Raise RecordsRefused if a record has an error."""
        if not self._count:
            return
        named = self._named
        if self._has_wrong_time:
            message = "One or more records have been rejected due to invalid timestamp"
            raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, message, named)
        shown = ", ".join(map(str, named[:_SHOWN]))
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {self._count} record errors in total, and only showing the "
            f"first three errors at most: [{shown}]",
            named,
        )
