"""The event log: what changed, when and why, one JSON object a line. One schema for brokers and the lab.

Every line has
    ``time_ms``   wall clock of the process that wrote it, integer ms since 1970
    ``logical_time``  microseconds of the logical clock that goes with the brokers' calls (``tidegauge.logical_clock``):
                  an event that was caused by another, in any process, has the larger value
    ``sequence``  rises by one with each line of a process
    ``source``    ``broker-N``, ``controller-N`` (of a KRaft quorum) or ``lab``
    ``kind``      one of the kinds below
    ``cause``     what made it happen, in the words of the message or timer: ``LeaderAndIsr``, ``Produce``,
                  ``Fetch``, ``FetchResponse``, ``AlterPartition``, ``IsrExpiration``, ``Startup``, ...
and, if they apply, ``topic``, ``partition``, and the kind's own fields.

| kind | fields |
|---|---|
| ``broker`` | ``state``: starting, registered, shutting-down, stopped; ``broker_epoch`` |
| ``session`` | ``state``: connected, suspended, lost |
| ``quorum`` | ``state``: of a controller in its KRaft quorum; ``epoch``, ``leader`` (-1 none), ``log_end_offset`` |
| ``controller`` | ``state``: elected, resigned; ``controller_epoch`` |
| ``election`` | ``strategy``, ``leader`` (-1 none), ``leader_epoch``, ``isr``: the controller's decision |
| ``reassignment`` | ``state``: started, replaced, cancelled, completed, failed; ``replicas``, ``adding``, ``removing``|
| ``role`` | ``role``: leader, follower, offline; ``leader`` (-1 none), ``leader_epoch``; except offline also |
| | ``replicas``, ``topic_id``, ``min_insync_replicas``, and the log: ``log_start_offset``, |
| | ``last_stable_offset``, ``high_watermark``, ``log_end_offset``, ``epochs`` |
| ``epoch`` | ``leader_epoch``, ``start_offset``: an entry came into the epoch cache |
| ``isr`` | ``old``, ``new``, ``state``: committed, pending-expand, pending-shrink; ``partition_epoch`` |
| ``min_insync_replicas`` | ``resource``: a topic of which the broker has replicas; ``old``, ``new``: its setting |
| ``high_watermark`` | ``old``, ``new`` |
| ``last_stable_offset`` | ``old``, ``new``, ``high_watermark``: open transactions hold it below the high watermark |
| ``log_end_offset`` | ``old``, ``new`` |
| ``truncation`` | ``old``, ``new``: log end offsets; ``log_start_offset``: where the log begins now |
| ``log_start_offset`` | ``old``, ``new`` |
| ``coordinator`` | ``state``: loading, active, unloaded; ``leader_epoch``, ``groups``: of a partition of groups |
| ``group`` | ``group``: its id; ``old``, ``new``: states; ``generation``, ``members``, ``reason`` of a rebalance |
| ``share`` | ``group``; ``state``: initializing, active, failed, fenced; ``leader_epoch``, ``start_offset``, |
| | ``end_offset``, ``delivery_count_limit``, ``unwritten``: writes in flight; ``records`` in flight, each range as |
| | first and last offset, state, deliveries, member (null: none), whether it is being written; ``has_more``; |
| | ``changed``: the ranges that are new |
| ``refusal`` | ``request``: a control request, or AlterPartition; ``error``; ``leader_epoch`` of the request; |
| | ``topic_id`` of the request and ``own_topic_id`` of the replica, if they differ |
| ``fault`` | ``action``, ``broker``, ``process``: what the lab did, as below |
| ``restore`` | ``snapshot``: its name; ``taken_ms``: when it was taken. All later changes are undone |

A fault is written by the lab itself (kill, stop, pause, resume, start, power-cut) or by the broker that it is in:
hold-fetch, release-fetch, step-fetch (with ``until``), sync, isolate, inject-error, hold-requests, inject-disk,
skew-clock, clear-fault (with ``fault``, its number, and ``text``), expire-session (with ``session``).

``high_watermark`` and ``log_end_offset`` may be merged over a short time: the last change of a run stands for all, with
the first one's ``old``, and ``changes`` counts them (``tidegauge.merged_offsets``). At every line of a file the high
watermark of each replica is at or below its log end offset. All others are written one by one, in order. Files are
bounded: at ``MAX_BYTES`` a file moves to ``.1``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MAX_BYTES = 16 * 1024 * 1024

KINDS = frozenset(
    {
        "broker",
        "session",
        "quorum",
        "controller",
        "fencing",
        "election",
        "elr",
        "reassignment",
        "role",
        "epoch",
        "isr",
        "min_insync_replicas",
        "high_watermark",
        "last_stable_offset",
        "log_end_offset",
        "truncation",
        "log_start_offset",
        "coordinator",
        "group",
        "offsets",
        "share",
        "transaction",
        "refusal",
        "fault",
        "restore",
    }
)
REPAIRS = frozenset({"start", "resume", "release-fetch", "step-fetch", "sync", "clear-fault"})
"""Actions of a ``fault`` line that do no harm: they undo a fault, or let a held replica continue by a step."""
_LAST_TIME_US = 253_402_214_400_000_000
"""The end of the year 9999, UTC: no calendar shows a later time."""
MERGEABLE_KINDS = frozenset({"high_watermark", "log_end_offset"})


def file_name(source: str) -> str:
    """Return the name of a source's event log inside a cluster's ``logs`` directory."""
    return f"{source}.events.jsonl"


def is_harm(event: Mapping[str, Any]) -> bool:
    """Whether an event is something that the lab did to the cluster's harm: a kill or a fault, and no repair."""
    return event.get("kind") == "fault" and event.get("action") not in REPAIRS


def read_line(line: str | bytes) -> dict[str, Any] | None:
    """Return the event in a line; None if it can't be ordered.

    Such is a half-written line. A cluster's directory may come from elsewhere, so the fields that order and date
    events are checked here.
    """
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict):
        return None
    limits = {"logical_time": _LAST_TIME_US, "time_ms": _LAST_TIME_US // 1000, "sequence": _LAST_TIME_US}
    if not all(type(one := event.get(name, 0)) is int and 0 <= one < most for name, most in limits.items()):
        return None
    return event if all(isinstance(event.get(name, ""), str) for name in ("kind", "source", "cause")) else None


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Read a source's events, oldest first, the moved-away part included.

    An incomplete last line (its writer was killed) is left out. A missing file has no events.
    """
    for part in (path.with_name(path.name + ".1"), path):
        try:
            lines = part.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            continue
        for line in lines:
            if (event := read_line(line)) is not None:
                yield event


def read_directory(directory: Path) -> list[dict[str, Any]]:
    """Return all events of a cluster's ``logs`` directory, in causal order."""
    events = [event for path in sorted(directory.glob("*.events.jsonl")) for event in read_events(path)]
    events.sort(key=causal_key)
    return events


def causal_key(event: Mapping[str, Any]) -> tuple[int, str, int]:
    """Return a sort key that puts no event before its cause.

    Unrelated events are sorted by time, source and sequence.
    """
    logical_time = event.get("logical_time", event.get("time_ms", 0) * 1000)
    return logical_time, str(event.get("source")), event.get("sequence", 0)


def broker_of(event: Mapping[str, Any]) -> int | None:
    """Return the broker that wrote an event, or that it concerns."""
    source = str(event.get("source", ""))
    if source.startswith("broker-") and source[7:].isdecimal():
        return int(source[7:])
    broker = event.get("broker")
    return broker if isinstance(broker, int) else None
