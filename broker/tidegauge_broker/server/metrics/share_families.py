"""The metrics of share groups (KIP-932) by Kafka's names: ShareGroupMetrics, SharePartitionMetrics and others. Pure.

Left out is what Kafka measures of its lock of a share partition for one fetch: here a fetch is served in one step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidegauge.partition import TopicPartition
from tidegauge.share_groups import ShareGroupState
from tidegauge_broker.server.metrics.exposition import Family, counter, gauge
from tidegauge_broker.server.metrics.meters import LoadTimes
from tidegauge_broker.server.share.counts import COUNTED

_PARTITION = "kafka_server_sharepartitionmetrics"
_COORDINATOR = "kafka_server_share_coordinator_metrics"


@dataclass(frozen=True, slots=True)
class LedShareReading:
    """A share partition that this broker leads.

    Attributes:
        in_flight: offsets from the start to the end.
        batches: of records that were acquired together.
        timed_out: records whose locks have timed out since it was loaded.
    """

    group_id: str
    at: TopicPartition
    in_flight: int
    batches: int
    timed_out: int


@dataclass(frozen=True, slots=True)
class ShareReading:
    """The share groups of a broker at one moment.

    Attributes:
        led: share partitions that it leads.
        acknowledgements: records of which members have said something, by what they said.
        sessions: of members.
        session_partitions: partitions of all sessions.
        groups: how many it coordinates, by state.
        rebalances: rises of the epochs of groups.
        writes: states that it has written as share coordinator.
        pruned: the offset up to which each partition of __share_group_state was pruned.
    """

    led: Sequence[LedShareReading] = ()
    acknowledgements: Mapping[int, int] = field(default_factory=dict[int, int])
    sessions: int = 0
    session_partitions: int = 0
    groups: Mapping[ShareGroupState, int] = field(default_factory=dict[ShareGroupState, int])
    rebalances: int = 0
    writes: int = 0
    pruned: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])


def share_families(
    now: ShareReading, loads: LoadTimes, coordinator_loads: LoadTimes, latencies: LoadTimes, now_ms: int
) -> Iterator[Family]:
    """Yield the metrics of share groups.

    Args:
        now: what there is.
        loads: times in which states were loaded by leaders.
        coordinator_loads: times in which this share coordinator loaded partitions.
        latencies: times that its writes took.
        now_ms: the present time.
    """
    yield from _groups(now, loads, now_ms)
    yield from _partitions(now.led)
    sessions = "kafka_server_sharesessioncache"
    yield gauge(f"{sessions}_sharesessionscount", "Share sessions of members.", now.sessions)
    yield gauge(f"{sessions}_sharepartitionscount", "Partitions of all share sessions.", now.session_partitions)
    yield from _coordinator(now, coordinator_loads, latencies, now_ms)


def _groups(now: ShareReading, loads: LoadTimes, now_ms: int) -> Iterator[Family]:
    name = "kafka_server_sharegroupmetrics"
    said = Family(
        f"{name}_recordacknowledgements_total", "counter", "Records of which members have said what becomes of them."
    )
    for one in COUNTED:
        said.add(now.acknowledgements.get(one, 0), ackType=one.name.capitalize())
    yield said
    yield from _times(f"{name}_partitionloadtimems", "Time in which a leader loads a state", loads, now_ms)
    by_state = Family(
        "kafka_server_group_coordinator_metrics_share_group_count", "gauge", "Share groups coordinated here, by state."
    )
    for state, count in now.groups.items():
        by_state.add(count, state=state.value.lower())
    yield by_state
    rises = "Rises of share groups' epochs by heartbeats."
    yield counter("kafka_server_group_coordinator_metrics_share_group_rebalance_count", rises, now.rebalances)


def _partitions(led: Sequence[LedShareReading]) -> Iterator[Family]:
    in_flight = Family(f"{_PARTITION}_inflightmessagecount", "gauge", "Offsets from a share partition's start to end.")
    batches = Family(f"{_PARTITION}_inflightbatchcount", "gauge", "Batches of records acquired together in flight.")
    timed_out = Family(
        f"{_PARTITION}_acquisitionlocktimeout_total", "counter", "Records whose acquisition locks have timed out."
    )
    for one in led:
        labels = {"group": one.group_id, "topic": one.at.topic, "partition": str(one.at.partition)}
        in_flight.add(one.in_flight, **labels)
        batches.add(one.batches, **labels)
        timed_out.add(one.timed_out, **labels)
    yield from (in_flight, batches, timed_out)


def _coordinator(
    now: ShareReading, coordinator_loads: LoadTimes, latencies: LoadTimes, now_ms: int
) -> Iterator[Family]:
    yield counter(f"{_COORDINATOR}_write_total", "States written by this share coordinator.", now.writes)
    yield from _times(f"{_COORDINATOR}_write_latency", "Time that these writes took", latencies, now_ms)
    meaning = "Time from an election to the end of its load"
    yield from _times(f"{_COORDINATOR}_partition_load_time", meaning, coordinator_loads, now_ms)
    pruned = Family(f"{_COORDINATOR}_last_pruned_offset", "gauge", "Offset up to which a partition was pruned.")
    for at, offset in now.pruned.items():
        pruned.add(offset, topic_partition=str(at))
    yield pruned


def _times(name: str, meaning: str, times: LoadTimes, now_ms: int) -> Iterator[Family]:
    longest, mean = times.max_and_avg(now_ms)
    yield gauge(f"{name}_max", f"{meaning}: the longest in the last minute, in ms; NaN: none.", longest)
    yield gauge(f"{name}_avg", f"{meaning}: the mean in the last minute, in ms; NaN: none.", mean)
