"""Evidence for a lab's check: the state of a cluster at one moment, and all its events since the lab began. Pure.

A check never asks what the learner typed. It sees what brokers, logs on disk and event logs say, so any way that leads
there counts, and a command that had no effect does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegauge.partition import TopicPartition
from tidegauge_lab.scenario.facts import Facts

Event = Mapping[str, Any]
"""A line of an event log (docs/events.md)."""
NO_LEADER = -1
_NOTHING = Facts(leader=NO_LEADER, epoch=-1, isr=(), replicas={}, logs={}, assigned=())


class StoredRecord(NamedTuple):
    """A record in a replica's files.

    Attributes:
        offset: its offset.
        key: as text; None without one.
        value: as text; None is a tombstone.
        leader_epoch: of its batch.
    """

    offset: int
    key: str | None
    value: str | None
    leader_epoch: int = 0


class Member(NamedTuple):
    """A member of a consumer group; the instance id of a static one, else empty."""

    client_id: str
    instance_id: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group, as its coordinator has it now.

    Attributes:
        state: Stable, Empty, ...
        generation: of its last rebalance.
        members: who is in it.
        committed: offsets by partition.
        coordinator: the broker that has it.
    """

    state: str
    generation: int
    members: tuple[Member, ...] = ()
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    coordinator: int = -1


@dataclass(frozen=True, slots=True)
class Evidence:
    """The cluster now, and how it came there.

    Attributes:
        events: of all brokers and of the lab, since the cluster was started, in causal order.
        processes: ``up``, ``paused`` or ``down`` by broker id.
        partitions: each partition's state in the cluster's and in each replica's view.
        records: by partition and broker, read from its files; a dead broker's too.
        controller: the active one; None while there is none.
        controller_epoch: of the newest metadata; -1 if no broker responds.
        groups: by id.
        held: by partition, the followers whose fetches are held.
        kafka_addresses: ``host:port`` by broker id, as Kafka clients get them.
        kafka_reachable: brokers at whose address the cluster can be reached.
    """

    events: Sequence[Event] = ()
    processes: Mapping[int, str] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, Facts] = field(default_factory=dict)
    records: Mapping[tuple[TopicPartition, int], Sequence[StoredRecord]] = field(default_factory=dict)
    controller: int | None = None
    controller_epoch: int = -1
    groups: Mapping[str, Group] = field(default_factory=dict)
    held: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    kafka_addresses: Mapping[int, str] = field(default_factory=dict)
    kafka_reachable: frozenset[int] = frozenset()

    def partition(self, at: TopicPartition) -> Facts:
        """Return a partition's state; if unknown, one without leader and replicas."""
        return self.partitions.get(at, _NOTHING)

    def records_of(self, at: TopicPartition, broker: int) -> Sequence[StoredRecord]:
        """Return the records in a replica's files."""
        return self.records.get((at, broker), ())

    def leaders_records(self, at: TopicPartition) -> Sequence[StoredRecord]:
        """Return the records in the leader's files; none without a leader."""
        return self.records_of(at, self.partition(at).leader)

    def of(self, kind: str, at: TopicPartition | None = None, **wanted: object) -> Iterator[Placed]:
        """Yield the events of a kind, partition and fields, with their causal places."""
        for place, event in enumerate(self.events):
            if event.get("kind") != kind or (at is not None and partition_of(event) != at):
                continue
            if all(event.get(name) == value for name, value in wanted.items()):
                yield Placed(place, event)


class Placed(NamedTuple):
    """An event and its place among all, by which events are compared; a later one has the larger place."""

    place: int
    event: Event

    @property
    def broker(self) -> int:
        """The broker that wrote it; -1 where the lab did."""
        source = str(self.event.get("source", ""))
        return int(source.removeprefix("broker-")) if source.startswith("broker-") else -1

    @property
    def time_ms(self) -> int:
        """When, by the clock of its writer."""
        return int(self.event.get("time_ms", 0))

    @property
    def old(self) -> int:
        """The value before, of an offset."""
        return int(self.event.get("old", 0))

    @property
    def new(self) -> int:
        """The value after, of an offset."""
        return int(self.event.get("new", 0))


def partition_of(event: Event) -> TopicPartition | None:
    """Return the partition of an event; None if it is about the broker."""
    return TopicPartition(str(event["topic"]), int(event["partition"])) if "topic" in event else None


def isr_changes(evidence: Evidence, at: TopicPartition) -> list[tuple[Placed, frozenset[int]]]:
    """Return the committed in-sync replicas as leaders had them, one after the other."""
    return [(one, frozenset(one.event.get("new", ()))) for one in evidence.of("isr", at, state="committed")]


def deaths(evidence: Evidence) -> list[tuple[Placed, int]]:
    """Return which brokers were killed, paused or stopped, and when."""
    actions = {"kill", "pause", "stop"}
    return [
        (one, int(one.event["broker"]))
        for one in evidence.of("fault")
        if one.event.get("action") in actions and one.event.get("broker") is not None
    ]


def appended(evidence: Evidence, at: TopicPartition, after: int, before: int) -> Iterator[Placed]:
    """Return what leaders of a partition appended for producers between two places."""
    return (one for one in evidence.of("log_end_offset", at, cause="Produce") if after < one.place < before)


def committed(evidence: Evidence, at: TopicPartition, end: int) -> Placed | None:
    """Return the first event of a leader's high watermark at or above an end."""
    leading: int | None = None
    for place, event in enumerate(evidence.events):
        if partition_of(event) != at:
            continue
        one = Placed(place, event)
        if event.get("kind") == "election":
            leading = event.get("leader")
        elif event.get("kind") == "high_watermark" and one.broker == leading and one.new >= end:
            return one
    return None


def seconds_between(first: Placed, second: Placed) -> str:
    """Return the time between two events for a sentence: ``3.5 s``."""
    return f"{max(0, second.time_ms - first.time_ms) / 1000:.1f} s"
