"""Reads every replica of a topic: as its broker holds it, or as its files on disk have it.

Rules:
    1. The leader's view (high watermark, ISR) is taken before the replicas are read: a record committed then is in each
       member of the ISR for ever, so a later read must contain it.
    2. A broker that does not respond is read from its log directory, if that is at hand (a cluster in ``--dir``),
       and the report says so; without the directory it is left out, which the report says too. A replica that is
       truncated meanwhile is read again.
    3. The high watermark is given ``SETTLE_SECONDS`` to reach the leader's log end offset.
    4. A replica that differs is read again, ``LOOKS`` times in all: after an unclean election a follower may be about
       to truncate. A replica that differs each time has diverged.
    5. Replicas of a topic that is compacted, or was once (a batch holds fewer records than offsets), are read record by
       record.
    6. Damage of a replica is noted with its file and position; everything else is still read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge.v1 import metadata_pb2, replica_log_service_pb2
from tidegauge_client.admin import Admin
from tidegauge_client.channels import Channels, call
from tidegauge_client.metadata import BrokerInfo, TopicInfo
from tidegauge_client.records import Record, decode_batch, decode_batches
from tidegauge_lab.accountant.books import FirstDifference, Place, ReplicaLog
from tidegauge_lab.accountant.reading.batches import BatchNotes
from tidegauge_lab.accountant.reading.differing_records import first_difference
from tidegauge_lab.accountant.reading.replica_files import batches_of, read_replica_files, segments_of
from tidegauge_lab.accountant.replicas import compare

SETTLE_SECONDS = 5.0
SETTLE_POLL_SECONDS = 0.1
READ_TIMEOUT_MS = 10_000
PART_BYTES = 4 * 1024 * 1024
MOST_PREVIEWS = 40
LOOKS = 4
LOOK_AGAIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Leading:
    """The report of a partition's leader."""

    broker: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    isr: tuple[int, ...]


def _leaders(responses: Mapping[int, Sequence[metadata_pb2.ReplicaDescription] | None]) -> dict[int, Leading]:
    """Return the report of each partition's leader; of two, the one of the higher epoch."""
    found: dict[int, Leading] = {}
    for broker, replicas in responses.items():
        for replica in replicas or ():
            known = found.get(replica.partition)
            if replica.role == "leader" and (known is None or known.leader_epoch < replica.leader_epoch):
                found[replica.partition] = Leading(
                    broker, replica.leader_epoch, replica.high_watermark, replica.log_end_offset, tuple(replica.isr)
                )
    return found


@dataclass(slots=True)
class _Views:
    """The brokers' reports: each partition's leader, and which brokers respond."""

    by_partition: dict[int, Leading]
    responding: set[int]


async def _views(admin: Admin, topic: str) -> _Views:
    responses = await admin.describe_replicas([topic])
    return _Views(_leaders(responses), {broker for broker, response in responses.items() if response is not None})


async def settled_leaders(admin: Admin, topic: str) -> _Views:
    """Return the leaders' views, once high watermarks have reached the first log ends (rule 3)."""
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


# Replicas


@dataclass(slots=True)
class Replicas:
    """The replicas of a topic, as read.

    Attributes:
        not_read: the parts that were not read, and why.
        from_disk: the brokers whose files were read, and the directories.
        first_differences: the first record that differs, at each place where replicas begin to differ.
    """

    logs: list[ReplicaLog] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    from_disk: dict[int, Path] = field(default_factory=dict)
    first_differences: dict[Place, FirstDifference] = field(default_factory=dict)


class _Truncated(Exception):
    """Raised when the replica has lost records already read."""


async def read_replicas(
    admin: Admin, info: TopicInfo, directories: Mapping[int, Path], *, is_compacted: bool
) -> Replicas:
    """Read all replicas of a topic; ``directories`` are the brokers' log directories, as far as they are at hand."""
    channels = Channels(admin.security)
    try:
        looks, by_record = LOOKS, is_compacted
        while True:
            views = await _views(admin, info.name)
            brokers = (await admin.metadata([])).brokers
            reachable = {broker: one for broker, one in brokers.items() if broker in views.responding}
            reading = _Reading(channels, info, reachable, views.by_partition, directories, by_record)
            found = await reading.read()
            if not _differ(found.logs):
                return found
            if not by_record and any(log.has_sparse_batches for log in found.logs):
                by_record = True
                continue
            looks -= 1
            if looks == 0:
                await reading.preview()
                return found
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
    finally:
        await channels.close()


