"""The calls by which an application learns of its partitions."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection

from tidegauge.partition import TopicPartition

Partitions = Collection[TopicPartition]


class RebalanceListener:
    """Called in ``poll``, ``unsubscribe`` and ``stop``; the methods may be plain or asynchronous. These do nothing."""

    def on_partitions_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """Take note of the partitions that the consumer reads from now on."""

    def on_partitions_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """Take note of partitions that the consumer gives up; their offsets can still be committed here."""

    def on_partitions_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """Take note of partitions that others may read already: commits fail. Calls ``on_partitions_revoked``."""
        return self.on_partitions_revoked(partitions)


async def tell(method: Callable[[Partitions], Awaitable[None] | None], partitions: Partitions) -> None:
    """Call a listener's method, and wait for it if it is asynchronous."""
    result = method(partitions)
    if inspect.isawaitable(result):
        await result
