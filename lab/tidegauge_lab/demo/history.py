"""Which broker led when, and how long none did: computed from the event logs, by the clocks of this machine.

A partition is without a leader from the moment its leader was killed (the lab's ``fault`` event) until another broker
notes that it leads (its ``role`` event with a higher leader epoch). Clients need a little longer: they must hear of it.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegauge.partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Leadership:
    """One broker's time as leader of a partition."""

    topic_partition: TopicPartition
    leader: int
    leader_epoch: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without a leader."""

    topic_partition: TopicPartition
    lost_leader: int
    new_leader: int
    milliseconds: int


def leaderships(events: Iterable[Mapping[str, Any]], topic: str) -> list[Leadership]:
    """All leaders of a topic's partitions, by partition and epoch."""
    found = [
        Leadership(
            TopicPartition(topic, int(event["partition"])),
            int(str(event["source"]).removeprefix("broker-")),
            int(event["leader_epoch"]),
            int(event["time_ms"]),
        )
        for event in events
        if event.get("kind") == "role" and event.get("role") == "leader" and event.get("topic") == topic
    ]
    return sorted(found, key=lambda entry: (entry.topic_partition, entry.leader_epoch, entry.since_ms))


def gaps(events: Iterable[Mapping[str, Any]], topic: str) -> list[Gap]:
    """For each kill: each partition that the victim led, and how long it was without a leader."""
    known = list(events)
    history = leaderships(known, topic)
    found: list[Gap] = []
    for fault in known:
        if fault.get("kind") != "fault" or fault.get("action") != "kill" or not isinstance(fault.get("broker"), int):
            continue
        killed_at_ms, victim = int(fault["time_ms"]), int(fault["broker"])
        for partition in sorted({entry.topic_partition for entry in history}):
            own = [entry for entry in history if entry.topic_partition == partition]
            before = [entry for entry in own if entry.since_ms <= killed_at_ms]
            after = [entry for entry in own if entry.since_ms > killed_at_ms]
            if before and before[-1].leader == victim and after:
                gap_ms = after[0].since_ms - killed_at_ms
                found.append(Gap(partition, victim, after[0].leader, gap_ms))
    return found


def history_lines(history: Iterable[Leadership], began_ms: int) -> list[str]:
    """Return the leaders' history, a line for each partition."""
    lines: dict[TopicPartition, list[str]] = {}
    for entry in history:
        seconds = (entry.since_ms - began_ms) / 1000
        lines.setdefault(entry.topic_partition, []).append(
            f"broker {entry.leader} (epoch {entry.leader_epoch}, {seconds:+.1f} s)"
        )
    return [f"{partition}: {' -> '.join(words)}" for partition, words in sorted(lines.items())]
