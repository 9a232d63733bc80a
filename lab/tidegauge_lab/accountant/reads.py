"""Stable reads: what a consumer once read at an offset is there for ever, with the same bytes.

A committed record may leave the log only by retention, deletion or compaction, from below; so an offset that was read
and is at or above the log start offset must be read alike by everybody, and be in the committed log at the end.

Source: Jepsen's analyses of Kafka-like systems (stable read, inconsistent offsets). Linear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegauge_lab.accountant.books import CommittedLog, Findings, Kind, ReadRecord, show
from tidegauge_lab.accountant.ledger import position_of


def check_reads(reads: Sequence[ReadRecord], logs: Mapping[int, CommittedLog], findings: Findings) -> None:
    """Report offsets that were read differently, once for each offset."""
    first: dict[tuple[int, int], ReadRecord] = {}
    convicted: set[tuple[int, int]] = set()
    for read in reads:
        place = (read.partition, read.offset)
        before = first.setdefault(place, read)
        if place not in convicted and (before.key, before.value) != (read.key, read.value):
            convicted.add(place)
            _convict(before, show(read.value), "later", findings)
    for place, read in first.items():
        log = logs.get(read.partition)
        if place in convicted or log is None or read.offset < log.log_start_offset:
            continue
        position = position_of(log, read.offset)
        if position is None:
            if not log.is_compacted:
                _convict(read, "nothing", "in the end", findings)
        elif (log.records[position].key, log.records[position].value) != (read.key, read.value):
            _convict(read, show(log.records[position].value), "in the end", findings)


def _convict(read: ReadRecord, instead: str, when: str, findings: Findings) -> None:
    findings.add(
        Kind.READ_DIFFERENTLY,
        read.partition,
        read.offset,
        "offset {} was read as {} and {} as {}",
        read.offset,
        show(read.value),
        when,
        instead,
    )
