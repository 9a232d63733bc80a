"""Extension points for the lab. These defaults are what a broker without the lab uses.

``seams_in_use`` chooses between both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from tidegauge.kafka.kraft.broker_apis import AMONG_BROKERS
from tidegauge.kafka_channel import Dialer, KafkaChannel
from tidegauge.logical_clock import LogicalClock
from tidegauge.security import PLAIN, Security
from tidegauge_broker.log.files import DISK, Disk
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.server.cluster.ports import Cluster, Dial
from tidegauge_broker.server.quorum.node_lab import NodeLab
from tidegauge_broker.server.replication.fetchers import Fetchers
from tidegauge_broker.server.replication.grpc_links import GrpcLinks
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.gate import Gate
from tidegauge_controller.broker_channels import open_channel


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a broker that has been put together."""

    service: BrokerService
    replicas: ReplicaManager
    fetchers: Fetchers
    links: GrpcLinks
    logs: LogManager
    cluster: Cluster
    in_log_pool: Callable[[Callable[[], None]], Awaitable[None]]
    now_ms: Callable[[], int]
    note: Callable[[str, str, dict[str, Any]], None]


class Seams:
    """The seams of a plain broker.

    Args:
        security: of the gRPC connections to other brokers.
        over_kafka: of those that speak Kafka's protocol.
        logical_clock: goes along with requests over Kafka's protocol.
    """

    def __init__(
        self, security: Security = PLAIN, over_kafka: Security = PLAIN, logical_clock: LogicalClock | None = None
    ) -> None:
        self._logical_clock = logical_clock
        self._security = security
        self._dialer = Dialer(over_kafka)
        self._login = over_kafka.login

    def disk_of(self, directory: Path) -> Disk:
        """Return what changes the files of a log directory."""
        del directory
        return DISK

    def shown_ms(self) -> Callable[[int], int] | None:
        """Return the map from the machine's time to the shown one, or None."""
        return None

    def open_channel(self, address: str) -> grpc.aio.Channel:
        """Open a channel to another broker."""
        return open_channel(address, self._security)

    def open_kafka_channel(self, address: str, client_id: str) -> KafkaChannel:
        """Open a channel to the Kafka listener of another broker."""
        return KafkaChannel(address, client_id, self._dialer, self._login, self._logical_clock, protocol=AMONG_BROKERS)

    def dial(self) -> Dial | None:
        """Return the dial to the metadata store; None: the client's own."""
        return None

    def node_lab(self) -> NodeLab:
        """Return what opens the channels to the controllers of a KRaft cluster."""
        return NodeLab()

    def gate(self) -> Gate | None:
        """Return the gate between the wires and the service, or None."""
        return None

    def assembled(self, parts: Parts) -> None:
        """Take over the broker's parts, which are put together and do not run yet."""

    def add_services(self, server: grpc.aio.Server) -> Sequence[str]:
        """Add services of its own; return their full names."""
        del server
        return ()

    def stopping(self) -> None:
        """Hold nothing back any more: the listeners are about to stop."""

    async def close(self) -> None:
        """Stop: the broker ends, and its membership with it."""
