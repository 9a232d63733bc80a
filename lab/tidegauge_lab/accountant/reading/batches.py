"""Notes that the accountant takes of a replica's batches: marks, records, and damage. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegauge.errors import TidegaugeError
from tidegauge.record_batch import BatchHeader, crc_matches
from tidegauge_client.records import Record, decode_batch
from tidegauge_lab.accountant.books import Damage, Mark, RecordMark

DAMAGED_CRC = -1
"""Stands for the CRC of a batch whose bytes do not fit it: no other batch has it."""


@dataclass(slots=True)
class BatchNotes:
    """Collects the notes of one replica, in the order of its batches.

    Attributes:
        by_record: whether records are noted as well, since the log may have been compacted.
        marks: its batches.
        records: its records; empty without ``by_record``.
        has_sparse_batches: a batch holds fewer records than offsets.
        damage: what could not be read.
    """

    by_record: bool = False
    marks: list[Mark] = field(default_factory=list)
    records: list[RecordMark] = field(default_factory=list)
    has_sparse_batches: bool = False
    damage: list[Damage] = field(default_factory=list)

    def add(self, data: bytes, header: BatchHeader, place: str) -> None:
        """Note a whole batch; the header says where ``data`` holds it, and ``place`` where the disk does."""
        is_valid = crc_matches(data, header)
        wrong = "does not match its CRC"
        if is_valid and self.by_record:
            try:
                self.records += [_mark_of(record) for record in decode_batch(data, header, check_crc=False)]
            except TidegaugeError as problem:
                is_valid, wrong = False, f"can't be decoded ({problem.message})"
        if not is_valid:
            words = f"the batch of offsets {header.base_offset} to {header.next_offset - 1}, at {place}, {wrong}"
            self.damage.append(Damage(header.base_offset, header.next_offset, words))
        self.has_sparse_batches |= is_valid and header.record_count < header.next_offset - header.base_offset
        crc = header.crc if is_valid else DAMAGED_CRC
        self.marks.append(Mark(header.base_offset, header.next_offset, header.leader_epoch, crc))

    def break_off(self, offset: int, why: str, next_offset: int = -1) -> None:
        """Note that an offset can't be read, and why; ``next_offset``: where reading goes on, -1: nowhere."""
        to = "on" if next_offset < 0 else f"to {next_offset - 1}"
        self.damage.append(Damage(offset, next_offset, f"offsets from {offset} {to} can't be read: {why}"))


def _mark_of(record: Record) -> RecordMark:
    content = (record.key, record.value, record.timestamp_ms, tuple(record.headers))
    key = None if record.key is None else hash(record.key)
    return RecordMark(record.offset, record.leader_epoch, key, hash(content), record.value is None)
