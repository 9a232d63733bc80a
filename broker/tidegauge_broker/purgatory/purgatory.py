"""Operations that wait for a condition on some keys, or for their time.

Contract: an operation is tried when it comes, whenever one of its keys is checked, and at its deadline; it
answers exactly once, whichever of these is first. Pure: time is an argument, and completing an operation only
returns effects. Source: DelayedOperation and DelayedOperationPurgatory (kafka-behaviour 2.3).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import Effect


class Operation(Protocol):
    """What can wait here."""

    token: object
    deadline_ms: int

    @property
    def keys(self) -> tuple[TopicPartition, ...]:
        """What it waits for, when it comes."""
        ...

    def try_complete(self, out: list[Effect]) -> bool:
        """Look whether the condition holds; if so, answer and say True."""
        ...

    def expire(self, out: list[Effect]) -> None:
        """The time is over: answer with what there is."""
        ...


PURGE_INTERVAL = 1000
"""So many deadlines of operations that are gone may be kept (fetch and producer purgatory.purge.interval.requests)."""

AnOperation = TypeVar("AnOperation", bound=Operation)


class Purgatory(Generic[AnOperation]):
    """Waiting operations, found by key, by token and by deadline."""

    def __init__(self) -> None:
        self._by_key: dict[TopicPartition, dict[int, AnOperation]] = {}
        self._waiting: dict[int, AnOperation] = {}
        self._keys: dict[int, tuple[TopicPartition, ...]] = {}
        self._by_token: dict[object, int] = {}
        self._deadlines: list[tuple[int, int]] = []
        self._next_id = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def try_or_watch(self, operation: AnOperation, out: list[Effect]) -> bool:
        """Complete it now, or let it wait; says whether it completed."""
        if operation.try_complete(out):
            return True
        self.watch(operation)
        return False

    def watch(self, operation: AnOperation) -> None:
        """Let it wait; the caller has just seen that it can't complete."""
        self._next_id += 1
        number = self._next_id
        self._waiting[number] = operation
        self._by_token[operation.token] = number
        keys = self._keys[number] = operation.keys
        by_key = self._by_key
        for key in keys:
            watchers = by_key.get(key)
            if watchers is None:
                by_key[key] = {number: operation}
            else:
                watchers[number] = operation
        heapq.heappush(self._deadlines, (operation.deadline_ms, number))
        if len(self._deadlines) > 2 * len(self._waiting) + PURGE_INTERVAL:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._waiting]
            heapq.heapify(self._deadlines)

    def check(
        self,
        key: TopicPartition,
        out: list[Effect],
        *,
        tried: set[int] | None = None,
        only: Callable[[AnOperation], bool] | None = None,
    ) -> int:
        """Something happened to a key: try all that watch it, oldest first; says how many completed.

        Args:
            key: what happened to.
            out: where answers go.
            tried: shared by the checks of one step, when all has happened before the first of them: what was tried
                for one key is not tried again for the next.
            only: those that may be concerned; None: all.
        """
        watchers = self._by_key.get(key)
        if not watchers:
            return 0
        completed = 0
        for number, operation in list(watchers.items()):
            if number not in self._waiting or (only is not None and not only(operation)):
                continue
            if tried is not None:
                if number in tried:
                    continue
                tried.add(number)
            if operation.try_complete(out):
                self._forget(number)
                completed += 1
        return completed

    def expire(self, now_ms: int, out: list[Effect]) -> int:
        """Answer all whose deadline has come; says how many."""
        expired = 0
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, number = heapq.heappop(self._deadlines)
            operation = self._waiting.get(number)
            if operation is not None:
                self._forget(number)
                operation.expire(out)
                expired += 1
        return expired

    def cancel(self, token: object) -> bool:
        """The asker has gone: forget its operation without an answer."""
        number = self._by_token.get(token)
        if number is None:
            return False
        self._forget(number)
        return True

    def next_deadline_ms(self) -> int | None:
        """When ``expire`` has something to do next."""
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _forget(self, number: int) -> None:
        operation = self._waiting.pop(number)
        self._by_token.pop(operation.token, None)
        by_key = self._by_key
        for key in self._keys.pop(number):
            watchers = by_key.get(key)
            if watchers is not None and watchers.pop(number, None) is not None and not watchers:
                del by_key[key]
