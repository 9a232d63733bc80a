"""A checker that notes the first violation and lets the history go on, for histories that a person looks at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegauge_proof.simulator.checker import Checker, Violation


class Witness(Checker):
    """Notes the first violation, and lets the history go on to a state of rest."""

    broken: Violation | None = None

    def _note(self, check: Callable[..., None], *arguments: Any) -> None:
        if self.broken is not None:
            return  # later checks presume that the invariants have held so far
        try:
            check(*arguments)
        except Violation as broken:
            self.broken = broken

    def look_at(self, broker: Any) -> None:
        """Look at a broker after an event of it."""
        self._note(super().look_at, broker)

    def look_at_state(self) -> None:
        """Look at the state that a controller has written."""
        self._note(super().look_at_state)

    def check_isr(self) -> None:
        """Look at the members of the ISR."""
        self._note(super().check_isr)

    def loses_power(self, broker: Any, keep: int) -> None:
        """Take in that a broker loses its records from an offset on."""
        self._note(super().loses_power, broker, keep)

    def acknowledged(self, broker: Any, produced: Any, result: Any) -> None:
        """Look at the response to a producer."""
        self._note(super().acknowledged, broker, produced, result)

    def consumed(self, broker: Any, offset: int, response: Any) -> None:
        """Look at the response to a consumer."""
        self._note(super().consumed, broker, offset, response)

    def leadership_changed(self, broker: Any, change: Any) -> None:
        """Take in a leadership that was reported."""
        self._note(super().leadership_changed, broker, change)
