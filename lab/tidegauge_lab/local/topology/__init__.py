"""The processes of a local cluster besides its brokers: their ports, and how they start and stop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from tidegauge.faults.actions import Target
from tidegauge_client.cluster_file import KRAFT_MODE, ClusterFile
from tidegauge_client.quorum_admin import QuorumView
from tidegauge_lab.ended_membership import EndedMembership
from tidegauge_lab.local.launcher import Launcher
from tidegauge_lab.local.processes import LabProcess
from tidegauge_lab.local.wanted import Wanted


class Topology(Protocol):
    """The processes beside the brokers."""

    @property
    def names_controller(self) -> bool:
        """Return whether the brokers' metadata name the active controller."""
        ...

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        """Return the settings that identify a broker and its cluster."""
        ...

    def prepare(self, broker_id: int) -> None:
        """Prepare the directories of a broker that is about to start.

        Raises:
            TidegaugeError: they can't be its own.
        """

    @property
    def targets(self) -> list[Target]:
        """Return the processes that `tidegauge up` starts before brokers, in order."""
        ...

    @property
    def grace_seconds(self) -> float:
        """Return how long these processes may take to stop together."""
        ...

    def process(self, target: Target) -> LabProcess:
        """Return the process of a target that is no broker.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such process, or it is another's.
        """
        ...

    def require_installed(self) -> None:
        """Check what a new cluster needs, before its directory is created.

        Raises:
            TidegaugeError: with the missing parts.
        """

    def require_ports(self, down: Collection[Target]) -> None:
        """Refuse a busy port of a process that is about to start.

        Raises:
            TidegaugeError: with the holder's name.
        """

    def require_directories(self, down: Collection[Target]) -> None:
        """Refuse a node that is about to start on another node's or cluster's directory.

        Raises:
            TidegaugeError: with the directory's owner.
        """

    def start(self, targets: Sequence[Target], launcher: Launcher | None = None) -> None:
        """Start these processes, and wait until each one serves.

        Args:
            targets: of ``self.targets``; they are down.
            launcher: starts processes of Python without loading what it has loaded; None: none is there.

        Raises:
            TidegaugeError: one ended, or something that it needs is missing.
            TimeLimitError: one does not serve in time.
        """

    def require_ready(self, starting: Collection[Target] = ()) -> None:
        """Refuse to start brokers without what they register with.

        Args:
            starting: the brokers that are about to start.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, it is down, paused or out of reach.
        """

    def remarks(self) -> list[str]:
        """Return what a user should know of a process that is another's."""
        ...

    def resume(self) -> None:
        """Resume paused processes: brokers that stop need it."""

    def require_members(self, targets: Collection[Target]) -> None:
        """Refuse to end memberships of which one is not known, or which can't be ended now.

        Raises:
            TidegaugeError: nothing was done.
        """

    def end_membership(self, broker_id: int) -> EndedMembership:
        """End the membership of a broker that can't be asked, at once.

        Raises:
            TidegaugeError: it is not known, or what keeps it does not respond.
        """
        ...

    def require_own(self) -> None:
        """Refuse what needs the data of all processes, if one of them is another's.

        Raises:
            TidegaugeError: INVALID_REQUEST.
        """

    def quorum(self) -> QuorumView | None:
        """Return the quorum as its leader describes it; None: there is no leader.

        Raises:
            TidegaugeError: INVALID_REQUEST, the mode has none.
        """
        ...

    def status(self, end_of: Callable[[LabProcess], Any]) -> dict[str, Any]:
        """Return the fields of `tidegauge status -o json` that the mode decides.

        Returns:
            ``zookeeper``, ``controllers``, and ``controller`` if the processes beside the brokers know it.
        """
        ...


class TopologyPlan(Protocol):
    """The part of a topology in the planning of a cluster."""

    def complete(
        self, file: ClusterFile, wanted: Wanted, *, taken: Collection[int], free: Callable[[int], bool]
    ) -> tuple[ClusterFile, list[str]]:
        """Return a new cluster's description with all processes, and notes for the user.

        Args:
            file: the description, with the brokers and their ports.
            wanted: what the user asked for.
            taken: ports that other clusters have.
            free: whether a port is free.

        Raises:
            TidegaugeError: INVALID_REQUEST, the request can't be met.
        """
        ...

    def require_same(self, directory: Path, recorded: ClusterFile, wanted: Wanted) -> None:
        """Refuse what contradicts the processes of an existing cluster.

        Raises:
            TidegaugeError: INVALID_REQUEST.
        """

    def ports_avoided(self, file: ClusterFile) -> set[int]:
        """Return the ports that a new broker may not get."""
        ...

    def ports_bound(self, file: ClusterFile) -> list[int]:
        """Return the ports that the processes bind."""
        ...


def planning_of(mode: str) -> TopologyPlan:
    """Return the mode's plan of processes beside brokers; load no other."""
    if mode == KRAFT_MODE:
        from tidegauge_lab.local.topology.kraft_plan import KRaftPlan  # noqa: PLC0415 - of this mode alone

        return KRaftPlan()
    from tidegauge_lab.local.topology.zookeeper_plan import ZooKeeperPlan  # noqa: PLC0415 - of this mode alone

    return ZooKeeperPlan()


def topology_of(directory: Path, file: ClusterFile) -> Topology:
    """Return the topology of a cluster; the other mode's is not loaded."""
    if file.quorum is not None:
        from tidegauge_lab.local.topology.kraft import KRaftTopology  # noqa: PLC0415 - of this mode alone

        return KRaftTopology(directory, file)
    from tidegauge_lab.local.topology.zookeeper import ZooKeeperTopology  # noqa: PLC0415 - of this mode alone

    return ZooKeeperTopology(directory, file)
