"""Share partitions in the event log: each change at once, and the excess ones together (docs/events.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import SharePartitionKey, StateBatch
from tidegauge_broker.server.share.events import MAX_EVENTS, MAX_RANGES, ShareEvents
from tidegauge_broker.server.share.hosted import HostedSharePartition
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.acquiring import LogBatch, Read, Wanted
from tidegauge_broker.share.partition import SharePartition
from tidegauge_broker.share.settings import ShareSettings

AT = TopicPartition("orders", 0)


class Log:
    """A share partition whose events are kept, with the calls that wait for their time."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.later: list[Callable[[], None]] = []
        self.core = SharePartition(3, ShareSettings())
        self.hosted = HostedSharePartition(SharePartitionKey("g", bytes(16), 0), AT, self.core)
        self.share_events = ShareEvents(self._note, lambda _, call: self.later.append(call))

    def _note(self, kind: str, cause: str, fields: dict[str, Any], at: TopicPartition | None) -> None:
        assert (kind, at) == ("share", AT)
        self.events.append((cause, fields))

    def changed(self, cause: str) -> None:
        self.share_events.changed(self.hosted, cause)

    def time_is_over(self) -> None:
        calls, self.later = self.later, []
        for call in calls:
            call()

    def acquire(self, first: int, last: int, member: str) -> None:
        self.core.acquire(member, Read(first, [LogBatch(first, last)]), Wanted(100, 100), 0)
        self.changed("ShareFetch")


@pytest.fixture
def log() -> Log:
    made = Log()
    made.core.initialize()
    made.core.state_read(ErrorCode.NONE, state_epoch=1, start_offset=0)
    made.changed("ReadShareGroupState")
    made.time_is_over()
    made.events.clear()
    return made


def test_a_change_is_written_at_once_with_the_ranges_that_are_new(log: Log) -> None:
    log.acquire(0, 1, "a")
    [(cause, fields)] = log.events
    assert cause == "ShareFetch"
    assert fields["changed"] == [(0, 1, "acquired", 1, "a", False)]
    assert (fields["start_offset"], fields["end_offset"], fields["leader_epoch"]) == (0, 2, 3)
    log.time_is_over()
    assert len(log.events) == 1, "nothing has changed since"


def test_what_is_too_much_for_a_second_is_one_event_with_all_causes(log: Log) -> None:
    for offset in range(MAX_EVENTS + 1):
        log.acquire(offset, offset, f"m{offset % 2}")
    log.core.acknowledge("token", "m0", [Acknowledgement(MAX_EVENTS, MAX_EVENTS, (2,))], 0)
    log.changed("ShareAcknowledge")
    assert len(log.events) == MAX_EVENTS
    assert log.events[-1][1]["end_offset"] == MAX_EVENTS
    log.time_is_over()
    cause, fields = log.events[MAX_EVENTS]
    assert cause == "ShareFetch,ShareAcknowledge"
    assert fields["changed"] == [(MAX_EVENTS, MAX_EVENTS, "available", 1, "m0", True)]
    assert len(fields["records"]) == MAX_EVENTS + 1
    log.time_is_over()
    log.acquire(MAX_EVENTS + 1, MAX_EVENTS + 1, "a")
    assert len(log.events) == MAX_EVENTS + 2, "the time is over, so the next change is written at once"


def test_a_look_that_changes_nothing_writes_nothing(log: Log) -> None:
    log.changed("ShareFetch")
    assert (log.events, log.later) == ([], [])


def test_an_end_is_written_and_nothing_is_kept_of_it(log: Log) -> None:
    log.acquire(0, 0, "a")
    log.core.fence()
    log.changed("LeaderChange")
    log.time_is_over()
    assert [(cause, fields["state"], fields["records"]) for cause, fields in log.events[1:]] == [
        ("LeaderChange", "fenced", ())
    ]
    log.time_is_over()
    assert (len(log.events), log.later) == (2, [])


def test_a_window_of_very_many_ranges_is_shown_in_part() -> None:
    log = Log()
    log.core.initialize()
    batches = [StateBatch(one, one, 2 if one % 2 else 0, 1) for one in range(1, 1000)]
    log.core.state_read(ErrorCode.NONE, state_epoch=1, start_offset=0, batches=batches)
    log.changed("ReadShareGroupState")
    [(_, fields)] = log.events
    assert (len(fields["records"]), fields["has_more"], fields["end_offset"]) == (MAX_RANGES, True, 1000)
