"""The contents of a log's files, item by item, in the format of Kafka's DumpLogSegments (kafka-dump-log.sh).
The files of a KRaft cluster's metadata log, its snapshots included, are shown by ``dump_metadata``.

Contract: read only; works on files of a running or dead broker, Kafka's included. Each item has its line of text
(Kafka's layout) and its fields (for JSON). Contradictions are collected as problems, reported at the end.

Rules:
    1. A batch whose header is sound is shown even if its CRC is wrong (``isvalid: false``); the rest of the file
       after the last whole batch is counted as invalid bytes.
    2. An offset index entry is right if a batch at or after its position ends with its offset. (Kafka looks at the
       first batch only, and so doubts every entry that a follower wrote for several batches.)
    3. A zero entry after the first ends an index: Kafka preallocates these files.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import (
    COMPRESSION_NAMES,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    NO_SEQUENCE,
    BatchHeader,
    crc_matches,
    increment_sequence,
    read_header,
)
from tidegauge_broker.formats.records import StoredRecord, decode_records
from tidegauge_broker.log.dump_metadata import shown_control, shown_metadata, shown_snapshot_name
from tidegauge_broker.log.index import OffsetIndex, TimeIndex
from tidegauge_broker.log.producer_snapshot import SNAPSHOT_SUFFIX, CorruptSnapshot, decode_snapshot
from tidegauge_broker.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from tidegauge_broker.metadata_log.snapshot_names import SNAPSHOT_SUFFIX as METADATA_SNAPSHOT_SUFFIX
from tidegauge_broker.metadata_log.snapshot_names import snapshot_name

MAX_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The options of a dump; the names are those that kafka-dump-log.sh has.

    Attributes:
        cluster_metadata_decoder: show the records, and read their values as metadata records.
    """

    cluster_metadata_decoder: bool = False
    print_data_log: bool = False
    deep_iteration: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    skip_record_metadata: bool = False
    max_bytes: int = MAX_BYTES


class DumpItem(NamedTuple):
    """One line: its kind, its fields, its text."""

    kind: str
    fields: dict[str, object]
    text: str


@dataclass(slots=True)
class Problems:
    """Contradictions between files, as lines for people, grouped by file."""

    lines: list[str] = field(default_factory=list)

    def report(self, title: str, details: list[str]) -> None:
        """Add a group, if it has any line."""
        if details:
            self.lines += [title, *details]


