"""Checks of the labs about share groups (KIP-932): a record that no member finishes, and what a new leader knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegauge.counted import counted
from tidegauge.partition import TopicPartition
from tidegauge_lab.labs.evidence import Evidence, Placed, deaths
from tidegauge_lab.labs.model import Finding, no, yes

ORDERS = TopicPartition("orders", 0)
PACKING = "packing"
POISON = "poison"
_NOTHING_YET = "run packing.py, a member of share group packing"


def poison_record(evidence: Evidence) -> Iterator[Finding]:
    """Look for a record whose lock ended, that was given back until it was archived, and for a queue that went on."""
    story = _story(evidence)
    if not story:
        yield no("No member of share group packing has fetched anything", _NOTHING_YET)
        return
    expired = next((one for one in story if "LockExpiration" in str(one.event.get("cause"))), None)
    if expired is None:
        yield no("Each lock has ended with a word of its member", "let a member keep records longer than their lock")
        return
    yield yes("A member kept records longer than share.record.lock.duration.ms, and they became available again")
    offset = next((one.offset for one in evidence.leaders_records(ORDERS) if one.value == POISON), None)
    if offset is None:
        yield no(f"The log of orders-0 has no record '{POISON}'", f"produce '{POISON}' among other records")
        return
    archived = _where(story, offset, "archived")
    if archived is None:
        given = max((count for one in story for _, count in _of(one, offset)), default=0)
        yield no(
            f"'{POISON}', at offset {offset}, was delivered {counted(given, 'time')} and is not archived",
            "let members give it back until its delivery limit is reached",
        )
        return
    place, count = archived
    yield yes(f"'{POISON}', at offset {offset}, was delivered {counted(count, 'time')}, and then archived")
    start, end = _start(story), len(evidence.leaders_records(ORDERS))
    if start < end:
        yield no(
            f"The start offset of the group is {start} of {end}: not all other records are accepted",
            "let a member accept the records that are left",
        )
        return
    again = [one for one in story if one.place > place and any(state == "acquired" for state, _ in _of(one, offset))]
    if again:
        yield no(f"'{POISON}' was given to a member after that, which must not happen", "report it")
        return
    yield yes(f"The start offset is {start}: the group is done with all records, and '{POISON}' is still in the log")


def forgotten_deliveries(evidence: Evidence) -> Iterator[Finding]:
    """Look for a record that a member had when its leader died, and that the next leader delivered as new."""
    story = _story(evidence)
    taken = {one.broker: one for one in story if any(where[2] == "acquired" for where in one.event["records"])}
    if not taken:
        yield no("No member of share group packing has fetched anything", _NOTHING_YET)
        return
    first = min(taken, key=lambda broker: taken[broker].place)
    dead = next((one for one, broker in deaths(evidence) if broker == first), None)
    if dead is None:
        yield no(f"Broker {first}, which has given the records, lives", f"kill broker {first} while a member works")
        return
    before = [one for one in story if one.broker == first and one.place < dead.place]
    held = {offset for first, last, state, *_ in before[-1].event["records"] if state == "acquired"
            for offset in range(first, last + 1)}  # fmt: skip
    if not held:
        yield no(
            f"When broker {first} died, each of its records had been acknowledged",
            "kill it while a member works on one",
        )
        return
    yield yes(f"When broker {first} died, a member had the {_offsets(held)}: only that broker's memory said so")
    again = next((one for one in story if one.broker != first and any(_acquired(one, offset) for offset in held)), None)
    if again is None:
        yield no("No other leader has given it again", "let the member go on fetching")
        return
    counts = sorted({count for offset in held for state, count in _of(again, offset) if state == "acquired"})
    yield yes(
        f"Broker {again.broker}, the next leader, gave it again, as delivery {counts[0]}: it knew of no earlier one"
    )
    done = set(range(_start(before)))
    if any(_acquired(one, offset) for one in story if one.place > dead.place for offset in done):
        yield no("A record that was accepted before came again, which must not happen", "report it")
        return
    end = len(evidence.leaders_records(ORDERS))
    if not done:
        yield no("No record was accepted before the leader died", "start this lab again, and accept one record first")
    elif _start(story) < end:
        yield no(f"The start offset is {_start(story)} of {end}", "let a member accept the records that are left")
    else:
        yield yes(f"The {_offsets(done)}, accepted before, did not come again, and all {end} records are done")


def _story(evidence: Evidence) -> list[Placed]:
    """Return what leaders reported of the group's share partition while they served it."""
    return [one for one in evidence.of("share", ORDERS, group=PACKING) if one.event.get("state") == "active"]


def _start(story: Sequence[Placed]) -> int:
    return int(story[-1].event["start_offset"]) if story else 0


def _of(one: Placed, offset: int) -> list[tuple[str, int]]:
    """Return state and delivery count of an offset; empty if it is not in flight."""
    return [(state, count) for first, last, state, count, *_ in one.event["records"] if first <= offset <= last]


def _acquired(one: Placed, offset: int) -> bool:
    return any(state == "acquired" for state, _ in _of(one, offset))


def _where(story: Sequence[Placed], offset: int, wanted: str) -> tuple[int, int] | None:
    """Return the first event that has an offset in a state, and its delivery count."""
    return next(((one.place, count) for one in story for state, count in _of(one, offset) if state == wanted), None)


def _offsets(found: set[int]) -> str:
    noun = "record at offset" if len(found) == 1 else "records at offsets"
    return f"{noun} {', '.join(map(str, sorted(found)))}"
