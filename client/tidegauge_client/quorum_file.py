"""The part of ``cluster.json`` that a cluster in KRaft mode has: its controllers, and how its nodes are formatted."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_client.json_fields import known_fields, matching, number, of_type

FIRST_CONTROLLER_ID = 3000
"""The id of the first controller of a local cluster, as in Kafka's own test kit; the others follow."""
_LAST_PORT = 65535
_LAST_ID = 2**31 - 1
_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,255}")
_UUID = re.compile(r"[A-Za-z0-9_-]{22}")
_RELEASE = re.compile(r"[A-Za-z0-9.-]{1,40}")


@dataclass(frozen=True, slots=True)
class ControllerEntry:
    """One controller of the quorum; its id, ports and directory never change.

    Attributes:
        port: of the CONTROLLER listener.
        lab_port: of gRPC: health, events and the Lab service; a broker that is a controller has one port for both.
        dir: its process's directory.
        directory_id: the id that the metadata directory gets when it is formatted for the first time; empty: it has
            been formatted, and its meta.properties has the id.
    """

    id: int
    host: str
    port: int
    lab_port: int
    dir: str
    directory_id: str = ""

    @property
    def address(self) -> str:
        """Return ``host:port`` of the CONTROLLER listener."""
        return address_of(self.host, self.port)

    @property
    def lab_address(self) -> str:
        """Return ``host:port`` for gRPC."""
        return address_of(self.host, self.lab_port)


@dataclass(frozen=True, slots=True)
class QuorumEntry:
    """The quorum of a cluster in KRaft mode.

    Attributes:
        cluster_id: the cluster's id, which every directory carries.
        controllers: by id; the voters with which the cluster began.
        is_combined: whether the controllers are also brokers, with the same ids and processes.
        release_version: what ``--release-version`` gave; empty: the latest.
        features: levels that ``--feature`` gave.
    """

    cluster_id: str
    controllers: Sequence[ControllerEntry]
    is_combined: bool = False
    release_version: str = ""
    features: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def addresses(self) -> list[str]:
        """Return the addresses of all controllers, whether they run or not."""
        return [one.address for one in self.controllers]

    @property
    def ids(self) -> list[int]:
        """Return the ids of all controllers."""
        return [one.id for one in self.controllers]

    @property
    def separate(self) -> Sequence[ControllerEntry]:
        """Return the controllers with processes of their own: all or none."""
        return [] if self.is_combined else self.controllers

    def controller(self, controller_id: int) -> ControllerEntry:
        """Return the controller with this id.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, the cluster has no such controller.
        """
        for entry in self.controllers:
            if entry.id == controller_id:
                return entry
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"there is no controller {controller_id} in this cluster; its controllers are "
            f"{', '.join(map(str, self.ids))}",
        )


def node_name(node_id: int) -> str:
    """Return ``Controller 3000`` or ``Broker 0``; controllers' ids begin at 3000."""
    return f"{'Controller' if node_id >= FIRST_CONTROLLER_ID else 'Broker'} {node_id}"


def node_words(node_id: int) -> str:
    """Return ``controller 3000`` or ``broker 0``, for the middle of a sentence."""
    return node_name(node_id).lower()


def read_quorum(value: Any) -> QuorumEntry | None:
    """Return the quorum in a cluster's JSON; None in ZooKeeper mode.

    Raises:
        ValueError: a field is missing, unknown, or has a value that is never written.
    """
    if value is None:
        return None
    found = known_fields(value, QuorumEntry, "the quorum")
    controllers = [_controller(entry) for entry in of_type(found, "controllers", list)]
    if not controllers or len({one.id for one in controllers}) < len(controllers):
        raise ValueError("the quorum has no controllers, or two with the same id")
    features = of_type(found, "features", dict, {})
    if not all(type(level) is int for level in features.values()):
        raise ValueError("the levels of features are numbers")
    return QuorumEntry(
        cluster_id=matching(found, "cluster_id", _UUID, what="id of a cluster"),
        controllers=controllers,
        is_combined=of_type(found, "is_combined", bool, False),
        release_version=matching(found, "release_version", _RELEASE, "", what="release"),
        features=features,
    )


def require_ids(quorum: QuorumEntry, brokers: Collection[int]) -> None:
    """Check that controllers are brokers if they are said to be, and none is otherwise.

    Raises:
        ValueError: an id says something else.
    """
    for controller_id in quorum.ids:
        if quorum.is_combined and controller_id not in brokers:
            raise ValueError(f"its controllers are brokers, and there is no broker {controller_id}")
        if not quorum.is_combined and controller_id in brokers:
            raise ValueError(f"a controller and a broker have the id {controller_id}")


def _controller(entry: Any) -> ControllerEntry:
    found = known_fields(entry, ControllerEntry, "a controller")
    return ControllerEntry(
        id=number(found, "id", most=_LAST_ID),
        host=matching(found, "host", _HOST),
        port=number(found, "port", least=1, most=_LAST_PORT),
        lab_port=number(found, "lab_port", least=1, most=_LAST_PORT),
        dir=of_type(found, "dir", str),
        directory_id=matching(found, "directory_id", _UUID, "", what="id of a directory"),
    )
