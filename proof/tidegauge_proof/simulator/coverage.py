"""The coverage of a search: states of replicas, and the events between them.

A replica's state is looked at from outside: what it does (dead, paused, offline, of no role, follower, leader), whether
ZooKeeper has it in the ISR and as the leader, whether it has a session, whether its leader epoch is ZooKeeper's, and
whether its log ends before, at or behind the committed end. A transition is a state, the kind of event after
which it was another, and that one. If more histories show nothing new, other weights are needed, not more histories.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegauge_proof.simulator.sim_partition import SimPartition
from tidegauge_proof.simulator.world import World

EACH = 8
"""Every so-many-th history is looked at: the first of them, and so on."""

State = tuple[str, bool, bool, bool, bool, int]
Transition = tuple[State, str, State]


@dataclass(slots=True)
class Coverage:
    """The states and transitions seen. ``events`` counts what happened, by kind."""

    states: set[State] = field(default_factory=set)
    transitions: set[Transition] = field(default_factory=set)
    events: dict[str, int] = field(default_factory=dict)
    _last: dict[tuple[int, int], State] = field(default_factory=dict)

    def look_at(self, world: World, event: str) -> None:
        """After an event of this kind."""
        self.events[event] = self.events.get(event, 0) + 1
        for place, partition in enumerate(world.partitions):
            for broker_id in world.brokers:
                state = _state_of(world, partition, broker_id)
                name = place, broker_id
                before = self._last.get(name)
                if state != before:
                    self._last[name] = state
                    self.states.add(state)
                    if before is not None:
                        self.transitions.add((before, event, state))

    def begin(self) -> None:
        """Begin a new history."""
        self._last = {}

    def add(self, other: Coverage) -> None:
        """Add what another one has seen."""
        self.states |= other.states
        self.transitions |= other.transitions
        for event, count in other.events.items():
            self.events[event] = self.events.get(event, 0) + count

    def as_json(self) -> dict[str, object]:
        """Numbers; ``events`` by kind."""
        return {
            "states": len(self.states),
            "transitions": len(self.transitions),
            "events": dict(sorted(self.events.items())),
        }


def _state_of(world: World, partition: SimPartition, broker_id: int) -> State:
    replica, state = partition.brokers[broker_id], partition.state_now
    hosted = replica.partition
    if not replica.broker.is_running:
        process = "dead"
    elif broker_id in world.paused:
        process = "paused"
    elif replica.is_offline:
        process = "offline"
    elif hosted is None:
        process = "idle"
    else:
        process = "leader" if hosted.leader_role is not None else "follower"
    behind = replica.log.log_end_offset - len(partition.checker.committed)
    return (
        process,
        broker_id in state.isr,
        broker_id == state.leader,
        broker_id not in world.without_session,
        hosted is not None and hosted.leader_epoch == state.leader_epoch,
        (behind > 0) - (behind < 0),
    )
