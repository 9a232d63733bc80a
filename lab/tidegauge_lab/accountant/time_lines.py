"""Restores of snapshots: what a cluster did after the snapshot is no part of the data that it has now. Pure.

Rules:
    1. A restore at R of a snapshot that was taken at S abandons the time from S to R. Snapshots may be restored in any
       order, so what a cluster's data hold is a chain: from the newest restore back to the time of its snapshot, from
       there back to the restore before it, and so on.
    2. No process of the cluster runs while a snapshot is taken or restored, so nothing is acknowledged at S or R.
    3. A record that was acknowledged in abandoned time is not judged. If it was handed over before S, it may be in the
       snapshot: its outcome counts as unknown.
    4. A record that was read in abandoned time may never have been in the data. A read bears no time of its own, so the
       record's timestamp decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegauge.counted import counted
from tidegauge_client.sent_record import INFO, NO_OFFSET, NO_TIME, SentRecord
from tidegauge_lab.accountant.books import ReadRecord

RESTORE = "restore"
Event = Mapping[str, Any]
Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TimeLines:
    """The times, in ms since 1970, whose records the data of a cluster do not hold.

    Attributes:
        abandoned: from the time of a snapshot to the time of its restore, in order.
    """

    abandoned: Sequence[Interval] = field(default_factory=tuple)

    @classmethod
    def of(cls, events: Iterable[Event]) -> TimeLines:
        """Return the time lines by the restores among these events (rule 1)."""
        restores = sorted(
            (int(event["time_ms"]), int(event["taken_ms"]))
            for event in events
            if event.get("kind") == RESTORE and "taken_ms" in event
        )
        abandoned: list[Interval] = []
        until: int | None = None
        for restored_ms, taken_ms in reversed(restores):
            if until is not None and restored_ms >= until:
                continue  # done in abandoned time itself, or after the snapshot that counts
            abandoned.append((taken_ms, restored_ms))
            until = taken_ms
        return cls(tuple(reversed(abandoned)))

    def is_abandoned(self, time_ms: float) -> bool:
        """Whether the data hold nothing that was acknowledged at a time."""
        return any(taken < time_ms <= restored for taken, restored in self.abandoned)

    def living(self, sent: Sequence[SentRecord], not_checked: list[str]) -> list[SentRecord]:
        """Return the records to judge (rule 3); ``not_checked`` gets the number of others, and why."""
        if not self.abandoned:
            return list(sent)
        kept: list[SentRecord] = []
        left_out = 0
        for record in sent:
            if record.completed_us == NO_TIME or not self.is_abandoned(record.completed_us / 1000):
                kept.append(record)
            elif self.is_abandoned(record.invoked_us / 1000):
                left_out += 1
            else:
                kept.append(record._replace(outcome=INFO, completed_us=NO_TIME, offset=NO_OFFSET))
        if left_out:
            not_checked.append(self._sentence(counted(left_out, "record"), "of the history", "acknowledged"))
        return kept

    def living_reads(self, reads: Sequence[ReadRecord], not_checked: list[str]) -> list[ReadRecord]:
        """Return the reads to judge (rule 4); ``not_checked`` gets the number of others, and why."""
        kept = [read for read in reads if not self.is_abandoned(read.timestamp_ms)]
        if len(kept) < len(reads):
            count = counted(len(reads) - len(kept), "record")
            not_checked.append(self._sentence(count, "that was read", "written"))
        return kept

    def _sentence(self, count: str, what: str, done: str) -> str:
        return (
            f"{count} {what}, {done} after a snapshot was taken and before it was restored: a restore abandons what "
            "the cluster did in between"
        )
