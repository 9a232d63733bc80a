"""The content of a replica's log: its records, epochs and producers, and the view of a reader of committed data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.unit.log.crash_twin import Found, Producer, Row

from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader, iterate_headers
from tidegauge.transaction_marker import Outcome, read_marker
from tidegauge_broker.formats.records import decode_records
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.log.partition_log import PartitionLog

_ALL = 1 << 20


def look_at(logs: LogManager, at: TopicPartition) -> Found:
    """Read all of a replica."""
    log, loaded = logs.logs[at], logs.loaded(at)
    found = [(header, data) for header, data in _batches(log, log.log_start_offset, log.log_end_offset)]
    producers = {
        entry.producer_id: Producer(entry.producer_epoch, entry.last_sequence, entry.transaction_start)
        for entry in log.producer_state.entries()
    }
    starts = [one.transaction_start for one in producers.values() if one.transaction_start is not None]
    stable = min(starts, default=log.log_end_offset)
    bases = [header.base_offset for header, _ in found]
    return Found(
        topic_id=log.topic_id,
        start=log.log_start_offset,
        end=log.log_end_offset,
        high_watermark=loaded.high_watermark,
        epochs=[(entry.epoch, entry.start_offset) for entry in log.epochs] if found else [],
        producers=producers,
        rows=[row for header, data in found if not header.is_control for row in rows_of(data)],
        batches=[data for _, data in found],
        bases=bases,
        committed={
            offset: list(_committed(log, offset, stable))
            for offset in {log.log_start_offset, *bases}
            if offset < stable
        },
    )


def rows_of(data: bytes) -> list[Row]:
    return [(record.offset, record.key, record.value) for record in decode_records(data)]


def _batches(log: PartitionLog, start: int, end: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield all batches; a read that gives none with a record must be the last: many clients never get past it."""
    offset, is_last = start, False
    while data := log.read(offset, end, _ALL, at_least_one_batch=True):
        has_records = any(header.record_count for header in iterate_headers(data))
        assert not (is_last and has_records), f"{log.topic_partition}: no record before {offset}, and some behind it"
        is_last = is_last or not has_records
        for header in iterate_headers(data):
            yield header.alone(), data[header.position : header.position + header.size_bytes]
            offset = header.next_offset


def _committed(log: PartitionLog, start: int, stable: int) -> Iterator[Row]:
    """Yield what a client with isolation.level=read_committed keeps of what it is sent."""
    offset = start
    while data := log.read(offset, stable, _ALL, at_least_one_batch=True):
        aborted = sorted(log.aborted_transactions(offset, len(data)), key=lambda one: one.first_offset)
        in_progress: set[int] = set()
        for header in iterate_headers(data):
            while aborted and aborted[0].first_offset <= header.last_offset:
                in_progress.add(aborted.pop(0).producer_id)
            batch = data[header.position : header.position + header.size_bytes]
            offset = header.next_offset
            if header.is_control:
                marker = read_marker(batch, header.alone())
                if marker is not None and marker.outcome is Outcome.ABORT:
                    in_progress.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in in_progress):
                yield from (row for row in rows_of(batch) if row[0] >= start)


def names_in(root: Path) -> list[str]:
    """All files and directories of a log directory, by their names in it."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))
