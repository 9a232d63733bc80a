"""Share partitions in the event log: an event for a change in one, with all records in flight.

Rules:
    1. An event has the window as a whole, at most ``MAX_RANGES`` ranges of it, and marks the new ones. Nothing is
       written if the window is as the last event says.
    2. Each change is written at once, up to ``MAX_EVENTS`` of one share partition within ``PERIOD_MS``. Later ones
       follow are one event at the end of that time, with the causes of all.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from tidegauge.partition import TopicPartition
from tidegauge_broker.server.share.hosted import HostedSharePartition
from tidegauge_broker.share.partition import PartitionState
from tidegauge_broker.share.viewing import RecordsView, ranges_of

KIND = "share"
MAX_RANGES = 40
MAX_EVENTS = 20
PERIOD_MS = 1000
Note = Callable[[str, str, dict[str, Any], TopicPartition | None], None]
Later = Callable[[float, Callable[[], None]], object]
_Range = tuple[int, int, str, int, str | None, bool]


class _Noted:
    """The last event of a share partition, and the changes since.

    Attributes:
        ranges: of that event.
        said: the rest of it.
        count: events in the present period; 0: none runs.
        causes: of the changes since, in their order.
    """

    def __init__(self) -> None:
        self.ranges: tuple[_Range, ...] = ()
        self.said: tuple[object, ...] = ()
        self.count = 0
        self.causes: dict[str, None] = {}


class ShareEvents:
    """Notes what changes in the share partitions of this broker.

    Args:
        note: writes an event.
        later: calls a function after some seconds.
    """

    def __init__(self, note: Note, later: Later) -> None:
        self._note = note
        self._later = later
        self._noted: dict[HostedSharePartition, _Noted] = {}

    def changed(self, hosted: HostedSharePartition, cause: str) -> None:
        """Take up that a share partition may have changed; rules 1 and 2.

        Args:
            hosted: the share partition.
            cause: the request or timer.
        """
        noted = self._noted.setdefault(hosted, _Noted())
        noted.causes[cause] = None
        if noted.count < MAX_EVENTS:
            self._write_next(hosted, noted)

    def _write_next(self, hosted: HostedSharePartition, noted: _Noted) -> None:
        """Write an event if there is anything to say; the first one begins a period."""
        if self._write(hosted, noted):
            noted.count += 1
            if noted.count == 1:
                self._later(PERIOD_MS / 1000, lambda: self._end_period(hosted, noted))

    def _end_period(self, hosted: HostedSharePartition, noted: _Noted) -> None:
        noted.count = 0
        if noted.causes:
            self._write_next(hosted, noted)

    def _write(self, hosted: HostedSharePartition, noted: _Noted) -> bool:
        """Write an event if there is anything to say; return whether one was written."""
        core, causes = hosted.core, ",".join(noted.causes)
        noted.causes.clear()
        is_over = core.state in {PartitionState.FENCED, PartitionState.FAILED}
        if is_over:
            self._noted.pop(hosted, None)
        found = () if is_over else tuple(map(_range, islice(ranges_of(core), MAX_RANGES + 1)))
        shown = found[:MAX_RANGES]
        window = core.window
        end = window.end_offset + 1 if len(window.in_flight) else window.start_offset
        said = core.state, window.start_offset, end, len(hosted.unwritten), len(found) > MAX_RANGES
        if (shown, said) == (noted.ranges, noted.said) or core.state is PartitionState.EMPTY:
            return False
        before = set(noted.ranges)
        noted.ranges, noted.said = shown, said
        fields = {
            "group": hosted.key.group_id,
            "state": core.state.value,
            "leader_epoch": core.leader_epoch,
            "start_offset": window.start_offset,
            "end_offset": end,
            "delivery_count_limit": core.settings.delivery_count_limit,
            "unwritten": len(hosted.unwritten),
            "records": shown,
            "has_more": len(found) > MAX_RANGES,
            "changed": [one for one in shown if one not in before],
        }
        self._note(KIND, causes, fields, hosted.at)
        return True


def _range(one: RecordsView) -> _Range:
    return (
        one.first_offset,
        one.last_offset,
        one.where.value,
        one.delivery_count,
        one.member_id,
        one.is_being_written,
    )
