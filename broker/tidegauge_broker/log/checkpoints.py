"""The small files around the logs, in Kafka 3.9's formats.

In a log directory: ``replication-offset-checkpoint``, ``recovery-point-offset-checkpoint``,
``log-start-offset-checkpoint``, ``meta.properties``, ``.kafka_cleanshutdown``. In a partition's directory:
``leader-epoch-checkpoint`` and ``partition.metadata``. Sources: ``CheckpointFile``, ``OffsetCheckpointFile``,
``LeaderEpochCheckpointFile``, ``PartitionMetadataFile``, ``MetaProperties``, ``CleanShutdownFileHandler``.

Rules:
    1. A checkpoint is text: version, number of entries, entries; an empty file means no entries.
    2. Another version, a malformed line or a wrong count make it corrupt (CorruptCheckpoint); the reader
       decides what to do without it.
    3. Each is replaced atomically (Disk.replace).
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.settings import read_properties
from tidegauge_broker.log.files import DISK, Disk
from tidegauge_broker.metadata_log.meta_properties import stored_properties
from tidegauge_broker.replica.messages import EpochEntry

REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

_VERSION = 0
_DECIMAL = re.compile(r"-?[0-9]{1,19}")
_LONG = 1 << 63
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")
"""A UUID in base64url without padding, as Kafka's Uuid.toString writes it."""


class CorruptCheckpoint(Exception):
    """A checkpoint file cannot be understood; the text says which and why."""


class _CheckpointFile:
    """Version, count and lines of fields. Writers take turns, because the temporary file's name is fixed."""

    def __init__(self, path: Path, disk: Disk = DISK) -> None:
        self.path = path
        self._disk = disk
        self._lock = threading.Lock()

    def create_missing(self) -> None:
        """Make the file if it does not exist, empty: that means no entries."""
        if not self.path.exists():
            os.close(self._disk.create(self.path))

    def _write_rows(self, rows: Iterable[str]) -> None:
        with self._lock:
            lines = list(rows)
            text = "\n".join([str(_VERSION), str(len(lines)), *lines, ""])
            self._disk.replace(self.path, text.encode())

    def _read_rows(self, fields: int) -> list[list[str]]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except UnicodeDecodeError:
            raise CorruptCheckpoint(f"Malformed text in checkpoint file ({self.path})") from None
        if not text:
            return []
        lines = text.splitlines()
        version = self._number(lines[0])
        if version != _VERSION:
            raise CorruptCheckpoint(
                f"Unrecognized version of the checkpoint file ({self.path}): {version}. Expected version: {_VERSION}"
            )
        count = self._number(lines[1]) if len(lines) > 1 else 0
        rows = [line.split() for line in lines[2:]]
        for row, line in zip(rows, lines[2:], strict=True):
            if len(row) != fields:
                raise self._malformed(line)
        if len(rows) != count:
            raise CorruptCheckpoint(
                f"Expected {count} entries in checkpoint file ({self.path}), but found only {len(rows)}"
            )
        return rows

    def _number(self, text: str) -> int:
        """Parse a number as Kafka writes it: decimal, of at most 64 bits."""
        if not _DECIMAL.fullmatch(text) or not -_LONG <= int(text) < _LONG:
            raise self._malformed(text)
        return int(text)

    def _offset(self, text: str) -> int:
        """Parse a number that is not negative."""
        number = self._number(text)
        if number < 0:
            raise self._malformed(text)
        return number

    def _malformed(self, line: str) -> CorruptCheckpoint:
        return CorruptCheckpoint(f"Malformed line in checkpoint file ({self.path}): '{line}'")


