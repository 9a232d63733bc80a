"""The gate between the wires and the service: it refuses or delays requests, or responds in the service's place.

The gate decides by API, caller and its own rules, for every wire; a wire names the caller, breaks the connection when
the gate says so, and gives the form of its responses. ``admission`` asks the gate about each request. A broker has no
gate unless the lab is on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from tidegauge.partition import TopicPartition
from tidegauge_broker.server.service.caller import Caller


@dataclass(frozen=True, slots=True)
class GatedRequest:
    """One request, by the properties that a gate distinguishes.

    Attributes:
        api: the name of its API, the same for every wire (``tidegauge.faults.apis``).
        caller: who sends it.
        partitions: the partitions that it names; a topic without a partition has -1.
        group: the group or transactional id that it names; empty: none.
        client_id: the client's name for itself; empty if it gives none.
        transactional_id: the one that it names; empty: none.
        resources: names of the resources of configurations that it names.
        is_of_kafka: whether it came over Kafka's protocol.
        is_of_lab: whether the lab itself sends it: to look at the cluster, or to change it.
        size_bytes: of the request, if the wire knows it.
    """

    api: str
    caller: Caller
    partitions: Collection[TopicPartition] = ()
    group: str = ""
    client_id: str = ""
    transactional_id: str = ""
    resources: Collection[str] = ()
    is_of_kafka: bool = False
    is_of_lab: bool = False
    size_bytes: int = 0


class CallRefused(Exception):
    """The call ends without a response, as if the connection had failed. The message says why.

    Attributes:
        status: gRPC's name for the way it ends; other wires close the connection.
    """

    def __init__(self, message: str, status: str = "UNAVAILABLE") -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class InjectedError:
    """The content of one request's injected response, most often an error.

    Attributes:
        error: its number in the error table; 0: none, or there is a status.
        after_effect: the request takes effect all the same, and only its response is replaced.
        status: gRPC's name of a failure without a response; None: the response carries the error.
        top_level: the error is at the top of the response alone, if it has such a place.
        topic: the error is in the results of this topic alone; empty: of all.
        partitions: and of these partitions of it; empty: of all.
        throttle_time_ms: what the response states as its throttle time; 0: what it would.
        bytes_per_second: the rate at which the response is sent; 0: at once.
    """

    error: int
    after_effect: bool = False
    status: str | None = None
    top_level: bool = False
    topic: str = ""
    partitions: frozenset[int] = frozenset()
    throttle_time_ms: int = 0
    bytes_per_second: int = 0

    def means(self, topic: str, partition: int = -1) -> bool:
        """Whether the error applies to a topic, or a partition of it; partition -1: any."""
        if not self.topic or self.top_level:
            return True
        return topic == self.topic and (partition < 0 or not self.partitions or partition in self.partitions)

    @property
    def is_failure(self) -> bool:
        """Whether the request fails, for its caller."""
        return self.error != 0 or self.status is not None


class Hold(Protocol):
    """Something at which requests or responses wait."""

    async def wait(self) -> None:
        """Wait until it is released.

        Raises:
            CallRefused: the broker stops.
        """


class Entry(Protocol):
    """A call or connection that the gate can end.

    Attributes:
        broken_by: why it was ended; empty while it was not.
    """

    broken_by: str


class Gate(Protocol):
    """The gate between the wires and the service."""

    @property
    def is_open(self) -> bool:
        """Whether nothing is in force, so that requests need not be admitted."""
        ...

    def enter(self, caller: Caller, end: Callable[[], object]) -> Entry:
        """Register a call or a connection; ``end`` is called once if it has to break."""
        ...

    def check(self, entry: Entry) -> None:
        """Refuse a call that must not begin.

        Raises:
            CallRefused: its caller is partitioned from this broker.
        """
        ...

    def leave(self, entry: Entry) -> None:
        """Forget a call or a connection that has ended."""

    def admit(self, request: GatedRequest) -> Awaitable[InjectedError | None]:
        """Let one request pass after its delays and holds; return the error that its response is to carry.

        Raises:
            CallRefused: the request is lost, or its caller is partitioned from this broker.
        """
        ...

    def hold_of(self, request: GatedRequest) -> Hold | None:
        """Return what the response to a request has to wait for, if anything."""
        ...
