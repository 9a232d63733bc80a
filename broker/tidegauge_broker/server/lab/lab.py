"""``Lab``: the seams of a broker with ``lab.enable=true``, and their common state.

Rules:
    1. Faults that are switched on here are in this process only: a restart clears them, except those from settings
       (``lab.held``, ``lab.rules.file``).
    2. While nothing is switched on, the broker behaves as a plain one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import grpc.aio

from tidegauge.kafka.kraft.broker_apis import AMONG_BROKERS
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.logical_clock import LogicalClock
from tidegauge.security import Security
from tidegauge.settings import Values
from tidegauge.v1 import lab_service_pb2, lab_service_pb2_grpc
from tidegauge_broker.log.files import Disk
from tidegauge_broker.log.lab_disk import DiskFaults, LabDisk
from tidegauge_broker.server.cluster.ports import Dial
from tidegauge_broker.server.lab.channels import Calls
from tidegauge_broker.server.lab.fault_table import FaultTable, Place
from tidegauge_broker.server.lab.gate import LabGate
from tidegauge_broker.server.lab.holds import Holds
from tidegauge_broker.server.lab.kafka_channels import LabKafkaChannel
from tidegauge_broker.server.lab.kraft_membership import KRaftMembership
from tidegauge_broker.server.lab.membership import LabMembership
from tidegauge_broker.server.lab.rule_messages import rules_from_start
from tidegauge_broker.server.lab.rules import RuleTable
from tidegauge_broker.server.lab.servicer import LabServicer, describing, held_from_start
from tidegauge_broker.server.lab.to_controllers import ControllersLab
from tidegauge_broker.server.lab.zookeeper.membership import ZooKeeperMembership
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.seams import Parts, Seams
from tidegauge_broker.server.service.gate import Gate
from tidegauge_broker.server.wire.grpc.replication import ReplicationServicer


class Lab(Seams):
    """The lab's hand in one broker."""

    def __init__(
        self,
        settings: Values,
        broker_id: int,
        metadata: MetadataCache,
        security: Security,
        over_kafka: Security,
        logical_clock: LogicalClock | None,
    ) -> None:
        super().__init__(security, over_kafka, logical_clock)
        self._settings = settings
        self._disk_faults = DiskFaults()
        is_kraft = not settings.text("zookeeper.connect")
        place = Place.KRAFT_BROKER if is_kraft else Place.BROKER
        self._faults = FaultTable(broker_id, self._disk_faults, place=place)
        self._disks: dict[Path, LabDisk] = {}
        self._to_controllers = ControllersLab(self._faults, self.disk_of)
        self._calls = Calls(self._faults, lambda address: _broker_at(metadata, address), security)
        self._rules = RuleTable(broker_id)
        self._rules.set(rules_from_start(settings))
        self._gate = LabGate(self._faults, self._rules)
        self._membership: LabMembership = (
            KRaftMembership() if is_kraft else ZooKeeperMembership(self._faults, settings["lab.session.file"])
        )
        self._holds: Holds | None = None

    def disk_of(self, directory: Path) -> Disk:
        """Return a disk that records syncs and meets the disk faults.

        A directory has one, since its record is one file: the metadata log's may have replicas, too.
        """
        return self._disks.setdefault(directory.absolute(), LabDisk(self._disk_faults))

    def shown_ms(self) -> Callable[[int], int]:
        """Return the broker's wall clock, which faults of the clock skew."""
        return self._faults.clock.shown_ms

    def open_channel(self, address: str) -> grpc.aio.Channel:
        """Open a channel to which the faults apply."""
        return self._calls.open(address)

    def open_kafka_channel(self, address: str, client_id: str) -> KafkaChannel:
        """Open a channel to which the faults apply."""
        return LabKafkaChannel(
            self._calls, address, client_id, self._dialer, self._login, self._logical_clock, AMONG_BROKERS
        )

    def dial(self) -> Dial | None:
        """Return the dial to the metadata store that meets the faults."""
        return self._membership.dial()

    def node_lab(self) -> ControllersLab:
        """Return what opens channels to controllers to which the faults apply."""
        return self._to_controllers

    def gate(self) -> Gate:
        """Return the gate that the faults make."""
        return self._gate

    def assembled(self, parts: Parts) -> None:
        """Hold the partitions that are held from the start, and follow the broker's membership."""
        self._membership.assembled(parts.cluster)
        self._holds = Holds(parts.fetchers, parts.links, describing(parts), held_from_start(self._settings))
        self._servicer = LabServicer(
            parts,
            self._holds,
            self._faults,
            self._rules,
            ReplicationServicer(parts.service, ""),
            self._membership,
            self._to_controllers.held,
            self._to_controllers.node_at,
        )

    def add_services(self, server: grpc.aio.Server) -> Sequence[str]:
        """Offer the Lab service."""
        lab_service_pb2_grpc.add_LabServiceServicer_to_server(self._servicer, server)
        return [service.full_name for service in lab_service_pb2.DESCRIPTOR.services_by_name.values()]

    def stopping(self) -> None:
        """End what holds of requests keep."""
        self._faults.close()
        self._rules.close()
        self._to_controllers.held.release()

    async def close(self) -> None:
        """End the holds, and what holds up connections to the store: the broker stops."""
        if self._holds is not None:
            await self._holds.close()
        self._membership.close()


def _broker_at(metadata: MetadataCache, address: str) -> int | None:
    """Return the broker with this address for brokers, over either protocol."""
    for endpoint in metadata.endpoints():
        broker_id = endpoint.broker_id
        if address in {endpoint.address, metadata.grpc_address(broker_id), metadata.address(broker_id)}:
            return broker_id
    return None
