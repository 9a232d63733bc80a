"""A further controller for a local cluster in KRaft mode: its process starts as an observer, and is made a voter.

Its entry is in ``cluster.json`` before it starts, so that a growth that was interrupted leaves an observer, which
`tidegauge up` starts again and `tidegauge add-controller -c` makes a voter. Source: KIP-853.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_broker.server.quorum.node_properties import read_node_properties
from tidegauge_client.cluster_file import CONTROLLER_LISTENER, ClusterFile, load_cluster_file
from tidegauge_client.loop_thread import LoopThread
from tidegauge_client.quorum_admin import QuorumAdmin
from tidegauge_client.quorum_file import ControllerEntry
from tidegauge_lab.local import layout, ports
from tidegauge_lab.local.fault_log import note_fault
from tidegauge_lab.local.plan import ports_of
from tidegauge_lab.local.processes import LabProcess, ProcessState
from tidegauge_lab.local.topology import Topology
from tidegauge_lab.local.waiting import holds_within

_CAUGHT_UP_SECONDS = 30.0


def planned(directory: Path, file: ClusterFile, topology: Topology) -> ControllerEntry:
    """Record one more controller in a cluster's file, and reserve its ports; return it.

    Raises:
        TidegaugeError: INVALID_REQUEST, the cluster is in ZooKeeper mode, or its controllers are brokers;
            BROKER_NOT_AVAILABLE, no leader of the quorum could add it. Nothing was changed.
    """
    from tidegauge_lab.local.topology.kraft_plan import next_controller  # noqa: PLC0415 - loads the codec of records

    if file.quorum is None:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"the cluster in {directory} is in ZooKeeper mode, and its controller is a broker; `tidegauge up --kraft "
            "--dir OTHER` starts a cluster with a quorum of controllers",
        )
    if file.quorum.is_combined:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"the controllers of the cluster in {directory} are brokers (--combined), and it gets no others; "
            f"{command_for(directory, 'up --brokers N')} adds brokers",
        )
    if topology.quorum() is None:
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            "the quorum of controllers has no leader, and only its leader adds a voter; see "
            f"{command_for(directory, 'status')}; nothing was done",
        )
    with ports.Reservations().choosing(directory) as reserved:
        entry = next_controller(directory, file, taken=reserved.others)
        grown = replace(file, quorum=replace(file.quorum, controllers=[*file.quorum.controllers, entry]))
        reserved.choose(ports_of(grown), ports.KEPT)
        layout.write(directory, grown)
    return entry


def remove_voter(asked: Sequence[str], controller_id: int) -> None:
    """Take a controller out of the voters; return when that is committed, also if it was the leader and ends as such.

    Args:
        asked: addresses of controllers.
        controller_id: the voter.

    Raises:
        TidegaugeError: VOTER_NOT_FOUND, it is none; or the leader refuses.
    """

    async def remove() -> None:
        async with QuorumAdmin(asked) as admin:
            view = await admin.describe()
            found = next((one for one in view.voters if one.id == controller_id), None)
            if found is None:
                raise TidegaugeError(ErrorCode.VOTER_NOT_FOUND, f"controller {controller_id} is no voter")
            try:
                await admin.remove_voter(controller_id, found.directory_id)
            except TidegaugeError as problem:
                if problem.code is not ErrorCode.VOTER_NOT_FOUND:  # an attempt whose response was lost
                    raise

    loop = LoopThread("tidegauge-quorum")
    try:
        loop.run(remove())
    finally:
        loop.close()


def lose_data(directory: Path, process: LabProcess) -> None:
    """Take all data of a node that is down away, as a disk that was replaced has none; its next start formats it.

    Args:
        directory: the cluster's.
        process: the node's.

    Raises:
        TidegaugeError: INVALID_REQUEST, it runs.
    """
    if process.state is not ProcessState.DOWN:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"{process.name} runs, and uses its data; kill it first")
    for data in layout.node_log_directories(directory, process.name):
        shutil.rmtree(data, ignore_errors=True)
    note_fault(directory / layout.LOGS, "lose-disk", process.name, None, "Lab")


def make_voter(directory: Path, entry: ControllerEntry) -> bytes:
    """Make a running controller a voter as soon as it has caught up; return its directory id.

    Args:
        directory: the cluster's.
        entry: the controller.

    Raises:
        TidegaugeError: the leader refuses, or the controller does not catch up in time.
    """
    directory_id = read_node_properties(layout.controller_data(directory, entry.id)).directory_id
    asked = load_cluster_file(directory).controllers()
    assert directory_id is not None
    refused: list[TidegaugeError] = []

    async def add() -> bool:
        try:
            async with QuorumAdmin(asked) as admin:
                await admin.add_voter(entry.id, directory_id, [(CONTROLLER_LISTENER, entry.host, entry.port)])
        except TidegaugeError as problem:
            if problem.code is ErrorCode.DUPLICATE_VOTER and refused:
                return True  # an attempt whose response was lost
            refused.append(problem)
            if problem.code not in {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER}:
                raise
            return False
        return True

    loop = LoopThread("tidegauge-quorum")
    try:
        if not holds_within(lambda: loop.run(add()), _CAUGHT_UP_SECONDS):
            raise refused[-1]
    finally:
        loop.close()
    return directory_id
