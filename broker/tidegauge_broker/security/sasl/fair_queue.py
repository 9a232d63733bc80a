"""A queue of work for clients, served in turn: no client waits for all that another one has asked for. Pure.

Rules:
    1. Addresses take turns, and the connections of an address take turns among themselves. So what a client adds delays
       another one by one piece of work, however much it adds.
    2. A connection has a maximum of work in the queue; more is refused.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

Work = TypeVar("Work")


class FairQueue(Generic[Work]):
    """A queue that serves clients in turn.

    Args:
        most: the maximum for a connection.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: OrderedDict[str, OrderedDict[str, deque[Work]]] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether there is work."""
        return bool(self._waiting)

    def add(self, host: str, connection: str, work: Work) -> bool:
        """Add work of a connection; False: it has the maximum (rule 2)."""
        connections = self._waiting.setdefault(host, OrderedDict())
        queue = connections.setdefault(connection, deque())
        if len(queue) >= self._most:
            return False
        queue.append(work)
        return True

    def take(self) -> Work:
        """Remove and return the next piece of work (rule 1).

        Raises:
            KeyError: there is none.
        """
        host, connections = self._waiting.popitem(last=False)
        connection, queue = connections.popitem(last=False)
        work = queue.popleft()
        if queue:
            connections[connection] = queue
        if connections:
            self._waiting[host] = connections
        return work
