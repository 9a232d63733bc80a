"""A compaction that a kill interrupts between two renames, by this broker's process or by Apache Kafka 3.9's.

Both rename a segment's files in the order of LogSegment.changeFileSuffixes: the ``.log``, the ``.index``, the
``.timeindex``, the ``.txnindex``. Until all are ``.swap`` the old segments count, from then on the new one
(LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load).
"""

from __future__ import annotations

import shutil

import pytest
from tests.unit.log.crash_look import look_at

from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker

KINDS = (".log", ".index", ".timeindex", ".txnindex")
NAME = "0" * 20


@pytest.fixture
def cleaned(bench, keyed_batch):
    """A log of which one segment was written again, with an aborted transaction that stays in it.

    The recovery point is above it, so that nothing is built again from the batches.
    """
    bench.settings |= {"log.cleanup.policy": "compact", "log.cleaner.min.cleanable.ratio": "0"}
    for value in (b"1", b"2"):
        bench.append(keyed_batch((b"k", value)))
    bench.append(keyed_batch((b"l", b"1"), (b"m", b"1"), (b"n", b"1")))
    bench.append(keyed_batch((b"k", b"aborted"), producer_id=8, sequence=0, transactional=True))
    bench.append(make_marker(TransactionMarker(8, 0, Outcome.ABORT, 0), bench.now_ms))
    log = bench.log()
    log._roll(log.log_end_offset)
    bench.manager.sync(bench.name)
    cleaning = bench.manager.compaction.next_to_clean({bench.name: log.log_end_offset})
    cleaning._offsets.capacity = 2
    (group,) = cleaning.map_keys()
    cleaning.write(group)
    bench.stop(clean=False)
    return bench


def renames():
    """All renames of a swap, in order."""
    found = [(NAME + kind + ".cleaned", NAME + kind + ".swap") for kind in KINDS]
    found += [(NAME + kind, NAME + kind + ".deleted") for kind in KINDS]
    return found + [(NAME + kind + ".swap", NAME + kind) for kind in KINDS]


@pytest.mark.parametrize("count", range(13))
def test_a_swap_that_is_killed_between_two_renames(cleaned, count):
    """The records are the old ones or the new ones, and the aborted transaction is named in any case."""
    directory = cleaned.partition_directory
    for name, to in renames()[:count]:
        (directory / name).rename(directory / to)
    for _ in range(2):
        cleaned.restart(clean=False)
        found = look_at(cleaned.manager, cleaned.name)
        assert [row[0] for row in found.rows] == ([0, 1, 2, 3, 4, 5] if count < 4 else [1, 2, 3, 4, 5])
        assert [row[2] for row in found.committed[0]] == [b"1"] * (count < 4) + [b"2", b"1", b"1", b"1"]
        assert [path for path in directory.iterdir() if path.suffix in {".swap", ".cleaned", ".deleted"}] == []


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_start_that_is_killed_while_it_drops_a_swap(cleaned, count):
    """The ``.swap`` files go before the ``.cleaned`` ones: else the former would count as the new segment's."""
    directory = cleaned.partition_directory
    for name, to in renames()[:count]:
        (directory / name).rename(directory / to)
    before = sorted(path.name for path in directory.glob(NAME + ".*.swap"))
    removed = []

    class Dies(type(cleaned.disk)):
        def remove(self, path):
            if path.suffix in {".swap", ".cleaned"} and path.exists():
                removed.append(path.name)
            super().remove(path)

    cleaned.disk = Dies()
    cleaned.log()
    assert removed[: len(before)] == before


def test_a_swap_of_which_an_older_process_left_the_log_for_the_last(cleaned):
    """Processes before renamed the ``.log`` after the others; a ``.txnindex`` without suffix is then the new one."""
    directory = cleaned.partition_directory
    for kind in KINDS:
        (directory / (NAME + kind)).unlink()
        shutil.move(directory / (NAME + kind + ".cleaned"), directory / (NAME + kind))
    (directory / (NAME + ".log")).rename(directory / (NAME + ".log.swap"))
    cleaned.restart(clean=False)
    found = look_at(cleaned.manager, cleaned.name)
    assert [row[2] for row in found.committed[0]] == [b"2", b"1", b"1", b"1"]
