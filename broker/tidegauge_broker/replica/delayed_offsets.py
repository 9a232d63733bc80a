"""A ListOffsets in purgatory: an offset for each partition, one response when no partition waits any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import Effect


class _Result(Protocol):
    topic_partition: TopicPartition


Result = TypeVar("Result", bound=_Result)


@dataclass(slots=True)
class DelayedOffsets(Generic[Result]):
    """One request in a purgatory; ``required`` holds the offsets still waited for, by the result's index."""

    token: object
    deadline_ms: int
    results: Sequence[Result]
    required: dict[int, int]

    @property
    def keys(self) -> tuple[TopicPartition, ...]:
        """The partitions it waits for."""
        return tuple(self.results[index].topic_partition for index in self.required)

    def try_complete(self, out: list[Effect]) -> bool:
        """Settle what can be settled; respond when no partition waits any more."""
        for index, offset in list(self.required.items()):
            if self.settle(self.results[index], offset):
                del self.required[index]
        if self.required:
            return False
        out.append(self.response())
        return True

    def expire(self, out: list[Effect]) -> None:
        """Respond with the results known when the timeout passed."""
        assert self.required, "it would have been completed"
        for index, offset in self.required.items():
            self.time_out(self.results[index], offset)
        self.required.clear()
        out.append(self.response())

    def settle(self, result: Result, offset: int) -> bool:
        """Write into a result what became of it; False while it waits."""
        raise NotImplementedError

    def time_out(self, result: Result, offset: int) -> None:
        """Write into a result that its time is over."""
        raise NotImplementedError

    def response(self) -> Effect:
        """Return the effect that carries the results."""
        raise NotImplementedError
