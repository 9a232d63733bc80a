"""Acknowledged below min.insync.replicas: acks=all says that so many replicas had the record.

Rules:
    1. An acknowledgement is convicted only where, for the whole time from its hand-over to its response, some broker
       led with an ISR that was too small, and none led with one that sufficed, or may have sufficed.
    2. A leader's ISR is the larger one while a change is pending (the maximal ISR). Its leadership ends with its next
       role, its next start, another broker's leadership in a higher epoch, a role in another topic of the name, or a
       restore.
    3. How many replicas must be in sync is the leader's own view at that time, for brokers take over a change one after
       the other, and may have a setting of their own: the min.insync.replicas that its role's event names, then each
       change that it has written; but never more than the partition has replicas. A leader whose role is not in its
       event log, or does not name it (a version before that), may have had any: none of its time convicts.
    4. Brokers' and producers' clocks are compared: ``MARGIN_US`` at either end is given to the benefit of the doubt.
    5. Where a leader whose number is not known might acquit an acknowledgement, or no leader is known at its time, it
       is not judged, and counted as such.

Source: Kafka's Partition.checkEnoughReplicasReachOffset and Partition.effectiveMinIsr.
O(N log N).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidegauge.in_sync import effective_min_isr
from tidegauge_client.sent_record import SentRecord
from tidegauge_lab.accountant.books import Findings, Kind, Named
from tidegauge_lab.accountant.time_lines import RESTORE

MARGIN_US = 100_000
FOR_EVER_US = 2**62
Event = Mapping[str, Any]
Interval = tuple[int, int]


class Verdict(Enum):
    """The evidence of the brokers' event logs about an acknowledgement."""

    INNOCENT = "innocent"
    GUILTY = "guilty"
    NOT_JUDGED = "not judged"


@dataclass(slots=True)
class _Leadership:
    """A broker's leadership that has not ended, and its ISR since ``since_us``."""

    since_us: int
    leader_epoch: int | None = None
    size: int | None = None
    min_insync_replicas: int | None = None
    replicas: int | None = None

    @property
    def needed(self) -> int | None:
        """How many replicas must be in sync (rule 3); None: not known."""
        if self.min_insync_replicas is None or self.replicas is None:
            return None
        return effective_min_isr(self.min_insync_replicas, self.replicas)


class IsrTimes:
    """When a partition was led with enough in-sync replicas, when with too few, and when that is not known."""

    def __init__(self) -> None:
        self.enough: list[Interval] = []
        self.too_few: list[Interval] = []
        self.unknown: list[Interval] = []
        self._known: list[Interval] = []
        self._leaders: dict[str, _Leadership] = {}
        self._topic_id = ""

    def role(self, source: str, time_us: int, event: Event) -> None:
        """Note that a broker became leader or something else."""
        topic_id = str(event.get("topic_id", ""))
        is_another_topic = bool(topic_id and self._topic_id and topic_id != self._topic_id)
        self._topic_id = topic_id or self._topic_id
        if is_another_topic:
            for other in [other for other in self._leaders if other != source]:
                self.ended(other, time_us)
        if event["role"] != "leader":
            self.ended(source, time_us)
            return
        epoch = int(event["leader_epoch"])
        for other, led in list(self._leaders.items()):
            if other != source and (led.leader_epoch is None or led.leader_epoch < epoch):
                self.ended(other, time_us)
        led = self._leaders.setdefault(source, _Leadership(time_us))
        if led.leader_epoch is None:
            led.since_us = time_us  # its ISR was written in the same step, one line before
        else:
            self._note(led, time_us)
        replicas = event.get("replicas")
        led.leader_epoch, led.min_insync_replicas = epoch, event.get("min_insync_replicas")
        led.replicas = None if replicas is None else len(replicas)

    def isr(self, source: str, time_us: int, size: int) -> None:
        """Note that a leader's ISR changed."""
        led = self._leaders.setdefault(source, _Leadership(time_us))
        self._note(led, time_us)
        led.size = size

    def setting(self, source: str, time_us: int, new: int) -> None:
        """Note that a broker has taken over another min.insync.replicas."""
        led = self._leaders.get(source)
        if led is not None:
            self._note(led, time_us)
            led.min_insync_replicas = new

    def ended(self, source: str, time_us: int) -> None:
        """Note that the broker no longer leads."""
        led = self._leaders.pop(source, None)
        if led is not None:
            self._note(led, time_us)

    def restored(self, time_us: int) -> None:
        """Note that a snapshot took the place of the data: no replica leads, and the topic may be another one."""
        for source in list(self._leaders):
            self.ended(source, time_us)
        self._topic_id = ""

    def close(self) -> None:
        """End the input: the last state lasts for ever. Join overlapping intervals, for ``verdict``."""
        for source in list(self._leaders):
            self.ended(source, FOR_EVER_US)
        self._known = joined([*self.enough, *self.too_few])
        self.enough, self.too_few, self.unknown = map(joined, (self.enough, self.too_few, self.unknown))

    def _note(self, led: _Leadership, until_us: int) -> None:
        if led.since_us < until_us:
            if led.size is None or led.needed is None:
                times = self.unknown
            else:
                times = self.enough if led.size >= led.needed else self.too_few
            times.append((led.since_us, until_us))
        led.since_us = until_us

    def verdict(self, begin_us: int, end_us: int) -> Verdict:
        """Judge an acknowledgement by the ISR from its begin to its end (rules 1, 4 and 5)."""
        wide = (begin_us - MARGIN_US, end_us + MARGIN_US)
        if _overlaps(self.enough, wide):
            return Verdict.INNOCENT
        if _overlaps(self.unknown, wide) or not _overlaps(self._known, wide):
            return Verdict.NOT_JUDGED
        at = bisect_right(self.too_few, wide[0], key=lambda interval: interval[0]) - 1
        return Verdict.GUILTY if at >= 0 and self.too_few[at][1] > wide[1] else Verdict.INNOCENT


