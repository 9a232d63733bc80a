"""The ``.snapshot`` files of one log: written at each segment's base and at the log's end, synced with the next flush.

The event loop writes and removes them; a pool thread may sync them at the same time. An OSError of the disk is the
caller's to handle.
Source: Kafka's ProducerStateManager; the format of one file is ``producer_snapshot``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tidegauge_broker.log import producer_snapshot
from tidegauge_broker.log.files import Disk
from tidegauge_broker.log.recovery import replay_producers
from tidegauge_broker.log.segment import DELETED_SUFFIX, LogSegment
from tidegauge_broker.replica.producer_state import ProducerState


class ProducerSnapshots:
    """The producer snapshots of one log.

    Args:
        directory: the log's.
        disk: writes the files.
        unsynced: files that were written before, and not synced.
    """

    def __init__(self, directory: Path, disk: Disk, unsynced: Iterable[Path]) -> None:
        self._directory = directory
        self._disk = disk
        self._unsynced: dict[Path, None] = dict.fromkeys(unsynced)

    @property
    def has_unsynced(self) -> bool:
        """Whether a file was written and not synced."""
        return bool(self._unsynced)

    def take(self, offset: int, state: ProducerState) -> None:
        """Write the producer state as of an offset, without a sync (ProducerStateManager.takeSnapshot)."""
        path = producer_snapshot.write_snapshot(self._directory, offset, state.entries(), sync=False, disk=self._disk)
        self._unsynced[path] = None

    def take_missing(self, end_offset: int, log_start_offset: int, state: ProducerState) -> None:
        """Write the producer state as of the log's end, unless there is a newer file or one of that offset."""
        newest = max(producer_snapshot.snapshot_offsets(self._directory), default=log_start_offset)
        if end_offset > newest:
            self.take(end_offset, state)

    def state_before(
        self, end_offset: int, log_start_offset: int, state: ProducerState, segments: Sequence[LogSegment]
    ) -> ProducerState:
        """Return the producer state at a truncated log's end (ProducerStateManager.truncateAndReload).

        Args:
            end_offset: the log's new end.
            log_start_offset: the log's start, below which no file counts.
            state: as of the end before; returned as it is if nothing in it lies beyond the new end.
            segments: the remaining segments. Batches between the newest file and the new end are read from them.
        """
        if not any(
            entry.coordinator_epoch >= 0 or any(span.last_offset >= end_offset for span in entry.batches)
            for entry in state.entries()
        ):
            return state
        found = producer_snapshot.newest_snapshot(self._directory, log_start_offset, end_offset, self._disk)
        from_offset, entries = found or (log_start_offset, [])
        rebuilt = ProducerState.from_entries(entries)
        replay_producers(rebuilt, segments, from_offset)
        return rebuilt

    def remove_above(self, offset: int) -> None:
        """Remove the files above an offset at once: their records were truncated."""
        producer_snapshot.remove_snapshots(self._directory, above=offset, disk=self._disk)

    def mark_deleted(self, offset: int) -> list[Path]:
        """Rename an offset's file to ``.deleted``; return the new paths, none if there is no such file."""
        snapshot = producer_snapshot.snapshot_path(self._directory, offset)
        if not snapshot.exists():
            return []
        renamed = snapshot.with_name(snapshot.name + DELETED_SUFFIX)
        self._disk.rename(snapshot, renamed)
        self._unsynced.pop(snapshot, None)
        return [renamed]

    def sync(self) -> None:
        """Bring the files to the disk that were written since. Blocks."""
        for path in list(self._unsynced):
            # Taken out first: what the loop writes while this is synced must be synced again.
            self._unsynced.pop(path, None)
            with suppress(FileNotFoundError):  # the loop may remove it at any moment
                if path.exists():
                    self._disk.sync(path)
