"""The cluster's metadata as plain values, whichever controller keeps them. Pure.

Both modes mean the same by them; ``tidegauge.znodes`` has their form in ZooKeeper. Access control lists are in
``access_lists``, credentials in ``credentials``, client quotas in ``client_quotas``. Settings are texts by their
names. docs/kraft-and-raft.md says what differs between the modes.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import field

from tidegauge.control import NO_LEADER, Endpoint
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.listeners import Listener
from tidegauge.partition_state import PartitionState

PRODUCER_ID_BLOCK_SIZE = 1000
DEFAULT_ENTITY = "<default>"
"""The name of the entity whose settings hold for all of its type (``ConfigEntityName.DEFAULT``)."""


class MetadataUnavailable(Exception):
    """The store of the cluster's metadata did not respond, or did not take a change."""


class MembershipEnded(MetadataUnavailable):
    """This broker is no longer a member of the cluster, so the request that it made as one has failed.

    Attributes:
        sentence: for a client whose request failed with it.
    """

    sentence = "The broker's membership of the cluster ended before the response; retry"


class MalformedMetadata(ValueError):
    """Stored metadata have a form that no broker or controller writes."""


def new_uuid(random_bytes: bytes) -> str:
    """Return 16 random bytes in url-safe base64, as Kafka prints a Uuid.

    Kafka never generates one that starts with '-', since tools would read it as an option.
    """
    made = uuid.UUID(bytes=random_bytes, version=4)
    text = base64.urlsafe_b64encode(made.bytes).decode().rstrip("=")
    return "A" + text[1:] if text.startswith("-") else text


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The registration of a broker.

    Host and port belong to the first PLAINTEXT listener with Kafka's protocol, as in Kafka. Without such a listener
    they are the inter-broker listener's; Kafka has no host then. ``protocols`` has security protocols by listener
    name, with PLAINTEXT as the default.
    """

    broker_id: int
    host: str
    port: int
    timestamp_ms: int
    rack: str | None = None
    listeners: tuple[Listener, ...] = ()
    protocols: Mapping[str, str] = field(default_factory=dict, compare=False)

    def endpoint(self, listener: str) -> Endpoint:
        """Return the address on the listener of this name, else host and port."""
        host, port = self.host, self.port
        for one in self.listeners:
            if one.name == listener:
                host, port = one.host, one.port
                break
        return Endpoint(self.broker_id, host, port, self.rack, self.listeners, self.protocols)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The replicas of a partition in assignment order, and those that a reassignment adds and removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """Return the replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """Return the replicas before the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def is_reassigning(self) -> bool:
        """Return whether a reassignment is in progress."""
        return bool(self.adding or self.removing)

    def reassigned_to(self, target: Sequence[int]) -> Assignment:
        """Return the assignment during a move to these replicas.

        The replicas to add come first, the replicas to remove last.
        """
        origin = self.origin
        everyone = tuple(dict.fromkeys((*target, *origin)))
        adding = tuple(replica for replica in everyone if replica not in origin)
        return Assignment(everyone, adding, tuple(replica for replica in everyone if replica not in target))

    def without(self, broker_id: int) -> Assignment:
        """Return the assignment after the removal of a replica."""
        return Assignment(
            tuple(replica for replica in self.replicas if replica != broker_id),
            tuple(replica for replica in self.adding if replica != broker_id),
            tuple(replica for replica in self.removing if replica != broker_id),
        )


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """The assigned replicas of each partition of a topic, in assignment order, with its reassignments in progress."""

    assignment: Mapping[int, Sequence[int]]
    topic_id: str | None
    adding_replicas: Mapping[int, Sequence[int]] = field(default_factory=dict)
    removing_replicas: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leader and the ISR of a partition, as the controller has stored them.

    Attributes:
        leader: -1 while there is none.
        isr: in stored order.
        recovering: an unclean election made the leader, and it has not led a full ISR since.
        partition_epoch: rises with each change; a change names the epoch that it expects.
        controller_epoch: of the controller that wrote it.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovering: bool
    partition_epoch: int
    controller_epoch: int

    def at(self, partition_epoch: int) -> Leadership:
        """Return the same state at another partition epoch."""
        return Leadership(
            self.leader, self.leader_epoch, self.isr, self.recovering, partition_epoch, self.controller_epoch
        )


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The block of producer ids that was allocated last, and its broker; ``last`` is inclusive."""

    broker_id: int
    first: int
    last: int

    @classmethod
    def after(cls, previous: ProducerIdBlock | None, broker_id: int) -> ProducerIdBlock:
        """Return the next block of 1000 ids for a broker."""
        first = 0 if previous is None else previous.last + 1
        return cls(broker_id, first, first + PRODUCER_ID_BLOCK_SIZE - 1)


__all__ = [
    "DEFAULT_ENTITY",
    "NO_LEADER",
    "PRODUCER_ID_BLOCK_SIZE",
    "Assignment",
    "BrokerRegistration",
    "Leadership",
    "MalformedMetadata",
    "MembershipEnded",
    "MetadataUnavailable",
    "PartitionState",
    "ProducerIdBlock",
    "TopicAssignment",
    "new_uuid",
]
