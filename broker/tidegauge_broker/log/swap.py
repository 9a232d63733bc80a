"""Compacted segments take the place of old ones in steps; loading a log completes what a crash interrupted.

The steps (LocalLog.replaceSegments): the new files are written as ``.cleaned`` and synced, and
renamed to ``.swap``; the old files are renamed to ``.deleted``; the new ones lose their suffix. In the set of
files the ``.log`` is renamed first and the ``.txnindex`` last (LogSegment.changeFileSuffixes). So one broker
may find what another one left, Apache Kafka's or ours.

Rules (LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load):
    1. While files of a segment are still ``.cleaned``, the old segments count. Its ``.swap`` files are removed, and
       only then the ``.cleaned`` ones, so that a crash in between changes nothing.
    2. Otherwise a ``.log.swap`` stands for every segment whose base lies within its offsets. Old segments behind its
       last batch may still be there, and stay: the compaction found nothing in them that is needed. They are removed in
       order, so behind one that stays are all that follow: what it deletes or aborts does not come back. The next
       compaction, which begins at the same cleaner checkpoint, removes it.
    3. The new segment need not have a ``.txnindex``. One of that name without the suffix is the old segment's while
       there is an ``.index.swap``; afterwards it is the new one's.
    4. Without a ``.log.swap`` the ``.log`` is the new segment's, and other files that are ``.swap`` are its, too.
"""

from __future__ import annotations

import logging
from pathlib import Path

from tidegauge.errors import TidegaugeError
from tidegauge_broker.log.files import Disk
from tidegauge_broker.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    LogSegment,
    file_name,
)
from tidegauge_broker.log.transaction_index import TRANSACTION_INDEX_SUFFIX

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

_logger = logging.getLogger(__name__)


def remove_cleaned(directory: Path, disk: Disk) -> None:
    """Remove the files of compactions that had not come to take anything's place: rule 1.

    Raises:
        OSError: the disk refused.
    """
    cleaned = sorted(directory.glob("*" + CLEANED_SUFFIX))
    if not cleaned:
        return
    first = min(path.name.partition(".")[0] for path in cleaned)
    for path in (*sorted(directory.glob("*" + SWAP_SUFFIX)), *cleaned):
        if path.name.partition(".")[0] >= first:
            _logger.warning("Removing %s, which an unfinished compaction left", path)
            disk.remove(path)


def complete_swaps(directory: Path, disk: Disk) -> None:
    """Finish the replacements that had begun in a partition's directory.

    Raises:
        OSError: the disk refused.
    """
    swaps = sorted(directory.glob("*" + LOG_SUFFIX + SWAP_SUFFIX))
    for path in swaps:
        base_offset = int(path.name.removesuffix(LOG_SUFFIX + SWAP_SUFFIX))
        segment = LogSegment(directory, base_offset, index_max_bytes=0, created_ms=0, disk=disk, suffix=SWAP_SUFFIX)
        segment.size_bytes = path.stat().st_size
        end_offset = base_offset + 1
        try:
            for spot in segment.spots(0):
                end_offset = spot.last_offset + 1
        except TidegaugeError as problem:
            _logger.error("%s; what it replaced before was removed", problem.message)  # noqa: TRY400 - it says all
        segment.close()
        _logger.info("%s: a compaction that a crash interrupted is completed", path)
        for old in directory.glob("*" + LOG_SUFFIX):
            if old.stem.isdecimal() and base_offset <= int(old.stem) < end_offset:
                for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
                    disk.remove(old.with_suffix(suffix))
        if segment.index.path.exists():  # rule 3
            disk.remove(directory / (file_name(base_offset) + TRANSACTION_INDEX_SUFFIX))
        segment.rename_files("")
    for leftover in sorted(directory.glob("*" + SWAP_SUFFIX)):  # rule 4
        disk.rename(leftover, leftover.with_suffix(""))
        swaps.append(leftover)
    if swaps:
        disk.sync_directory(directory)
