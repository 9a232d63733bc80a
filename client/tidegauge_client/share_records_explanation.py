"""Explain the records of a share partition that its leader has in flight: by state and member. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegauge.counted import counted
from tidegauge_client.group_sentences import seconds
from tidegauge_client.sentences import Sentence
from tidegauge_client.share_sentences import (
    RULE_ACKNOWLEDGED,
    RULE_ACQUIRED,
    RULE_ARCHIVED,
    RULE_ARCHIVED_BY_LOG,
    RULE_AVAILABLE,
    RULE_COMMITTED,
    RULE_EXPIRED,
    RULE_LAST,
    RULE_LIMIT,
    RULE_NONE,
    RULE_UNKNOWN,
    RULE_UNWRITTEN,
    RULE_WINDOW,
    named,
    size_of,
)
from tidegauge_client.share_views import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    NONE,
    UNKNOWN,
    LedShare,
    Records,
)


def explain_records(led: LedShare) -> list[Sentence]:
    """Explain the window, then the records in it, then those that are yet to come."""
    written = [one for one in led.records if not one.is_being_written]
    return [
        *_window(led),
        *_being_written(led),
        *_acquired(led, [one for one in written if one.state == ACQUIRED]),
        *_available(led, [one for one in written if one.state == AVAILABLE]),
        *_done(written),
        *_holes(led.records),
        *_to_come(led),
    ]


def _window(led: LedShare) -> Iterator[Sentence]:
    in_flight = led.end_offset - led.start_offset
    if not in_flight:
        yield Sentence(
            "window",
            f"Nothing is in flight: all records before {led.start_offset} are done, or were before the group began.",
            RULE_WINDOW,
        )
        return
    first = next((one for one in led.records if one.first_offset <= led.start_offset <= one.last_offset), None)
    holds = "" if first is None else f" {led.start_offset} is {_as_it_is(first)}."
    yield Sentence(
        "window",
        f"{counted(in_flight, 'offset')} from {led.start_offset} to {led.end_offset - 1} "
        f"{'is' if in_flight == 1 else 'are'} in flight, {led.complete_count} of them done.{holds}",
        RULE_WINDOW,
        "" if first is None or first.state in {ACKNOWLEDGED, ARCHIVED} else f"the end of {led.start_offset}",
    )
    if in_flight >= led.max_record_locks:
        yield Sentence(
            "window",
            f"No new record is acquired: the window has {in_flight} of at most {led.max_record_locks} offsets.",
            RULE_LIMIT,
            f"the end of {led.start_offset}",
        )


def _as_it_is(one: Records) -> str:
    if one.is_being_written:
        return f"being {one.state}, which is not written yet"
    if one.state == ACQUIRED:
        return f"acquired by {one.member_id}"
    return {UNKNOWN: "a hole in the state that was read", NONE: "an offset without a record"}.get(one.state, one.state)


def _being_written(led: LedShare) -> Iterator[Sentence]:
    for state in (ACKNOWLEDGED, AVAILABLE, ARCHIVED):
        them = [one for one in led.records if one.is_being_written and one.state == state]
        for member in _members(them):
            mine = [one for one in them if one.member_id == member]
            says = {ACKNOWLEDGED: "has accepted", AVAILABLE: "has released", ARCHIVED: "has rejected"}[state]
            yield Sentence(
                "records",
                f"{member or 'A member'} {says} {named(mine)}; that is being written, and does not count yet.",
                RULE_UNWRITTEN,
                "a response of the share coordinator",
                member,
            )
            if any(one.lock_left_ms is not None and one.lock_left_ms <= 0 for one in mine):
                yield Sentence("records", f"The lock of {member} on them has ended meanwhile.", RULE_EXPIRED)


def _acquired(led: LedShare, them: Sequence[Records]) -> Iterator[Sentence]:
    for member in _members(them):
        mine = [one for one in them if one.member_id == member]
        left = [one.lock_left_ms for one in mine if one.lock_left_ms is not None]
        yield Sentence(
            "records",
            f"{member} has acquired {named(mine)}{_until(left)}.",
            RULE_ACQUIRED,
            "an acknowledgement or a release of the member, the end of its connection, or of the lock",
            member,
            max(0, *left) if left else None,
        )
        last = [one for one in mine if one.delivery_count >= led.delivery_count_limit]
        if last:
            yield Sentence(
                "records",
                f"This is the last delivery of {named(last, counts=False)}: share.delivery.count.limit is "
                f"{led.delivery_count_limit}.",
                RULE_LAST,
                "",
                member,
            )


def _until(left_ms: Sequence[int]) -> str:
    if not left_ms:
        return ""
    first, last = max(0, min(left_ms)), max(0, *left_ms)
    if seconds(first) == seconds(last):
        return f", for another {seconds(last)} at most"
    return f", the first for another {seconds(first)} at most, all for another {seconds(last)}"


def _available(led: LedShare, them: Sequence[Records]) -> Iterator[Sentence]:
    if not them:
        return
    yield Sentence(
        "records",
        f"{named(them)} {'is' if size_of(them) == 1 else 'are'} available again, for the next fetch of any member.",
        RULE_AVAILABLE,
        "a fetch of a member",
    )
    last = [one for one in them if one.delivery_count == led.delivery_count_limit - 1]
    if last:
        yield Sentence(
            "records",
            f"The next delivery of {named(last, counts=False)} is the last: share.delivery.count.limit is "
            f"{led.delivery_count_limit}.",
            RULE_LAST,
        )


def _done(them: Sequence[Records]) -> Iterator[Sentence]:
    acknowledged = [one for one in them if one.state == ACKNOWLEDGED]
    if acknowledged:
        yield Sentence(
            "records",
            f"{named(acknowledged)} {'is' if size_of(acknowledged) == 1 else 'are'} acknowledged.",
            RULE_ACKNOWLEDGED,
        )
    archived = [one for one in them if one.state == ARCHIVED]
    for by_log, rule in ((False, RULE_ARCHIVED), (True, RULE_ARCHIVED_BY_LOG)):
        these = [one for one in archived if one.is_archived_by_log is by_log]
        if these:
            yield Sentence(
                "records",
                f"{named(these)} {'is' if size_of(these) == 1 else 'are'} archived, and never delivered again.",
                rule,
            )


def _holes(them: Sequence[Records]) -> Iterator[Sentence]:
    unknown = [one for one in them if one.state == UNKNOWN]
    if unknown:
        yield Sentence(
            "records",
            f"Of {named(unknown, counts=False)} the state that was read says nothing: "
            f"{'it is' if size_of(unknown) == 1 else 'they are'} for the next fetch of any member, as if new.",
            RULE_UNKNOWN,
            "a fetch of a member",
        )
    none = [one for one in them if one.state == NONE]
    if none:
        yield Sentence(
            "records",
            f"{named(none, counts=False)} {'has' if size_of(none) == 1 else 'have'} no record.",
            RULE_NONE,
        )


def _to_come(led: LedShare) -> Iterator[Sentence]:
    end, level = led.readable_end, "last stable offset" if led.reads_committed else "high watermark"
    if end > led.end_offset:
        yield Sentence(
            "records",
            f"{counted(end - led.end_offset, 'offset')} from {led.end_offset} to {end - 1} "
            f"{'was' if end - led.end_offset == 1 else 'were'} never delivered; the {level} is {end}.",
            RULE_COMMITTED,
            "a fetch of a member",
        )
    elif led.end_offset > end:
        yield Sentence(
            "records",
            f"The next record to deliver would be {led.end_offset}, {led.end_offset - end} beyond the {level} {end}: "
            "fetches get a response at once, without records.",
            RULE_COMMITTED,
            "a log that reaches that offset, or a reset of the group's offset",
        )


def _members(records: Sequence[Records]) -> list[str]:
    return sorted({one.member_id for one in records})
