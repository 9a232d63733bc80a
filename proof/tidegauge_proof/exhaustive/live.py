"""A schedule on brokers that live on from its first step to its last: nothing frozen, nothing remembered.

The twin of memo.py: the same actions and the same states, by brokers and a controller that are never set to anything. A
found schedule is described from what happens here, and its picture is drawn from the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from tidegauge_proof.exhaustive.broker_machine import BrokerMachine
from tidegauge_proof.exhaustive.cluster import MODEL, Action, Bounds, Cluster, ClusterState
from tidegauge_proof.exhaustive.controllers.chosen import Event, KafkaController, ModelController, Outcome
from tidegauge_proof.exhaustive.frozen import Cell, Cells, Letter
from tidegauge_proof.exhaustive.memo import begin_broker
from tidegauge_proof.own_rules import OwnRules

_STEP_MS = 1000


class Live:
    """Executes each event on the very broker."""

    def __init__(self, bounds: Bounds, rule: str | OwnRules, cells: Cells | None = None) -> None:
        self.cells = Cells() if cells is None else cells
        setting = bounds.setting(rule)
        self.brokers: list[BrokerMachine] = [begin_broker(broker, setting) for broker in setting.replicas]
        self._first: tuple[Letter, ...] = ()
        self._controller: ModelController | KafkaController
        if bounds.controller == MODEL:
            self._controller = ModelController(setting.replicas)
        else:
            self._controller = KafkaController(setting.replicas, unclean=bounds.unclean, election=setting.election)
            self._first = self._controller.first_letters

    def start(self) -> tuple[list[Cell], Cell, tuple[Letter, ...]]:
        """As they begin."""
        brokers = [self.cells.of(machine.freeze()) for machine in self.brokers]
        return brokers, self.cells.of(self._controller.freeze()), self._first

    def broker(self, broker: int, cell: Cell, event: Event) -> tuple[Cell, Any]:
        """One event of a broker."""
        machine = self.brokers[broker - 1]
        assert cell.value == machine.freeze()
        out = machine.handle(event)
        return self.cells.of(machine.freeze()), out

    def refuses(self, broker: int, cell: Cell, event: Event) -> bool:
        """Whether an event would change nothing: tried on a copy."""
        copy = deepcopy(self.brokers[broker - 1])
        copy.handle(event)
        same: bool = copy.freeze() == cell.value
        return same

    def controller(self, cell: Cell, event: Event) -> tuple[Cell, Outcome]:
        """One event of the controller."""
        assert cell.value == self._controller.freeze()
        out = self._controller.handle(event)
        return self.cells.of(self._controller.freeze()), out


class Played:
    """A schedule that was played.

    Attributes:
        states: the cluster before the first step and after each; it ends with a step that goes beyond the bounds.
        events: what the brokers' event logs would have, with a second between two steps.
        failure: the core's own invariant that the last step broke, if one was.
    """

    def __init__(
        self, bounds: Bounds, rule: str | OwnRules, schedule: Sequence[Action], cells: Cells | None = None
    ) -> None:
        live = Live(bounds, rule, cells)
        cluster = Cluster(bounds, live)
        self.events: list[dict[str, Any]] = []
        for machine in live.brokers:
            machine.broker.events = self.events
        self.states: list[ClusterState] = [cluster.begin()]
        self.failure: AssertionError | None = None
        for number, action in enumerate(schedule, 1):
            before = len(self.events)
            if action[0] in _FAULTS:
                self.events.append(
                    {"source": "lab", "kind": "fault", "broker": action[1], "action": _FAULTS[action[0]]}
                )
            try:
                state = cluster.apply(self.states[-1], action)
            except AssertionError as problem:
                self.failure = problem
                break
            if state is None:
                break
            self.states.append(state)
            for event in self.events[before:]:
                event["time_ms"] = number * _STEP_MS


_FAULTS = {"kill": "kill", "power": "power-cut"}