class OffsetCheckpoint(_CheckpointFile):
    """An offset for each partition of a log directory: ``topic partition offset``."""

    def read(self) -> dict[TopicPartition, int]:
        """All entries; none if there is no file.

        Raises:
            CorruptCheckpoint: the file cannot be understood.
        """
        return {
            TopicPartition(topic, self._offset(partition)): self._offset(offset)
            for topic, partition, offset in self._read_rows(3)
        }

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace all entries, on disk when this returns."""
        self._write_rows(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


class EpochCheckpoint(_CheckpointFile):
    """A partition's leader epoch cache: ``epoch startOffset``."""

    def read(self) -> list[EpochEntry]:
        """All entries, oldest first; none if there is no file.

        Raises:
            CorruptCheckpoint: the file cannot be understood.
        """
        return [EpochEntry(self._offset(epoch), self._offset(start)) for epoch, start in self._read_rows(2)]

    def write(self, entries: Sequence[EpochEntry]) -> None:
        """Replace all entries, on disk when this returns."""
        self._write_rows(f"{entry.epoch} {entry.start_offset}" for entry in entries)


class MetaProperties(NamedTuple):
    """The broker and the cluster that own a log directory; None where the file does not say."""

    broker_id: int | None
    cluster_id: str | None


def read_meta_properties(directory: Path) -> MetaProperties | None:
    """Read a log directory's meta.properties; None if it has none yet.

    Raises:
        CorruptCheckpoint: the file cannot be understood, or has a version other than 0 (ZooKeeper mode).
    """
    path = directory / META_PROPERTIES
    try:
        found = read_properties(path.read_text(encoding="utf-8"))
        version, broker_id = int(found.get("version", "0")), found.get("broker.id")
        meta = MetaProperties(None if broker_id is None else int(broker_id), found.get("cluster.id"))
    except FileNotFoundError:
        return None
    except (ValueError, TidegaugeError) as error:
        raise CorruptCheckpoint(f"{path} cannot be read: {error}") from None
    if version != _VERSION:
        raise CorruptCheckpoint(f"{path} has version {version}, expected {_VERSION}")
    return meta


def write_meta_properties(directory: Path, broker_id: int, cluster_id: str, now_ms: int, disk: Disk = DISK) -> None:
    """Write meta.properties as ``java.util.Properties.store`` does: an empty comment, the date, the pairs."""
    pairs = {"broker.id": str(broker_id), "version": str(_VERSION), "cluster.id": cluster_id}
    disk.replace(directory / META_PROPERTIES, stored_properties(pairs, now_ms))


def read_topic_id(partition_directory: Path) -> str | None:
    """Read the topic id in partition.metadata; None if there is none.

    Raises:
        CorruptCheckpoint: the file cannot be understood.
    """
    path = partition_directory / PARTITION_METADATA
    try:
        found = read_properties(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, TidegaugeError):
        found = {}
    if found.get("version") != str(_VERSION) or not _TOPIC_ID.fullmatch(found.get("topic_id", "")):
        raise CorruptCheckpoint(f"Malformed partition metadata file ({path})")
    return found["topic_id"]


def write_topic_id(partition_directory: Path, topic_id: str, disk: Disk = DISK) -> None:
    """Write partition.metadata; the last line has no end, as in Kafka."""
    text = f"version: {_VERSION}\ntopic_id: {topic_id}"
    disk.replace(partition_directory / PARTITION_METADATA, text.encode())


def write_clean_shutdown(directory: Path, disk: Disk = DISK, broker_epoch: int = -1) -> None:
    """Mark a log directory as cleanly closed under a registration. A broker of a ZooKeeper cluster stores epoch -1."""
    content = json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.replace(directory / CLEAN_SHUTDOWN_FILE, content.encode())


def read_clean_shutdown(directory: Path) -> int:
    """Return the broker epoch in a clean shutdown's mark; -1: no readable mark."""
    try:
        found = json.loads((directory / CLEAN_SHUTDOWN_FILE).read_bytes())
        return int(found["brokerEpoch"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1


def take_clean_shutdown(directory: Path, disk: Disk = DISK) -> bool:
    """Whether the mark is there; its presence alone counts. It is removed, so that a crash from now on shows."""
    path = directory / CLEAN_SHUTDOWN_FILE
    if not path.exists():
        return False
    disk.remove(path)
    disk.sync_directory(directory)  # a loss of power must not bring the mark back
    return True
