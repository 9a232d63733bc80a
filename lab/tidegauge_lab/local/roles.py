"""Roles by which a fault names its broker: ``--leader-of T-P``, ``--follower-of T-P``, ``--controller``, and
``--coordinator-of group:G``, ``transaction:ID``, ``share:G`` or ``share:G/T-P``, whose kinds ``COORDINATED`` declares.

A share group (KIP-932) has a coordinator as any group has; ``share:G/T-P`` is the share coordinator that keeps the
state of one of its partitions.

Rules: a role is resolved once, before anything is done (``role_holders``); when no broker holds it, nothing is done.
In KRaft mode the leader of ``__cluster_metadata-0`` is the active controller, and its followers are the other voters.
Nothing of a connection to brokers is imported: a fault that names its broker by id needs none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.partition import METADATA_TOPIC, TopicPartition
from tidegauge.share_groups import SHARE_STATE_TOPIC
from tidegauge.transactions import TRANSACTION_TOPIC


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


def is_of_quorum(role: Role) -> bool:
    """Return whether the KRaft quorum decides a role, since controllers have it."""
    return role.kind is RoleKind.CONTROLLER or role.partition == METADATA


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
