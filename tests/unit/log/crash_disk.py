"""A disk on which a process dies before any chosen change, and which may then lose unsynced changes.

Contract: one ``Fate`` serves all log directories of a process, so that changes are counted over all of them. A
``JournalDisk`` belongs to one log directory and outlives the processes.

Rules:
    1. A kill leaves everything that was written. An append may have been half done.
    2. A power loss leaves of each file the synced bytes, and perhaps some of those behind. Of the changes
       of names and of truncations it leaves those up to some moment that is not before the last sync of a directory: a
       file system's journal keeps their order. Files that are created, renamed, replaced, removed and truncated count.
       A ``.log`` that loses some of its bytes, not all of them, never loses whole batches alone: a page ends anywhere.
    3. A disk that fails refuses every change until ``failing`` is taken back.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from tidegauge_broker.log.files import Buffer, Disk


class Crash(BaseException):
    """The process is dead. No OSError, so that no handler takes it."""


class Fate:
    """Counts the changes, and ends the process at the chosen one; from then on nothing is changed.

    Args:
        last: the change that does not happen any more, counted from 0; None: the process processes.
        torn: if that change is an append, half of it happens.
    """

    def __init__(self, last: int | None = None, *, torn: bool = False) -> None:
        self.changes = 0
        self.last = last
        self.torn = torn
        self.dead = False
        self._counted = 0
        self._only_renames = False

    def begin(self, last: int | None, *, only_renames: bool = False) -> None:
        """Count again from here on, perhaps renames alone."""
        self.last, self._only_renames, self._counted = last, only_renames, 0

    def change(self, *, is_rename: bool = False) -> None:
        counts = is_rename or not self._only_renames
        if self.dead or (counts and self._counted == self.last):
            self.dead = True
            raise Crash
        self.changes += 1
        self._counted += counts

    def tears(self) -> bool:
        return self.torn and not self.dead and not self._only_renames and self._counted == self.last


class JournalDisk(Disk):
    """The disk of one log directory, with a journal.

    Args:
        root: the log directory.
        attic: keeps the files that a power loss may bring back.
    """

    def __init__(self, root: Path, attic: Path) -> None:
        self.root = root
        self.fate = Fate()
        self.failing = False
        self._attic = attic
        self._kept = 0
        self._undo: list[Callable[[], object]] = []
        self._synced: dict[int, int] = {}

    def begin(self, directory: Path) -> None:
        """Nothing is noted in the directory."""

    def _change(self, *, is_rename: bool = False) -> None:
        if self.failing and not self.fate.dead:
            raise OSError(5, "Input/output error")
        self.fate.change(is_rename=is_rename)

    # Changes

    def create(self, path: Path) -> int:
        self._change()
        is_new = not path.exists()
        if not is_new:
            self._note_content(path)
        descriptor = super().create(path)
        if is_new:
            self._undo.append(lambda: _remove_new(path, self.root))
        self._synced[os.fstat(descriptor).st_ino] = 0
        return descriptor

    def append(self, descriptor: int, parts: Sequence[Buffer], size_bytes: int, end_position: int) -> None:
        if self.fate.tears() and not self.failing:
            os.write(descriptor, b"".join(parts)[: size_bytes // 2])
        self._change()
        super().append(descriptor, parts, size_bytes, end_position)

    def truncate(self, path: Path, size_bytes: int) -> None:
        self._change()
        self._note_content(path)
        super().truncate(path, size_bytes)
        inode = path.stat().st_ino
        self._synced[inode] = min(self._synced.get(inode, 0), size_bytes)

    def _note_content(self, path: Path) -> None:
        data, inode = path.read_bytes(), path.stat().st_ino
        synced = self._synced.get(inode, 0)

        def undo() -> None:
            path.write_bytes(data)
            self._synced[inode] = synced

        self._undo.append(undo)

    def _fsync(self, descriptor: int) -> None:
        self._change()
        status = os.fstat(descriptor)
        self._synced[status.st_ino] = status.st_size

    def sync_directory(self, path: Path) -> None:
        self._change()
        if not path.is_dir():
            raise FileNotFoundError(path)
        self._undo.clear()
        shutil.rmtree(self._attic, ignore_errors=True)

    def rename(self, path: Path, to: Path) -> None:
        self._change(is_rename=True)
        replaced = self._keep(to) if to.is_file() else None
        super().rename(path, to)

        def undo() -> None:
            to.rename(path)
            if replaced is not None:
                os.link(replaced, to)

        self._undo.append(undo)

    def remove(self, path: Path) -> None:
        if not path.exists():
            return
        self._change()
        kept = self._keep(path)
        super().remove(path)
        self._undo.append(lambda: os.link(kept, path))

    def remove_directory(self, path: Path) -> None:
        self._change()
        if not path.is_dir():
            raise FileNotFoundError(path)
        kept = self._new_place()
        path.rename(kept)
        self._undo.append(lambda: kept.rename(path))

    def _keep(self, path: Path) -> Path:
        kept = self._new_place()
        os.link(path, kept)
        return kept

    def _new_place(self) -> Path:
        self._attic.mkdir(parents=True, exist_ok=True)
        self._kept += 1
        return self._attic / str(self._kept)

    # Afterwards

    def lose_power(self, random: Random) -> None:
        """Rule 2. No process uses the directory."""
        lost = random.choice([0, len(self._undo), random.randint(0, len(self._undo))])
        for undo in reversed(self._undo[len(self._undo) - lost :]):
            undo()
        self._undo.clear()
        for path in self.root.rglob("*"):
            if not path.is_file():
                continue
            status = path.stat()
            synced = min(self._synced.get(status.st_ino, status.st_size), status.st_size)
            left = random.choice([synced, synced, status.st_size, random.randint(synced, status.st_size)])
            if path.suffix == ".log" and 0 < left < status.st_size:
                left = _torn(path.read_bytes(), left)
            os.truncate(path, left)
            self._synced[status.st_ino] = left
        shutil.rmtree(self._attic, ignore_errors=True)


def _torn(data: bytes, length: int) -> int:
    """Return a length a little larger where a batch ends at this one."""
    end = 0
    while end < length:
        end += 12 + int.from_bytes(data[end + 8 : end + 12], "big")
    return min(length + 7, len(data)) if end == length else length


def _remove_new(path: Path, root: Path) -> None:
    path.unlink(missing_ok=True)
    if path.parent != root and not any(path.parent.iterdir()):
        path.parent.rmdir()