def _by_partition(logs: Sequence[ReplicaLog]) -> list[list[ReplicaLog]]:
    return [[log for log in logs if log.partition == one] for one in sorted({log.partition for log in logs})]


def _differ(logs: Sequence[ReplicaLog]) -> bool:
    return any(True for replicas in _by_partition(logs) for _ in compare(replicas))


@dataclass(slots=True)
class _Reading:
    """One look at all replicas."""

    channels: Channels
    info: TopicInfo
    brokers: Mapping[int, BrokerInfo]
    leaders: Mapping[int, Leading]
    directories: Mapping[int, Path]
    by_record: bool = False
    found: Replicas = field(default_factory=Replicas)

    async def read(self) -> Replicas:
        """All brokers at once."""
        assigned = {broker for part in self.info.partitions.values() for broker in part.replicas}
        await asyncio.gather(*map(self._read_all_of, sorted(assigned)))
        self.found.logs.sort(key=lambda log: (log.partition, log.broker))
        self.found.not_read.sort()
        return self.found

    async def _read_all_of(self, broker: int) -> None:
        partitions = [part.partition for part in self.info.partitions.values() if broker in part.replicas]
        for partition in partitions if broker in self.brokers else ():
            at = TopicPartition(self.info.name, partition)
            try:
                log = await self._read_replica(self.brokers[broker], at, self.leaders.get(partition))
                self.found.logs.append(log)
            except TidegaugeError as problem:
                if not problem.definite and broker in self.directories:
                    break  # it does not respond: its files are read instead
                self.found.not_read.append(f"the replica of {at} on broker {broker}: {problem.message}")
                if not problem.definite:
                    return  # the rest would wait as long
        else:
            if broker in self.brokers:
                return
        if broker not in self.directories:
            self.found.not_read.append(f"the replicas on broker {broker}: it does not respond")
            return
        known = {log.partition for log in self.found.logs if log.broker == broker}
        await asyncio.to_thread(self._read_files_of, broker, [one for one in partitions if one not in known])

    def _read_files_of(self, broker: int, partitions: Sequence[int]) -> None:
        for partition in partitions:
            at = TopicPartition(self.info.name, partition)
            leading = self.leaders.get(partition)
            try:
                files = read_replica_files(self.directories[broker], at, self.info.topic_id, by_record=self.by_record)
            except TidegaugeError as problem:
                self.found.not_read.append(
                    f"the replica of {at} on broker {broker}: it does not respond, and {problem.message}"
                )
                continue
            self.found.from_disk[broker] = self.directories[broker]
            self.found.logs.append(
                ReplicaLog(
                    partition=partition,
                    broker=broker,
                    is_leader=False,
                    in_isr=leading is not None and broker in leading.isr,
                    leader_epoch=files.leader_epoch,
                    log_start_offset=files.log_start_offset,
                    high_watermark=files.high_watermark,
                    log_end_offset=files.log_end_offset,
                    marks=files.notes.marks,
                    is_from_disk=True,
                    records=files.notes.records if self.by_record else None,
                    has_sparse_batches=files.notes.has_sparse_batches,
                    damage=files.notes.damage,
                )
            )

    # For people

    async def preview(self) -> None:
        """Read the first record that differs at each place where replicas begin to differ."""
        for replicas in _by_partition(self.found.logs):
            for one, other, (offset, ours, theirs) in compare(replicas):
                if len(self.found.first_differences) >= MOST_PREVIEWS:
                    return
                end = max(mark.next_offset for mark in (ours, theirs) if mark is not None)
                records = [await self._records(log, offset, end) for log in (one, other)]
                found = None if None in records else first_difference(records[0] or (), records[1] or ())
                if found is not None:
                    self.found.first_differences[one.partition, one.broker, other.broker, offset] = found

    async def _records(self, log: ReplicaLog, offset: int, end: int) -> list[Record] | None:
        """Return the records of a stretch; None if unreadable: the finding then lacks them."""
        at = TopicPartition(self.info.name, log.partition)
        try:
            if log.is_from_disk:
                return _records_on_disk(self.directories[log.broker] / str(at), offset, end)
            found: list[Record] = []
            position = offset
            while position < end:
                response = await _part(self.channels, self.brokers[log.broker], at, position, 1)
                headers = list(iterate_headers(response.records))
                if not headers:
                    break
                found += [one for one in decode_batches(response.records, offset) if one.offset < end]
                position = headers[-1].next_offset
        except (TidegaugeError, OSError):
            return None
        return found

    # One replica, by its broker

    async def _read_replica(self, broker: BrokerInfo, at: TopicPartition, leading: Leading | None) -> ReplicaLog:
        for _ in range(3):
            try:
                return await self._read_replica_once(broker, at, leading)
            except _Truncated:
                continue
        raise TidegaugeError(ErrorCode.REPLICA_NOT_AVAILABLE, "it was truncated each time that it was read")

    async def _read_replica_once(self, broker: BrokerInfo, at: TopicPartition, leading: Leading | None) -> ReplicaLog:
        notes = BatchNotes(self.by_record)
        position: int | None = None
        while True:
            response = await _part(self.channels, broker, at, position)
            if position is not None and response.log_end_offset < position:
                raise _Truncated
            if response.error == int(ErrorCode.OFFSET_OUT_OF_RANGE):
                position = response.log_start_offset  # retention was quicker
                continue
            position = response.log_start_offset if position is None else position
            is_whole = True
            if response.error == int(ErrorCode.CORRUPT_MESSAGE):
                notes.break_off(position, response.error_message)
                is_whole = False
            else:
                is_whole = _note(response, notes, position)
            position = notes.marks[-1].next_offset if notes.marks else position
            if not is_whole or not response.records or position >= response.log_end_offset:
                return _log_of(response, notes, broker.id, at, leading)


