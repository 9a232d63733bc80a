"""Reads all that the accountant needs of a topic: the committed log, every replica, settings, event logs, reads.

Rules:
    1. The committed log is read as a consumer reads it, from the log start offset to the high watermark of the begin.
       A new leader's high watermark is waited for; a partition that keeps without a leader ends the reading.
    2. The leader's view (high watermark, ISR) is taken before the replicas are read: what was committed then is in each
       member of the ISR for ever, so what is read later must contain it.
    3. A replica whose broker does not answer is left out and said so. One that is truncated meanwhile is read anew.
    4. Records with acks=1 are acknowledged before they are committed: the high watermark is given ``SETTLE_SECONDS`` to
       reach the leader's log end offset.
    5. A replica that differs is read again, ``LOOKS`` times in all: after an unclean election a follower may be about
       to truncate. What differs each time has diverged.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.event_log import causal_key, read_events
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import crc_matches, iterate_headers
from tidegauge.v1 import metadata_pb2, replica_log_service_pb2
from tidegauge_client.admin import EARLIEST, LATEST, Admin
from tidegauge_client.channels import Channels, call
from tidegauge_client.cli.formatting import content_of
from tidegauge_client.consumer import Consumer
from tidegauge_client.history import read_history
from tidegauge_client.metadata import BrokerInfo, TopicInfo
from tidegauge_client.records import decode_batches
from tidegauge_lab.accountant.books import Books, CommittedLog, KeptRecord, Mark, ReadRecord, ReplicaLog, Stretch, show
from tidegauge_lab.accountant.replicas import compare

SETTLE_SECONDS = 5.0
SETTLE_POLL_SECONDS = 0.1
READ_TIMEOUT_MS = 10_000
PART_BYTES = 4 * 1024 * 1024
POLL_MS = 200.0
POLL_RECORDS = 10_000
MOST_PREVIEWS = 40
LOOKS = 4
LOOK_AGAIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the books come from.

    Attributes:
        histories: files of ``produce --history``; empty: none.
        reads: files of ``consume -o json``; empty: none.
        event_logs: the folder of a local cluster's event logs.
        is_complete: the histories hold everything that was written.
        timeout_ms: how long a leader, or the next record, is waited for.
    """

    histories: Sequence[Path] = ()
    reads: Sequence[Path] = ()
    event_logs: Path | None = None
    is_complete: bool = False
    timeout_ms: int = 30_000


