"""Reads all that the accountant needs of a topic: the committed log, every replica, settings, event logs, reads.

Rules:
    1. The committed log is read as a consumer reads it, from the log start offset to the high watermark of the begin.
       A new leader's high watermark is waited for; a partition that keeps without a leader ends the reading.
    2. Records with acks=1 are acknowledged before they are committed: the high watermark is given some seconds to
       reach the leader's log end offset.
    3. Replicas are read as ``topic_replicas`` says, the replicas of dead brokers from their disks.
    4. A partition whose leader can't read its own log is left out and named; the others, and the replicas, are read.
    5. Records of another topic of the same name, deleted or of another cluster, are left out and
       named; records without a topic id count, and the report says so.
    6. Records acknowledged or read between a snapshot and its restore are left out and named
       (``accountant.time_lines``).
    7. Topic ids that differ are read twice: a topic may just be created again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegauge.collections_off import collections_off
from tidegauge.counted import counted
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.event_log import causal_key, read_events
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import EARLIEST, LATEST, Admin
from tidegauge_client.cli.explain import topic_ids_of
from tidegauge_client.cli.formatting import content_of
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_client.consumer import Consumer
from tidegauge_client.history import read_history
from tidegauge_client.metadata import TopicIdentity, TopicInfo
from tidegauge_client.sent_record import NO_TIME, SentRecord
from tidegauge_client.topic_ids import TopicIds
from tidegauge_lab.accountant.audit import Report, audit
from tidegauge_lab.accountant.books import MEANINGS, Books, CommittedLog, KeptRecord, Kind, ReadRecord
from tidegauge_lab.accountant.reading.topic_replicas import LOOK_AGAIN_SECONDS, read_replicas, settled_leaders
from tidegauge_lab.accountant.time_lines import TimeLines
from tidegauge_lab.local import layout

POLL_MS = 200.0
POLL_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the books come from.

    Attributes:
        histories: files of ``produce --history``; empty: none.
        reads: files of ``consume -o json``; empty: none.
        event_logs: the directory of a local cluster's event logs.
        log_directories: of a local cluster's brokers; a broker that does not respond is read from there.
        is_complete: the histories hold everything that was written.
        timeout_ms: how long a leader, or the next record, is waited for.
    """

    histories: Sequence[Path] = ()
    reads: Sequence[Path] = ()
    event_logs: Path | None = None
    log_directories: Mapping[int, Path] = field(default_factory=dict)
    is_complete: bool = False
    timeout_ms: int = 30_000


def directories_of(directory: Path, file: ClusterFile) -> dict[int, Path]:
    """Return the log directories of a local cluster's brokers."""
    return {broker.id: layout.broker_data(directory, broker.id) for broker in file.brokers}


