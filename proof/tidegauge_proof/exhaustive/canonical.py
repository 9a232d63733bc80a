"""One name for all states of a machine that behave alike: what objects hold, without what only numbers or counts it.

Objects are numbered in the order in which they are reached, so that two graphs of the same form have the same name. Two
states with the same name behave alike whatever comes; the other way round need not be so, which costs states only.
Parts left out, or replaced:

- counts for metrics and reports, texts for logs, the time of the last event, which the next one replaces, and the
  tables of handlers by event;
- numbers of appends, markers and timers: their order counts. Requests without a response, which a checker knows;
- timers that were cancelled, and how far off a timer is that lies beyond all explored time;
- the order of a set, and of a checker's memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from hashlib import blake2b
from types import CellType, FunctionType, MethodType
from typing import Any

from tidegauge.groups import Protocol
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader
from tidegauge.transaction_marker import TransactionMarker
from tidegauge_broker.coordinator.driven import Driven
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.runtime import Runtime
from tidegauge_broker.coordinator.timers import Timers
from tidegauge_broker.coordinator.transaction.markers import Markers
from tidegauge_proof.exhaustive.frozen import DIGEST_BYTES
from tidegauge_proof.simulator.coordinator_world import Appending, CoordinatorWorld, Process
from tidegauge_proof.simulator.groups.group_checker import GroupChecker
from tidegauge_proof.simulator.memory_log import RecordName
from tidegauge_proof.simulator.transactions.data import Datum
from tidegauge_proof.simulator.transactions.transaction_checker import TransactionChecker
from tidegauge_proof.simulator.transactions.transaction_world import MarkerRequest

FAR_MS = 1 << 39
"""Timers later than this never run in an exploration."""
_LEFT_OUT: dict[type, frozenset[str]] = {
    Driven: frozenset({"_events", "_requests"}),
    Runtime: frozenset(
        {"cause", "effects", "now_ms", "counters", "owner", "abandon", "fail"}
        | {"_last_append_id", "_outcomes", "_last_awaited_id", "_awaited", "_requests"}
    ),
    Group: frozenset({"reason"}),
    Markers: frozenset({"_last_id", "_in_flight", "_lookups"}),
    CoordinatorWorld: frozenset({"inputs", "_uuids", "_calls"}),
    GroupChecker: frozenset({"died_with", "commits", "generations", "loads", "_looked_ms", "_overdue_ms", "_begun"}),
    TransactionChecker: frozenset({"died_with", "loads", "acknowledged", "markers"}),
}
_ATOMS = frozenset({int, str, bytes, bool, float, type(None)})
_MEMORIES = (GroupChecker, TransactionChecker)


def canonical(machine: object) -> bytes:
    """Return the hash of a state."""
    walk = _Walk({}, {})
    walk.of(machine)
    return blake2b("\0".join(walk.out).encode("utf-8", "surrogateescape"), digest_size=DIGEST_BYTES).digest()


class _Walk:
    def __init__(self, seen: dict[int, int], ranks: dict[tuple[int, int], int]) -> None:
        self.out: list[str] = []
        self._seen = seen
        self._ranks = ranks
        self._kept: list[object] = []
        """Objects that were reached: one that nothing holds could give its identity to another."""

    def of(self, one: Any) -> None:
        """Walk through whatever it is."""
        kind = type(one)
        if kind in _ATOMS:
            self.out.append(repr(one))
            return
        handler = _HANDLERS.get(kind)
        if handler is None:
            handler = _HANDLERS[kind] = _handler_of(kind)
        handler(self, one)

    def is_new(self, one: object) -> bool:
        """Note an object, or a reference to it if it was reached already."""
        number = self._seen.get(id(one))
        if number is not None:
            self.out.append(f"@{number}")
            return False
        self._seen[id(one)] = len(self._seen)
        self._kept.append(one)
        return True

    def all_of(self, kind: str, many: Iterable[Any]) -> None:
        """Walk through several in their order."""
        self.out.append(f"{kind}(")
        for one in many:
            self.of(one)
        self.out.append(")")

    def unordered(self, kind: str, many: Iterable[Any]) -> None:
        """Walk through several in an order that depends on what they are alone."""
        self.all_of(kind, sorted(many, key=self._alone))

    def _alone(self, one: Any) -> list[str]:
        walk = _Walk(dict(self._seen), self._ranks)
        walk.of(one)
        return walk.out

    def fields(self, one: Any, *, is_memory: bool = False) -> None:
        """Walk through an object's attributes, by name."""
        if not self.is_new(one):
            return
        self.out.append(f"{type(one).__name__}{{")
        for name in _names(one):
            try:
                value = getattr(one, name)
            except AttributeError:
                continue
            self.out.append(name)
            if is_memory and isinstance(value, dict):
                self.unordered("dict", value.items())
            else:
                self.of(value)
        self.out.append("}")

    def rank(self, owner: object, numbers: Iterable[int]) -> None:
        """Keep in which order an owner's numbers are."""
        for place, number in enumerate(sorted(numbers)):
            self._ranks[id(owner), number] = place

    def ranked(self, owner: object, number: int) -> None:
        """Name a number by its rank among those that its owner has; one that it has forgotten by none."""
        self.out.append(f"#{self._ranks.get((id(owner), number), -1)}")


