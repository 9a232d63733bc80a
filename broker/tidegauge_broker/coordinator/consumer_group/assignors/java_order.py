"""The iteration order of Java's HashMap and HashSet, on which the assignments of Kafka's assignors depend.

Contract: keys are kept in a table whose size is a power of two, in the slot of their spread hash; iteration goes
through the slots, and in a slot in the order of its chain. Chains of eight and more, which Java turns into trees, keep
that order here: with the few keys that topics, members and partitions make in one slot it does not happen.
Source: java.util.HashMap (put, computeIfAbsent, resize, tableSizeFor), java.util.HashSet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Generic, TypeVar

from tidegauge.groups import java_hash

Key = TypeVar("Key")
Value = TypeVar("Value")
_DEFAULT_CAPACITY = 16
_HASH_BITS = 0xFFFFFFFF
LOAD = 0.75
_KNOWN_STRINGS = 16_384
_hash_of_string = lru_cache(_KNOWN_STRINGS)(java_hash)
"""``java_hash``, computed once for each member id and topic name: each target needs the hashes of all members."""


def hash_of(key: str | bytes | int | tuple[bytes, int]) -> int:
    """Return Java's ``hashCode`` in 32 bits without a sign.

    Args:
        key: a String, a Uuid (its 16 bytes), an Integer, or a TopicIdPartition of the group coordinator.
    """
    if isinstance(key, int):
        return key & _HASH_BITS
    if isinstance(key, tuple):
        topic_id, partition = key
        return (31 * hash_of(topic_id) + partition) & _HASH_BITS
    if isinstance(key, str):
        return _hash_of_string(key) & _HASH_BITS
    mixed = int.from_bytes(key[:8], "big") ^ int.from_bytes(key[8:], "big")
    return (mixed >> 32 ^ mixed) & _HASH_BITS


class JavaMap(Generic[Key, Value]):
    """A map that iterates as a ``java.util.HashMap`` that had the same calls.

    Args:
        capacity: of ``new HashMap(capacity)``; ``new HashMap()`` has 16.
    """

    def __init__(self, capacity: int = _DEFAULT_CAPACITY) -> None:
        size = 1
        while size < capacity:
            size *= 2
        self._slots: list[list[Key]] = [[] for _ in range(size)]
        self._values: dict[Key, Value] = {}

    def __iter__(self) -> Iterator[Key]:
        return chain.from_iterable(self._slots)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __getitem__(self, key: Key) -> Value:
        return self._values[key]

    def items(self) -> Iterator[tuple[Key, Value]]:
        """Yield keys and values in Java's order."""
        for key in self:
            yield key, self._values[key]

    def put(self, key: Key, value: Value) -> None:
        """Set a value; a new key goes to the tail of its slot, and the table grows afterwards."""
        if key not in self._values:
            self._slot(key).append(key)
            self._values[key] = value
            if len(self._values) > int(len(self._slots) * LOAD):
                self._grow()
        else:
            self._values[key] = value

    def compute_if_absent(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return a key's value; a new key is first in its slot."""
        if len(self._values) > int(len(self._slots) * LOAD):
            self._grow()
        if key not in self._values:
            self._slot(key).insert(0, key)
            self._values[key] = make()
        return self._values[key]

    def put_all(self, keys: Iterable[Key], value: Value) -> None:
        """Put keys one by one into a map that has none.

        The table grows once, to its last size: keys keep their order in a slot when it grows.
        """
        assert not self._values, "the order of keys from before would be lost"
        self._values = dict.fromkeys(keys, value)
        size = len(self._slots)
        while len(self._values) > int(size * LOAD):
            size *= 2
        if size != len(self._slots):
            self._slots = [[] for _ in range(size)]
        for key in self._values:
            self._slot(key).append(key)

    def remove(self, key: Key) -> None:
        """Remove a key, if it is there; the table keeps its size."""
        if key in self._values:
            self._slot(key).remove(key)
            del self._values[key]

    def _slot(self, key: Key) -> list[Key]:
        hashed = hash_of(key)  # type: ignore[arg-type] # keys are of the kinds that it takes
        return self._slots[(hashed ^ hashed >> 16) & (len(self._slots) - 1)]

    def _grow(self) -> None:
        former = list(self)
        self._slots = [[] for _ in range(2 * len(self._slots))]
        for key in former:
            self._slot(key).append(key)


def sized(elements: int) -> int:
    """Return the capacity of ``AssignorHelpers.newHashMap(elements)`` and ``newHashSet``."""
    return int((elements + 1) / LOAD + 1)


def java_set(keys: Iterable[Key], capacity: int = _DEFAULT_CAPACITY) -> JavaMap[Key, None]:
    """Return a ``java.util.HashSet`` to which the keys were added one by one."""
    made: JavaMap[Key, None] = JavaMap(capacity)
    made.put_all(keys, None)
    return made


def copied_set(keys: Iterable[Key]) -> JavaMap[Key, None]:
    """Return ``new HashSet(collection)``, whose table has room for the collection."""
    collection = list(keys)
    return java_set(collection, max(int(len(collection) / LOAD) + 1, _DEFAULT_CAPACITY))


def order_in_copied_set(keys: Iterable[Key], elements: int) -> list[Key]:
    """Return keys in the order that they have among all of ``new HashSet(collection)``.

    The cost depends on the keys, not on the collection.

    Args:
        keys: some of the collection, in its order, each once.
        elements: number of elements of the collection.
    """
    size = 1
    while size < max(int(elements / LOAD) + 1, _DEFAULT_CAPACITY):
        size *= 2

    def slot(key: Key) -> int:
        hashed = hash_of(key)  # type: ignore[arg-type] # keys are of the kinds that it takes
        return (hashed ^ hashed >> 16) & (size - 1)

    return sorted(keys, key=slot)