def _overlaps(intervals: Sequence[Interval], wide: Interval) -> bool:
    """Return whether one of the joined intervals overlaps ``wide``."""
    at = bisect_right(intervals, wide[1], key=lambda interval: interval[0]) - 1
    return at >= 0 and intervals[at][1] > wide[0]


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge the intervals so that they neither touch nor overlap, in order."""
    result: list[Interval] = []
    for begin, end in sorted(intervals):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def isr_times(topic: str, events: Iterable[Event]) -> dict[int, IsrTimes]:
    """Return the times of each partition, from the brokers' events by time."""
    found: dict[int, IsrTimes] = {}
    for event in events:
        kind, source = event.get("kind"), str(event.get("source"))
        time_us = int(event.get("time_ms", 0)) * 1000
        if kind == "broker" and event.get("state") == "starting":
            for times in found.values():
                times.ended(source, time_us)
        elif kind == RESTORE:
            for times in found.values():
                times.restored(time_us)
        elif kind == "min_insync_replicas" and event.get("resource") == topic:
            for times in found.values():
                times.setting(source, time_us, int(event["new"]))
        elif event.get("topic") == topic and kind in {"role", "isr"}:
            times = found.setdefault(int(event["partition"]), IsrTimes())
            if kind == "isr":
                size = max(len(event["new"]), len(event["old"]) if event.get("state") == "pending-shrink" else 0)
                times.isr(source, time_us, size)
            else:
                times.role(source, time_us, event)
    for times in found.values():
        times.close()
    return found


def check_min_isr(topic: str, sent: Sequence[SentRecord], events: Sequence[Event], findings: Findings) -> int:
    """Report acknowledgements with acks=all for which too few replicas were in sync.

    Args:
        topic: whose.
        sent: the records handed to producers.
        events: of the brokers, in the order of time.
        findings: where violations are added.

    Returns:
        How many acknowledgements with acks=all the event logs do not suffice to judge.
    """
    times = isr_times(topic, events)
    unjudged = 0
    for record in sent:
        if record.acks != "all" or not record.is_acknowledged:
            continue
        of_partition = times.get(record.partition)
        verdict = of_partition and of_partition.verdict(record.invoked_us, record.completed_us)
        if verdict is Verdict.GUILTY:
            findings.add(
                Kind.ACKNOWLEDGED_BELOW_MIN_ISR,
                record.partition,
                record.offset,
                "{} was acknowledged at offset {} while fewer replicas were in sync than min.insync.replicas asked for",
                Named(record),
                record.offset,
                acks=record.acks,
            )
        elif verdict is not Verdict.INNOCENT:
            unjudged += 1
    return unjudged