def _names(one: Any) -> list[str]:
    kind = type(one)
    slots = _SLOTS.get(kind)
    if slots is None:
        left_out = frozenset[str]().union(*(names for of, names in _LEFT_OUT.items() if issubclass(kind, of)))
        has_dict = hasattr(one, "__dict__")
        found = {slot for base in kind.__mro__ for slot in _slots_of(base)} - left_out - {"__dict__", "__weakref__"}
        slots = _SLOTS[kind] = (sorted(found), has_dict, left_out)
    names, has_dict, left_out = slots
    return names + sorted(name for name in one.__dict__ if name not in left_out) if has_dict else names


_SLOTS: dict[type, tuple[list[str], bool, frozenset[str]]] = {}


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


# Differences by type

_Handler = Callable[[_Walk, Any], None]


def _handler_of(kind: type) -> _Handler:
    for base, handler in _OF_BASES:
        if issubclass(kind, base):
            return handler
    return _object


def _object(walk: _Walk, one: Any) -> None:
    walk.fields(one, is_memory=isinstance(one, _MEMORIES))


def _enum(walk: _Walk, one: Enum) -> None:
    walk.out.append(f"{type(one).__name__}.{one.name}")


def _class(walk: _Walk, one: type) -> None:
    walk.out.append(one.__qualname__)


def _tuple(walk: _Walk, one: tuple[object, ...]) -> None:
    walk.all_of(type(one).__name__, one)


def _dict(walk: _Walk, one: dict[object, object]) -> None:
    walk.all_of("dict", (part for item in one.items() for part in item))


def _set(walk: _Walk, one: set[object]) -> None:
    walk.unordered("set", one)


def _function(walk: _Walk, one: FunctionType) -> None:
    code = one.__code__
    walk.out.append(f"{one.__module__}.{code.co_qualname}:{code.co_firstlineno}")
    if one.__closure__ is not None and walk.is_new(one):
        walk.all_of("closure", one.__closure__)
        walk.of(one.__defaults__)


def _cell(walk: _Walk, one: CellType) -> None:
    if walk.is_new(one):
        walk.of(one.cell_contents)


def _method(walk: _Walk, one: MethodType) -> None:
    walk.of(one.__func__)
    walk.of(one.__self__)


def _partial(walk: _Walk, one: partial[object]) -> None:
    walk.all_of("partial", (one.func, one.args, one.keywords))


def _timers(walk: _Walk, one: Timers) -> None:
    walk.out.append("timers(")
    for queued_ms, _, timer in sorted(one._queue, key=lambda entry: entry[:2]):  # noqa: SLF001 - the state is private
        if timer.action is not None and queued_ms == timer.queued_ms and walk.is_new(timer):
            walk.out.append("far" if timer.deadline_ms > FAR_MS else f"{queued_ms} {timer.deadline_ms}")
            walk.of(timer.action)
    walk.out.append(")")


def _value(walk: _Walk, one: Any) -> None:
    name = _NAMES_OF_VALUES.get(one)
    if name is None:
        name = _NAMES_OF_VALUES[one] = repr(one)
    walk.out.append(name)


_NAMES_OF_VALUES: dict[object, str] = {}


def _runtime(walk: _Walk, one: Runtime) -> None:
    outcomes = one._outcomes  # noqa: SLF001 - a state is all that the object holds
    walk.rank(one, outcomes)
    walk.all_of("outcomes", (outcomes[number] for number in sorted(outcomes)))
    awaited = one._awaited  # noqa: SLF001 - a state is all that the object holds
    walk.all_of("awaited", (awaited[number] for number in sorted(awaited)))
    walk.fields(one)


def _markers(walk: _Walk, one: Markers) -> None:
    in_flight = one._in_flight  # noqa: SLF001 - a state is all that the object holds
    assert not one._lookups, "leaders are looked up within an event"  # noqa: SLF001 - a state is all that the object holds
    walk.rank(one, in_flight)
    walk.all_of("in flight", (in_flight[number] for number in sorted(in_flight)))
    walk.fields(one)


def _process(walk: _Walk, one: Process[Any]) -> None:
    if id(one) not in walk._seen:  # noqa: SLF001 - a state is all that the object holds
        walk.of(one.coordinator)
    walk.fields(one)


def _marker_request(walk: _Walk, one: MarkerRequest) -> None:
    walk.of(one.process)
    walk.ranked(one.process.coordinator._markers, one.effect.request_id)  # noqa: SLF001 - a state is all that the object holds
    walk.all_of("markers", (one.effect.broker_id, one.effect.markers, one.errors, one.is_lost))


def _appending(walk: _Walk, one: Any) -> None:
    walk.of(one.process)
    walk.ranked(one.process.coordinator._runtime, one.append_id)  # noqa: SLF001 - a state is all that the object holds


_HANDLERS: dict[type, _Handler] = {Appending: _appending}
_OF_BASES: tuple[tuple[type, _Handler], ...] = (
    (Enum, _enum),
    (type, _class),
    (tuple, _tuple),
    (list, _tuple),
    (deque, _tuple),
    (dict, _dict),
    (set, _set),
    (frozenset, _set),
    (FunctionType, _function),
    (CellType, _cell),
    (MethodType, _method),
    (partial, _partial),
    (Timers, _timers),
    (Runtime, _runtime),
    (Markers, _markers),
    (Process, _process),
    (MarkerRequest, _marker_request),
)


def walk_values(*types: type) -> None:
    """Have objects of these types named by what they print: they are immutable, and compared by what they are."""
    _HANDLERS.update(dict.fromkeys(types, _value))


walk_values(TopicPartition, Protocol, RecordName, BatchHeader, Datum, TransactionMarker)