def dump_file(path: Path, options: DumpOptions, problems: Problems) -> Iterator[DumpItem]:
    """Yield the items of one file, by the suffix of its name.

    Raises:
        TidegaugeError: KAFKA_STORAGE_ERROR, the file cannot be read, it is a directory, or its name has no base offset.
    """
    kinds = {
        LOG_SUFFIX: _dump_log,
        INDEX_SUFFIX: _dump_index,
        TIME_INDEX_SUFFIX: _dump_time_index,
        SNAPSHOT_SUFFIX: _dump_snapshot,
        METADATA_SNAPSHOT_SUFFIX: _dump_metadata_snapshot,
    }
    if not path.exists():
        raise TidegaugeError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} cannot be read: {os.strerror(errno.ENOENT)}")
    if path.is_dir():
        raise TidegaugeError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is a directory; name files in it, for example {path}/*{LOG_SUFFIX}"
        )
    dump = kinds.get(path.suffix)
    if dump is None:
        problems.lines.append(f"Ignoring unknown file {path}")
        return
    if path.suffix != METADATA_SNAPSHOT_SUFFIX and not path.stem.isdecimal():
        raise TidegaugeError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is not named by a base offset, for example {0:020d}{path.suffix}"
        )
    try:
        yield from dump(path, options, problems)
    except OSError as error:
        raise TidegaugeError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{error.filename or path} cannot be read: {error.strerror}"
        ) from None


# Batches


class LogFile:
    """A .log file, opened for reading; a broker may write to it, or truncate it, meanwhile."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self.descriptor = descriptor
        self.size_bytes = size_bytes

    def headers(self, position: int = 0) -> Iterator[BatchHeader]:
        """Headers of the whole batches from a position on; their ``position`` is that in the file."""
        while self.size_bytes - position >= HEADER_BYTES:
            try:
                header = read_header(os.pread(self.descriptor, HEADER_BYTES, position))._replace(position=position)
            except TidegaugeError:
                return
            if position + header.size_bytes > self.size_bytes:
                return
            yield header
            position += header.size_bytes

    def batch(self, header: BatchHeader) -> bytes:
        """Return the bytes of a batch."""
        return os.pread(self.descriptor, header.size_bytes, header.position)


@contextmanager
def opened_log(path: Path, max_bytes: int = MAX_BYTES) -> Iterator[LogFile]:
    """Open a .log file of a running or dead broker for reading; OSError if it can't be opened."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield LogFile(descriptor, min(max_bytes, os.fstat(descriptor).st_size))
    finally:
        os.close(descriptor)


def _dump_log(path: Path, options: DumpOptions, problems: Problems) -> Iterator[DumpItem]:
    start = int(path.stem)
    title = DumpItem("log", {"logStartingOffset": start}, f"Log starting offset: {start}")
    yield from _dump_batches(path, title, options, problems)


def _dump_metadata_snapshot(path: Path, options: DumpOptions, problems: Problems) -> Iterator[DumpItem]:
    shown = shown_snapshot_name(path)
    if shown is None:
        raise TidegaugeError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{path} is not named by an end offset and an epoch, for example {snapshot_name(0, 0)}",
        )
    yield from _dump_batches(path, DumpItem("metadataSnapshot", *shown), options, problems)


def _dump_batches(path: Path, title: DumpItem, options: DumpOptions, problems: Problems) -> Iterator[DumpItem]:
    gaps: list[str] = []
    undecodable: list[str] = []
    previous: int | None = None
    valid_bytes = 0
    with opened_log(path, options.max_bytes) as log:
        yield title
        for header in log.headers():
            data = log.batch(header)
            is_valid = crc_matches(data, header._replace(position=0))
            yield _batch_item(header, is_valid=is_valid)
            valid_bytes = header.position + header.size_bytes
            if not (options.deep_iteration or options.print_data_log or options.cluster_metadata_decoder):
                continue
            if not is_valid:
                undecodable.append(f"  The records at byte {header.position} are not shown: the CRC is wrong")
                continue
            for record in decode_records(data):
                if previous is not None and record.offset != previous + 1:
                    gaps.append(f"  {previous} is followed by {record.offset}")
                previous = record.offset
                yield _record_item(header, record, options)
        rest = log.size_bytes - valid_bytes
    if rest > 0 and options.max_bytes == MAX_BYTES:
        text = f"Found {rest} invalid bytes at the end of {path.name}"
        yield DumpItem("invalidBytes", {"invalidBytes": rest}, text)
    problems.report(f"Non-consecutive offsets in {path}", gaps)
    problems.report(f"Corrupt batches in {path}", undecodable)


def _time_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.attributes & LOG_APPEND_TIME_BIT else "CreateTime"


def _batch_item(header: BatchHeader, *, is_valid: bool) -> DumpItem:
    horizon = header.base_timestamp_ms if header.attributes & DELETE_HORIZON_BIT else None
    codec = COMPRESSION_NAMES[header.compression] if header.compression < len(COMPRESSION_NAMES) else "unknown"
    fields: dict[str, object] = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": horizon,
        "position": header.position,
        _time_type(header): header.max_timestamp_ms,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": codec,
        "crc": header.crc,
        "isvalid": is_valid,
    }
    shown = fields | {"deleteHorizonMs": _optional(horizon)}
    return DumpItem("batch", fields, _pairs(shown))


def _record_item(header: BatchHeader, record: StoredRecord, options: DumpOptions) -> DumpItem:
    sequence = -1
    if header.base_sequence != NO_SEQUENCE:
        sequence = increment_sequence(header.base_sequence, record.offset - header.base_offset)
    header_keys = [key for key, _value in record.headers]
    fields: dict[str, object] = {
        "offset": record.offset,
        _time_type(header): record.timestamp_ms,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": sequence,
        "headerKeys": header_keys,
    }
    parts = []
    if not options.skip_record_metadata:
        parts.append(_pairs(fields | {"headerKeys": f"[{','.join(header_keys)}]"}))
        if header.is_control:
            control = shown_control(record)
            fields |= control.fields
            parts.append(control.text)
    if options.cluster_metadata_decoder and not header.is_control:
        metadata = shown_metadata(record)
        fields |= metadata.fields
        parts.append(metadata.text)
    elif options.print_data_log and not header.is_control:
        content = {"key": record.key, "payload": record.value}
        fields |= content
        parts += [f"{name}: {str(value, 'utf-8', 'replace')}" for name, value in content.items() if value is not None]
        if options.skip_record_metadata and record.key is None:
            return DumpItem("record", fields, "".join(f" {part}" for part in parts))  # the bar comes before a key only
    return DumpItem("record", fields, " ".join(["|", *parts]) if parts else "")


def _optional(value: int | None) -> str:
    """Return a value as Java's OptionalLong prints it."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _pairs(fields: dict[str, object]) -> str:
    shown = {True: "true", False: "false"}
    return " ".join(f"{name}: {shown[value] if isinstance(value, bool) else value}" for name, value in fields.items())


# Indexes


def _dump_index(path: Path, options: DumpOptions, problems: Problems) -> Iterator[DumpItem]:
    base = int(path.stem)
    index = OffsetIndex(path, MAX_BYTES)
    if not len(index):
        yield DumpItem("empty", {}, f"{path} is empty.")
        return
    with opened_log(path.with_suffix(LOG_SUFFIX)) as log:
        if options.index_sanity_check:
            yield _sanity(path, problems, is_sound=index.is_sound(log.size_bytes))
            return
        mismatches = []
        for at, (relative, position) in enumerate(index.entries()):
            if relative == 0 and at:
                break
            offset = base + relative
            found = next((h.last_offset for h in log.headers(position) if h.last_offset >= offset), -1)
            if found != offset:
                mismatches.append(f"  Index offset: {offset}, log offset: {found}")
            if not options.verify_index_only:
                fields: dict[str, object] = {"offset": offset, "position": position}
                yield DumpItem("indexEntry", fields, _pairs(fields))
    problems.report(f"Mismatches in :{path}", mismatches)


def _dump_time_index(path: Path, options: DumpOptions, problems: Problems) -> Iterator[DumpItem]:
    base = int(path.stem)
    time_index = TimeIndex(path, MAX_BYTES)
    if not len(time_index):
        yield DumpItem("empty", {}, f"{path} is empty.")
        return
    if options.index_sanity_check:
        yield _sanity(path, problems, is_sound=time_index.is_sound())
        return
    index = OffsetIndex(path.with_suffix(INDEX_SUFFIX), MAX_BYTES)
    mismatches, disordered, missing = [], [], []
    previous_ms = -1
    with opened_log(path.with_suffix(LOG_SUFFIX)) as log:
        for at, (timestamp_ms, relative) in enumerate(time_index.entries()):
            if relative == 0 and at:
                break
            offset = base + relative
            batch = next((h for h in log.headers(index.floor(relative)) if h.last_offset >= offset), None)
            if batch is None or batch.last_offset != offset:
                missing.append(
                    f"Indexed offset: {offset}, found log offset: {-1 if batch is None else batch.last_offset}"
                )
            else:
                if batch.max_timestamp_ms != timestamp_ms:
                    mismatches.append(f"  Index timestamp: {timestamp_ms}, log timestamp: {batch.max_timestamp_ms}")
                if previous_ms >= timestamp_ms:
                    disordered.append(f"  Index timestamp: {timestamp_ms}, Previously indexed timestamp: {previous_ms}")
            if not options.verify_index_only:
                fields: dict[str, object] = {"timestamp": timestamp_ms, "offset": offset}
                yield DumpItem("timeIndexEntry", fields, _pairs(fields))
            previous_ms = timestamp_ms
    problems.report(f"Found timestamp mismatch in :{path}", mismatches)
    problems.report(f"Found out of order timestamp in :{path}", disordered)
    problems.report("The following indexed offsets are not found in the log.", missing)


def _sanity(path: Path, problems: Problems, *, is_sound: bool) -> DumpItem:
    if is_sound:
        return DumpItem("sanityCheck", {"passed": True}, f"{path} passed sanity check.")
    problems.lines.append(f"{path} is not sound; a broker rebuilds it when it starts")
    return DumpItem("sanityCheck", {"passed": False}, f"{path} failed sanity check.")


# Producer snapshots


def _dump_snapshot(path: Path, _options: DumpOptions, problems: Problems) -> Iterator[DumpItem]:
    try:
        entries = decode_snapshot(path.read_bytes())
    except CorruptSnapshot as problem:
        problems.lines.append(f"Snapshot {path} is corrupt: {problem}")
        return
    for entry in entries:
        fields: dict[str, object] = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": entry.transaction_start,
            "lastTimestamp": entry.last_timestamp_ms,
        }
        for span in entry.batches:
            fields |= {
                "firstSequence": span.first_sequence,
                "lastSequence": span.last_sequence,
                "lastOffset": span.last_offset,
                "offsetDelta": span.offset_delta,
                "timestamp": span.timestamp_ms,
            }
        start = _optional(entry.transaction_start)
        yield DumpItem("producer", fields, _pairs(fields | {"currentTxnFirstOffset": start}))
