"""The snapshots in the directory of the metadata log: listed, read in slices, fetched, retired.

A snapshot that is being fetched has the suffix ``.checkpoint.part``; once it is complete and on the disk it gets its
name and becomes read-only. One that retention no longer keeps is renamed to ``.deleted`` and removed later.
Source: ``KafkaRaftLog``, ``FileRawSnapshotWriter``, ``FileRawSnapshotReader``, ``Snapshots``; KIP-630.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.control_messages.kraft_version_record import KRaftVersionRecord
from tidegauge.kafka.kraft.control_messages.snapshot_header_record import SnapshotHeaderRecord
from tidegauge.kafka.kraft.control_messages.voters_record import VotersRecord
from tidegauge_broker.log.files import Disk
from tidegauge_broker.metadata_log.batches import MetadataBatch, read_batches
from tidegauge_broker.metadata_log.raft_records import from_message
from tidegauge_broker.metadata_log.snapshot_names import (
    RETIRED_SUFFIX,
    SNAPSHOT_SUFFIX,
    UNFINISHED_SUFFIX,
    parse_snapshot_name,
    snapshot_name,
)
from tidegauge_broker.metadata_log.snapshots import read_snapshot
from tidegauge_controller.raft.values import LOWEST_KRAFT_VERSION, OffsetAndEpoch, VoterSet
from tidegauge_controller.raft.values import VotersRecord as Voters

_MODE = 0o400
_FIRST_BATCH_BYTES = 1024 * 1024
"""More than the control batch at a snapshot's head takes."""


class SnapshotHead(NamedTuple):
    """The head of a snapshot.

    Attributes:
        last_contained_ms: when the last record that it contains was appended.
        voter_set: its voters; None under kraft.version 0.
        kraft_version: its kraft.version.
    """

    last_contained_ms: int
    voter_set: VoterSet | None
    kraft_version: int


class SnapshotFiles:
    """The snapshots in the directory of the metadata log.

    Args:
        directory: of the metadata log.
        disk: changes the files.
    """

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._unfinished: dict[OffsetAndEpoch, Path] = {}

    def listed(self) -> list[OffsetAndEpoch]:
        """Return the finished snapshots, ascending; remove what unfinished and retired ones left.

        Raises:
            OSError: the disk refused.
        """
        found: list[OffsetAndEpoch] = []
        for path in sorted(self._directory.iterdir()):
            name = parse_snapshot_name(path.name)
            if name is None:
                continue
            if name.suffix == SNAPSHOT_SUFFIX:
                found.append(OffsetAndEpoch(name.end_offset, name.epoch))
            else:
                self._disk.remove(path)
        return sorted(found)

    def path_of(self, snapshot: OffsetAndEpoch) -> Path:
        """Return the path of a finished snapshot."""
        return self._directory / snapshot_name(*snapshot)

    def size_of(self, snapshot: OffsetAndEpoch) -> int:
        """Return the size of a snapshot in bytes; 0 if it is missing."""
        with suppress(FileNotFoundError):
            return self.path_of(snapshot).stat().st_size
        return 0

    def head_of(self, snapshot: OffsetAndEpoch) -> SnapshotHead:
        """Return a snapshot's head.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, it can't be read.
            OSError: the disk refused.
        """
        with self.path_of(snapshot).open("rb") as file:
            data = file.read(_FIRST_BATCH_BYTES)
        return _head(next(iter(read_batches(data)), None))

    def slice_of(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes]:
        """Return the size of a snapshot and its bytes from a position on.

        Raises:
            TidegaugeError: SNAPSHOT_NOT_FOUND or POSITION_OUT_OF_RANGE.
        """
        try:
            with self.path_of(snapshot).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if not 0 <= position < size:
                    raise TidegaugeError(ErrorCode.POSITION_OUT_OF_RANGE)
                file.seek(position)
                return size, file.read(max_bytes)
        except FileNotFoundError:
            raise TidegaugeError(ErrorCode.SNAPSHOT_NOT_FOUND) from None

    # A snapshot that is being fetched

    def write(self, snapshot: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Write bytes of a snapshot that is being fetched; position 0 begins it.

        Raises:
            OSError: the disk refused.
        """
        if position == 0:
            self.drop(snapshot)
            name = snapshot_name(*snapshot, UNFINISHED_SUFFIX, attempt=secrets.token_hex(8))
            self._unfinished[snapshot] = self._directory / name
            os.close(self._disk.create(self._unfinished[snapshot]))
        descriptor = self._disk.open(self._unfinished[snapshot])
        try:
            self._disk.append(descriptor, (data,), len(data), position)
        finally:
            os.close(descriptor)

    def drop(self, snapshot: OffsetAndEpoch) -> None:
        """Remove the fetched part of a snapshot."""
        path = self._unfinished.pop(snapshot, None)
        if path is not None:
            self._disk.remove(path)

    def finish(self, snapshot: OffsetAndEpoch) -> SnapshotHead:
        """Check a snapshot as a whole, sync it and give it its name, unless it has it already. Blocks.

        One that was fetched and is damaged is removed.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, it is not whole.
            OSError: the disk refused.
        """
        unfinished = self._unfinished.pop(snapshot, None)
        path = self.path_of(snapshot) if unfinished is None else unfinished
        try:
            batches = read_snapshot(path.read_bytes())
            head = _head(next(batches, None))
            for _ in batches:
                pass
        except TidegaugeError:
            if unfinished is not None:
                self._disk.remove(unfinished)
            raise
        if unfinished is not None:
            self._disk.sync(unfinished)
            unfinished.chmod(_MODE)
            self._disk.rename(unfinished, self.path_of(snapshot))
            self._disk.sync_directory(self._directory)
        return head

    def retire(self, snapshot: OffsetAndEpoch) -> Path:
        """Rename a snapshot, so that it counts no more; return the path that is to be removed later.

        Raises:
            OSError: the disk refused.
        """
        retired = self._directory / snapshot_name(*snapshot, RETIRED_SUFFIX)
        with suppress(FileNotFoundError):
            self._disk.rename(self.path_of(snapshot), retired)
        return retired


def _head(first: MetadataBatch | None) -> SnapshotHead:
    messages = () if first is None else first.control
    if not messages or not isinstance(messages[0], SnapshotHeaderRecord):
        raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "The snapshot can't be read: it begins without a header")
    voter_set, version = None, LOWEST_KRAFT_VERSION
    for message in messages:
        if isinstance(message, KRaftVersionRecord):
            version = message.kraft_version
        elif isinstance(message, VotersRecord):
            record = from_message(message)
            assert isinstance(record, Voters)
            voter_set = record.voter_set
    return SnapshotHead(messages[0].last_contained_log_timestamp, voter_set, version)
