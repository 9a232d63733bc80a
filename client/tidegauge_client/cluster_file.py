"""``cluster.json``: the file in a cluster's directory that lists its processes and their addresses.

The lab writes it at the first ``up`` in a directory and keeps it; client commands read it to find the brokers. Layout
of the directory::

    cluster.json
    zookeeper/            zoo.cfg and ZooKeeper's data (absent with an external ZooKeeper, and in KRaft mode)
    controller-N/         controller.properties, controller.pid, data/ (in KRaft mode)
    broker-N/             server.properties, broker.pid, data/ (Kafka's log directory)
    logs/                 broker-N.log, zookeeper.log, broker-N.events.jsonl, lab.events.jsonl, controller-N likewise
    snapshots/NAME/       the data of a snapshot; restore.json beside cluster.json while one is restored
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.files import read_json, replace_text
from tidegauge.host_addresses import address_of
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.listeners import GRPC_SASL_SSL
from tidegauge.security import PLAIN, Security, security_of
from tidegauge.settings.parsing import broker_setting
from tidegauge_client.json_fields import known_fields, matching, number, of_type
from tidegauge_client.quorum_file import QuorumEntry, read_quorum, require_ids

FILE_NAME = "cluster.json"
OWNER_ALONE = 0o600
"""Mode of files that hold passwords or keys."""
VERSION = 1
ZOOKEEPER_MODE = "zookeeper"
KRAFT_MODE = "kraft"
MODES = (ZOOKEEPER_MODE, KRAFT_MODE)
"""Where a cluster's controller keeps its decisions: in ZooKeeper, or in a log of its own (KIP-500)."""
ANOTHER_DIRECTORY = "name another directory with --dir"
CONTROLLER_LISTENER = "CONTROLLER"
"""Name of the controllers' listener of a local cluster."""
_JAAS = "sasl.jaas.config"
_PROTOCOLS = "listener.security.protocol.map"
_LAST_PORT = 65535
_LAST_ID = 2**31 - 1
_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,255}")
_ADDRESS = re.compile(r"[A-Za-z0-9_.:%\[\]-]{1,255}:[0-9]{1,5}")
_ZOOKEEPER = re.compile(r"[A-Za-z0-9_.:%,\[\]-]{1,2000}(/[A-Za-z0-9_./-]{0,500})?")
BROKERS_BY_ADDRESS = "say where brokers are with --bootstrap-server"


