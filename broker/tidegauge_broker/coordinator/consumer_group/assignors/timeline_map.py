"""A group's members in the order in which Kafka's coordinator iterates over them, which its assignors go by.

Contract: the table's size is a power of two that never falls. A key is in the slot that the highest bits of its hash,
multiplied in 64 bits, name. Iteration goes through the slots, and in a slot from the newest key to the oldest.
Source: BaseHashTable (findSlot, baseAddOrReplace) of Kafka's TimelineHashMap.
"""

from __future__ import annotations

from typing import TypeVar

from tidegauge_broker.coordinator.consumer_group.assignors.java_order import LOAD, hash_of, java_set

Value = TypeVar("Value")
_FIRST_BITS = 1
_MULTIPLIER = -7046029254386353131
_LONG_BITS, _INT_BITS = 64, 32


class TimelineMap(dict[str, Value]):
    """A dict that also knows the order of a ``TimelineHashMap`` that had the same calls.

    Attributes:
        bits: logarithm of the table's size.
    """

    bits = _FIRST_BITS

    def __init__(self, former: TimelineMap[Value] | None = None) -> None:
        super().__init__(former or {})
        self.bits = _FIRST_BITS if former is None else former.bits

    def __setitem__(self, key: str, value: Value) -> None:
        """Set a value; the table grows if one more key would not fit, even when none is added."""
        if (len(self) + 1) * LOAD > 1 << self.bits:
            self.bits += 1
        super().__setitem__(key, value)

    def in_order(self) -> list[str]:
        """Return the keys in Kafka's order."""
        from_the_newest = list(self)[::-1]
        return sorted(from_the_newest, key=self._slot)

    def _slot(self, key: str) -> int:
        hashed = hash_of(key)
        signed = hashed - (1 << _INT_BITS) if hashed >> (_INT_BITS - 1) else hashed
        return (signed * _MULTIPLIER & (1 << _LONG_BITS) - 1) >> (_LONG_BITS - self.bits)


def members_to_assign(before: TimelineMap[Value], now: TimelineMap[Value]) -> list[str]:
    """Return a consumer group's members in the order that an assignor gets.

    Source: TargetAssignmentBuilder.build: a member that joins comes after all, and one that it replaces is removed.
    (A member of a share group is in the group's map before the target is computed: ``now.in_order()``.)

    Args:
        before: the members before the decision.
        now: the members after it.
    """
    made = java_set([*before.in_order(), *(one for one in now if one not in before)])
    for member_id in before.keys() - now.keys():
        made.remove(member_id)
    return list(made)
