"""Operations that wait for a condition on some keys, or for their deadline.

Contract: an operation is tried when it arrives, whenever one of its keys is checked, and at its deadline; it responds
exactly once, whichever of these is first. Pure: time is an argument, and completing an operation only appends effects
to the caller's list. A key is anything hashable and an effect anything the operations emit, so that replicas and
coordinators share this module.
Source: Kafka's DelayedOperation and DelayedOperationPurgatory.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar


class Operation(Protocol):
    """An operation that can wait in a purgatory."""

    token: object
    deadline_ms: int

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """Return the keys whose checks retry this operation, as of its arrival."""
        ...

    def try_complete(self, out: list[Any]) -> bool:
        """Respond through ``out`` if the condition holds; return whether it did."""
        ...

    def expire(self, out: list[Any]) -> None:
        """Respond through ``out`` with what there is: the deadline has passed."""
        ...


class Watchers(Protocol):
    """The keys of a purgatory, for whoever knows of keys and of no operation."""

    def watch_also(self, key: Hashable, other: Hashable) -> None:
        """Have the operations that watch a key watch another one, too."""
        ...


PURGE_INTERVAL = 1000
"""Maximum number of stale deadlines before the heap is compacted (``purgatory.purge.interval.requests``)."""

AnOperation = TypeVar("AnOperation", bound=Operation)


class Purgatory(Generic[AnOperation]):
    """Hold parked operations, found by key, by token and by deadline.

    Attributes:
        deadlines: a heap of deadlines in ms and operations' numbers, with completed operations included; empty:
            nothing is parked.
    """

    def __init__(self) -> None:
        self._by_key: dict[Hashable, dict[int, AnOperation]] = {}
        self._waiting: dict[int, AnOperation] = {}
        self._keys: dict[int, list[Hashable]] = {}
        self._by_token: dict[object, int] = {}
        self.deadlines: list[tuple[int, int]] = []
        self._next_id = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def try_or_watch(self, operation: AnOperation, out: list[Any]) -> bool:
        """Complete an operation now, or park it; return whether it completed."""
        if operation.try_complete(out):
            return True
        self.watch(operation)
        return False

    def watch(self, operation: AnOperation) -> None:
        """Park an operation that the caller has just seen cannot complete."""
        assert operation.token not in self._by_token, "a token has one response"
        self._next_id += 1
        number = self._next_id
        self._waiting[number] = operation
        self._by_token[operation.token] = number
        keys = self._keys[number] = list(operation.keys)
        by_key = self._by_key
        for key in keys:
            watchers = by_key.get(key)
            if watchers is None:
                by_key[key] = {number: operation}
            else:
                watchers[number] = operation
        heapq.heappush(self.deadlines, (operation.deadline_ms, number))
        if len(self.deadlines) > 2 * len(self._waiting) + PURGE_INTERVAL:
            self.deadlines = [entry for entry in self.deadlines if entry[1] in self._waiting]
            heapq.heapify(self.deadlines)

    def is_watched(self, key: Hashable) -> bool:
        """Return whether an operation waits for this key."""
        return key in self._by_key

    def watch_also(self, key: Hashable, other: Hashable) -> None:
        """Have the operations that watch a key watch another one, too."""
        for number, operation in self._by_key.get(key, {}).items():
            watchers = self._by_key.setdefault(other, {})
            if number not in watchers:
                watchers[number] = operation
                self._keys[number].append(other)

    def check(
        self,
        key: Hashable,
        out: list[Any],
        *,
        tried: set[int] | None = None,
        only: Callable[[AnOperation], bool] | None = None,
    ) -> int:
        """Try all operations that watch a key, oldest first; return how many completed.

        Args:
            key: the key whose state changed.
            out: receives the effects.
            tried: shared by the checks of one step whose changes all precede the first check: an operation tried for
                one key is not tried again for the next.
            only: selects the operations to try; None tries all.
        """
        watchers = self._by_key.get(key)
        if not watchers:
            return 0
        completed = 0
        for number in sorted(watchers):  # an operation may have come to watch the key after younger ones
            operation = self._waiting.get(number)
            if operation is None or (only is not None and not only(operation)):
                continue
            if tried is not None:
                if number in tried:
                    continue
                tried.add(number)
            if operation.try_complete(out):
                self._forget(number)
                completed += 1
        return completed

    def expire(self, now_ms: int, out: list[Any]) -> int:
        """Expire the operations whose deadline has passed at the call; return how many.

        One that an expiring operation parks, even if it is due at once, waits for the next call, so that a call ends.
        """
        due: list[int] = []
        while self.deadlines and self.deadlines[0][0] <= now_ms:
            due.append(heapq.heappop(self.deadlines)[1])
        expired = 0
        for number in due:
            operation = self._waiting.get(number)
            if operation is not None:
                assert operation.deadline_ms <= now_ms, "a deadline does not change while it waits"
                self._forget(number)
                operation.expire(out)
                expired += 1
        return expired

    def cancel(self, token: object) -> bool:
        """Forget a caller's operation without a response; return whether there was one."""
        number = self._by_token.get(token)
        if number is None:
            return False
        self._forget(number)
        return True

    def next_deadline_ms(self) -> int | None:
        """Return the next deadline in ms; None if nothing is parked."""
        while self.deadlines and self.deadlines[0][1] not in self._waiting:
            heapq.heappop(self.deadlines)
        return self.deadlines[0][0] if self.deadlines else None

    def _forget(self, number: int) -> None:
        operation = self._waiting.pop(number)
        known = self._by_token.pop(operation.token, None)
        assert known == number, "a token has one operation"
        by_key = self._by_key
        for key in self._keys.pop(number):
            watchers = by_key.get(key)
            if watchers is not None and watchers.pop(number, None) is not None and not watchers:
                del by_key[key]
