"""The quorum of a scenario in KRaft mode, on either kind of controllers.

The scenario's own player (``QuorumPlayer``) plays the steps, and asks the controllers over Kafka's protocol;
voters are added and removed by Kafka's requests (KIP-853). Controllers have other ids than brokers, and which of them
leads is a matter of chance, so nothing is kept of them for the comparison: what partitions are afterwards is compared.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Sequence
from typing import Any

from tests.integration.mixed_kraft import MixedKraft
from tests.integration.quorum_nodes import KAFKA, QuorumNode
from tests.waiting import until

from tidegauge_client.cluster_file import CONTROLLER_LISTENER
from tidegauge_client.loop_thread import LoopThread
from tidegauge_client.quorum_admin import QuorumAdmin, QuorumView
from tidegauge_lab.local.roles import METADATA, Role, RoleKind
from tidegauge_lab.scenario.broker_steps import ProcessStep
from tidegauge_lab.scenario.group_player import Waits
from tidegauge_lab.scenario.quorum_player import QuorumPlayer
from tidegauge_lab.scenario.quorum_steps import LoseDisk
from tidegauge_lab.scenario.step_base import Step

LIMIT_SECONDS = 60.0
FIRST_CONTROLLER = 3000


class Controllers:
    """The controllers of a cluster, as far as a scenario's quorum player asks the lab's cluster.

    Args:
        mixed: the cluster.
    """

    def __init__(self, mixed: MixedKraft) -> None:
        self._mixed = mixed
        self.file = self

    def controllers(self) -> list[str]:
        """Return the addresses of those that run."""
        return [node.address for node in self._mixed.quorum.nodes if node.runs]

    def quorum(self) -> QuorumView | None:
        """Return the quorum as its leader describes it."""
        return self._mixed.quorum.look()

    def add_controller(self) -> tuple[int, bytes]:
        """Start one more, and make it a voter when it has caught up; return its id and its directory's."""
        [kind] = {node.kind for node in self._mixed.quorum.nodes}
        node = self._mixed.quorum.join(kind)
        if kind == KAFKA:
            node.wait_started()  # it fetches before it listens, and the leader asks it for its versions
        directory_id = until(lambda: self._caught_up(node), LIMIT_SECONDS, f"controller {node.id} has caught up")
        listeners = [(CONTROLLER_LISTENER, "127.0.0.1", node.port)]

        async def add() -> None:
            async with QuorumAdmin(self.controllers()) as admin:
                await admin.add_voter(node.id, directory_id, listeners)

        loop = LoopThread("quorum")
        try:
            loop.run(add())
        finally:
            loop.close()
        return node.id, directory_id

    def _caught_up(self, node: QuorumNode) -> bytes | None:
        """Return the directory id of an observer that has all that is committed."""
        view = self.quorum()
        found = () if view is None or view.high_watermark < 0 else view.observers
        return next(
            (
                one.directory_id
                for one in found
                if view and one.id == node.id and one.log_end_offset >= view.high_watermark
            ),
            None,
        )

    def named(self, wanted: Sequence[int | Role], *, running: bool = True) -> list[int]:
        """Return the nodes that ids and roles name now.

        Args:
            wanted: ids, the active controller, or a follower of it.
            running: whether the follower runs.
        """
        return [one if isinstance(one, int) else self._of_role(one, running=running) for one in wanted]

    def _of_role(self, role: Role, *, running: bool) -> int:
        leader = self._mixed.controller()
        if role.kind is RoleKind.CONTROLLER:
            return leader
        assert (role.kind, role.partition) == (RoleKind.FOLLOWER, METADATA), f"{role} is not played"
        nodes = self._mixed.quorum.nodes
        return next(node.id for node in nodes if node.id != leader and node.runs == running)

    def act(self, verb: str, node_id: int) -> None:
        """Kill, stop, pause, resume or start a controller; one that runs already is not started."""
        node = self._mixed.quorum.node(node_id)
        if verb in {"pause", "resume"}:
            node.send(signal.SIGSTOP if verb == "pause" else signal.SIGCONT)
        elif verb != "start":
            getattr(self._mixed, verb)(node_id)
        elif not node.runs:
            node.start()
            if node.kind == KAFKA:
                node.wait_started()

    def lose_disk(self, node_id: int) -> None:
        """Take all data of a dead controller away; its directory is formatted again, with another id."""
        node = self._mixed.quorum.node(node_id)
        assert not node.runs, f"controller {node_id} runs"
        shutil.rmtree(node.log_directory)
        node.format("--no-initial-controllers")


class QuorumSidePlayer:
    """Plays the steps of a scenario about its quorum.

    Args:
        controllers: of the cluster.
        wait: the run's waits.
        say: takes a line about what a step has done.
    """

    def __init__(self, controllers: Controllers, wait: Waits, say: Callable[[str], None]) -> None:
        self._controllers = controllers
        cluster: Any = controllers  # the part of the lab's cluster that the player asks
        self._player = QuorumPlayer(cluster, wait, self._ids, say, has_grown=lambda: None)

    def _ids(self, wanted: Sequence[int | Role], state: object = None) -> list[int]:
        return self._controllers.named(wanted, running=state is None)

    def do(self, step: Any) -> None:
        """Do one step.

        Raises:
            StepFailed: what it waits for has not come true in time.
        """
        if isinstance(step, LoseDisk):
            for node_id in self._controllers.named(step.brokers, running=False):
                self._controllers.lose_disk(node_id)
        else:
            self._player.do(step)

    def acts(self, step: Step) -> bool:
        """Do a step on processes, if it is about controllers; return whether it is."""
        if not isinstance(step, ProcessStep) or not all(map(_is_a_controller, step.brokers)):
            return False
        for node_id in self._controllers.named(step.brokers, running=step.verb != "start"):
            self._controllers.act(step.verb, node_id)
        return True


def _is_a_controller(node: int | Role) -> bool:
    if isinstance(node, int):
        return node >= FIRST_CONTROLLER
    return node.kind is RoleKind.CONTROLLER or node.partition == METADATA
