"""A DeleteRecords that waits until all live replicas have followed (kafka-behaviour 1.12; DelayedDeleteRecords).

Each partition whose log start offset was raised waits for the low watermark - the smallest log start offset of the
leader and the live replicas - to reach it. It ends with another error when this broker no longer leads it, and with
REQUEST_TIMED_OUT when the time is over: the leader's log start offset stays where it is, and the others follow later.
The whole request has one answer, when no partition waits any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import AnswerDeleteRecords, Effect
from tidegauge_broker.replica.messages import DeleteRecordsResult

LowWatermark = Callable[[TopicPartition], int | tuple[ErrorCode, str]]
"""A partition's low watermark, or why this broker can't tell it."""


@dataclass(slots=True)
class DelayedDeleteRecords:
    """One request in the purgatory; ``required`` holds the offsets still waited for."""

    token: object
    deadline_ms: int
    results: Sequence[DeleteRecordsResult]
    required: dict[int, int]
    low_watermark: LowWatermark

    @property
    def keys(self) -> tuple[TopicPartition, ...]:
        """The partitions it waits for."""
        return tuple(self.results[index].topic_partition for index in self.required)

    def try_complete(self, out: list[Effect]) -> bool:
        """Settle what can be settled; answer when nothing waits any more."""
        for index, offset in list(self.required.items()):
            result = self.results[index]
            found = self.low_watermark(result.topic_partition)
            if isinstance(found, tuple):
                result.error, result.message = found
                result.low_watermark = -1
                del self.required[index]
            elif found >= offset:
                result.low_watermark = found
                del self.required[index]
        if self.required:
            return False
        out.append(AnswerDeleteRecords(self.token, self.results))
        return True

    def expire(self, out: list[Effect]) -> None:
        """The time is over."""
        for index, offset in self.required.items():
            result = self.results[index]
            result.error = ErrorCode.REQUEST_TIMED_OUT
            result.message = (
                f"The leader deleted the records of {result.topic_partition} below offset {offset}, but not all live "
                "replicas followed in time; they will"
            )
            result.low_watermark = -1
        self.required.clear()
        out.append(AnswerDeleteRecords(self.token, self.results))
