"""What every part of the coordinator works with during one event: the time, the effects, the timers, the settings."""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupResult
from tidegauge_broker.coordinator.effects import Append, Effect, LogLine, Note, Respond
from tidegauge_broker.coordinator.settings import GroupSettings
from tidegauge_broker.coordinator.timers import Timers
from tidegauge_broker.coordinator.views import Counters

Outcome = Callable[[ErrorCode, int], None]
"""Called with the error of an append and the base offset of its batch."""


class Runtime:
    """The state of a coordinator that belongs to no group."""

    def __init__(self, settings: GroupSettings, now_ms: int) -> None:
        self.settings = settings
        self.timers = Timers()
        self.counters = Counters()
        self.now_ms = now_ms
        self.cause = ""
        self.effects: list[Effect] = []
        self._outcomes: dict[int, Outcome] = {}
        self._last_append_id = 0

    def begin(self, now_ms: int, cause: str) -> None:
        """Start an event: it happens at this time, and its effects are collected from here."""
        self.now_ms = now_ms
        self.cause = cause
        self.effects = []

    def append(self, partition: int, batch: bytes, outcome: Outcome) -> None:
        """Append a batch, and call back when it is committed or has failed."""
        self._last_append_id += 1
        self._outcomes[self._last_append_id] = outcome
        settings = self.settings
        self.effects.append(
            Append(
                self._last_append_id,
                partition,
                batch,
                settings.offsets_commit_required_acks,
                settings.offsets_commit_timeout_ms,
            )
        )

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

    def respond(self, token: object, result: GroupResult) -> None:
        """Respond to a request."""
        self.effects.append(Respond(token, result))

    def note(self, kind: str, key: str, **fields: object) -> None:
        """Emit a line for the event log."""
        self.effects.append(Note(kind, key, self.cause, fields))

    def log(self, text: str, level: str = "info") -> None:
        """Emit a line for the broker's log."""
        self.effects.append(LogLine(level, text))
