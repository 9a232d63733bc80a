"""Acknowledged below min.insync.replicas: acks=all says that so many replicas had the record.

Rules:
    1. An acknowledgement is convicted only where, for the whole time from its hand-over to its response, some broker
       led with an ISR that was too small, and none led with one that sufficed.
    2. A leader's ISR is the larger one while a change is pending (the maximal ISR). Its leadership ends with its next
       role, its next start, or another broker's leadership in a higher epoch.
    3. Where min.insync.replicas was changed, the least value that it had counts for the whole time: brokers take over
       a change one after the other.
    4. Brokers' and producers' clocks are compared: ``MARGIN_US`` at either end is given to the benefit of the doubt.

Source: Kafka's Partition.checkEnoughReplicasReachOffset.
O(N log N).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegauge_client.history import SentRecord
from tidegauge_lab.accountant.books import Findings, Kind, Named

MARGIN_US = 100_000
FOR_EVER_US = 2**62
Event = Mapping[str, Any]
Interval = tuple[int, int]


@dataclass(slots=True)
class _Leadership:
    """A broker's leadership that has not ended, and its ISR since ``since_us``."""

    leader_epoch: int
    since_us: int
    size: int | None = None


class IsrTimes:
    """When a partition was led with enough in-sync replicas, and when with too few."""

    def __init__(self) -> None:
        self.enough: list[Interval] = []
        self.too_few: list[Interval] = []
        self._leaders: dict[str, _Leadership] = {}

    def role(self, source: str, time_us: int, *, leads: bool, leader_epoch: int, min_isr: int) -> None:
        """Note that a broker became leader or something else."""
        if not leads:
            self.ended(source, time_us, min_isr)
            return
        for other in [o for o, led in self._leaders.items() if o != source and led.leader_epoch < leader_epoch]:
            self.ended(other, time_us, min_isr)
        before = self._leaders.get(source)
        if before is None:
            self._leaders[source] = _Leadership(leader_epoch, time_us)
        else:
            before.leader_epoch = leader_epoch

    def isr(self, source: str, time_us: int, size: int, min_isr: int) -> None:
        """Note that a leader's ISR changed."""
        led = self._leaders.get(source)
        if led is None:
            # Its role comes in the same step, one line later.
            led = self._leaders[source] = _Leadership(-1, time_us)
        self._note(led, time_us, min_isr)
        led.size, led.since_us = size, time_us

    def ended(self, source: str, time_us: int, min_isr: int) -> None:
        """Note that the broker no longer leads."""
        led = self._leaders.pop(source, None)
        if led is not None:
            self._note(led, time_us, min_isr)

    def close(self, min_isr: int) -> None:
        """Nothing more is known; what was goes on. Joins what overlaps, for ``convicts``."""
        for source in list(self._leaders):
            self.ended(source, FOR_EVER_US, min_isr)
        self.enough = joined(self.enough)
        self.too_few = joined(self.too_few)

    def _note(self, led: _Leadership, until_us: int, min_isr: int) -> None:
        if led.size is not None and led.since_us < until_us:
            (self.enough if led.size >= min_isr else self.too_few).append((led.since_us, until_us))

    def convicts(self, begin_us: int, end_us: int) -> bool:
        """Whether the ISR was too small from begin to end (rules 1 and 4)."""
        wide = (begin_us - MARGIN_US, end_us + MARGIN_US)
        at = bisect_right(self.enough, wide[1], key=lambda interval: interval[0]) - 1
        if at >= 0 and self.enough[at][1] > wide[0]:
            return False
        at = bisect_right(self.too_few, wide[0], key=lambda interval: interval[0]) - 1
        return at >= 0 and self.too_few[at][1] > wide[1]


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge the intervals so that they neither touch nor overlap, in order."""
    result: list[Interval] = []
    for begin, end in sorted(intervals):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def isr_times(topic: str, events: Iterable[Event], min_isr: int) -> dict[int, IsrTimes]:
    """By partition, from the brokers' events in the order of time."""
    found: dict[int, IsrTimes] = {}
    for event in events:
        kind, source = event.get("kind"), str(event.get("source"))
        time_us = int(event.get("time_ms", 0)) * 1000
        if kind == "broker" and event.get("state") == "starting":
            for times in found.values():
                times.ended(source, time_us, min_isr)
        elif event.get("topic") == topic and kind in {"role", "isr"}:
            times = found.setdefault(int(event["partition"]), IsrTimes())
            if kind == "isr":
                size = max(len(event["new"]), len(event["old"]) if event.get("state") == "pending-shrink" else 0)
                times.isr(source, time_us, size, min_isr)
            else:
                leads = event["role"] == "leader"
                times.role(source, time_us, leads=leads, leader_epoch=int(event["leader_epoch"]), min_isr=min_isr)
    for times in found.values():
        times.close(min_isr)
    return found


def least(topic: str, events: Iterable[Event], min_isr: int) -> int:
    """Return the least value that a topic's min.insync.replicas had (rule 3), ``min_isr`` being the present one."""
    changes = [one for one in events if one.get("kind") == "min_insync_replicas" and one.get("resource") == topic]
    return min([min_isr, *(int(one[side]) for one in changes for side in ("old", "new"))])


def check_min_isr(
    topic: str, sent: Sequence[SentRecord], events: Sequence[Event], min_isr: int, findings: Findings
) -> None:
    """Report acknowledgements with acks=all for which too few replicas were in sync.

    Args:
        topic: whose.
        sent: what was handed over.
        events: of the brokers, in the order of time.
        min_isr: how many in-sync replicas the present setting needs.
        findings: where violations are added.
    """
    min_isr = least(topic, events, min_isr)
    times = isr_times(topic, events, min_isr)
    for record in sent:
        if record.acks != "all" or not record.is_acknowledged or record.partition not in times:
            continue
        if times[record.partition].convicts(record.invoked_us, record.completed_us):
            findings.add(
                Kind.ACKNOWLEDGED_BELOW_MIN_ISR,
                record.partition,
                record.offset,
                "{} was acknowledged at offset {} while fewer than {} replicas were in sync",
                Named(record),
                record.offset,
                min_isr,
                acks=record.acks,
            )
