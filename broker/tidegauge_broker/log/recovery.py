"""Loading a partition's directory, and recovering it if the broker did not stop cleanly.

Contract: ``load_log`` turns a directory into a LogState whose files agree with each other. It runs before any
other code uses the log. Sources: LogLoader.load, LogLoader.recoverLog, LogSegment.recover.

Rules:
    1. After a clean stop nothing is scanned, except a segment whose index is missing or unsound, and the last segment
       if the log does not end as it was closed: then the log is recovered from there, as after a crash. (Kafka trusts
       the mark: it appends behind the rest of a batch.)
    2. Otherwise every batch from the segment that holds the recovery point on is checked (size, magic, CRC,
       rising offsets); indexes, leader epochs and producer state are rebuilt from them.
    3. The log ends at the first bad batch: later segments are removed, and only then that segment is truncated there.
       A recovery that a crash interrupts would else leave a log with a gap, and no sign of it.
    4. If the remaining log ends below the log start offset, it is emptied and begins at the log start offset.
    5. The recovery point is not moved up by recovery: nothing was synced. The high watermark plays no part.
    6. Files of unfinished work (``.deleted``, ``.cleaned``) and indexes without a log are removed; a replacement of
       segments that has begun is completed (``swap.py``).
    7. Snapshots above the first segment that is scanned are of no use then. New ones are taken at the base of every
       scanned segment and at the log's end (LogLoader.recoverSegment, UnifiedLog.rebuildProducerState), so that the
       next recovery need not read what lies before. They are synced with the log's first flush. A segment that is
       scanned covers all its producers, also of those whose batches lie below the log start.
    8. A loss of power may leave the empty file of a new segment while the end of the one before is lost. Such a segment
       says nothing about the log's end: above the recovery point it is removed. (Kafka would take its name for the
       log end offset, and claim offsets that it does not have.)
    9. It may also leave later segments, while one before them has lost all its unsynced bytes. A segment above the
       recovery point that is empty, or ends just there, and does not reach to the next one, is such a one: the later
       segments are removed. (Kafka would keep the gap, which no replication fills.)
       Below ``LoadPlan.synced_offset`` no synced batch can be missing: there a compaction has left such a gap,
       and rules 8 and 9 do not apply.
   10. A .txnindex that is written again is synced, unless its segment will be scanned by the next recovery, too: a
       segment without the file is taken for one without aborted transactions, whose records readers would then get.
       It is written before the other indexes, whose state says that it must be.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tidegauge.errors import TidegaugeError
from tidegauge.record_batch import HEADER_BYTES, NO_PRODUCER_ID, BatchHeader, crc_matches, read_header
from tidegauge.transaction_marker import Outcome
from tidegauge_broker.log import checkpoints, producer_snapshot
from tidegauge_broker.log.checkpoints import CorruptCheckpoint, EpochCheckpoint
from tidegauge_broker.log.files import DISK, TEMPORARY_SUFFIX, Disk
from tidegauge_broker.log.log_state import LogSettings, LogState
from tidegauge_broker.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    TIME_INDEX_SUFFIX,
    LogSegment,
)
from tidegauge_broker.log.swap import complete_swaps, remove_cleaned
from tidegauge_broker.log.transaction_index import TRANSACTION_INDEX_SUFFIX, aborted
from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.open_transactions import AbortedTransaction
from tidegauge_broker.replica.producer_state import ProducerState

_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_SCAN_BYTES = 1 << 20

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The known facts about a log before it is loaded; offsets come from the checkpoint files, 0 by default.

    Attributes:
        synced_offset: all below was on the disk once, by the checkpoints of recovery points and of the cleaner;
            ``recovery_point`` may be lower, so that more is scanned.
    """

    clean: bool
    recovery_point: int
    log_start_offset: int
    now_ms: int
    producer_id_expiration_ms: int
    disk: Disk = DISK
    synced_offset: int = 0


