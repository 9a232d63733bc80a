"""What every part of a coordinator works with during one event: the time, the effects, the timers, the appends."""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupResult
from tidegauge.transactions import TransactionResult
from tidegauge.wall_time import WallTime
from tidegauge_broker.coordinator.effects import Append, Effect, LogLine, Note, Respond
from tidegauge_broker.coordinator.settings import GroupSettings, TransactionSettings
from tidegauge_broker.coordinator.timers import Timers
from tidegauge_broker.coordinator.views import Counters

ALL_REPLICAS = -1
"""The acks of an append whose outcome is that of its commit."""
Outcome = Callable[[ErrorCode, int], None]
"""Called with the error of an append and the base offset of its batch."""


class Runtime:
    """The state of a coordinator that belongs to no group and no transactional id.

    Attributes:
        now_ms: the time of the event, by a clock that never goes back: timers are started by it.
        wall_ms: its wall-clock time: what is stored, or compared with stored times, is in it.
    """

    def __init__(self, now_ms: int, wall: WallTime | None = None) -> None:
        self._wall = WallTime() if wall is None else wall
        self.timers = Timers()
        self.now_ms = now_ms
        self.wall_ms = self._wall.at(now_ms)
        self.cause = ""
        self.effects: list[Effect] = []
        self._outcomes: dict[int, Outcome] = {}
        self._last_append_id = 0

    def begin(self, now_ms: int, cause: str) -> None:
        """Start an event: it happens at this time, and its effects are collected from here."""
        self.now_ms = now_ms
        self.wall_ms = self._wall.at(now_ms)
        self.cause = cause
        self.effects = []

    def append(
        self,
        partition: int,
        batch: bytes,
        outcome: Outcome,
        *,
        acks: int,
        timeout_ms: int,
        guard: object | None = None,
    ) -> None:
        """Append a batch, and call back when it is committed or has failed."""
        self._last_append_id += 1
        self._outcomes[self._last_append_id] = outcome
        self.effects.append(Append(self._last_append_id, partition, batch, acks, timeout_ms, guard))

    def append_unacknowledged(self, partition: int, batch: bytes) -> None:
        """Append tombstones to the local log: if they are lost, the next expiration run repeats them."""
        self._last_append_id += 1
        self.effects.append(Append(self._last_append_id, partition, batch, 0, 0))

    def appended(self, append_id: int, error: ErrorCode, base_offset: int) -> None:
        """Hand an append's outcome to the operation that waits for it; a second outcome is ignored."""
        outcome = self._outcomes.pop(append_id, None)
        if outcome is not None:
            outcome(error, base_offset)

    @property
    def appends_in_flight(self) -> int:
        """How many appends have no outcome yet."""
        return len(self._outcomes)

    def respond(self, token: object, result: GroupResult | TransactionResult) -> None:
        """Respond to a request."""
        self.effects.append(Respond(token, result))

    def note(self, kind: str, key: str, **fields: object) -> None:
        """Emit a line for the event log."""
        self.effects.append(Note(kind, key, self.cause, fields))

    def log(self, text: str, level: str = "info") -> None:
        """Emit a line for the broker's log."""
        self.effects.append(LogLine(level, text))


class GroupRuntime(Runtime):
    """The runtime of the group coordinator."""

    def __init__(self, settings: GroupSettings, now_ms: int, wall: WallTime | None = None) -> None:
        super().__init__(now_ms, wall)
        self.settings = settings
        self.counters = Counters()

    def append_record(self, partition: int, batch: bytes, outcome: Outcome, guard: object | None = None) -> None:
        """Append commits or a group's record, as the settings for them say, and call back with the outcome."""
        settings = self.settings
        self.append(
            partition,
            batch,
            outcome,
            acks=settings.offsets_commit_required_acks,
            timeout_ms=settings.offsets_commit_timeout_ms,
            guard=guard,
        )


class TransactionRuntime(Runtime):
    """The runtime of the transaction coordinator."""

    def __init__(self, settings: TransactionSettings, now_ms: int, wall: WallTime | None = None) -> None:
        super().__init__(now_ms, wall)
        self.settings = settings
