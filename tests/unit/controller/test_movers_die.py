"""A source or a target dies after each single step of a reassignment, and restarts (KIP-455).

The controller stays alive: its own death is tested in ``test_controller_dies``. In the model of ``controller_world``;
on real processes the long tests of ``tests/integration/test_reassignment.py`` do the same under load.
"""

from __future__ import annotations

import pytest
from controller_world import BROKERS, CONTROLLER, OLD, OTHER, SUCCESSOR, World

from tidegauge.partition import TopicPartition
from tidegauge.znodes import TopicNode, broker_path, topic_path

AT = TopicPartition(OLD, 2)
SOURCE, TARGET = SUCCESSOR, OTHER


class MortalBroker(World):
    """A world in which a broker other than the controller's dies after some step.

    Args:
        victim: which one.
        falls_after: number of steps.
        prompt: as ``World``.
    """

    def __init__(self, victim: int, falls_after: int, prompt: frozenset[int]) -> None:
        self._victim = victim
        self._falls_after = falls_after
        super().__init__(None, prompt)

    def step(self) -> None:
        if self.mortal:
            self.steps += 1
            if self.steps == self._falls_after:
                self.zookeeper.unregister_broker(self._victim)

    def has_fallen(self) -> bool:
        return broker_path(self._victim) not in self.zookeeper.nodes

    def come_back(self) -> None:
        """The controller sees the death, then the return."""
        self.settle()
        if self.has_fallen():
            self.register(self._victim)
        self.settle()
        self.catch_up()


def moved_to(world: World) -> tuple[tuple[int, ...], list[int], list[int]]:
    node = TopicNode.decode(OLD, world.zookeeper.nodes[topic_path(OLD)].data)
    return (
        tuple(node.assignment[AT.partition]),
        list(node.adding_replicas.get(AT.partition, ())),
        list(node.removing_replicas.get(AT.partition, ())),
    )


@pytest.mark.parametrize("prompt", [frozenset[int](), frozenset({SOURCE}), frozenset({TARGET}), frozenset(BROKERS)])
@pytest.mark.parametrize("victim", [SOURCE, TARGET])
def test_who_gives_or_gets_a_replica_may_die_after_any_step(victim: int, prompt: frozenset[int]) -> None:
    """The leader's replica moves to another broker; the follower stays, on the controller's broker."""
    falls_after, fell = 0, True
    while fell:
        falls_after += 1
        world = MortalBroker(victim, falls_after, prompt)
        world.mortal = False
        world.reassign(OLD, {AT.partition: (SOURCE, CONTROLLER)})
        before = world.leader_epochs()
        world.mortal = True
        world.reassign(OLD, {AT.partition: (TARGET, CONTROLLER)})
        fell = world.has_fallen()
        world.mortal = False
        if fell and victim == SOURCE:
            world.may_keep = {(SOURCE, AT)}  # it was dead when it lost its replica: as in Kafka
        world.come_back()
        assert moved_to(world) == ((TARGET, CONTROLLER), [], []), f"died after step {falls_after}"
        assert world.disagreements() == [], f"died after step {falls_after}"
        assert all(world.leader_epochs()[at] >= epoch for at, epoch in before.items())
    assert falls_after > 20
