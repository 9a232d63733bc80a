"""Common parts of the actions of simulated histories (``actions``, ``disk_actions``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegauge_proof.simulator.acts import Act
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.swarm import Swarm
from tidegauge_proof.simulator.world import World

Action = Callable[[World, Dice, Swarm], Act | None]
"""Performs an action, and returns its act (UNDESCRIBED if ``World.tells`` is off); None if it has no object."""


def brokers_up(world: World) -> list[int]:
    """Return the brokers whose processes run and are not paused."""
    paused = world.paused
    if not paused:
        return [broker_id for broker_id, broker in world.brokers.items() if broker.is_running]
    return [broker_id for broker_id, broker in world.brokers.items() if broker.is_running and broker_id not in paused]


def victim(world: World, dice: Dice, among: Sequence[int]) -> int:
    """Choose one of these, the leader as often as all others together: what happens to it has consequences."""
    leader = dice.choose(world.partitions).state_now.leader
    if leader in among and dice.happens(0.5):
        return leader
    return dice.choose(among)