def load_log(directory: Path, settings: LogSettings, plan: LoadPlan) -> LogState:
    """Load a partition's directory, recovering what needs it.

    Raises:
        OSError: the disk refused.
    """
    _remove_leftovers(directory, plan.disk)
    remove_cleaned(directory, plan.disk)
    complete_swaps(directory, plan.disk)
    _remove_orphans(directory, plan.disk)
    segments = _load_segments(directory, settings, plan)
    damage = _damage_after_clean_stop(segments, plan) if plan.clean else ""
    if damage:
        _logger.error(
            "%s: the broker stopped cleanly, but %s; the log is recovered as after a crash", directory.name, damage
        )
        plan = replace(plan, clean=False, recovery_point=segments[-1].base_offset if segments else 0)
    epochs, epochs_lost = _load_epochs(directory)
    if not plan.clean:
        segments = _recover(segments, epochs, settings, plan)
    log_end_offset = segments[-1].next_offset() if segments else 0
    log_start_offset = max(plan.log_start_offset, segments[0].base_offset if segments else 0)
    if segments and log_end_offset < log_start_offset:
        _logger.error(
            "%s: log end offset %d is below the log start offset %d; all segments are removed",
            directory.name,
            log_end_offset,
            log_start_offset,
        )
        _delete(segments)
        segments = []
    if not segments:
        log_end_offset = log_start_offset
        segments = [_create(directory, log_start_offset, settings, plan)]
    if epochs_lost:
        epochs = _epochs_of(segments)
    former_epoch = -1 if plan.clean or epochs.latest_epoch is None else epochs.latest_epoch
    epochs_owed = _fit_epochs(directory, epochs, log_start_offset, log_end_offset, plan.disk)
    recovery_point = log_end_offset if plan.clean else min(plan.recovery_point, log_end_offset)
    producer_state, snapshots = _load_producers(directory, segments, log_start_offset, log_end_offset, plan)
    return LogState(
        segments=segments,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        recovery_point=recovery_point,
        producer_state=producer_state,
        snapshots_owed=snapshots,
        epochs=epochs.entries,
        epochs_owed=epochs_owed,
        former_epoch=former_epoch,
        topic_id=_load_topic_id(directory),
    )


def make_log(directory: Path, settings: LogSettings, plan: LoadPlan) -> LogState:
    """Create the first files of a log in a new directory, without looking for existing ones.

    Raises:
        OSError: the disk refused.
    """
    EpochCheckpoint(directory / checkpoints.LEADER_EPOCH_CHECKPOINT, plan.disk).create_missing()
    return LogState(
        segments=[_create(directory, 0, settings, plan)],
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        producer_state=ProducerState(),
        epochs=[],
    )


def _create(directory: Path, base_offset: int, settings: LogSettings, plan: LoadPlan) -> LogSegment:
    return LogSegment.create(
        directory,
        base_offset,
        index_max_bytes=settings.segment_index_bytes,
        created_ms=plan.now_ms,
        disk=plan.disk,
    )


# Files


def _remove_leftovers(directory: Path, disk: Disk) -> None:
    for path in list(directory.iterdir()):
        if path.suffix in {DELETED_SUFFIX, TEMPORARY_SUFFIX}:
            level = logging.INFO if path.suffix == DELETED_SUFFIX else logging.WARNING
            _logger.log(level, "Removing %s, which an unfinished operation left", path)
            disk.remove(path)


def _remove_orphans(directory: Path, disk: Disk) -> None:
    """Remove indexes without a log. Before a swap is completed its own may be among them."""
    for path in list(directory.iterdir()):
        if path.suffix in _INDEXES and not path.with_suffix(LOG_SUFFIX).exists():
            _logger.warning("Removing %s, whose log is missing", path)
            disk.remove(path)


def _load_segments(directory: Path, settings: LogSettings, plan: LoadPlan) -> list[LogSegment]:
    """All segments, with sound indexes where the log will not be scanned anyway."""
    offsets = sorted(int(path.stem) for path in directory.glob("*" + LOG_SUFFIX) if path.stem.isdecimal())
    segments = [
        LogSegment.load(
            directory,
            offset,
            index_max_bytes=settings.segment_index_bytes,
            created_ms=plan.now_ms,
            disk=plan.disk,
        )
        for offset in offsets
    ]
    for at, segment in enumerate(segments):
        end_offset = offsets[at + 1] if at + 1 < len(offsets) else None
        scanned = not plan.clean and (end_offset is None or end_offset > plan.recovery_point)
        if not scanned and not _indexes_are_sound(segment):
            _logger.warning("%s: the indexes are missing or unsound and are rebuilt", segment.path)
            _rebuild_transaction_index(directory, segments[: at + 1], plan)
            removed_bytes = scan_segment(segment, settings.index_interval_bytes, end_offset, EpochCache())
            if removed_bytes:
                _logger.error("%s: truncated %d bytes at the first bad batch", segment.path, removed_bytes)
                _rebuild_transaction_index(directory, segments[: at + 1], plan)
    return segments


