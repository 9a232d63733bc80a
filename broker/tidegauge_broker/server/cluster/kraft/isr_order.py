"""The order in which a leader of Kafka 4 names the members of an ISR that it proposes.

The controller keeps the list of an AlterPartition request as it is, so its order reaches the metadata log,
snapshots and clients' metadata. A leader makes the list from a ``scala.collection.mutable.HashSet``, in the order of
its table. Source: ``Partition.prepareIsrExpand`` and ``prepareIsrShrink``; ``mutable.HashSet``.
"""

from __future__ import annotations

from collections.abc import Collection

_SMALLEST_TABLE = 8
_FIRST_TABLE = 16
_LOAD_FACTOR = 0.75


def order_of_expansion(members: Collection[int]) -> list[int]:
    """Return the members of an expanded ISR, as ``prepareIsrExpand`` lists them.

    The table is made for the members that are known (``HashSet.from``).
    """
    capacity = int((len(members) + 1) / _LOAD_FACTOR)
    size = _SMALLEST_TABLE
    while size < capacity:
        size *= 2
    return _in_table(members, size)


def order_of_shrinking(members: Collection[int]) -> list[int]:
    """Return the members of an ISR that replicas leave, as ``prepareIsrShrink`` lists them.

    The table is filled member by member, and grows as it fills (``SetOps.diff``).
    """
    size = _FIRST_TABLE
    while len(members) >= _LOAD_FACTOR * size:
        size *= 2
    return _in_table(members, size)


def _in_table(members: Collection[int], size: int) -> list[int]:
    """Return the members by their place in a table, then by hash."""
    hashes = {member: member ^ (member >> 16) for member in members}
    return sorted(members, key=lambda member: (hashes[member] & (size - 1), hashes[member]))
