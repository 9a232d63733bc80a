"""A replica as its files have it, read without the broker: for brokers that are down, or do not answer.

Contract: read only, by the reader of ``dump-log``. The broker may be running after all and write, cut or delete these
files meanwhile: what is read then ends before the first batch that is not whole, and no batch is shown twice.

Rules:
    1. The end is that of the last whole batch, the high watermark what stands in ``replication-offset-checkpoint``: a
       broker writes it now and then only, so it may be behind what the broker knew; it is never ahead, but where a
       power cut took the log's end.
    2. The leader epoch is the highest that the replica has noted or holds; the one it was told last may be higher.
    3. Files of another topic of the same name (its id is in ``partition.metadata``) are not this replica's.

Source: kafka-behaviour 5.1 to 5.3; Kafka's DumpLogSegments.
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
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpoint,
    EpochCheckpoint,
    OffsetCheckpoint,
    read_topic_id,
)
from tidegauge_broker.log.dump import opened_log
from tidegauge_broker.log.segment import LOG_SUFFIX
from tidegauge_lab.accountant.books import Mark

DAMAGED_CRC = -1
"""Stands for the CRC of a batch whose bytes do not fit it: no other batch has it."""


@dataclass(frozen=True, slots=True)
class ReplicaFiles:
    """What the files of one replica say.

    Attributes:
        high_watermark: of the checkpoint; 0 without one, as for a broker that starts.
        marks: its batches, by offset.
    """

    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    marks: list[Mark]


def read_replica_files(data: Path, at: TopicPartition, topic_id: str) -> ReplicaFiles:
    """Read a replica in a broker's log folder.

    Raises:
        TidegaugeError: KAFKA_STORAGE_ERROR, there is none, it is of another topic, or it can't be read.
    """
    folder = data / str(at)
    try:
        found = read_topic_id(folder)
        segments = segments_of(folder)
        if found not in {None, topic_id} or not segments:
            raise TidegaugeError(ErrorCode.KAFKA_STORAGE_ERROR, f"{folder} holds no log of this topic")
        marks = [
            Mark(header.base_offset, header.next_offset, header.leader_epoch, header.crc if is_valid else DAMAGED_CRC)
            for _, header, is_valid in batches_of(segments)
        ]
        epochs = EpochCheckpoint(folder / LEADER_EPOCH_CHECKPOINT).read()
        high_watermark = OffsetCheckpoint(data / REPLICATION_OFFSET_CHECKPOINT).read().get(at, 0)
        start = OffsetCheckpoint(data / LOG_START_OFFSET_CHECKPOINT).read().get(at, 0)
    except (OSError, CorruptCheckpoint) as problem:
        raise TidegaugeError(ErrorCode.KAFKA_STORAGE_ERROR, f"{folder} can't be read: {problem}") from None
    base_offset = int(segments[0].stem)
    return ReplicaFiles(
        leader_epoch=max([entry.epoch for entry in epochs] + [mark.leader_epoch for mark in marks[-1:]], default=-1),
        log_start_offset=max(start, base_offset),
        high_watermark=high_watermark,
        log_end_offset=marks[-1].next_offset if marks else base_offset,
        marks=marks,
    )


def segments_of(folder: Path) -> list[Path]:
    """The .log files of a replica, in the order of their offsets."""
    return sorted(path for path in folder.glob(f"*{LOG_SUFFIX}") if path.stem.isdecimal())


def batches_of(segments: list[Path]) -> Iterator[tuple[bytes, BatchHeader, bool]]:
    """The whole batches, by offset, and whether each fits its CRC; the header's position is 0, that of the bytes.

    Raises:
        OSError: a file can't be read.
    """
    next_offset = 0
    for path in segments:
        with opened_log(path) as log:
            for header in log.headers():
                batch = log.batch(header)
                if len(batch) < header.size_bytes or header.base_offset < next_offset:
                    return  # it was cut meanwhile
                next_offset = header.next_offset
                at_start = header._replace(position=0)
                yield batch, at_start, crc_matches(batch, at_start)