@dataclass(slots=True)
class Reading:
    """The books, and what could not be read."""

    books: Books
    not_read: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Leading:
    """What a partition's leader said."""

    broker: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    isr: tuple[int, ...]


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
        leaders = (await _settled_leaders(admin, topic)).by_partition
        committed = {tp: max(found.offset, _watermark(leaders, tp)) for tp, found in ends.items()}
        records = await _read_committed(bootstrap, committed, sources.timeout_ms)
        starts = await admin.list_offsets(dict.fromkeys(committed, EARLIEST))
        replicas = await _read_replicas(admin, info, is_compacted="compact" in settings.get("cleanup.policy", ""))
        not_read += replicas.not_read
    logs = {
        tp.partition: CommittedLog(
            tp.partition,
            starts[tp].offset if tp in starts else 0,
            end,
            records[tp],
            has_own_timestamps=settings.get("message.timestamp.type") != "LogAppendTime",
            is_compacted="compact" in settings.get("cleanup.policy", ""),
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


# Leaders


def _watermark(leaders: Mapping[int, Leading], tp: TopicPartition) -> int:
    found = leaders.get(tp.partition)
    return -1 if found is None else found.high_watermark


def _leaders(answers: Mapping[int, Sequence[metadata_pb2.ReplicaDescription] | None]) -> dict[int, Leading]:
    """What each partition's leader says; of two that say they lead, the one of the higher epoch."""
    found: dict[int, Leading] = {}
    for broker, replicas in answers.items():
        for replica in replicas or ():
            known = found.get(replica.partition)
            if replica.role == "leader" and (known is None or known.leader_epoch < replica.leader_epoch):
                found[replica.partition] = Leading(
                    broker, replica.leader_epoch, replica.high_watermark, replica.log_end_offset, tuple(replica.isr)
                )
    return found


@dataclass(slots=True)
class _Views:
    """What the brokers say: of each partition's leader, and which of them answer."""

    by_partition: dict[int, Leading]
    answering: set[int]


async def _views(admin: Admin, topic: str) -> _Views:
    answers = await admin.describe_replicas([topic])
    return _Views(_leaders(answers), {broker for broker, answer in answers.items() if answer is not None})


async def _settled_leaders(admin: Admin, topic: str) -> _Views:
    """The leaders' views, once their high watermarks have reached what they held at first (rule 4)."""
    deadline = time.monotonic() + SETTLE_SECONDS
    views = await _views(admin, topic)
    first, found = views.by_partition, views.by_partition
    while time.monotonic() < deadline and any(
        partition in found and found[partition].high_watermark < one.log_end_offset for partition, one in first.items()
    ):
        await asyncio.sleep(SETTLE_POLL_SECONDS)
        views = await _views(admin, topic)
        found = views.by_partition
    return views


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


# Replicas


@dataclass(slots=True)
class _Replicas:
    logs: list[ReplicaLog] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    previews: dict[Stretch, str] = field(default_factory=dict)


class _Truncated(Exception):
    """The replica lost what was read already."""


async def _read_replicas(admin: Admin, info: TopicInfo, *, is_compacted: bool) -> _Replicas:
    channels = Channels()
    try:
        looks = LOOKS
        while True:
            looks -= 1
            views = await _views(admin, info.name)
            brokers = (await admin.metadata([])).brokers
            reachable = {broker: one for broker, one in brokers.items() if broker in views.answering}
            found = await _read_replicas_once(channels, info, reachable, views.by_partition)
            if not _differ(found.logs, is_compacted=is_compacted):
                return found
            if looks == 0:
                found.previews = await _previews(channels, info.name, reachable, found.logs)
                return found
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
    finally:
        await channels.close()


def _by_partition(logs: Sequence[ReplicaLog]) -> list[list[ReplicaLog]]:
    return [[log for log in logs if log.partition == one] for one in sorted({log.partition for log in logs})]


def _differ(logs: Sequence[ReplicaLog], *, is_compacted: bool) -> bool:
    return any(True for replicas in _by_partition(logs) for _ in compare(replicas, is_compacted=is_compacted))


async def _read_replicas_once(
    channels: Channels, info: TopicInfo, brokers: Mapping[int, BrokerInfo], leaders: Mapping[int, Leading]
) -> _Replicas:
    all_found = _Replicas()

    async def read_all_of(broker: int) -> None:
        if broker not in brokers:
            all_found.not_read.append(f"the replicas on broker {broker}: it does not answer")
            return
        for partition in [part.partition for part in info.partitions.values() if broker in part.replicas]:
            at = TopicPartition(info.name, partition)
            try:
                all_found.logs.append(await _read_replica(channels, brokers[broker], at, leaders.get(partition)))
            except TidegaugeError as problem:
                all_found.not_read.append(f"the replica of {at} on broker {broker}: {problem.message}")
                if not problem.definite:
                    return  # it answers nothing: the rest would wait as long

    await asyncio.gather(*map(read_all_of, sorted({b for part in info.partitions.values() for b in part.replicas})))
    return all_found


async def _read_replica(
    channels: Channels, broker: BrokerInfo, at: TopicPartition, leading: Leading | None
) -> ReplicaLog:
    for _ in range(3):
        try:
            return await _read_replica_once(channels, broker, at, leading)
        except _Truncated:
            continue
    raise TidegaugeError(ErrorCode.REPLICA_NOT_AVAILABLE, "it was truncated each time that it was read")


async def _read_replica_once(
    channels: Channels, broker: BrokerInfo, at: TopicPartition, leading: Leading | None
) -> ReplicaLog:
    marks: list[Mark] = []
    position: int | None = None
    while True:
        answer = await _part(channels, broker, at, position)
        if position is not None and answer.log_end_offset < position:
            raise _Truncated
        if answer.error == int(ErrorCode.OFFSET_OUT_OF_RANGE):
            position = answer.log_start_offset  # retention was quicker
            continue
        marks += _marks(answer.records, position or answer.log_start_offset)
        position = marks[-1].next_offset if marks else answer.log_start_offset
        if not answer.records or position >= answer.log_end_offset:
            return ReplicaLog(
                partition=at.partition,
                broker=broker.id,
                is_leader=leading is not None and leading.broker == broker.id,
                in_isr=leading is not None and broker.id in leading.isr,
                leader_epoch=answer.leader_epoch if answer.HasField("leader_epoch") else -1,
                log_start_offset=answer.log_start_offset,
                high_watermark=(
                    leading.high_watermark
                    if leading is not None and leading.broker == broker.id
                    else answer.high_watermark
                ),
                log_end_offset=answer.log_end_offset,
                marks=marks,
            )


async def _part(
    channels: Channels, broker: BrokerInfo, at: TopicPartition, position: int | None, max_bytes: int = PART_BYTES
) -> replica_log_service_pb2.ReadReplicaResponse:
    request = replica_log_service_pb2.ReadReplicaRequest(
        topic=at.topic, partition=at.partition, from_offset=position, max_bytes=max_bytes
    )
    stub = channels.replica_log(broker.address)
    answer = await call(stub.ReadReplica, request, timeout_ms=READ_TIMEOUT_MS, address=broker.address)
    error = ErrorCode.of(answer.error)
    if error not in {ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE}:
        raise TidegaugeError(error, answer.error_message)
    return answer


def _marks(records: bytes, position: int) -> Iterator[Mark]:
    """The batches, their CRCs checked against their bytes; one that is damaged gets a CRC that nothing has."""
    for header in iterate_headers(records):
        if header.next_offset > position:
            crc = header.crc if crc_matches(records, header) else -1
            yield Mark(header.base_offset, header.next_offset, header.leader_epoch, crc)


async def _previews(
    channels: Channels, topic: str, brokers: Mapping[int, BrokerInfo], logs: Sequence[ReplicaLog]
) -> dict[Stretch, str]:
    """The records at which replicas begin to differ, for people."""
    found: dict[Stretch, str] = {}
    for replicas in _by_partition(logs):
        for one, other, (offset, ours, theirs) in compare(replicas):
            for log, mark in ((one, ours), (other, theirs)):
                stretch = (log.partition, log.broker, -1 if mark is None else mark.base_offset)
                if mark is not None and stretch not in found and len(found) < MOST_PREVIEWS:
                    at = TopicPartition(topic, log.partition)
                    try:
                        answer = await _part(channels, brokers[log.broker], at, max(offset, mark.base_offset), 1)
                        record = next(decode_batches(answer.records, max(offset, mark.base_offset)), None)
                    except TidegaugeError:
                        continue  # the finding stands without it
                    if record is not None:
                        found[stretch] = f"{show(record.value)} of epoch {record.leader_epoch}"
    return found


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
