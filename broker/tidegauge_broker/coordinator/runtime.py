"""The tools of every part of a coordinator during one event: the time, the effects, the timers, the appends.

A decision is about one group or one transactional id, its owner, and runs in ``attempt``. The timers that it starts,
the outcomes that it awaits and the requests that it leaves open belong to the owner, so that a decision that fails is
taken back without a look at what it may have half changed: its effects are dropped, so are its owner's timers and
outcomes, and its owner's open requests get an error (docs/adr/0023-a-defect-costs-its-group.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupResult
from tidegauge.share_groups import ShareStateResult
from tidegauge.transactions import TransactionResult
from tidegauge.wall_time import WallTime
from tidegauge_broker.coordinator.effects import Append, Defect, Effect, LogLine, Note, Respond
from tidegauge_broker.coordinator.owner import Owner
from tidegauge_broker.coordinator.settings import (
    ConsumerGroupTimes,
    GroupSettings,
    ShareStateSettings,
    TransactionSettings,
)
from tidegauge_broker.coordinator.sizes import LARGE_FROM_BYTES
from tidegauge_broker.coordinator.timers import Timer, Timers
from tidegauge_broker.coordinator.views import Counters

ALL_REPLICAS = -1
"""The acks of an append that ends with its commit."""
Outcome = Callable[[ErrorCode, int], None]
"""Called with the error of an append and the base offset of its batch."""


Abandon = Callable[[Owner, str], None]
"""Takes an owner out of service for a cause; it must not look into the owner's state, which may be half changed."""
Fail = Callable[[object], GroupResult | TransactionResult | ShareStateResult]
"""Returns the response to a request that an unexpected exception fails."""


