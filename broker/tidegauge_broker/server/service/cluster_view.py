"""The metadata cache as the clients of one listener see it. Pure.

Rules:
    1. A client is given the addresses of the listener through which it asks. A broker without that listener can't be
       reached through it and counts as dead in the response: what it leads has no leader, its replicas are offline.
    2. A partition whose leader is dead or unknown has the error LEADER_NOT_AVAILABLE and no leader. One whose leader is
       alive and lacks the listener has LISTENER_NOT_FOUND, where the caller knows that error (KIP-226).
    3. Over gRPC a broker without the listener is named as alive and as the leader, with rule 2's error: a client can't
       reach it, and must not take it for dead. Kafka's protocol has no field for that.

Source: ZkMetadataCache.getPartitionMetadata, getAliveEndpoint and maybeFilterAliveReplicas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import overload

from tidegauge.errors import ErrorCode
from tidegauge.metadata_update import Endpoint, ReportedPartition


class Unreachable(Enum):
    """The view that a caller gets of a live broker that lacks the caller's listener."""

    DEAD = auto()
    """It is shown as a dead one (rule 1)."""
    ERROR = auto()
    """Likewise, but the error is LISTENER_NOT_FOUND (rule 2)."""
    ALIVE = auto()
    """It is shown by its id, with that error (rule 3)."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition in a metadata response.

    Attributes:
        leader: None while no live leader is known, or none that is shown.
        offline_replicas: those on dead brokers and those whose log directory failed, in ascending order.
        elr: eligible leader replicas (KIP-966); None in ZooKeeper mode, and so is the next.
        last_known_elr: the last leader, while there is none.
    """

    partition: int
    error: ErrorCode
    leader: int | None
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline_replicas: Sequence[int]
    partition_epoch: int
    adding_replicas: Sequence[int] = ()
    removing_replicas: Sequence[int] = ()
    elr: Sequence[int] | None = None
    last_known_elr: Sequence[int] | None = None


@dataclass(slots=True)
class TopicView:
    """One topic in a metadata response; with an error it has no partitions."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: str = ""
    partitions: Sequence[PartitionView] = ()


class PartitionViews(Sequence[PartitionView]):
    """The partitions of a topic, each seen when it is asked for: all of a large cluster at once would take long.

    The entries behind them do not change: a metadata cache replaces its entries.

    Args:
        entries: what the controller sent.
        view: ``partition_view`` with the rest of its arguments.
    """

    def __init__(
        self,
        entries: Sequence[ReportedPartition],
        view: Callable[[ReportedPartition], PartitionView],
    ) -> None:
        self._entries = entries
        self._view = view

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> PartitionView: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[PartitionView]: ...

    def __getitem__(self, index: int | slice) -> PartitionView | Sequence[PartitionView]:
        """Return a view, or the views of a slice."""
        if isinstance(index, slice):
            return PartitionViews(self._entries[index], self._view)
        return self._view(self._entries[index])

    def __iter__(self) -> Iterator[PartitionView]:
        return map(self._view, self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

    __hash__ = None  # type: ignore[assignment] # compared by what it has


@dataclass(slots=True)
class ClusterView:
    """A metadata response.

    Attributes:
        controller_id: as ``MetadataCache.controller`` says it; and so the epoch.
        brokers: reachable through the caller's listener, with their addresses on it.
        without_listener: other live brokers, with their addresses among brokers, if they are shown (rule 3).
    """

    cluster_id: str
    controller_id: int | None
    controller_epoch: int
    brokers: Sequence[Endpoint]
    topics: Sequence[TopicView] = field(default_factory=list)
    without_listener: Sequence[Endpoint] = ()


def endpoints_through(listener: str, brokers: Iterable[Endpoint]) -> list[Endpoint]:
    """Return the brokers with this listener, at its addresses; rule 1."""
    return [endpoint for endpoint in (one.through(listener) for one in brokers) if endpoint is not None]


def partition_view(
    entry: ReportedPartition,
    live: Collection[int],
    registered: Collection[int] = (),
    unreachable: Unreachable = Unreachable.DEAD,
) -> PartitionView:
    """Return a client's view of a partition; rules 2 and 3.

    Args:
        entry: what the controller sent.
        live: ids of the brokers that the client can reach.
        registered: ids of all brokers that are alive.
        unreachable: how those without the listener are shown.
    """
    state = entry.state
    is_led = state.leader in live
    lacks_listener = not is_led and state.leader in registered and unreachable is not Unreachable.DEAD
    error = ErrorCode.LISTENER_NOT_FOUND if lacks_listener else ErrorCode.LEADER_NOT_AVAILABLE
    is_named = is_led or (lacks_listener and unreachable is Unreachable.ALIVE)
    alive = {*live, *registered} if unreachable is Unreachable.ALIVE else live
    return PartitionView(
        partition=state.topic_partition.partition,
        error=ErrorCode.NONE if is_led else error,
        leader=state.leader if is_named else None,
        leader_epoch=state.leader_epoch,
        replicas=state.replicas,
        isr=state.isr,
        offline_replicas=sorted({*entry.offline_replicas, *(one for one in state.replicas if one not in alive)}),
        partition_epoch=state.partition_epoch,
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
        elr=None if entry.last_known_elr is None else state.elr,
        last_known_elr=entry.last_known_elr,
    )
