"""Where a cluster's ZooKeeper is: said or chosen with the first plan, kept by every later one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_lab.local import ports
from tidegauge_lab.local.wanted import Wanted, contradiction
from tidegauge_lab.local.zookeeper_address import split_address


class ZooKeeperPlan:
    """The plan of a cluster's ZooKeeper (``TopologyPlan``)."""

    def complete(
        self, file: ClusterFile, wanted: Wanted, *, taken: Collection[int], free: Callable[[int], bool]
    ) -> tuple[ClusterFile, list[str]]:
        """Return a new cluster's description with its ZooKeeper, and notes for the user.

        Raises:
            TidegaugeError: INVALID_REQUEST, the address is none, the port is busy, or one of the brokers has it.
        """
        if wanted.zookeeper is not None:
            if wanted.zookeeper_port is not None:
                raise TidegaugeError(
                    ErrorCode.INVALID_REQUEST,
                    f"ZooKeeper at {wanted.zookeeper} has its port already; only the cluster's own gets one",
                )
            split_address(wanted.zookeeper)
            return replace(file, zookeeper_address=wanted.zookeeper, zookeeper_managed=False), []
        notes = []
        port = wanted.zookeeper_port
        if port is None:
            of_brokers = {port for broker in file.brokers for port in (broker.port, broker.kafka_port)}
            [port] = ports.choose_ports([ports.FIRST_ZOOKEEPER_PORT], taken={*of_brokers, *taken}, free=free)
            if port != ports.FIRST_ZOOKEEPER_PORT:
                notes.append(f"port {ports.FIRST_ZOOKEEPER_PORT} is taken: ZooKeeper gets {port}")
        else:
            _require_port(port, file, free)
        return replace(file, zookeeper_address=f"{ports.HOST}:{port}", zookeeper_managed=True), notes

    def require_same(self, directory: Path, recorded: ClusterFile, wanted: Wanted) -> None:
        """Refuse another ZooKeeper than the one that has the cluster's metadata.

        Raises:
            TidegaugeError: INVALID_REQUEST.
        """
        address = recorded.zookeeper_address
        if wanted.zookeeper is not None and (recorded.zookeeper_managed or wanted.zookeeper != address):
            raise contradiction(directory, f"uses ZooKeeper at {address}")
        if wanted.zookeeper_port is not None and address != f"{ports.HOST}:{wanted.zookeeper_port}":
            raise contradiction(directory, f"has its ZooKeeper at {address}")

    def ports_avoided(self, file: ClusterFile) -> set[int]:
        """Return the ports that no broker gets: ZooKeeper's, also of another's."""
        return {port for _, port in split_address(file.zookeeper_address)}

    def ports_bound(self, file: ClusterFile) -> list[int]:
        """Return the port that the cluster's own ZooKeeper binds."""
        return [port for _, port in split_address(file.zookeeper_address)] if file.zookeeper_managed else []


def _require_port(port: int, file: ClusterFile, free: Callable[[int], bool]) -> None:
    """Refuse a port that was asked for, if it is busy or one of the brokers has it."""
    for broker in file.brokers:
        if port in (broker.port, broker.kafka_port):
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"port {port} belongs to broker {broker.id}; choose another one for ZooKeeper",
            )
    ports.require_free(port, "ZooKeeper", option="--zookeeper-port", free=free)
