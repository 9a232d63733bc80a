"""Figures about a cluster's replication, from its brokers' event logs: the Spark job's, in one process. Pure.

The definitions are in ``tidegauge_spark.replication_tables``: what a leadership is, when a partition is leaderless,
how long it is under min ISR, and how the high-watermark lag is weighted. A field that is missing or has another form
than an event's counts as absent: a line that was damaged changes no other figure.
Source: docs/events.md for the fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from tidegauge.event_log import broker_of
from tidegauge.partition import TopicPartition
from tidegauge.replication_report import PERCENTILES, elections_of

_Event = Mapping[str, Any]
_ENDS = frozenset({"kill", "pause"})
_RETURNS = frozenset({"resume", "start"})


@dataclass(slots=True)
class _Leadership:
    """A leader epoch of a partition; ``leader`` below 0: the controller found none."""

    leader: int
    from_ms: int
    strategy: str | None
    to_ms: int = 0
    leader_before: int | None = None

    @property
    def changes_leader(self) -> bool:
        """Whether another broker leads than before, or the first one."""
        return self.leader >= 0 and self.leader != self.leader_before


class _Moment(NamedTuple):
    """A value at a time."""

    time_ms: int
    value: int


class _Fault(NamedTuple):
    """An action of the lab on a broker at a time."""

    time_ms: int
    action: object
    broker: int | None


def figures_of(events: Iterable[_Event], min_isr: int, topics: AbstractSet[str] = frozenset()) -> dict[str, Any]:
    """Return the report on these events; its keys are the same as in ``tidegauge.replication_report``.

    Args:
        events: of all event logs, in any order.
        min_isr: min.insync.replicas to compare with, for all topics and times.
        topics: only these; empty: all.
    """
    kept = [one for one in events if _whole(one, "time_ms") is not None and isinstance(one.get("kind"), str)]
    kept = [one for one in kept if not topics or one.get("topic") is None or one["topic"] in topics]
    kept.sort(key=lambda one: (int(one["time_ms"]), _whole(one, "sequence") or 0))
    last_ms = int(kept[-1]["time_ms"]) if kept else 0
    leaderships = _leaderships(kept, last_ms)
    changes: dict[tuple[int, str], int] = {}
    for led in (one for of_partition in leaderships.values() for one in of_partition if one.changes_leader):
        key = led.leader, led.strategy or "new"
        changes[key] = changes.get(key, 0) + 1
    faults = [
        _Fault(int(one["time_ms"]), one.get("action"), _whole(one, "broker")) for one in kept if one["kind"] == "fault"
    ]
    isr_sizes = _isr_sizes(kept)
    offsets = _offsets(kept)
    return {
        "events": len(kept),
        "from_ms": int(kept[0]["time_ms"]) if kept else None,
        "to_ms": last_ms if kept else None,
        "min_insync_replicas": min_isr,
        "partitions": [
            {
                "topic": at.topic,
                "partition": at.partition,
                "leader_changes": sum(one.changes_leader and one.leader_before is not None for one in of_partition),
                "leaderless_ms": _leaderless_ms(of_partition, faults),
                **_under_min_isr(isr_sizes.get(at, []), min_isr, last_ms),
                "hw_lag": _hw_lag(of_partition, offsets.get(at, {})),
            }
            for at, of_partition in sorted(leaderships.items())
        ],
        "elections": elections_of((broker, kind, count) for (broker, kind), count in sorted(changes.items())),
        "truncations": _truncations(kept),
    }


def _whole(event: _Event, name: str) -> int | None:
    value = event.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _partition_of(event: _Event) -> TopicPartition | None:
    topic, partition = event.get("topic"), _whole(event, "partition")
    return TopicPartition(topic, partition) if isinstance(topic, str) and partition is not None else None


def _leaderships(events: Sequence[_Event], last_ms: int) -> dict[TopicPartition, list[_Leadership]]:
    """Return the leaderships of each partition in the order of their epochs."""
    found: dict[TopicPartition, dict[int, _Leadership]] = {}
    for event in events:
        is_role = event["kind"] == "role" and event.get("role") == "leader"
        leader, epoch, at = _whole(event, "leader"), _whole(event, "leader_epoch"), _partition_of(event)
        if at is None or leader is None or epoch is None:
            continue
        if event["kind"] != "election" and not (is_role and leader == broker_of(event)):
            continue
        strategy = event.get("strategy") if isinstance(event.get("strategy"), str) else None
        led = found.setdefault(at, {}).setdefault(epoch, _Leadership(leader, int(event["time_ms"]), strategy))
        led.leader = max(led.leader, leader)
        led.strategy = max(filter(None, (led.strategy, strategy)), default=None)
    ordered = {at: [by_epoch[one] for one in sorted(by_epoch)] for at, by_epoch in found.items()}
    for of_partition in ordered.values():
        for earlier, later in pairwise(of_partition):
            earlier.to_ms, later.leader_before = later.from_ms, earlier.leader
        of_partition[-1].to_ms = last_ms
    return ordered


def _leaderless_ms(of_partition: Sequence[_Leadership], faults: Sequence[_Fault]) -> int:
    """Return how long a partition had no leader that lived."""
    total_ms = 0
    for led in of_partition:
        if led.leader < 0:
            total_ms += max(led.to_ms - led.from_ms, 0)
            continue
        ends = (time_ms for time_ms, action, broker in faults if broker == led.leader and action in _ENDS)
        death_ms = min((one for one in ends if led.from_ms <= one < led.to_ms), default=None)
        if death_ms is not None:
            back = (time_ms for time_ms, action, broker in faults if broker == led.leader and action in _RETURNS)
            total_ms += min((one for one in back if death_ms < one < led.to_ms), default=led.to_ms) - death_ms
    return total_ms


def _isr_sizes(events: Sequence[_Event]) -> dict[TopicPartition, list[_Moment]]:
    """Return the sizes of each partition's committed ISR, and when it had them."""
    found: dict[TopicPartition, list[_Moment]] = {}
    for event in events:
        at = _partition_of(event)
        is_committed = event["kind"] == "isr" and event.get("state") == "committed"
        isr = event.get("new") if is_committed else event.get("isr") if event["kind"] == "election" else None
        if at is not None and isinstance(isr, list):
            moment = _Moment(int(event["time_ms"]), len(isr))
            found.setdefault(at, []).append(moment)
    return found


