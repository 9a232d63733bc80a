"""A produce with acks=all that waits until its records are committed (DelayedProduce).

Each partition that was appended waits for the high watermark to reach its required offset. It ends with
    A   another error, when this broker no longer leads it,
    B.1 none, when the high watermark is there and the ISR is large enough,
    B.2 NOT_ENOUGH_REPLICAS_AFTER_APPEND, when it is there but the ISR has become too small,
    C   REQUEST_TIMED_OUT, when the time is over: the records stay and may commit later.
The whole request has one response, when no partition waits any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.delayed_offsets import DelayedOffsets
from tidegauge_broker.replica.effects import Effect, RespondToProduce
from tidegauge_broker.replica.messages import ProduceResult

_NONE = ErrorCode.NONE  # a member of an enumeration takes long to look up
CommitCheck = Callable[[TopicPartition, int], tuple[ErrorCode, str] | None]
"""The outcome for a partition and a required offset (cases A and B); None while it waits."""


@dataclass(slots=True)
class DelayedProduce(DelayedOffsets[ProduceResult]):
    """One produce request in the purgatory."""

    check: CommitCheck

    def settle(self, result: ProduceResult, offset: int) -> bool:
        """Cases A and B."""
        outcome = self.check(result.topic_partition, offset)
        if outcome is None:
            return False
        _note(result, *outcome)
        return True

    def time_out(self, result: ProduceResult, offset: int) -> None:
        """Case C."""
        _note(
            result,
            ErrorCode.REQUEST_TIMED_OUT,
            f"The records were appended at {result.topic_partition}, but the high watermark did not reach offset "
            f"{offset} in time; they may still be committed",
        )

    def response(self) -> Effect:
        """Return the response to the producer."""
        return RespondToProduce(self.token, self.results)


def _note(result: ProduceResult, error: ErrorCode, message: str) -> None:
    result.error = error
    result.message = message
    if error is not _NONE:
        result.base_offset = -1