class BootstrapServers(list[str]):
    """Bootstrap addresses, and the security settings for them.

    Attributes:
        security: plain text unless it says otherwise.
        kafka_listeners: where brokers of this machine listen for Kafka clients, by their gRPC addresses: they may
            advertise what only others reach.
    """

    def __init__(
        self,
        addresses: Iterable[str] = (),
        security: Security = PLAIN,
        kafka_listeners: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(addresses)
        self.security = security
        self.kafka_listeners = dict(kafka_listeners or {})


@dataclass(frozen=True, slots=True)
class BrokerEntry:
    """One broker of the cluster; its id, ports and directory never change.

    Attributes:
        port: of gRPC.
        kafka_port: of Kafka's own protocol; 0: the cluster was made before brokers served it.
        advertised: ``host:port`` that Kafka clients get instead, such as a port that a container runner mapped.
        kafka_host: the host at which this machine reaches its listener for Kafka clients; empty: at ``host``.
    """

    id: int
    host: str
    port: int
    dir: str
    kafka_port: int = 0
    advertised: str = ""
    kafka_host: str = ""

    @property
    def address(self) -> str:
        """Return ``host:port`` for gRPC."""
        return address_of(self.host, self.port)

    @property
    def kafka_listener(self) -> str:
        """Return the ``host:port`` of its listener for Kafka clients, whatever it advertises."""
        return address_of(self.kafka_host or self.host, self.kafka_port)

    @property
    def kafka_address(self) -> str | None:
        """Return ``host:port`` for Kafka clients; None: the broker does not serve them."""
        if not self.kafka_port:
            return None
        return self.advertised or self.kafka_listener


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The content of ``cluster.json``.

    Attributes:
        zookeeper_address: ``host:port[,host:port][/chroot]``; empty in KRaft mode.
        zookeeper_managed: whether ``up`` started it and ``down`` stops it.
        profile: ``fast`` or ``kafka``.
        settings: what ``--set`` gave, as text.
        brokers: by id.
        kafka_host: where brokers listen for Kafka clients; empty: at their own host.
        quorum: the controllers of a cluster in KRaft mode; None: it is in ZooKeeper mode.
    """

    zookeeper_address: str
    zookeeper_managed: bool
    profile: str
    brokers: Sequence[BrokerEntry]
    settings: dict[str, str] = field(default_factory=dict)
    version: int = VERSION
    kafka_host: str = ""
    quorum: QuorumEntry | None = None

    @property
    def mode(self) -> str:
        """Return ``kraft`` or ``zookeeper``."""
        return ZOOKEEPER_MODE if self.quorum is None else KRAFT_MODE

    @property
    def broker_ids(self) -> list[int]:
        """Return the ids of all brokers, whether they run or not."""
        return [entry.id for entry in self.brokers]

    def broker(self, broker_id: int) -> BrokerEntry:
        """Return the broker with this id.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, the cluster has no such broker.
        """
        for entry in self.brokers:
            if entry.id == broker_id:
                return entry
        known = ", ".join(map(str, self.broker_ids))
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id} in this cluster; its brokers are {known}"
        )

    @property
    def lab_addresses(self) -> dict[int, str]:
        """Return the addresses of the nodes' Lab services, by id."""
        controllers = [] if self.quorum is None else self.quorum.separate
        return {entry.id: entry.address for entry in self.brokers} | {one.id: one.lab_address for one in controllers}

    @property
    def unsecured_ids(self) -> frozenset[int]:
        """Return the ``lab_addresses`` that have neither TLS nor credentials, whatever the cluster has."""
        return frozenset() if self.quorum is None else frozenset(one.id for one in self.quorum.separate)

    @property
    def bootstrap_servers(self) -> BootstrapServers:
        """Return all brokers' addresses, with the security settings for them."""
        listeners = {entry.address: entry.kafka_listener for entry in self.brokers if entry.kafka_port}
        addresses = (entry.address for entry in self.brokers)
        return BootstrapServers(addresses, self.security, listeners)

    def controllers(self, addresses: Iterable[str] | None = None) -> BootstrapServers:
        """Return controllers' addresses, with the security settings for them; none in ZooKeeper mode.

        Args:
            addresses: of some of them; None: of all.
        """
        if self.quorum is None:
            return BootstrapServers()
        chosen = self.quorum.addresses if addresses is None else addresses
        return BootstrapServers(chosen, security_of_controllers(self.settings))

    @property
    def kafka_bootstrap_servers(self) -> list[str]:
        """Return all brokers' addresses for Kafka clients."""
        return [entry.kafka_address for entry in self.brokers if entry.kafka_address is not None]

    @property
    def security(self) -> Security:
        """Return the brokers' security among themselves, with their certificate and user.

        Raises:
            TidegaugeError: INVALID_CONFIG, a certificate or key can't be read.
        """
        return security_of_cluster(self.settings)

    def save(self, directory: Path) -> None:
        """Write the file atomically."""
        mode = OWNER_ALONE if holds_secrets(self.settings) else None
        written = asdict(self)
        if self.quorum is None:
            del written["quorum"]
        replace_text(directory / FILE_NAME, json.dumps(written, indent=2) + "\n", mode)


def security_of_cluster(settings: Mapping[str, str]) -> Security:
    """Return the security among brokers with these settings over gRPC.

    Raises:
        TidegaugeError: INVALID_CONFIG, a certificate, a key or the brokers' credentials can't be read.
    """
    protocol = settings.get("security.inter.broker.protocol") or PLAIN.protocol
    mechanism = settings.get("sasl.mechanism.inter.broker.protocol") or "GSSAPI"
    return _security_at(GRPC_SASL_SSL, mechanism, settings, protocol)


def security_of_controllers(settings: Mapping[str, str]) -> Security:
    """Return the security of a controllers' listener, with the nodes' credentials.

    Raises:
        TidegaugeError: INVALID_CONFIG, a certificate, a key or the credentials can't be read.
    """
    protocols = (one.strip().upper().partition(":") for one in (settings.get(_PROTOCOLS) or "").split(","))
    protocol = next((text for name, _, text in protocols if name == CONTROLLER_LISTENER), PLAIN.protocol)
    mechanism = settings.get("sasl.mechanism.controller.protocol") or "GSSAPI"
    return _security_at(CONTROLLER_LISTENER, mechanism, settings, protocol)


def _security_at(listener: str, mechanism: str, settings: Mapping[str, str], protocol: str) -> Security:
    """Return the security of a listener with credentials in its JAAS entry."""
    of_listener = f"listener.name.{listener.lower()}."
    places = (f"{of_listener}{mechanism.lower()}.{_JAAS}", f"{of_listener}{_JAAS}", _JAAS)
    jaas = next((settings[name] for name in places if settings.get(name)), None)
    return security_of({**settings, "sasl.mechanism": mechanism, _JAAS: jaas}, protocol)


def holds_secrets(settings: Mapping[str, str]) -> bool:
    """Return whether a setting is a password or a key (type PASSWORD)."""
    found = (broker_setting(name.rpartition(":")[2]) for name in settings)
    return any(setting is not None and setting.is_sensitive for setting in found)


def load_cluster_file(directory: Path, otherwise: str = ANOTHER_DIRECTORY) -> ClusterFile:
    """Read a cluster's file.

    Args:
        directory: the cluster's directory.
        otherwise: what the user can do if the directory holds no cluster, other than start one.

    Raises:
        TidegaugeError: BROKER_NOT_AVAILABLE, the directory holds no cluster or the file is damaged.
    """
    path = directory / FILE_NAME
    try:
        return _read(read_json(path))
    except FileNotFoundError:
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"there is no cluster in {directory}; start one with {command_for(directory, 'up -d')}, or {otherwise}",
        ) from None
    except NotADirectoryError:
        raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, f"{directory} is no directory; {otherwise}") from None
    except (ValueError, OSError) as problem:
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"{path} is damaged: {problem}; nothing was done, and {otherwise}"
        ) from None