def _under_min_isr(sizes: Sequence[_Moment], min_isr: int, last_ms: int) -> dict[str, int | None]:
    ends = [*(one.time_ms for one in sizes[1:]), last_ms]
    under = sum(end - one.time_ms for one, end in zip(sizes, ends, strict=False) if one.value < min_isr)
    return {"under_min_isr_ms": under, "smallest_isr": min((one.value for one in sizes), default=None)}


def _offsets(events: Sequence[_Event]) -> dict[TopicPartition, dict[int, list[_Moment]]]:
    """Return each replica's lag, log end offset minus high watermark, at each change."""
    known: dict[tuple[TopicPartition, int], dict[str, int]] = {}
    found: dict[TopicPartition, dict[int, list[_Moment]]] = {}
    for event in events:
        at, broker, new = _partition_of(event), broker_of(event), _whole(event, "new")
        if at is None or broker is None or event["kind"] not in {"log_end_offset", "high_watermark"}:
            continue
        last = known.setdefault((at, broker), {})
        if new is not None:
            last[event["kind"]] = new
        if len(last) == 2:
            lag = max(last["log_end_offset"] - last["high_watermark"], 0)
            moment = _Moment(int(event["time_ms"]), lag)
            found.setdefault(at, {}).setdefault(broker, []).append(moment)
    return found


def _hw_lag(of_partition: Sequence[_Leadership], lags: Mapping[int, Sequence[_Moment]]) -> dict[str, float] | None:
    """Return the percentiles of the leaders' lag; None if none is known."""
    weighted: list[tuple[int, int]] = []
    for led in of_partition:
        own = [one for one in lags.get(led.leader, []) if led.from_ms <= one.time_ms <= led.to_ms]
        ends = [*(one.time_ms for one in own[1:]), led.to_ms]
        weighted += ((one.value, max(end - one.time_ms, 1)) for one, end in zip(own, ends, strict=False))
    if not weighted:
        return None
    weighted.sort()
    named = {f"p{int(share * 100)}": _percentile(weighted, share) for share in PERCENTILES}
    return named | {"max": weighted[-1][0]}


def _percentile(weighted: Sequence[tuple[int, int]], share: float) -> float:
    """Return a weighted percentile, interpolated between two values."""
    place = (sum(weight for _, weight in weighted) - 1) * share
    below, above = _value_at(weighted, int(place)), _value_at(weighted, -int(-place // 1))
    return float(below + (above - below) * (place - int(place)))


def _value_at(weighted: Sequence[tuple[int, int]], place: int) -> int:
    for value, weight in weighted:
        if place < weight:
            return value
        place -= weight
    return weighted[-1][0]


def _truncations(events: Sequence[_Event]) -> list[dict[str, int]]:
    found: dict[int, tuple[int, int]] = {}
    for event in events:
        broker, old, new = broker_of(event), _whole(event, "old"), _whole(event, "new")
        if event["kind"] == "truncation" and broker is not None:
            times, records = found.get(broker, (0, 0))
            found[broker] = times + 1, records + ((old or 0) - (new or 0) if None not in {old, new} else 0)
    return [
        {"broker": broker, "truncations": times, "records": records}
        for broker, (times, records) in sorted(found.items())
    ]
