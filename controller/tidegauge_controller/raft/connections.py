"""One slot for each destination: at most one request in flight, and a back-off after a failure (RequestManager)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegauge_controller.raft.messages import Request
from tidegauge_controller.raft.states import NEVER_MS


@dataclass(slots=True)
class Slot:
    """The slot of one destination.

    Attributes:
        correlation_id: of the request in flight; None if there is none.
        request: that request.
        sent_ms: when it was sent.
        backoff_until_ms: until when nothing is sent, after a failure.
    """

    correlation_id: int | None = None
    request: Request | None = None
    sent_ms: int = 0
    backoff_until_ms: int = 0


@dataclass(slots=True)
class Connections:
    """The slots of a node; a new state of the node clears them, so that late responses mean nothing."""

    request_timeout_ms: int
    retry_backoff_ms: int
    _slots: dict[int, Slot] = field(default_factory=dict[int, Slot])
    _last_correlation_id: int = 0

    def reset(self) -> None:
        """Forget all requests in flight and all back-offs."""
        self._slots.clear()

    def begin(self, node_id: int, request: Request, now_ms: int) -> int:
        """Note a request in flight and return its correlation id."""
        self._last_correlation_id += 1
        self._slots[node_id] = Slot(self._last_correlation_id, request, now_ms)
        return self._last_correlation_id

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        """Return whether a request may be sent there now."""
        slot = self._slots.get(node_id)
        return slot is None or (slot.correlation_id is None and now_ms >= slot.backoff_until_ms)

    def is_failing(self, node_id: int, now_ms: int) -> bool:
        """Return whether the last request there failed and its back-off is not over."""
        slot = self._slots.get(node_id)
        return slot is not None and slot.correlation_id is None and now_ms < slot.backoff_until_ms

    def has_in_flight(self, node_ids: Iterable[int]) -> bool:
        """Return whether any of these destinations has a request in flight."""
        return any(
            (slot := self._slots.get(node_id)) is not None and slot.correlation_id is not None for node_id in node_ids
        )

    def take(self, correlation_id: int) -> tuple[int, Request] | None:
        """End the request in flight with this correlation id; None if it is not in flight (any more).

        Returns:
            its destination and the request.
        """
        for node_id, slot in self._slots.items():
            if slot.correlation_id == correlation_id and slot.request is not None:
                request = slot.request
                slot.correlation_id, slot.request = None, None
                return node_id, request
        return None

    def back_off(self, node_id: int, now_ms: int) -> None:
        """Send nothing there for the time of a back-off."""
        slot = self._slots.setdefault(node_id, Slot())
        slot.correlation_id, slot.request = None, None
        slot.backoff_until_ms = now_ms + self.retry_backoff_ms

    def expire(self, now_ms: int) -> None:
        """End the requests that are in flight for longer than the request timeout, and back off."""
        for node_id, slot in self._slots.items():
            if slot.correlation_id is not None and now_ms >= slot.sent_ms + self.request_timeout_ms:
                self.back_off(node_id, now_ms)

    def next_deadline_ms(self, now_ms: int) -> int:
        """Return when the next request expires or the next back-off ends."""
        due = NEVER_MS
        for slot in self._slots.values():
            if slot.correlation_id is not None:
                due = min(due, slot.sent_ms + self.request_timeout_ms)
            elif slot.backoff_until_ms > now_ms:
                due = min(due, slot.backoff_until_ms)
        return due
