"""Roles by which a fault names its broker: ``--leader-of T-P``, ``--follower-of T-P``, ``--controller``.

Rules: a role is resolved once, before anything is done; when no broker holds it, nothing is done.
Brokers' metadata may differ for a while; the response with the highest leader epoch, then partition epoch, counts. Of
several followers the first in assignment order is meant that the verb can change: a live one for ``kill``, one that is
down for ``start``.

The functions are pure: metadata comes in, a broker id goes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC, partition_of
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_lab.observation import leader_in, newest_states


class RoleKind(Enum):
    """What a broker may be to a partition or the cluster."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    COORDINATOR = "coordinator"


class Role(NamedTuple):
    """A role; the partition is None for the controller and a coordinator, the group that of a coordinator alone."""

    kind: RoleKind
    partition: TopicPartition | None = None
    group: str | None = None

    def __str__(self) -> str:
        if self.group is not None:
            return f"{self.kind.value} of group:{self.group}"
        return "the controller" if self.partition is None else f"{self.kind.value} of {self.partition}"


class PartitionView(NamedTuple):
    """What the best-informed broker says of a partition; leader None while there is none."""

    leader: int | None
    replicas: tuple[int, ...]


def partition_view(answers: Iterable[metadata_pb2.MetadataResponse], wanted: TopicPartition) -> PartitionView:
    """Return the newest state of the partition in these responses.

    Raises:
        TidegaugeError: BROKER_NOT_AVAILABLE, there are no responses; UNKNOWN_TOPIC_OR_PARTITION, no broker knows it.
    """
    known = list(answers)
    if not known:
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"no broker responds, so the leader of {wanted} is unknown; nothing was done",
        )
    newest = newest_states(known).get(wanted)
    if newest is None:
        raise TidegaugeError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"no broker knows {wanted}; `tidegauge list-topics` shows what there is; nothing was done",
        )
    return PartitionView(leader_in(newest), tuple(newest.replicas))


def leader_of(view: PartitionView, partition: TopicPartition) -> int:
    """Return the leader.

    Raises:
        TidegaugeError: LEADER_NOT_AVAILABLE.
    """
    if view.leader is None:
        raise TidegaugeError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"{partition} has no leader at the moment: none of its in-sync replicas lives; nothing was done",
        )
    return view.leader


def follower_of(view: PartitionView, partition: TopicPartition, fits: Callable[[int], bool]) -> int:
    """Return the first follower in assignment order that the verb can change, else the first one.

    Raises:
        TidegaugeError: REPLICA_NOT_AVAILABLE, the partition has no follower.
    """
    followers = [replica for replica in view.replicas if replica != view.leader]
    if not followers:
        raise TidegaugeError(
            ErrorCode.REPLICA_NOT_AVAILABLE, f"{partition} has no follower: its only replica leads; nothing was done"
        )
    return next((replica for replica in followers if fits(replica)), followers[0])


def coordinator_of(answers: Iterable[metadata_pb2.MetadataResponse], group: str) -> int:
    """Return the broker that coordinates a group: the leader of its partition of __consumer_offsets.

    Raises:
        TidegaugeError: BROKER_NOT_AVAILABLE, no broker responds; COORDINATOR_NOT_AVAILABLE, there is none.
    """
    known = list(answers)
    states = [at for at in newest_states(known) if at.topic == OFFSETS_TOPIC]
    if known and not states:
        raise TidegaugeError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"no broker coordinates group {group}: there is no {OFFSETS_TOPIC} yet, which the first consumer of a "
            "group creates; nothing was done",
        )
    at = TopicPartition(OFFSETS_TOPIC, partition_of(group, len(states)) if states else 0)
    return leader_of(partition_view(known, at), at)


def read_group(text: str) -> str:
    """Return the group that ``group:G`` names.

    Raises:
        ValueError: the text has another form.
    """
    kind, separator, group = text.partition(":")
    if kind != "group" or not separator or not group:
        raise ValueError(f"'{text}' names no group; write group:G, for example group:orders-app")
    return group


def require_controller(broker_id: int | None) -> int:
    """Return the controller.

    Raises:
        TidegaugeError: BROKER_NOT_AVAILABLE, there is none.
    """
    if broker_id is None:
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE, "there is no active controller at the moment; nothing was done"
        )
    return broker_id