async def read_and_audit(bootstrap: Sequence[str], topic: str, sources: Sources) -> Report:
    """Read everything, and check it; unreadable input is listed in ``not_checked``.

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
    """Read everything; if that fails and the topic's ids differ, the error names them.

    Raises:
        TidegaugeError: as ``_read_books``.
    """
    try:
        return await _read_books(bootstrap, topic, sources)
    except TidegaugeError as problem:
        async with Admin(bootstrap, request_timeout_ms=sources.timeout_ms) as admin:
            try:
                (info,) = await admin.describe_topics([topic])
                ids = await _topic_ids(admin, info)
            except TidegaugeError:
                raise problem from None
        different = next((one.listed for one in ids.values() if one.differ), "")
        if not different:
            raise
        raise TidegaugeError(
            problem.code, f"{problem.message}. {MEANINGS[Kind.TOPIC_ID_DIFFERS].capitalize()}: {different}"
        ) from None


async def _read_books(bootstrap: Sequence[str], topic: str, sources: Sources) -> Reading:
    """Read everything.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, no broker responds, a partition has no leader in time, or a history
            can't be read.
    """
    not_read: list[str] = []
    events = None if sources.event_logs is None else _events(sources.event_logs, topic)
    time_lines = TimeLines.of(events or ())
    async with Admin(bootstrap, request_timeout_ms=sources.timeout_ms) as admin:
        (info,) = await admin.describe_topics([topic])
        identity = (await admin.metadata([topic])).identity_of(topic)
        sent = _sent(sources.histories, topic, identity, not_read)
        sent = None if sent is None else time_lines.living(sent, not_read)
        reads = _consumed_reads(sources.reads, topic, identity, time_lines, not_read)
        settings = {config.name: config.value for config in await admin.describe_topic_config(topic)}
        ends = await admin.list_offsets({part.topic_partition: LATEST for part in info.partitions.values()})
        leaders = (await settled_leaders(admin, topic)).by_partition
        watermarks = {partition: leading.high_watermark for partition, leading in leaders.items()}
        committed = {tp: max(found.offset, watermarks.get(tp.partition, -1)) for tp, found in ends.items()}
        records, unreadable = await _read_committed(bootstrap, committed, sources.timeout_ms)
        for tp, why in unreadable.items():
            by = f", broker {leaders[tp.partition].broker}," if tp.partition in leaders else ""
            not_read.append(f"the committed records of {tp}: its leader{by} can't read its log ({why})")
        starts = await admin.list_offsets(dict.fromkeys(records, EARLIEST))
        is_compacted = "compact" in settings.get("cleanup.policy", "")
        replicas = await read_replicas(admin, info, sources.log_directories, is_compacted=is_compacted)
        not_read += replicas.not_read
        topic_ids = await _topic_ids(admin, info)
    once_compacted = {log.partition for log in replicas.logs if log.has_sparse_batches}
    logs = {
        tp.partition: CommittedLog(
            tp.partition,
            starts[tp].offset if tp in starts else 0,
            committed[tp],
            records[tp],
            has_own_timestamps=settings.get("message.timestamp.type") != "LogAppendTime",
            is_compacted=is_compacted or tp.partition in once_compacted,
            log_end_offset=leaders[tp.partition].log_end_offset if tp.partition in leaders else committed[tp],
        )
        for tp in records
    }
    books = Books(
        topic=topic,
        sent=sent,
        logs=logs,
        replicas=replicas.logs,
        reads=reads,
        events=events,
        is_complete=sources.is_complete,
        first_differences=replicas.first_differences,
        topic_ids=topic_ids,
    )
    return Reading(books, not_read)


async def _topic_ids(admin: Admin, info: TopicInfo) -> dict[int, TopicIds]:
    """Return all copies of the topic's id, by partition; differing ones are read again (rule 7)."""
    found: dict[int, TopicIds] = {}
    for _ in range(2):
        cluster = await admin.metadata([info.name])
        reports = await admin.replica_reports_of(list(cluster.brokers.values()), [info.name], with_znodes=True)
        found = {part: topic_ids_of(TopicPartition(info.name, part), cluster, reports) for part in info.partitions}
        if not any(ids.differ for ids in found.values()):
            break
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
    return found


# Histories of producers and consumers


def _sent(
    histories: Sequence[Path], topic: str, identity: TopicIdentity, not_read: list[str]
) -> list[SentRecord] | None:
    """Return the records of this topic in histories; ``not_read`` gets the others (rule 5)."""
    if not histories:
        return None
    history = read_history(histories, topic, identity)
    if history.damaged_lines and not history.records and not history.of_others:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"{', '.join(map(str, histories))} can't be read: it does not hold lines of `produce --history`",
        )
    if history.damaged_lines:
        not_read.append(f"{counted(history.damaged_lines, 'damaged line')} of the history")
    not_read += [_of_another(count, "records of the history", topic, one) for one, count in history.of_others.items()]
    if history.without_identity:
        not_read.append(
            f"of which topic {topic} {history.without_identity} records of the history are: they carry no topic id, so "
            "they count; those of a topic that was deleted and created again would seem lost"
        )
    if not history.records:
        not_read.append(f"the history says nothing of topic {topic}")
    return history.records