def _damage_after_clean_stop(segments: Sequence[LogSegment], plan: LoadPlan) -> str:
    """Return the damage at the end of a cleanly closed log, or empty.

    The recovery point of such a log is the end that it had.
    """
    if not segments:
        return f"its segments are missing, which ended at offset {plan.recovery_point}" if plan.recovery_point else ""
    last = segments[-1]
    try:
        end_offset = last.next_offset()
    except TidegaugeError as problem:
        return problem.message
    if end_offset < plan.recovery_point:
        return f"it ends at offset {end_offset}, and had ended at {plan.recovery_point}"
    if last.index.last_offset() >= end_offset - last.base_offset:
        return f"the index of its last segment names offsets beyond its end {end_offset}"
    return ""


def _indexes_are_sound(segment: LogSegment) -> bool:
    try:
        return (
            segment.index.is_sound(segment.size_bytes)
            and segment.time_index.is_sound()
            and segment.transaction_index.is_sound(segment.base_offset)
        )
    except FileNotFoundError:
        return False


def _load_topic_id(directory: Path) -> str:
    try:
        return checkpoints.read_topic_id(directory) or ""
    except CorruptCheckpoint as problem:
        _logger.warning("%s; the topic id is taken from the controller", problem)
        return ""


# Batches


def _recover(segments: list[LogSegment], epochs: EpochCache, settings: LogSettings, plan: LoadPlan) -> list[LogSegment]:
    """Scan from the recovery point; returns the segments that are left."""
    for at, segment in enumerate(segments):
        following = segments[at + 1].base_offset if at + 1 < len(segments) else None
        if following is not None and following <= plan.recovery_point:
            continue
        later = segments[at + 1 :]
        removed_bytes = scan_segment(segment, settings.index_interval_bytes, following, epochs, later=later)
        if removed_bytes:
            _logger.warning(
                "%s: truncated %d bytes at the first bad batch; %d later segments are removed",
                segment.path,
                removed_bytes,
                len(later),
            )
            return segments[: at + 1]
        if following is not None and _has_lost_its_end(segment, following, plan):
            _logger.warning(
                "%s: unsynced records are missing, up to offset %d; %d later segments are removed",
                segment.path,
                following,
                len(later),
            )
            _delete(later)
            return segments[: at + 1]
    _drop_hollow_end(segments, plan)
    return segments


def _delete(later: Sequence[LogSegment]) -> None:
    """Remove segments, the newest first: what a crash leaves of them still follows the one before.

    A power loss does not bring them back: behind later appends they would look sound.
    """
    for segment in reversed(later):
        segment.delete()
    for segment in later[:1]:
        segment.disk.sync_directory(segment.path.parent)


def _has_lost_its_end(segment: LogSegment, following: int, plan: LoadPlan) -> bool:
    """Whether a scanned segment has lost its end by a power loss: rule 9."""
    if following <= plan.synced_offset:
        return False
    end_offset = segment.next_offset()
    return end_offset < following and (segment.size_bytes == 0 or end_offset == plan.recovery_point)


def _drop_hollow_end(segments: list[LogSegment], plan: LoadPlan) -> None:
    """Remove empty segments behind a gap at the end: rule 8."""
    while (
        len(segments) > 1
        and segments[-1].size_bytes == 0
        and segments[-1].base_offset > max(plan.recovery_point, plan.synced_offset)
        and segments[-2].next_offset() < segments[-1].base_offset
    ):
        _logger.warning("%s: removed, it is empty and the records before it are missing", segments[-1].path)
        _delete([segments.pop()])


