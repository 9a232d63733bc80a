"""Committed records that a clean election lost: the new leader's log ends below a high watermark of before. Pure.

A leader is elected cleanly if it is in the ISR, and a member of the ISR has all that is committed. It has not if its
disk lost records that the broker had acknowledged: a log directory that was emptied or replaced, or a power loss, since
Kafka writes to the page cache and does not flush. If that replica was the only member of the ISR it is elected
cleanly with what it has left, and the other replicas truncate to it (KAFKA-14139).

Rules:
    1. The high watermarks of leaders count, each within its leadership: records below one are committed.
    2. A leader that begins an epoch with a log that ends below that is convicted, if the event logs hold the
       controller's election of every epoch in between, none of them unclean. A lower high watermark of a new leader is
       no violation: it learns the high watermark a round late (KIP-101).
    3. After an unclean election (KIP-106), or an election that no event log holds, a log that ends lower proves
       nothing: earlier commits no longer count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegauge_lab.accountant.books import Findings, Kind

UNCLEAN = "unclean"
_NOTHING = -1
Event = Mapping[str, Any]


@dataclass(slots=True)
class _Partition:
    """The committed end, the newest leadership, and the elections since then by epoch."""

    committed: int = _NOTHING
    committed_by: str = ""
    epoch: int = -1
    leader: str = ""
    elections: dict[int, str] = field(default_factory=dict)


class CommittedEnds:
    """Follows elections, leaders and high watermarks of one topic, in the order of the events."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._partitions: dict[int, _Partition] = {}

    def forget(self, partition: int | None = None) -> None:
        """Begin again: the topic was created again, or (None) the whole cluster has other data."""
        if partition is None:
            self._partitions.clear()
        else:
            self._partitions.pop(partition, None)

    def election(self, event: Event) -> None:
        """Note the controller's election of an epoch."""
        known = self._partitions.setdefault(int(event["partition"]), _Partition())
        known.elections[int(event["leader_epoch"])] = str(event.get("strategy", UNCLEAN))

    def high_watermark(self, source: str, partition: int, epoch: int, new: int) -> None:
        """Note the high watermark of a leader (rule 1)."""
        known = self._partitions.setdefault(partition, _Partition())
        if (source, epoch) == (known.leader, known.epoch) and new > known.committed:
            known.committed, known.committed_by = new, f"{source} in epoch {epoch}"

    def leads(self, source: str, event: Event) -> None:
        """Judge a leader that begins an epoch (rules 2 and 3)."""
        partition, epoch = int(event["partition"]), int(event["leader_epoch"])
        known = self._partitions.setdefault(partition, _Partition())
        if epoch <= known.epoch:
            return
        elected = [known.elections.get(one) for one in range(known.epoch + 1, epoch + 1)]
        end = event.get("log_end_offset")
        if end is None or int(end) < known.committed:
            if end is not None and None not in elected and UNCLEAN not in elected:
                self._findings.add(
                    Kind.LEADER_BELOW_HIGH_WATERMARK,
                    partition,
                    int(end),
                    "{}, elected cleanly, began epoch {} with a log that ends at {}, below the high watermark {} of "
                    "{}, at {} ms",
                    source,
                    epoch,
                    end,
                    known.committed,
                    known.committed_by,
                    event.get("time_ms"),
                )
            known.committed = _NOTHING
        known.epoch, known.leader = epoch, source
        known.elections = {one: strategy for one, strategy in known.elections.items() if one > epoch}