def _of_another(count: int, what: str, topic: str, identity: TopicIdentity) -> str:
    cluster = f" of cluster {identity.cluster_id}" if identity.cluster_id else ""
    return (
        f"{count} {what}: they are of another topic {topic} (id {identity.topic_id}{cluster}), which was deleted or is "
        "another cluster's"
    )


def _consumed_reads(
    files: Sequence[Path], topic: str, identity: TopicIdentity, time_lines: TimeLines, not_read: list[str]
) -> list[ReadRecord] | None:
    """Return the reads of this topic; ``not_read`` gets the others (rules 5 and 6)."""
    if not files:
        return None
    of_others: Counter[TopicIdentity] = Counter()
    reads = [read for path in files for read in read_consumed(path, topic, identity, of_others)]
    not_read += [_of_another(count, "records that were read", topic, one) for one, count in of_others.items()]
    return time_lines.living_reads(reads, not_read)


# The committed log


async def _read_committed(
    bootstrap: Sequence[str], ends: Mapping[TopicPartition, int], timeout_ms: int
) -> tuple[dict[TopicPartition, list[KeptRecord]], dict[TopicPartition, str]]:
    """All records below these ends (rule 1), and which partitions their leaders can't read, and why (rule 4)."""
    try:
        return await _read_to(bootstrap, ends, timeout_ms), {}
    except TidegaugeError as problem:
        if problem.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
    # The error does not say which partition it is: each by itself, now.
    records: dict[TopicPartition, list[KeptRecord]] = {}
    unreadable: dict[TopicPartition, str] = {}
    for tp, end in ends.items():
        try:
            records |= await _read_to(bootstrap, {tp: end}, timeout_ms)
        except TidegaugeError as problem:
            if problem.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            unreadable[tp] = problem.message
    return records, unreadable


async def _read_to(
    bootstrap: Sequence[str], ends: Mapping[TopicPartition, int], timeout_ms: int
) -> dict[TopicPartition, list[KeptRecord]]:
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


def _events(directory: Path, topic: str) -> list[dict[str, Any]]:
    """Return the events of a topic and of brokers in causal order."""
    events = [
        event
        for path in sorted(directory.glob("*.events.jsonl"))
        for event in read_events(path)
        if event.get("topic") in {None, topic}
    ]
    events.sort(key=causal_key)
    return events


def read_consumed(
    path: Path, topic: str, identity: TopicIdentity | None = None, of_others: Counter[TopicIdentity] | None = None
) -> Iterator[ReadRecord]:
    """Return the lines of ``consume -o json`` that are of a topic.

    Args:
        path: the file.
        topic: the topic's name.
        identity: the topic that is meant: lines that bear another id are left out; None: every topic of that name.
        of_others: counts the lines left out.

    Raises:
        TidegaugeError: INVALID_REQUEST, the file can't be read, or a line is no record.
    """
    try:
        with path.open("rb") as file:
            wanted = "" if identity is None else identity.topic_id
            yield from _consumed(file, topic, wanted, Counter() if of_others is None else of_others)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it does not hold lines of `consume -o json`"
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"{path} can't be read: {why}") from None


def _consumed(
    lines: Iterable[bytes], topic: str, wanted: str, of_others: Counter[TopicIdentity]
) -> Iterator[ReadRecord]:
    for raw in lines:
        if not raw.endswith(b"\n"):
            return  # its writer was killed in this line
        line: dict[str, Any] = json.loads(raw)
        if line["topic"] == topic:
            topic_id = str(line.get("topic_id", ""))
            if wanted and topic_id and topic_id != wanted:
                of_others[TopicIdentity(topic_id)] += 1
                continue
            yield ReadRecord(
                int(line["partition"]),
                int(line["offset"]),
                content_of(line["key"]),
                content_of(line["value"]),
                int(line.get("timestamp", NO_TIME)),
            )
