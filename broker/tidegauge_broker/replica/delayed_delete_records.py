"""A DeleteRecords in purgatory until all live replicas have followed (KIP-107; DelayedDeleteRecords).

Each partition whose log start offset was raised waits for the low watermark - the smallest log start offset of the
leader and the live replicas - to reach it. It ends with another error when this broker no longer leads it, and with
REQUEST_TIMED_OUT when the time is over: the leader's log start offset stays raised, and the others follow later.
The whole request has one response, when no partition waits any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.delayed_offsets import DelayedOffsets
from tidegauge_broker.replica.effects import Effect, RespondToDeleteRecords
from tidegauge_broker.replica.messages import DeleteRecordsResult

LowWatermark = Callable[[TopicPartition], int | tuple[ErrorCode, str]]
"""A partition's low watermark, or the error that says why this broker does not know it."""


@dataclass(slots=True)
class DelayedDeleteRecords(DelayedOffsets[DeleteRecordsResult]):
    """One request in the purgatory."""

    low_watermark: LowWatermark

    def settle(self, result: DeleteRecordsResult, offset: int) -> bool:
        """Whether all replicas have followed, or this broker can no longer know."""
        found = self.low_watermark(result.topic_partition)
        if isinstance(found, tuple):
            result.error, result.message = found
            result.low_watermark = -1
            return True
        if found < offset:
            return False
        result.low_watermark = found
        return True

    def time_out(self, result: DeleteRecordsResult, offset: int) -> None:
        """End a partition with REQUEST_TIMED_OUT: some replicas have not followed."""
        result.error = ErrorCode.REQUEST_TIMED_OUT
        result.message = (
            f"The leader deleted the records of {result.topic_partition} below offset {offset}, but not all live "
            "replicas followed in time; they will"
        )
        result.low_watermark = -1

    def response(self) -> Effect:
        """Return the response to the client."""
        return RespondToDeleteRecords(self.token, self.results)
