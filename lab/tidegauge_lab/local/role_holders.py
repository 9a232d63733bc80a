"""The broker that has a role now, by brokers' metadata and the quorum's own description.

Brokers' metadata may differ for a while; the response with the highest leader epoch, then partition epoch, counts. Of
several followers the first in assignment order is meant that the verb can change: a live one for ``kill``, one that is
down for ``start``. The functions are pure: metadata comes in, a broker id goes out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import partition_of
from tidegauge.partition import TopicPartition
from tidegauge_client.metadata import ClusterInfo
from tidegauge_lab.local.roles import METADATA, Coordinated, Role, RoleKind, is_of_quorum, not_ours, require_controller
from tidegauge_lab.observation import Observation, controller_of, kafka_brokers, metadata_in, newest_states

if TYPE_CHECKING:
    from tidegauge_client.quorum_admin import QuorumView


def holder_of(
    role: Role,
    views: Mapping[int, Observation],
    alive: Collection[int],
    quorum: Callable[[], QuorumView | None] | None,
    fits: Callable[[int], bool],
) -> int:
    """Return the node of the lab that has a role.

    Args:
        role: what it is to be.
        views: of the brokers that respond.
        alive: brokers whose processes are not down.
        quorum: asks the quorum of controllers; None: the cluster has none.
        fits: whether the verb can change a node; such a follower is preferred.

    Raises:
        TidegaugeError: no node has it, or an Apache Kafka broker, whose process is not the lab's.
    """
    said = metadata_in(views)
    kafkas = kafka_brokers(said)
    if is_of_quorum(role) and quorum is not None:
        found = in_quorum(role, quorum() or quorum(), fits)
    elif role.of is not None:
        found = coordinator_of(said, role.of)
    elif role.kind is RoleKind.CONTROLLER or role.partition is None:
        found = require_controller(controller_of(views, alive, kafkas=kafkas).broker)
    else:
        view = partition_view(said, role.partition)
        is_leader = role.kind is RoleKind.LEADER
        found = leader_of(view, role.partition) if is_leader else follower_of(view, role.partition, fits)
    if found in kafkas:
        raise not_ours(found, kafkas[found], role)
    return found


class PartitionView(NamedTuple):
    """A partition as the best-informed broker has it; leader None while there is none."""

    leader: int | None
    replicas: tuple[int, ...]


def partition_view(views: Mapping[int, ClusterInfo], wanted: TopicPartition) -> PartitionView:
    """Return the newest state of the partition in these views.

    Raises:
        TidegaugeError: BROKER_NOT_AVAILABLE, there are no views; UNKNOWN_TOPIC_OR_PARTITION, no broker knows it.
    """
    if not views:
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"no broker responds, so the leader of {wanted} is unknown; nothing was done",
        )
    newest = newest_states(views).get(wanted)
    if newest is None:
        raise TidegaugeError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"no broker knows {wanted}; `tidegauge list-topics` shows what there is; nothing was done",
        )
    return PartitionView(newest.leader_id, newest.replicas)


def in_quorum(role: Role, view: QuorumView | None, fits: Callable[[int], bool]) -> int:
    """Return the quorum's leader, or a voter that follows, as ``follower_of``.

    Raises:
        TidegaugeError: BROKER_NOT_AVAILABLE, no controller leads; REPLICA_NOT_AVAILABLE, there is no other voter.
    """
    leader_id = require_controller(None if view is None else view.leader_id)
    if view is None or role.kind is not RoleKind.FOLLOWER:
        return leader_id
    voters = PartitionView(leader_id, tuple(sorted(one.id for one in view.voters)))
    return follower_of(voters, METADATA, fits)


def leader_of(view: PartitionView, partition: TopicPartition) -> int:
    """Return the leader.

    Raises:
        TidegaugeError: LEADER_NOT_AVAILABLE.
    """
    if view.leader is None:
        raise TidegaugeError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"{partition} has no leader at the moment; `tidegauge explain {partition}` says why; nothing was done",
        )
    return view.leader


def follower_of(view: PartitionView, partition: TopicPartition, fits: Callable[[int], bool]) -> int:
    """Return the first follower that the verb can change, else the first.

    Raises:
        TidegaugeError: REPLICA_NOT_AVAILABLE, the partition has no follower.
    """
    followers = [replica for replica in view.replicas if replica != view.leader]
    if not followers:
        raise TidegaugeError(
            ErrorCode.REPLICA_NOT_AVAILABLE, f"{partition} has no follower: its only replica leads; nothing was done"
        )
    return next((replica for replica in followers if fits(replica)), followers[0])


def coordinator_of(views: Mapping[int, ClusterInfo], coordinated: Coordinated) -> int:
    """Return the coordinator: the leader of its partition of the kind's topic.

    Raises:
        TidegaugeError: BROKER_NOT_AVAILABLE, no broker responds, COORDINATOR_NOT_AVAILABLE, there is none,
            UNKNOWN_TOPIC_OR_PARTITION, the topic of a share partition does not exist.
    """
    kind, key, partition = coordinated
    if partition is not None:
        key = _share_partition_key(views, key, partition)
    states = [at for at in newest_states(views) if at.topic == kind.topic]
    if views and not states:
        raise TidegaugeError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"no broker coordinates {kind.meaning} {key}: there is no {kind.topic} yet, which the first "
            f"{kind.creator} creates; nothing was done",
        )
    at = TopicPartition(kind.topic, partition_of(key, len(states)) if states else 0)
    return leader_of(partition_view(views, at), at)


def _share_partition_key(views: Mapping[int, ClusterInfo], group_id: str, partition: TopicPartition) -> str:
    """Return the key by which a share partition's coordinator is found (SharePartitionKey.asCoordinatorKey).

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    topic_id = next(
        (one.topics[partition.topic].topic_id for one in views.values() if partition.topic in one.topics), ""
    )
    if views and not topic_id:
        raise TidegaugeError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"no broker knows topic {partition.topic}; `tidegauge list-topics` shows what there is; nothing was done",
        )
    return f"{group_id}:{topic_id}:{partition.partition}"