def _log_of(
    response: replica_log_service_pb2.ReadReplicaResponse,
    notes: BatchNotes,
    broker: int,
    at: TopicPartition,
    leading: Leading | None,
) -> ReplicaLog:
    """Return the replica as the last part of it was read."""
    is_leader = leading is not None and leading.broker == broker
    return ReplicaLog(
        partition=at.partition,
        broker=broker,
        is_leader=is_leader,
        in_isr=leading is not None and broker in leading.isr,
        leader_epoch=response.leader_epoch if response.HasField("leader_epoch") else -1,
        log_start_offset=response.log_start_offset,
        high_watermark=leading.high_watermark if is_leader and leading is not None else response.high_watermark,
        log_end_offset=response.log_end_offset,
        marks=notes.marks,
        records=notes.records if notes.by_record else None,
        has_sparse_batches=notes.has_sparse_batches,
        damage=notes.damage,
    )


def _note(response: replica_log_service_pb2.ReadReplicaResponse, notes: BatchNotes, position: int) -> bool:
    """Note the batches of a part from an offset on; return whether the part was complete."""
    end, offset = 0, position
    try:
        for header in iterate_headers(response.records):
            end, offset = header.position + header.size_bytes, header.next_offset
            if header.next_offset > position:
                notes.add(
                    response.records, header, f"byte {response.file_position + header.position} of {response.file}"
                )
    except TidegaugeError:
        at = response.file_position + end
        notes.break_off(max(offset, position), f"{response.file} holds no whole batch at byte {at}")
        return False
    return True


def _records_on_disk(directory: Path, offset: int, end: int) -> list[Record] | None:
    """Return the records of a stretch from files; None if a batch is damaged."""
    found: list[Record] = []
    for batch, header, is_valid in batches_of(segments_of(directory)):
        if header.base_offset >= end:
            break
        if header.next_offset > offset:
            if not is_valid:
                return None
            found += [one for one in decode_batch(batch, header, offset) if one.offset < end]
    return found


async def _part(
    channels: Channels, broker: BrokerInfo, at: TopicPartition, position: int | None, max_bytes: int = PART_BYTES
) -> replica_log_service_pb2.ReadReplicaResponse:
    request = replica_log_service_pb2.ReadReplicaRequest(
        topic=at.topic, partition=at.partition, from_offset=position, max_bytes=max_bytes
    )
    stub = channels.replica_log(broker.address)
    response = await call(stub.ReadReplica, request, timeout_ms=READ_TIMEOUT_MS, address=broker.address)
    error = ErrorCode.of(response.error)
    if error not in {ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE}:
        raise TidegaugeError(error, response.error_message)
    return response
