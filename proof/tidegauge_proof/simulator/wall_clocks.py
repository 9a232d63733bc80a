"""Wall clocks of a world's brokers that are wrong: ahead, behind, set back, or standing still. Pure.

Timers, sessions and lags are measured by the time of the world, which never goes back; only times stored or compared
with stored times are in wall-clock time (``tidegauge.wall_time``). So the invariants hold whatever these clocks show.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tidegauge.wall_time import WallTime

ODD_CLOCKS = 0.1
"""Share of the histories whose brokers have such clocks."""
CHANGE = 0.02
"""Chance that a broker's clock is set, stopped or put right again when time passes."""
MAX_SKEW_MS = 10 * 3_600_000
"""Twice this is below a day, after which Kafka forgets an idle producer's sequences (``producer.id.expiration.ms``):
a record stamped by a clock that is behind looks that much older when the times of clocks ahead have passed."""


class WallClocks:
    """Sets the wall clocks of brokers as time passes; the same ones for the same seed."""

    def __init__(self, seed: int, clocks: Mapping[int, WallTime]) -> None:
        self._random = Random(f"wall clocks {seed}")
        self._clocks = clocks
        self._frozen: set[int] = set()
        for clock in clocks.values():
            clock.ahead_ms = self._skew()

    def pass_time(self, ms: int) -> None:
        """Let the clocks go on, but for those that stand still, and set some of them."""
        for broker_id, clock in self._clocks.items():
            if broker_id in self._frozen:
                clock.ahead_ms -= ms
            if self._random.random() < CHANGE:
                self._change(broker_id, clock)

    def _change(self, broker_id: int, clock: WallTime) -> None:
        self._frozen.discard(broker_id)
        match self._random.choice(("set", "set back", "freeze", "right")):
            case "set":
                clock.ahead_ms = self._skew()
            case "set back":
                clock.ahead_ms -= self._random.randrange(1, MAX_SKEW_MS)
                clock.ahead_ms = max(clock.ahead_ms, -MAX_SKEW_MS)
            case "freeze":
                self._frozen.add(broker_id)
            case _:
                clock.ahead_ms = 0

    def _skew(self) -> int:
        return self._random.choice((0, self._random.randint(-MAX_SKEW_MS, MAX_SKEW_MS)))


def wall_clocks_of(seed: int, clocks: Mapping[int, WallTime]) -> WallClocks | None:
    """Return the setter of this seed's clocks; None if they are right."""
    return WallClocks(seed, clocks) if Random(f"clocks {seed}").random() < ODD_CLOCKS else None
