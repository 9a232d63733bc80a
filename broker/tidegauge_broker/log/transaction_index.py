"""``.txnindex``: the aborted transactions whose markers lie in a segment, for readers of committed data.

Entries of 34 bytes, big endian (Kafka's AbortedTxn)::

    0 version i16 = 0 | 2 producerId i64 | 10 firstOffset i64 | 18 lastOffset i64 | 26 lastStableOffset i64

Rules (TransactionIndex, LogSegment.updateTxnIndex):
    1. An entry is written by every replica when it appends the marker of an aborted transaction that had data, into the
       segment of the marker; ``lastOffset`` is the marker's offset and rises strictly.
    2. ``lastStableOffset`` is the first offset of the next transaction that was open then, or the offset after the
       marker: an entry from which it is above the end of a read ends the search.
    3. The file is created with its first entry: most segments have none.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

from tidegauge_broker.log.files import DISK, Disk
from tidegauge_broker.replica.open_transactions import AbortedTransaction, CompletedTransaction, OpenTransactions

TRANSACTION_INDEX_SUFFIX = ".txnindex"
_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")


def aborted(completed: CompletedTransaction, transactions: OpenTransactions) -> AbortedTransaction:
    """Return a completed transaction's entry, given the open transactions: rule 2."""
    return AbortedTransaction(
        completed.producer_id,
        completed.first_offset,
        completed.marker_offset,
        transactions.last_stable_offset_after(completed),
    )


class TransactionIndex:
    """The aborted transactions of one segment; read once, then appended to or truncated."""

    def __init__(self, path: Path, disk: Disk = DISK) -> None:
        self.path = path
        self._disk = disk
        self._entries: list[AbortedTransaction] | None = None
        self._descriptor = -1
        self._loading = threading.Lock()  # the cleaner's thread reads what the event loop appends to

    def entries(self) -> Sequence[AbortedTransaction]:
        """Return all entries, rising by marker.

        Raises:
            OSError: the disk refused.
        """
        return self._loaded()

    def _loaded(self) -> list[AbortedTransaction]:
        with self._loading:
            if self._entries is None:
                try:
                    data = self.path.read_bytes()
                except FileNotFoundError:
                    data = b""
                whole = data[: len(data) - len(data) % _ENTRY.size]
                self._entries = [AbortedTransaction(*fields[1:]) for fields in _ENTRY.iter_unpack(whole)]
            return self._entries

    def append(self, entry: AbortedTransaction) -> None:
        """Add an aborted transaction; its marker lies above all entries' markers.

        Raises:
            OSError: the disk refused; the entry was not added.
        """
        entries = self._loaded()
        assert not entries or entry.last_offset > entries[-1].last_offset, f"{self.path}: {entry} after {entries[-1]}"
        if self._descriptor < 0:
            self._descriptor = self._disk.open(self.path) if self.path.exists() else self._disk.create(self.path)
        packed = _ENTRY.pack(_VERSION, *entry)
        self._disk.append(self._descriptor, (packed,), _ENTRY.size, len(entries) * _ENTRY.size)
        entries.append(entry)

    def collect(self, from_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """Find the transactions that a reader of some offsets must leave out (TransactionIndex.collectAbortedTxns).

        Args:
            from_offset: where the reader begins.
            upper_bound: exclusive end of what it reads.

        Returns:
            The entries, and whether the search is complete, or continues in the next segment.
        """
        found: list[AbortedTransaction] = []
        for entry in self._loaded():
            if entry.last_offset >= from_offset and entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Keep the entries whose marker lies below an offset.

        Raises:
            OSError: the disk refused.
        """
        entries = self._loaded()
        keep = len(entries)
        while keep and entries[keep - 1].last_offset >= offset:
            keep -= 1
        if keep < len(entries):
            self._disk.truncate(self.path, keep * _ENTRY.size)
            del entries[keep:]

    def replace(self, entries: Sequence[AbortedTransaction], *, sync: bool) -> None:
        """Replace all entries at once: a crash leaves the former ones or these. Without any there is no file.

        Args:
            entries: rising by marker.
            sync: they are on the disk when this returns.

        Raises:
            OSError: the disk refused.
        """
        if not entries:
            self.reset()
            return
        self.close()
        self._disk.replace(self.path, b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries), sync=sync)
        self._entries = list(entries)

    def reset(self) -> None:
        """Remove all entries, and the file."""
        self.close()
        self._disk.remove(self.path)
        self._entries = []

    def is_sound(self, base_offset: int) -> bool:
        """Whether the file can belong to a segment (TransactionIndex.sanityCheck), or is absent.

        Args:
            base_offset: the segment's base offset, below which no marker of it lies.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return True
        if len(data) % _ENTRY.size:
            return False
        last = base_offset - 1
        for version, _, first_offset, last_offset, _ in _ENTRY.iter_unpack(data):
            if version > _VERSION or last_offset <= last or first_offset > last_offset:
                return False
            last = last_offset
        return True

    def sync(self) -> None:
        """Bring the entries to the disk, if there are any."""
        if self.path.exists():
            self._disk.sync(self.path)

    def close(self) -> None:
        """Close the descriptor; the index can still be read, and appended to again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
