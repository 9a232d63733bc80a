"""The simulated world's view of its controllers and of their store, of any kind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tidegauge.cluster_metadata import Leadership
from tidegauge.control import AlterPartitionRequest, PartitionsResponse
from tidegauge.partition import TopicPartition

Done = Callable[[Any], None]
"""Called with the decision's result, or with None if it came to no end."""


class Term(Protocol):
    """One controller, from its election to its end.

    Attributes:
        broker_id: of the process.
        session: the number of the session of its election.
        queues: for each broker the requests that it has not got yet.
        strays: requests that may still be in flight when their queue has ended, with their brokers.
        brokers_changed: whether brokers have come or left since it looked last.
        events: takes its lines of the event log; None: they are not kept.
    """

    broker_id: int
    session: int
    queues: dict[int, deque[Any]]
    strays: list[tuple[int, Any]]
    brokers_changed: bool
    events: list[dict[str, Any]] | None

    @property
    def epoch(self) -> int:
        """Return its controller epoch."""
        ...

    @property
    def is_busy(self) -> bool:
        """Return whether there is anything to decide."""
        ...

    def advance(self, requests: int, *, has_session: bool, reads: bool = True) -> bool:
        """Decide further with this number of requests to the store; return False once the term is found to be over."""
        ...

    def end(self) -> None:
        """End the term."""

    def topics_changed(self) -> None:
        """Look for new topics."""

    def directories_failed(self) -> None:
        """Look for replicas that are offline."""

    def rebalance(self) -> None:
        """Run the automatic preferred election."""

    def has_to_rebalance(self) -> bool:
        """Return whether that would change anything."""
        ...

    def responded(self, broker_id: int, request: Any, response: PartitionsResponse) -> None:
        """Handle a broker's response to a request."""

    def alter_partition(self, request: AlterPartitionRequest, done: Done) -> None:
        """Handle a leader's proposals."""

    def controlled_shutdown(self, broker_id: int, broker_epoch: int, done: Done) -> None:
        """Move leaders away from a broker that stops."""


class Store(Protocol):
    """The state that all controllers of a cluster share.

    Attributes:
        requests: the controllers' requests to it.
    """

    requests: int

    @property
    def changes(self) -> int:
        """Return a number that rises with each change."""
        ...

    @property
    def controller_epochs(self) -> int:
        """Return the number of terms that have begun."""
        ...

    def term(self, broker_id: int, session: int) -> Term:
        """Elect a broker; its fail-over is still to come."""
        ...

    def add_topic(
        self, topic: str, assignment: Mapping[int, Sequence[int]], config: Mapping[str, str] | None = None
    ) -> str:
        """Store a new topic with its settings; return its id."""
        ...

    def register_broker(self, broker_id: int) -> int:
        """Register a broker; return its epoch."""
        ...

    def unregister_broker(self, broker_id: int) -> None:
        """End a broker's membership."""

    def report_failed_replicas(self, broker_id: int) -> None:
        """Store that replicas of a broker are offline."""

    def last_change_of(self, at: TopicPartition) -> int | None:
        """Return the number of the change that wrote a partition's state, if any."""
        ...

    def leadership(self, at: TopicPartition) -> Leadership:
        """Return a partition's state."""
        ...


MakeStore = Callable[[], Store]
