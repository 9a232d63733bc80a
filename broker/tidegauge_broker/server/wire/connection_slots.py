"""The limit of open connections of a broker and each of its listeners, and the connections that wait for a slot.

Rules (Kafka's ConnectionQuotas: waitForConnectionSlot, connectionSlotAvailable, maxConnectionsExceeded):
    1. A connection is accepted when its listener has fewer than its ``max.connections`` (``listener.name.NAME.`` before
       it, else the broker's), and all listeners together fewer than the broker's. Until then it waits in the listener's
       acceptor, and the ones behind it in the backlog.
    2. The inter-broker listener is protected if there is another one: the broker's limit does not hold it up.
    3. While the protected listener keeps the total above the broker's limit, connections of the others are closed, the
       least recently used first.

Connections of the listeners that count for themselves (gRPC accepts its own) are asked for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

from tidegauge.settings import INT_MAX

OTHERS_EVERY_SECONDS = 0.2
"""Interval of questions to the listeners that count for themselves, while a connection waits for a slot."""


class ConnectionSlots:
    """The connection slots of a broker and its listeners.

    Args:
        of_broker: ``max.connections``; ``INT_MAX``: no limit.
        of_listener: a listener's, by its name.
        protected: name of the listener of rule 2; None: there is none.
        others: number of open connections of the listeners that count for themselves, by name.
    """

    def __init__(
        self,
        of_broker: int = INT_MAX,
        of_listener: Callable[[str], int] = lambda _name: INT_MAX,
        protected: str | None = None,
        others: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._of_broker = of_broker
        self._of_listener = of_listener
        self._protected = protected
        self._others = others
        self._taken: Counter[str] = Counter()
        self._released = asyncio.Event()

    @property
    def has_limit(self) -> bool:
        """Whether the broker has a limit on its connections."""
        return self._of_broker < INT_MAX

    def taken(self, listener: str) -> int:
        """Return the number of connections that a listener has open."""
        return self._taken[listener]

    def is_free(self, listener: str) -> bool:
        """Return whether a listener may accept a connection now."""
        if self._taken[listener] >= self._of_listener(listener):
            return False
        return listener == self._protected or not self.has_limit or self._total() < self._of_broker

    async def until_free(self, listener: str) -> None:
        """Wait until a listener may accept a connection; the caller takes the slot in the same turn of the loop."""
        while not self.is_free(listener):
            self._released.clear()
            try:
                async with asyncio.timeout(OTHERS_EVERY_SECONDS):
                    await self._released.wait()
            except TimeoutError:
                continue

    def take(self, listener: str) -> None:
        """Count a connection."""
        self._taken[listener] += 1

    def release(self, listener: str) -> None:
        """Count a connection no longer; those that wait look again."""
        self._taken[listener] -= 1
        self._released.set()

    def excess(self) -> int:
        """Return the number of unprotected listeners' connections to close (rule 3)."""
        if not self.has_limit:
            return 0
        unprotected = sum(count for name, count in self._taken.items() if name != self._protected)
        return max(0, min(self._total() - self._of_broker, unprotected))

    def _total(self) -> int:
        return self._taken.total() + sum(self._others().values())
