"""The quorum of a cluster in KRaft mode: controllers that vote, and the brokers' nodes, which observe it."""

from __future__ import annotations

from dataclasses import replace

from tidegauge_controller.raft import effects
from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.node import RaftNode
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.quorum.quorum_world import (
    Faults,
    NodeFactory,
    QuorumWorld,
    SimNode,
    quorum_of,
    real_node,
)

Heard = effects.LeadershipChanged | effects.Proposed | effects.NotProposed


class KRaftQuorum(QuorumWorld):
    """The nodes; what they report to their controllers is kept until the world looks at it.

    Args:
        dice: chooses.
        controllers: how many voters; their ids begin at 0.
        brokers: how many observers; their ids follow.
        version: the kraft.version.
        timers: of every node.
        faults: of network and disks.
        make: makes the nodes.

    Attributes:
        heard: the node, its incarnation, and what it reported.
    """

    def __init__(
        self,
        dice: Dice,
        controllers: int,
        brokers: int,
        version: int,
        timers: QuorumConfig,
        faults: Faults,
        make: NodeFactory = real_node,
    ) -> None:
        nodes, _ = quorum_of(controllers, brokers, version, timers)
        for node_id in range(controllers, controllers + brokers):
            nodes[node_id].config = replace(nodes[node_id].config, can_become_voter=False)
        super().__init__(dice, nodes, faults, make)
        self.heard: list[tuple[int, int, Heard]] = []

    def next_ms(self) -> int | None:
        """Return when something happens next; None: nothing does."""
        return self._heap[0][0] if self._heap else None

    def _carry_out(self, node_id: int, node: SimNode, raft: RaftNode, effect: effects.Effect, mark: int | None) -> None:
        super()._carry_out(node_id, node, raft, effect, mark)
        if isinstance(effect, effects.LeadershipChanged | effects.Proposed | effects.NotProposed):
            self.heard.append((node_id, node.incarnation, effect))
