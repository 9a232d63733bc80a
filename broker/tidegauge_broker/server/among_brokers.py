"""The transport between brokers: gRPC, or Kafka's own protocol.

``inter.broker.listener.name`` and ``control.plane.listener.name`` decide, once, when the broker starts. Each way offers
what reaches the brokers as their controller, the controller as one of its brokers, the leaders as a follower, and the
coordinators of transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import grpc.aio

from tidegauge.kafka_channel import KafkaChannel
from tidegauge.listeners import GRPC, Listeners
from tidegauge.logical_clock import LogicalClock
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge_broker.server.cluster.control_ways import ControlWay, GrpcWay, KafkaWay
from tidegauge_broker.server.coordinators.grpc_transactions import GrpcTransactions
from tidegauge_broker.server.coordinators.kafka_transactions import KafkaTransactions
from tidegauge_broker.server.coordinators.transaction_peers import OtherBrokers
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.registration.grpc_controller import GrpcController
from tidegauge_broker.server.registration.kafka_controller import KafkaController
from tidegauge_broker.server.registration.to_controller import ToController
from tidegauge_broker.server.replication.grpc_links import GrpcLinks
from tidegauge_broker.server.replication.kafka_links import KafkaLinks
from tidegauge_broker.server.replication.kafka_peers import KafkaPeers
from tidegauge_broker.server.replication.leader_link import FetcherIdentity, Links
from tidegauge_broker.server.replication.peers import Peers

TopicIdOf = Callable[[TopicPartition], str]
"""Returns the id of a hosted partition's topic; empty: it has none."""


class AmongBrokers(Protocol):
    """The wire between brokers."""

    def to_brokers(self) -> ControlWay:
        """Return what the controller's requests reach brokers with."""
        ...

    def to_controller(self) -> ToController:
        """Return what the controller is asked through."""
        ...

    def to_leaders(self, over_grpc: GrpcLinks, follower: FetcherIdentity, topic_id_of: TopicIdOf) -> Links:
        """Return what fetchers reach leaders with.

        Args:
            over_grpc: the links over gRPC, which the lab's steps have in any case.
            follower: this broker.
            topic_id_of: see the type.
        """
        ...

    def to_coordinators(self) -> OtherBrokers:
        """Return what markers and verifications of transactions go through."""
        ...

    def close(self) -> None:
        """Close the connections that are its own."""


class OverGrpc:
    """Over gRPC.

    Args:
        open_channel: opens a channel to an address.
        peers: channels to brokers, shared; their creator closes them.
        metadata: where the brokers are.
        settings: this broker's.
        logical_clock: goes with requests, and is advanced by responses.
    """

    def __init__(
        self,
        open_channel: Callable[[str], grpc.aio.Channel],
        peers: Peers,
        metadata: MetadataCache,
        settings: Values,
        logical_clock: LogicalClock,
    ) -> None:
        self._open_channel = open_channel
        self._peers = peers
        self._metadata = metadata
        self._settings = settings
        self._clock = logical_clock

    def to_brokers(self) -> ControlWay:
        """Return the way over gRPC."""
        return GrpcWay(self._open_channel, self._settings, self._clock)

    def to_controller(self) -> ToController:
        """Ask it over gRPC."""
        return GrpcController(self._peers, self._settings, self._clock)

    def to_leaders(self, over_grpc: GrpcLinks, follower: FetcherIdentity, topic_id_of: TopicIdOf) -> Links:
        """Return the links over gRPC."""
        del follower, topic_id_of
        return over_grpc

    def to_coordinators(self) -> OtherBrokers:
        """Ask them over gRPC."""
        return GrpcTransactions(self._metadata.grpc_address, self._peers, self._settings, self._clock)

    def close(self) -> None:
        """Do nothing: all channels are shared."""


class OverKafka:
    """Over Kafka's own protocol. The logical clock travels in the headers (``tidegauge.kafka.header_tags``).

    Args:
        broker_id: this broker.
        open_channel: opens a channel to an address, for a client id.
        metadata: where the brokers are.
        settings: this broker's.
    """

    def __init__(
        self,
        broker_id: int,
        open_channel: Callable[[str, str], KafkaChannel],
        metadata: MetadataCache,
        settings: Values,
    ) -> None:
        self._broker_id = broker_id
        self._open_channel = open_channel
        self._metadata = metadata
        self._settings = settings
        self._peers = KafkaPeers(broker_id, open_channel)

    def to_brokers(self) -> ControlWay:
        """Return the way over Kafka's protocol."""
        return KafkaWay(self._open_channel, self._settings, self._broker_id)

    def to_controller(self) -> ToController:
        """Ask it over Kafka's protocol."""
        return KafkaController(self._peers.channel, self._settings)

    def to_leaders(self, over_grpc: GrpcLinks, follower: FetcherIdentity, topic_id_of: TopicIdOf) -> Links:
        """Return links over Kafka's protocol."""
        del over_grpc
        return KafkaLinks(self._metadata.address, self._open_channel, follower, self._settings, topic_id_of)

    def to_coordinators(self) -> OtherBrokers:
        """Ask them over Kafka's protocol."""
        return KafkaTransactions(self._metadata.address, self._peers, self._settings)

    def close(self) -> None:
        """Close its channels."""
        self._peers.close()


class Apart:
    """Followers and coordinators one way, the controller and the brokers another way.

    Args:
        data: the way of followers and coordinators.
        control: the way between the controller and the brokers.
    """

    def __init__(self, data: AmongBrokers, control: AmongBrokers) -> None:
        self._data = data
        self._control = control

    def to_brokers(self) -> ControlWay:
        """Return the control plane's way."""
        return self._control.to_brokers()

    def to_controller(self) -> ToController:
        """Ask it over the control plane."""
        return self._control.to_controller()

    def to_leaders(self, over_grpc: GrpcLinks, follower: FetcherIdentity, topic_id_of: TopicIdOf) -> Links:
        """Return the links of followers."""
        return self._data.to_leaders(over_grpc, follower, topic_id_of)

    def to_coordinators(self) -> OtherBrokers:
        """Ask them as followers do."""
        return self._data.to_coordinators()

    def close(self) -> None:
        """Close the connections of both ways."""
        self._data.close()
        self._control.close()


def protocols_among_brokers(listeners: Listeners, over_grpc: OverGrpc, over_kafka: OverKafka) -> AmongBrokers:
    """Return how a broker with these listeners speaks with the others."""
    if listeners.inter_broker_wire == GRPC:
        return over_grpc
    return over_kafka if listeners.control_plane == listeners.inter_broker else Apart(over_kafka, over_grpc)


def metadata_of(listeners: Listeners) -> MetadataCache:
    """Return a cache that finds brokers at their listeners for each purpose.

    They are the listeners for gRPC, and for followers and coordinators.
    """
    control, data, grpc = listeners.control_plane.name, listeners.inter_broker.name, listeners.grpc_among_brokers.name
    return MetadataCache("" if grpc == control else grpc, "" if data == control else data)