class Runtime:
    """The state of a coordinator that belongs to no group and no transactional id.

    Attributes:
        owner: the owner that the present decision is about; None between decisions.
        abandon: takes an owner out of service; set before the first decision.
        fail: makes the responses to its open requests; set before the first decision.
        now_ms: the time of the event, by a clock that never goes back: timers are started by it.
        wall_ms: its wall-clock time, which is stored and compared with stored times.
    """

    abandon: Abandon
    fail: Fail

    def __init__(self, now_ms: int, wall: WallTime | None = None) -> None:
        self._wall = WallTime() if wall is None else wall
        self.timers = Timers()
        self.now_ms = now_ms
        self.wall_ms = self._wall.at(now_ms)
        self.cause = ""
        self.effects: list[Effect] = []
        self.owner: Owner | None = None
        self._outcomes: dict[int, tuple[Owner | None, Outcome]] = {}
        self._large_appends: set[int] = set()
        self._awaited: dict[int, tuple[Owner | None, Callable[..., None]]] = {}
        self._requests: dict[object, tuple[Owner | None, object]] = {}
        self._last_append_id = 0
        self._last_awaited_id = 0

    def begin(self, now_ms: int, cause: str) -> None:
        """Start an event: it happens at this time, and its effects are collected from here."""
        assert self.owner is None, "an event within a decision"
        self.now_ms = now_ms
        self.wall_ms = self._wall.at(now_ms)
        self.cause = cause
        self.effects = []

    # Decisions

    def attempt(self, owner: Owner | None, decide: Callable[[], None]) -> None:
        """Run a decision about an owner; if it fails unexpectedly, take the owner out of service and nothing else.

        Without an owner the decision is about what all share, and its exception is the caller's.
        """
        if owner is None:
            decide()
            return
        assert self.owner is None, f"A decision about {owner} within one about {self.owner}"
        self.owner, begun = owner, len(self.effects)
        try:
            decide()
        except Exception as problem:  # noqa: BLE001 - a defect, which concerns this owner alone
            self.owner = None
            del self.effects[begun:]
            self._take_out(owner, problem)
        else:
            self.owner = None
            self._settle(begun)

    def read(self, token: object, request: object, decide: Callable[[], None]) -> None:
        """Run the decision about a request that changes nothing; an unexpected exception fails this request alone."""
        begun = len(self.effects)
        try:
            decide()
        except Exception as problem:  # noqa: BLE001 - a defect, which concerns this request alone
            del self.effects[begun:]
            name = type(request).__name__
            self.effects.append(Defect(f"A {name} failed, which is a defect; it has changed nothing", problem))
            self.respond(token, self.fail(request))

    def _settle(self, begun: int) -> None:
        """Take note of the responses that a decision has given."""
        for effect in self.effects[begun:]:
            if isinstance(effect, Respond):
                self._requests.pop(effect.token, None)

    def _take_out(self, owner: Owner, problem: Exception) -> None:
        cause = f"{self.cause} failed unexpectedly: {problem!r}"
        self.effects.append(Defect(f"A decision about '{owner.key}' failed, which is a defect", problem))
        self.drop_all_of(owner)
        self.abandon(owner, cause)

    def drop_all_of(self, owner: Owner) -> None:
        """Drop an owner's timers and outcomes, and respond to its open requests with an error."""
        self.timers.cancel_all_of(owner)
        self._outcomes = {key: one for key, one in self._outcomes.items() if one[0] != owner}
        self._awaited = {key: one for key, one in self._awaited.items() if one[0] != owner}
        for token, (_, request) in [one for one in self._requests.items() if one[1][0] == owner]:
            self.respond(token, self.fail(request))

    # Requests

    def open(self, token: object, owner: Owner | None, request: object) -> None:
        """Take note of a request that has no response yet."""
        self._requests[token] = owner, request

    def forget_request(self, token: object | None) -> None:
        """Take note that a parked request gets no response, as in Kafka: it was sent again, or its member has left."""
        self._requests.pop(token, None)

    @property
    def open_requests(self) -> int:
        """The number of requests without a response."""
        return len(self._requests)

    # Timers and outcomes

    def start_timer(self, deadline_ms: int, cause: str, action: Callable[[], None]) -> Timer:
        """Return a timer of the present owner; see ``Timers.start``."""
        return self.timers.start(deadline_ms, cause, action, self.owner)

    def run_expired(self) -> None:
        """Run the timers that were due when this began, each as a decision about its owner."""
        self.timers.begin_turn(self.now_ms)
        while (expired := self.timers.take_expired(self.now_ms)) is not None:
            self.cause = expired.cause
            self.attempt(expired.owner, expired.action)

    def awaited(self, go_on: Callable[..., None]) -> int:
        """Return a process-wide unique number by which the owner awaits an outcome."""
        self._last_awaited_id += 1
        self._awaited[self._last_awaited_id] = self.owner, go_on
        return self._last_awaited_id

    def arrived(self, number: int, cause: str, *outcome: Any) -> None:
        """Continue with an outcome that an owner awaits; a second one is ignored."""
        owner, go_on = self._awaited.pop(number, (None, None))
        if go_on is not None:
            self.cause = cause
            self.attempt(owner, lambda: go_on(*outcome))

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
        self._outcomes[self._last_append_id] = self.owner, outcome
        if len(batch) > LARGE_FROM_BYTES:
            self._large_appends.add(self._last_append_id)
        self.effects.append(Append(self._last_append_id, partition, batch, acks, timeout_ms, guard))

    def append_unacknowledged(self, partition: int, batch: bytes) -> None:
        """Append tombstones to the local log: if they are lost, the next expiration run repeats them."""
        self._last_append_id += 1
        self.effects.append(Append(self._last_append_id, partition, batch, 0, 0))

    def appended(self, append_id: int, error: ErrorCode, base_offset: int) -> None:
        """Hand an append's outcome to the operation that waits for it; a second outcome is ignored."""
        assert error is not ErrorCode.NONE or base_offset >= 0, "an appended batch has an offset"
        self._large_appends.discard(append_id)
        owner, outcome = self._outcomes.pop(append_id, (None, None))
        if outcome is not None:
            self.attempt(owner, lambda: outcome(error, base_offset))

    def is_large_append(self, append_id: int) -> bool:
        """Whether an append without an outcome is of a large record, which takes effect with its outcome."""
        return append_id in self._large_appends

    @property
    def appends_in_flight(self) -> int:
        """The number of appends without an outcome."""
        return len(self._outcomes)

    def respond(self, token: object, result: GroupResult | TransactionResult | ShareStateResult) -> None:
        """Respond to a request."""
        self.effects.append(Respond(token, result))
        if self.owner is None:
            self._requests.pop(token, None)

    def note(self, kind: str, key: str, **fields: object) -> None:
        """Emit a line for the event log."""
        self.effects.append(Note(kind, key, self.cause, fields))

    def log(self, text: str, level: str = "info") -> None:
        """Emit a line for the broker's log."""
        self.effects.append(LogLine(level, text))


class GroupRuntime(Runtime):
    """The runtime of the group coordinator.

    Attributes:
        failure: makes the response to a request that fails as a whole; set before the first decision.
    """

    failure: Callable[[Any, ErrorCode], GroupResult]

    def __init__(self, settings: GroupSettings, now_ms: int, wall: WallTime | None = None) -> None:
        super().__init__(now_ms, wall)
        self.settings = settings
        self.counters = Counters()
        self._own_times: dict[str, ConsumerGroupTimes] = {}

    def times_of(self, group_id: str) -> ConsumerGroupTimes:
        """Return the times of a consumer group: its own, else the broker's."""
        return self._own_times.get(group_id, self.settings.consumer_times)

    def set_times(self, group_id: str, times: ConsumerGroupTimes | None) -> None:
        """Give a group times of its own, or (None) take them from it."""
        if times is None:
            self._own_times.pop(group_id, None)
        else:
            self._own_times[group_id] = times

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


class ShareRuntime(Runtime):
    """The runtime of the share coordinator."""

    def __init__(self, settings: ShareStateSettings, now_ms: int, wall: WallTime | None = None) -> None:
        super().__init__(now_ms, wall)
        self.settings = settings

    def append_record(self, partition: int, batch: bytes, outcome: Outcome) -> None:
        """Append a record of a share partition, and call back with the outcome of its commit."""
        self.append(partition, batch, outcome, acks=ALL_REPLICAS, timeout_ms=self.settings.write_timeout_ms)
