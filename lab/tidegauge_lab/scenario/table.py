"""The table of a walk-through: attribute, phase, old value, new value, note. Pure.

Rules:
- Attributes are the leader's LEO, its remote LEO, its HW, the follower's LEO and HW; with several followers each of
  them has rows of its own, distinguished by the broker's id.
- The notes say how the value comes about: the leader's HW is the minimum over its LEO and the remote LEOs, the
  follower's HW the minimum of the leader's HW in the last response and its own LEO.

One published table of this walk-through prints ``=0`` in the notes of the second round beside the new value 1: a slip;
here the note ends with the value it explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidegauge.counted import counted
from tidegauge_lab.scenario.facts import Facts

HEADER = ("attribute", "phase", "old value", "new value", "note")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


class Row(NamedTuple):
    """One row."""

    attribute: str
    phase: str
    old: int
    new: int
    note: str


class Rounds(NamedTuple):
    """A follower's rounds since the first hold: the offsets asked for, and the leader's HW in the last response."""

    offsets: tuple[int, ...] = ()
    reported_hw: int | None = None


def rows(
    phase: str, before: Facts, after: Facts, leader: int, followers: Sequence[int], rounds: Mapping[int, Rounds]
) -> list[Row]:
    """Return the table's rows.

    Args:
        phase: the event since.
        before: the state with the old values.
        after: the state with the new ones.
        leader: the leader's broker id.
        followers: the followers' broker ids.
        rounds: what each follower's rounds carried.
    """
    old, new = before.replicas[leader], after.replicas[leader]
    several = len(followers) > 1
    done = {follower: rounds.get(follower, Rounds()) for follower in followers}
    remote = {follower: max(new.remote_leos.get(follower, 0), 0) for follower in followers}
    found = [Row("Leader LEO", phase, old.leo, new.leo, _written(new.leo - old.leo))]
    for follower in followers:
        was = max(old.remote_leos.get(follower, 0), 0)
        note = _fetched(done[follower].offsets)
        found.append(Row(_named("Remote LEO", follower, several=several), phase, was, remote[follower], note))
    minimum = ", ".join(f"{_short('RemoteLEO', follower, several=several)}={leo}" for follower, leo in remote.items())
    found.append(Row("Leader HW", phase, old.hw, new.hw, f"min(LeaderLEO={new.leo}, {minimum})={new.hw}"))
    for follower in followers:
        was, now = before.replicas[follower].leo, after.replicas[follower].leo
        note = _copied(now - was, done[follower].offsets)
        found.append(Row(_named("Follower LEO", follower, several=several), phase, was, now, note))
    for follower in followers:
        replica = after.replicas[follower]
        last_hw = done[follower].reported_hw
        note = f"min(LeaderHW={replica.hw if last_hw is None else last_hw}, FollowerLEO={replica.leo})={replica.hw}"
        was = before.replicas[follower].hw
        found.append(Row(_named("Follower HW", follower, several=several), phase, was, replica.hw, note))
    return found


def lines(found: Sequence[Row]) -> list[str]:
    """Return the table as text."""
    cells = [HEADER, *([str(cell) for cell in row] for row in found)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADER))]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return text


def _named(attribute: str, broker: int, *, several: bool) -> str:
    return f"{attribute} ({broker})" if several else attribute


def _short(attribute: str, broker: int, *, several: bool) -> str:
    return f"{attribute}({broker})" if several else attribute


def _written(number: int) -> str:
    return f"{counted(number, 'record')} written" if number else "no new data written"


def _fetched(offsets: Sequence[int]) -> str:
    if not offsets:
        return "no fetch yet"
    ordinal = _ORDINALS[len(offsets) - 1] if len(offsets) <= len(_ORDINALS) else f"{len(offsets)}th"
    return f"the {ordinal} fetch carried offset {offsets[-1]}"


def _copied(number: int, offsets: Sequence[int]) -> str:
    if number:
        return f"{counted(number, 'record')} replicated"
    return "no new data written" if offsets else "no fetch yet"
