"""Steps of the core: it decides on one event, and its effects are carried out in order before the next.

Contract: a step happens on the event loop, without an await between the event and the last of its effects; so a
half-done step is never visible. A defect in what the core's partitions share leaves a state that can't be trusted: the
broker halts, as if killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tidegauge_broker.log.log_effects import LogEffects
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effect_executor import EffectExecutor
from tidegauge_broker.replica.effects import Effect
from tidegauge_broker.server.deadline_timer import DeadlineTimer

Decision = TypeVar("Decision")


class CoreSteps:
    """Runs the steps of the core. The core's tick is called whenever it has something to do.

    Args:
        core: decides.
        executor: carries out.
        log_effects: the executor's way to the logs.
        now_ms: a clock that never goes back.
        halt: called with a defect of the core; must end the process at once.
    """

    def __init__(
        self,
        core: BrokerCore,
        executor: EffectExecutor,
        log_effects: LogEffects,
        now_ms: Callable[[], int],
        halt: Callable[[Exception], None],
    ) -> None:
        self._core = core
        self._executor = executor
        self._log_effects = log_effects
        self._now_ms = now_ms
        self._halt = halt
        self._timer = DeadlineTimer(now_ms, self._tick)
        self.is_closed = False

    def take(self, decide: Callable[[], Sequence[Effect]]) -> None:
        """Let the core decide, and execute the effects."""
        self.execute(self.decided(decide))

    def request(self, decide: Callable[..., Sequence[Effect]], request: object, token: object) -> None:
        """Let the core decide on a client's or follower's request, and execute the effects: ``take`` in one call."""
        try:
            self._executor.execute(decide(request, token, self._now_ms()))
        except Exception as problem:
            self._halt(problem)
            raise
        self.arm_timer()

    def decided(self, decide: Callable[[], Decision]) -> Decision:
        """Return the core's decision. A failure outside single partitions halts the broker."""
        try:
            return decide()
        except Exception as problem:
            self._halt(problem)
            raise

    def execute(self, effects: Sequence[Effect]) -> None:
        """Execute the effects of a decision; one that fails for a partition takes that replica offline, no other."""
        try:
            self._executor.execute(effects)
        except Exception as problem:
            self._halt(problem)
            raise
        self.arm_timer()

    def execute_without_epochs(self, effects: Sequence[Effect]) -> list[PartitionLog]:
        """Execute effects; return the logs whose leader epochs must be written still."""
        self._log_effects.defer_epochs()
        try:
            self.execute(effects)
        finally:
            owed = self._log_effects.owed_epochs()
        return owed

    # Time

    def arm_timer(self) -> None:
        """Have the core's tick called when it has something to do."""
        if not self.is_closed:
            self._timer.set(self._core.next_deadline_ms())

    def _tick(self) -> None:
        self.take(lambda: self._core.tick(self._now_ms()))

    def close(self) -> None:
        """Call no tick any more."""
        self.is_closed = True
        self._timer.cancel()
