"""A fetch that waits for bytes (ReplicaManager.fetchMessages, DelayedFetch).

It completes as soon as, over all its partitions, min_bytes are available, or one partition has an error or a
diverging epoch, or its time is over. A follower's fetch waits for the leader's log end, a consumer's for the high
watermark; so a move of the high watermark alone wakes consumers, not followers (KAFKA-9952). The followers' state
was updated when the fetch arrived and is not updated again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.effects import Effect, RespondToFetch
from tidegauge_broker.replica.messages import CONSUMER, FetchPartition, FetchRequest, FetchResult

ReadAgain = Callable[[FetchPartition, FetchRequest], FetchResult]
"""Reads a partition of a fetch again."""
BytesAvailable = Callable[[FetchResult], int | None]
"""The number of bytes available, before the limit of the partition; None if the log can't be read."""


def is_due(results: Sequence[FetchResult], min_bytes: int, available: BytesAvailable) -> bool:
    """Whether a fetch need not wait: an error, a diverging epoch, another replica to fetch from, or enough bytes.

    A partition that can't be read counts as an error: reading it will give one.
    """
    total = 0
    none = ErrorCode.NONE  # a member of an enumeration takes long to look up, and there may be thousands of results
    for result in results:
        if result.error is not none or result.diverging is not None or result.preferred_read_replica is not None:
            return True
        if result.read is not None:
            size_bytes = available(result)
            if size_bytes is None:
                return True
            total += min(size_bytes, result.read.max_bytes)
            if total >= min_bytes:
                return True
    return total >= min_bytes


@dataclass(slots=True)
class DelayedFetch:
    """One fetch request in the purgatory."""

    token: object
    deadline_ms: int
    request: FetchRequest
    max_bytes: int
    read_again: ReadAgain
    available: BytesAvailable

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The partitions it waits for: of a session those in question, and the session, for what comes to be so."""
        request = self.request
        if request.standing is None:
            return tuple(partition.topic_partition for partition in request.partitions)
        return (request.standing, *request.standing.names_in_question)

    @property
    def waits_for_high_watermark(self) -> bool:
        """Whether a high watermark that moves may complete it: followers wait for the log end."""
        return self.request.replica_id == CONSUMER

    def try_complete(self, out: list[Effect]) -> bool:
        """Read again; respond if that is enough."""
        results = self._read()
        if not is_due(results, self.request.min_bytes, self.available):
            return False
        out.append(RespondToFetch(self.token, self._given(results), self.max_bytes))
        return True

    def expire(self, out: list[Effect]) -> None:
        """Respond with the records available now, and the current high watermark."""
        out.append(RespondToFetch(self.token, self._given(self._read()), self.max_bytes))

    def _given(self, results: Sequence[FetchResult]) -> Sequence[FetchResult]:
        return () if self.request.only_waits else results

    def _read(self) -> list[FetchResult]:
        request = self.request
        partitions = request.partitions if request.standing is None else request.standing.in_question()
        return [self.read_again(partition, request) for partition in partitions]
