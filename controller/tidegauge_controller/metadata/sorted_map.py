"""An immutable mapping in the order of its keys; a changed copy shares all but the blocks of the changed keys.

An image of 10,000 partitions is changed by most requests, so a change must not copy it. Order by key keeps every walk
over an image the same in each process, which hash order would not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol, TypeVar, cast

BLOCK_SIZE = 64
"""Entries of a new block; a block is divided when it has more than twice as many."""
_SPARSE = 8
"""All blocks are built again when they have fewer entries than this on average."""


class Comparable(Protocol):
    """A key that has an order."""

    def __lt__(self, other: Any, /) -> bool: ...


Key = TypeVar("Key", bound=Comparable)
Value = TypeVar("Value")
Other = TypeVar("Other")


class _Removed:
    """The type of ``REMOVED``."""


REMOVED: Final = _Removed()
"""Stands for the value of a key that a change removes."""


class SortedMap(Mapping[Key, Value]):
    """An immutable mapping whose iteration follows the order of its keys.

    Attributes:
        blocks: the entries, divided; they are never changed, and other maps share them.
    """

    __slots__ = ("_firsts", "_size", "blocks")

    def __init__(self, entries: Mapping[Key, Value] | None = None) -> None:
        """Take the entries of any mapping."""
        self.blocks: tuple[dict[Key, Value], ...] = tuple(_divided(entries or {}))
        self._index()

    def _index(self) -> None:
        self._firsts: tuple[Key, ...] = tuple([next(iter(block)) for block in self.blocks])
        self._size = sum(map(len, self.blocks))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Key]:
        for block in self.blocks:
            yield from block

    def __getitem__(self, key: Key) -> Value:
        if not self.blocks:
            raise KeyError(key)
        return self.blocks[bisect_right(self._firsts, key) - 1][key]

    def get(self, key: Key, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        return self.blocks[bisect_right(self._firsts, key) - 1].get(key, default) if self.blocks else default

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SortedMap):
            compared = cast("SortedMap[Key, Value]", other)
            return len(self) == len(compared) and not any(True for _ in differences(self, compared))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment] # its values need not be hashable

    def __repr__(self) -> str:
        return f"SortedMap({dict(self)!r})"

    def _block_of(self, key: Key) -> int:
        return max(bisect_right(self._firsts, key) - 1, 0)

    def updated(self, changes: Mapping[Key, Value | _Removed]) -> SortedMap[Key, Value]:
        """Return a copy with some values set; ``REMOVED`` removes its key.

        The copy is this very object if nothing changes.
        """
        if not changes:
            return self
        touched: dict[int, dict[Key, Value | _Removed]] = {}
        for key, value in changes.items():
            touched.setdefault(self._block_of(key), {})[key] = value
        blocks: list[dict[Key, Value]] = []
        begin = 0
        for at in sorted(touched):
            blocks.extend(self.blocks[begin:at])
            blocks.extend(_changed(self.blocks[at] if self.blocks else {}, touched[at]))
            begin = at + 1
        blocks.extend(self.blocks[begin:])
        made: SortedMap[Key, Value] = SortedMap()
        made.blocks = tuple(blocks)
        made._index()
        is_sparse = len(made.blocks) > _SPARSE and made._size < len(made.blocks) * _SPARSE
        return SortedMap(made) if is_sparse else made


def _changed(block: dict[Key, Value], changes: Mapping[Key, Value | _Removed]) -> Iterator[dict[Key, Value]]:
    """Yield the blocks that replace one block."""
    merged = dict(block)
    has_new_keys = False
    for key, value in changes.items():
        if isinstance(value, _Removed):
            merged.pop(key, None)
        else:
            has_new_keys = has_new_keys or key not in merged
            merged[key] = value
    if len(merged) > 2 * BLOCK_SIZE:
        yield from _divided(merged)
    elif merged:
        yield {key: merged[key] for key in sorted(merged)} if has_new_keys else merged


def _divided(entries: Mapping[Key, Value]) -> Iterator[dict[Key, Value]]:
    keys = sorted(entries)
    for begin in range(0, len(keys), BLOCK_SIZE):
        yield {key: entries[key] for key in keys[begin : begin + BLOCK_SIZE]}


def differences(
    old: SortedMap[Key, Value], new: SortedMap[Key, Value]
) -> Iterator[tuple[Key, Value | None, Value | None]]:
    """Yield each key whose values differ, with the old and the new value (None: absent), in the order of keys.

    Blocks that both maps share are not looked at, so a map that was made from the other by a few changes costs little.
    """
    if old is new:
        return
    shared = {id(block) for block in old.blocks} & {id(block) for block in new.blocks}
    before: dict[Key, Value] = {}
    after: dict[Key, Value] = {}
    for found, blocks in ((before, old.blocks), (after, new.blocks)):
        for block in blocks:
            if id(block) not in shared:
                found.update(block)
    for key in sorted(before.keys() | after.keys()):
        was, is_now = before.get(key), after.get(key)
        if was is not is_now and was != is_now:
            yield key, was, is_now


def own_blocks(old: SortedMap[Key, Value], new: SortedMap[Key, Value]) -> int:
    """Return the number of blocks that one map alone has.

    The cost of ``differences`` grows with it.
    """
    return len({*map(id, old.blocks)} ^ {*map(id, new.blocks)})


class Draft(Mapping[Key, Value]):
    """A mapping that may be changed, over an immutable one that is not."""

    __slots__ = ("_base", "_changes")

    def __init__(self, base: SortedMap[Key, Value]) -> None:
        """Begin without changes."""
        self._base = base
        self._changes: dict[Key, Value | _Removed] = {}

    def __getitem__(self, key: Key) -> Value:
        found = self._changes.get(key, self._base.get(key, REMOVED))
        if isinstance(found, _Removed):
            raise KeyError(key)
        return cast("Value", found)

    def __setitem__(self, key: Key, value: Value) -> None:
        self._changes[key] = value

    def __delitem__(self, key: Key) -> None:
        self._changes[key] = REMOVED

    def __iter__(self) -> Iterator[Key]:
        yield from self.finished()

    def __len__(self) -> int:
        return len(self.finished())

    def finished(self) -> SortedMap[Key, Value]:
        """Return the changed mapping; the draft then continues from it."""
        self._base = self._base.updated(self._changes)
        self._changes = {}
        return self._base
