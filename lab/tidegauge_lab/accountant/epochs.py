"""Checks by event logs and epochs along the log: high watermarks and epochs never go back.

Rules:
    1. A leader's high watermark never falls within its leadership: from its role as leader under an epoch to its next
       role, or its next start. A new leader, or one under a new epoch, may begin lower (KIP-101: it learnt it a round
       late).
    2. A replica's leader epoch never falls. A role under another topic id, an election in epoch 0, or epoch 0 after a
       higher one, is a topic that was deleted and made again: nothing of before counts.
    3. In a replica's epoch cache epochs rise strictly; a truncation takes the entries at or above its offset away, and
       all of them where the log begins again elsewhere, at the leader's log start (UnifiedLog.truncateFullyAndStartAt).
    4. Leader epochs never fall along the committed log.
    5. No two brokers lead in the same epoch.
    6. A cleanly elected leader's log does not end below the high watermark of an earlier epoch (``committed_ends``).
    7. A restore puts other data in place: earlier events are not compared with later ones.

Event logs are bounded and may begin in the middle; a missing event proves nothing.
Source: ARCHITECTURE.md I2, I3, I5. Linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegauge_lab.accountant.books import NO_OFFSET, CommittedLog, Findings, Kind
from tidegauge_lab.accountant.committed_ends import CommittedEnds
from tidegauge_lab.accountant.time_lines import RESTORE

LEADER = "leader"
Event = Mapping[str, Any]


@dataclass(slots=True)
class _Replica:
    """One replica as its broker's events describe it so far."""

    role: str = ""
    leader_epoch: int = -1
    high_watermark: int = -1
    epochs: list[tuple[int, int]] = field(default_factory=list)


class EventScan:
    """Reads the events of one topic, by time."""

    def __init__(self, topic: str, findings: Findings) -> None:
        self._topic = topic
        self._findings = findings
        self._replicas: dict[tuple[str, int], _Replica] = {}
        self._leaders: dict[tuple[int, int], str] = {}
        self._topic_ids: dict[int, str] = {}
        self._committed = CommittedEnds(findings)

    def scan(self, events: Iterable[Event]) -> None:
        """Report what went back."""
        for event in events:
            kind, source = event.get("kind"), str(event.get("source"))
            if kind == "broker" and event.get("state") == "starting":
                # Its state is known from its disk only; it must still not fall below its former epoch.
                for (of, _), replica in self._replicas.items():
                    if of == source:
                        replica.role, replica.high_watermark, replica.epochs = "", -1, []
            elif kind == RESTORE:
                self._replicas.clear()
                self._leaders.clear()
                self._topic_ids.clear()
                self._committed.forget()
            elif event.get("topic") == self._topic:
                partition = int(event["partition"])
                if kind == "election":
                    if event.get("leader_epoch") == 0:
                        self._begin_again(partition)
                    self._committed.election(event)
                replica = self._replicas.setdefault((source, partition), _Replica())
                if kind == "role":
                    self._role(event, source, partition, replica)
                elif kind == "high_watermark":
                    self._high_watermark(event, source, partition, replica)
                elif kind == "epoch":
                    self._epoch(event, source, partition, replica)
                elif kind == "truncation":
                    replica.epochs = _left_by(event, replica.epochs)

    def _role(self, event: Event, source: str, partition: int, replica: _Replica) -> None:
        role, epoch = str(event["role"]), int(event["leader_epoch"])
        topic_id = str(event.get("topic_id", "")) or self._topic_ids.get(partition, "")
        is_another_topic = topic_id != self._topic_ids.setdefault(partition, topic_id)
        self._topic_ids[partition] = topic_id
        if is_another_topic or (epoch == 0 and replica.leader_epoch > 0):
            self._begin_again(partition)
            replica = self._replicas[source, partition]
        if 0 <= epoch < replica.leader_epoch:
            self._findings.add(
                Kind.EPOCH_BACK,
                partition,
                NO_OFFSET,
                "{} went from leader epoch {} to {} at {} ms",
                source,
                replica.leader_epoch,
                epoch,
                event.get("time_ms"),
            )
        if role != LEADER or replica.role != LEADER or epoch != replica.leader_epoch:
            replica.high_watermark = -1
        replica.role, replica.leader_epoch = role, epoch
        if role == LEADER:
            self._committed.leads(source, event)
            other = self._leaders.setdefault((partition, epoch), source)
            if other != source:
                self._findings.add(
                    Kind.TWO_LEADERS, partition, NO_OFFSET, "{} and {} both led in epoch {}", other, source, epoch
                )

    def _begin_again(self, partition: int) -> None:
        """Start again: the topic was deleted and created again (rule 2)."""
        for place in [place for place in self._replicas if place[1] == partition]:
            self._replicas[place] = _Replica()
        for led in [led for led in self._leaders if led[0] == partition]:
            del self._leaders[led]
        self._committed.forget(partition)

    def _high_watermark(self, event: Event, source: str, partition: int, replica: _Replica) -> None:
        old, new = int(event["old"]), int(event["new"])
        before = max(old, replica.high_watermark)
        if replica.role == LEADER and new < before:
            self._findings.add(
                Kind.HIGH_WATERMARK_BACK,
                partition,
                new,
                "{}, leader in epoch {}, went from high watermark {} to {} at {} ms",
                source,
                replica.leader_epoch,
                before,
                new,
                event.get("time_ms"),
            )
        replica.high_watermark = new
        if replica.role == LEADER:
            self._committed.high_watermark(source, partition, replica.leader_epoch, new)

    def _epoch(self, event: Event, source: str, partition: int, replica: _Replica) -> None:
        entry = (int(event["leader_epoch"]), int(event["start_offset"]))
        # A conflicting entry, at or above the new one's start, is replaced (KIP-320).
        replica.epochs = [known for known in replica.epochs if known[1] < entry[1]]
        if replica.epochs and entry[0] <= replica.epochs[-1][0]:
            self._findings.add(
                Kind.EPOCH_BACK,
                partition,
                entry[1],
                "{} noted epoch {} from offset {} on, after epoch {} from offset {} on",
                source,
                *entry,
                *replica.epochs[-1],
            )
        replica.epochs.append(entry)


def _left_by(truncation: Event, epochs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the epoch cache after a truncation (rule 3); older brokers note no log start offset."""
    new = int(truncation["new"])
    begins_again = new >= int(truncation["old"]) or truncation.get("log_start_offset") == new
    return [] if begins_again else [entry for entry in epochs if entry[1] < new]


def check_events(topic: str, events: Iterable[Event], findings: Findings) -> None:
    """Report high watermarks and epochs that went back, and epochs with two leaders; ``events`` by time."""
    EventScan(topic, findings).scan(events)


def check_epochs_along(log: CommittedLog, findings: Findings) -> None:
    """Report where the leader epoch falls along the log (rule 4)."""
    highest = -1
    for record in log.records:
        if record.leader_epoch < highest:
            findings.add(
                Kind.EPOCH_BACK,
                log.partition,
                record.offset,
                "offset {} is of leader epoch {}, behind records of epoch {}",
                record.offset,
                record.leader_epoch,
                highest,
            )
        highest = max(highest, record.leader_epoch)
