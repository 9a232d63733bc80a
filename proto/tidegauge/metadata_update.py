"""A broker's view of its cluster, in either mode: live brokers, and the partitions that changed. Pure.

UpdateMetadata requests carry it, and so does a change of KRaft's metadata.
Source: ``UpdateMetadataRequest``, ``org.apache.kafka.image.MetadataDelta``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegauge.host_addresses import address_of
from tidegauge.listeners import Listener
from tidegauge.partition_state import PartitionState

ANY_BROKER = -2
"""The controller of an update in KRaft mode: no broker is it, and any live one may be called so."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a broker.

    Attributes:
        host, port: of the control plane's listener; for a client, of the listener through which it is connected.
        listeners: all that the broker advertises; empty if only one is known.
        protocols: security protocols by the listener's name; PLAINTEXT if it is absent. Only registrations and
            UpdateMetadata of Kafka's protocol have them.
    """

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    listeners: tuple[Listener, ...] = ()
    protocols: Mapping[str, str] = field(default_factory=dict, compare=False)

    def through(self, listener: str) -> Endpoint | None:
        """Return the broker's address on a listener; None if it has none there."""
        for one in self.listeners:
            if one.name == listener:
                return Endpoint(self.broker_id, one.host, one.port, self.rack)
        return None if self.listeners else self

    @property
    def address(self) -> str:
        """``host:port``, with an IPv6 host in brackets."""
        return address_of(self.host, self.port)


@dataclass(frozen=True, slots=True)
class ReportedPartition:
    """One partition of an update; ``deleted`` removes it from the metadata cache.

    Attributes:
        last_known_elr: the last leader, while there is none (KIP-966); None in ZooKeeper mode.
    """

    state: PartitionState
    offline_replicas: tuple[int, ...] = ()
    deleted: bool = False
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class MetadataUpdate:
    """A change in a broker's view of its cluster.

    Attributes:
        controller_id: the active controller that made it known; ``ANY_BROKER`` in KRaft mode.
        controller_epoch: its epoch.
        live_brokers: all of them.
        leaving: live brokers in their controlled shutdown: they may not join an ISR (KRaft mode).
        fenced: brokers that are registered and not alive (KRaft mode).
        partitions: those that changed.
    """

    controller_id: int
    controller_epoch: int
    live_brokers: Sequence[Endpoint]
    partitions: Sequence[ReportedPartition]
    leaving: frozenset[int] = frozenset()
    fenced: Sequence[Endpoint] = ()
