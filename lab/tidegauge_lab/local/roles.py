"""Roles by which a fault names its broker: ``--leader-of T-P``, ``--follower-of T-P``, ``--controller``, and
``--coordinator-of group:G``, ``transaction:ID``, ``share:G`` or ``share:G/T-P``, whose kinds ``COORDINATED`` declares.

A share group (KIP-932) has a coordinator as any group has; ``share:G/T-P`` is the share coordinator that keeps the
state of one of its partitions.

Rules: a role is resolved once, before anything is done; when no broker holds it, nothing is done.
Brokers' metadata may differ for a while; the response with the highest leader epoch, then partition epoch, counts. Of
several followers the first in assignment order is meant that the verb can change: a live one for ``kill``, one that is
down for ``start``.

In KRaft mode the leader of ``__cluster_metadata-0`` is the active controller, and its followers are the other voters.
The functions are pure: metadata comes in, a broker id goes out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC, partition_of
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import SHARE_STATE_TOPIC
from tidegauge.transactions import TRANSACTION_TOPIC
from tidegauge_client.metadata import ClusterInfo
from tidegauge_client.quorum_admin import METADATA_TOPIC, QuorumView
from tidegauge_lab.observation import newest_states


class RoleKind(Enum):
    """The role of a broker for a partition or the cluster."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    COORDINATOR = "coordinator"
    VOTER = "voter"


class CoordinatedKind(NamedTuple):
    """A kind of what a broker coordinates.

    Attributes:
        word: by which a target names it: ``group:G``.
        topic: the internal topic whose partition's leader is the coordinator.
        meaning: of one of the kind, in sentences.
        creator: whose first request creates the topic.
        example: of a target.
    """

    word: str
    topic: str
    meaning: str
    creator: str
    example: str


GROUP = CoordinatedKind("group", OFFSETS_TOPIC, "group", "consumer of a group", "group:orders-app")
TRANSACTION = CoordinatedKind(
    "transaction", TRANSACTION_TOPIC, "transactional id", "transactional producer", "transaction:orders-copier"
)
SHARE = CoordinatedKind("share", OFFSETS_TOPIC, "share group", "consumer of a group", "share:orders-queue")
SHARE_PARTITION = CoordinatedKind(
    "share", SHARE_STATE_TOPIC, "share partition", "member of a share group", "share:orders-queue/orders-0"
)
"""The coordinated thing that a ``share`` with a partition names."""
COORDINATED: Mapping[str, CoordinatedKind] = {one.word: one for one in (GROUP, TRANSACTION, SHARE)}
"""Everything of which a broker may be the coordinator, by its word: the one table for every way to name a broker."""
COORDINATED_FORMS = "group:G, transaction:ID, share:G or share:G/T-P"


OF_PARTITION = {"leader-of": RoleKind.LEADER, "follower-of": RoleKind.FOLLOWER}
COORDINATOR_OF = "coordinator-of"
ROLE_WORDS = (
    "controller, leader-of:T-P, follower-of:T-P, coordinator-of:group:G, coordinator-of:transaction:ID or "
    "coordinator-of:share:G"
)
"""The words that name a broker by its role, in every place that takes a broker's id."""


class Coordinated(NamedTuple):
    """A group, a transactional id or a share partition.

    Attributes:
        partition: of a share partition, whose group ``key`` is; of others None.
    """

    kind: CoordinatedKind
    key: str
    partition: TopicPartition | None = None

    def __str__(self) -> str:
        return f"{self.kind.word}:{self.key}{'' if self.partition is None else f'/{self.partition}'}"


class Role(NamedTuple):
    """A role; the partition is None for the controller and a coordinator, ``of`` is what a coordinator coordinates.

    ``name`` is the name that a story has given a voter of the quorum.
    """

    kind: RoleKind
    partition: TopicPartition | None = None
    of: Coordinated | None = None
    name: str = ""

    def __str__(self) -> str:
        if self.name:
            return f"controller {self.name!r}"
        if self.of is not None:
            return f"{self.kind.value} of {self.of}"
        if self.partition == METADATA:
            return f"{self.kind.value} of the quorum"
        return "the controller" if self.partition is None else f"{self.kind.value} of {self.partition}"

    @property
    def topics(self) -> list[str]:
        """Return the topics whose metadata says which broker has the role."""
        if self.of is not None:
            return [self.of.kind.topic, *([] if self.of.partition is None else [self.of.partition.topic])]
        return [] if self.partition is None else [self.partition.topic]


METADATA = TopicPartition(METADATA_TOPIC, 0)
"""The metadata log of a cluster in KRaft mode: its leader is the active controller, its followers the other voters."""


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


def is_of_quorum(role: Role) -> bool:
    """Return whether the KRaft quorum decides a role, since controllers have it."""
    return role.kind is RoleKind.CONTROLLER or role.partition == METADATA


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


def read_coordinated(text: str) -> Coordinated:
    """Return what ``group:G``, ``transaction:ID``, ``share:G`` or ``share:G/T-P`` names.

    Raises:
        ValueError: the text has another form.
    """
    word, separator, key = text.partition(":")
    if word not in COORDINATED or not separator or not key:
        examples = " or ".join(one.example for one in COORDINATED.values())
        raise ValueError(
            f"'{text}' names no group and no transactional id; write {COORDINATED_FORMS}, for example {examples}"
        )
    group_id, slash, partition = key.rpartition("/")
    if COORDINATED[word] is SHARE and slash and group_id:
        with contextlib.suppress(ValueError):
            return Coordinated(SHARE_PARTITION, group_id, TopicPartition.parse(partition))
    return Coordinated(COORDINATED[word], key)


def read_role(text: str) -> Role | None:
    """Return the role of a word, ``controller`` or ``leader-of:T-P``; None: no role.

    Raises:
        ValueError: what follows the word has another form.
    """
    if text == RoleKind.CONTROLLER.value:
        return Role(RoleKind.CONTROLLER)
    word, separator, rest = text.partition(":")
    return role_of(word, rest) if separator else None


def role_of(word: str, value: str) -> Role | None:
    """Return the role of an option and its value; None: no such option.

    Raises:
        ValueError: the value has another form.
    """
    word = word.replace("_", "-")
    if word in OF_PARTITION:
        return Role(OF_PARTITION[word], TopicPartition.parse(value))
    return Role(RoleKind.COORDINATOR, of=read_coordinated(value)) if word == COORDINATOR_OF else None


def not_ours(broker_id: int, address: str, role: Role | None = None) -> TidegaugeError:
    """Return the error for an Apache Kafka broker's process, not the lab's."""
    subject = "" if role is None else f"{role} is "
    return TidegaugeError(
        ErrorCode.LISTENER_NOT_FOUND,
        f"{subject}broker {broker_id} at {address}, an Apache Kafka broker, which `tidegauge up` did not start and "
        "leaves alone; nothing was done",
    )


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
