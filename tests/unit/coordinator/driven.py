"""A coordinator of groups or transactions with one partition's log beside it: what both harnesses do alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import patch, read_header
from tidegauge.wall_time import WallTime
from tidegauge_broker.coordinator.effects import Append, Defect, Effect, LogLine, Note, ReadLog, Respond
from tidegauge_broker.coordinator.events import Appended, Elected, LoadCompleted, RecordsRead, Resigned

MAX_TURNS = 50


class Coordinator(Protocol):
    """The coordinator under test."""

    def handle(self, event: Any, now_ms: int) -> list[Effect]: ...
    def step(self, now_ms: int) -> list[Effect]: ...
    def next_deadline_ms(self) -> int | None: ...


class Driven:
    """Carries effects out: appends are committed at once, unless a test holds or fails them."""

    coordinator: Coordinator

    loads_committed = True
    """Whether the high watermark has reached the end of the load."""

    def __init__(self, log: Sequence[bytes], now_ms: int) -> None:
        self.now_ms = now_ms
        self.wall = WallTime()
        self.log = list(log)
        self.end_offset = sum(read_header(batch).record_count for batch in self.log)
        self.responses: dict[object, list[Any]] = {}
        self.notes: list[Note] = []
        self.lines: list[LogLine] = []
        self.held: list[tuple[int, int]] = []
        self.holds = False
        self.loads = True
        self.append_error = ErrorCode.NONE
        self.defects: list[Exception] = []
        self.has_defects = False
        self._tokens = 0

    # Driving

    def elect(self, epoch: int, partition: int = 0) -> None:
        self.carry_out(self.coordinator.handle(Elected(partition, epoch), self.now_ms))

    def resign(self, epoch: int | None, partition: int = 0) -> None:
        self.carry_out(self.coordinator.handle(Resigned(partition, epoch), self.now_ms))

    def reload(self, epoch: int = 1) -> None:
        """Lose and win the leadership."""
        self.resign(epoch)
        self.elect(epoch + 1)

    def event(self, event: Any) -> None:
        self.carry_out(self.coordinator.handle(event, self.now_ms))

    def after(self, delay_ms: int) -> None:
        """Let time pass, from deadline to deadline."""
        end_ms = self.now_ms + delay_ms
        turns = 0
        while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            turns = turns + 1 if deadline_ms <= self.now_ms else 0
            assert turns < MAX_TURNS, "the timers do not come to rest while no time passes"
            self.now_ms = max(self.now_ms, deadline_ms)
            self.carry_out(self.coordinator.step(self.now_ms))
        self.now_ms = end_ms
        self.carry_out(self.coordinator.step(end_ms))

    # Effects

    def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Respond):
                self.responses.setdefault(effect.token, []).append(effect.result)
            elif isinstance(effect, Append):
                self._append(effect)
            elif isinstance(effect, ReadLog):
                if self.loads:
                    self.load(effect)
            elif isinstance(effect, Note):
                self.notes.append(effect)
            elif isinstance(effect, LogLine):
                self.lines.append(effect)
            elif isinstance(effect, Defect):
                self.defects.append(effect.problem)
                if not self.has_defects:
                    raise effect.problem
            else:
                self.carry_out_own(effect)

    def carry_out_own(self, effect: Effect) -> None:
        """Carry out an effect that this coordinator alone has."""
        raise AssertionError(effect)

    def load(self, effect: ReadLog, problem: str = "") -> None:
        for batch in self.log:
            self.event(RecordsRead(effect.partition, effect.leader_epoch, batch))
        self.event(LoadCompleted(effect.partition, effect.leader_epoch, problem, self.loads_committed))

    def _append(self, effect: Append) -> None:
        if self.append_error is not ErrorCode.NONE:
            if effect.acks:
                self.event(Appended(effect.append_id, self.append_error, -1))
            return
        base_offset = self.write(effect.batch)
        if not effect.acks:
            return
        if self.holds:
            self.held.append((effect.append_id, base_offset))
        else:
            self.event(Appended(effect.append_id, ErrorCode.NONE, base_offset))

    def write(self, data: bytes) -> int:
        """Put a batch into the log, and return its offset."""
        batch = bytearray(data)
        base_offset = self.end_offset
        patch(batch, 0, base_offset, 0)
        self.log.append(bytes(batch))
        self.end_offset += read_header(batch).record_count
        return base_offset

    def release(self, error: ErrorCode = ErrorCode.NONE, index: int = 0) -> None:
        """Commit, or fail, an append that is held."""
        append_id, base_offset = self.held.pop(index)
        self.event(Appended(append_id, error, base_offset))

    # Requests

    def token(self) -> int:
        """Return the token of a new request."""
        self._tokens += 1
        return self._tokens

    def response_to(self, token: int) -> Any:
        """The one response to a request."""
        results = self.responses.get(token, [])
        assert len(results) == 1, f"{len(results)} responses"
        return results[0]

    def is_parked(self, token: int) -> bool:
        return token not in self.responses
