"""Events executed once: the result of an event in a state is remembered, since it would be the same again.

The core is a function of its state and the event. In a million states of a cluster a single broker has some thousands,
so nearly everything was executed before. Otherwise a broker is set to its state (``BrokerMachine.thaw``), and
Kafka's controller is brought there by the first known events, from the beginning.
"""

from __future__ import annotations

from typing import Any

from tidegauge_proof.exhaustive.broker_machine import BrokerMachine, Setting
from tidegauge_proof.exhaustive.cluster import MODEL, Bounds
from tidegauge_proof.exhaustive.controllers.chosen import Event, KafkaController, ModelController, Outcome
from tidegauge_proof.exhaustive.frozen import Cell, Cells, Letter
from tidegauge_proof.own_rules import OwnRules


class Memo:
    """Executes what it has not executed before."""

    def __init__(self, bounds: Bounds, rule: str | OwnRules) -> None:
        self.cells = Cells()
        self.executed = 0
        """How many events were executed by the core and the controller."""
        self._setting = bounds.setting(rule)
        self._bounds = bounds
        self._paths: dict[Cell, tuple[Event, ...]] = {}

    def start(self) -> tuple[list[Cell], Cell, tuple[Letter, ...]]:
        """Return running brokers with empty logs, and the controller before its first event."""
        brokers = [self.cells.of(begin_broker(broker, self._setting).freeze()) for broker in self._setting.replicas]
        if self._bounds.controller == MODEL:
            return brokers, self.cells.of(ModelController(self._setting.replicas).freeze()), ()
        machine = KafkaController(self._setting.replicas, unclean=self._bounds.unclean, election=self._setting.election)
        cell = self.cells.of(machine.freeze())
        self._paths[cell] = ()
        return brokers, cell, machine.first_letters

    def broker(self, broker: int, cell: Cell, event: Event) -> tuple[Cell, Any]:
        """One event of a broker."""
        known: tuple[Cell | AssertionError, Any] | None = cell.next.get((broker, event))
        if known is None:
            self.executed += 1
            try:
                machine = BrokerMachine.thaw(broker, self._setting, cell.value)
                out = machine.handle(event)
                known = self.cells.of(machine.freeze()), out
            except AssertionError as problem:
                known = problem, None
            cell.next[broker, event] = known
        after, out = known
        if isinstance(after, AssertionError):
            raise after
        return after, out

    def refuses(self, broker: int, cell: Cell, event: Event) -> bool:
        """Whether an event would change nothing at a broker."""
        return self.broker(broker, cell, event)[0] is cell

    def controller(self, cell: Cell, event: Event) -> tuple[Cell, Outcome]:
        """One event of the controller."""
        known: tuple[Cell, Outcome] | None = cell.next.get(event)
        if known is None:
            self.executed += 1
            known = cell.next[event] = self._decide(cell, event)
        return known

    def _decide(self, cell: Cell, event: Event) -> tuple[Cell, Outcome]:
        replicas = self._setting.replicas
        if self._bounds.controller == MODEL:
            model = ModelController.thaw(replicas, cell.value)
            out = model.handle(event)
            return self.cells.of(model.freeze()), out
        machine = KafkaController(replicas, unclean=self._bounds.unclean, election=self._setting.election)
        for before in self._paths[cell]:
            machine.handle(before)
        out = machine.handle(event)
        after = self.cells.of(machine.freeze())
        self._paths.setdefault(after, machine.events)
        return after, out


def begin_broker(broker: int, setting: Setting) -> BrokerMachine:
    """Start a broker's first process, on an empty disk."""
    machine = BrokerMachine(broker, setting)
    machine.handle(("start", 1))
    return machine
