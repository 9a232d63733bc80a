"""A further controller for a local cluster in KRaft mode: its process starts as an observer, and is made a voter.

Its entry is in ``cluster.json`` before it starts, so that a growth that was interrupted leaves an observer, which
`tidegauge up` starts again and `tidegauge add-controller -c` makes a voter. Source: KIP-853.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_broker.server.quorum.metadata_store import read_node_properties
from tidegauge_client.cluster_file import CONTROLLER_LISTENER, ClusterFile, load_cluster_file
from tidegauge_client.loop_thread import LoopThread
from tidegauge_client.quorum_admin import QuorumAdmin
from tidegauge_client.quorum_file import ControllerEntry
from tidegauge_lab.local import layout, ports
from tidegauge_lab.local.plan import ports_of
from tidegauge_lab.local.topology import Topology
from tidegauge_lab.local.topology.kraft_plan import next_controller
from tidegauge_lab.local.waiting import holds_within

_CAUGHT_UP_SECONDS = 30.0


def planned(directory: Path, file: ClusterFile, topology: Topology) -> ControllerEntry:
    """Record one more controller in a cluster's file, and reserve its ports; return it.

    Raises:
        TidegaugeError: INVALID_REQUEST, the cluster is in ZooKeeper mode, or its controllers are brokers;
            BROKER_NOT_AVAILABLE, no leader of the quorum could add it. Nothing was changed.
    """
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
