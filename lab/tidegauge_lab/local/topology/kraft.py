"""A cluster whose controllers keep its metadata in a log of their own (KIP-500): a quorum beside the brokers.

Rules:
- The controllers start first and stop last: brokers hand their leaders over to the active one. Brokers that are
  controllers too (``QuorumEntry.is_combined``) start and stop as brokers; the quorum has its leader once enough have.
- Every node's directories are formatted before its first start, with the cluster's id and its first voters. A directory
  that has lost its content later is formatted again with a new id and without voters: a controller that forgot its
  votes must not count as the voter that it was (KIP-853); `tidegauge add-controller` makes it a voter again.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.actions import ZOOKEEPER, Target
from tidegauge.files import naming
from tidegauge.kafka.kraft.uuids import uuid_of
from tidegauge_broker.server.quorum.node_properties import read_node_properties
from tidegauge_client.cluster_file import (
    CONTROLLER_LISTENER,
    OWNER_ALONE,
    BootstrapServers,
    ClusterFile,
    holds_secrets,
    load_cluster_file,
)
from tidegauge_client.quorum_admin import QuorumView
from tidegauge_client.quorum_file import ControllerEntry, QuorumEntry
from tidegauge_controller.raft.values import Endpoint, ReplicaKey, Voter, VoterSet
from tidegauge_lab.ended_membership import EndedMembership
from tidegauge_lab.local import layout, ports
from tidegauge_lab.local.fault_log import note_event
from tidegauge_lab.local.launcher import CONTROLLER, Launcher, environment_of_brokers
from tidegauge_lab.local.processes import LabProcess, ProcessState, ended
from tidegauge_lab.local.topology import kraft_fencing
from tidegauge_lab.local.topology.kraft_properties import BROKER, controller_properties, membership_of
from tidegauge_lab.local.topology.kraft_quorum import described, place_of
from tidegauge_lab.local.waiting import TimeLimitError, holds_within

_LISTEN_LIMIT_SECONDS = 60.0
_LEADER_LIMIT_SECONDS = 30.0
"""For an election by a majority that is up: each vote is written to disk before it is given, and a disk may be slow."""
_STRAY_LEADER_LIMIT_SECONDS = 10.0
"""Without a majority of the controllers that are known: others may be voters by now."""
_LOOK_SECONDS = 1.0
_GRACE_SECONDS = 1.0
_STATE_SECONDS = 0.7


class KRaftTopology:
    """The controllers of a cluster in KRaft mode (``Topology``).

    Args:
        directory: the cluster's.
        file: its description.
    """

    def __init__(self, directory: Path, file: ClusterFile) -> None:
        assert file.quorum is not None
        self._directory = directory
        self._file = file
        self._quorum: QuorumEntry = file.quorum

    @property
    def names_controller(self) -> bool:
        """Return False: a broker's metadata name any live broker as the controller (KIP-590)."""
        return False

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        """Return the broker's node id, its roles, and the controllers' addresses."""
        return membership_of(self._quorum, broker_id, BROKER)

    def prepare(self, broker_id: int) -> None:
        """Format a broker's log directories that are not formatted yet.

        Raises:
            TidegaugeError: one belongs to another node or cluster; nothing was changed.
        """
        if self._quorum.is_combined:
            self._format_first([broker_id])
        directories = [str(path) for path in layout.broker_log_directories(self._directory, broker_id)]
        _format(self._quorum, broker_id, directories)

    @property
    def targets(self) -> list[Target]:
        """Return the controllers' ids, in their order."""
        return [one.id for one in self._quorum.separate]

    @property
    def grace_seconds(self) -> float:
        """Return how long controllers may take; the last leader has no successor."""
        return _GRACE_SECONDS

    def process(self, target: Target) -> LabProcess:
        """Return a controller's process.

        Raises:
            TidegaugeError: INVALID_REQUEST, it is ZooKeeper; BROKER_NOT_AVAILABLE, there is no such node.
        """
        if target in self._quorum.ids:
            of_kind = layout.broker_process if self._quorum.is_combined else layout.controller_process
            return of_kind(self._directory, int(target))
        if target == ZOOKEEPER:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "the cluster is in KRaft mode and has no ZooKeeper: its metadata are with the controllers "
                f"{', '.join(map(str, self._quorum.ids))}; nothing was done",
            )
        brokers = ", ".join(map(str, self._file.broker_ids))
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"there is no node {target} in this cluster; its brokers are {brokers}, its controllers "
            f"{', '.join(map(str, self._quorum.ids))}",
        )

    def require_installed(self) -> None:
        """Check nothing: Python and the base installation are all that a cluster in KRaft mode needs."""

    def require_ports(self, down: Collection[Target]) -> None:
        """Refuse a busy port of a controller that is about to start.

        Raises:
            TidegaugeError: with the holder's name.
        """
        for entry in self._quorum.controllers:
            if entry.id in down:
                ports.require_free(entry.port, f"controller {entry.id}")
        for entry in self._quorum.separate:
            if entry.id in down:
                ports.require_free(entry.lab_port, f"controller {entry.id}, for gRPC,")

    def require_directories(self, down: Collection[Target]) -> None:
        """Refuse a node that is about to start on another node's or cluster's directory.

        Raises:
            TidegaugeError: with the directory's owner; nothing was changed.
        """
        from tidegauge_broker.server.quorum.format_directories import require_own  # noqa: PLC0415 - as in _format
        from tidegauge_lab.local.topology.kraft_plan import formatting  # noqa: PLC0415 - the same

        for target in down:
            of_kind = layout.controller_process if target in self.targets else layout.broker_process
            name = of_kind(self._directory, int(target)).name
            directories = [str(path) for path in layout.node_log_directories(self._directory, name)]
            require_own(formatting(self._quorum, int(target), directories[0], is_controller=False), directories)

    def start(self, targets: Sequence[Target], launcher: Launcher | None = None) -> None:
        """Format unformatted directories, start these controllers, and wait until each one listens.

        Raises:
            TidegaugeError: a directory belongs to another node or cluster, or a process ended.
            TimeLimitError: one does not listen in time.
        """
        self._format_first(targets)
        places = {}
        for target in targets:
            entry, process = self._quorum.controller(int(target)), self.process(target)
            process.make_directories()
            config = process.directory / layout.CONTROLLER_PROPERTIES
            with naming(config):
                if holds_secrets(self._file.settings):
                    config.touch(OWNER_ALONE)
                    config.chmod(OWNER_ALONE)
                config.write_text(controller_properties(entry, self._directory, self._file), encoding="utf-8")
            places[entry] = process.log_size()
            command = [sys.executable, "-P", "-m", CONTROLLER, "--config", str(config)]
            if launcher is None:
                process.spawn(command, environment_of_brokers())
            else:
                launcher.start(process, command, environment_of_brokers())

        def all_listen() -> bool:
            for entry, place in places.items():
                if self.process(entry.id).pid is None:
                    raise ended(self.process(entry.id), place)
            return all(ports.takes_connections(entry.port) for entry in places)

        if not holds_within(all_listen, _LISTEN_LIMIT_SECONDS):
            silent = ", ".join(str(one.id) for one in places if not ports.takes_connections(one.port))
            raise TimeLimitError(
                f"controller {silent} does not listen after {_LISTEN_LIMIT_SECONDS:g} s; logs are in "
                f"{self._directory / layout.LOGS} ({command_for(self._directory, 'logs')})"
            )

    def require_ready(self, starting: Collection[Target] = ()) -> None:
        """Wait for a leader of the quorum for a moment, since brokers can't register without one.

        Brokers that are about to start as controllers are not waited for: with a majority they elect one.

        Args:
            starting: brokers that start next.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, there is none, and those that start can't elect one.
        """
        states = {one: self.process(one).state for one in self._quorum.ids}
        up = [one for one, state in states.items() if state is ProcessState.UP]
        coming = [one for one in states if one in starting and self._quorum.is_combined]
        needed = len(states) // 2 + 1
        if coming and len(up) + len(coming) >= needed:
            return
        limit_seconds = _LEADER_LIMIT_SECONDS if len(up) >= needed else _STRAY_LEADER_LIMIT_SECONDS
        if not coming and up and holds_within(self._has_leader, limit_seconds):
            return
        why, what = f"{len(up)} of its {len(states)} controllers are up", command_for(self._directory, "logs")
        others = [one for one in states if one not in {*up, *coming}]
        if coming:
            why += f", {len(coming)} would start, and {needed} are needed to elect one"
        elif len(up) < needed:
            why += f", and {needed} are needed to elect one"
        if coming or len(up) < needed:
            lacking = others[: needed - len(up) - len(coming)]
            paused = [one for one in lacking if states[one] is ProcessState.PAUSED]
            verb = "resume" if paused else "start"
            named = paused or ([*coming, *lacking] if self._quorum.is_combined else lacking[:1])
            what = command_for(self._directory, " ".join([verb, *map(str, named)]))
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"the quorum of controllers has no leader, and a broker can't register without one: {why}; {what} first",
        )

    def remarks(self) -> list[str]:
        """Return nothing: all processes are the cluster's own."""
        return []

    def resume(self) -> None:
        """Resume paused controllers: brokers that stop hand their leaders over to the active one."""
        for target in self.targets:
            self.process(target).send(signal.SIGCONT)

    def require_members(self, targets: Collection[Target]) -> None:
        """Refuse to have brokers fenced that have not registered, or while no controller is active.

        Raises:
            TidegaugeError: INVALID_REQUEST, BROKER_NOT_AVAILABLE; nothing was done.
        """
        kraft_fencing.require_registered(self._directory, targets)
        if targets and self.quorum() is None:
            raise TidegaugeError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                "no controller is active, and only the active one fences brokers; see "
                f"{command_for(self._directory, 'status')}; nothing was done",
            )

    def end_membership(self, broker_id: int) -> EndedMembership:
        """Have the active controller fence a broker.

        Raises:
            TidegaugeError: it is not registered, or no controller responds.
        """
        return EndedMembership(kraft_fencing.fence(self._directory, self._asked, broker_id), is_session=False)

    def require_own(self) -> None:
        """Do nothing: all data are in the cluster's directory."""

    def quorum(self) -> QuorumView | None:
        """Return the quorum as its leader describes it; None: there is no leader."""
        return described(self._asked, _LOOK_SECONDS)

    def status(self, end_of: Callable[[LabProcess], Any]) -> dict[str, Any]:
        """Return the fields ``zookeeper``, which is None, ``controllers`` and ``controller``.

        Args:
            end_of: says how a process ended.
        """
        view = described(self._asked, _STATE_SECONDS)
        controllers = []
        for entry in self._quorum.controllers:
            process = self.process(entry.id)
            state = process.state
            is_up = state is ProcessState.UP
            found = None if view is None else place_of(view, entry.id, self._directory_id(process))
            row, role = found if found is not None else (None, None)
            controllers.append(
                {
                    "id": entry.id,
                    "state": state.value,
                    "pid": process.pid,
                    "responds": is_up and ports.takes_connections(entry.port),
                    "end": end_of(process),
                    "address": entry.address,
                    "dir": str(process.directory),
                    "role": role if is_up else None,
                    "epoch": None if view is None or not is_up else view.epoch,
                    "log_end_offset": None if row is None or not is_up else row.log_end_offset,
                    "high_watermark": None if view is None or not is_up else view.high_watermark,
                }
            )
        leader = None if view is None else {"id": view.leader_id, "broker": view.leader_id, "epoch": view.epoch}
        return {
            "zookeeper": None,
            "controllers": controllers,
            "controller": leader or {"id": None, "broker": None, "epoch": None},
        }

    def _directory_id(self, process: LabProcess) -> bytes | None:
        """Return the id of a node's directory; None if it can't be read."""
        try:
            return read_node_properties(layout.node_log_directories(self._directory, process.name)[0]).directory_id
        except TidegaugeError:
            return None

    @property
    def _asked(self) -> BootstrapServers:
        """The addresses of the controllers that are up."""
        return self._file.controllers(one.address for one in self._up)

    @property
    def _up(self) -> list[ControllerEntry]:
        return [one for one in self._quorum.controllers if self.process(one.id).state is ProcessState.UP]

    def _has_leader(self) -> bool:
        view = self.quorum()
        return view is not None and view.high_watermark >= 0

    def _format_first(self, targets: Sequence[Target]) -> None:
        """Format the directories of these controllers that are not formatted (second rule of the module).

        Raises:
            TidegaugeError: a directory belongs to another node or cluster; nothing was changed.
        """
        file = load_cluster_file(self._directory)  # another object may have formatted since this one was made
        assert file.quorum is not None
        self._file, self._quorum = file, file.quorum
        firsts = [one for one in self._quorum.controllers if one.directory_id]
        again = [one for one in self._quorum.controllers if one.id in targets and one not in firsts]
        voters = VoterSet.of(
            Voter(ReplicaKey(one.id, uuid_of(one.directory_id)), (Endpoint(CONTROLLER_LISTENER, one.host, one.port),))
            for one in firsts
        )
        for entry in [*firsts, *again]:
            data = str(layout.node_log_directories(self._directory, self.process(entry.id).name)[0])
            written = _format(
                self._quorum, entry.id, [data], is_controller=True, voters=voters if entry in firsts else None
            )
            if written and entry not in firsts:
                fields = {"action": "format", "broker": None, "process": self.process(entry.id).name}
                fields["directory_id"] = written[0]
                note_event(self._directory / layout.LOGS, "fault", "Lab", fields)
        if firsts:
            done = [replace(one, directory_id="") for one in self._quorum.controllers]
            self._quorum = replace(self._quorum, controllers=done)
            self._file = replace(self._file, quorum=self._quorum)
            self._file.save(self._directory)


def _format(
    quorum: QuorumEntry,
    node_id: int,
    directories: Sequence[str],
    *,
    is_controller: bool = False,
    voters: VoterSet | None = None,
) -> list[str]:
    """Format the unformatted directories of a node, and return the ids that they got.

    Args:
        quorum: the cluster's.
        node_id: the node's id.
        directories: the first has the metadata log.
        is_controller: whether the process is a controller alone.
        voters: the first ones, if the node is one of them.

    Raises:
        TidegaugeError: one belongs to another node or cluster; nothing was changed.
    """
    from tidegauge_broker.server.quorum.format_directories import format_directories  # noqa: PLC0415 - loads codecs
    from tidegauge_lab.local.topology.kraft_plan import formatting  # noqa: PLC0415 - likewise

    asked = formatting(quorum, node_id, directories[0], is_controller=is_controller)
    if voters is not None:
        asked = replace(asked, initial_voters=voters, no_initial_voters=False)
    written = format_directories(asked, directories, asked.levels(), ignore_formatted=True)
    return [one.directory_id for one in written]
