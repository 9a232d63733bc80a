"""The driver's side of a coordinator: one event or one turn of its timers at a time, each giving its effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tidegauge_broker.coordinator.effects import Effect
from tidegauge_broker.coordinator.events import Appended, Elected, LoadCompleted, RecordsRead, Resigned, ShutDown
from tidegauge_broker.coordinator.led_partitions import LedPartitions
from tidegauge_broker.coordinator.owner import Owner
from tidegauge_broker.coordinator.runtime import Runtime
from tidegauge_broker.coordinator.sizes import LARGE_FROM_BYTES, LARGE_FROM_ITEMS, items_in

AnyRuntime = TypeVar("AnyRuntime", bound=Runtime)
AnyEvent = TypeVar("AnyEvent")


class Driven(Generic[AnyRuntime, AnyEvent]):
    """The common interface of the group and transaction coordinators towards the shell.

    Args:
        runtime: shared by all parts of the coordinator.
        led: the partitions of the internal topic that this broker leads.
    """

    def __init__(self, runtime: AnyRuntime, led: LedPartitions[Any]) -> None:
        self._runtime = runtime
        self._is_active = True
        self._events: dict[type, Callable[[Any], None]] = {
            Appended: self._on_appended,
            RecordsRead: led.take_records,
            LoadCompleted: led.complete_load,
            Elected: led.change_leadership,
            Resigned: led.change_leadership,
            ShutDown: self._on_shut_down,
        }
        """The handler of each event, by its class; a coordinator adds its own."""

    def handle(self, event: AnyEvent, now_ms: int) -> list[Effect]:
        """Take one event and return its effects, in order.

        Args:
            event: what happened.
            now_ms: the time, which never goes back.
        """
        self._runtime.begin(now_ms, type(event).__name__)
        self._events[type(event)](event)
        return self._runtime.effects

    def step(self, now_ms: int) -> list[Effect]:
        """Run the timers that have expired by now and return their effects.

        A timer that one of them starts waits for the next call, even if it is due at once: a call always ends.
        """
        self._runtime.begin(now_ms, "")
        if self._is_active:
            self._runtime.run_expired()
        return self._runtime.effects

    def is_large(self, event: AnyEvent | None, now_ms: int) -> bool:
        """Whether an event, or (None) the expired timers, lead to a large decision.

        Such a decision may take longer than others should wait, so the shell makes it beside the event loop.
        """
        if event is None:
            return any(map(self._is_large_owner, self._runtime.timers.due_owners(now_ms)))
        if isinstance(event, RecordsRead):
            return len(event.batches) > LARGE_FROM_BYTES
        if isinstance(event, Appended):
            return self._runtime.is_large_append(event.append_id)
        request = getattr(event, "request", None)
        if request is None:
            return items_in(event) >= LARGE_FROM_ITEMS
        return items_in(request) >= LARGE_FROM_ITEMS or self._is_about_much(request)

    def _is_about_much(self, request: Any) -> bool:
        """Return whether a request is about something large that the coordinator keeps."""
        del request
        return False

    def _is_large_owner(self, owner: Owner | None) -> bool:
        """Return whether what the coordinator keeps of an owner is large."""
        del owner
        return False

    def next_deadline_ms(self) -> int | None:
        """Return when ``step`` should be called next; None: not before another event."""
        return self._runtime.timers.next_deadline_ms() if self._is_active else None

    @property
    def appends_in_flight(self) -> int:
        """The number of appends without an outcome."""
        return self._runtime.appends_in_flight

    @property
    def open_requests(self) -> int:
        """The number of requests without a response."""
        return self._runtime.open_requests

    def _on_appended(self, event: Appended) -> None:
        self._runtime.appended(event.append_id, event.error, event.base_offset)

    def _on_shut_down(self, _event: ShutDown) -> None:
        self._is_active = False

    def _schedule(self, due_ms: int, interval_ms: int, cause: str, action: Callable[[], None]) -> None:
        """Run an action at a fixed rate from ``due_ms`` on; runs that were missed are not made up for."""

        def run() -> None:
            action()
            missed = (self._runtime.now_ms - due_ms) // interval_ms
            self._schedule(due_ms + (missed + 1) * interval_ms, interval_ms, cause, action)

        self._runtime.timers.start(due_ms, cause, run)
