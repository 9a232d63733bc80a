"""The first record that differs between two replicas whose batches differ, in words for people. Pure.

Rules:
    1. A batch is compared record by record: offset, leader epoch, key, value, timestamp, headers. The first offset at
       which the two differ counts, also if one of them has no record there.
    2. The words name what differs: long values are shown from shortly before the first byte that differs, and a key, a
       timestamp or headers only if the values are equal.
    3. Two batches may hold the same records and differ in their headers or compression: then there is no such record.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge_client.records import Record
from tidegauge_lab.accountant.books import FirstDifference, show

NOTHING = "nothing that begins there"
_SHOWN = 40
_CONTEXT = 10


def first_difference(ours: Sequence[Record], theirs: Sequence[Record]) -> FirstDifference | None:
    """Return the first record that differs between two stretches of the same offsets.

    Args:
        ours: the records of the reference, by offset.
        theirs: the other replica's.

    Returns:
        The difference; None if the records are the same (rule 3).
    """
    left, right = ({record.offset: record for record in records} for records in (ours, theirs))
    for offset in sorted(left.keys() | right.keys()):
        one, other = left.get(offset), right.get(offset)
        if one is None or other is None:
            return FirstDifference(offset, *(NOTHING if each is None else shown(each) for each in (one, other)))
        if _content(one) != _content(other):
            return FirstDifference(offset, *_in_differing_words(one, other))
    return None


def shown(record: Record) -> str:
    """Return a record in words: its value and its batch's leader epoch."""
    return f"{show(record.value)} of epoch {record.leader_epoch}"


def _content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.timestamp_ms, tuple(record.headers), record.leader_epoch


def _in_differing_words(one: Record, other: Record) -> tuple[str, str]:
    """Return both records in words that differ (rule 2)."""
    if one.value != other.value:
        begin = _first_byte(one.value, other.value)
        return _value_from(one, begin), _value_from(other, begin)
    for name, ours, theirs in (
        ("key", show(one.key), show(other.key)),
        ("timestamp", f"{one.timestamp_ms} ms", f"{other.timestamp_ms} ms"),
        ("headers", str(list(one.headers)), str(list(other.headers))),
    ):
        if ours != theirs:
            return f"{shown(one)} with {name} {ours}", f"{shown(other)} with {name} {theirs}"
    return shown(one), shown(other)


def _first_byte(ours: bytes | None, theirs: bytes | None) -> int:
    if ours is None or theirs is None:
        return 0
    shorter = min(len(ours), len(theirs))
    return next((at for at in range(shorter) if ours[at] != theirs[at]), shorter)


def _value_from(record: Record, differs_at: int) -> str:
    """Return a record in words, its value from shortly before a byte on."""
    if record.value is None or differs_at < _SHOWN:
        return shown(record)
    begin = differs_at - _CONTEXT
    return f"{show(record.value[begin:])} from byte {begin} on, of epoch {record.leader_epoch}"
