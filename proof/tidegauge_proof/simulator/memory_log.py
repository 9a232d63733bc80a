"""A replica's log in memory, and the record batches that are put there.

Contract: batches are the real bytes that brokers exchange, with the real CRC; only the disk is left out. A log outlives
its broker's process. It begins at offset 0 and nothing is ever deleted from its start.

As a log on disk it keeps the producers' state, and which transactions were aborted (.txnindex). Where
``snapshot_every`` says so, the state is written to a snapshot at times, and a rebuild, after a truncation or in a
new process, begins at the newest snapshot: that no longer knows a completed transaction, nor more than a producer's
last batch.

Two logs are compared in constant time: ``chain[n]`` is a hash of the first n records, so equal chains at n mean equal
records below n. A record is known by its epoch, the CRC of its batch and its place in it; the CRC covers the value and
no offset, and the values differ within 32 bits, so different records never have the same CRC.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from tidegauge.errors import TidegaugeError
from tidegauge.record_batch import NO_PRODUCER_ID, BatchHeader, Buffer, crc_matches, iterate_headers, patch, read_header
from tidegauge.transaction_marker import Outcome, read_marker
from tidegauge_broker.log.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from tidegauge_broker.log.transaction_index import aborted
from tidegauge_broker.replica.messages import EpochEntry
from tidegauge_broker.replica.open_transactions import AbortedTransaction, CompletedTransaction
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.producer_state import ProducerState
from tidegauge_client.records import NewRecord, encode_batch

START_MS = 1_000_000
"""Where simulated time begins; 0 would mean "never" to the core."""


class RecordName(NamedTuple):
    """The identity of a record: logs with the same name have the same record."""

    leader_epoch: int
    batch_crc: int
    place: int


@lru_cache(maxsize=4096)
def names_of(leader_epoch: int, batch_crc: int, record_count: int) -> list[RecordName]:
    """Return the names of a batch's records, shared by all logs."""
    return [RecordName(leader_epoch, batch_crc, place) for place in range(record_count)]


@lru_cache(maxsize=4096)
def batch_of(first_number: int, record_count: int = 1) -> bytes:
    """Return a producer's batch; the values are consecutive numbers, four bytes each."""
    values = range(first_number, first_number + record_count)
    return bytes(encode_batch([NewRecord(value.to_bytes(4, "big"), timestamp_ms=START_MS) for value in values]))


