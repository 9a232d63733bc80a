"""A replica as its files have it, read without the broker: for brokers that are down, or do not respond.

Contract: read only, by the reader of ``dump-log``. The broker may be running after all and write, truncate or delete
these files meanwhile: reading then ends before the first batch that is not whole, and no batch is shown twice.

Rules:
    1. The end is the last whole batch's, the high watermark is read from ``replication-offset-checkpoint``: a
       broker writes it now and then only, so it may be behind what the broker knew; it is never ahead, but where a
       power loss took the log's end.
    2. The leader epoch is the highest that the replica has noted or holds; the one it was last given may be higher.
    3. A batch that is not whole is damage where the recovery point (``recovery-point-offset-checkpoint``) is above it,
       since everything below was flushed, or where another segment follows; else a crash has left it, and recovery will
       take it away.
    4. Files of another topic of the same name (its id is in ``partition.metadata``) are not this replica's.

Source: Kafka's DumpLogSegments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader, crc_matches
from tidegauge_broker.log.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpoint,
    EpochCheckpoint,
    OffsetCheckpoint,
    read_topic_id,
)
from tidegauge_broker.log.dump import opened_log
from tidegauge_broker.log.segment import LOG_SUFFIX
from tidegauge_lab.accountant.reading.batches import BatchNotes


@dataclass(frozen=True, slots=True)
class ReplicaFiles:
    """The state of one replica by its files.

    Attributes:
        high_watermark: of the checkpoint; 0 without one, as for a broker that starts.
        notes: its batches, and what of them is damaged.
    """

    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    notes: BatchNotes


def read_replica_files(data: Path, at: TopicPartition, topic_id: str, *, by_record: bool = False) -> ReplicaFiles:
    """Read a replica in a broker's log directory.

    Raises:
        TidegaugeError: KAFKA_STORAGE_ERROR, there is none, it is of another topic, or it can't be read.
    """
    directory = data / str(at)
    try:
        found = read_topic_id(directory)
        segments = segments_of(directory)
        if found not in {None, topic_id} or not segments:
            raise TidegaugeError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} holds no log of this topic")
        recovery_point = OffsetCheckpoint(data / RECOVERY_POINT_CHECKPOINT).read().get(at, 0)
        notes = _notes_of(segments, recovery_point, by_record=by_record)
        epochs = EpochCheckpoint(directory / LEADER_EPOCH_CHECKPOINT).read()
        high_watermark = OffsetCheckpoint(data / REPLICATION_OFFSET_CHECKPOINT).read().get(at, 0)
        start = OffsetCheckpoint(data / LOG_START_OFFSET_CHECKPOINT).read().get(at, 0)
    except (OSError, CorruptCheckpoint) as problem:
        raise TidegaugeError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} can't be read: {problem}") from None
    base_offset = int(segments[0].stem)
    return ReplicaFiles(
        leader_epoch=max(
            [entry.epoch for entry in epochs] + [mark.leader_epoch for mark in notes.marks[-1:]], default=-1
        ),
        log_start_offset=max(start, base_offset),
        high_watermark=high_watermark,
        log_end_offset=notes.marks[-1].next_offset if notes.marks else base_offset,
        notes=notes,
    )


def segments_of(directory: Path) -> list[Path]:
    """Return the .log files of a replica, in the order of their offsets."""
    return sorted(path for path in directory.glob(f"*{LOG_SUFFIX}") if path.stem.isdecimal())


def _notes_of(segments: list[Path], recovery_point: int, *, by_record: bool) -> BatchNotes:
    """Read all segments; an incomplete batch is damage by rule 3."""
    notes = BatchNotes(by_record)
    next_offset = 0
    for path, following in zip(segments, [*segments[1:], None], strict=True):
        next_offset = max(next_offset, int(path.stem))
        end = 0
        with opened_log(path) as log:
            for header in log.headers():
                batch = log.batch(header)
                if len(batch) < header.size_bytes or header.base_offset < next_offset:
                    return notes  # it was truncated meanwhile
                notes.add(batch, header._replace(position=0), f"byte {header.position} of {path}")
                next_offset, end = header.next_offset, header.position + header.size_bytes
            is_whole = end >= log.size_bytes
        if not is_whole and following is not None:
            notes.break_off(next_offset, f"{path} holds no whole batch at byte {end}", int(following.stem))
        elif following is None and next_offset < recovery_point:
            notes.break_off(next_offset, f"{path} holds no whole batch at byte {end}")
    return notes


def batches_of(segments: list[Path]) -> Iterator[tuple[bytes, BatchHeader, bool]]:
    """Yield the complete batches by offset, and whether each matches its CRC; positions in headers are 0.

    Raises:
        OSError: a file can't be read.
    """
    next_offset = 0
    for path in segments:
        with opened_log(path) as log:
            for header in log.headers():
                batch = log.batch(header)
                if len(batch) < header.size_bytes or header.base_offset < next_offset:
                    return  # it was truncated meanwhile
                next_offset = header.next_offset
                at_start = header._replace(position=0)
                yield batch, at_start, crc_matches(batch, at_start)
