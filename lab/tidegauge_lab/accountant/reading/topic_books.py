"""Reads all that the accountant needs of a topic: the committed log, every replica, settings, event logs, reads.

Rules:
    1. The committed log is read as a consumer reads it, from the log start offset to the high watermark of the begin.
       A new leader's high watermark is waited for; a partition that keeps without a leader ends the reading.
    2. Records with acks=1 are acknowledged before they are committed: the high watermark is given some seconds to
       reach the leader's log end offset.
    3. Replicas are read as ``topic_replicas`` says, those of brokers that are down from their disks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegauge.collections_off import collections_off
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.event_log import causal_key, read_events
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import EARLIEST, LATEST, Admin
from tidegauge_client.cli.formatting import content_of
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_client.consumer import Consumer
from tidegauge_client.history import read_history
from tidegauge_lab.accountant.audit import Report, audit
from tidegauge_lab.accountant.books import Books, CommittedLog, KeptRecord, ReadRecord
from tidegauge_lab.accountant.reading.topic_replicas import read_replicas, settled_leaders
from tidegauge_lab.local import layout

POLL_MS = 200.0
POLL_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the books come from.

    Attributes:
        histories: files of ``produce --history``; empty: none.
        reads: files of ``consume -o json``; empty: none.
        event_logs: the folder of a local cluster's event logs.
        log_folders: of a local cluster's brokers; a broker that does not answer is read from there.
        is_complete: the histories hold everything that was written.
        timeout_ms: how long a leader, or the next record, is waited for.
    """

    histories: Sequence[Path] = ()
    reads: Sequence[Path] = ()
    event_logs: Path | None = None
    log_folders: Mapping[int, Path] = field(default_factory=dict)
    is_complete: bool = False
    timeout_ms: int = 30_000


def folders_of(directory: Path, file: ClusterFile) -> dict[int, Path]:
    """The log folders of a local cluster's brokers."""
    return {broker.id: layout.broker_data(directory, broker.id) for broker in file.brokers}


async def read_and_audit(bootstrap: Sequence[str], topic: str, sources: Sources) -> Report:
    """Read everything, and check it; what could not be read is among what was not checked.

    Raises:
        TidegaugeError: as ``read_books``.
    """
    with collections_off():  # books are millions of small objects without cycles
        reading = await read_books(bootstrap, topic, sources)
        report = audit(reading.books)
    report.not_checked += reading.not_read
    return report


@dataclass(slots=True)
class Reading:
    """The books, and what could not be read."""

    books: Books
    not_read: list[str] = field(default_factory=list)


async def read_books(bootstrap: Sequence[str], topic: str, sources: Sources) -> Reading:
    """Read everything.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION; no broker answers; a partition has no leader in time; a history
            can't be read.
    """
    history = read_history(sources.histories, topic) if sources.histories else None
    reads = [read for path in sources.reads for read in read_consumed(path, topic)] if sources.reads else None
    not_read: list[str] = []
    if history is not None and history.damaged_lines and not history.records:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"{', '.join(map(str, sources.histories))} can't be read: it does not hold lines of `produce --history`",
        )
    if history is not None and history.damaged_lines:
        not_read.append(f"{history.damaged_lines} damaged lines of the history")
    if history is not None and not history.records:
        not_read.append(f"the history says nothing of topic {topic}")
    async with Admin(bootstrap, request_timeout_ms=sources.timeout_ms) as admin:
        (info,) = await admin.describe_topics([topic])
        settings = {config.name: config.value for config in await admin.describe_topic_config(topic)}
        ends = await admin.list_offsets({part.topic_partition: LATEST for part in info.partitions.values()})
        leaders = (await settled_leaders(admin, topic)).by_partition
        watermarks = {partition: leading.high_watermark for partition, leading in leaders.items()}
        committed = {tp: max(found.offset, watermarks.get(tp.partition, -1)) for tp, found in ends.items()}
        records = await _read_committed(bootstrap, committed, sources.timeout_ms)
        starts = await admin.list_offsets(dict.fromkeys(committed, EARLIEST))
        is_compacted = "compact" in settings.get("cleanup.policy", "")
        replicas = await read_replicas(admin, info, sources.log_folders, is_compacted=is_compacted)
        not_read += replicas.not_read
    logs = {
        tp.partition: CommittedLog(
            tp.partition,
            starts[tp].offset if tp in starts else 0,
            end,
            records[tp],
            has_own_timestamps=settings.get("message.timestamp.type") != "LogAppendTime",
            is_compacted=is_compacted,
            log_end_offset=leaders[tp.partition].log_end_offset if tp.partition in leaders else end,
        )
        for tp, end in committed.items()
    }
    factor = min((len(part.replicas) for part in info.partitions.values()), default=1)
    books = Books(
        topic=topic,
        sent=None if history is None else history.records,
        logs=logs,
        replicas=replicas.logs,
        reads=reads,
        events=None if sources.event_logs is None else _events(sources.event_logs, topic),
        min_isr=min(int(settings.get("min.insync.replicas", "1")), factor),
        is_complete=sources.is_complete,
        previews=replicas.previews,
    )
    return Reading(books, not_read)


# The committed log


async def _read_committed(
    bootstrap: Sequence[str], ends: Mapping[TopicPartition, int], timeout_ms: int
) -> dict[TopicPartition, list[KeptRecord]]:
    """All records below these ends (rule 1)."""
    records: dict[TopicPartition, list[KeptRecord]] = {tp: [] for tp in ends}
    async with Consumer(bootstrap, auto_offset_reset="earliest", max_poll_records=POLL_RECORDS) as consumer:
        consumer.assign(ends)
        last_progress = time.monotonic()
        while behind := [tp for tp, end in ends.items() if await consumer.position(tp, timeout_ms=timeout_ms) < end]:
            polled = await consumer.poll(POLL_MS)
            for record in polled:
                tp = TopicPartition(record.topic, record.partition)
                if record.offset < ends[tp]:
                    records[tp].append(
                        KeptRecord(record.offset, record.key, record.value, record.timestamp_ms, record.leader_epoch)
                    )
            if polled:
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > timeout_ms / 1000:
                raise TidegaugeError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{behind[0]} can't be read to its high watermark {ends[behind[0]]}: nothing came for "
                    f"{timeout_ms} ms",
                )
    return records


# Event logs, and what consumers read


def _events(folder: Path, topic: str) -> list[dict[str, Any]]:
    """The events of a topic, and of brokers as such, in causal order."""
    events = [
        event
        for path in sorted(folder.glob("*.events.jsonl"))
        for event in read_events(path)
        if event.get("topic") in {None, topic}
    ]
    events.sort(key=causal_key)
    return events


def read_consumed(path: Path, topic: str) -> Iterator[ReadRecord]:
    """The lines of ``consume -o json`` that are of a topic.

    Raises:
        TidegaugeError: INVALID_REQUEST, the file can't be read, or a line is no record.
    """
    try:
        with path.open("rb") as file:
            yield from _consumed(file, topic)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it does not hold lines of `consume -o json`"
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"{path} can't be read: {why}") from None


def _consumed(lines: Iterable[bytes], topic: str) -> Iterator[ReadRecord]:
    for raw in lines:
        if not raw.endswith(b"\n"):
            return  # its writer was killed in this line
        line: dict[str, Any] = json.loads(raw)
        if line["topic"] == topic:
            yield ReadRecord(
                int(line["partition"]), int(line["offset"]), content_of(line["key"]), content_of(line["value"])
            )
