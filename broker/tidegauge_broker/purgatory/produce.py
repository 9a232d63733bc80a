"""A produce with acks=all that waits until its records are committed (kafka-behaviour 2.2; DelayedProduce).

Each partition that was appended waits for the high watermark to reach its required offset. It ends with
    A   another error, when this broker no longer leads it,
    B.1 none, when the high watermark is there and the ISR is large enough,
    B.2 NOT_ENOUGH_REPLICAS_AFTER_APPEND, when it is there but the ISR has become too small,
    C   REQUEST_TIMED_OUT, when the time is over: the records stay and may commit later.
The whole request has one answer, when no partition waits any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import AnswerProduce, Effect
from tidegauge_broker.replica.messages import ProduceResult

CommitCheck = Callable[[TopicPartition, int], tuple[ErrorCode, str] | None]
"""Of a partition and a required offset: None while it waits, else the outcome (cases A and B)."""


@dataclass(slots=True)
class DelayedProduce:
    """One produce request in the purgatory; ``required`` holds the offsets still waited for."""

    token: object
    deadline_ms: int
    results: Sequence[ProduceResult]
    required: dict[int, int]
    check: CommitCheck

    @property
    def keys(self) -> tuple[TopicPartition, ...]:
        """The partitions it waits for."""
        return tuple(self.results[index].topic_partition for index in self.required)

    def try_complete(self, out: list[Effect]) -> bool:
        """Settle what can be settled; answer when nothing waits any more."""
        for index, offset in list(self.required.items()):
            result = self.results[index]
            outcome = self.check(result.topic_partition, offset)
            if outcome is not None:
                del self.required[index]
                self._settle(result, *outcome)
        if self.required:
            return False
        out.append(AnswerProduce(self.token, self.results))
        return True

    def expire(self, out: list[Effect]) -> None:
        """Case C."""
        for index, offset in self.required.items():
            result = self.results[index]
            self._settle(
                result,
                ErrorCode.REQUEST_TIMED_OUT,
                f"The records were appended at {result.topic_partition}, but the high watermark did not reach offset "
                f"{offset} in time; they may still be committed",
            )
        self.required.clear()
        out.append(AnswerProduce(self.token, self.results))

    @staticmethod
    def _settle(result: ProduceResult, error: ErrorCode, message: str) -> None:
        result.error = error
        result.message = message
        if error is not ErrorCode.NONE:
            result.base_offset = -1