def scan_segment(
    segment: LogSegment,
    index_interval_bytes: int,
    end_offset: int | None,
    epochs: EpochCache,
    *,
    later: Sequence[LogSegment] = (),
) -> int:
    """Check every batch of a segment, build its indexes, truncate it at the first bad batch.

    Args:
        segment: the segment.
        index_interval_bytes: bytes between two index entries.
        end_offset: the next segment's base, which no batch may reach; None for the last segment.
        epochs: takes in the batches' leader epochs.
        later: segments that are removed before this one is truncated, if it is.

    Returns:
        How many bytes were truncated.
    """
    segment.begin_rebuild()
    indexed_until = valid_bytes = 0
    for header in _sound_batches(segment, end_offset):
        indexed_until = segment.note_recovered(header, indexed_until, index_interval_bytes)
        latest = epochs.latest_epoch
        if header.leader_epoch > (-1 if latest is None else latest):
            epochs.assign(header.leader_epoch, header.base_offset)
        valid_bytes = header.position + header.size_bytes
    removed_bytes = segment.size_bytes - valid_bytes
    if removed_bytes:
        _delete(later)
        segment.truncate_file(valid_bytes)
    segment.seal()
    return removed_bytes


def _sound_batches(segment: LogSegment, end_offset: int | None) -> Iterator[BatchHeader]:
    """Headers of the batches up to the first bad one; their ``position`` is that in the file."""
    last = segment.base_offset + MAX_RELATIVE_OFFSET
    if end_offset is not None:
        last = min(last, end_offset - 1)
    next_offset = segment.base_offset
    for header in checked_batches(segment.descriptor, segment.size_bytes):
        if not next_offset <= header.base_offset <= header.last_offset <= last:
            _logger.warning("%s: offsets %d to %d do not follow", segment.path, header.base_offset, header.last_offset)
            return
        yield header
        next_offset = header.next_offset


def checked_batches(descriptor: int, size_bytes: int) -> Iterator[BatchHeader]:
    """Yield the headers of a file's batches, until one is incomplete or its CRC is wrong."""
    chunk, start, position = memoryview(b""), 0, 0
    while size_bytes - position >= HEADER_BYTES:
        at = position - start
        if len(chunk) - at < HEADER_BYTES:
            chunk, start, at = memoryview(os.pread(descriptor, _SCAN_BYTES, position)), position, 0
        try:
            header = read_header(chunk, at)
        except TidegaugeError:
            return
        if position + header.size_bytes > size_bytes:
            return
        if at + header.size_bytes > len(chunk):
            wanted = max(_SCAN_BYTES, header.size_bytes)
            chunk, start = memoryview(os.pread(descriptor, wanted, position)), position
            header = header._replace(position=0)
        if not crc_matches(chunk, header):
            return
        yield header._replace(position=position)
        position += header.size_bytes


# Leader epochs


def _load_epochs(directory: Path) -> tuple[EpochCache, bool]:
    """Read the leader epoch cache; return it, and whether its file is unusable."""
    try:
        return EpochCache(EpochCheckpoint(directory / checkpoints.LEADER_EPOCH_CHECKPOINT).read()), False
    except CorruptCheckpoint as problem:
        _logger.warning("%s; the leader epochs are taken from the batches", problem)
        return EpochCache(), True


def _epochs_of(segments: Sequence[LogSegment]) -> EpochCache:
    """Return the leader epochs in the batches of a log."""
    epochs = EpochCache()
    for segment in segments:
        for header in _headers_until_damage(segment, 0):
            latest = epochs.latest_epoch
            if header.leader_epoch > (-1 if latest is None else latest):
                epochs.assign(header.leader_epoch, header.base_offset)
    return epochs


def _fit_epochs(directory: Path, epochs: EpochCache, log_start_offset: int, log_end_offset: int, disk: Disk) -> bool:
    """Truncate the cache to what the log holds, and write it if that or recovery changed it.

    An empty one is owed only, which this says: the log's first flush writes it, or its first append, which begins an
    epoch at any rate. So thousands of empty logs do not keep a start waiting for the disk.
    """
    checkpoint = EpochCheckpoint(directory / checkpoints.LEADER_EPOCH_CHECKPOINT, disk)
    checkpoint.create_missing()
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(log_start_offset)
    with suppress(CorruptCheckpoint):
        if checkpoint.read() == epochs.entries:
            return False
        if not epochs.entries:
            return True
    checkpoint.write(epochs.entries)
    return False


# Producers


