"""What the synchronous group consumer adds to its asynchronous original: functions of the application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from tidegauge_client.group.group_consumer import CommitCallback, GroupConsumer, Offsets
from tidegauge_client.group.listener import Partitions, RebalanceListener, tell
from tidegauge_client.loop_thread import Facade


class _OffTheLoop(RebalanceListener):
    """A listener that is called in a thread of its own, so that it may call the consumer, whose loop stays free."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_partitions_assigned(self, partitions: Partitions) -> None:
        await self._call(self._listener.on_partitions_assigned, partitions)

    async def on_partitions_revoked(self, partitions: Partitions) -> None:
        await self._call(self._listener.on_partitions_revoked, partitions)

    async def on_partitions_lost(self, partitions: Partitions) -> None:
        await self._call(self._listener.on_partitions_lost, partitions)

    async def _call(self, method: Callable[[Partitions], Awaitable[None] | None], partitions: Partitions) -> None:
        await asyncio.to_thread(lambda: asyncio.run(tell(method, partitions)))


class GroupConsumerFacade(Facade[GroupConsumer]):
    """``subscribe`` and ``commit_async``, which take functions of the application."""

    def subscribe(
        self, topics: Collection[str], *, timeout_ms: float = 60_000, listener: RebalanceListener | None = None
    ) -> None:
        """Share these topics with the other members of the group, from the next poll on.

        Args:
            topics: all topics to be read; others are no longer.
            timeout_ms: how long to wait for topics that do not exist yet.
            listener: called in a thread of its own while ``poll``, ``unsubscribe`` or ``stop`` waits for it; it may
                call the consumer's other methods. None: nothing is called.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION.
        """
        wrapped = None if listener is None else _OffTheLoop(listener)
        self._loop.run(self._inner.subscribe(topics, timeout_ms=timeout_ms, listener=wrapped))

    def commit_async(self, offsets: Offsets | None = None, *, callback: CommitCallback | None = None) -> None:
        """Begin to commit offsets; nothing is retried. Commits are sent in the order of the calls.

        Args:
            offsets: the next offset to read of each partition; None: the positions, behind what poll has returned.
            callback: called on the consumer's loop in a later poll, commit or ``stop`` with the offsets, and why they
                are not committed or None. It must not call the consumer.

        Raises:
            TidegaugeError: INVALID_REQUEST, an offset is negative.
        """

        async def work() -> None:
            self._inner.commit_async(offsets, callback=callback)

        self._loop.run(work())
