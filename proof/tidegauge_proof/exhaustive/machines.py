"""Parts of a cluster as values: a machine is set to a state, takes one event, and is read again; all once.

A machine is any object with ``handle`` and ``facts``; it depends on its state and the event alone. The result
of an event in a state is remembered, and so is that an invariant broke.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from tidegauge_proof.exhaustive.canonical import canonical
from tidegauge_proof.exhaustive.snapshot import dump, load
from tidegauge_proof.simulator.checker import Violation


class Machine(Protocol):
    """A part of a cluster."""

    def handle(self, event: tuple[Any, ...]) -> Any:
        """Take an event and return what comes out."""

    def facts(self) -> Any:
        """Return what can be seen of it from outside."""


@dataclass(slots=True, eq=False)
class Cell:
    """A state of a machine; there is one of each, so that the same states are the same object.

    Attributes:
        key: its canonical hash.
        facts: of the machine in this state.
        next: what came of the events so far.
        is_judged: whether it is known to break nothing by itself.
    """

    key: bytes
    state: bytes
    facts: Any
    next: dict[tuple[Any, ...], tuple[Cell, Any] | Exception] = field(default_factory=dict[Any, Any])
    is_judged: bool = False

    def machine(self) -> Any:
        """Return a machine in this state."""
        return load(self.state)


class Machines:
    """All states that machines were found in."""

    def __init__(self) -> None:
        self.executed = 0
        """How many events were executed."""
        self._cells: dict[bytes, Cell] = {}

    def of(self, machine: Machine) -> Cell:
        """Return the state of a machine."""
        key = canonical(machine)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = Cell(key, dump(machine), machine.facts())
        return cell

    def ask(self, cell: Cell, *event: Any) -> Any:
        """Return the result of an event, and discard the state after it.

        Raises:
            Violation: an invariant is broken.
            AssertionError: one of the machine's own is.
        """
        known = cell.next.get(event)
        if known is None:
            self.executed += 1
            try:
                known = cell, cell.machine().handle(event)
            except (Violation, AssertionError) as broken:
                known = broken
            cell.next[event] = known
        if isinstance(known, Exception):
            raise known
        return known[1]

    def apply(self, cell: Cell, *event: Any) -> tuple[Cell, Any]:
        """Return the state after an event, and what came out.

        Raises:
            Violation: an invariant is broken.
            AssertionError: one of the machine's own is.
        """
        known = cell.next.get(event)
        if known is None:
            self.executed += 1
            machine = cell.machine()
            try:
                out = machine.handle(event)
            except (Violation, AssertionError) as broken:
                known = broken
            else:
                known = self.of(machine), out
            cell.next[event] = known
        if isinstance(known, Exception):
            raise known
        return known