def _load_producers(
    directory: Path, segments: Sequence[LogSegment], log_start_offset: int, log_end_offset: int, plan: LoadPlan
) -> tuple[ProducerState, list[Path]]:
    """Return the producer state at the log's end, and newly written snapshots.

    It is built from the newest snapshot and the batches after it.
    """
    bases = [segment.base_offset for segment in segments]
    producer_snapshot.remove_stray_snapshots(directory, bases, plan.disk)
    scanned = [] if plan.clean else bases[max(0, bisect_right(bases, plan.recovery_point) - 1) :]
    kept_until, keeps = min([log_end_offset, *scanned]), {*bases[-2:], *scanned}
    producer_snapshot.remove_snapshots(directory, above=kept_until, up_to=log_start_offset, disk=plan.disk)
    found = producer_snapshot.newest_snapshot(directory, log_start_offset, kept_until, plan.disk)
    from_offset, entries = found or (log_start_offset, [])
    state = ProducerState.from_entries(entries)
    state.expire(plan.now_ms, plan.producer_id_expiration_ms)
    written: list[Path] = []

    def take(offset: int) -> None:
        if offset > from_offset:
            path = producer_snapshot.write_snapshot(directory, offset, state.entries(), sync=False, disk=plan.disk)
            written.append(path)

    for segment, end_offset in zip(segments, [*bases[1:], log_end_offset], strict=True):
        if segment.base_offset in keeps:
            take(segment.base_offset)
        if segment.base_offset in scanned:
            found_aborted = _replay(state, segment, segment.base_offset)
            segment.transaction_index.replace(found_aborted, sync=log_end_offset <= plan.recovery_point)  # rule 10
        elif end_offset > from_offset:
            _replay(state, segment, from_offset)
    if log_end_offset > bases[-1]:
        take(log_end_offset)
    state.expire(plan.now_ms, plan.producer_id_expiration_ms)
    return state, written


def replay_producers(state: ProducerState, segments: Sequence[LogSegment], from_offset: int) -> None:
    """Take in the batches from an offset to the end of the log."""
    for at, segment in enumerate(segments):
        if at + 1 == len(segments) or segments[at + 1].base_offset > from_offset:
            _replay(state, segment, from_offset)


def _rebuild_transaction_index(directory: Path, segments: Sequence[LogSegment], plan: LoadPlan) -> None:
    """Write the last of these segments' .txnindex, from the producer state as of its base (LogSegment.recover)."""
    *before, segment = segments
    base = segment.base_offset
    found = producer_snapshot.newest_snapshot(directory, plan.log_start_offset, base, plan.disk)
    from_offset, entries = found or (plan.log_start_offset, [])
    state = ProducerState.from_entries(entries)
    if from_offset < base:
        replay_producers(state, before, from_offset)
    segment.transaction_index.replace(_replay_headers(state, segment, 0), sync=True)


def _replay(state: ProducerState, segment: LogSegment, from_offset: int) -> list[AbortedTransaction]:
    """Take in a segment's batches from an offset on, and return the transactions that are aborted there."""
    try:
        position = segment.position_of(from_offset)
    except TidegaugeError as problem:
        _logger.error("%s: its producers are not known: %s", segment.path, problem.message)  # noqa: TRY400 - it says all
        return []
    return [] if position is None else _replay_headers(state, segment, position)


def _replay_headers(state: ProducerState, segment: LogSegment, position: int) -> list[AbortedTransaction]:
    """Take in a segment's batches from a position on, and return the transactions that are aborted there."""
    found: list[AbortedTransaction] = []
    for header in _headers_until_damage(segment, position):
        if header.producer_id == NO_PRODUCER_ID:
            continue
        if not header.is_control:
            state.update(header)
            continue
        try:
            marker = segment.marker_of(header)
        except TidegaugeError as problem:
            _logger.error("%s: a marker is not known: %s", segment.path, problem.message)  # noqa: TRY400 - it says all
            continue
        completed = None if marker is None else state.update_marker(header, marker)
        if completed is not None:
            state.transactions.hold(completed)
            if marker is not None and marker.outcome is Outcome.ABORT:
                found.append(aborted(completed, state.transactions))
    return found


def _headers_until_damage(segment: LogSegment, position: int) -> Iterator[BatchHeader]:
    """Headers from a position on; a damaged batch hides those behind it, which no index of producers can help."""
    try:
        yield from segment.headers(position)
    except TidegaugeError as problem:
        _logger.error("%s: what lies behind is not known to the log: %s", segment.path, problem.message)  # noqa: TRY400 - it says all
