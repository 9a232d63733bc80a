"""Small histories and logs, written short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegauge_client.sent_record import SentRecord
from tidegauge_lab.accountant.audit import Report, audit
from tidegauge_lab.accountant.books import Books, CommittedLog, KeptRecord, Kind, Mark, ReplicaLog


def sent(number: int, value: str | None = None, outcome: str = "ok", **fields: Any) -> SentRecord:
    """Record ``number`` of producer p: handed over at 10 * number us, acknowledged 5 us later, kept at its number."""
    defaults: dict[str, Any] = {
        "producer": "p",
        "key": None,
        "timestamp_ms": number,
        "acks": "all",
        "is_idempotent": True,
        "invoked_us": 10 * number,
        "completed_us": 10 * number + 5,
        "partition": 0 if outcome == "ok" else -1,
        "offset": number if outcome == "ok" else -1,
        "error": "" if outcome == "ok" else "SOME_ERROR",
    }
    content = (f"v{number}" if value is None else value).encode()
    return SentRecord(number=number, value=content, outcome=outcome, **{**defaults, **fields})


def kept(offset: int, value: str | None = None, timestamp_ms: int | None = None, **fields: Any) -> KeptRecord:
    """A record at an offset, as the record of that number was sent."""
    stamp = int(value[1:]) if timestamp_ms is None and value and value[1:].isdigit() else timestamp_ms
    defaults: dict[str, Any] = {"key": None, "leader_epoch": 0}
    return KeptRecord(
        offset=offset,
        value=(f"v{offset}" if value is None else value).encode(),
        timestamp_ms=offset if stamp is None else stamp,
        **{**defaults, **fields},
    )


def log(
    *records: KeptRecord, start: int = 0, end: int | None = None, partition: int = 0, **fields: Any
) -> CommittedLog:
    """A partition that ends behind its last record."""
    last = records[-1].offset + 1 if records else start
    return CommittedLog(partition, start, last if end is None else end, records, **fields)


def values(*names: str) -> list[KeptRecord]:
    """Records at offsets 0, 1, ..."""
    return [kept(offset, name) for offset, name in enumerate(names)]


def replica(broker: int, *marks: Mark, **fields: Any) -> ReplicaLog:
    """A replica in epoch 0 whose high watermark is its end; broker 0 leads, all are in sync."""
    end = marks[-1].next_offset if marks else 0
    defaults: dict[str, Any] = {
        "partition": 0,
        "is_leader": broker == 0,
        "in_isr": True,
        "leader_epoch": 0,
        "log_start_offset": 0,
        "high_watermark": end,
        "log_end_offset": end,
    }
    return ReplicaLog(broker=broker, marks=marks, **{**defaults, **fields})


def mark(base: int, end: int, crc: int = 1, epoch: int = 0) -> Mark:
    """A batch."""
    return Mark(base, end, epoch, crc)


def event(kind: str, source: int = 0, time_ms: int = 0, **fields: Any) -> dict[str, Any]:
    """A line of broker ``source``'s event log."""
    place = {} if kind == "broker" else {"topic": "t", "partition": 0}
    return {"kind": kind, "source": f"broker-{source}", "time_ms": time_ms, **place, **fields}


def leads(epoch: int, source: int = 0, time_ms: int = 0, **fields: Any) -> dict[str, Any]:
    """A broker leads three replicas, of which two must be in sync."""
    said = {"replicas": [0, 1, 2], "min_insync_replicas": 2, **fields}
    return event("role", source, time_ms, role="leader", leader=source, leader_epoch=epoch, **said)


def follows(epoch: int, source: int = 0, time_ms: int = 0) -> dict[str, Any]:
    return event("role", source, time_ms, role="follower", leader=9, leader_epoch=epoch)


def isr(
    *ids: int, source: int = 0, time_ms: int = 0, state: str = "committed", old: Sequence[int] = ()
) -> dict[str, Any]:
    return event("isr", source, time_ms, old=list(old), new=list(ids), state=state, partition_epoch=0)


def report(history: Sequence[SentRecord] | None = None, *logs: CommittedLog, **fields: Any) -> Report:
    """The audit of these books."""
    return audit(Books("t", sent=history, logs={one.partition: one for one in logs}, **fields))


def found(result: Report) -> dict[Kind, int]:
    """How often each kind was found."""
    return {kind: tally.count for kind, tally in result.tallies.items()}