def _read(value: Any) -> ClusterFile:
    """Return the cluster of a file's JSON, which may be a stranger's.

    Raises:
        ValueError: a field is missing, unknown, or has a value that ``save`` never writes.
    """
    found = known_fields(value, ClusterFile, "the cluster")
    entries = of_type(found, "brokers", list)
    brokers = [_broker(entry) for entry in entries]
    if len({broker.id for broker in brokers}) < len(brokers):
        raise ValueError("two brokers have the same id")
    settings = of_type(found, "settings", dict, {})
    if not all(isinstance(text, str) for text in settings.values()):
        raise ValueError("the values of settings are texts")
    if (version := number(found, "version", VERSION, most=_LAST_ID)) != VERSION:
        raise ValueError(f"its version is {version}, and this release reads version {VERSION}")
    quorum = read_quorum(found.get("quorum"))
    if quorum is not None and (found.get("zookeeper_managed") or found.get("zookeeper_address")):
        raise ValueError("it has a quorum of controllers and a ZooKeeper")
    if quorum is not None:
        require_ids(quorum, {one.id for one in brokers})
    return ClusterFile(
        zookeeper_address=matching(found, "zookeeper_address", _ZOOKEEPER, None if quorum is None else ""),
        zookeeper_managed=of_type(found, "zookeeper_managed", bool),
        profile=of_type(found, "profile", str),
        brokers=brokers,
        settings=settings,
        kafka_host=matching(found, "kafka_host", _HOST, ""),
        quorum=quorum,
    )


def _broker(entry: Any) -> BrokerEntry:
    found = known_fields(entry, BrokerEntry, "a broker")
    return BrokerEntry(
        id=number(found, "id", most=_LAST_ID),
        host=matching(found, "host", _HOST),
        port=number(found, "port", least=1, most=_LAST_PORT),
        dir=of_type(found, "dir", str),
        kafka_port=number(found, "kafka_port", 0, most=_LAST_PORT),
        kafka_host=matching(found, "kafka_host", _HOST, ""),
        advertised=matching(found, "advertised", _ADDRESS, ""),
    )
