"""leader-epoch-checkpoint of one log, and whether it has still to be written.

A change without a sync is written with the next flush. If the broker ends before, the old file is truncated to what the
log holds when it is loaded: so an unsynced truncation may be lost, and nothing else. The event loop changes the
entries; a pool thread may write them.
Source: LeaderEpochFileCache.truncateFromEndAsyncFlush; KAFKA-16541.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from tidegauge_broker.log.checkpoints import LEADER_EPOCH_CHECKPOINT, EpochCheckpoint
from tidegauge_broker.log.files import Disk
from tidegauge_broker.replica.messages import EpochEntry


class EpochFile:
    """Keeps a log's leader-epoch-checkpoint.

    Args:
        directory: the log's.
        disk: writes the file.
        entries: the log's leader epochs.
        is_owed: whether the file does not say so yet.
    """

    def __init__(self, directory: Path, disk: Disk, entries: list[EpochEntry], *, is_owed: bool) -> None:
        self.entries = entries
        self.is_owed = is_owed
        self._checkpoint = EpochCheckpoint(directory / LEADER_EPOCH_CHECKPOINT, disk)
        self._lock = threading.Lock()

    def replace(self, entries: Sequence[EpochEntry], *, sync: bool) -> None:
        """Replace the entries; with ``sync`` they are on disk when this returns, else ``write_owed`` writes them."""
        with self._lock:
            self.entries = list(entries)
            self.is_owed = not sync
            if sync:
                self._checkpoint.write(entries)

    def write_owed(self) -> None:
        """Write the file if it was changed without ``sync``. Blocks."""
        with self._lock:
            if self.is_owed:
                self._checkpoint.write(self.entries)
                self.is_owed = False

    def close(self) -> None:
        """Write nothing any more: the log of a new topic may soon have this directory's name. Waits for a writer."""
        with self._lock:
            self.is_owed = False
