"""A cluster whose brokers register with ZooKeeper: its own, which starts first and stops last, or another's.

Rule: ZooKeeper serves before the first broker starts, and until the last one has stopped: brokers can't hand their
leaders over without it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.actions import ZOOKEEPER, Target
from tidegauge.files import naming
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_client.quorum_admin import QuorumView
from tidegauge_lab.ended_membership import EndedMembership
from tidegauge_lab.local import layout, ports
from tidegauge_lab.local.broker_settings import session_timeout_ms
from tidegauge_lab.local.launcher import Launcher
from tidegauge_lab.local.processes import LabProcess, ProcessState, ended
from tidegauge_lab.local.takedown import GRACE_SECONDS
from tidegauge_lab.local.topology import zookeeper_server as server
from tidegauge_lab.local.topology import zookeeper_sessions as sessions
from tidegauge_lab.local.waiting import TimeLimitError, holds_within
from tidegauge_lab.local.zookeeper_address import split_address

FOR_OWNER_ALONE = 0o077
"""File mode creation mask of ZooKeeper: its files hold the users' SCRAM keys."""
_ZOOKEEPER_LIMIT_SECONDS = 60.0
_CONFIG_FILE = "zoo.cfg"


class ZooKeeperTopology:
    """The ZooKeeper of a cluster (``Topology``).

    Args:
        directory: the cluster's.
        file: its description.
    """

    def __init__(self, directory: Path, file: ClusterFile) -> None:
        self._directory = directory
        self._file = file

    @property
    def names_controller(self) -> bool:
        """Return True: the controller tells every broker that it is the controller (UpdateMetadata)."""
        return True

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        """Return the broker's id, and ZooKeeper's address."""
        return {"broker.id": str(broker_id), "zookeeper.connect": self._file.zookeeper_address}

    def prepare(self, broker_id: int) -> None:
        """Do nothing: a broker makes its directories by itself."""

    @property
    def targets(self) -> list[Target]:
        """ZooKeeper, if it is the cluster's own."""
        return [ZOOKEEPER] if self._file.zookeeper_managed else []

    @property
    def grace_seconds(self) -> float:
        """Return how long ZooKeeper may take."""
        return GRACE_SECONDS

    def process(self, target: Target) -> LabProcess:
        """Return ZooKeeper's process.

        Raises:
            TidegaugeError: INVALID_REQUEST, it is another target, or ZooKeeper is another's.
        """
        if target != ZOOKEEPER:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"{target!r} is neither a broker id nor {ZOOKEEPER!r}")
        if not self._file.zookeeper_managed:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"ZooKeeper at {self._file.zookeeper_address} was not started by `tidegauge up`, so it is left alone",
            )
        return layout.zookeeper_process(self._directory)

    def require_installed(self) -> None:
        """Check what a new cluster needs of ZooKeeper before its directory is created."""
        if self._file.zookeeper_managed:
            server.installed()
        else:
            self.require_ready()

    def require_ports(self, down: Collection[Target]) -> None:
        """Refuse a busy port of ZooKeeper, if it is about to start.

        Raises:
            TidegaugeError: with the holder's name.
        """
        if ZOOKEEPER in down:
            [(_, port)] = split_address(self._file.zookeeper_address)
            ports.require_free(port, "ZooKeeper")

    def require_directories(self, down: Collection[Target]) -> None:
        """Check nothing: the id of the cluster is in ZooKeeper, which is not up yet; each broker compares it itself."""

    def start(self, targets: Sequence[Target], launcher: Launcher | None = None) -> None:
        """Start the cluster's own ZooKeeper, if it is a target, and wait until it serves.

        Raises:
            TidegaugeError: Java or PySpark is missing, or it ended.
            TimeLimitError: it does not serve in time.
        """
        del launcher  # it starts processes of Python
        if ZOOKEEPER not in targets:
            return
        process = self.process(ZOOKEEPER)
        [(_, port)] = split_address(self._file.zookeeper_address)
        config = process.directory / _CONFIG_FILE
        command = server.server_command(config)
        data = process.directory / "data"
        with naming(data):
            for path in (process.directory, data):
                layout.make_private(path)
        with naming(config):
            config.write_text(server.server_config(data, port), encoding="utf-8")
        since = process.log_size()
        process.spawn(command, umask=FOR_OWNER_ALONE)

        def serves() -> bool:
            if process.pid is None:
                raise ended(process, since)
            return server.responds(self._file.zookeeper_address)

        if not holds_within(serves, _ZOOKEEPER_LIMIT_SECONDS):
            raise TimeLimitError(
                f"ZooKeeper does not serve after {_ZOOKEEPER_LIMIT_SECONDS:g} s; its log is {process.log_file}"
            )

    def require_ready(self, starting: Collection[Target] = ()) -> None:  # noqa: ARG002 - the quorum's need it
        """Refuse to start brokers without a ZooKeeper.

        Args:
            starting: is not looked at: no broker brings ZooKeeper.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, it is down, paused or out of reach.
        """
        if self._file.zookeeper_managed:
            state = layout.zookeeper_process(self._directory).state.value
            if state != "up":
                verb = "resume" if state == "paused" else "start"
                raise TidegaugeError(
                    ErrorCode.BROKER_NOT_AVAILABLE,
                    f"ZooKeeper is {state}, and a broker can't register without it: "
                    f"{command_for(self._directory, f'{verb} --zookeeper')} first",
                )
        elif not server.is_reachable(self._file.zookeeper_address):
            raise TidegaugeError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"no ZooKeeper listens at {self._file.zookeeper_address}; start it first",
            )

    def remarks(self) -> list[str]:
        """Return a remark if an external ZooKeeper changes the brokers' session timeout.

        Raises:
            TidegaugeError: it can't be reached.
        """
        if self._file.zookeeper_managed:
            return []
        self.require_ready()
        asked_ms = session_timeout_ms(self._file.settings, self._file.profile)
        granted_ms = server.granted_session_timeout_ms(self._file.zookeeper_address, asked_ms)
        if granted_ms == asked_ms:
            return []
        return [
            f"ZooKeeper at {self._file.zookeeper_address} grants sessions of {granted_ms} ms, not {asked_ms} ms: "
            "that long a killed broker counts as alive"
        ]

    def resume(self) -> None:
        """Resume the cluster's own ZooKeeper, if it is paused."""
        for target in self.targets:
            self.process(target).send(signal.SIGCONT)

    def require_members(self, targets: Collection[Target]) -> None:
        """Refuse to end sessions that are not known, or that ZooKeeper can't end now.

        Raises:
            TidegaugeError: nothing was done.
        """
        sessions.require_noted(self._directory, targets)
        if targets:
            self.require_ready()

    def end_membership(self, broker_id: int) -> EndedMembership:
        """End a broker's session on the server.

        Raises:
            TidegaugeError: it is not known, or ZooKeeper does not respond.
        """
        return EndedMembership(sessions.end(self._directory, self._file, broker_id), is_session=True)

    def require_own(self) -> None:
        """Refuse a cluster whose ZooKeeper is another's: its znodes can't be copied.

        Raises:
            TidegaugeError: INVALID_REQUEST.
        """
        if not self._file.zookeeper_managed:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"ZooKeeper at {self._file.zookeeper_address} was not started by `tidegauge up`, so its data can't be "
                "copied",
            )

    def quorum(self) -> QuorumView | None:
        """Refuse: the controller is a broker."""
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            "the cluster is in ZooKeeper mode, and its controller is a broker: there is no quorum",
        )

    def status(self, end_of: Callable[[LabProcess], Any]) -> dict[str, Any]:
        """Return the fields ``zookeeper`` and ``controllers``; ``end_of`` says how a process ended."""
        address = self._file.zookeeper_address
        if not self._file.zookeeper_managed:
            state = ProcessState.UP if server.is_reachable(address) else ProcessState.DOWN
            is_up = state is ProcessState.UP
            end = {"pid": None, "state": state.value, "responds": is_up, "end": None}
            return {"zookeeper": {"address": address, **end}, "controllers": []}
        process = self.process(ZOOKEEPER)
        return {
            "zookeeper": {
                "address": address,
                "pid": process.pid,
                "state": process.state.value,
                "responds": process.state is ProcessState.UP and server.is_reachable(address),
                "end": end_of(process),
            },
            "controllers": [],
        }