class MemoryLog:
    """A log of one partition, and the files that lie beside it."""

    __slots__ = (
        "_bases",
        "_batches",
        "_snapshots",
        "_torn",
        "aborted",
        "chain",
        "cuts",
        "epochs",
        "log_end_offset",
        "producer_state",
        "rebuilt_from",
        "records",
        "snapshot_every",
    )

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._batches: list[tuple[BatchHeader, bytes]] = []
        self.records: list[RecordName] = []
        self.chain: list[int] = [0]
        self.epochs: list[EpochEntry] = []
        self.producer_state = ProducerState()
        self.log_end_offset = 0
        self.cuts = 0
        """How often it was truncated."""
        self._torn = b""
        self.aborted: list[AbortedTransaction] = []
        """The contents of .txnindex, by marker."""
        self.snapshot_every = 0
        """After how many batches the producers' state is written; 0: never."""
        self._snapshots: dict[int, bytes] = {}
        self.rebuilt_from = 0
        """The offset of the snapshot from which the producers' state was rebuilt last."""

    @classmethod
    def of(cls, records: Iterable[tuple[int, int]]) -> MemoryLog:
        """Return a log of records (epoch, number), one batch each."""
        log = cls()
        for epoch, number in records:
            log.append_new(epoch, number)
        return log

    def append_new(self, leader_epoch: int, number: int) -> None:
        """One more record, as a leader of that epoch writes it."""
        if not self.epochs or self.epochs[-1].epoch < leader_epoch:
            self.epochs = [*self.epochs, EpochEntry(leader_epoch, self.log_end_offset)]
        data = batch_of(number)
        header = header_of(data).at(self.log_end_offset, leader_epoch)
        self.append(header, patched(data, header))

    def append(self, header: BatchHeader, data: bytes) -> None:
        """Add a batch; ``header`` is ``data``'s."""
        assert header.base_offset == self.log_end_offset, "I7: a batch that does not begin at the log's end"
        if self.snapshot_every and self._bases and len(self._bases) % self.snapshot_every == 0:
            self._snapshots[header.base_offset] = encode_snapshot(self.producer_state.entries())
        self._bases.append(header.base_offset)
        self._batches.append((header, data))
        names = names_of(header.leader_epoch, header.crc, header.record_count)
        self.records += names
        chain = self.chain
        last = chain[-1]
        for name in names:
            last = hash((last, name))
            chain.append(last)
        self.log_end_offset = header.next_offset
        if header.producer_id != NO_PRODUCER_ID:
            self._note_producer(header, data)

    def _note_producer(self, header: BatchHeader, data: bytes) -> CompletedTransaction | None:
        """Take a batch into the producers' state; return the transaction that it completes."""
        state = self.producer_state
        if not header.is_control:
            state.update(header)
            return None
        marker = read_marker(data, header)
        completed = None if marker is None else state.update_marker(header, marker)
        if completed is not None and marker is not None and marker.outcome is Outcome.ABORT:
            entry = aborted(completed, state.transactions)
            if not self.aborted or self.aborted[-1].last_offset < entry.last_offset:
                self.aborted.append(entry)
        return completed

    def truncate_to(self, to_offset: int) -> None:
        """Truncate the log: remove the batches that reach beyond the new end."""
        keep = bisect_right(self._bases, to_offset - 1)
        if keep and self._batches[keep - 1][0].next_offset > to_offset:
            keep -= 1
        del self._bases[keep:]
        del self._batches[keep:]
        end = self._batches[-1][0].next_offset if keep else 0
        assert end == to_offset, f"WholeBatches: a truncation at {to_offset}, inside a batch"
        del self.records[end:]
        del self.chain[end + 1 :]
        self.log_end_offset = end
        self.cuts += 1
        self.aborted = [one for one in self.aborted if one.last_offset < end]
        self._snapshots = {offset: data for offset, data in self._snapshots.items() if offset <= end}
        self._rebuild_producers()

    def lose_beyond(self, to_offset: int, torn: int) -> None:
        """Lose the batches from an offset on, but for ``torn`` bytes of the next, as a power loss does.

        If that is more than it has, all its pages were written but the last.
        """
        data = self._batches[bisect_left(self._bases, to_offset)][1]
        self.truncate_to(to_offset)
        self._torn = data[:torn] if torn < len(data) else data[:-1] + bytes([data[-1] ^ 0xFF])

    def recover(self) -> None:
        """Recover the log at a start after a power loss: keep it as far as its batches are complete."""
        torn, self._torn = self._torn, b""
        try:
            for header in iterate_headers(torn):
                if not crc_matches(torn, header):
                    return
                self.append(header, torn[header.position : header.position + header.size_bytes])
        except TidegaugeError:
            return

    def _rebuild_producers(self) -> None:
        """Rebuild the producers' state from the newest sound snapshot and the batches behind it."""
        self.producer_state, self.rebuilt_from = self._newest_snapshot()
        first = bisect_left(self._bases, self.rebuilt_from)
        for header, data in self._batches[first:]:
            if header.producer_id != NO_PRODUCER_ID:
                completed = self._note_producer(header, data)
                if completed is not None:
                    self.producer_state.transactions.hold(completed)

    def _newest_snapshot(self) -> tuple[ProducerState, int]:
        for offset in sorted(self._snapshots, reverse=True):
            try:
                return ProducerState.from_entries(decode_snapshot(self._snapshots[offset])), offset
            except CorruptSnapshot:
                del self._snapshots[offset]
        return ProducerState(), 0

    def aborted_transactions(self, from_offset: int, size_bytes: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap what ``read`` gave from an offset."""
        if not size_bytes or not self.aborted:
            return []
        upper_bound = from_offset
        for header, data in self._batches[max(0, bisect_right(self._bases, from_offset) - 1) :]:
            if size_bytes <= 0:
                break
            size_bytes -= len(data)
            upper_bound = header.next_offset
        found: list[AbortedTransaction] = []
        for one in self.aborted:
            if one.last_offset >= from_offset and one.first_offset < upper_bound:
                found.append(one)
            if one.last_stable_offset >= upper_bound:
                break
        return found

    def whole_batches_below(self, offset: int) -> int:
        """Return the end of the last whole batch below an offset."""
        if offset >= self.log_end_offset:
            return self.log_end_offset
        place = bisect_right(self._bases, offset)
        return self._bases[place - 1] if place else 0

    def read(self, from_offset: int, upper_bound: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds an offset; the first one whatever its size."""
        taken: list[bytes] = []
        size_bytes = 0
        for place in self._places(from_offset, upper_bound):
            data = self._batches[place][1]
            if taken and size_bytes + len(data) > max_bytes:
                break
            taken.append(data)
            size_bytes += len(data)
        return b"".join(taken)

    def bytes_between(self, from_offset: int, end_offset: int) -> int:
        """Bytes of the batches in a range of offsets."""
        if from_offset >= end_offset:
            return 0
        return sum(len(self._batches[place][1]) for place in self._places(from_offset, end_offset))

    def _places(self, from_offset: int, end_offset: int) -> range:
        """Return the places of the batches that overlap a range of offsets."""
        if from_offset >= self.log_end_offset:
            return range(0)
        bases = self._bases
        return range(max(0, bisect_right(bases, from_offset) - 1), bisect_left(bases, end_offset))

    def loaded(self, high_watermark: int, former_epoch: int = -1) -> LoadedLog:
        """Return what a new process finds; ``high_watermark`` comes from the checkpoint."""
        self._rebuild_producers()
        return LoadedLog(
            0,
            self.log_end_offset,
            min(high_watermark, self.log_end_offset),
            list(self.epochs),
            self.producer_state,
            former_epoch,
        )


@lru_cache(maxsize=4096)
def header_of(data: bytes) -> BatchHeader:
    """Return the header of a buffer's only batch."""
    return read_header(data)


def patched(data: Buffer, header: BatchHeader) -> bytes:
    """Return the batch as a leader writes it, with the header's offset and epoch."""
    buffer = bytearray(data)
    patch(buffer, 0, header.base_offset, header.leader_epoch)
    return bytes(buffer)
